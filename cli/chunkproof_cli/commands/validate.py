"""`chunkproof validate`."""

import sys
from pathlib import Path
from typing import Any

import click

from chunkproof.errors import InvalidParameterError
from chunkproof.models import ValidationResult
from chunkproof_cli.connections import open_backend
from chunkproof_cli.exits import FAILED
from chunkproof_cli.options import api_option, common_options, explicit_collection, name_flags, parse_options
from chunkproof_cli.output import print_json, print_line, print_table, print_title, verdict_text

EXAMPLES = """\b
Examples:
  chunkproof validate robotics-control-03 --collection handbook
  chunkproof validate 550e8400-e29b-41d4-a716-446655440000 --original-file page.txt
  chunkproof validate robotics-control-03 --sha256 9f86d081884c7d65…
"""


FLAGS = {"chunk_id": "CHUNK_ID", "original_text": "--original", "original_sha256": "--sha256"}


@click.command(epilog=EXAMPLES)
@click.argument("chunk_id")
@click.option("--original", metavar="TEXT", help="The text that should be stored.")
@click.option(
    "--original-file",
    type=click.Path(),
    metavar="FILE",
    help="File with the text that should be stored; - for standard input.",
)
@click.option("--sha256", metavar="HEX", help="SHA-256 of the text that should be stored.")
@common_options
@api_option
def validate(
    chunk_id: str,
    original: str | None,
    original_file: str | None,
    sha256: str | None,
    **common: Any,
) -> None:
    """Check that the stored text of CHUNK_ID equals its original, byte for byte.

    Without an original, the text is compared with the hash stored with the chunk. Exit 1 when a check fails.
    """
    if sum(source is not None for source in (original, original_file, sha256)) > 1:
        raise click.UsageError("Use only one of --original, --original-file and --sha256.")
    options = parse_options(**common)
    fields = {
        "chunk_id": chunk_id,
        "collection": explicit_collection(options),
        "original_text": original if original_file is None else read_original(original_file),
        "original_sha256": sha256,
    }
    with open_backend(options) as backend, name_flags(FLAGS):
        result = backend.validate({name: value for name, value in fields.items() if value is not None})
    if options.json:
        print_json(result)
    else:
        print_validation(result)
    sys.exit(0 if result.validation_passed else FAILED)


def read_original(name: str) -> str:
    """Read the file as UTF-8 without changing line ends or dropping a BOM."""
    try:
        content = sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()
    except OSError as error:
        raise InvalidParameterError(f"--original-file {name}: {error.strerror}") from None
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InvalidParameterError(f"--original-file {name}: not UTF-8 at byte {error.start}") from None


def print_validation(result: ValidationResult) -> None:
    """Print the checks as a table, then the difference."""
    checks = ((check.name, verdict_text(check.passed), check.details or "") for check in result.checks)
    print_title(f"Chunk {result.chunk_id}")
    print_table(("check", "verdict", "details"), checks)
    if mismatch := result.mismatch:
        at = mismatch.first_difference
        original = "unknown" if mismatch.original_bytes is None else f"{mismatch.original_bytes} bytes"
        lines = [
            ("kind", mismatch.kind.value),
            (
                "first difference",
                f"byte {at.byte}, char {at.char}, line {at.line}, column {at.column}" if at else "unknown",
            ),
            ("stored", f"{mismatch.stored_bytes} bytes: {mismatch.stored_excerpt!a}"),
            (
                "original",
                f"{original}: {mismatch.original_excerpt!a}" if mismatch.original_excerpt is not None else original,
            ),
        ]
        print_table(("difference", "value"), lines)
    if result.validation_passed:
        print_line(
            "The stored text is the original, byte for byte."
            if result.original_text is not None
            else "The stored text agrees with its hash.",
            "green",
        )
    elif result.matches:
        print_line("The text matches, but a check failed.", "bold red")
    else:
        print_line(f"MISMATCH: {result.mismatch_details}", "bold red")
