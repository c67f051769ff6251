"""Write the receipt of a search, verify it offline, and repeat the search (docs/reference/receipt-format.md)."""

import json
import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache, partial
from heapq import nlargest
from itertools import pairwise
from operator import attrgetter
from pathlib import Path
from time import monotonic
from typing import Any, Literal
from urllib.parse import unquote

from pydantic import Field

from chunkproof import __version__
from chunkproof.base.errors import ChunkproofError, InvalidParameterError, NotConfiguredError, NotFoundError
from chunkproof.base.request import run_with_timeout
from chunkproof.collection.services import Collection
from chunkproof.contract.conditions import Condition
from chunkproof.contract.model import Model
from chunkproof.contract.query import SearchQuery
from chunkproof.contract.response import SearchResult
from chunkproof.net.s3 import ObjectStoreError, is_s3_address
from chunkproof.seals import entries, notes
from chunkproof.seals.entries import EntryWriter, canonical_json, hash_tenant, hash_text, vector_bytes
from chunkproof.seals.merkle import RootHasher, forget_files, leaf_hash, open_files, root_of
from chunkproof.seals.notes import Checkpoint, PublicKey, RefutedError, Signer, decode, digest, encode, open_note
from chunkproof.seals.sealing import Seal, files_of, point_of
from chunkproof.stores.store_port import Point, Vector, VersionedStore

FORMAT = "chunkproof-receipt/1"
# How long a process goes on with the seal that it knows.
SEAL_SECONDS = 60.0
# Kept back for writing the response.
RESERVE_MS = 100.0
# What a receipt does not need, or has in another form.
_LEFT_OUT = {"query_text", "query_vector", "query_id", "created_at", "receipt", "queries", "collection", "cursor"}

Verdict = Literal["proved", "refuted", "not proved"]
Outcome = tuple[Verdict, str]
LISTED = 20
# What a request may have so that its results are those of an exact search by vectors.
PLAIN = {
    *("top_k", "similarity_threshold", "mode", "filters", "params", "require_integrity"),
    *("include_metadata", "with_payload", "with_vectors", "highlight", "neighbours", "explain"),
}

Results = tuple[SearchResult, ...]
# A result with its leaf and its entry; None and only `point` if it is not sealed.
Row = tuple[SearchResult, int | None, dict[str, Any]]
_FRACTION = re.compile(r"[0-9]+(\.[0-9]+)?(e-?[0-9]+)?")
log = logging.getLogger(__name__)


def add_receipt(
    query: SearchQuery, results: Results, vector: Vector | None, collection: Collection
) -> tuple[Results, dict[str, Any] | None, list[str]]:
    """Return the results with their integrity by the seal, and their receipt; a note says why there is none.

    If the request leaves out what was changed, results that are not the sealed ones are left out too.
    """
    settings, trace, said = collection.settings, collection.trace, list[str]()
    bucket = settings.published_bucket
    place = settings.seals or (f"s3://{bucket}/seals" if bucket else None)
    try:
        if place is None:
            raise NotConfiguredError("no seals are configured; set CHUNKPROOF_SEALS")
        seal, rows = _read(place, query, collection, results)
        known = {result.point_id for result in results if result.integrity == "changed"}
        changed = [str(one.point_id) for one, _, _ in rows if one.integrity == "changed" and one.point_id not in known]
        if changed:
            log.warning("Stored text does not match its seal", extra={"point_ids": changed})
            trace.changed = (trace.changed or 0) + len(changed)
        if changed and query.require_integrity:
            kept = [row for row in rows if row[0].integrity != "changed"]
            rows = [(row[0].model_copy(update={"rank": rank}), *row[1:]) for rank, row in enumerate(kept, 1)]
            trace.skipped = (trace.skipped or 0) + len(changed)
            said = [f"{len(changed)} chunks left out: their text is not the sealed one (points {', '.join(changed)})"]
        results = tuple(result for result, _, _ in rows)
        return results, _write(query, rows, vector, collection, seal=seal, left_out=len(said) and len(changed)), said
    except TimeoutError:
        why = "the seal could not be read in time"
    except NotFoundError:
        why = f"collection {collection.name} is not sealed, or not all of its seal is there"
    except ObjectStoreError as error:  # its message names the bucket
        why = f"the seal could not be read from S3 ({error.reason})"
    except ChunkproofError as error:
        why = error.message
    except (LookupError, ValueError, TypeError):  # of a file that was cut
        log.warning("The seal of %s is damaged", collection.name, exc_info=True)
        forget_files()  # those of another seal may have been there before
        why = f"the seal of collection {collection.name} is damaged"
    return results, None, [*said, f"There is no receipt: {why}"]


