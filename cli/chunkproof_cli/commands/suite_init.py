"""`chunkproof suite init`."""

from pathlib import Path
from typing import Any

import click

from chunkproof.files import write_new_file
from chunkproof.runtime.local import new_deadline
from chunkproof.suite.files.yaml_document import read_yaml
from chunkproof_cli.connections import open_services
from chunkproof_cli.options import common_options, embedder_option, parse_options, reject_api
from chunkproof_cli.output import print_json, print_note
from chunkproof_cli.suites.starter import build_starter, to_yaml

EXAMPLES = """\b
Examples:
  chunkproof suite init --from-collection -n 50 --collection handbook -o suite.yaml
  chunkproof suite init -o suite.yaml
"""

TEMPLATE = """\
# A suite of retrieval tests: chunkproof suite run FILE
name: my-suite
collection: documentation
defaults: {top_k: 10}
cases:
  - name: rotate-the-key
    query_text: How do I rotate the API key?
    # chunk ids, document ids or URLs; all of them unless `expect: any`
    expected_doc_ids: [security-guide]
    # whole words, in upper or lower case
    expected_keywords: [rotate]
    relevance_threshold: 0.4
    tags: [smoke]

  - name: not-our-subject
    query_text: How do I bake a cheesecake?
    # no result may score relevance_threshold or more
    expect_no_results: true
    relevance_threshold: 0.4
"""


@click.command(epilog=EXAMPLES)
@click.option("--from-collection", is_flag=True, help="Make cases from chunks of the collection.")
@click.option("-n", "--count", type=click.IntRange(1, 10_000), default=50, show_default=True, help="How many cases.")
@click.option(
    "-o",
    "output",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Write the suite here.",
)
@common_options
@embedder_option
@reject_api("it reads the store itself")
def init(from_collection: bool, count: int, output: Path | None, **common: Any) -> None:
    """Write a starter suite: a template, or cases made from your own collection.

    A case made from a collection asks a sentence of a chunk and expects that chunk; it has the tag `generated`.
    """
    given = parse_options(**common)
    if output and output.exists():
        raise click.BadParameter(f"{output} exists", param_hint="-o")
    text, cases = TEMPLATE, 2
    if from_collection:
        with open_services(given) as services:
            name = services.resolve_collection(given.collection)
            starter = build_starter(name, count, services, lambda: new_deadline(services.settings))
        text, cases = to_yaml(starter), len(starter.items)
        if cases < count:
            print_note(f"{cases} cases: the collection has no more chunks with a unique text")
    if given.json:
        print_json(read_yaml(text, "suite").value)
    elif output is None:
        click.echo(text, nl=False)
    if output is None:
        return
    try:
        write_new_file(output, text)
    except FileExistsError:
        raise click.BadParameter(f"{output} exists", param_hint="-o") from None
    print_note(f"{cases} cases are in {output}; chunkproof suite run {output} runs them")
