"""Read what frameworks keep of an ingestion: LangChain's record manager and LlamaIndex's docstore."""

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from hashlib import sha1
from pathlib import Path
from typing import Any
from uuid import UUID, uuid5

from chunkproof.errors import InvalidParameterError

SQLITE_MAGIC = b"SQLite format 3\x00"
NAMESPACES = "SELECT DISTINCT namespace FROM upsertion_record ORDER BY 1"
RECORDS = "SELECT key, group_id FROM upsertion_record WHERE namespace = ? ORDER BY key"
# Keys of a relationship to the document that a node was made from, in either form.
SOURCE_RELATIONS = ("1", "SOURCE")


@dataclass(frozen=True)
class Record:
    """A chunk that LangChain's indexing API wrote: its id, and the source it belongs to."""

    key: str
    source: str | None


@dataclass(frozen=True)
class Node:
    """A node of a docstore; without a `document`, it is a document itself."""

    node_id: str
    text: str
    metadata: dict[str, Any]
    document: str | None


def is_sqlite(file: Path) -> bool:
    """Whether the file is an SQLite database."""
    with file.open("rb") as content:
        return content.read(len(SQLITE_MAGIC)) == SQLITE_MAGIC


def read_records(file: Path, namespace: str | None) -> list[Record]:
    """Read the records of one namespace; it must be named if there are several."""
    try:
        with closing(sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True)) as database:
            names = [name for (name,) in database.execute(NAMESPACES)]
            chosen = _choose_namespace(names, namespace, file)
            return [Record(str(key), source) for key, source in database.execute(RECORDS, (chosen,))]
    except sqlite3.Error as error:
        raise InvalidParameterError(f"{file} is not the database of a LangChain record manager: {error}") from None


def _choose_namespace(names: list[str], wanted: str | None, file: Path) -> str:
    if wanted is None and len(names) == 1:
        return names[0]
    if not names:
        raise InvalidParameterError(f"{file} has no records")
    if wanted not in names:
        raise InvalidParameterError(f"{file} has the namespaces {', '.join(names)}: name one with --namespace")
    return wanted


def read_docstore(file: Path) -> list[Node]:
    """Read the nodes and documents of a persisted LlamaIndex docstore."""
    try:
        stored = json.loads(file.read_bytes())
        data = stored["docstore/data"]
        return list(_read_nodes(data, stored.get("docstore/ref_doc_info") or {}))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise InvalidParameterError(f"{file} is not a LlamaIndex docstore: it has no docstore/data") from None


def _read_nodes(data: dict[str, Any], documents: dict[str, Any]) -> Iterator[Node]:
    owners = {node_id: name for name, info in documents.items() for node_id in (info or {}).get("node_ids", ())}
    for node_id, entry in data.items():
        fields = entry["__data__"]
        if isinstance(fields, str):  # as some key-value stores keep it
            fields = json.loads(fields)
        resource = fields.get("text_resource") or {}
        text = fields.get("text") or resource.get("text") or ""
        relations = fields.get("relationships") or {}
        relation = next((relations[key] for key in SOURCE_RELATIONS if key in relations), None) or {}
        owner = owners.get(node_id) or (relation.get("node_id") if isinstance(relation, dict) else None)
        is_document = fields.get("class_name") == "Document" or node_id in documents or owner == node_id
        yield Node(node_id, text, fields.get("metadata") or {}, None if is_document else (owner or ""))


# LangChain's namespace for ids that it derives from a text.
_LANGCHAIN = UUID(int=1984)


def langchain_key(text: str, metadata: object) -> str | None:
    """Return the id that LangChain's indexing API derives from text and metadata; None where it cannot.

    The metadata must be as the pipeline gave it, which the payload shows unless it was changed since.
    """
    try:
        serialized = json.dumps(metadata, sort_keys=True)
    except (TypeError, ValueError):
        return None
    return _hash_like_langchain(_hash_like_langchain(text) + _hash_like_langchain(serialized))


def _hash_like_langchain(text: str) -> str:
    return str(uuid5(_LANGCHAIN, sha1(text.encode(), usedforsecurity=False).hexdigest()))
