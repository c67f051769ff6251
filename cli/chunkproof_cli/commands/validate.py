"""`chunkproof validate`."""

import sys
from contextlib import suppress
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import click
from rich.text import Text

from chunkproof.base.errors import AmbiguousIdError, ChunkNotFoundError, ChunkproofError
from chunkproof.base.files import read_text
from chunkproof.collection.services import LongRun
from chunkproof.contract import Check, ChunkValidation, TextPosition, ValidationResult
from chunkproof.proof.backend import Backend, LocalBackend
from chunkproof.proof.integrity import AFTER, BEFORE
from chunkproof_cli.connections import open_backend
from chunkproof_cli.exits import FAILED
from chunkproof_cli.options import api_option, common_options, name_collection, name_flags, option, parse_options
from chunkproof_cli.output import print_line, print_result, print_table, print_title, show_warnings_once
from chunkproof_cli.request_options import request_option

EXAMPLES = """\b
Examples:
  chunkproof validate robotics-control-03 --collection handbook
  chunkproof validate 550e8400-e29b-41d4-a716-446655440000 --original-file page.txt
  chunkproof validate robotics-control-03 --sha256 9f86d081884c7d65…
"""


# By what else a chunk can be named, if no other has the same.
NAMING_FIELDS = ("url", "document_id", "section_heading", "document_title")
MOST_NAMED, MOST_READ = 6, 10_000
VERDICTS = {None: Text("n/a", style="dim"), True: Text("pass", style="green"), False: Text("FAIL", style="bold red")}
FLAGS = {"chunk_id": "CHUNK_ID", "original_text": "--original", "original_sha256": "--sha256"}


@click.command(epilog=EXAMPLES)
@click.argument("chunk_id")
@request_option(ChunkValidation, "original_text", "--original-text", "--original", metavar="TEXT")
@option("--original-file FILE", "File with what the text should be; - for standard input.", type=click.Path())
@request_option(ChunkValidation, "original_sha256", "--original-sha256", "--sha256", metavar="HEX")
@request_option(ChunkValidation, "strict", "--strict")
@common_options
@api_option
def validate(original_file: str | None, **given: Any) -> None:
    """Check that the stored text of CHUNK_ID equals its original, byte for byte.

    CHUNK_ID may also be the source or the title of a chunk, if no other chunk has the same. Without an original,
    the text is compared with the hash stored with the chunk. Exit 1 when it differs; with --strict, also when the
    metadata is wrong.
    """
    # strict is not sent unless set: a stack before 1.1 does not know it.
    request = {name: given.pop(name) for name in ("chunk_id", "original_text", "original_sha256", "strict")}
    originals = (original_file, request["original_text"], request["original_sha256"])
    if sum(original is not None for original in originals) > 1:
        raise click.UsageError("Use only one of --original, --original-file and --sha256.")
    options = parse_options(**given)
    if original_file is not None:
        request["original_text"] = read_text(Path(original_file), "--original-file", "utf-8")
    named = {name: value for name, value in request.items() if value not in (None, False)}
    with open_backend(options) as backend, name_flags(FLAGS), show_warnings_once():
        result = _validate(name_collection(named, options), backend)
    print_result(result, partial(print_validation, strict=request["strict"]), as_json=options.json)
    sys.exit(0 if result.validation_passed else FAILED)


def _validate(request: dict[str, Any], backend: Backend) -> ValidationResult:
    """Validate the chunk, which may also be named by its source or title, as a search shows them."""
    try:
        return backend.validate(request)
    except ChunkNotFoundError:
        name, found = request["chunk_id"], _find_named(request["chunk_id"], request.get("collection"), backend)
        if not found:
            raise
        if len(found) > 1:
            field, ids = next(iter(found.values())), ", ".join(sorted(found)[:5]) + ", …" * (len(found) > 5)
            raise AmbiguousIdError(f"{name} is the {field} of several chunks; name one of them: {ids}") from None
        return backend.validate({**request, "chunk_id": next(iter(found))})


def _find_named(name: str, collection: str | None, backend: Backend) -> dict[str, str]:
    """Return the field that has this value, by the ids of the chunks."""
    found, where = dict[str, str](), {"collection": collection} if collection else {}
    for field, end in product(NAMING_FIELDS, (1.0, -1.0)):
        with suppress(ChunkproofError):  # a strict server filters on indexed fields only
            # No cosine is negative with both of these vectors, so every chunk is found.
            vector = [end] + [0.0] * (backend.collection(collection).vector_size - 1)
            query = {"query_vector": vector, "filters": {field: name}, "top_k": MOST_NAMED, **where}
            found = {result.metadata.chunk_id: field for result in backend.search(query).results} | found
    if found or not isinstance(backend, LocalBackend):
        return found
    # No filter reaches into a JSON string, and no search a collection without a vector: a small one is read whole.
    with suppress(ChunkproofError):
        services, value = backend.services, backend.services.payloads.value
        run = LongRun(services, services.collection(collection).name, backend.new_deadline)
        points = (point for page in run.scan() for point in page.points)
        pairs = product(points, NAMING_FIELDS) if run.describe().points_count <= MOST_READ else ()
        return {str(point.id): field for point, field in pairs if value(field, point.payload) == name}
    return {}


def quote_excerpt(excerpt: str, difference: TextPosition | None) -> str:
    """Quote an excerpt with its characters escaped, so that look-alikes differ; its own ellipses stay outside."""
    char = difference.char if difference else 0
    cut_before = char > BEFORE
    text = excerpt[1:] if cut_before else excerpt
    cut_after = len(text) > min(char, BEFORE) + AFTER
    return ("…" if cut_before else "") + ascii(text[:-1] if cut_after else text) + ("…" if cut_after else "")


def _verdict(check: Check, strict: bool) -> Text:
    """Return the verdict of a check; wrong metadata is only a note unless it decides."""
    is_note = check.name == "metadata" and check.passed is False and not strict
    return Text("note", style="yellow") if is_note else VERDICTS[check.passed]


def print_validation(result: ValidationResult, *, strict: bool = False) -> None:
    """Print the checks as a table, then the difference."""
    checks = ((check.name, _verdict(check, strict), check.details or "") for check in result.checks)
    point = "" if str(result.point_id) in ("None", result.chunk_id) else f" (point {result.point_id})"
    print_title(f"Chunk {result.chunk_id}{point}")
    print_table(("check", "verdict", "details"), checks)
    if mismatch := result.mismatch:
        at = mismatch.first_difference
        original = "unknown" if mismatch.original_bytes is None else f"{mismatch.original_bytes} bytes"
        if mismatch.original_excerpt is not None:
            original += f": {quote_excerpt(mismatch.original_excerpt, at)}"
        where = f"byte {at.byte}, char {at.char}, line {at.line}, column {at.column}" if at else "unknown"
        lines = [
            ("kind", mismatch.kind.value),
            ("first difference", where),
            ("stored", f"{mismatch.stored_bytes} bytes: {quote_excerpt(mismatch.stored_excerpt, at)}"),
            ("original", original),
        ]
        print_table(("difference", "value"), lines)
    if result.validation_passed:
        said = "is the original, byte for byte" if result.original_text is not None else "agrees with its hash"
        print_line(f"The stored text {said}.", "green")
    elif result.matches:
        print_line("The text matches, but a check failed.", "bold red")
    else:
        print_line(f"MISMATCH: {result.mismatch_details}", "bold red")
