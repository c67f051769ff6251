"""Read the results of any retriever: JSON, plain ids, or the documents of a framework, known by their attributes."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from math import isfinite
from typing import Any

from chunkproof.clients.ports import Point
from chunkproof.errors import CorruptChunkError
from chunkproof.models import ChunkMetadata
from chunkproof.retrieval.payload import PayloadMap
from chunkproof_cli.retrievers.errors import RetrieverError

# Where services, chains and pipelines keep their results.
LISTS = (
    *("results", "documents", "hits", "matches", "points", "chunks", "source_documents", "source_nodes", "nodes"),
    *("context", "contexts", "passages", "items", "data", "result"),
)
IDS = ("chunk_id", "id", "_id", "id_", "point_id", "node_id", "docid", "docno", "doc_id", "document_id", "corpus_id")
TEXTS = ("body", "passage", "snippet", "chunk", "data")
SCORES = ("score", "similarity_score", "similarity", "relevance_score", "_score", "@search.score")
# Attributes of the documents of LangChain, LlamaIndex and Haystack, and of Qdrant's points.
ATTRIBUTES = (*IDS, *SCORES, "text", "content", "page_content", "url", "title", "ref_doc_id")
METADATA = ("metadata", "meta", "payload")
MAX_DEPTH = 4

_payloads = PayloadMap()


@dataclass(frozen=True, slots=True)
class Found:
    """One result; `text` and `score` are None where the retriever returns none."""

    metadata: ChunkMetadata
    text: str | None
    score: float | None


def read_results(answer: Any) -> list[Found]:
    """Read the results in what a retriever returned; `RetrieverError` says what cannot be read."""
    items = find_items(answer)
    if items is None:
        raise RetrieverError(f"The retriever returned {_describe(answer)}; a list of results is expected")
    return [_read(item, number) for number, item in enumerate(items, start=1)]


def find_items(answer: Any, depth: int = 0) -> Sequence[Any] | None:
    """Return the list of results, which may lie inside of objects; None when there is no list."""
    if isinstance(answer, list | tuple):
        return answer
    if isinstance(answer, Mapping):
        # The last component of a pipeline has the final results.
        objects = [value for value in answer.values() if isinstance(value, Mapping)]
        inner = [answer[name] for name in (*LISTS, "ids") if name in answer] + objects[::-1]
    elif isinstance(answer, str | bytes) or answer is None:
        return None
    else:
        inner = [value for name in LISTS if (value := getattr(answer, name, None)) is not None]
        if not inner and isinstance(answer, Iterable):
            return list(answer)
    if depth == MAX_DEPTH:
        return None
    lists = (found for value in inner if (found := find_items(value, depth + 1)) is not None)
    return next(lists, None)


def make_found(fields: Mapping[str, Any], number: int) -> Found:
    """Make a result of its fields; `number` is for the message when it has neither an id nor a text."""
    fields = _clean(fields)
    inner = [fields, *(fields[name] for name in METADATA if isinstance(fields.get(name), Mapping))]
    payload = {**fields, **(fields["payload"] if isinstance(fields.get("payload"), Mapping) else {})}
    text = _payloads.value("text", payload)
    if not isinstance(text, str):
        text = next((payload[name] for name in TEXTS if isinstance(payload.get(name), str)), None)
    key = _find_id(inner) or _text_id(text)
    if key is None:
        raise RetrieverError(f"Result {number} of the retriever has neither an id nor a text")
    try:
        chunk = _payloads.chunk_of(Point(key, {**payload, "text": text or ""}))
    except CorruptChunkError:
        raise RetrieverError(f"The metadata of result {number} cannot be read") from None
    score = next((value for part in inner for name in SCORES if (value := _number(part.get(name))) is not None), None)
    return Found(chunk.metadata.model_copy(update={"chunk_id": key}), text, score)


def _read(item: Any, number: int) -> Found:
    """Read one result. A text alone is an id; a pair is a result and its score."""
    if isinstance(item, list | tuple) and len(item) == 2 and _number(item[1]) is not None:
        return make_found({**_fields_of(item[0]), "score": item[1]}, number)
    return make_found(_fields_of(item), number)


def _fields_of(item: Any) -> dict[str, Any]:
    if isinstance(item, Mapping):
        inner = item.get("node") if isinstance(item.get("node"), Mapping) else item.get("document")
        return {**(inner if isinstance(inner, Mapping) else {}), **item}
    if isinstance(item, str | int):
        return {"id": item}
    node = getattr(item, "node", None)
    fields = _fields_of(node) if node is not None else {}
    fields |= {name: value for name in ATTRIBUTES if (value := _attribute(item, name)) is not None}
    for name in METADATA:
        if isinstance(value := getattr(item, name, None), Mapping):
            fields[name] = dict(value)
    return fields


def _attribute(item: Any, name: str) -> Any:
    value = getattr(item, name, None)
    return value if isinstance(value, str | int | float) else None


def _find_id(parts: Sequence[Mapping[str, Any]]) -> str | None:
    """Return the chunk's own id wherever it is, before one that may be its document's."""
    names = [(IDS[:1], parts), (IDS, parts[:1]), (IDS, parts[1:])]
    values = (part.get(name) for group, inside in names for part in inside for name in group)
    return next((str(value) for value in values if _is_id(value)), None)


def _is_id(value: Any) -> bool:
    return isinstance(value, str | int) and not isinstance(value, bool) and str(value).strip() != ""


def _text_id(text: str | None) -> str | None:
    """Return an id for a result that has only a text, so that reports can list it."""
    return f"sha256:{sha256(text.encode()).hexdigest()[:16]}" if text else None


def _number(value: Any) -> float | None:
    if value is None or isinstance(value, bool | str | bytes):
        return None
    try:
        number = float(value)  # also of numpy
    except (TypeError, ValueError, OverflowError):
        return None
    return number if isfinite(number) else None


def _clean(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields as JSON that a report can hold: dates as text, question marks for lone surrogates."""
    try:
        text = json.dumps(dict(fields), default=_as_json, ensure_ascii=False, skipkeys=True)
        cleaned: dict[str, Any] = json.loads(text.encode("utf-8", "replace"))
    except (ValueError, RecursionError) as error:
        raise RetrieverError(f"A result of the retriever is not JSON: {error}") from None
    return cleaned


def _as_json(value: Any) -> Any:
    """Convert what JSON has no type for: numbers of numpy to numbers, all else to text."""
    number = _number(value)
    return str(value) if number is None else number


def _describe(answer: Any) -> str:
    if answer is None:
        return "nothing"
    if isinstance(answer, Mapping):
        return f"an object with {', '.join(map(str, list(answer)[:5])) or 'no fields'}"
    return f"a value of type {type(answer).__name__}"
