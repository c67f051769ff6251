"""`chunkproof diff`."""

import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import click

from chunkproof.audit.reader import Reader
from chunkproof.suite.files.read import Source, read_source
from chunkproof_cli.addresses import Address, open_address, parse_address
from chunkproof_cli.diffs.run import Rules, run_diff
from chunkproof_cli.files.objects import FileOrObject
from chunkproof_cli.options import Options, common_options, output_option, parse_options, reject_api
from chunkproof_cli.output import print_json
from chunkproof_cli.reports.diff import FORMATS, write_reports
from chunkproof_cli.reports.diff.terminal import print_report
from chunkproof_cli.reports.outputs import check_outputs

METADATA = "url,document_id,document_title,section_heading,position"
EXAMPLES = """\b
Examples:
  chunkproof diff handbook handbook-v2
  chunkproof diff handbook handbook-cohere --allow vectors --queries suite.yaml -o migration.html
  chunkproof diff handbook handbook --to-url https://new.example.com:6333 --queries suite.yaml
  chunkproof diff https://old.example.com:6333/collections/docs docs --min-overlap 95
  chunkproof diff docs docs-small-chunks --allow texts --queries suite.yaml --tolerate 1
"""


@click.command(epilog=EXAMPLES)
@click.argument("a")
@click.argument("b")
@click.option("--to-url", metavar="URL", help="Server of B, where it is not that of A.")
@click.option(
    "--to-api-key",
    metavar="KEY",
    envvar="CHUNKPROOF_TO_API_KEY",
    show_envvar=True,
    help="Key of the server of B, where B is named by --to-url or its URL.",
)
@click.option(
    "--from-api-key",
    metavar="KEY",
    envvar="CHUNKPROOF_FROM_API_KEY",
    show_envvar=True,
    help="Key of the server of A, where A is named by its URL.",
)
@click.option(
    "--queries",
    type=FileOrObject(),
    metavar="SUITE",
    help="Search for the queries of a suite in both: exit 1 if one that passes in A fails in B.",
)
@click.option(
    "--allow",
    "allowed",
    type=click.Choice(["texts", "metadata", "vectors"]),
    multiple=True,
    help="What may differ: texts for another chunking, vectors for another model. May be repeated.",
)
@click.option(
    "--metadata",
    default=METADATA,
    show_default=True,
    metavar="FIELD,…",
    help="Fields to compare; none for no field.",
)
@click.option(
    "--tolerate",
    type=click.IntRange(0),
    default=0,
    show_default=True,
    metavar="N",
    help="With --queries: let N queries newly fail.",
)
@click.option(
    "--min-overlap",
    type=click.FloatRange(0, 100),
    metavar="PERCENT",
    help="With --queries: exit 1 if both return less in common.",
)
@output_option("Write the report: .json, .html, .md, .txt or .xml (JUnit).")
@common_options
@reject_api("a diff reads the collections themselves; set QDRANT_URL")
def diff(a: str, b: str, outputs: tuple[Path, ...], queries: Path | None, metadata: str, **options: Any) -> None:
    """Compare two collections: texts, metadata, vectors, and what both return for a suite's queries.

    A and B are collections of the configured store, or URLs such as https://HOST:6333/collections/NAME. Chunks are
    matched by id, then by text, then by the nearest text. Exit 1 when something differs that may not, 3 when that
    could not be judged. The last line names what decided.
    """
    keys = {name: options.pop(name) for name in ("to_url", "to_api_key", "from_api_key")}
    allowed, tolerate, min_overlap = (options.pop(name) for name in ("allowed", "tolerate", "min_overlap"))
    given = parse_options(**options)
    check_outputs(outputs, FORMATS)
    if given.collection:
        raise click.UsageError("A and B name the collections: leave --collection out.")
    if queries is None and (min_overlap is not None or tolerate):
        raise click.UsageError("--min-overlap and --tolerate are about the results of --queries.")
    fields = [] if metadata == "none" else [name.strip() for name in metadata.split(",") if name.strip()]
    first, second = parse_address(a, "A"), _parse_second(b, keys["to_url"])
    if first == second:
        raise click.UsageError(f"A and B are both {first}: name two collections.")
    suite = read_source(Source(queries)).suite if queries else None
    rules = Rules(tuple(dict.fromkeys(allowed)), tolerate, None if min_overlap is None else min_overlap / 100)
    with ExitStack() as stack:
        readers = _open_both(first, second, given, keys, stack)
        report = run_diff(readers, fields, suite, rules)
    write_reports(report, outputs)
    if given.json:
        print_json({**report.model_dump(mode="json"), "verdict": report.verdict, "exit_code": report.exit_code})
    else:
        print_report(report)
    sys.exit(report.exit_code)


def _parse_second(name: str, url: str | None) -> Address:
    if url is None:
        return parse_address(name, "B")
    if "://" in name:
        raise click.UsageError("Give the URL of B in its address or with --to-url, not both.")
    return parse_address(f"{url.rstrip('/')}/collections/{name}", "--to-url")


def _open_both(
    first: Address, second: Address, given: Options, keys: dict[str, str | None], stack: ExitStack
) -> tuple[Reader, Reader]:
    a = stack.enter_context(open_address(first, given, keys["from_api_key"]))
    same_store = first.url == second.url
    b = a if same_store else stack.enter_context(open_address(second, given, keys["to_api_key"]))
    return Reader(a, first.collection), Reader(b, second.collection)
