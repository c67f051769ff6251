"""A collection that this process has open: a shard of Qdrant Edge, shared with others until it is written to.

Below are the translations of Qdrant's JSON into the objects of Qdrant Edge and back.
"""

import json
import math
import re
import shutil
from array import array
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path
from threading import TIMEOUT_MAX, Condition
from typing import Any
from uuid import UUID

import qdrant_edge as edge
from pydantic_core import to_json

from chunkproof.base.errors import InvalidParameterError
from chunkproof.base.files import LockedError, private_files, write_file
from chunkproof.base.request import run_with_timeout
from chunkproof.base.words import UNSPACED
from chunkproof.stores.edge_folder import (
    FIRST_SHARD,
    CollectionLock,
    Journal,
    ShardCopies,
    allocated_bytes,
    check_space,
    hole_bytes,
)
from chunkproof.stores.qdrant import qdrant_key
from chunkproof.stores.store_port import Json, Layout, PointId

# The file in which the engine keeps the configuration of a shard.
CONFIG = "edge_config.json"
# The layout of the collection; for a copy, the layout of its original.
LAYOUT = "layout.json"
# In a large collection, the fields of this many payloads are read, and this many fields get an index.
SAMPLE_PAYLOADS = 100
MAX_INDEXES = 20
# A longer text is content, which is not filtered by as a whole.
MAX_INDEXED_CHARS = 256
_UNSPACED = re.compile(f"[{UNSPACED}]")
_UNSPACED_SHARE = 0.5
# Below, a collection is searched and opened fast enough as it was written.
OPTIMIZE_FROM_BYTES = 20_000_000
# The space that must be free for a write: the engine's next pages, and several times the points.
SPARE_BYTES = 64 << 20
# What the engine fills at most of the holes in the files of a segment when it opens it.
OPENED_BYTES = 32 << 20
SPACE_FACTOR = 4
# So many random texts show which script a collection is in.
SCRIPT_SAMPLE = 500


