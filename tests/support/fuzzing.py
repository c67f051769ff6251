"""Odd requests for the handlers; each response must be one that the OpenAPI document describes."""

import base64
import json
from collections import Counter
from collections.abc import Mapping
from copy import deepcopy
from typing import Any

import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from chunkproof.contract import ChunkValidation, SearchQuery

from support import openapi
from support.api import invoke, request
from support.memory_handlers import SIZE

CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
ROUTES = ("/search", "/validate-chunk", "/validate-chunks")
FIELDS = sorted({*SearchQuery.model_fields, *SearchQuery.aliases, *ChunkValidation.model_fields, "chunks"})
PLAUSIBLE: Mapping[str, st.SearchStrategy[Any]] = {
    "query_text": st.text(max_size=40),
    "query_vector": st.lists(st.floats(-1, 1), min_size=SIZE, max_size=SIZE),
    "top_k": st.integers(-1, 1100),
    "similarity_threshold": st.floats(-0.5, 1.5),
    "rerank": st.booleans()
    | st.fixed_dictionaries(
        {},
        optional={
            "model": st.sampled_from(["rerank-v3.5", "other", ""]),
            "candidates": st.integers(-1, 1100),
        },
    ),
    "highlight": st.booleans(),
    "neighbours": st.integers(-1, 6),
    "explain": st.booleans(),
    "chunk_id": st.sampled_from(["1", "2", "3", "x", ""]),
    "original_text": st.text(max_size=40),
    "original_sha256": st.text("0123456789abcdefg", min_size=60, max_size=64),
    "chunks": st.lists(
        st.fixed_dictionaries(
            {"chunk_id": st.sampled_from(["1", "2", "x", ""])},
            optional={"original_text": st.text(max_size=20), "collection": st.just("docs")},
        ),
        max_size=3,
    ),
    "collection": st.sampled_from(["docs", "other", "../x", "\0"]),
    "filters": st.dictionaries(
        st.sampled_from(["url", "text", "not", "a.b", "a[]", 'a"b', ""]),
        st.one_of(
            st.integers(),
            st.text(max_size=5),
            st.none(),
            st.lists(st.text(max_size=3), max_size=3),
            st.dictionaries(st.sampled_from(["gte", "lt", "x"]), st.one_of(st.floats(), st.text(max_size=10))),
        ),
        max_size=3,
    ),
}

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=30),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)


VALID: Mapping[str, dict[str, Any]] = {
    "/search": {"query_text": "one"},
    "/validate-chunk": {"chunk_id": "1", "original_text": "one"},
    "/validate-chunks": {"chunks": [{"chunk_id": "1", "original_text": "one"}, {"chunk_id": "x"}]},
}


@st.composite
def near_requests(draw: st.DrawFn, path: str) -> dict[str, Any]:
    """A request of this route with some of the API's own fields changed, to values that may be allowed."""
    names = draw(st.lists(st.sampled_from(FIELDS), max_size=3, unique=True))
    changed = {
        name: draw(PLAUSIBLE.get(name, json_values) if draw(st.integers(0, 3)) else json_values) for name in names
    }
    return {**VALID[path], **changed} if draw(st.integers(0, 3)) else changed


@st.composite
def events(draw: st.DrawFn) -> dict[str, Any]:
    """A POST with any body: text, bytes, any JSON, or something near a request."""
    kind = draw(st.sampled_from(["text", "bytes", "json", "near", "near", "near"]))
    headers = draw(
        st.fixed_dictionaries(
            {},
            optional={
                "content-type": st.sampled_from(["application/json", "text/plain", "", "ä" * 300]),
                "content-encoding": st.sampled_from(["gzip", "identity", "br", "GZIP", "", "gzip, gzip"]),
                "accept-encoding": st.text(max_size=20),
                "x-" + "a" * 200: st.text(max_size=50),
            },
        )
    )
    path = draw(st.sampled_from(ROUTES))
    if kind == "bytes":
        body = base64.b64encode(draw(st.binary(max_size=200))).decode()
        return request("POST", path, body, headers, isBase64Encoded=True)
    if kind == "text":
        body = draw(st.text(st.characters(), max_size=200))
        return request("POST", path, body, headers, isBase64Encoded=draw(st.booleans()))
    document = draw(json_values if kind == "json" else near_requests(path))
    return request("POST", path, json.dumps(document, ensure_ascii=draw(st.booleans())), headers)


def limit_examples(examples: int) -> settings:
    """Return Hypothesis settings for this many examples, without deadline and example database."""
    return settings(
        max_examples=examples,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.explicit, Phase.generate, Phase.shrink],
    )


def send_anything(examples: int) -> Counter[str]:
    """Send this many requests and count the responses. Fails with the smallest request that breaks the contract."""
    counts: Counter[str] = Counter()

    @limit_examples(examples)
    @given(events())
    def check_response(event: dict[str, Any]) -> None:
        reply = invoke(event)
        code = "success" if reply.status == 200 else reply.code
        counts[f"{reply.status} {code}"] += 1
        assert reply.status < 500, reply.text
        assert openapi.problems("POST", event["rawPath"], reply.status, reply.json) == []
        assert reply.headers["x-request-id"]

    check_response()
    return counts


def operations() -> dict[str, Any]:
    """Every route of the API document, by method and path."""
    document = deepcopy(openapi.document())
    # Schemathesis takes a response of any profile for the canonical one. test_profiles.py tests the others.
    del document["paths"]["/search"]["post"]["parameters"]
    schema = schemathesis.openapi.from_dict(document)
    return {operation.label: operation for operation in (found.ok() for found in schema.get_all_operations())}


def send_by_schema(operation: Any, url: str, examples: int) -> Counter[str]:
    """Send this many requests made from the document to a running server, and count the responses."""
    counts: Counter[str] = Counter()

    @limit_examples(examples)
    @given(operation.as_strategy())
    def check_response(case: Any) -> None:
        answer = case.call_and_validate(base_url=url, checks=CHECKS)
        counts[str(answer.status_code)] += 1

    check_response()
    return counts
