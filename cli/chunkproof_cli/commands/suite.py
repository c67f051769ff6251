"""`chunkproof suite`."""

import click

from chunkproof_cli.lazy_group import LazyGroup

# The first sentence of each command's help, so that `chunkproof suite --help` imports none of them.
SUMMARIES = {
    "init": "Write a suite to start from: a template, or cases made from a collection of your own.",
    "lint": "Find what is wrong with SUITE, all at once, each with its line.",
    "publish": "Make SUITE the one that a deployed stack runs by itself: on its schedule, and after each "
    "deployment.",
    "run": "Run the cases of SUITE and judge the success criteria.",
}


@click.group(cls=LazyGroup, summaries=SUMMARIES, prefix="suite_")
def suite() -> None:
    """Test what a collection returns: run, check, start or publish a suite of cases."""
