"""Verify a receipt: offline what it proves by itself, and with the collection that nothing was left out."""

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import sha256
from heapq import nlargest
from itertools import pairwise
from math import fsum, sqrt
from operator import attrgetter
from struct import unpack
from typing import Any, Literal

from pydantic import Field

from chunkproof.base.errors import InvalidParameterError
from chunkproof.collection.services import Collection
from chunkproof.contract.conditions import Condition
from chunkproof.contract.model import Model
from chunkproof.seals.entries import EntryWriter, canonical_json, hash_tenant, hash_text, vector_bytes
from chunkproof.seals.merkle import leaf_hash, root_of
from chunkproof.seals.notes import BrokenNoteError, Checkpoint, PublicKey, decode, encode, open_note
from chunkproof.seals.receipts import FORMAT
from chunkproof.seals.sealing import RootHasher, Seal

Verdict = Literal["proved", "refuted", "not proved"]
TOLERANCE = 1e-5
LISTED = 20
# What a request may have so that its results are those of an exact search by vectors.
PLAIN = {
    *("top_k", "similarity_threshold", "mode", "filters", "params", "require_integrity"),
    *("include_metadata", "with_payload", "with_vectors", "highlight", "neighbours", "explain"),
}


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

    @property
    def is_refuted(self) -> bool:
        """Whether something in the receipt is wrong."""
        return any(claim.verdict == "refuted" for claim in self.claims)


class RefutedError(Exception):
    """A claim is wrong; the message says why."""


@dataclass
class Evidence:
    """A receipt, the response that it came with, if there is one, and what else the caller knows."""

    receipt: Mapping[str, Any]
    response: Mapping[str, Any] | None = None
    query_text: str | None = None
    checkpoint: Checkpoint | None = field(default=None, init=False)

    @classmethod
    def parse(cls, document: Any, query_text: str | None = None) -> "Evidence":
        """Read a response with a receipt, or a receipt alone."""
        is_response = isinstance(document, dict) and isinstance(document.get("receipt"), dict)
        receipt = document["receipt"] if is_response else document
        if not isinstance(receipt, dict) or receipt.get("format") != FORMAT:
            raise InvalidParameterError(f"There is no receipt of format {FORMAT} in this file")
        if not isinstance(receipt.get("results"), list) or not isinstance(receipt.get("request"), dict):
            raise InvalidParameterError("The receipt has no results or no request")
        return cls(receipt, document if is_response else None, query_text)

    @property
    def rows(self) -> list[Mapping[str, Any]]:
        """The results as the receipt has them."""
        return list(self.receipt["results"])

    @property
    def returned(self) -> list[Mapping[str, Any]]:
        """The results as the response has them."""
        return list((self.response or {}).get("results") or ())


def verify_receipt(evidence: Evidence, keys: Sequence[PublicKey]) -> list[Claim]:
    """Check everything that needs no store and no network."""
    claims = []
    for name, check in (
        ("seal", _check_seal),
        ("membership", _check_membership),
        ("texts", _check_texts),
        ("order", _check_order),
        ("request", _check_request),
        ("tenant", _check_tenant),
        ("service", _check_service),
    ):
        try:
            verdict, detail = check(evidence, keys)
        except (RefutedError, BrokenNoteError) as error:
            verdict, detail = "refuted", str(error)
        except (KeyError, TypeError, ValueError, AttributeError, IndexError):
            verdict, detail = "refuted", "the receipt is damaged here"
        if detail:
            claims.append(Claim(name=name, verdict=verdict, detail=detail))
    return claims


Outcome = tuple[Verdict, str]


def _check_seal(evidence: Evidence, keys: Sequence[PublicKey]) -> Outcome:
    text, signed = open_note(evidence.receipt["checkpoint"], keys)
    evidence.checkpoint = checkpoint = Checkpoint.parse(text)
    if not signed:
        raise RefutedError("the checkpoint is not signed by any of the given keys")
    names = ", ".join(f"{key.name} ({key.id.hex()})" for key in signed)
    return "proved", f"{checkpoint.origin}, {checkpoint.size:,} chunks, signed by {names}"


