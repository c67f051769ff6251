"""The options that name retrievers, and the backends that they stand for."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import click

from chunkproof.retrieval.backend import Backend
from chunkproof.runtime.local import default_data_folder
from chunkproof.suite.cases import TestCase
from chunkproof.suite.latency import STAGES
from chunkproof.suite.report import SuiteReport
from chunkproof.suite.run import RunPlan
from chunkproof_cli.connections import open_backend
from chunkproof_cli.options import Options, explicit_collection
from chunkproof_cli.retrievers.backend import RetrieverBackend

Command = TypeVar("Command", bound=Callable[..., Any])

# The search of the collection itself, to compare a retriever with it.
COLLECTION = "collection"
MOST = 2


@dataclass(frozen=True)
class Choice:
    """A retriever and its mapping; None as a name is the search of the collection."""

    name: str | None = None
    mapping: str | None = None


def retriever_options(command: Command) -> Command:
    """Add `--retriever` and `--retriever-map`; `choose_retrievers` reads them."""
    decorated: Any = command
    for option in (
        click.option(
            "--retriever-map",
            "mappings",
            multiple=True,
            metavar="FILE|JSON",
            help="Request template and paths to ids, texts and scores for --retriever.",
        ),
        click.option(
            "--retriever",
            "retrievers",
            multiple=True,
            metavar="NAME",
            help="Test this retriever: http(s)://…, module:attribute, mcp:TOOL@SERVER or a recorded run (TREC, JSONL). "
            "Given twice, the second is compared with the first.",
        ),
    ):
        decorated = option(decorated)
    return decorated  # type: ignore[no-any-return]


def choose_retrievers(names: Sequence[str], mappings: Sequence[str]) -> list[Choice]:
    """Pair retrievers with their mappings; without retrievers, return the search of the collection."""
    if not names:
        if mappings:
            raise click.UsageError("--retriever-map describes a retriever: add --retriever.")
        return [Choice()]
    if len(names) > MOST:
        raise click.UsageError(f"--retriever can be given twice, to compare two retrievers, not {len(names)} times.")
    if len(mappings) > len(names):
        raise click.UsageError("There are more --retriever-map than --retriever.")
    of_each = list(mappings) * len(names) if len(mappings) == 1 else [*mappings, *[None] * len(names)]
    pairs = zip(names, of_each, strict=False)
    return [Choice() if name == COLLECTION else Choice(name, mapping) for name, mapping in pairs]


def has_store(given: Options) -> bool:
    """Whether a collection is given beside a retriever, by an option or a setting."""
    return bool(given.api or explicit_collection(given) or given.data != default_data_folder())


@contextmanager
def open_choice(choice: Choice, given: Options, cases: Sequence[TestCase]) -> Iterator[Backend]:
    """Open the retriever, with the collection where one is given; without a retriever, the collection alone."""
    if choice.name is None:
        with open_backend(given) as backend:
            yield backend
        return
    from chunkproof_cli.retrievers.open import open_retriever

    with ExitStack() as stack:
        store = stack.enter_context(open_backend(given)) if has_store(given) else None
        yield stack.enter_context(open_retriever(choice.name, choice.mapping, store, cases))


def adapt_plan(plan: RunPlan, backend: Backend, jobs: int | None, *, judge_latency: bool) -> RunPlan:
    """Return the plan for this backend. A retriever states no stages, and a recorded run has no latency at all.

    Latency is judged only of a service, unless asked for: a process on this machine says nothing about a served one.
    """
    if not isinstance(backend, RetrieverBackend):
        return plan
    return replace(
        plan,
        retriever=backend.name,
        has_collection=backend.store is not None,
        stages=STAGES[:1] if backend.is_live else (),
        jobs=jobs or backend.jobs,
        judge_latency=judge_latency or backend.is_served,
    )


def name_baseline(report: SuiteReport, earlier: SuiteReport) -> SuiteReport:
    """Return the report with the retriever that it was compared with, in place of a file's name."""
    if report.comparison is None:
        return report
    name = earlier.suite.retriever or f"the search of {earlier.suite.collection}"
    return report.model_copy(update={"comparison": report.comparison.model_copy(update={"baseline": name})})
