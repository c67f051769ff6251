"""Requests made from the OpenAPI document, thousands of ways: every answer is one that it promises."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from support.openapi import document
from support.serving import Serving, serving

CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
schema = schemathesis.openapi.from_dict(document())


@pytest.fixture(scope="module")
def server(loaded_handbook: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    with serving(loaded_handbook, tmp_path_factory.mktemp("schema")) as running:
        yield running


@schema.parametrize()
@settings(
    max_examples=60,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.explicit, Phase.generate],
)
def test_every_answer_is_one_that_the_document_promises(case: Any, server: Serving) -> None:
    case.call_and_validate(base_url=server.url, checks=CHECKS)