def _check_membership(evidence: Evidence, _keys: Sequence[PublicKey]) -> Outcome:
    checkpoint = evidence.checkpoint or Checkpoint.parse(open_note(evidence.receipt["checkpoint"], ())[0])
    leaves: dict[int, bytes] = {}
    missing = [str(row["entry"]["point"]) for row in evidence.rows if row["leaf"] is None]
    for row in evidence.rows:
        if row["leaf"] is None:
            continue
        if type(row["leaf"]) is not int or row["leaf"] in leaves:
            raise RefutedError(f"leaf {row['leaf']} is no leaf, or is there twice")
        leaves[row["leaf"]] = leaf_hash(canonical_json(row["entry"]))
    nodes = decode(evidence.receipt["nodes"])
    if leaves:
        found = root_of(leaves, [nodes[at : at + 32] for at in range(0, len(nodes), 32)], checkpoint.size)
        if found != checkpoint.root:
            raise RefutedError("the results and the nodes do not lead to the root of the checkpoint")
    elif nodes:
        raise RefutedError("there are nodes, but no sealed results")
    if missing:
        return "not proved", f"not sealed: {', '.join(missing)} (stored after the seal, or never)"
    return "proved", f"{len(leaves)} results are leaves of the sealed tree"


def _check_texts(evidence: Evidence, _keys: Sequence[PublicKey]) -> Outcome:
    if evidence.response is None:
        return "not proved", "the file has no texts: verify the response that the receipt came with"
    _compare_lists(evidence)
    for row, result in zip(evidence.rows, evidence.returned, strict=True):
        entry, name = row["entry"], result["metadata"]["chunk_id"]
        if str(result.get("point_id")) != entry["point"] or entry.get("chunk", name) != name:
            raise RefutedError(f"result {row['rank']} is chunk {name}, and the receipt has {entry['point']}")
        if row["leaf"] is not None and hash_text(result["text"]) != entry["text"]:
            raise RefutedError(f"the text of {name} at rank {row['rank']} is not the sealed one")
        if "payload" in result and row["leaf"] is not None:
            hashed = encode(sha256(canonical_json(result["payload"])).digest())
            if hashed != entry["payload"]:
                raise RefutedError(f"the payload of {name} at rank {row['rank']} is not the sealed one")
    if any(row["leaf"] is None for row in evidence.rows):
        return "not proved", "not every result is sealed"
    return "proved", "each text is the sealed one, byte for byte"


def _compare_lists(evidence: Evidence) -> None:
    if len(evidence.rows) != len(evidence.returned):
        raise RefutedError(f"{len(evidence.returned)} results came back, and the receipt has {len(evidence.rows)}")


def _check_order(evidence: Evidence, _keys: Sequence[PublicKey]) -> Outcome:
    rows, request = evidence.rows, evidence.receipt["request"]
    if [row["rank"] for row in rows] != list(range(1, len(rows) + 1)):
        raise RefutedError("ranks are not 1, 2, 3, …")
    scores = [float(row["score"]) for row in rows]
    if len(rows) > request["top_k"]:
        raise RefutedError(f"there are more than {request['top_k']} results")
    is_plain = set(request) <= PLAIN and request["mode"] == "dense"
    if is_plain and any(after > before for before, after in pairwise(scores)):
        raise RefutedError("a result scores higher than the one before it")
    if any(not 0 <= score <= 1 for score in scores):
        raise RefutedError("a score is not between 0 and 1")
    if is_plain and any(score < float(request["similarity_threshold"]) for score in scores):
        raise RefutedError("a score is below the threshold")
    if evidence.response is not None:
        _compare_lists(evidence)
        for row, result in zip(rows, evidence.returned, strict=True):
            if result["rank"] != row["rank"] or result["similarity_score"] != float(row["score"]):
                raise RefutedError(f"rank or score of result {row['rank']} is not that of the receipt")
    return "proved", "ranks and scores agree with the receipt"


def _check_request(evidence: Evidence, _keys: Sequence[PublicKey]) -> Outcome:
    receipt, request = evidence.receipt, evidence.receipt["request"]
    for text in (evidence.query_text, (evidence.response or {}).get("query"), receipt.get("query_text")):
        if text is not None and hash_text(text) != receipt["query"]:
            raise RefutedError("the receipt is that of another query text")
    vector = receipt.get("query_vector")
    if vector is not None and encode(sha256(decode(vector)).digest()) != receipt["vector"]:
        raise RefutedError("the query's vector is not the one that was hashed")
    if evidence.response is not None:
        execution = evidence.response["execution"]
        said = {
            "query_id": (evidence.response["query_id"], receipt["query_id"]),
            "collection": (execution["collection"], receipt["collection"]),
            "top_k": (execution["requested_top_k"], request["top_k"]),
            "similarity_threshold": (execution["threshold_applied"], float(request["similarity_threshold"])),
            "mode": (execution.get("mode") or "dense", request["mode"]),
        }
        for name, (returned, written) in said.items():
            if returned != written:
                raise RefutedError(f"the response is that of another request: {name} is {returned}, not {written}")
    known = evidence.query_text or (evidence.response or {}).get("query") or receipt.get("query_text")
    if receipt["query"] is not None and known is None:
        return "not proved", "the query's text is not at hand: give it with --query"
    return "proved", "the receipt is that of this query, collection and limits"


