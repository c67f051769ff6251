"""`chunkproof suite publish`."""

from typing import Any

import click

from chunkproof.suite.suite_file import read_source
from chunkproof_cli.aws.jobs import publish_suite
from chunkproof_cli.commands.suite_options import pop_source, source_options
from chunkproof_cli.options import json_option, reject_api
from chunkproof_cli.output import print_json, print_note

EXAMPLES = """\b
Examples:
  chunkproof suite publish suite.yaml --stack chunkproof-prod
  chunkproof suite publish beir/scifact --stack chunkproof-prod
"""


@click.command(epilog=EXAMPLES)
@source_options
@click.option("--stack", metavar="NAME", required=True, help="The deployed stack, with the parameter Suite=true.")
@json_option
@reject_api("a stack is named with --stack")
def publish(stack: str, as_json: bool, **options: Any) -> None:
    """Make SUITE the one that a deployed stack runs on its schedule and after each deployment.

    Any kind of suite is uploaded as JSON; the previous version is kept for KeptDays days.
    """
    suite = read_source(pop_source(options)).suite
    address = publish_suite(stack, suite)
    print_note(f"{suite.name}, {len(suite.cases)} cases, is now the suite that {stack} runs")
    if as_json:
        print_json({"suite": suite.name, "cases": len(suite.cases), "address": address})