class Shard:
    """An open collection, for the threads of this process."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = CollectionLock(folder)
        self._journal = Journal(folder)
        self._copies = ShardCopies(folder)
        self._engine: edge.EdgeShard | None = None
        self._is_writable = False
        self._readers = 0
        self._idle = Condition()

    @property
    def engine(self) -> edge.EdgeShard:
        """The open shard."""
        if self._engine is None:
            raise RuntimeError("the collection is not open")
        return self._engine

    @property
    def layout(self) -> Layout:
        """How the collection was made; without a record, as its files show it."""
        if (self._folder / LAYOUT).is_file():
            return Layout(**json.loads((self._folder / LAYOUT).read_bytes()))
        indexes = {
            field: {"type": type_name(index.data_type)}
            for field, index in self.engine.info().payload_schema.items()
            if not getattr(index.params, "on_disk", None)  # `optimize` added it
        }
        return Layout.from_config({"params": self.config, **self.config}, indexes)

    @property
    def config(self) -> Json:
        """The configuration that the engine keeps in a file."""
        config: Json = json.loads((self._copies.current / CONFIG).read_bytes())
        return {"sparse_vectors": {}, **config}

    @contextmanager
    def reading(self) -> Iterator["Shard"]:
        """Open it to read; other threads can do the same."""
        with self._idle:
            if self._engine is None:
                with private_files():
                    self._open()
            self._readers += 1
        try:
            yield self
        finally:
            with self._idle:
                self._readers -= 1
                self._idle.notify_all()

    @contextmanager
    def writing(self) -> Iterator["Shard"]:
        """Open it to write, which no other thread or process then does; it stays writable until it is closed."""
        with self._idle:
            self._idle.wait_for(lambda: self._readers == 0)
            if not self._is_writable:
                # Another process may have written meanwhile, so the engine reads everything again.
                self.close_engine()
                self._lock.acquire(exclusive=True)
                self._copies.remove_abandoned()
                self._open_engine()
                self._check_points()
                self._copies.record_points(None)
                self._is_writable = True
            yield self

    def write(self, structs: Sequence[Json]) -> None:
        """Write points so that all are on disk, or are written when the collection is opened again."""
        self._check_vectors(structs)
        operation = edge.UpdateOperation.upsert_points([to_edge_point(struct) for struct in structs])
        journal = to_json(structs)
        check_space(self._folder, SPARE_BYTES + SPACE_FACTOR * len(journal))
        if self._journal.exists():  # the write before failed
            self._repeat_interrupted()
        with self._journal.recording(journal):
            self.engine.update(operation)
            self.engine.flush()

    def optimize(self) -> None:
        """Build the indexes in a copy that replaces the shard: of words as their script needs, of vectors, for filters.

        A small collection needs only the first.
        """
        is_large = allocated_bytes(self._copies.current) >= OPTIMIZE_FROM_BYTES
        unspaced_fields = self._unspaced_fields()
        if not is_large and not unspaced_fields:
            return
        check_space(self._folder, SPARE_BYTES + 2 * allocated_bytes(self._copies.current))
        self.close_engine()
        try:
            with self._copies.changing_copy() as copy:
                # In a thread, because a call of the engine does not react to Ctrl-C.
                run_with_timeout(lambda: _optimize(copy, unspaced_fields, is_large=is_large), TIMEOUT_MAX)
        finally:
            self._open_engine()

    def _unspaced_fields(self) -> list[str]:
        """Return the fields whose texts need another tokenizer than the index of their words has."""
        fields = [
            field
            for field, index in self.engine.info().payload_schema.items()
            if isinstance(index.params, edge.TextIndexParams)
            and index.params.scoring
            and index.params.tokenizer == edge.TokenizerType.Word
        ]
        if not fields:
            return []
        from chunkproof.stores.hybrid import values_at

        drawn = self.engine.query(edge.QueryRequest(query=edge.Sample.Random, limit=SCRIPT_SAMPLE, with_payload=True))
        return [
            field
            for field in fields
            if needs_segmenter([str(text) for point in drawn for text in values_at(point.payload, field.split("."))])
        ]

    def _check_vectors(self, structs: Sequence[Json]) -> None:
        """Raise `ValueError` for a vector that does not fit, before anything is written."""
        config = self.config
        sizes = {name: params["size"] for name, params in config.get("vectors", {}).items()}
        for struct in structs:
            for name, vector in struct["vector"].items():
                if isinstance(vector, Mapping):
                    if name not in config["sparse_vectors"]:
                        raise ValueError(f"no sparse vector is named {name!r}")
                    _check_numbers(vector["values"])
                    continue
                if name not in sizes:
                    raise ValueError(f"no vector is named {name!r}")
                for row in vector if vector and isinstance(vector[0], Sequence) else [vector]:
                    if len(row) != sizes[name]:
                        raise ValueError(f"a vector of {len(row)} values instead of {sizes[name]}")
                    _check_numbers(row)

    def close(self) -> None:
        """Close it and let other processes write."""
        with self._idle:
            self._idle.wait_for(lambda: self._readers == 0)
            self.finish_writing()
            self.close_engine()
            self._lock.release()
            self._is_writable = False

    def finish_writing(self) -> None:
        """Record how many points there are, if this process may have written some."""
        if self._engine is not None and self._is_writable and not self._journal.exists():
            self._copies.record_points(self._engine.info().points_count)

    def close_engine(self) -> None:
        """Close the engine's files, and keep the lock."""
        if self._engine is not None and self._is_writable:
            self._engine.close()
        self._engine = None  # without `close`, it does not write what it has only read

    def _open(self) -> None:
        with ExitStack() as failed:
            failed.callback(self._lock.release)
            self._lock.acquire(exclusive=False)
            if self._journal.exists():
                self._recover()
            self._open_engine()
            self._check_points()
            failed.pop_all()

    def _recover(self) -> None:
        """Repeat the write that was interrupted, unless another process is faster."""
        try:
            self._lock.acquire(exclusive=True)
        except LockedError:
            self._lock.acquire(exclusive=False)
            if self._journal.exists():
                raise
        else:
            self._open_engine()
            self.close_engine()
            self._lock.acquire(exclusive=False)

    def _open_engine(self) -> None:
        """Open the engine's files; repeat a write that was interrupted, if the lock is exclusive."""
        check_space(self._folder, _opened_bytes(self._copies.current))
        self._engine = edge.EdgeShard.load(str(self._copies.current))
        if self._journal.exists():
            self._repeat_interrupted()

    def _check_points(self) -> None:
        """Raise `InvalidParameterError` if points are missing: the engine opens some damaged files as empty ones."""
        written, found = self._copies.points, self.engine.info().points_count
        if written is not None and found != written:
            self._engine = None
            raise InvalidParameterError(
                f"data folder: {self._folder} is damaged, {found:,} of its {written:,} points can be read; "
                "restore it from a copy, or remove it and load it again"
            )

    def _repeat_interrupted(self) -> None:
        """Write the points of the journal, of which some may be half-written.

        The engine numbers its operations, and leaves out a point that has the number of the operation already. An
        interrupted operation and the next one have the same number, so another operation has to come between: the
        points are deleted first.
        """
        self._copies.record_points(None)
        points = [to_edge_point(struct) for struct in self._journal.read_points()]
        self.engine.update(edge.UpdateOperation.delete_points([point.id for point in points]))
        self.engine.update(edge.UpdateOperation.upsert_points(points))
        self.engine.flush()
        self._journal.clear()


