"""`POST /validate-chunk` and `/validate-chunks`: is the stored text the original?"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from urllib.parse import urlsplit

from chunkproof.clients.ports import PointId
from chunkproof.deadline import Deadline
from chunkproof.errors import ChunkNotFoundError, CorruptChunkError, InvalidParameterError
from chunkproof.models import (
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
from chunkproof.models.filters import parse_time
from chunkproof.retrieval.integrity import compare, compare_with_hash, digest
from chunkproof.retrieval.lookup import Lookup, find_point, find_points
from chunkproof.retrieval.payload import Chunk, PayloadMap
from chunkproof.retrieval.services import Services
from chunkproof.trace import RequestTrace, State

MAX_TITLE = 500
_HASH = re.compile(r"[0-9a-f]{16,64}", re.I)
_SHA256 = re.compile(r"[0-9a-f]{64}", re.I)


@dataclass(frozen=True, slots=True)
class _TextCheck:
    """The result of comparing the text with the original, if one was given."""

    check: Check
    mismatch: Mismatch | None = None


def validate_chunk(
    request: ChunkValidation, *, services: Services, deadline: Deadline, trace: RequestTrace | None = None
) -> ValidationResult:
    """Compare the stored text with the original byte for byte, and check the chunk's own hashes and metadata."""
    trace = trace or RequestTrace()
    collection = services.resolve_collection(request.collection)
    trace.collection, trace.chunk_id = collection, request.chunk_id
    with trace.stage("search", State.SEARCHED) as watch:
        point = find_point(request.chunk_id, collection, services=services, deadline=deadline)
        payloads = services.payloads_of(collection, deadline)
    result = _validate(request, point.id, payloads.chunk_of(point), watch.ms())
    trace.matches = result.matches
    trace.mismatch_kind = result.mismatch.kind if result.mismatch else None
    return result


def validate_chunks(
    request: ChunkValidations, *, services: Services, deadline: Deadline, trace: RequestTrace | None = None
) -> ValidationResults:
    """Validate up to a hundred chunks, looked up together; an error with one does not fail the others."""
    trace = trace or RequestTrace()
    collection = services.resolve_collection(request.collection)
    trace.collection, trace.chunks = collection, len(request.chunks)
    with trace.stage("search", State.SEARCHED) as watch:
        wanted = [chunk.chunk_id for chunk in request.chunks]
        found = find_points(wanted, collection, services=services, deadline=deadline)
        payloads = services.payloads_of(collection, deadline)
    retrieval_ms = watch.ms()
    results = tuple(_validate_one(chunk, found, payloads, retrieval_ms) for chunk in request.chunks)
    passed = sum(one.result is not None and one.result.validation_passed for one in results)
    errors = sum(one.result is None for one in results)
    trace.passed, trace.unjudged = passed, errors
    return ValidationResults(
        total=len(results),
        passed=passed,
        failed=len(results) - passed - errors,
        errors=errors,
        results=results,
        retrieval_time_ms=retrieval_ms,
    )


def _validate_one(request: ChunkOriginal, found: Lookup, payloads: PayloadMap, retrieval_ms: float) -> ChunkVerdict:
    try:
        point = found.one(request.chunk_id)
        result = _validate(request, point.id, payloads.chunk_of(point), retrieval_ms)
    except (InvalidParameterError, ChunkNotFoundError, CorruptChunkError) as error:
        detail = ErrorDetail(code=error.code, message=error.message)
        return ChunkVerdict(chunk_id=request.chunk_id, status="error", error=detail)
    return ChunkVerdict(chunk_id=request.chunk_id, status="success", result=result)


def _validate(request: ChunkOriginal, point_id: PointId, chunk: Chunk, retrieval_ms: float) -> ValidationResult:
    text = _check_text(chunk.text, request)
    proofs = [text.check, _check_content_hash(chunk)]
    if text.check.passed is None:
        proofs.append(_check_id_hash(chunk))
    if all(proof.passed is None for proof in proofs):
        raise InvalidParameterError(
            f"There is nothing to compare chunk {request.chunk_id} with: give original_text or original_sha256"
        )
    checks = (*proofs, _check_metadata(chunk.metadata))
    failed = [check for check in checks if check.passed is False]
    matches = text.check.passed if text.check.passed is not None else all(p.passed is not False for p in proofs)
    return ValidationResult(
        chunk_id=chunk.metadata.chunk_id,
        point_id=point_id,
        matches=matches,
        validation_passed=matches and not failed,
        stored_text=chunk.text,
        original_text=request.original_text,
        mismatch_details=None if matches else failed[0].details,
        mismatch=text.mismatch,
        checks=checks,
        retrieval_time_ms=retrieval_ms,
    )


def _check_text(stored: str, request: ChunkOriginal) -> _TextCheck:
    if request.original_text is not None:
        found = compare(stored, request.original_text)
    elif request.original_sha256 is not None:
        found = compare_with_hash(stored, request.original_sha256)
    else:
        return _TextCheck(Check(name="text", passed=None, details="No original was given"))
    mismatch, details = found or (None, None)
    return _TextCheck(Check(name="text", passed=found is None, details=details), mismatch)


def _check_content_hash(chunk: Chunk) -> Check:
    stored = chunk.metadata.content_hash
    if stored is None:
        return Check(name="content_hash", passed=None, details="The payload has none")
    if not isinstance(stored, str) or not _HASH.fullmatch(stored):
        return Check(name="content_hash", passed=None, details="Not a SHA-256 of 16 to 64 hexadecimal digits")
    passed = digest(chunk.text).startswith(stored.lower())
    details = None if passed else "The stored text is not the one that content_hash was made from"
    return Check(name="content_hash", passed=passed, details=details)


def _check_id_hash(chunk: Chunk) -> Check:
    """Check an id that is a SHA-256 of url and text, which proves both where no original is given."""
    chunk_id, url = chunk.metadata.chunk_id, chunk.metadata.url
    # In `id`, Haystack keeps a SHA-256 of something else.
    own = chunk.id_path is not None and chunk.id_path.endswith("chunk_id")
    if not own or not _SHA256.fullmatch(chunk_id) or not isinstance(url, str):
        return Check(name="chunk_id", passed=None, details="The id is not a SHA-256 of url and text")
    passed = sha256((url + chunk.text).encode()).hexdigest() == chunk_id.lower()
    details = None if passed else "The id is a SHA-256, but not of the stored url and text"
    return Check(name="chunk_id", passed=passed, details=details)


def _check_metadata(metadata: ChunkMetadata) -> Check:
    problems = list(_metadata_problems(metadata))
    return Check(name="metadata", passed=not problems, details="; ".join(problems) or None)


def _metadata_problems(metadata: ChunkMetadata) -> Iterator[str]:
    if not metadata.url:
        yield "url is missing"
    elif not _is_web_address(metadata.url):
        yield "url is not an http or https address"
    if metadata.timestamp is not None and not _is_time(metadata.timestamp):
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


def _is_time(value: object) -> bool:
    return isinstance(value, str) and parse_time(value) is not None
