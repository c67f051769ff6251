"""`chunkproof canary` with the local model."""

import json
from pathlib import Path

import pytest

from support.commands import Command


def test_a_record_is_made_and_the_same_model_passes(handbook: Command) -> None:
    run = handbook("canary", "check")
    assert (run.code, "all-MiniLM-L6-v2 of handbook: not recorded" in run.out) == (3, True)
    assert "record it with: chunkproof canary record" in run.err
    run = handbook("canary", "record")
    assert (run.code, "Recorded all-MiniLM-L6-v2 of handbook, 384 values" in run.err) == (0, True)
    run = handbook("canary", "check", "--json")
    (found,) = run.json["canaries"]
    assert (run.code, found["state"], found["texts"]) == (0, "same", [])
    assert found["drift"] < 1e-9


def test_another_vector_than_the_recorded_one_fails_and_names_the_text(handbook: Command, tmp_path: Path) -> None:
    assert handbook("canary", "record").code == 0
    (file,) = tmp_path.rglob("canaries/*.json")
    record = json.loads(file.read_text("utf-8"))
    documents = record["vectors"]["search_document"]
    documents[3] = [-value for value in documents[3]]
    file.write_text(json.dumps(record), "utf-8")
    run = handbook("canary", "check")
    assert run.code == 1
    assert "changed since" in run.out
    assert "drift 2.000000" in run.out
    assert "search_document" in run.out
    assert "Der Antrag ist" in run.out
    assert "The pump" not in run.out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("check", "--tolerance", "nan"), "nan is not a number"),
        (("check", "--tolerance", "-1"), "not in the range"),
        (("check", "--stack", " "), "--stack is empty"),
        (("check", "--api", "https://api.example"), "a stack is named with --stack"),
    ],
)
def test_a_wrong_option_is_named(chunkproof: Command, arguments: tuple[str, ...], message: str) -> None:
    run = chunkproof("canary", *arguments)
    assert (run.code, message in run.err) == (2, True)