def _check_numbers(values: Sequence[float]) -> None:
    """Raise `ValueError` for a number that is not finite, or not in the 32 bits that are stored."""
    if not all(map(math.isfinite, array("f", values))):
        raise ValueError("a vector has a value that is not a finite 32-bit number")


def _optimize(shard: Path, unspaced_fields: Sequence[str], *, is_large: bool) -> None:
    engine = edge.EdgeShard.load(str(shard))
    for field in unspaced_fields:
        index = word_index(edge.TokenizerType.Multilingual)
        engine.update(edge.UpdateOperation.create_field_index(field, index))
    if is_large:
        sample, _ = engine.scroll(edge.ScrollRequest(limit=SAMPLE_PAYLOADS, with_payload=True))
        existing = engine.info().payload_schema
        for field, schema in filter_indexes([record.payload or {} for record in sample]).items():
            if field not in existing:
                engine.update(edge.UpdateOperation.create_field_index(field, schema))
        engine.optimize()
    engine.flush()
    engine.close()


def needs_segmenter(texts: Sequence[str]) -> bool:
    """Whether most texts have no spaces between words, so that only the multilingual tokenizer finds their words.

    It is no default, because it leaves out numbers: `ERR-4711-X` and `ERR-4712-X` would be the same to it.
    """
    return sum(_UNSPACED.search(text) is not None for text in texts) > _UNSPACED_SHARE * len(texts)


def filter_indexes(payloads: Sequence[Json]) -> dict[str, Any]:
    """Return an index for each field of the payloads that has short texts or booleans, at most 20.

    With one of these types of index, every filter selects the same points as without. That is not so for numbers
    and dates: an integer index has no floats, and a date index answers a range of numbers from its dates.
    They are on disk, so that a collection with many indexes opens nearly as fast.
    """
    values: dict[str, list[Any]] = {}
    for payload in payloads:
        _collect_values(payload, (), values)
    indexes: dict[str, Any] = {}
    for field, found in values.items():
        if not found:
            continue
        if all(isinstance(value, bool) for value in found):
            indexes[field] = edge.BoolIndexParams(on_disk=True)
        elif all(isinstance(value, str) and len(value) <= MAX_INDEXED_CHARS for value in found):
            indexes[field] = edge.KeywordIndexParams(on_disk=True)
    return dict(list(indexes.items())[:MAX_INDEXES])


def _collect_values(value: Any, path: tuple[str, ...], values: dict[str, list[Any]]) -> None:
    if isinstance(value, dict):
        for name, inner in value.items():
            if "." not in name:  # Qdrant could not tell it from a path
                _collect_values(inner, (*path, name), values)
    elif isinstance(value, list):
        values.setdefault(qdrant_key(".".join(path)), []).extend(value)
    elif value is not None:
        values.setdefault(qdrant_key(".".join(path)), []).append(value)


def create_shard(folder: Path, layout: Layout, word_fields: Sequence[str] = ()) -> None:
    """Make an empty shard in the folder of a new collection."""
    path = _record_layout(folder, layout)
    shard = edge.EdgeShard.create(str(path), to_edge_config(layout))
    indexes = {field: to_edge_index(params) for field, params in layout.indexes.items()}
    _add_indexes(shard, {**indexes, **{field: word_index() for field in word_fields}})


def unpack_shard(snapshot: Path, folder: Path, layout: Layout, word_fields: Sequence[str]) -> None:
    """Make a shard from a server's snapshot of one, with the same vectors and indexes and without a write-ahead log."""
    check_space(folder, SPARE_BYTES + 2 * snapshot.stat().st_size)
    path = _record_layout(folder, layout)
    edge.EdgeShard.unpack_snapshot(str(snapshot), str(path))
    check_space(folder, SPARE_BYTES + _opened_bytes(path))  # what was unpacked has taken some
    shard = edge.EdgeShard.load(str(path))  # applies the operations of the log
    _add_indexes(shard, {field: word_index() for field in word_fields})
    config = json.loads((path / CONFIG).read_bytes())
    shutil.rmtree(path / "wal", ignore_errors=True)
    write_file(path / CONFIG, json.dumps({**config, "wal_enabled": False}))


