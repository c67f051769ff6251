"""Requests that repeat one small thing until the body has as many bytes as Lambda lets through."""

import base64
import gzip
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import cache
from random import Random
from time import thread_time
from typing import Any

from chunkproof.contract import ChunkValidation, ChunkValidations, SearchQuery
from chunkproof.service.api import MAX_REQUEST_BYTES

from support.api import Reply, invoke, request

SEARCH, ONE, MANY = "/search", "/validate-chunk", "/validate-chunks"
NUMBER = "#"  # in a unit, stands for the number of the repetition


@dataclass(frozen=True)
class Flood:
    """A body: `before`, then as many copies of `unit` as fit, joined by commas or nothing, then `after`.

    With `close`, the units are nested: as many copies of `close` follow `core`. `encoding` is how the body is sent:
    "plain", "gzip", "bomb" (gzip of as many bytes, which hold a thousand times as much) or "members" (a gzip of
    nothing, as often as it fits).
    """

    route: str
    before: str
    unit: str
    after: str
    joint: str = ","
    core: str = ""
    close: str = ""
    encoding: str = "plain"

    def body(self, size: int = MAX_REQUEST_BYTES) -> str:
        """Return the body with about this many bytes, and not more."""
        room = size - len(self.before.encode()) - len(self.after.encode()) - len(self.core.encode())
        width = len(self.joint) + len((self.unit + self.close).replace(NUMBER, "0000000").encode())
        count = max(1, room // width)
        units = (self.unit.replace(NUMBER, f"{n:07}") for n in range(count)) if NUMBER in self.unit else ()
        inner = self.joint.join(units) if units else (self.unit + self.joint) * (count - 1) + self.unit
        return f"{self.before}{inner}{self.core}{self.close * count}{self.after}"

    def event(self, size: int = MAX_REQUEST_BYTES) -> dict[str, Any]:
        """Return the event with about this many bytes."""
        if self.encoding == "plain":
            return request("POST", self.route, self.body(size))
        if self.encoding == "gzip":
            content = gzip.compress(self.body(size).encode("utf-8", "surrogatepass"), compresslevel=1)
        elif self.encoding == "bomb":
            content = _bomb(size * 3 // 4)
        else:
            content = gzip.compress(b"") * (size * 3 // 4 // len(gzip.compress(b"")))
        encoded = base64.b64encode(content).decode()
        return request("POST", self.route, encoded, {"content-encoding": "gzip"}, isBase64Encoded=True)

    def as_json(self) -> dict[str, str]:
        """The flood for a record file."""
        return asdict(self)


@cache
def _bomb(size: int) -> bytes:
    """Return gzip of about this many bytes; each holds a thousand spaces."""
    packer = zlib.compressobj(9, zlib.DEFLATED, zlib.MAX_WBITS | 16)
    block, parts, length = b" " * 2**20, [], 0
    while length < size:
        parts.append(packer.compress(block) + packer.flush(zlib.Z_FULL_FLUSH))
        length += len(parts[-1])
        if len(parts) > 4:  # the blocks are alike from here on
            parts += [parts[-1]] * ((size - length) // len(parts[-1]))
            break
    return b"".join(parts) + packer.flush()


PLACES: Mapping[str, tuple[str, str, str, str]] = {
    "vector": (SEARCH, '{"query_vector":[', "]}", ","),
    "text": (SEARCH, '{"query_text":"', '"}', ""),
    "text list": (SEARCH, '{"query_text":[', "]}", ","),
    "names": (SEARCH, '{"query_text":"a",', "}", ","),
    "filter list": (SEARCH, '{"query_text":"a","filters":{"f":[', "]}}", ","),
    "filter object": (SEARCH, '{"query_text":"a","filters":{', "}}", ","),
    "filter bounds": (SEARCH, '{"query_text":"a","filters":{"f":{', "}}}", ","),
    "filter not": (SEARCH, '{"query_text":"a","filters":{"not":{', "}}}", ","),
    "shared filter text": (SEARCH, '{"queries":["a"' + ',"a"' * 31 + '],"filters":{"f":"', '"}}', ""),
    "shared filter list": (SEARCH, '{"queries":["a"' + ',"a"' * 31 + '],"filters":{"f":[', "]}}", ","),
    "rerank": (SEARCH, '{"query_text":"a","rerank":{', "}}", ","),
    "filter name": (SEARCH, '{"query_text":"a","filters":{"', '":1}}', ""),
    "filter text": (SEARCH, '{"query_text":"a","filters":{"f":{"gte":"', '"}}}', ""),
    "name": (SEARCH, '{"', '":1}', ""),
    "time": (SEARCH, '{"query_text":"a","created_at":"', '"}', ""),
    "top level": (SEARCH, "[", "]", ","),
    "open": (SEARCH, "", "", ""),
    "number": (SEARCH, '{"query_text":"a","top_k":', "}", ""),
    "fraction": (SEARCH, '{"query_text":"a","similarity_threshold":0.', "}", ""),
    "chunks": (MANY, '{"chunks":[', "]}", ","),
    "chunk": (MANY, '{"chunks":[{"chunk_id":"1",', "}]}", ","),
    "chunk id": (ONE, '{"chunk_id":"', '","original_text":"x"}', ""),
    "hash": (ONE, '{"chunk_id":"1","original_sha256":"', '"}', ""),
    "validation names": (ONE, '{"chunk_id":"1",', "}", ","),
}
# The least that a request needs besides the field that is flooded.
LEAST = {SEARCH: '"query_text":"a"', ONE: '"chunk_id":"1"', MANY: '"chunks":[{"chunk_id":"1"}]'}
MODELS = {SEARCH: SearchQuery, ONE: ChunkValidation, MANY: ChunkValidations}
VALUES = (
    "NaN", "-Infinity", "1e999", "-1e999", "1", "0", "1.5", "1e-9", "null", "true", '""', '"a"', '"\\ud800"',
    '"\\u0041"', '"\\ud83d\\ude00"', '"\\u0000"', "-0", "1e-400", "[]", "{}", "[[]]", "[NaN]", '{"a":1}',
    '{"a":1,"a":1}', '{"a":NaN}', '{"\\ud800":1}', "9" * 401, "9" * 400, "0." + "1" * 300, "1" * 200 + "e-200",
    "[" * 33 + "]" * 33, "[" * 31 + "]" * 31, '{"a":' * 30 + "1" + "}" * 30, '{"chunk_id":""}',
    '{"chunk_id":"1","original_sha256":"x"}', '{"gte":"x"}', '"2020-13-01"', '"' + "é" * 20 + '"', '[1,"a",NaN]',
)  # fmt: skip
MEMBERS = tuple(f'"{name}":{value}' for name in ("n#", "a", "\\ud800", "not", "gte", "x.", "top-k") for value in
                ("1", "NaN", "[]", "{}", '{"x":1}', '{"n#":null}', "null", '["a",[]]'))  # fmt: skip
TEXTS = (
    "a",
    " ",
    "\\n",
    "\\u0041",
    "\\ud800",
    "é",
    "\\u0f71\\u0f74",
    "\u0f71\u0f74",
    ".",
    "a.",
    "[]",
    "0",
    "1:",
    "+",
    "\x01",
    "x[].",
    '\\"',
)
TOKENS = ("[", '{"a":', '"', "\\", "1", "-", ".", "e", ",", " ", "nul", '"a"', "]", "{", "\ufeff", "[[],")


@cache
def places() -> Mapping[str, tuple[str, str, str, str]]:
    """The places above, and a list, an object, a text and a number in every field of the requests, nested ones too."""
    found = dict(PLACES)
    for route, model in MODELS.items():
        schema = model.model_json_schema()
        for path in _paths(schema, schema.get("$defs", {})):
            inside = "".join(f'"{name}":{{' for name in path[:-1])
            before = "{" + ("" if f'"{path[0]}"' in LEAST[route] else LEAST[route] + ",") + f'{inside}"{path[-1]}":'
            after = "}" * len(path)
            found |= _places_of_field(f"{route} {'.'.join(path)}", route, before, after)
            if route == SEARCH and path[0] != "queries":
                found |= _places_of_field(f"queries {'.'.join(path)}", route, f'{{"queries":[{before}', f"{after}]}}")
    return found


def _places_of_field(name: str, route: str, before: str, after: str) -> dict[str, tuple[str, str, str, str]]:
    return {
        f"{name} list": (route, f"{before}[", f"]{after}", ","),
        f"{name} object": (route, f"{before}{{", f"}}{after}", ","),
        f"{name} text": (route, f'{before}"', f'"{after}', ""),
        f"{name} number": (route, before, after, ""),
    }


def _paths(schema: Mapping[str, Any], shared: Mapping[str, Any], depth: int = 3) -> Iterator[tuple[str, ...]]:
    """List the fields of a JSON schema, including the fields of nested objects."""
    for name, field in schema.get("properties", {}).items():
        yield (name,)
        options = [field, *field.get("anyOf", ()), *field.get("oneOf", ())]
        for option in options if depth else ():
            inner = shared.get(str(option.get("$ref", "")).rpartition("/")[2], option)
            if inner is not field or "properties" in inner:
                yield from ((name, *path) for path in _paths(inner, shared, depth - 1))


NESTED = (
    ('{"not":', "1", "}"), ('{"not":', "{}", "}"), ("[", "", "]"), ('{"a":', "1", "}"),
    ('{"not":{"f":1,"not":', "{}", "}}"), ('[{"a":', "1", "}]"), ('{"filters":', "{}", "}"),
)  # fmt: skip


def floods() -> Iterator[Flood]:
    """Every place with every unit that fits there; nested units; compressed bodies."""
    for place, (route, before, after, joint) in places().items():
        if joint:
            takes_members = before.endswith(("{", ","))
            units: tuple[str, ...] = MEMBERS if takes_members else VALUES
        else:
            is_number = place.endswith(("number", "fraction"))
            units = TOKENS if place == "open" else ("0", "9", "1", "-", "1e", ".1") if is_number else TEXTS
        for unit in units:
            yield Flood(route, before, unit, after, joint)
    for unit, core, close in NESTED:
        for before, after in (('{"query_text":"a","filters":', "}"), ("", ""), ('{"query_vector":', "}")):
            yield Flood(SEARCH, before, unit, after, "", core, close)
    for encoding in ("bomb", "members"):
        yield Flood(SEARCH, "", "", "", " ", encoding=encoding)
    yield Flood(SEARCH, '{"query_vector":[', "NaN", "]}", encoding="gzip")


def random_flood(random: Random) -> Flood:
    """A place at random, and a unit put together at random from smaller ones."""
    route, before, after, joint = random.choice(list(places().values()))

    def value(depth: int) -> str:
        kind = random.randrange(6)
        if depth == 0 or kind < 3:
            return random.choice(VALUES)
        items = [value(depth - 1) for _ in range(random.randrange(4))]
        if kind == 3:
            return f"[{','.join(items)}]"
        names = random.choices(["a", "n#", "not", "gte", "f.g", "\\ud800", "chunk_id", "filters", ""], k=len(items))
        return "{" + ",".join(f'"{name}":{item}' for name, item in zip(names, items, strict=True)) + "}"

    if not joint:
        unit = "".join(random.choices(TOKENS if not before else TEXTS, k=random.randrange(1, 5)))
    elif before.endswith(("{", ",")):
        unit = f'"{random.choice(["n#", "a", "not", "gte", "x."])}":{value(2)}'
    else:
        unit = value(2)
    return Flood(route, before, unit, after, joint, encoding=random.choice(("plain", "plain", "plain", "gzip")))


def send(flood: Flood, size: int = MAX_REQUEST_BYTES) -> tuple[Reply, float, int]:
    """Send the flood to the handlers; return the reply, the seconds of processor time, and the bytes sent."""
    event = flood.event(size)
    started = thread_time()
    reply = invoke(event)
    return reply, thread_time() - started, len(event["body"].encode("utf-8", "surrogatepass"))
