"""The receipt of a search: its request as it was understood, its results, and the proof that they were sealed.

docs/reference/receipt-format.md has the format. Fractions are no JSON numbers in it, because languages
spell those differently: scores and thresholds are strings.
"""

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from hashlib import sha256
from time import monotonic
from typing import TYPE_CHECKING, Any

from chunkproof import __version__
from chunkproof.base.errors import ChunkproofError, NotConfiguredError, NotFoundError
from chunkproof.base.request import run_with_timeout
from chunkproof.collection.services import Collection
from chunkproof.contract.response import Integrity, SearchResult
from chunkproof.net.s3 import ObjectStoreError
from chunkproof.seals.entries import canonical_json, hash_text, vector_bytes
from chunkproof.seals.merkle import open_files
from chunkproof.seals.notes import Signer, encode, open_signer, sign_note
from chunkproof.seals.sealing import Seal, files_of
from chunkproof.stores.store_port import Vector, VersionedStore

if TYPE_CHECKING:
    from chunkproof.contract.query import SearchQuery

FORMAT = "chunkproof-receipt/1"
# How long a process goes on with the seal that it knows.
SEAL_SECONDS = 60.0
# Kept back for writing the response.
RESERVE_MS = 100.0
# What a receipt does not need, or has in another form.
_LEFT_OUT = {"query_text", "query_vector", "query_id", "created_at", "receipt", "queries", "collection", "cursor"}


class NoReceiptError(Exception):
    """There is no receipt for this search; the message says why."""


def write_receipt(
    query: "SearchQuery", results: Sequence[SearchResult], vector: Vector | None, collection: Collection
) -> tuple[dict[str, Any], dict[Any, Integrity]]:
    """Return the receipt of a search, and the integrity of each point by the seal.

    `NoReceiptError` says why there is none: nothing is sealed, or the seal could not be read in time.
    """
    settings, seconds = collection.settings, (collection.deadline.remaining_ms() - RESERVE_MS) / 1000
    bucket = settings.published_bucket
    place = settings.seals or (f"s3://{bucket}/seals" if bucket else None)
    if place is None:
        raise NoReceiptError("no seals are configured; set CHUNKPROOF_SEALS")
    if seconds <= 0:
        raise NoReceiptError("there was no time left to read the seal")
    try:
        seal, entries = _read(place, collection, results, seconds)
        leaves = [leaf for leaf, _ in entries if leaf is not None]
        receipt = {
            "format": FORMAT,
            "time": datetime.now(UTC).isoformat(timespec="seconds"),
            "query_id": query.query_id,
            "collection": collection.name,
            "request": describe_request(query),
            "query": None if query.query_text is None else hash_text(query.query_text),
            "vector": None if vector is None else encode(sha256(vector_bytes(vector)).digest()),
            "versions": _versions(query, collection),
            "checkpoint": seal.note,
            "results": [
                {"rank": result.rank, "score": repr(result.similarity_score), "leaf": leaf, "entry": entry}
                for result, (leaf, entry) in zip(results, entries, strict=True)
            ],
            "nodes": encode(b"".join(seal.tree.prove(leaves) if leaves else ())),
        }
        if query.receipt == "full":
            receipt["query_text"] = query.query_text
            receipt["query_vector"] = None if vector is None else encode(vector_bytes(vector))
        if collection.tenant:
            receipt["tenant"] = {"name": collection.tenant, "salt": seal.info().salt}
        if settings.receipt_key:
            receipt["signature"] = sign_receipt(receipt, _signer(settings.receipt_key))
    except TimeoutError:
        raise NoReceiptError("the seal could not be read in time") from None
    except NotFoundError:
        raise NoReceiptError(f"collection {collection.name} is not sealed, or not all of its seal is there") from None
    except ObjectStoreError as error:  # its message names the bucket
        raise NoReceiptError(f"the seal could not be read from S3 ({error.reason})") from None
    except ChunkproofError as error:
        raise NoReceiptError(error.message) from None
    return receipt, {
        result.point_id: "verified" if entry["text"] == hash_text(result.text) else "changed"
        for result, (leaf, entry) in zip(results, entries, strict=True)
        if leaf is not None
    }


def describe_request(query: "SearchQuery") -> dict[str, Any]:
    """Return the fields of a request that decide its results, as they were understood."""
    shown = json.loads(query.model_dump_json(exclude=_LEFT_OUT, exclude_defaults=True))
    if "filters" in shown:  # as text: a fraction in a filter is not the same as a string
        shown["filters"] = json.dumps(shown["filters"], ensure_ascii=False, separators=(",", ":"))
    always = {"top_k": query.top_k, "similarity_threshold": query.similarity_threshold, "mode": query.mode or "dense"}
    described: dict[str, Any] = without_fractions(always | shown)
    return described


def without_fractions(value: Any) -> Any:
    """Return a JSON value with its fractions as strings."""
    if isinstance(value, Mapping):
        return {key: without_fractions(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [without_fractions(item) for item in value]
    return repr(value) if isinstance(value, float) else value


def sign_receipt(receipt: Mapping[str, Any], signer: Signer) -> str:
    """Return a note with the hash of the receipt, which has no signature yet."""
    return sign_note(f"{FORMAT}\n{encode(sha256(canonical_json(receipt)).digest())}\n", [signer])


@lru_cache(4)
def _signer(key: str) -> Signer:
    return open_signer(key)


_known: dict[tuple[str, str], tuple[float, Seal]] = {}


def _find_seal(place: str, collection: str) -> Seal:
    known = _known.get((place, collection))
    if known is None or monotonic() - known[0] > SEAL_SECONDS:
        found = Seal.find(files_of(open_files(place), collection))
        if found is None:
            raise NotConfiguredError(f"collection {collection} is not sealed; run chunkproof seal {collection}")
        known = _known[place, collection] = monotonic(), found
    return known[1]


def _read(
    place: str, collection: Collection, results: Sequence[SearchResult], seconds: float
) -> tuple[Seal, list[tuple[int | None, dict[str, Any]]]]:
    """Return the seal, and leaf and entry of each result; only `point` of one that is not sealed."""
    started, name = monotonic(), collection.name
    files = open_files(place)
    seal = run_with_timeout(lambda: _find_seal(place, name), seconds) if files.bucket else _find_seal(place, name)
    points = [result.point_id if result.point_id is not None else "" for result in results]
    seal.files.fetch(map(seal.index_name, points), seconds - (monotonic() - started))
    leaves = [seal.find_leaf(point) for point in points]
    needed = seal.tree.names_for([leaf for leaf in leaves if leaf is not None])
    seal.files.fetch(needed, seconds - (monotonic() - started))
    entries: list[tuple[int | None, dict[str, Any]]] = []
    for point, leaf in zip(points, leaves, strict=True):
        entry = json.loads(seal.tree.entry(leaf)) if leaf is not None else {}
        is_sealed = entry.get("point") == str(point)  # keys of the index are only the beginning of a hash
        entries.append((leaf, entry) if is_sealed else (None, {"point": str(point)}))
    return seal, entries


def _versions(query: "SearchQuery", collection: Collection) -> dict[str, str | None]:
    store = collection.store
    embeds = query.query_text is not None and collection.embedder is not None
    return {
        "chunkproof": __version__,
        "model": collection.queries.model if embeds else None,
        "collection": store.version(collection.name, collection.deadline)
        if isinstance(store, VersionedStore)
        else None,
    }
