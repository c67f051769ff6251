"""Search for the queries of a suite, and count the results whose text is repeated."""

from collections.abc import Iterator

from chunkproof.retrieval.repeated import RepeatedResults, count_repeated
from chunkproof.retrieval.services import Services
from chunkproof.runtime.local import local_backend
from chunkproof.suite.cases import Suite
from chunkproof_cli.output import progress_bar, show_warnings_once


def count_repeated_results(suite: Suite, services: Services, collection: str) -> RepeatedResults:
    """Count the repeated texts among the results of every query, in this collection."""
    backend = local_backend(services)

    def search_all() -> Iterator[list[str]]:
        with progress_bar("Searching", len(suite.cases)) as done:
            for case in suite.cases:
                response = backend.search({**case.request(), "collection": collection})
                yield [result.text for result in response.results]
                done(1)

    with show_warnings_once():
        return count_repeated(search_all())
