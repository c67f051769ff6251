"""`chunkproof suite lint`."""

import sys
from dataclasses import asdict
from typing import Any

import click

from chunkproof.runtime.local import local_backend, new_deadline
from chunkproof.suite.cases import assign_collection
from chunkproof.suite.files.read import BrokenSuiteFileError, SuiteFile, read_source
from chunkproof.suite.lint import Linter
from chunkproof_cli.commands.suite_source import choose_collection, pop_source, source_options
from chunkproof_cli.connections import open_services
from chunkproof_cli.exits import FAILED
from chunkproof_cli.options import common_options, embedder_option, parse_options, reject_api
from chunkproof_cli.output import escape_line, print_json, show_warnings_once

EXAMPLES = """\b
Examples:
  chunkproof suite lint suite.yaml --collection handbook
  chunkproof suite lint beir/scifact --offline
"""


@click.command(epilog=EXAMPLES)
@source_options
@click.option("--offline", is_flag=True, help="Check only the file, not the collection.")
@common_options
@embedder_option
@reject_api("it reads the store itself")
def lint(offline: bool, **options: Any) -> None:
    """List all problems of SUITE, each with its line.

    Problems are unknown fields, names used twice, cases that expect nothing, ids that are not in the collection,
    judgments that repeat or contradict each other, queries without judgments, and thresholds that no result reaches.
    Exit 1 if there are any.
    """
    source = pop_source(options)
    given = parse_options(**options)
    try:
        found: SuiteFile | None = read_source(source)
        findings = list(found.findings) if found else []
    except BrokenSuiteFileError as error:
        found, findings = error.rest, list(error.findings)
    if found is not None and not offline:
        with open_services(given) as services:
            local = local_backend(services)
            linter = Linter(services, local.search, lambda: new_deadline(services.settings))
            cases = assign_collection(found.suite.cases, choose_collection(found, given))
            with show_warnings_once():
                findings += [found.locate(problem) for problem in linter.find_problems(cases)]
    findings.sort(key=lambda finding: (finding.file, finding.line))
    if given.json:
        print_json({"findings": [asdict(finding) for finding in findings]})
    else:
        for finding in findings:
            click.echo(escape_line(str(finding)))
        if not findings and found is not None:
            click.echo(f"{source.path}: {len(found.suite.cases)} cases, no problems")
    sys.exit(FAILED if findings else 0)
