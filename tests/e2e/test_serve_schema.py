"""Requests made from the OpenAPI document: every answer is one that it promises (`make test-fuzz` sends many more)."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from support.fuzzing import operations, send_by_schema
from support.serving import Serving, serving


@pytest.fixture(scope="module")
def server(loaded_handbook: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    with serving(loaded_handbook, tmp_path_factory.mktemp("schema")) as running:
        httpx.post(f"{running.url}/search", json={"query_text": "x"}, timeout=60)  # loads the model
        yield running


@pytest.mark.parametrize("route", operations())
def test_every_answer_is_one_that_the_document_promises(route: str, server: Serving) -> None:
    assert sum(send_by_schema(operations()[route], server.url, 60).values()) > 0
