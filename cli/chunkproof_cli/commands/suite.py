"""`chunkproof suite`."""

import click

from chunkproof_cli.main import LazyGroup

# The first sentence of each command's help, so that `chunkproof suite --help` imports none of them.
SUMMARIES = {
    "init": "Write a starter suite: a template, or cases made from your own collection.",
    "lint": "List all problems of SUITE, each with its line.",
    "publish": "Make SUITE the one that a deployed stack runs on its schedule and after each deployment.",
    "run": "Run the cases of SUITE and judge the success criteria.",
    "tune": "Search for the weights of hybrid search on half of the cases of SUITE.",
}


@click.group(cls=LazyGroup, summaries=SUMMARIES, prefix="suite_")
def suite() -> None:
    """Test what a collection returns: run, check, start, tune or publish a suite of cases."""
