"""The paths that `make test-states` takes through the state machines in a second interpreter."""

import json

import pytest

from support.states import definition
from tools.checks.state_machines import CASES, FILLED, OWN, mock_config


@pytest.mark.parametrize("name", OWN)
def test_every_task_has_a_mocked_response_in_every_case(name: str) -> None:
    written = json.loads(definition(name, {**FILLED, **OWN[name]}))["States"]
    tasks = {state for state, found in written.items() if found["Type"] == "Task"}
    tasks |= set(written["Shards"]["ItemProcessor"]["States"]) & {"Shard"}
    cases = mock_config()["StateMachines"][name]["TestCases"]
    assert {case.name for case in CASES if case.machine == name} == set(cases)
    assert all(set(states) == tasks for states in cases.values())


@pytest.mark.parametrize("name", OWN)
def test_every_failure_that_a_machine_names_is_provoked(name: str) -> None:
    written = json.loads(definition(name, {**FILLED, **OWN[name]}))["States"]
    named = {found["Error"] for found in written.values() if found["Type"] == "Fail"}
    assert named <= {case.error for case in CASES if case.machine == name}
