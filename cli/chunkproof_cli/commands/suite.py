"""`chunkproof suite`."""

import click

from chunkproof_cli.commands.suite_init import init
from chunkproof_cli.commands.suite_lint import lint
from chunkproof_cli.commands.suite_publish import publish
from chunkproof_cli.commands.suite_run import run


@click.group()
def suite() -> None:
    """Test what a collection returns: run, check, start or publish a suite of cases."""


for command in (run, lint, init, publish):
    suite.add_command(command)
