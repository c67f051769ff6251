"""What brings a chunk back: the cost of the changes, the commands that make them, and the writes that they take.

Writes are operations for Qdrant, or chunks for `chunkproof load`; `why` itself writes nothing to the collection.
"""

import hashlib
import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import product
from pathlib import Path
from typing import Any
from urllib.parse import quote

from chunkproof.collection.payload_map import flatten, lies_in_json_string, parse_json
from chunkproof.contract.conditions import AnyOf, Between, format_filters
from chunkproof.stores.store_port import Point, PointId, WritableStore
from chunkproof.why.causes import Cause, Fix
from chunkproof.why.changes import Change
from chunkproof.why.examined import Where
from chunkproof.why.replay import Placement, Replay, Scenario, nest
from chunkproof.why.target import TargetChunk

# What is put right by writing the chunk again.
OF_THE_VECTOR = frozenset((Cause.STALE_VECTOR, Cause.OTHER_MODEL))
OF_THE_TEXT = frozenset((Cause.TEXT_CHANGED, Cause.SPLIT_DIFFERENTLY, Cause.DELETED))
OF_A_CHUNK = OF_THE_VECTOR | OF_THE_TEXT
OF_A_FIELD = frozenset((Cause.FIELD_RENAMED, Cause.VALUE_CHANGED))
WRITTEN = OF_A_CHUNK | OF_A_FIELD | {Cause.DUPLICATES}
# What the search itself is changed for; the others change what is stored.
OF_THE_SEARCH = frozenset((Cause.FILTERED_OUT, Cause.BELOW_THRESHOLD, Cause.BEYOND_TOP_K, Cause.OTHER_LEG))
# What is written down for a server; an embedded store gets chunks to load.
QDRANT_FIX = "fix.json"

FIXED_COSTS: dict[Cause | None, str] = {
    Cause.FIELD_RENAMED: "one payload to write",
    Cause.VALUE_CHANGED: "one payload to write",
    Cause.MISSED_BY_INDEX: "a better index takes more memory; an exact search takes more time",
    Cause.ID_CHANGED: "the expectation to update",
    Cause.OTHER_LEG: "another ranking for every query: a suite shows what it costs",
    Cause.RERANKED: "the order of the reranking for every query",
    Cause.LEFT_OUT: "results that resemble each other more",
    Cause.UNREADABLE: "one payload to write, or CHUNKPROOF_PAYLOAD_MAP to set",
}


@dataclass(frozen=True)
class Commands:
    """Writes commands that reach the same store or stack; `where` has its options, such as `--data DIR`."""

    query_text: str
    collection: str | None
    top_k: int
    threshold: float = 0.0
    filters: Mapping[str, Any] | None = None
    where: str = ""
    mode: str | None = None
    others: str = ""

    def search(self, **changes: Any) -> str:
        """Return the search with other options."""
        return self.command("search", replace(self, **changes).search_options(), self.query_text)

    def search_options(self) -> str:
        """Return the options of the search."""
        options = [f"-k {self.top_k}"]
        if self.threshold:
            options.append(f"--threshold {self.threshold:g}")
        if self.mode:
            options.append(f"--mode {self.mode}")
        for name, value in (self.filters or {}).items():
            options.append(f"--filter {shlex.quote(f'{name}={json.dumps(value, ensure_ascii=False, default=str)}')}")
        return " ".join([*options, *([self.others] if self.others else [])])

    def command(self, name: str, options: str = "", argument: str | None = None) -> str:
        """Return a command, quoted for a shell."""
        quoted = "" if argument is None else shlex.quote(argument)
        end = "--" if argument is not None and argument.startswith("-") else ""
        at = f"--collection {shlex.quote(self.collection)}" if self.collection else ""
        return " ".join(part for part in ("chunkproof", name, options, at, self.where, end, quoted) if part)


