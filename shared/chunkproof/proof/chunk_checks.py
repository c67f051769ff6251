"""`POST /validate-chunk` and `/validate-chunks`: is the stored text the original?"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from urllib.parse import urlsplit

from pydantic_core import to_json

from chunkproof.base.errors import ChunkNotFoundError, CorruptChunkError, InvalidParameterError, ResponseTooLargeError
from chunkproof.base.request import State
from chunkproof.collection.lookup import Lookup
from chunkproof.collection.payload_map import MIN_DIGITS, Chunk, Hashes, HashKinds, PayloadMap, hash_digits
from chunkproof.collection.services import FOUND_BYTES, Collection
from chunkproof.contract import (
    Check,
    ChunkMetadata,
    ChunkOriginal,
    ChunkValidation,
    ChunkValidations,
    ChunkVerdict,
    ErrorDetail,
    Mismatch,
    ValidationResult,
    ValidationResults,
)
from chunkproof.contract.model import parse_time
from chunkproof.proof.integrity import Budget, compare, compare_with_hash
from chunkproof.stores.store_port import Point

MAX_TITLE = 500
EMPTY = "The stored text is empty"


@dataclass(frozen=True, slots=True)
class _TextCheck:
    """The result of comparing the text with the original; `matches` is None when none was given."""

    check: Check
    matches: bool | None = None
    mismatch: Mismatch | None = None


@dataclass(frozen=True, slots=True)
class _Reading:
    """How the chunks of a collection are read and judged; `budget` limits the search for causes."""

    payloads: PayloadMap
    hashes: Hashes
    strict: bool
    retrieval_ms: float
    budget: Budget


def validate_chunk(request: ChunkValidation, collection: Collection) -> ValidationResult:
    """Compare the stored text with the original byte for byte, and check the chunk's own hashes and metadata."""
    trace = collection.trace
    trace.chunk_id = request.chunk_id
    with trace.stage("search", State.SEARCHED) as watch:
        point = collection.find_one(request.chunk_id)
        payloads, hashes = collection.payloads, _read_hashes([point], collection)
    budget = Budget(collection.deadline)
    result = _validate(request, point, _Reading(payloads, hashes, request.strict, watch.ms(), budget))
    trace.matches = result.matches
    trace.mismatch_kind = result.mismatch.kind if result.mismatch else None
    return result


def validate_chunks(request: ChunkValidations, collection: Collection) -> ValidationResults:
    """Validate up to a hundred chunks, looked up together; an error with one does not fail the others."""
    trace = collection.trace
    trace.chunks = len(request.chunks)
    with trace.stage("search", State.SEARCHED) as watch:
        lookup = collection.find(chunk.chunk_id for chunk in request.chunks)
        found = [point for points in lookup.points.values() for point in points]
        payloads, hashes = collection.payloads, _read_hashes(found, collection)
    stored = {key: len(to_json(payloads.find_text(points[0]))) for key, points in lookup.points.items() if points}
    total = sum(stored.get(chunk.chunk_id, 0) + len(to_json(chunk.original_text)) for chunk in request.chunks)
    if total > FOUND_BYTES:
        raise ResponseTooLargeError(
            f"The chunks and their originals have {total:,} bytes, and a response has room for {FOUND_BYTES:,} "
            "at most: send fewer chunks at a time"
        )
    reading = _Reading(payloads, hashes, request.strict, watch.ms(), Budget(collection.deadline))
    results = tuple(_validate_one(chunk, lookup, reading) for chunk in request.chunks)
    passed = sum(verdict.result is not None and verdict.result.validation_passed for verdict in results)
    errors = sum(verdict.result is None for verdict in results)
    trace.passed, trace.unjudged = passed, errors
    judged = [verdict.result for verdict in results if verdict.result is not None]
    trace.mismatch_kinds = Counter(result.mismatch.kind for result in judged if result.mismatch)
    return ValidationResults(
        total=len(results),
        passed=passed,
        failed=len(results) - passed - errors,
        errors=errors,
        results=results,
        retrieval_time_ms=reading.retrieval_ms,
    )


def _read_hashes(points: Sequence[Point], collection: Collection) -> Hashes:
    readable = [point for point in points if collection.payloads.find_text(point) is not None]
    return collection.check_sources(collection.payloads.chunk_of(point) for point in readable)


def _validate_one(request: ChunkOriginal, lookup: Lookup, reading: _Reading) -> ChunkVerdict:
    try:
        result = _validate(request, lookup.one(request.chunk_id), reading)
    except (InvalidParameterError, ChunkNotFoundError, CorruptChunkError) as error:
        detail = ErrorDetail(code=error.code, message=error.message)
        return ChunkVerdict(chunk_id=request.chunk_id, status="error", error=detail)
    return ChunkVerdict(chunk_id=request.chunk_id, status="success", result=result)