def _check_tenant(evidence: Evidence, _keys: Sequence[PublicKey]) -> Outcome:
    tenant = evidence.receipt.get("tenant")
    hashed = [row for row in evidence.rows if row["entry"].get("tenant") is not None]
    if tenant is None:
        return ("not proved", "chunks belong to tenants, and the receipt names none") if hashed else ("proved", "")
    salt = decode(tenant["salt"])
    for row in evidence.rows:
        entry = row["entry"]
        if row["leaf"] is not None and entry.get("tenant") != hash_tenant(tenant["name"], salt, entry["point"]):
            raise RefutedError(f"chunk {entry['chunk']} at rank {row['rank']} belongs to another tenant")
    return "proved", f"every sealed result belongs to tenant {tenant['name']}"


def _check_service(evidence: Evidence, keys: Sequence[PublicKey]) -> Outcome:
    note = evidence.receipt.get("signature")
    if note is None:
        return (
            "not proved",
            "the service did not sign the receipt: an edit of all its parts shows only by searching again",
        )
    text, signed = open_note(note, keys)
    unsigned = {name: value for name, value in evidence.receipt.items() if name != "signature"}
    if text != f"{FORMAT}\n{encode(sha256(canonical_json(unsigned)).digest())}\n":
        raise RefutedError("the receipt is not the one that the service signed")
    if not signed:
        return "not proved", "the receipt is signed by a key that was not given"
    return "proved", f"the service signed this receipt, as {signed[0].name}"