@dataclass(frozen=True)
class Remedy:
    """The changes that bring a chunk back, and where it is then."""

    changes: Sequence[Change]
    scenario: Scenario
    placement: Placement
    replay: Replay
    commands: Commands

    @property
    def _causes(self) -> set[Cause | None]:
        return {change.undoes for change in self.changes}

    @property
    def cost(self) -> str:
        """What the changes cost."""
        return "; ".join(self._estimate(change) for change in self.changes)

    def _estimate(self, change: Change) -> str:
        score, filters = self.placement.score or 0.0, tuple(self.replay.query.filters)
        if change.undoes in FIXED_COSTS:
            return FIXED_COSTS[change.undoes]
        if change.undoes is Cause.FILTERED_OUT:
            kept = tuple(condition for n, condition in enumerate(filters) if n != change.filter)
            now, then = (self.replay.collection.count(self.replay.rankings.map(each)) for each in (filters, kept))
            return f"{then - now:,} more chunks are searched ({then:,} instead of {now:,})"
        if change.undoes is Cause.BELOW_THRESHOLD:
            ranked = [] if self.replay.is_by_words else self.replay.rankings.ranking(filters).named
            more = sum(score <= point.score < self.replay.query.similarity_threshold for point, _ in ranked)
            return f"up to {more:,} more results pass at {_round_down(score):g}"
        if change.undoes is Cause.BEYOND_TOP_K:
            return f"{(self.placement.rank or 0) - self.replay.query.top_k:,} more results in each response"
        if change.undoes is Cause.DUPLICATES:
            return f"{len(self._find_duplicates(filters, frozenset())):,} near-duplicates to delete"
        if change.is_for_all:
            return f"{self.replay.collection.count():,} texts to embed, or another model for queries"
        return "one text to embed and one point to write"

    def _find_duplicates(self, conditions: Where, own: frozenset[PointId]) -> frozenset[PointId]:
        if not self.replay.is_plain:
            return frozenset(point_id for point_id in self.replay.repeated if point_id is not None)
        return self.replay.rankings.distinct(conditions, 0, own)[1]

    def command(self, expected: str, snapshot: Path | None) -> str | None:
        """Return the command that makes the changes, or that writes down what has to be written to the store."""
        causes = self._causes
        if causes <= OF_THE_SEARCH:
            return self._search()
        if causes == {Cause.MISSED_BY_INDEX}:
            if self.replay.collection.describe().quantization:
                return self.commands.search(others="--params '{\"exact\": true}'")
            return self._send("PATCH", "", shlex.quote('{"hnsw_config": {"m": 16, "ef_construct": 200}}'))
        if causes & {Cause.RERANKED, Cause.LEFT_OUT}:
            return None  # the search without the option that is named
        if not causes & WRITTEN or any(change.is_for_all for change in self.changes):
            return self.commands.command("doctor")
        if not self._is_writable:
            return None
        before = f"--snapshot {shlex.quote(str(snapshot))} " if snapshot is not None else ""
        options = f"--expect {shlex.quote(expected)} {self.commands.search_options()} {before}--fix {self._fix_file}"
        return self.commands.command("why", options, self.replay.query.query_text)

    @property
    def then(self) -> str | None:
        """The command that sends what was written down."""
        if not self._is_writable:
            return None
        sent = self._send("POST", "/points/batch?wait=true", f"@{QDRANT_FIX}")
        if self._fix_file != QDRANT_FIX:
            sent = self.commands.command("load", "", self._fix_file)
        return f"{sent} && {self._search()}" if self._causes & OF_THE_SEARCH else sent

    @property
    def _is_writable(self) -> bool:
        """Whether the fix can be written down as the store takes it."""
        return self.fix is not None and bool(self.fix.operations if self._fix_file == QDRANT_FIX else self.fix.chunks)

    def _send(self, method: str, path: str, body: str) -> str:
        url = f"$QDRANT_URL/collections/{quote(self.replay.collection.name)}{path}"
        headers = '-H "content-type: application/json" -H "api-key: $QDRANT_API_KEY"'
        return f'curl -X {method} "{url}" {headers} -d {body}'

    @property
    def _fix_file(self) -> str:
        return QDRANT_FIX if self.replay.collection.settings.qdrant_url is not None else "fix.jsonl"

    def _search(self) -> str:
        options: dict[str, Any] = {}
        for change in self.changes:
            if change.undoes is Cause.FILTERED_OUT:
                options["filters"] = format_filters(self.scenario.conditions)
            if change.undoes is Cause.BELOW_THRESHOLD:
                options["threshold"] = _round_down(self.placement.score or 0.0)
            if change.undoes is Cause.OTHER_LEG:
                options["mode"] = change.updates["overrides"]["mode"].value
            if change.undoes is Cause.BEYOND_TOP_K:
                options["top_k"] = self.placement.rank or self.replay.query.top_k
        return self.commands.search(**options)

    @cached_property
    def fix(self) -> Fix | None:
        """The writes that make these changes; None where they change only the search, or every point."""
        if self.scenario.space:
            return None
        operations: list[dict[str, Any]] = []
        chunks: list[dict[str, Any]] = []
        for chunk in self.replay.target.chunks:
            if self._is_affected(chunk):
                if (obstacle := self._find_obstacle(chunk)) is not None:
                    return Fix((), (), refused=obstacle)
                operations += self._write_point(chunk)
                chunks += self._describe_chunk(chunk)
        for change in self.changes:
            operations += self._write_field(change)
        if Cause.DUPLICATES in self._causes:
            own = self.replay.target.point_ids
            duplicates = self._find_duplicates(self.scenario.conditions, own)
            operations.append({"delete": {"points": sorted(duplicates, key=str)}})
        return Fix(operations, chunks) if operations else None

    def _is_affected(self, chunk: TargetChunk) -> bool:
        if chunk.point is None:
            return bool(self._causes & OF_THE_TEXT) and chunk.former is not None
        return bool(self._causes & OF_THE_VECTOR) or (bool(self._causes & OF_THE_TEXT) and chunk.has_changed_text)

    def _write_point(self, chunk: TargetChunk) -> Iterator[dict[str, Any]]:
        payloads, point, text = self.replay.collection.payloads, chunk.point, chunk.former_text
        if point is None and chunk.former is not None:
            former = {**self._blanks, **chunk.former.payload}
            written = Point(chunk.former.expected_point_id, nest({**former, self._text_path: text} if text else former))
            if vectors := self._make_vectors(chunk, written):
                yield {"upsert": {"points": [{"id": written.id, "vector": vectors, "payload": written.payload}]}}
        elif point is not None:
            written = point
            if text is not None and self._restores_text(chunk):
                path = payloads.path_in("text", point.payload) or "text"
                fields = _restore(point, path, payloads.find_text(point), text)
                written = replace(point, payload={**point.payload, **fields})
                yield {"set_payload": {"payload": fields, "points": [point.id]}}
            if vectors := self._make_vectors(chunk, written):
                yield {"update_vectors": {"points": [{"id": point.id, "vector": vectors}]}}

    def _make_vectors(self, chunk: TargetChunk, written: Point) -> Any:
        """Return the vectors of a point as it will be stored, with that of searches by words if its text is new."""
        collection, replay, is_new = self.replay.collection, self.replay, written is not chunk.point
        judge, name, store = collection.judge(collection.embedder), collection.vector.name, collection.store
        vector = None if self.scenario.fresh else chunk.former_vector
        if not is_new and replay.is_by_words:
            vector = None if judge.judge(written).is_stale and not judge.is_foreign else written.vector
        elif not is_new:
            vector = replay.vector_of(chunk, self.scenario)
        if vector is None:
            vector = next((made for _, made in judge.embed_again([written])), None)
        if vector is None:
            return None
        values, has_new_words = [float(value) for value in vector], is_new or self.scenario.rewritten
        if (
            replay.indexed_text
            and isinstance(store, WritableStore)
            and (has_new_words or replay.has_stale_words(written))
        ):
            words = collection.ask(store.bm25_maker)(replay.indexed_text(written))
            return {name: values, collection.text_leg.sparse_vector: words}
        return {name: values} if name else values

    @property
    def _blanks(self) -> dict[str, Any]:
        """The fields that are null or empty in every other chunk, which a snapshot does not keep."""
        payloads = self.replay.collection.sample.payloads
        flat = [dict(flatten(each)) | {name: {} for name, value in each.items() if value == {}} for each in payloads]
        return {
            name: value
            for name, value in (flat[0] if flat else {}).items()
            if value in (None, {}) and all(name in other and other[name] == value for other in flat)
        }

    def _restores_text(self, chunk: TargetChunk) -> bool:
        return self.scenario.former_text and chunk.has_changed_text and chunk.former_text is not None

    @property
    def _text_path(self) -> str:
        """Where the collection keeps its texts."""
        collection = self.replay.collection
        return collection.payloads.usual_path("text", collection.sample.payloads) or "text"

    def _find_obstacle(self, chunk: TargetChunk) -> str | None:
        """Say why a chunk cannot be written as its pipeline wrote it."""
        collection = self.replay.collection
        if chunk.point is not None and not self._restores_text(chunk):
            return None  # only its vector is written
        description, judge = collection.describe(), collection.judge(collection.embedder)
        vectors = {*(config.name for config in description.vectors), *description.sparse_vectors}
        if self.replay.indexed_text is not None:
            vectors.discard(str(collection.text_leg.sparse_vector))
        if others := sorted(vectors - {collection.vector.name}):
            return f"the vectors {', '.join(others)} of its text cannot be made here as those of other chunks were"
        if chunk.former_vector is None and (judge.embedder is None or judge.is_foreign):
            return "its vector cannot be made here, and the snapshot does not keep it (--vectors)"
        if chunk.point is not None or chunk.former is None:
            return None
        payloads, path = collection.sample.payloads, self._text_path
        if any(lies_in_json_string(path, payload) for payload in payloads):
            return f"its pipeline keeps the text in a JSON string ({path}), of which the snapshot has no other part"
        if dotted := sorted({name for payload in payloads for name in payload if "." in name}):
            return f"the snapshot does not keep {dotted[0]} apart from a field inside another one"
        fields = [{name for name, value in flatten(payload) if value is not None} for payload in payloads]
        if lost := sorted(set.intersection(*fields) - {path, *chunk.former.payload}) if fields else []:
            return f"the snapshot does not keep {', '.join(lost)}, which the other chunks have"
        return None

    def _write_field(self, change: Change) -> Iterator[dict[str, Any]]:
        condition = self.replay.query.filters[change.filter or 0] if change.undoes in OF_A_FIELD else None
        if not isinstance(condition, AnyOf | Between):
            return
        for point, chunk in self.replay.target.stored:
            value = chunk.former.payload.get(condition.field) if chunk.former else None
            if change.other_field:
                value = self.replay.collection.payloads.stated(change.other_field, point.payload)
            if value is not None:
                yield _set(point, condition.field, value)

    def _describe_chunk(self, chunk: TargetChunk) -> Iterator[dict[str, Any]]:
        """Yield the chunk as a line of chunks.jsonl, unless `load` would give its payload another form."""
        is_former = chunk.former_text is not None and (self.scenario.former_text or chunk.point is None)
        payload = chunk.point.payload if chunk.point else nest(chunk.former.payload) if chunk.former else {}
        payloads = self.replay.collection.payloads
        names = [name for name in payloads.fields if name not in ("text", "content_hash")]
        fields = {name: value for name in names if (value := payloads.value(name, payload)) is not None}
        kept = {name: value for name, value in payload.items() if name not in ("text", "content_hash")}
        if self._text_path == "text":
            text = chunk.former_text if is_former else chunk.text
            yield {**fields, **kept, "chunk_id": chunk.name, "text": text}


