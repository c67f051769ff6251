"""Requests that repeat one small thing until the body has as many bytes as Lambda lets through."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from random import Random
from time import thread_time
from typing import Any

from chunkproof.http.events import MAX_REQUEST_BYTES

from support.api import Reply, invoke, request

SEARCH, ONE, MANY = "/search", "/validate-chunk", "/validate-chunks"
NUMBER = "#"  # in a unit, stands for the number of the repetition


@dataclass(frozen=True)
class Flood:
    """A body: `before`, then as many copies of `unit` as fit, joined by commas or nothing, then `after`."""

    route: str
    before: str
    unit: str
    after: str
    joint: str = ","

    def body(self, size: int = MAX_REQUEST_BYTES) -> str:
        """Return the body with about so many bytes, and not more."""
        room = size - len(self.before.encode()) - len(self.after.encode())
        width = len(self.joint) + len(self.unit.replace(NUMBER, "0000000").encode())
        count = max(1, room // width)
        units = (self.unit.replace(NUMBER, f"{n:07}") for n in range(count)) if NUMBER in self.unit else ()
        inner = self.joint.join(units) if units else (self.unit + self.joint) * (count - 1) + self.unit
        return f"{self.before}{inner}{self.after}"

    def as_json(self) -> dict[str, str]:
        """The flood for a record file."""
        return asdict(self)


PLACES: Mapping[str, tuple[str, str, str, str]] = {
    "vector": (SEARCH, '{"query_vector":[', "]}", ","),
    "text": (SEARCH, '{"query_text":"', '"}', ""),
    "text list": (SEARCH, '{"query_text":[', "]}", ","),
    "names": (SEARCH, '{"query_text":"a",', "}", ","),
    "filter list": (SEARCH, '{"query_text":"a","filters":{"f":[', "]}}", ","),
    "filter object": (SEARCH, '{"query_text":"a","filters":{', "}}", ","),
    "filter bounds": (SEARCH, '{"query_text":"a","filters":{"f":{', "}}}", ","),
    "filter not": (SEARCH, '{"query_text":"a","filters":{"not":{', "}}}", ","),
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
VALUES = (
    "NaN", "-Infinity", "1e999", "-1e999", "1", "0", "1.5", "1e-9", "null", "true", '""', '"a"', '"\\ud800"',
    '"\\u0041"', "[]", "{}", "[[]]", "[NaN]", '{"a":1}', '{"a":1,"a":1}', '{"a":NaN}', '{"\\ud800":1}', "9" * 401,
    "9" * 400, "0." + "1" * 300, "1" * 200 + "e-200", "[" * 33 + "]" * 33, "[" * 31 + "]" * 31,
    '{"a":' * 30 + "1" + "}" * 30,
    '{"chunk_id":""}', '{"chunk_id":"1","original_sha256":"x"}', '{"gte":"x"}',
    '"2020-13-01"', '"' + "é" * 20 + '"', '[1,"a",NaN]',
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


def floods() -> Iterator[Flood]:
    """Every place with every unit that fits there."""
    for place, (route, before, after, joint) in PLACES.items():
        if joint:
            takes_members = before.endswith(("{", ","))
            units: tuple[str, ...] = MEMBERS if takes_members else VALUES
        else:
            units = TOKENS if place == "open" else ("0", "9", "1") if place in ("number", "fraction") else TEXTS
        for unit in units:
            yield Flood(route, before, unit, after, joint)


def random_flood(random: Random) -> Flood:
    """A place at random, and a unit put together at random from smaller ones."""
    route, before, after, joint = random.choice(list(PLACES.values()))

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
    return Flood(route, before, unit, after, joint)


def send(flood: Flood, size: int = MAX_REQUEST_BYTES) -> tuple[Reply, float, int]:
    """Send the flood to the handlers; return the reply, the seconds of processor time, and the bytes sent."""
    body = flood.body(size)
    event: dict[str, Any] = request("POST", flood.route, body)
    started = thread_time()
    reply = invoke(event)
    return reply, thread_time() - started, len(body.encode("utf-8", "surrogatepass"))
