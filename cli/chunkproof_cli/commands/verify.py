"""`chunkproof verify`."""

import json
import sys
from pathlib import Path
from typing import Any

import click

from chunkproof.base.errors import ChunkproofError, InvalidParameterError
from chunkproof.collection.reader import Reader
from chunkproof.contract import SearchQuery, read_json
from chunkproof.seals.merkle import open_files
from chunkproof.seals.notes import PublicKey
from chunkproof.seals.reports import verify_report
from chunkproof.seals.sealing import Seal, files_of
from chunkproof.seals.verification import TOLERANCE, Claim, Evidence, LeftOut, Repetition, Verification, verify_receipt
from chunkproof.search.filters import map_filters
from chunkproof_cli.connections import open_services
from chunkproof_cli.exits import COULD_NOT_JUDGE, FAILED
from chunkproof_cli.options import Options, common_options, parse_options, reject_api
from chunkproof_cli.output import print_line, print_result

EXAMPLES = """\b
Examples:
  chunkproof search "how are backups made" --receipt answer.json
  chunkproof verify answer.json --key seal.key.pub
  chunkproof verify answer.json --key seal.key.pub --collection docs --seals seals
  chunkproof verify audit.json --key seal.key.pub
"""
COLOURS = {"proved": "green", "refuted": "bold red", "not proved": "yellow"}


@click.command(epilog=EXAMPLES)
@click.argument("file", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.option(
    "--key",
    "keys",
    multiple=True,
    required=True,
    metavar="PUB",
    help="Public key, or a file with one; may be repeated.",
)
@click.option("--query", metavar="TEXT", help="The query, if the file has only its hash.")
@click.option(
    "--seals", metavar="FOLDER|s3://…", help="Where the seals are, to search again; CHUNKPROOF_SEALS by default."
)
@click.option(
    "--folder", type=click.Path(path_type=Path), help="Folder of the embedded store to search again; as --data."
)
@click.option(
    "--tolerance",
    type=click.FloatRange(0, 1),
    default=TOLERANCE,
    show_default=True,
    help="Scores this close are equal.",
)
@common_options
@reject_api("verification needs no service")
def verify(
    file: Path,
    keys: tuple[str, ...],
    *,
    query: str | None,
    seals: str | None,
    folder: Path | None,
    tolerance: float,
    **common: Any,
) -> None:
    """Check a receipt, or a signed report, without store, account or network.

    FILE is a response with a receipt, as `search --receipt` writes it, a receipt alone, or a signed report. With
    --collection or --folder, the search is executed again exactly, and better chunks that were left out are named.
    Exit 1 if a claim is wrong, 3 if nothing is wrong but what was asked for could not be proved.
    """
    again = common["collection"] is not None or folder is not None or common["data"] is not None
    common["data"] = folder or common["data"]
    given = parse_options(**common)
    public = [_read_key(key) for key in keys]
    try:
        document = read_json(file.read_bytes().decode())
    except (InvalidParameterError, UnicodeDecodeError):
        document = None
    is_report = file.with_name(file.name + ".sig").exists() or not isinstance(document, dict)
    left_out: tuple[LeftOut, ...] = ()
    if is_report:
        claims = [verify_report(file, public)]
    else:
        evidence = Evidence.parse(document, query)
        claims = verify_receipt(evidence, public)
        if again and not any(claim.verdict == "refuted" for claim in claims if claim.name in ("seal", "membership")):
            more, left_out = _search_again(evidence, given, seals, tolerance)
            claims += more
    result = Verification(claims=tuple(claims), left_out=left_out)
    print_result(result, _print, as_json=given.json)
    if result.is_refuted:
        sys.exit(FAILED)
    needed = {"seal", "membership", "texts", "order", "report"} | ({"complete", "scores"} if again else set())
    if any(claim.verdict == "not proved" and claim.name in needed for claim in claims):
        sys.exit(COULD_NOT_JUDGE)


def _read_key(text: str) -> PublicKey:
    path = Path(text)
    return PublicKey.parse(path.read_text("utf-8", "replace") if len(text) < 4096 and path.is_file() else text)


def _search_again(
    evidence: Evidence, given: Options, seals: str | None, tolerance: float
) -> tuple[list[Claim], tuple[LeftOut, ...]]:
    with open_services(given) as services:
        name = given.collection or evidence.receipt["collection"]
        place = seals or services.settings.seals
        seal = Seal.find(files_of(open_files(place), evidence.receipt["collection"])) if place else None
        if seal is not None and evidence.checkpoint is not None and seal.checkpoint != evidence.checkpoint:
            seal = seal.at(evidence.checkpoint)
        collection = Reader(services, services.collection(name).name)
        filters = evidence.receipt["request"].get("filters")
        try:
            parsed = (
                SearchQuery.parse({"query_text": "filters", "filters": json.loads(filters)}).filters if filters else ()
            )
            where = map_filters(parsed, collection) if parsed else ()
        except (ValueError, TypeError, ChunkproofError):
            return [Claim(name="complete", verdict="not proved", detail="cannot tell: its filters cannot be read")], ()
        return Repetition(evidence, collection, where, seal).run(tolerance)


def _print(result: Verification) -> None:
    for claim in result.claims:
        print_line(f"{claim.verdict:<10}  {claim.name}: {claim.detail}", COLOURS[claim.verdict])
    if not any(claim.name == "report" for claim in result.claims):
        print_line("not proved  embedding: that the vector is what the model makes of the query", "dim")
    if not any(claim.name in ("complete", "report") for claim in result.claims):
        print_line("not proved  complete: give --collection or --folder to search again", "dim")
