"""Translate the layout of a collection into the configuration and the indexes of Qdrant Edge."""

import json
import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import qdrant_edge as edge

from chunkproof.clients.qdrant.filters import Json, qdrant_key
from chunkproof.clients.qdrant.transfer import Layout
from chunkproof.files import write_file

CONFIG = "edge_config.json"
# Of a large collection, the fields of so many payloads are looked at, and so many of them get an index.
SAMPLE_PAYLOADS = 100
MAX_INDEXES = 20
# A longer text is content, which is not filtered by as a whole.
MAX_INDEXED_CHARS = 256
# Scripts without spaces between words: Thai, Lao, Myanmar, Khmer, kana, Han.
_UNSPACED = re.compile(
    "[\u0e01-\u0eff\u1000-\u109f\u1780-\u17ff\u3041-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
    "\uff66-\uff9d\U00020000-\U0003ffff]"
)
_UNSPACED_SHARE = 0.5

_DATATYPES = {
    "float32": edge.VectorStorageDatatype.Float32,
    "float16": edge.VectorStorageDatatype.Float16,
    "uint8": edge.VectorStorageDatatype.Uint8,
}
_TOKENIZERS = {
    "prefix": edge.TokenizerType.Prefix,
    "whitespace": edge.TokenizerType.Whitespace,
    "word": edge.TokenizerType.Word,
    "multilingual": edge.TokenizerType.Multilingual,
}


def to_edge_config(layout: Layout) -> edge.EdgeConfig:
    """Return the configuration of a shard; quantization is left out, as only the original vectors are copied.

    The engine's write-ahead log is off: it would let only one process open the shard, and the store has a journal.
    """
    return edge.EdgeConfig(
        vectors={name: _vector_params(params) for name, params in layout.vectors.items()},
        sparse_vectors={name: _sparse_params(params) for name, params in layout.sparse_vectors.items()},
        wal_enabled=False,
    )


def to_edge_indexes(layout: Layout) -> dict[str, Any]:
    """Return the indexes of payload fields."""
    return {field: _index(params) for field, params in layout.indexes.items()}


def word_index(tokenizer: edge.TokenizerType = edge.TokenizerType.Word) -> edge.TextIndexParams:
    """Return an index that ranks texts by their words, without regard to case, accents and English endings.

    A server's BM25 stems English words too.
    """
    stemmer = edge.SnowballParams(edge.SnowballLanguage.English)
    return edge.TextIndexParams(tokenizer=tokenizer, lowercase=True, ascii_folding=True, stemmer=stemmer, scoring=True)


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


def unpack_shard(snapshot: Path, folder: Path, word_fields: Sequence[str]) -> None:
    """Make a shard from a server's snapshot of one, with the same vectors and indexes and without a write-ahead log."""
    folder.mkdir()
    edge.EdgeShard.unpack_snapshot(str(snapshot), str(folder))
    shard = edge.EdgeShard.load(str(folder))  # applies the operations of the log
    for field in word_fields:
        shard.update(edge.UpdateOperation.create_field_index(field, word_index()))
    shard.flush()
    shard.close()
    config = json.loads((folder / CONFIG).read_bytes())
    shutil.rmtree(folder / "wal", ignore_errors=True)
    write_file(folder / CONFIG, json.dumps({**config, "wal_enabled": False}))


def _vector_params(params: Json) -> edge.EdgeVectorParams:
    multi = edge.MultiVectorConfig(edge.MultiVectorComparator.MaxSim) if params.get("multivector_config") else None
    return edge.EdgeVectorParams(
        size=params["size"],
        distance=getattr(edge.Distance, params["distance"]),
        multivector_config=multi,
        datatype=_DATATYPES[params["datatype"]] if params.get("datatype") else None,
    )


def _sparse_params(params: Json) -> edge.EdgeSparseVectorParams:
    return edge.EdgeSparseVectorParams(modifier=edge.Modifier.Idf if params.get("modifier") == "idf" else None)


def _index(params: Json) -> Any:
    if params["type"] == "text":
        return word_index(_TOKENIZERS.get(params.get("tokenizer") or "word", edge.TokenizerType.Word))
    return getattr(edge.PayloadSchemaType, params["type"].capitalize())
