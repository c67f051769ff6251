"""`chunkproof verify`."""

import sys
from pathlib import Path
from typing import Any

import click

from chunkproof.base.errors import InvalidParameterError
from chunkproof.base.files import read_file
from chunkproof.collection.reader import Reader
from chunkproof.contract import SearchQuery, read_json
from chunkproof.contract.model import find_faults
from chunkproof.seals.merkle import open_files
from chunkproof.seals.notes import SUFFIX, PublicKey
from chunkproof.seals.receipts import Claim, Evidence, LeftOut, Repetition, Verification, verify_receipt, verify_report
from chunkproof.seals.sealing import Seal, files_of
from chunkproof.search.filters import map_filters
from chunkproof_cli.connections import open_services
from chunkproof_cli.exits import COULD_NOT_JUDGE, FAILED
from chunkproof_cli.options import Options, common_options, option, parse_options, reject_api
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
@option("--key keys PUB*", "Public key, or a file with one a line; may be repeated.", required=True)
@option("--query TEXT", "The query, if the file has only its hash.")
@option("--seals FOLDER|s3://…", "Where the seals are, to search again; CHUNKPROOF_SEALS by default.")
@option("--tolerance", "Scores this close are equal.", Repetition.tolerance, type=click.FloatRange(0, 1))
@common_options
@reject_api("verification needs no service")
def verify(
    file: Path, keys: tuple[str, ...], *, query: str | None, seals: str | None, tolerance: float, **common: Any
) -> None:
    """Check a receipt, or a signed report, without store, account or network.

    FILE is a response with a receipt, as `search --receipt` writes it, a receipt alone, or a signed report. With
    --collection or --data, the search is executed again exactly, and better chunks that were left out are named.
    Exit 1 if a claim is wrong, 3 if nothing is wrong but what was asked for could not be proved.
    """
    again = common["collection"] is not None or common["data"] is not None
    given = parse_options(**common)
    public = [key for text in keys for key in _read_keys(text)]
    left_out: tuple[LeftOut, ...] = ()
    if file.with_name(file.name + SUFFIX).exists():
        claims = [verify_report(file, public)]
    else:
        evidence = Evidence.parse(_read_receipt(file), query)
        claims = verify_receipt(evidence, public)
        if again and not any(claim.verdict == "refuted" for claim in claims if claim.name in ("seal", "membership")):
            more, left_out = _search_again(evidence, given, seals, tolerance)
            claims += more
    print_result(Verification(claims=tuple(claims), left_out=left_out), _print, as_json=given.json)
    if any(claim.verdict == "refuted" for claim in claims):
        sys.exit(FAILED)
    needed = {"seal", "membership", "texts", "order", "report"} | ({"complete", "scores"} if again else set())
    if any(claim.verdict == "not proved" and claim.name in needed for claim in claims):
        sys.exit(COULD_NOT_JUDGE)


def _read_keys(text: str) -> list[PublicKey]:
    path = Path(text)
    found = read_file(path).decode("utf-8", "replace") if len(text) < 4096 and path.is_file() else text
    return [PublicKey.parse(key) for key in found.split() or [text]]


def _read_receipt(file: Path) -> Any:
    try:
        document = read_json(read_file(file), "the file")
        faults = [fault.message for fault in find_faults(document, "the file")]
        if faults:
            raise InvalidParameterError(faults[0])
        return document
    except InvalidParameterError as error:
        why = f"is neither a receipt ({error}), nor is there a signature {file.name}{SUFFIX} beside it"
        raise InvalidParameterError(f"{file} {why}") from None


def _search_again(
    evidence: Evidence, given: Options, seals: str | None, tolerance: float
) -> tuple[list[Claim], tuple[LeftOut, ...]]:
    with open_services(given) as services:
        place, sealed_name = seals or services.settings.seals, str(evidence.receipt["collection"])
        seal = Seal.find(files_of(open_files(place), sealed_name), evidence.checkpoint) if place else None
        collection = Reader(services, services.collection(given.collection or sealed_name).name)
        try:
            filters = read_json(evidence.receipt["request"].get("filters") or "{}")
            parsed = SearchQuery.parse({"query_text": "filters", "filters": filters}).filters
            where = map_filters(parsed, collection) if parsed else ()
        except (ValueError, TypeError, InvalidParameterError):
            return [Claim(name="complete", verdict="not proved", detail="cannot tell: its filters cannot be read")], ()
        return Repetition(evidence, collection, where, seal, tolerance).run()


def _print(result: Verification) -> None:
    for claim in result.claims:
        said = f"{claim.verdict:<10}  {claim.name}: " + claim.detail.removeprefix("complete: ")
        print_line(said, COLOURS[claim.verdict])
    names = {claim.name for claim in result.claims}
    if "report" not in names:
        print_line("not proved  embedding: that the vector is what the model makes of the query", "dim")
        if "complete" not in names:
            print_line("not proved  complete: give --collection or --data to search again", "dim")
