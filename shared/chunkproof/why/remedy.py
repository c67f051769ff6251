"""What brings a chunk back: the cost of the changes, the commands that make them, and the writes that they take.

Writes are operations for Qdrant, or chunks for `chunkproof load`; `why` itself writes nothing to the collection.
"""

import hashlib
import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import compress, product
from pathlib import Path
from typing import Any
from urllib.parse import quote

from chunkproof.audit.snapshot_file import filterable_fields
from chunkproof.collection.lookup import point_id_for
from chunkproof.collection.payload_map import flatten, lies_in_json_string, parse_json
from chunkproof.contract.conditions import AnyOf, Between, format_filters
from chunkproof.contract.query_options import Mode
from chunkproof.proof.vector_judge import AGREES
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
# What the search itself is changed for; the others change what is stored.
OF_THE_SEARCH = frozenset((Cause.FILTERED_OUT, Cause.BELOW_THRESHOLD, Cause.BEYOND_TOP_K))
OF_THE_SEARCH |= {Cause.OTHER_LEG, Cause.RERANKED, Cause.LEFT_OUT, Cause.MISSED_BY_INDEX}
# What `load` adds to a chunk.
LOADED = ("content_hash", "embedding_model")
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
    Cause.UNREADABLE: "one payload to write, or CHUNKPROOF_PAYLOAD_MAP to set, which chunkproof doctor proposes",
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
    # Other options, by the field of a request that each one is.
    others: Mapping[str, str] = field(default_factory=dict)

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
        return " ".join([*options, *self.others.values()])

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
    def causes(self) -> set[Cause | None]:
        """What the changes undo."""
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
            ranked = [] if self.replay.is_by_words else self.replay.rankings.ranking(filters).points
            more = sum(score <= point.score < self.replay.query.similarity_threshold for point in ranked)
            return f"up to {more:,} more results pass at {_round_down(score):g}"
        if change.undoes is Cause.BEYOND_TOP_K:
            more = (self.placement.rank or 0) - self.replay.query.top_k
            return f"{more:,} more result{'' if more == 1 else 's'} in each response"
        if change.undoes is Cause.DUPLICATES:
            found = self._find_duplicates(filters, frozenset())
            different = {self.replay.collection.text_of(point) for point in self.replay.collection.fetch(list(found))}
            differing = f": their {len(different):,} texts differ" if len(different) > 1 else ""
            return f"{len(found):,} near-duplicates to delete{differing}"
        if change.is_for_all:
            texts = self.replay.collection.count()
            return f"{texts:,} texts to embed, or the model to set, which chunkproof doctor names"
        return "one text to embed and one point to write"

    def _find_duplicates(self, conditions: Where, own: frozenset[PointId]) -> frozenset[PointId]:
        if not self.replay.is_plain:
            return frozenset(point_id for point_id in self.replay.repeated if point_id is not None)
        return self.replay.rankings.distinct(conditions, 0, own)[1]

    def command(self, expected: str, snapshot: Path | None) -> str | None:
        """Return the command that makes the changes, or that writes down what has to be written to the store."""
        causes = self.causes
        if self.fix is None and self.scenario.is_of_the_search:
            return self._improve_index() if causes == {Cause.MISSED_BY_INDEX} else self._search()
        twin = next((chunk.twin for chunk in self.replay.target.chunks if chunk.twin), None)
        if causes == {Cause.ID_CHANGED} and twin is not None:
            expected, snapshot = self.replay.collection.payloads.id_of(twin), None
        elif not self._is_writable:
            return None
        before = [f"--snapshot {shlex.quote(str(snapshot))}"] if snapshot is not None else []
        written = [f"--fix {self._fix_file}"] if self._is_writable else []
        options = [f"--expect {shlex.quote(expected)}", self.commands.search_options(), *before, *written]
        return self.commands.command("why", " ".join(options), self.replay.query.query_text)

    @property
    def then(self) -> str | None:
        """The command that sends what was written down."""
        if not self._is_writable:
            return None
        sent = self._send("POST", "/points/batch?wait=true", f"@{QDRANT_FIX}")
        if self._fix_file != QDRANT_FIX:
            sent = self.commands.command("load", "", self._fix_file)
        search = self._search() if self.causes & OF_THE_SEARCH else None
        return f"{sent} && {search}" if search else sent

    @property
    def refused(self) -> str | None:
        """Why no fix is written, where the changes take one."""
        fix, other = self.fix, "this store takes what chunkproof load makes, and that would be another point"
        return None if fix is None or self._is_writable else fix.refused or other

    @property
    def _is_writable(self) -> bool:
        """Whether the fix can be written down as the store takes it."""
        return self.fix is not None and bool(self.fix.operations if self._fix_file == QDRANT_FIX else self.fix.chunks)

    def _send(self, method: str, path: str, body: str) -> str:
        url = f"$QDRANT_URL/collections/{quote(self.replay.collection.name)}{path}"
        headers = '--fail-with-body -H "content-type: application/json" -H "api-key: $QDRANT_API_KEY"'
        return f'curl -X {method} "{url}" {headers} -d {body}'

    @property
    def _fix_file(self) -> str:
        return QDRANT_FIX if self.replay.collection.settings.qdrant_url is not None else "fix.jsonl"

    def _improve_index(self) -> str | None:
        """Return what builds a better index; an exact search where there is none, or the search has its own options."""
        collection, store = self.replay.collection, self.replay.collection.store
        is_own = self.replay.query.params is not None or collection.describe().quantization
        if is_own or getattr(store, "is_embedded", False) or not isinstance(store, WritableStore):
            return self._search()
        now = collection.ask(partial(store.layout, collection.name)).settings.get("hnsw_config") or {}
        config = {"m": 2 * max(8, now.get("m", 0)), "ef_construct": 2 * max(100, now.get("ef_construct", 0))}
        return self._send("PATCH", "", shlex.quote(json.dumps({"hnsw_config": config})))

    def _find_depth(self) -> int | None:
        """Return how many results show the chunk: more than its rank where scores are equal, or by the index."""
        rank, most, is_sure = self.placement.rank or 1, self.replay.most_results, not self.scenario.is_of_the_search
        depths = dict.fromkeys(min(rank << doublings, most) for doublings in range(11) if rank <= most)
        found = (depth for depth in depths if is_sure or self.replay.repeat(replace(self.scenario, top_k=depth)).found)
        return next(found, None)

    def _search(self) -> str | None:
        options: dict[str, Any] = {"others": dict(self.commands.others)}
        is_always = self.replay.collection.settings.rerank == "always" and Cause.RERANKED in self.causes
        for change in self.changes:
            for name in change.updates.get("overrides", ()):
                options["others"].pop(name, None)
            if change.undoes is Cause.MISSED_BY_INDEX:
                options["others"]["params"] = "--params '{\"exact\": true}'"
            if change.undoes is Cause.FILTERED_OUT:
                options["filters"] = format_filters(self.scenario.conditions)
            if change.undoes is Cause.BELOW_THRESHOLD:
                options["threshold"] = _round_down(self.placement.score or 0.0)
            if change.undoes is Cause.OTHER_LEG and "mode" in change.updates["overrides"]:
                options["mode"] = change.updates["overrides"]["mode"].value
                options |= {"threshold": 0.0} if options["mode"] == Mode.TEXT else {}  # which computes no cosines
            if change.undoes is Cause.BEYOND_TOP_K:
                options["top_k"] = self._find_depth()
        if options.get("top_k", 1) is None:
            return None
        return f"{'CHUNKPROOF_RERANK=requested ' if is_always else ''}{self.commands.search(**options)}"

    @cached_property
    def fix(self) -> Fix | None:
        """The writes that make these changes; None where they change only the search, or every point."""
        if self.scenario.space:
            return None
        operations: list[dict[str, Any]] = []
        lines: list[dict[str, Any] | None] = []
        for chunk in self.replay.target.chunks:
            if (written := self._rewrite(chunk)) is not None:
                vectors = self._make_vectors(chunk, written)
                if (obstacle := self._find_obstacle(chunk, vectors)) is not None:
                    return Fix((), (), refused=obstacle)
                operations += _write_point(chunk.point, written, vectors)
                lines.append(self._describe_chunk(written))
        if Cause.DUPLICATES in self.causes:
            own = self.replay.target.point_ids
            duplicates = self._find_duplicates(self.scenario.conditions, own)
            operations.append({"delete": {"points": sorted(duplicates, key=str)}})
            lines.append(None)  # `load` deletes nothing
        chunks = [line for line in lines if line is not None]
        return Fix(operations, chunks if len(chunks) == len(lines) else ()) if operations else None

    def _rewrite(self, chunk: TargetChunk) -> Point | None:
        """Return the point of a chunk with the payload that it should have; None for one that is as it should be."""
        payloads, point, text = self.replay.collection.payloads, chunk.point, chunk.former_text
        if point is None:
            if chunk.former is None or not self.causes & OF_THE_TEXT:
                return None
            former = {**self._blanks, **chunk.former.payload}
            return Point(chunk.former.expected_point_id, nest({**former, self._text_path: text} if text else former))
        payload = dict(point.payload)
        if self._restores_text(chunk):
            path = payloads.path_in("text", payload) or "text"
            payload |= _restore(payload, path, payloads.find_text(point) or "", text or "")
            path = payloads.path_in("content_hash", payload) or ""
            if chunk.former and path in chunk.former.payload:  # of which only a part may be stored
                payload |= _set(payload, path, chunk.former.payload[path])
        for change in self.changes:
            condition = self.replay.query.filters[change.filter or 0] if change.undoes in OF_A_FIELD else None
            if isinstance(condition, AnyOf | Between):
                value = chunk.former.payload.get(condition.field) if chunk.former else None
                value = payloads.stated(change.other_field, point.payload) if change.other_field else value
                payload |= _set(payload, condition.field, value) if value is not None else {}
        is_same = payload == point.payload and not self.causes & OF_THE_VECTOR
        return None if is_same else replace(point, payload=payload)

    def _make_vectors(self, chunk: TargetChunk, written: Point) -> dict[str, Any] | None:
        """Return the vectors of a point that change, with that of searches by words; None where one cannot be made."""
        collection, replay, judge = self.replay.collection, self.replay, self.replay.judge
        name, store, vectors = collection.vector_name, collection.store, dict[str, Any]()
        is_new = chunk.point is None or self._restores_text(chunk)
        if not is_new and not self.causes & OF_THE_VECTOR:
            return vectors
        if name is not None:
            known = [v for v in (None if is_new else written.vector, chunk.former_vector) if v]
            fits = (judge.is_foreign or not judge.judge(replace(written, vector=tuple(v))).is_stale for v in known)
            vector = next(compress(known, fits), None)
            if vector is None and judge.usual >= AGREES:
                vector = next((made for _, made in judge.embed_again([written])), None)
            if vector is None:
                return None
            vectors[name] = [float(value) for value in vector]
        if (
            replay.indexed_text
            and isinstance(store, WritableStore)
            and (is_new or self.scenario.rewritten or replay.has_stale_words(written))
        ):
            words = collection.ask(store.bm25_maker)(replay.indexed_text(written))
            vectors[str(collection.text_leg.sparse_vector)] = words
        return vectors

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

    def _find_obstacle(self, chunk: TargetChunk, made: Any) -> str | None:
        """Say why a chunk cannot be written as its pipeline wrote it."""
        collection, usual = self.replay.collection, self.replay.judge.usual
        if made is None:
            why = "" if usual >= AGREES else f": others have a cosine of {usual:.2f} with their texts"
            return f"its vector cannot be made here{why}; a snapshot would keep it (--vectors)"
        if chunk.point is not None and not self._restores_text(chunk):
            return None  # its text is as it was
        description = collection.describe()
        vectors = {*(config.name for config in description.vectors), *description.sparse_vectors}
        if self.replay.indexed_text is not None:
            vectors.discard(str(collection.text_leg.sparse_vector))
        if others := sorted(vectors - {collection.vector_name}):
            return f"the vectors {', '.join(others)} of its text cannot be made here as those of other chunks were"
        if chunk.point is not None or chunk.former is None:
            return None
        payloads, path = collection.sample.payloads, self._text_path
        if any(lies_in_json_string(path, payload) for payload in payloads):
            return f"its pipeline keeps the text in a JSON string ({path}), of which the snapshot has no other part"
        if dotted := sorted({name for payload in payloads for name in payload if "." in name}):
            return f"the snapshot does not keep {dotted[0]} apart from a field inside another one"
        lost: set[str] = set()
        for payload in payloads:
            kept = {path, *filterable_fields(payload, collection.payloads.value("text", payload))}
            lost |= {name for name, value in flatten(payload) if value not in (None, {})} - kept
        return f"the snapshot does not keep {', '.join(sorted(lost))}, which other chunks have" if lost else None

    def _describe_chunk(self, written: Point) -> dict[str, Any] | None:
        """Return the line of chunks.jsonl of which `load` makes exactly this point; None where it makes another one."""
        collection, payload = self.replay.collection, written.payload
        description, name = collection.describe(), payload.get("chunk_id")
        is_loaded = isinstance(name, str) and point_id_for(name) == written.id and self.replay.judge.usual >= AGREES
        has_all = {"text", *LOADED} <= payload.keys() and not any(value is None for value in payload.values())
        is_whole = len(description.vectors) == 1 and len(description.sparse_vectors) <= bool(self.replay.indexed_text)
        line = {name: value for name, value in payload.items() if name not in LOADED}
        return line if is_loaded and has_all and is_whole else None