def _opened_bytes(shard: Path) -> int:
    segments = sum(1 for _ in (shard / "segments").glob("*"))  # a server makes several
    return min(hole_bytes(shard), OPENED_BYTES * segments)


def _record_layout(folder: Path, layout: Layout) -> Path:
    """Keep the layout beside the shard, with what only a server uses of it; return the shard's new folder."""
    check_space(folder, SPARE_BYTES)
    write_file(folder / LAYOUT, json.dumps(asdict(layout)))
    (folder / FIRST_SHARD).mkdir()
    return folder / FIRST_SHARD


def _add_indexes(shard: edge.EdgeShard, indexes: Mapping[str, Any]) -> None:
    for field, index in indexes.items():
        shard.update(edge.UpdateOperation.create_field_index(field, index))
    shard.flush()
    shard.close()


# Qdrant's own, where a request names none.
RRF_K = 2


# Searches


def build_request(search: Json) -> edge.QueryRequest:
    """Return the request for a search."""
    payload = payload_selector(search["with_payload"])
    return edge.QueryRequest(**_ranking(search), with_payload=payload, with_vector=search["with_vector"])


def payload_selector(fields: bool | list[str]) -> Any:
    """Return which fields of payloads to read: all, none, or these."""
    return edge.PayloadSelector.Include(fields) if isinstance(fields, list) else fields


def _ranking(search: Json) -> dict[str, Any]:
    """Return what a request and a prefetch have in common."""
    return {
        "limit": search["limit"],
        "query": _query(search["query"], search.get("using") or ""),
        "prefetches": [edge.Prefetch(**_ranking(leg)) for leg in search.get("prefetch", ())],
        "filter": build_filter(search),
        "score_threshold": search.get("score_threshold"),
        "params": _params(search.get("params") or {}),
    }


def _query(query: Any, using: str) -> Any:
    if not isinstance(query, dict):
        return edge.Query.Nearest(list(query), using=using)
    if "mmr" in query:
        mmr = query["mmr"]
        return edge.Mmr(list(query["nearest"]), 1.0 - mmr["diversity"], mmr["candidates_limit"], using=using)
    if "indices" in query:
        return edge.Query.Nearest(edge.SparseVector(query["indices"], query["values"]), using=using)
    if "sample" in query:
        return edge.Sample.Random
    if "text" in query:
        return edge.TextQuery(using, query["text"]["query"])
    if "rrf" in query:
        return edge.Fusion.Rrf(query["rrf"].get("k", RRF_K), query["rrf"].get("weights"))
    return edge.Fusion.Dbsf() if query["fusion"] == "dbsf" else edge.Fusion.Rrf(RRF_K)


def _params(given: Json) -> edge.SearchParams:
    quantization, idf = given.get("quantization"), given.get("idf")
    return edge.SearchParams(
        exact=given.get("exact", False),
        hnsw_ef=given.get("hnsw_ef"),
        quantization=edge.QuantizationSearchParams(**quantization) if quantization else None,
        idf=edge.IdfParams(corpus=_filter(idf["corpus"])) if idf else None,
    )


# Filters


def build_filter(body: Json) -> edge.Filter | None:
    """Return the filter of a request; None when it has none."""
    return _filter(body["filter"]) if body.get("filter") else None


def _filter(built: Json) -> edge.Filter:
    clauses: dict[str, Any] = {clause: [_condition(condition) for condition in built[clause]] for clause in built}
    return edge.Filter(**clauses)


def _condition(built: Json) -> Any:
    if "has_id" in built:
        return edge.HasIdCondition(set(built["has_id"]))
    if "has_vector" in built:
        return edge.HasVectorCondition(built["has_vector"])
    if "is_empty" in built:
        return edge.IsEmptyCondition(built["is_empty"]["key"])
    if "match" in built:
        return edge.FieldCondition(built["key"], match=_match(built["match"]))
    if "range" in built:
        is_about_time = any(isinstance(bound, str) for bound in built["range"].values())
        kind: Any = edge.RangeDateTime if is_about_time else edge.RangeFloat
        return edge.FieldCondition(built["key"], range=kind(**built["range"]))
    return _filter(built)