def _set(point: Point, path: str, value: Any) -> dict[str, Any]:
    """Set one field; of a nested one, the outermost is written again, with everything else that is in it."""
    first, *rest = [path] if path in point.payload else path.split(".")
    payload = {first: _replace(point.payload.get(first), rest, value)}
    return {"set_payload": {"payload": payload, "points": [point.id]}}


def _restore(point: Point, path: str, text: str | None, former: str) -> dict[str, Any]:
    """Return the fields that a text changes: other copies of it, and its hashes, which pipelines keep beside it."""
    same = {text: former} | {_hash(text or "", name): _hash(former, name) for name in ("md5", "sha1", "sha256")}

    def swap(value: Any) -> Any:
        if isinstance(value, Mapping):
            return {name: swap(each) for name, each in value.items()}
        if isinstance(value, list):
            return [swap(each) for each in value]
        return same.get(value, value) if isinstance(value, str) else value

    payload = swap(point.payload)
    fields = _set(replace(point, payload=payload), path, former)["set_payload"]["payload"]
    return {**{name: value for name, value in payload.items() if value != point.payload[name]}, **fields}


def _hash(text: str, name: str) -> str:
    return hashlib.new(name, text.encode("utf-8", "surrogatepass"), usedforsecurity=False).hexdigest()


def _replace(outer: Any, steps: Sequence[str], value: Any) -> Any:
    """Return a field with the value at a path inside it; a JSON string stays one, spelled as it was."""
    if not steps:
        return value
    if isinstance(outer, str):
        fields = parse_json(outer)
        replaced = _replace(fields, steps, value)
        styles = product((True, False), ((", ", ": "), (",", ":")))
        dumps = [partial(json.dumps, ensure_ascii=ascii_only, separators=marks) for ascii_only, marks in styles]
        return next((dump for dump in dumps if dump(fields) == outer), dumps[0])(replaced)
    inner = dict(outer) if isinstance(outer, Mapping) else {}
    return {**inner, steps[0]: _replace(inner.get(steps[0]), steps[1:], value)}


def _round_down(score: float) -> float:
    """Return a threshold that this score meets, with two decimals."""
    return max(0.0, int(score * 100) / 100)
