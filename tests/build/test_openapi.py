"""The API keeps what it promised: nothing of contract 1.0 is removed or retyped."""

import json
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from chunkproof import CONTRACT_VERSION

from support.openapi import document
from support.openapi_changes import breaking_changes

PROMISED = Path(__file__).resolve().parents[1] / "data" / "openapi-1.0.json"

OLD: dict[str, Any] = {
    "paths": {
        "/things/{name}": {
            "get": {
                "parameters": [
                    {"in": "path", "name": "name", "required": True, "schema": {"type": "string"}},
                    {"in": "query", "name": "deep", "schema": {"type": "boolean"}},
                ],
                "responses": {
                    "200": {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/Thing"}}}}
                },
            }
        },
        "/things": {
            "post": {
                "requestBody": {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/Thing"}}}},
                "responses": {
                    "200": {
                        "content": {
                            "application/json": {
                                "schema": {"type": "array", "items": {"$ref": "#/components/schemas/Thing"}}
                            }
                        }
                    }
                },
            }
        },
    },
    "components": {
        "schemas": {
            "Thing": {
                "type": "object",
                "required": ["id"],
                "properties": {
                    "id": {"type": "string"},
                    "size": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
                    "state": {"type": "string", "enum": ["on", "off"]},
                    "tags": {"type": "array", "items": {"type": "string"}},
                    "at": {"$ref": "#/components/schemas/Place"},
                    "parent": {"anyOf": [{"$ref": "#/components/schemas/Thing"}, {"type": "null"}]},
                },
            },
            "Place": {"type": "object", "properties": {"line": {"type": "integer"}}},
        }
    },
}


def changed(*path: str, to: Any = None) -> list[str]:
    """The breaking changes when one place of the document is removed, or becomes something else."""
    new = deepcopy(OLD)
    *way, last = path
    part = new
    for step in way:
        part = part[step]
    if to is None:
        del part[last]
    else:
        part[last] = to
    return breaking_changes(OLD, new)


THING = ("components", "schemas", "Thing")


def test_the_same_document_breaks_nothing() -> None:
    assert breaking_changes(OLD, deepcopy(OLD)) == []


def test_a_removed_route_or_method_is_found() -> None:
    assert changed("paths", "/things") == ["POST /things is gone"]
    assert changed("paths", "/things/{name}", "get") == ["GET /things/{name} is gone"]


def test_a_removed_answer_is_found() -> None:
    assert changed("paths", "/things", "post", "responses", "200") == ["POST /things answer 200 is gone"]


def test_a_removed_field_is_found_wherever_it_is_used() -> None:
    assert changed(*THING, "properties", "tags") == [
        "GET /things/{name} answer 200: tags is gone",
        "POST /things request: tags is gone",
        "POST /things answer 200: tags is gone",
    ]


def test_a_removed_field_of_a_field_is_found() -> None:
    assert "GET /things/{name} answer 200: at: line is gone" in changed(
        "components", "schemas", "Place", "properties", "line"
    )


@pytest.mark.parametrize(
    ("field", "to", "words"),
    [
        ("id", {"type": "integer"}, "id was string and is integer"),
        ("size", {"type": "integer"}, "size was integer or null and is integer"),
        (
            "size",
            {"anyOf": [{"type": "number"}, {"type": "null"}]},
            "size was integer or null and is null or number",
        ),
        (
            "state",
            {"type": "string", "enum": ["on"]},
            "state was string of ['off', 'on'] and is string of ['on']",
        ),
        (
            "tags",
            {"type": "array", "items": {"type": "integer"}},
            "tags was list of string and is list of integer",
        ),
        ("at", {"type": "string"}, "at was object and is string"),
    ],
)
def test_a_retyped_field_is_found(field: str, to: dict[str, Any], words: str) -> None:
    assert f"GET /things/{{name}} answer 200: {words}" in changed(*THING, "properties", field, to=to)


def test_a_newly_required_field_is_found_in_requests_only() -> None:
    assert changed(*THING, "required", to=["id", "size"]) == ["POST /things request: size is required now"]


def test_changed_parameters_are_found() -> None:
    way = ("paths", "/things/{name}", "get", "parameters")
    name, deep = OLD["paths"]["/things/{name}"]["get"]["parameters"]
    where = "GET /things/{name} query parameter deep"
    assert changed(*way, to=[name]) == [f"{where} is gone"]
    assert changed(*way, to=[name, {**deep, "schema": {"type": "string"}}]) == [f"{where} was boolean and is string"]
    assert changed(*way, to=[name, {**deep, "required": True}]) == [f"{where} is required now"]


@pytest.mark.parametrize(
    ("path", "to"),
    [
        ((*THING, "properties", "colour"), {"type": "string"}),
        ((*THING, "properties", "id"), {"type": "string", "description": "Its name", "maxLength": 5}),
        ((*THING, "title"), "Another"),
        (("paths", "/more"), {"get": {"responses": {}}}),
        (("paths", "/things", "post", "responses", "404"), {"description": "Not there"}),
        ((*THING, "required"), []),
    ],
)
def test_what_is_added_or_reworded_breaks_nothing(path: tuple[str, ...], to: Any) -> None:
    assert changed(*path, to=to) == []


# the API itself


def test_the_api_is_compatible_with_version_1_0() -> None:
    assert breaking_changes(json.loads(PROMISED.read_text("utf-8")), document()) == []


def test_the_compared_document_has_the_contract_version() -> None:
    promised = json.loads(PROMISED.read_text("utf-8"))
    assert promised["info"]["version"] == document()["info"]["version"] == CONTRACT_VERSION == "1.0"


@pytest.mark.parametrize(
    ("schema", "field"),
    [
        ("RetrievalResponse", "query"),
        ("SearchResult", "similarity_score"),
        ("ExecutionMetadata", "latency_ms"),
        ("ValidationResult", "matches"),
        ("Mismatch", "kind"),
        ("TextPosition", "byte"),
        ("SearchQuery", "score_threshold"),
        ("ChunkValidation", "original_sha256"),
        ("CollectionInfo", "payload_map"),
        ("ChunkMetadata", "chunk_id"),
        ("Health", "contract_version"),
        ("DependencyHealth", "status"),
        ("ErrorDetail", "code"),
    ],
)
def test_the_removal_of_any_field_is_found(schema: str, field: str) -> None:
    poorer = deepcopy(document())
    del poorer["components"]["schemas"][schema]["properties"][field]
    assert any(change.endswith(f": {field} is gone") for change in breaking_changes(document(), poorer))
    other = deepcopy(document())
    other["components"]["schemas"][schema]["properties"][field] = {"type": "array", "items": {"type": "null"}}
    assert any(f": {field} was " in change for change in breaking_changes(document(), other))