class Repetition:
    """The search once more, exactly, over every chunk of a collection that is at hand."""

    def __init__(
        self, evidence: Evidence, collection: Collection, where: tuple[Condition, ...] = (), seal: Seal | None = None
    ) -> None:
        self._evidence, self._collection, self._where = evidence, collection, where
        salt, tenant_field = b"", collection.settings.tenant_field
        with suppress(KeyError, TypeError, ValueError):
            salt = decode(evidence.receipt["tenant"]["salt"])
        self._sealed: dict[str, bytes] | None = None
        if seal is not None:
            info = seal.info()
            salt, tenant_field = decode(info.salt), info.tenant_field
            self._sealed = {json.loads(entry)["point"]: leaf_hash(entry) for entry in seal.checked_entries()}
        self._writer = EntryWriter(collection.payloads, tenant_field, salt)

    def run(self, tolerance: float = TOLERANCE) -> tuple[list[Claim], tuple[LeftOut, ...]]:
        """Return the claims about scores and completeness, and what was left out."""
        try:
            return self._run(tolerance)
        except (KeyError, TypeError, ValueError, AttributeError, IndexError):
            return [Claim(name="complete", verdict="refuted", detail="the receipt is damaged here")], ()

    def _run(self, tolerance: float) -> tuple[list[Claim], tuple[LeftOut, ...]]:
        request = self._evidence.receipt["request"]
        unusual = sorted(set(request) - PLAIN) + ([] if request["mode"] == "dense" else [f"mode {request['mode']}"])
        vector = self._evidence.receipt.get("query_vector")
        if unusual or vector is None:
            why = (
                f"the search used {', '.join(unusual)}" if unusual else "the receipt has no query_vector: ask for full"
            )
            return [Claim(name="complete", verdict="not proved", detail=f"cannot tell: {why}")], ()
        scored, foreign = self._score(decode(vector))
        return self._judge(scored, foreign, request, tolerance)

    def _score(self, query: bytes) -> tuple[dict[str, LeftOut], list[str]]:
        """Return the score of every sealed chunk that meets the request, and the points that are not as sealed."""
        tenant = self._evidence.receipt.get("tenant")
        name = self._collection.vector.name
        scores, foreign = {}, []
        cosine = _cosine_with(query)
        allowed = None
        if self._where:
            allowed = {point.id for page in self._collection.scan(where=self._where) for point in page.points}
        hasher = RootHasher()
        for page in self._collection.scan(with_vector=name):
            for point in page.points:
                entry = self._writer.entry_of(point)
                hasher.add(leaf_hash(entry))
                if self._sealed is not None and self._sealed.pop(str(point.id), None) != leaf_hash(entry):
                    foreign.append(str(point.id))
                    continue
                if allowed is not None and point.id not in allowed:
                    continue
                read = json.loads(entry)
                if tenant is not None and self._writer.tenant_field is not None:
                    expected = hash_tenant(tenant["name"], self._writer.salt, str(point.id))
                    if read.get("tenant") != expected:
                        continue
                if read["text"] is None or point.vector is None:
                    continue
                score = cosine(point.vector)
                scores[str(point.id)] = LeftOut(point=str(point.id), chunk=read["chunk"], score=score)
        checkpoint = self._evidence.checkpoint
        if self._sealed is None and (checkpoint is None or hasher.root() != checkpoint.root):
            foreign.append("?")
        return scores, foreign

    def _judge(
        self, scored: Mapping[str, LeftOut], foreign: Sequence[str], request: Mapping[str, Any], tolerance: float
    ) -> tuple[list[Claim], tuple[LeftOut, ...]]:
        rows, claims = self._evidence.rows, []
        absent = len(self._sealed or ())
        named = {row["entry"]["point"]: float(row["score"]) for row in rows}
        wrong = [p for p, score in named.items() if p in scored and abs(scored[p].score - score) > tolerance]
        strangers = [p for p in named if p not in scored and p not in foreign]
        if wrong:
            first = wrong[0]
            detail = f"{first} scores {scored[first].score:.6f}, and the receipt says {named[first]:.6f}"
            claims.append(Claim(name="scores", verdict="refuted", detail=detail))
        elif strangers:
            detail = f"not among the sealed chunks that meet the request: {', '.join(strangers[:LISTED])}"
            claims.append(Claim(name="scores", verdict="refuted", detail=detail))
        else:
            claims.append(Claim(name="scores", verdict="proved", detail="each score is that of the sealed vector"))
        threshold = float(request["similarity_threshold"])
        lowest = min(named.values(), default=1.0) if len(rows) >= request["top_k"] else 0.0
        least = max(lowest, threshold)
        others = [one for point, one in scored.items() if point not in named]
        missed = [one for one in others if one.score > least + tolerance]
        near = [one for one in others if abs(one.score - least) <= tolerance and one.score >= 0]
        best = tuple(nlargest(LISTED, missed, attrgetter("score")))
        if missed:
            shown = ", ".join(f"{one.chunk} ({one.score:.6f})" for one in best[:5])
            verdict: Verdict = "refuted"
            detail = f"left out: {len(missed)} that score higher than {least:.6f}: {shown}"
        elif foreign or absent:
            differ = f" ({len(foreign)} points differ or are new, {absent} are missing)" if foreign != ["?"] else ""
            verdict, detail = "not proved", f"cannot tell: the collection at hand is not the sealed one{differ}"
        elif near and least > 0:
            verdict, detail = "not proved", f"cannot tell: {len(near)} others score the same within {tolerance:g}"
        else:
            verdict, detail = "proved", f"complete: none of {len(others):,} other chunks scores higher"
        claims.append(Claim(name="complete", verdict=verdict, detail=detail))
        return claims, best


def _cosine_with(query: bytes) -> Callable[[Sequence[float]], float]:
    """Return a function of the cosine with a query, from 0 to 1 as a search returns it; by numpy if it is there."""
    try:
        import numpy

        def values(data: bytes) -> Any:
            return numpy.frombuffer(data, dtype="<f4").astype("f8")

        product: Callable[[Any, Any], float] = numpy.dot
    except ImportError:

        def values(data: bytes) -> Any:
            return unpack(f"<{len(data) // 4}f", data)

        def product(one: Any, other: Any) -> float:
            return fsum(a * b for a, b in zip(one, other, strict=True))

    own = values(query)
    length = sqrt(product(own, own))

    def cosine(vector: Sequence[float]) -> float:
        other = values(vector_bytes(vector))
        lengths = length * sqrt(product(other, other))
        return min(1.0, max(0.0, float(product(own, other)) / lengths)) if lengths else 0.0

    return cosine
