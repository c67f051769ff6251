"""`chunkproof doctor`."""

import sys
from typing import Any

import click

from chunkproof.base.errors import ChunkproofError, ForbiddenError, NotFoundError
from chunkproof.base.settings import Settings
from chunkproof.contract.response import DependencyHealth
from chunkproof.service.terminal import new_deadline
from chunkproof.suite.suite_file import SuiteSource, read_source
from chunkproof_cli.aws.stack import find_stack
from chunkproof_cli.commands.collection import print_facts
from chunkproof_cli.connections import open_api_client, open_services
from chunkproof_cli.doctor.collection_checks import MAX_LISTED, check_collection
from chunkproof_cli.doctor.doctor_report import CheckResult, DoctorReport, Level, fail, ok
from chunkproof_cli.exits import FAILED
from chunkproof_cli.options import (
    api_option,
    common_options,
    embedder_option,
    fetch_file,
    option,
    parse_options,
    reject_embedder,
)
from chunkproof_cli.output import print_json, print_line, print_table, print_title, safe_text, shorten, stdout_console

EXAMPLES = """\b
Examples:
  QDRANT_URL=https://xyz.cloud.qdrant.io:6333 QDRANT_API_KEY=… chunkproof doctor
  chunkproof doctor --collection handbook --suite suite.yaml
  chunkproof doctor --stack chunkproof
"""
REMEDIES = {
    "Qdrant": "Check QdrantUrl, the key in the secret, and that the functions' network reaches it",
    "embedder": "Check the key in the secret, and CHUNKPROOF_MODEL",
}
# A terminal has room for so many samples besides the names of fields.
NAMES_WIDTH, SAMPLE_WIDTH = 40, 45
_STYLES = {Level.OK: "green", Level.NOTE: "yellow", Level.FAIL: "bold red"}


@click.command(epilog=EXAMPLES)
@option("--stack NAME", "Check a deployed stack instead: its functions, Qdrant and embedder.")
@option(
    "--suite suites FILE*", "A suite whose filters are checked for payload indexes. May be repeated.", type=fetch_file
)
@common_options
@embedder_option
@api_option
def doctor(stack: str | None, suites: tuple[Any, ...], **common: Any) -> None:
    """Check a collection without changing it: what works, what does not, and how to fix it.

    It needs QDRANT_URL, QDRANT_API_KEY and the embedder of the collection. Up to 128 chunks are embedded
    again and compared with the stored vectors, and one search is made. Exit 1 when a check fails.
    """
    options = parse_options(**common)
    read = [read_source(SuiteSource(path)).suite for path in suites]
    if stack is not None:
        reject_embedder(options, "--stack")
        report = _check_stack(stack, options.collection)
    elif options.api is not None:
        report = _check_api(options.api, options.collection or Settings.from_env().collection)
    else:
        with open_services(options) as services:
            report = check_collection(options.collection, services, lambda: new_deadline(services.settings), read)
    if options.json:
        print_json(report.to_json())
    else:
        print_doctor_report(report)
    sys.exit(0 if report.passed else FAILED)


def _check_stack(name: str, collection: str | None) -> DoctorReport:
    """Check the state of a stack, its dependencies and its collection: the smoke test after `make deploy`."""
    stack = find_stack(name)
    report = _check_api(stack.outputs["ApiUrl"], collection or stack.outputs["Collection"])
    report.checks[:0] = [ok("stack", f"{name} is {stack.status}"), ok("authorization", stack.outputs["Authorization"])]
    return report


def _check_api(url: str, collection: str) -> DoctorReport:
    """Check the dependencies and the collection of an API."""
    report = DoctorReport(url, [collection], collection)
    with open_api_client(url) as client:
        health = client.health()
        report.checks += [_check_dependency(name, getattr(health, name.lower())) for name in REMEDIES]
        try:
            report.info = client.collection(collection)
            report.mapping = report.info.payload_map
            report.checks.append(ok("collection", f"{collection} has {report.info.points_count:,} points"))
        except ChunkproofError as error:
            remedy = REMEDIES["Qdrant"] if error.code.startswith("QDRANT_") else None
            if isinstance(error, NotFoundError | ForbiddenError):
                remedy = "Name one that exists with --collection, or deploy with the parameter Collection"
            report.checks.append(fail("collection", str(error), remedy))
    return report


def _check_dependency(name: str, dependency: DependencyHealth | None) -> CheckResult:
    if dependency is not None and dependency.status == "ok":
        return ok(name, f"responds in {dependency.latency_ms:.0f} ms")
    return fail(name, (dependency and dependency.message) or "does not respond", REMEDIES[name])


def print_doctor_report(report: DoctorReport) -> None:
    """Print the collections, the payload mapping with sample rows, the checks and the verdict."""
    names = sorted(report.collections, key=lambda name: name != report.collection)
    marked = [(("→ " if name == report.collection else "  ") + name,) for name in names[:MAX_LISTED]]
    marked += [(f"  … and {len(names) - MAX_LISTED:,} more",)] * (len(names) > MAX_LISTED)
    print_title(f"{report.store} at {report.host}")
    print_table(("collection",), marked)
    if report.info is not None:
        facts = [(f"share with {name}", f"{share:.0%}") for name, share in report.shares.items()]
        print_facts(report.info, facts + ([("content_hash is", report.content_hash)] if report.content_hash else []))
    if report.rows:
        rows = report.rows[: max(1, (stdout_console().width - NAMES_WIDTH) // SAMPLE_WIDTH)]
        shown = report.shown.items()
        sampled = [(name, path, *(shorten(str(row.get(name, "")), 40) for row in rows)) for name, path in shown]
        print_title("Payload mapping" + (", as proposed below" if report.proposed_map else ""))
        print_table(("field", "read from", *(f"sample {n}" for n in range(1, len(rows) + 1))), sampled)
    lines = list[tuple[object, ...]]()
    for check in sorted(report.checks, key=lambda check: [*Level].index(check.level), reverse=True):
        said = "\n".join(filter(None, (check.message, check.remedy)))
        for line in report.suggested_settings:  # which are printed once
            said = said.replace(line, f"{line.partition('=')[0]} as printed below")
        lines.append((safe_text(check.level.value, _STYLES[check.level]), check.check, said))
    print_title("Checks")
    print_table(("", "check", "result"), lines)
    print_line(report.verdict, "green" if report.passed else "bold red")
    for line in report.suggested_settings:
        print_line(f"  export {line}")