def _validate(request: ChunkOriginal, point: Point, reading: _Reading) -> ValidationResult:
    chunk = reading.payloads.chunk_of(point)
    text = _check_text(chunk.text, request, reading.budget)
    proofs = [text.check, _check_content_hash(chunk, reading.hashes)]
    if text.matches is None:
        proofs.append(_check_id_hash(chunk, reading.hashes.chunk_id))
    if all(proof.passed is None for proof in proofs):
        problem = f"There is nothing to compare chunk {request.chunk_id} with"
        raise InvalidParameterError(f"{problem}: give original_text or original_sha256")
    problems = list(_metadata_problems(chunk.metadata))
    metadata = Check(name="metadata", passed=not problems, details="; ".join(problems) or None)
    deciding = [*proofs, metadata] if reading.strict else proofs
    failed = [check for check in deciding if check.passed is False]
    matches = text.matches if text.matches is not None else all(p.passed is not False for p in proofs)
    return ValidationResult(
        chunk_id=chunk.metadata.chunk_id,
        point_id=point.id,
        matches=matches,
        validation_passed=not failed,
        stored_text=chunk.text,
        original_text=request.original_text,
        mismatch_details=failed[0].details if failed and (not matches or not chunk.text) else None,
        mismatch=text.mismatch,
        checks=(*proofs, metadata),
        retrieval_time_ms=reading.retrieval_ms,
    )


def _check_text(stored: str, request: ChunkOriginal, budget: Budget) -> _TextCheck:
    if request.original_text is not None:
        found = compare(stored, request.original_text, budget)
    elif request.original_sha256 is not None:
        found = compare_with_hash(stored, request.original_sha256, budget)
    else:
        passed, details = (None, "No original was given") if stored else (False, EMPTY)
        return _TextCheck(Check(name="text", passed=passed, details=details))
    mismatch, difference = found or (None, None if stored else EMPTY)
    return _TextCheck(Check(name="text", passed=difference is None, details=difference), found is None, mismatch)


def _check_content_hash(chunk: Chunk, hashes: Hashes) -> Check:
    """Check the stored hash if the collection's first points show what it is a hash of."""
    stored, kinds = chunk.metadata.content_hash, hashes.content_hash
    digits = hash_digits(stored)
    reason = (
        "The payload has none"
        if stored is None
        else f"Ignored: not a hash of {MIN_DIGITS} hexadecimal digits or more"
        if digits is None
        else "Ignored: chunks with different texts have the same one, so it is a hash of their source"
        if hashes.is_per_source or digits in hashes.sources
        else "Ignored: in the collection's first points it is not a SHA-256, SHA-1 or MD5 of the text"
    )
    passed = kinds.check(digits, chunk) if kinds and digits and digits not in hashes.sources else None
    if passed is None:
        return Check(name="content_hash", passed=None, details=reason)
    details = None if passed else "The stored text does not match content_hash"
    return Check(name="content_hash", passed=passed, details=details)


def _check_id_hash(chunk: Chunk, kinds: HashKinds | None) -> Check:
    """Check an id that is a hash of url and text, which proves both where no original is given."""
    digits = hash_digits(chunk.metadata.chunk_id) if chunk.id_path is not None else None
    passed = replace(kinds, is_usual=True).check(digits, chunk) if kinds and digits else None
    if kinds is None or passed is None:
        return Check(name="chunk_id", passed=None, details="The id is not a SHA-256 of url and text")
    kind = kinds.usual
    details = None if passed else f"The id is a {kind.algorithm}, but not of the stored {kind.form}"
    return Check(name="chunk_id", passed=passed, details=details)


def _metadata_problems(metadata: ChunkMetadata) -> Iterator[str]:
    if not metadata.url:
        yield "url is missing"
    elif not _is_web_address(metadata.url):
        yield "url is not an http or https address"
    timestamp = metadata.timestamp
    if timestamp is not None and not (isinstance(timestamp, str) and parse_time(timestamp)):
        yield "timestamp is not ISO 8601"
    position = metadata.position
    if position is not None and (not isinstance(position, int) or isinstance(position, bool) or position < 0):
        yield "position is not a non-negative integer"
    title = metadata.document_title
    if title is not None and (not isinstance(title, str) or len(title) > MAX_TITLE):
        yield f"document_title is not a text of at most {MAX_TITLE} characters"


def _is_web_address(url: object) -> bool:
    if not isinstance(url, str):
        return False
    try:
        parts = urlsplit(url)
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and bool(parts.hostname)