def _write_point(stored: Point | None, written: Point, vectors: Any) -> Iterator[dict[str, Any]]:
    """Yield the operations that make a point what it should be; `vectors` are those that change."""
    if stored is None:
        yield {"upsert": {"points": [{"id": written.id, "vector": vectors, "payload": written.payload}]}}
        return
    fields = {name: value for name, value in written.payload.items() if stored.payload.get(name, ...) != value}
    if fields:
        yield {"set_payload": {"payload": fields, "points": [written.id]}}
    if vectors:
        yield {"update_vectors": {"points": [{"id": written.id, "vector": vectors}]}}


def _set(payload: Mapping[str, Any], path: str, value: Any) -> dict[str, Any]:
    """Return a field with another value; of a nested one, the outermost with everything else that is in it."""
    first, *rest = [path] if path in payload else path.split(".")
    return {first: _replace(payload.get(first), rest, value)}


def _restore(payload: Mapping[str, Any], path: str, text: str, former: str) -> dict[str, Any]:
    """Return the fields that a text changes: other copies of it, and its hashes, which pipelines keep beside it."""
    hashes = [partial(hashlib.new, name, usedforsecurity=False) for name in ("md5", "sha1", "sha256")]
    both = [(each, each.encode("utf-8", "surrogatepass")) for each in (text, former)]
    before, after = ([each, *(new(data).hexdigest() for new in hashes)] for each, data in both)
    same = dict(zip(before, after, strict=True))

    def swap(value: Any) -> Any:
        if isinstance(value, Mapping):
            return {name: swap(each) for name, each in value.items()}
        if isinstance(value, list):
            return [swap(each) for each in value]
        return same.get(value, value) if isinstance(value, str) and value else value

    swapped = swap(payload)
    return {**swapped, **_set(swapped, path, former)}


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