def _read(place: str, query: SearchQuery, collection: Collection, results: Results) -> tuple[Seal, list[Row]]:
    """Return the seal, and the results as it has them; `TimeoutError` if that takes too long."""

    def seconds() -> float:
        return (collection.deadline.remaining_ms() - RESERVE_MS) / 1000

    find = partial(_find_seal, place, collection.name, int(monotonic() // SEAL_SECONDS))
    if seconds() <= 0:
        raise TimeoutError
    seal = run_with_timeout(find, seconds()) if is_s3_address(place) else find()
    points = [result.point_id if result.point_id is not None else "" for result in results]
    seal.files.fetch(map(seal.index_name, points), seconds())
    leaves = [seal.find_leaf(point) for point in points]
    tree = seal.whole if query.with_payload else seal.tree
    tree.files.fetch(tree.names_for([leaf for leaf in leaves if leaf is not None]), seconds())
    rows: list[Row] = []
    for result, point, leaf in zip(results, points, leaves, strict=True):
        entry = json.loads(tree.entry(leaf)) if leaf is not None else {}
        if entry.get("point") != str(point):  # keys of the index are only the beginning of a hash
            rows.append((result, None, {"point": str(point)}))
            continue
        is_changed = result.integrity == "changed" or entry["text"] != hash_text(result.text)
        rows.append((result.model_copy(update={"integrity": "changed" if is_changed else "verified"}), leaf, entry))
    return seal, rows


@lru_cache(64)
def _find_seal(place: str, collection: str, _minute: int) -> Seal:
    seal = Seal.find(files_of(open_files(place), collection))
    if seal is None:
        raise NotConfiguredError(f"collection {collection} is not sealed; run chunkproof seal {collection}")
    return seal


def _write(
    query: SearchQuery, rows: list[Row], vector: Vector | None, collection: Collection, *, seal: Seal, left_out: int
) -> dict[str, Any]:
    store, leaves = collection.store, [leaf for _, leaf, _ in rows if leaf is not None]
    embeds = query.query_text is not None and collection.embedder is not None
    version = store.version(collection.name, collection.deadline) if isinstance(store, VersionedStore) else None
    tree = seal.whole if query.with_payload else seal.tree
    nodes = tree.prove(leaves) if leaves else []
    hashes = {leaf: leaf_hash(tree.entry(leaf)) for leaf in leaves}
    if leaves and root_of(hashes, nodes, tree.size) not in seal.checkpoint.roots:
        raise ValueError("The tiles do not lead to the root of the checkpoint")
    if collection.tenant and seal.info().tenant_field is None:
        raise NotConfiguredError("the seal was made without CHUNKPROOF_TENANT_FIELD and CHUNKPROOF_TENANT_CLAIM")
    tenant = {"name": collection.tenant, "salt": seal.info().salt} if collection.tenant else None
    versions = {"chunkproof": __version__, "model": collection.queries.model if embeds else None, "collection": version}
    receipt = {
        "format": FORMAT,
        "time": f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}",
        "query_id": query.query_id,
        "collection": collection.name,
        "request": describe_request(query, left_out),
        "query": None if query.query_text is None else hash_text(query.query_text),
        "vector": None if vector is None else digest(vector_bytes(vector)),
        "versions": {name: written for name, written in versions.items() if written is not None},
        "checkpoint": seal.note,
        "tenant": tenant,
        "results": [entries.write_row(leaf, one.similarity_score, entry, tenant) for one, leaf, entry in rows],
        "nodes": encode(b"".join(nodes)),
    }
    if query.receipt == "full":
        receipt["query_text"] = query.query_text
        receipt["query_vector"] = None if vector is None else encode(vector_bytes(vector))
    if key := collection.settings.receipt_key:
        receipt["signature"] = sign_receipt(receipt, _signer(key))
    return receipt


def describe_request(query: SearchQuery, left_out: int = 0) -> dict[str, Any]:
    """Return the fields of a request that decide its results, as they were understood; and how many were changed."""
    shown = json.loads(query.model_dump_json(exclude=_LEFT_OUT, exclude_defaults=True))
    if "filters" in shown:  # as text: a fraction in a filter is not the same as a string
        shown["filters"] = json.dumps(shown["filters"], ensure_ascii=False, separators=(",", ":"))
    shown |= {} if query.cursor is None else {"cursor": hash_text(query.cursor)}  # itself, it may be long
    shown |= {"left_out": left_out} if left_out else {}
    shown |= {"top_k": query.top_k, "similarity_threshold": query.similarity_threshold + 0.0}  # -0.0 is no fraction
    return dict(json.loads(json.dumps(shown | {"mode": query.mode or "dense"}), parse_float=str))


def sign_receipt(receipt: Mapping[str, Any], signer: Signer) -> str:
    """Return the signature of a note with the hash of the receipt, which has none yet."""
    return notes.sign_note(f"{FORMAT}\n{digest(canonical_json(receipt))}\n", [signer]).rpartition("\n\n")[2]


_signer = lru_cache(4)(notes.open_signer)


class Claim(Model):
    """One thing that a receipt may prove, and whether it does."""

    name: str
    verdict: Verdict
    detail: str


class LeftOut(Model):
    """A chunk that scores higher than a result and is not among them."""

    point: str
    chunk: str
    score: float


class Verification(Model):
    """What a receipt proves, claim by claim."""

    claims: tuple[Claim, ...]
    left_out: tuple[LeftOut, ...] = Field((), description=f"The best {LISTED} of them")


def _need(holds: bool, otherwise: str) -> None:
    if not holds:
        raise RefutedError(otherwise)


def _is_same(one: Any, other: Any) -> bool:
    """Whether they are equal in JSON, where true is not 1."""
    return bool(one == other) and isinstance(one, bool) == isinstance(other, bool)


def _number(text: Any) -> float:
    """Read a fraction, which is a string, and written as in JSON."""
    _need(isinstance(text, str) and _FRACTION.fullmatch(text) is not None, f"{text!r} is not a score")
    return float(text)


@dataclass
class Evidence:
    """A receipt, the response that it came with, if there is one, and what else the caller knows."""

    receipt: Mapping[str, Any]
    response: Mapping[str, Any] | None = None
    query_text: str | None = None

    @classmethod
    def parse(cls, document: Any, query_text: str | None = None) -> "Evidence":
        """Read a response with a receipt, or a receipt alone."""
        is_response = isinstance(document, dict) and isinstance(document.get("receipt"), dict)
        receipt = document["receipt"] if is_response else document
        if not isinstance(receipt, dict) or receipt.get("format") != FORMAT:
            raise InvalidParameterError(f"There is no receipt of format {FORMAT} in this file")
        if not isinstance(receipt.get("results"), list) or not isinstance(receipt.get("request"), dict):
            raise InvalidParameterError("The receipt has no results or no request")
        receipt, response = entries.map_json([receipt, document if is_response else None], entries.exact)
        return cls(receipt, response, query_text)

    @property
    def checkpoint(self) -> Checkpoint:
        """The checkpoint of the seal, whoever signed it."""
        return Checkpoint.parse(open_note(self.receipt["checkpoint"], ())[0])

    @property
    def rows(self) -> list[Mapping[str, Any]]:
        """The results of the receipt, each with its entry."""
        tenant = self.receipt.get("tenant")
        return [{"rank": at, **entries.read_row(row, tenant)} for at, row in enumerate(self.receipt["results"], 1)]

    @property
    def unusual(self) -> str:
        """Say what the request has that makes its results others than those of an exact search by vectors."""
        mode = self.receipt["request"]["mode"]
        names = sorted(set(self.receipt["request"]) - PLAIN) + ([] if mode == "dense" else [f"mode {mode}"])
        return f"the search used {', '.join(names)}, which cannot be repeated exactly" if names else ""

    def pairs(self) -> list[tuple[Mapping[str, Any], Mapping[str, Any]]]:
        """Return each result of the receipt with that of the response; they must be as many."""
        returned = (self.response or {}).get("results") or ()
        counts = f"{len(returned)} results came back, and the receipt has {len(self.rows)}"
        _need(len(self.rows) == len(returned), counts)
        return list(zip(self.rows, returned, strict=True))


def verify_receipt(evidence: Evidence, keys: Sequence[PublicKey]) -> list[Claim]:
    """Check everything that needs no store and no network."""
    claims: list[Claim] = []
    for check in CHECKS:
        name = check.__name__.removeprefix("_check_")
        try:
            verdict, detail = check(evidence, keys)
        except RefutedError as error:
            verdict, detail = "refuted", str(error)
        except (KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError, RecursionError):
            verdict, detail = "refuted", "the receipt is damaged here"
        if verdict == "proved" and name in ("texts", "tenant") and claims[1].verdict == "refuted":
            verdict, detail = "not proved", "the results are not those of the seal"
        if detail:
            claims.append(Claim(name=name, verdict=verdict, detail=detail))
    return claims


def _check_seal(evidence: Evidence, keys: Sequence[PublicKey]) -> Outcome:
    checkpoint, signed = evidence.checkpoint, open_note(evidence.receipt["checkpoint"], keys)[1]
    _need(bool(signed), "the checkpoint is not signed by any of the given keys")
    names = ", ".join(f"{key.name} ({key.id.hex()})" for key in signed)
    return "proved", f"{checkpoint.origin}, {checkpoint.size:,} chunks, signed by {names}"


def _check_membership(evidence: Evidence, _keys: Sequence[PublicKey]) -> Outcome:
    checkpoint = evidence.checkpoint
    leaves: dict[int, bytes] = {}
    missing = [str(row["entry"]["point"]) for row in evidence.rows if row["leaf"] is None]
    for row in evidence.rows:
        if (leaf := row["leaf"]) is not None:
            _need(type(leaf) is int and leaf not in leaves, f"leaf {leaf} is no leaf, or is there twice")
            leaves[leaf] = leaf_hash(canonical_json(row["entry"]))
    nodes = decode(evidence.receipt["nodes"])
    split = [nodes[at : at + 32] for at in range(0, len(nodes), 32)]
    leads = root_of(leaves, split, checkpoint.size) in checkpoint.roots if leaves else not nodes
    _need(leads, "the results and the nodes do not lead to the root of the checkpoint")
    if missing:
        return "not proved", f"not sealed: {', '.join(missing)} (stored after the seal, or never)"
    return "proved", f"{len(leaves)} results are leaves of the sealed tree"


def _check_texts(evidence: Evidence, _keys: Sequence[PublicKey]) -> Outcome:
    if evidence.response is None:
        return "not proved", "the file has no texts: verify the response that the receipt came with"
    for row, result in evidence.pairs():
        entry, name, point = row["entry"], result["metadata"]["chunk_id"], result.get("point_id")
        is_same = type(point) in (int, str) and str(point) == entry["point"] and entry.get("chunk", name) == name
        _need(is_same, f"result {row['rank']} is chunk {name}, and the receipt has {entry['point']}")
        if row["leaf"] is not None:
            where = f"of {name} at rank {row['rank']} is not the sealed one"
            _need(hash_text(result["text"]) == entry["text"], f"the text {where}")
            if "payload" in result:
                _need(digest(canonical_json(result["payload"])) == entry.get("payload"), f"the payload {where}")
    if any(row["leaf"] is None for row in evidence.rows):
        return "not proved", "not every result is sealed"
    return "proved", "each text is the sealed one, byte for byte"


def _check_order(evidence: Evidence, _keys: Sequence[PublicKey]) -> Outcome:
    rows, request = evidence.rows, evidence.receipt["request"]
    scores, least, top_k = [_number(row["score"]) for row in rows], request["similarity_threshold"], request["top_k"]
    _need(type(top_k) is int and len(rows) <= top_k, f"there are more than {top_k} results")
    _need(all(0 <= score <= 1 for score in scores), "a score is not between 0 and 1")
    if not evidence.unusual:
        _need(all(a >= b for a, b in pairwise(scores)), "a result scores higher than the one before it")
        _need(min(scores, default=1.0) >= _number(least), "a score is below the threshold")
        order = [(-score, row["entry"].get("chunk")) for score, row in zip(scores, rows, strict=True)]
        in_order = all(not isinstance(a[1], str) or not isinstance(b[1], str) or a <= b for a, b in pairwise(order))
        _need(in_order, "results with equal scores are not in the order of their chunk ids")
    if evidence.response is not None:
        for row, result in evidence.pairs():
            is_same = _is_same(result["rank"], row["rank"])
            is_same &= _is_same(result["similarity_score"], _number(row["score"]))
            _need(is_same, f"rank or score of result {row['rank']} is not that of the receipt")
    return "proved", "ranks and scores agree with the receipt"


def _check_request(evidence: Evidence, _keys: Sequence[PublicKey]) -> Outcome:
    receipt, request, response = evidence.receipt, evidence.receipt["request"], evidence.response
    texts = [evidence.query_text, (response or {}).get("query"), receipt.get("query_text")]
    known = [text for text in texts if text is not None]
    _need(all(hash_text(text) == receipt["query"] for text in known), "the receipt is that of another query text")
    sealed = unquote(evidence.checkpoint.origin.rpartition("/")[0].rpartition("/")[2], errors="strict")
    _need(sealed == receipt["collection"], f"the seal is that of collection {sealed}")
    vector = receipt.get("query_vector")
    if vector is not None:
        _need(digest(decode(vector)) == receipt["vector"], "the query's vector is not the one that was hashed")
    if response is not None:
        execution = response["execution"]
        for name, returned, written in (
            ("query_id", response["query_id"], receipt["query_id"]),
            ("collection", execution["collection"], receipt["collection"]),
            ("top_k", execution["requested_top_k"], request["top_k"]),
            ("similarity_threshold", execution["threshold_applied"], _number(request["similarity_threshold"])),
            ("mode", "dense" if execution.get("mode") is None else execution["mode"], request["mode"]),
        ):
            other = f"the response is that of another request: {name} is {returned}, not {written}"
            _need(_is_same(returned, written), other)
    if receipt["query"] is not None and not known:
        return "not proved", "the query's text is not at hand: give it with --query"
    return "proved", "the receipt is that of this query, collection and limits"


def _check_tenant(evidence: Evidence, _keys: Sequence[PublicKey]) -> Outcome:
    tenant, rows = evidence.receipt.get("tenant"), evidence.rows
    if tenant is None:
        belongs = any(row["entry"].get("tenant") is not None for row in rows)
        return "not proved", "chunks belong to tenants, and the receipt names none" if belongs else ""
    for row in rows:
        own, entry = hash_tenant(tenant["name"], decode(tenant["salt"]), row["entry"]["point"]), row["entry"]
        is_own = row["leaf"] is None or entry.get("tenant") == own
        _need(is_own, f"chunk {entry.get('chunk')} at rank {row['rank']} belongs to another tenant")
    return "proved", f"every sealed result belongs to tenant {tenant['name']}"


def _check_service(evidence: Evidence, keys: Sequence[PublicKey]) -> Outcome:
    note = evidence.receipt.get("signature")
    if note is None:
        return "not proved", "the service did not sign the receipt: edits of all parts show only by searching again"
    unsigned = {name: value for name, value in evidence.receipt.items() if name != "signature"}
    written = f"{FORMAT}\n{digest(canonical_json(unsigned))}\n"
    text, signed = open_note(f"{written}\n{note}", keys)
    _need(text == written, "its signature is damaged")
    if not signed:
        return "not proved", "the receipt is signed by a key that was not given"
    return "proved", f"the service signed this receipt, as {signed[0].name}"


CHECKS = (_check_seal, _check_membership, _check_texts, _check_order, _check_request, _check_tenant, _check_service)


def verify_report(file: Path, keys: Sequence[PublicKey]) -> Claim:
    """Check a report against the signature beside it."""
    try:
        return Claim(name="report", verdict="proved", detail=notes.open_report(file, keys))
    except RefutedError as error:
        return Claim(name="report", verdict="refuted", detail=f"{error}")


@dataclass
class Repetition:
    """The search once more, exactly, over every chunk of a collection that is at hand; `where` are its filters.

    Without the seal, the collection's own root has to be that of the checkpoint.
    """

    evidence: Evidence
    collection: Collection
    where: tuple[Condition, ...] = ()
    seal: Seal | None = None
    tolerance: float = 1e-5
    # What the last run found: chunks by their points, points that are not as sealed, and how these differ.
    scored: dict[str, LeftOut] = field(default_factory=dict)
    foreign: set[str] = field(default_factory=set)
    difference: str = ""

    def run(self) -> tuple[list[Claim], tuple[LeftOut, ...]]:
        """Return the claims about scores and completeness, and what was left out."""
        try:
            vector = self.evidence.receipt.get("query_vector")
            if vector is None:
                why = self.evidence.unusual or 'the receipt has no query_vector: ask for "receipt": "full"'
                return [Claim(name="complete", verdict="not proved", detail=f"cannot tell: {why}")], ()
            self._score(decode(vector))
            return self._judge()
        except (KeyError, TypeError, ValueError, AttributeError, IndexError):
            return [Claim(name="complete", verdict="refuted", detail="the receipt is damaged here")], ()

    def _score(self, query: bytes) -> None:
        """Score every sealed chunk that meets the request, and find the points that are not as sealed."""
        collection, receipt = self.collection, self.evidence.receipt
        tenant, field_name, sealed = receipt.get("tenant"), collection.settings.tenant_field, dict[str, bytes]()
        salt = decode(tenant["salt"]) if tenant else b""
        if self.seal is not None:
            info = self.seal.info()
            salt, field_name = decode(info.salt), info.tenant_field
            sealed = {point_of(entry): leaf_hash(entry) for entry in self.seal.checked_entries()}
        writer, hasher = EntryWriter(collection.payloads, field_name, salt), RootHasher()
        pages = collection.scan(where=self.where) if self.where else ()
        allowed = {point.id for page in pages for point in page.points}
        wants_integrity, no_text = receipt["request"].get("require_integrity"), (None, hash_text(""))

        def may_be_returned(point: Point, entry: Mapping[str, Any]) -> bool:
            if entry["text"] in no_text or point.vector is None or (self.where and point.id not in allowed):
                return False
            if tenant and field_name and entry["tenant"] != hash_tenant(tenant["name"], salt, entry["point"]):
                return False
            if not wants_integrity:
                return True
            chunk = collection.payloads.chunk_of(point)
            return collection.check_sources([chunk]).integrity_of(chunk) != "changed"

        for page in collection.scan(with_vector=collection.vector.name):
            found: list[tuple[Point, str]] = []
            for point in page.points:
                entry = writer.entry_of(point)
                hashed, read = leaf_hash(entry), json.loads(entry)
                hasher.add(leaf_hash(entries.shorten(entry)), hashed)
                if self.seal is not None and sealed.pop(read["point"], None) != hashed:
                    self.foreign.add(read["point"])
                elif may_be_returned(point, read):
                    found.append((point, read["chunk"]))
            scores = _cosines(query, [point.vector or () for point, _ in found])
            for (point, chunk), score in zip(found, scores, strict=True):
                self.scored[str(point.id)] = LeftOut(point=str(point.id), chunk=chunk, score=score)
        if self.foreign or sealed:
            self.difference = f"{len(self.foreign)} points differ or are new, {len(sealed)} are missing"
            self.foreign |= set(sealed)
        elif self.seal is None and hasher.roots() != self.evidence.checkpoint.roots:
            self.difference = "its root is another; --seals says where its seals are"

    def _judge(self) -> tuple[list[Claim], tuple[LeftOut, ...]]:
        rows, request, tolerance = self.evidence.rows, self.evidence.receipt["request"], self.tolerance
        named, unusual = {row["entry"]["point"]: _number(row["score"]) for row in rows}, self.evidence.unusual
        # What only words found has no score by vectors: 0 is written then.
        judged = {point: score for point, score in named.items() if point in self.scored and (score or not unusual)}
        wrong = [point for point, score in judged.items() if abs(self.scored[point].score - score) > tolerance]
        strangers = [p for p in named if p not in self.scored and p not in self.foreign]
        other = f"cannot tell: the collection at hand is not the sealed one ({self.difference})"
        scores: Outcome = "proved", "each score is that of the sealed vector"
        if self.difference and (self.seal is None or not self.foreign.isdisjoint(named)):
            scores = "not proved", other
        if wrong and scores[0] == "proved":
            score, written = self.scored[wrong[0]].score, named[wrong[0]]
            scores = "refuted", f"{wrong[0]} scores {score:.6f}, and the receipt says {written:.6f}"
        elif strangers and self.seal is not None:
            shown = ", ".join(strangers[:LISTED])
            scores = "refuted", f"not among the sealed chunks that meet the request: {shown}"
        least = _number(request["similarity_threshold"])
        if len(rows) >= request["top_k"]:
            least = max(least, min(named.values()))
        others = [one for point, one in self.scored.items() if point not in named]
        missed = [one for one in others if one.score > least + tolerance]
        near = sum(abs(one.score - least) <= tolerance for one in others)
        best = tuple(nlargest(LISTED, missed, attrgetter("score")))
        if unusual:
            complete: Outcome = "not proved", f"cannot tell: {unusual}"
        elif self.difference and (self.seal is None or not missed):
            complete = "not proved", other
        elif missed:
            shown = ", ".join(f"{one.chunk} ({one.score:.6f})" for one in best[:5])
            complete = "refuted", f"left out: {len(missed)} that score higher than {least:.6f}: {shown}"
        elif near and least > 0:
            complete = "not proved", f"cannot tell: {near} others score the same within {tolerance:g}"
        else:
            complete = "proved", f"complete: none of {len(others):,} other chunks scores higher"
        outcomes = {"scores": scores, "complete": complete}
        claims = [Claim(name=name, verdict=verdict, detail=detail) for name, (verdict, detail) in outcomes.items()]
        return claims, best if complete[0] == "refuted" else ()


def _cosines(query: bytes, vectors: Sequence[Sequence[float]]) -> list[float]:
    """Return the cosine of the query with each vector, from 0 to 1 as a search returns it."""
    import numpy

    own = numpy.asarray_chkfinite(numpy.frombuffer(query, "<f4"), "f8")
    others = numpy.array(vectors, "<f4").astype("f8").reshape(-1, len(own))
    lengths = numpy.linalg.norm(others, axis=1) * numpy.linalg.norm(own)
    cosines: list[float] = numpy.clip(others @ own / numpy.where(lengths, lengths, numpy.inf), 0, 1).tolist()
    return cosines