def _match(built: Json) -> Any:
    if "any" in built:
        return edge.MatchAny(built["any"])
    value = built["value"]
    return edge.MatchValue(_NumpyBool(value) if isinstance(value, bool) else value)  # type: ignore[arg-type]


class _NumpyBool:
    """A boolean that `MatchValue` does not take for an integer.

    In 0.9.0, `MatchValue(True)` means the integer 1, so that no filter selects booleans. The engine's bindings take a
    boolean of numpy for a boolean, and recognise it by the name of its class.
    """

    def __init__(self, value: bool) -> None:
        self._value = value

    def __bool__(self) -> bool:
        return self._value


_NumpyBool.__module__, _NumpyBool.__name__ = "numpy", "bool_"


# Points


def to_record(record: Any) -> Json:
    """Return a point of Qdrant's REST API, with its score if a search returned it."""
    vectors = record.vector
    if isinstance(vectors, dict):
        vectors = {
            name: {"indices": vector.indices, "values": vector.values}
            if isinstance(vector, edge.SparseVector)
            else vector
            for name, vector in vectors.items()
        }
    score = {"score": record.score} if isinstance(record, edge.ScoredPoint) else {}
    return {"id": plain_id(record.id), "payload": record.payload, "vector": vectors, **score}


def to_edge_point(struct: Json) -> edge.Point:
    """Return a point of the engine for one of Qdrant's REST API, whose vectors all have names."""
    vectors = {
        name: edge.SparseVector(vector["indices"], vector["values"]) if isinstance(vector, Mapping) else vector
        for name, vector in struct["vector"].items()
    }
    return edge.Point(struct["id"], vectors, struct["payload"])


def plain_id(point_id: UUID | PointId) -> PointId:
    """Return an id as in Qdrant's REST API."""
    return str(point_id) if isinstance(point_id, UUID) else point_id


# Layouts


def to_edge_config(layout: Layout) -> edge.EdgeConfig:
    """Return the configuration of a shard; quantization is left out, as only the original vectors are copied.

    The engine's write-ahead log is off: it would let only one process open the shard, and the store has a journal.
    """
    return edge.EdgeConfig(
        vectors={name: _vector_params(params) for name, params in layout.vectors.items()},
        sparse_vectors={
            name: edge.EdgeSparseVectorParams(modifier=edge.Modifier.Idf if params.get("modifier") == "idf" else None)
            for name, params in layout.sparse_vectors.items()
        },
        wal_enabled=False,
    )


def word_index(tokenizer: edge.TokenizerType = edge.TokenizerType.Word) -> edge.TextIndexParams:
    """Return an index that ranks texts by their words, without regard to case, accents and English endings.

    A server's BM25 stems English words too.
    """
    stemmer = edge.SnowballParams(edge.SnowballLanguage.English)
    return edge.TextIndexParams(
        tokenizer=tokenizer, lowercase=True, ascii_folding=True, stemmer=stemmer, scoring=True, memory=edge.Memory.Cold
    )


def _vector_params(params: Json) -> edge.EdgeVectorParams:
    datatype = params.get("datatype")
    multi = edge.MultiVectorConfig(edge.MultiVectorComparator.MaxSim) if params.get("multivector_config") else None
    return edge.EdgeVectorParams(
        size=params["size"],
        distance=getattr(edge.Distance, params["distance"]),
        multivector_config=multi,
        datatype=getattr(edge.VectorStorageDatatype, datatype.capitalize()) if datatype else None,
    )


def to_edge_index(params: Json) -> Any:
    """Return the index of a payload field; one in memory would be read whole whenever the shard is opened."""
    if params["type"] == "text":
        tokenizer = (params.get("tokenizer") or "word").capitalize()
        return word_index(getattr(edge.TokenizerType, tokenizer, edge.TokenizerType.Word))
    if params["type"] in ("keyword", "uuid"):
        kind = edge.UuidIndexParams if params["type"] == "uuid" else edge.KeywordIndexParams
        return kind(is_tenant=params.get("is_tenant"), memory=edge.Memory.Cold)
    return getattr(edge.PayloadSchemaType, params["type"].capitalize())


def type_name(member: edge.PayloadSchemaType | edge.TokenizerType) -> str:
    """Return the name of a type in Qdrant's REST API."""
    return str(member).rpartition(".")[2].lower()
