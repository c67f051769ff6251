"""`pytest --chunkproof suite.yaml`: run each case of a suite as a test.

The search is the test's setup, so that a service that is down gives an error and not a failure. Chunkproof is only
imported once the option is used, as pytest loads this module in every environment that has Chunkproof.
"""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from chunkproof.proof.backend import Backend
    from chunkproof.suite.cases import TestCase
    from chunkproof.suite.outcome import TestCaseResult
    from chunkproof_cli.options import Options

_OPEN = pytest.StashKey[ExitStack]()
_BACKEND = pytest.StashKey["Backend"]()
_CASES = pytest.StashKey["list[TestCase]"]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options, with the names that `chunkproof suite run` has for them."""
    group = parser.getgroup("chunkproof", "retrieval test suites")
    group.addoption(
        "--chunkproof",
        action="append",
        default=[],
        metavar="SUITE",
        help="run each case of this suite (.yaml, .json, a BEIR folder) as a test; may be repeated",
    )
    group.addoption("--chunkproof-collection", metavar="NAME", help="collection of cases that name none")
    group.addoption("--chunkproof-data", metavar="DIR", help="folder of the embedded store")
    group.addoption("--chunkproof-api", metavar="URL", help="search a deployed stack instead of a store")
    group.addoption("--chunkproof-retriever", metavar="NAME", help="test this retriever, as suite run --retriever does")
    group.addoption("--chunkproof-retriever-map", metavar="FILE|JSON", help="its request template and paths")


@pytest.hookimpl(tryfirst=True)  # before -k and -m select
def pytest_collection_modifyitems(session: pytest.Session, config: pytest.Config, items: list[pytest.Item]) -> None:
    """Add the cases of every suite named by --chunkproof."""
    for name in config.getoption("--chunkproof"):
        suite = SuiteCollector.from_parent(session, name=str(name), nodeid=str(name))
        report = config.hook.pytest_make_collect_report(collector=suite)
        config.hook.pytest_collectreport(report=report)  # counts the cases, and shows the problems of a suite
        items += report.result


def pytest_unconfigure(config: pytest.Config) -> None:
    """Close stores and connections."""
    if _OPEN in config.stash:
        config.stash[_OPEN].close()


class SuiteCollector(pytest.Collector):
    """A suite; its name is the path."""

    def collect(self) -> list[CaseItem]:
        """Return a test per case; a suite that cannot be run is an error that lists all of its problems."""
        from chunkproof.base.errors import ChunkproofError
        from chunkproof.suite.cases import assign_collection
        from chunkproof.suite.suite_file import SuiteSource, read_source
        from chunkproof_cli.retrievers.opening import has_store
        from chunkproof_cli.suites.suite_runs import choose_collection

        given = _options(self.config)
        try:
            found = read_source(SuiteSource(Path(self.name)))
            searched = not self.config.getoption("--chunkproof-retriever") or has_store(given)
            collection = choose_collection(found, given) if searched else found.suite.collection
            cases = assign_collection(found.suite.cases, collection)
        except ChunkproofError as error:
            raise self.CollectError("\n".join(error.messages)) from None
        self.config.stash.setdefault(_CASES, []).extend(cases)
        return [CaseItem.from_parent(self, name=case.name, case=case) for case in cases]


class CaseItem(pytest.Item):
    """A case; `-k` selects by its tags too."""

    def __init__(self, *, case: TestCase, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.case = case
        self.extra_keyword_matches.update(case.tags)
        self._result: TestCaseResult | None = None

    def setup(self) -> None:
        """Search; a case that cannot be judged fails here, which pytest reports as an error."""
        from chunkproof.base.errors import ChunkproofError
        from chunkproof.suite.outcome import TestStatus
        from chunkproof.suite.runner import run_case

        try:
            search = _shared_backend(self.config).search
        except ChunkproofError as error:
            pytest.fail(f"Could not be judged: {error}", pytrace=False)
        self._result = run_case(self.case, search)
        if self._result.status is TestStatus.ERROR:
            pytest.fail(f"Could not be judged: {self._result.error_message}", pytrace=False)

    def runtest(self) -> None:
        """Pass, or raise the unmet expectations."""
        from chunkproof_cli.suites.suite_runs import make_diagnoser

        if self._result is not None and self._result.unmet:
            diagnoser = make_diagnoser(_shared_backend(self.config), _options(self.config))
            raise NotMetError(diagnoser.diagnose([self._result])[0])

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """Show the reason without a traceback."""
        if isinstance(excinfo.value, NotMetError):
            from chunkproof.suite.outcome import explain_failure
            from chunkproof_cli.output import escape_controls

            return escape_controls("\n".join(explain_failure(excinfo.value.result)))
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, int | None, str]:
        """Return the suite and the name of the case."""
        suite = self.parent.name if self.parent else ""
        return Path(suite), None, f"{suite}: {self.name}"


class NotMetError(Exception):
    """The results do not meet the expectations of the case."""

    def __init__(self, result: TestCaseResult) -> None:
        super().__init__(result.error_message)
        self.result = result


def _options(config: pytest.Config) -> Options:
    from chunkproof_cli.options import parse_options

    folder = config.getoption("--chunkproof-data")
    return parse_options(
        config.getoption("--chunkproof-collection"),
        Path(folder) if folder else None,
        as_json=False,
        api=config.getoption("--chunkproof-api"),
    )


def _shared_backend(config: pytest.Config) -> Backend:
    """Return the backend that all cases share; it is opened for the first one."""
    from chunkproof_cli.retrievers.opening import RetrieverChoice, open_choice

    if _BACKEND not in config.stash:
        stack = config.stash.setdefault(_OPEN, ExitStack())
        choice = RetrieverChoice(
            config.getoption("--chunkproof-retriever"), config.getoption("--chunkproof-retriever-map")
        )
        cases = config.stash.get(_CASES, [])
        config.stash[_BACKEND] = stack.enter_context(open_choice(choice, _options(config), cases))
    return config.stash[_BACKEND]
