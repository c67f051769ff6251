"""Compare the sample handbook embedded by two models that packages carry, and print the verdict."""

import argparse
from importlib.resources import as_file
from pathlib import Path

from chunkproof.base.settings import Settings
from chunkproof.collection.reader import Reader
from chunkproof.collection.services import Services
from chunkproof.embedders.local_model import local_model
from chunkproof.suite.suite_file import SuiteSource, read_source
from chunkproof_cli.commands.diff import run_diff
from chunkproof_cli.loading import Loader
from chunkproof_cli.local.corpus import sample_suite
from chunkproof_cli.reports.outputs import DIFF

from support.handbook import all_chunks
from support.stores import MemoryStore
from support.wordllama_model import WordLlamaEmbedder


def main() -> None:
    """Load the handbook twice and compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--report", type=Path, help="write the report as .html, .md, .json, .txt or .xml")
    given = parser.parse_args()
    store, wordllama = MemoryStore(), WordLlamaEmbedder()
    Loader(store, local_model(), "minilm", None).load(all_chunks())
    Loader(store, wordllama, "wordllama", None).load(all_chunks())
    services = Services(Settings.from_env({}), store, local_model(), embedders={"wordllama": wordllama})
    with as_file(sample_suite()) as file:
        suite = read_source(SuiteSource(file)).suite
    readers = Reader(services, "minilm"), Reader(services, "wordllama")
    report = run_diff(readers, ["url", "position"], suite, allowed=("vectors",))
    DIFF.print(report)
    if given.report:
        DIFF.write(report, (given.report,))
    store.close()


if __name__ == "__main__":
    main()
