"""`chunkproof absent`."""

import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic
from typing import Any

import click

from chunkproof.audit.absence import OUT_OF_REACH, AbsenceReport, Search, Subject
from chunkproof.audit.manifest_file import check_lines, find_manifest, manifest_name, open_manifest
from chunkproof.audit.readings import FORMS
from chunkproof.base.errors import ChunkproofError, InvalidParameterError
from chunkproof.base.files import read_text
from chunkproof.base.request import Deadline
from chunkproof.collection.reader import CALL_MS, Reader
from chunkproof.proof.integrity import digest
from chunkproof.service.terminal import Connection
from chunkproof_cli.connections import connect
from chunkproof_cli.exits import COULD_NOT_JUDGE, FAILED
from chunkproof_cli.options import common_options, option, output_option, parse_options, reject_api, sign_option
from chunkproof_cli.output import print_json, progress_bar
from chunkproof_cli.reports.outputs import ABSENCE

CHECKS = (
    "ids: no point has a deleted id, in its payload or as its own",
    "exact texts: no value of a payload is a deleted text, byte for byte",
    "near-duplicate texts and passages: no value of a payload has most of a deleted text, or 100 letters of it",
    "URLs: no value names a deleted document, with any scheme, letter case, query or fragment",
    *(f"values and names of fields {form}" for form in FORMS),
    "searches: a deleted text and its sentences do not return it, and no point has its vector",
)
EXAMPLES = """\b
Examples:
  chunkproof absent deleted.jsonl -o erasure.html -o erasure.json
  chunkproof absent --url https://docs.example.com/people/jane
  chunkproof absent --text "Jane Doe, 12 Elm Street"
  chunkproof absent --text-file letter.txt --collection support
"""


@click.command(epilog=EXAMPLES)
@click.argument("manifest", required=False)
@option("--text texts TEXT*", "A text that must be gone. May be repeated.")
@option(
    "--text-file files FILE*",
    "A text that must be gone, in a file: it stays out of the shell's history. May be repeated.",
    exists=True,
)
@option("--url urls URL*", "A document that must be gone. May be repeated.")
@option(
    "--searches N",
    "The most sentences to search for in each collection; every stored text is compared in any case.",
    500,
    type=click.IntRange(0),
)
@output_option("Write the report: .json, .html, .md or .txt.")
@sign_option
@common_options
@reject_api("absence is proved in the store itself; set QDRANT_URL")
def absent(
    manifest: str | None, texts: tuple[str, ...], files: tuple[Path, ...], urls: tuple[str, ...], **options: Any
) -> None:
    """Prove that deleted chunks, texts or documents are no longer stored or found, in any collection.

    MANIFEST lists the deleted chunks. Every collection that the key can see is read whole and compared by id, text,
    near-duplicate text and URL, then searched with the sentences of what was deleted. --collection checks only one.

    Exit 1 when something is found, 3 when something could not be checked. The report names what was deleted by id,
    URL or hash, never by its text.
    """
    outputs, searches = options.pop("outputs"), options.pop("searches")
    given = parse_options(**options)
    only = given.collection
    ABSENCE.check(outputs)
    subjects = [*_read_manifest(manifest), *_read_texts(texts, files), *(Subject(url, "url") for url in urls)]
    if not subjects:
        raise click.UsageError("Name what must be gone: a MANIFEST, --text, --text-file or --url.")
    search = Search(subjects, searches)
    began, checked_at = monotonic(), datetime.now(UTC)
    with connect(given) as connection:
        names, aliases, problems = _list_collections(connection, only)
        checks = []
        for name in names:
            others = (alias for alias, collection in aliases.items() if collection == name)
            with progress_bar(f"Reading {name}", None) as done:
                checks.append(search.check(Reader(connection.services, name), others, done))
        host = connection.store.host
    if search.without_text:
        problems.append(
            f"near-duplicates of {search.without_text:,} chunks, of which the manifest has only hashes or ids"
        )
    subject_results = search.results()
    report = AbsenceReport(
        checked_at=checked_at,
        host=host,
        subjects_total=len(subjects),
        found=sum(bool(one.hits) for one in subject_results),
        hits_total=search.hits_total,
        subjects=subject_results,
        collections=tuple(checks),
        checks=CHECKS,
        not_checked=(*problems, *(problem for check in checks for problem in check.not_checked)),
        out_of_reach=(*([f"other collections than {only}, which --collection leaves out"] * bool(only)), *OUT_OF_REACH),
        seconds=round(monotonic() - began, 3),
    )
    ABSENCE.write(report, outputs)
    if given.json:
        print_json({**report.model_dump(mode="json"), "verdict": report.verdict})
    else:
        ABSENCE.print(report)
    sys.exit(FAILED if report.found else COULD_NOT_JUDGE if report.not_checked else 0)


def _read_manifest(name: str | None) -> Iterator[Subject]:
    if name is None:
        return
    path = find_manifest(name)
    with open_manifest(path) as lines:
        for entry, _ in check_lines(lines, manifest_name(path)):
            yield Subject(entry.chunk_id, "chunk", entry.original_text or None, entry.sha256 or None, entry.point_id)


def _read_texts(texts: tuple[str, ...], files: tuple[Path, ...]) -> Iterator[Subject]:
    """Name a text by its hash: a report must not repeat it."""
    for text in (*texts, *(read_text(file, "--text-file").removesuffix("\n") for file in files)):
        if not text.strip():
            raise InvalidParameterError("--text is empty: give the text that must be gone")
        yield Subject(f"sha256:{digest(text)}", "text", text, digest(text))


def _list_collections(connection: Connection, only: str | None) -> tuple[list[str], dict[str, str], list[str]]:
    """Return the collections to check, all aliases, and what kept from seeing more."""
    store, problems = connection.store, list[str]()
    aliases: dict[str, str] = {}
    try:
        aliases = store.aliases(Deadline(CALL_MS))
    except ChunkproofError as error:
        problems.append(f"aliases could not be listed: {error}")
    if only is None:
        return store.collections(Deadline(CALL_MS)), aliases, problems
    wanted = aliases.get(only, only)
    store.describe(wanted, Deadline(CALL_MS))  # an unknown name is wrong input, and no proof
    return [wanted], aliases, problems
