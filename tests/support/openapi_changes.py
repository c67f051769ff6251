"""Find changes of an OpenAPI document that break existing callers."""

import json
from collections.abc import Iterator
from typing import Any

Schema = dict[str, Any]


def breaking_changes(old: Schema, new: Schema) -> list[str]:
    """List routes, responses, parameters and fields that were removed, changed type, or became required."""
    return list(_routes(old, new))


def _routes(old: Schema, new: Schema) -> Iterator[str]:
    for path, methods in old["paths"].items():
        for method, operation in methods.items():
            where = f"{method.upper()} {path}"
            now = new["paths"].get(path, {}).get(method)
            if now is None:
                yield f"{where} is gone"
                continue
            yield from _parameters(where, operation, now, _Pair(old, new))
            yield from _request(where, operation, now, _Pair(old, new))
            yield from _answers(where, operation, now, _Pair(old, new))


class _Pair:
    """Two documents and the references within each."""

    def __init__(self, old: Schema, new: Schema) -> None:
        self._old, self._new = old, new

    def old(self, schema: Schema) -> Schema:
        return _resolve(schema, self._old)

    def new(self, schema: Schema) -> Schema:
        return _resolve(schema, self._new)


def _resolve(schema: Schema, document: Schema) -> Schema:
    while "$ref" in schema:
        schema = document["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    return schema


def _parameters(where: str, old: Schema, new: Schema, pair: _Pair) -> Iterator[str]:
    before = {(p["in"], p["name"]): p for p in old.get("parameters", [])}
    after = {(p["in"], p["name"]): p for p in new.get("parameters", [])}
    for key, parameter in before.items():
        name = f"{where} {key[0]} parameter {key[1]}"
        if key not in after:
            yield f"{name} is gone"
            continue
        yield from _type_changes(name, parameter["schema"], after[key]["schema"], pair, set())
    for key, parameter in after.items():
        if parameter.get("required") and not before.get(key, {}).get("required"):
            yield f"{where} {key[0]} parameter {key[1]} is required now"


def _request(where: str, old: Schema, new: Schema, pair: _Pair) -> Iterator[str]:
    before, after = _body(old.get("requestBody")), _body(new.get("requestBody"))
    if before is not None and after is None:
        yield f"{where} request is gone"
    elif before is not None and after is not None:
        yield from _fields(f"{where} request", before, after, pair, set())
        yield from _new_requirements(f"{where} request", before, after, pair)


def _answers(where: str, old: Schema, new: Schema, pair: _Pair) -> Iterator[str]:
    for status, answer in old["responses"].items():
        now = new["responses"].get(status)
        before, after = _body(answer), _body(now)
        if now is None or (before is not None and after is None):
            yield f"{where} answer {status} is gone"
        elif before is not None and after is not None:
            yield from _fields(f"{where} answer {status}", before, after, pair, set())


def _body(part: Schema | None) -> Schema | None:
    schema: Schema | None = ((part or {}).get("content") or {}).get("application/json", {}).get("schema")
    return schema


def _new_requirements(where: str, old: Schema, new: Schema, pair: _Pair) -> Iterator[str]:
    before, after = pair.old(old), pair.new(new)
    for name in sorted(set(after.get("required", [])) - set(before.get("required", []))):
        yield f"{where}: {name} is required now"


def _type_changes(where: str, old: Schema, new: Schema, pair: _Pair, seen: set[str]) -> Iterator[str]:
    before, after = _types(old, pair.old), _types(new, pair.new)
    if before != after:
        yield f"{where} was {before} and is {after}"
        return
    yield from _fields(where, old, new, pair, seen)


def _types(schema: Schema, resolved: Any) -> str:
    """All that a value may be, in one word per kind."""
    schema = resolved(schema)
    several = schema.get("anyOf") or schema.get("oneOf")
    if several and "properties" not in schema:
        return " or ".join(sorted({_types(one, resolved) for one in several}))
    kind = schema.get("type", "anything")
    if kind == "array":
        return f"list of {_types(schema.get('items', {}), resolved)}"
    if "enum" in schema:
        return f"{kind} of {sorted(map(str, schema['enum']))}"
    return " or ".join(sorted(kind)) if isinstance(kind, list) else str(kind)


def _fields(where: str, old: Schema, new: Schema, pair: _Pair, seen: set[str]) -> Iterator[str]:
    """Every field below, however deep; one that refers to itself is looked at once."""
    before, after = pair.old(old), pair.new(new)
    mark = json.dumps(before, sort_keys=True)
    if mark in seen:
        return
    seen = {*seen, mark}
    for name, schema in before.get("properties", {}).items():
        if name not in after.get("properties", {}):
            yield f"{where}: {name} is gone"
        else:
            yield from _type_changes(f"{where}: {name}", schema, after["properties"][name], pair, seen)
    if "items" in before and "items" in after:
        yield from _fields(where, before["items"], after["items"], pair, seen)
    for one, other in zip(_several(before, pair.old), _several(after, pair.new), strict=False):
        yield from _fields(where, one, other, pair, seen)


def _several(schema: Schema, resolved: Any) -> list[Schema]:
    """The objects among which a value may choose, in a fixed order."""
    objects = [resolved(one) for one in schema.get("anyOf", [])]
    return sorted((one for one in objects if "properties" in one), key=lambda one: str(one.get("title")))
