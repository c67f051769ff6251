"""The retrievers that `--retriever` names, opened as the backend of a suite; recorded runs and Python objects are here.

Of Python objects, no framework is imported. An object is called by the method that its framework gives retrievers:
`retrieve` (LlamaIndex), `invoke` (LangChain), `run` (Haystack). The module comes from the current folder or the
environment.
"""

import inspect
import json
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from threading import Lock
from typing import Any
from urllib.parse import urlsplit

import click
from anyio.from_thread import BlockingPortal, start_blocking_portal

from chunkproof.base.errors import ChunkproofError, InvalidParameterError, NotConfiguredError
from chunkproof.base.files import MAX_PROBLEMS, read_text_lines
from chunkproof.base.request import Stopwatch
from chunkproof.contract import CollectionInfo, ExecutionMetadata, RetrievalResponse, ValidationResult
from chunkproof.contract.response import ForeignResult
from chunkproof.embedders.python_embedder import as_coroutine, describe_exception, import_target, parameters_of
from chunkproof.proof.backend import Backend
from chunkproof.service.terminal import default_data_folder
from chunkproof.suite.cases import TestCase
from chunkproof.suite.criteria import STAGES
from chunkproof.suite.located_document import BrokenFileError, FileProblem
from chunkproof.suite.runner import RunPlan
from chunkproof.suite.suite_report import SuiteReport
from chunkproof_cli.connections import open_backend
from chunkproof_cli.options import Options, add_options, explicit_collection, option
from chunkproof_cli.output import add_secrets, mask_secrets, masked_errors
from chunkproof_cli.retrievers.mapping import (
    Mapper,
    Retriever,
    RetrieverError,
    RetrieverResult,
    fill_template,
    read_mapper,
)

# The search of the collection itself, to compare a retriever with it.
COLLECTION = "collection"
MOST = 2
_ATTRIBUTE = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")
KINDS = "http(s)://…, module:attribute, mcp:TOOL@SERVER or a recorded run (TREC or .jsonl)"
# What a line of a recorded run calls its query: the name of a case, or its text.
QUERY_KEYS = ("name", "case", "query_id", "qid", "topic", "query-id", "query_text", "query", "question")
NO_SHA256 = "0" * 64


class RetrieverBackend:
    """Searches with a retriever; looks chunks up in `store`, which is None without a collection."""

    def __init__(
        self, name: str, retriever: Retriever, mapper: Mapper, store: Backend | None, cases: Sequence[TestCase] = ()
    ) -> None:
        self.name, self.store, self.retriever = name, store, retriever
        self._mapper = mapper
        self._lock = Lock()
        self._with_keywords = {case.query_text for case in cases if case.expected_keywords}

    def search(self, request: dict[str, Any]) -> RetrievalResponse:
        """Retrieve, and return the first `top_k` results in the retriever's order."""
        watch = Stopwatch()
        with masked_errors():
            answer = self.retriever.retrieve(request)
            latency_ms = watch.ms()
            results = self._keep(self._mapper.read(answer), request)[: request["top_k"]]
        if self.store is not None and request["query_text"] in self._with_keywords:
            results = [self._add_text(result, request) for result in results]
        return RetrievalResponse(
            query=request["query_text"],
            query_id=None,
            status="success",
            results=tuple(
                ForeignResult(
                    rank=rank,
                    text=result.text or "",
                    similarity_score=result.score or 0.0,
                    metadata=result.metadata,
                    has_text=result.text is not None,
                    has_score=result.score is not None,
                )
                for rank, result in enumerate(results, start=1)
            ),
            execution=ExecutionMetadata(
                latency_ms=round(latency_ms),
                result_count=len(results),
                threshold_applied=request.get("similarity_threshold", 0.0),
                requested_top_k=request["top_k"],
                collection=request.get("collection"),
                timestamp=datetime.now(UTC),
            ),
        )

    def validate(self, request: dict[str, Any]) -> ValidationResult:
        """Validate in the collection."""
        return self._require_store().validate(request)

    def collection(self, name: str | None) -> CollectionInfo:
        """Describe the collection."""
        return self._require_store().collection(name)

    def _require_store(self) -> Backend:
        if self.store is None:
            raise InvalidParameterError("No collection was given beside the retriever: add --collection NAME")
        return self.store

    def _keep(self, results: list[RetrieverResult], request: dict[str, Any]) -> list[RetrieverResult]:
        """Leave out results below the request's threshold, which only cases that expect no results have."""
        least = request.get("similarity_threshold") or 0.0
        if not least or not results:
            return results
        if any(result.score is None for result in results):
            raise RetrieverError("The retriever returns no scores, so relevance_threshold cannot be judged")
        return [result for result in results if result.score is not None and result.score >= least]

    def _add_text(self, result: RetrieverResult, request: dict[str, Any]) -> RetrieverResult:
        """Read the text of a result that has none from the collection."""
        if result.text is not None or self.store is None:
            return result
        lookup = {"chunk_id": result.metadata.chunk_id, "original_sha256": NO_SHA256}
        where = {"collection": request["collection"]} if request.get("collection") else {}
        try:
            with self._lock:  # an embedded store serves one thread at a time
                stored = self.store.validate(lookup | where).stored_text
            return RetrieverResult(result.metadata, stored, result.score)
        except ChunkproofError:
            return result


class RecordedRetriever(Retriever):
    """A recorded run, TREC or JSONL: returns what a file has for a case, by the case's name, else by its query."""

    is_live = False

    def __init__(self, file: Path, mapper: Mapper, cases: Sequence[TestCase]) -> None:
        self._file, self._mapper, self._rows = file, mapper, _read_run(file)
        self._cases: dict[str, list[TestCase]] = {}
        for case in cases:
            self._cases.setdefault(_key(case.request()), []).append(case)
        known = {key for case in cases for key in (case.name, case.query_text)}
        if not known & self._rows.keys():
            some = ", ".join(list(self._rows)[:3])
            raise InvalidParameterError(
                f"--retriever {file}: none of its queries ({some} …) is the name or query_text of a case"
            )

    def retrieve(self, request: Mapping[str, Any]) -> Any:
        """Return the recorded results; a query that was not recorded is an error."""
        cases = self._cases.get(_key(request), [])
        if any(case.max_latency_ms for case in cases):
            raise RetrieverError("A recorded run has no latency, so max_latency_ms cannot be judged")
        names = [case.name for case in cases]
        for key in (*names, str(request["query_text"])):
            if key in self._rows:
                return self._rows[key]
        raise RetrieverError(f"{self._file.name} has no results for {names[0] if names else request['query_text']}")


def _key(request: Mapping[str, Any]) -> str:
    return json.dumps(request, sort_keys=True)


def _read_run(file: Path) -> dict[str, list[Any]]:
    """Read the results of each query; those of a TREC run are ordered by score as trec_eval does, then by rank."""
    parse, rows, findings = None, dict[str, list[Any]](), list[FileProblem]()
    for number, line in read_text_lines(file):
        parse = parse or (_parse_record if line.lstrip().startswith("{") else _parse_trec)
        try:
            key, results = parse(line)
            rows.setdefault(key, []).extend(results)
        except ValueError as error:
            findings.append(FileProblem(file.name, number, str(error)))
            if len(findings) > MAX_PROBLEMS:  # it is another kind of file
                break
    if findings or not rows:
        raise BrokenFileError(findings or [FileProblem(file.name, 1, "there are no results in it")])
    if parse is _parse_record:
        return rows
    return {key: [{"id": name, "score": -low} for low, _, name in sorted(ranked)] for key, ranked in rows.items()}


def _parse_trec(line: str) -> tuple[str, list[Any]]:
    """Parse topic, Q0, document, rank, score and run."""
    try:
        topic, _, document, rank, score = line.split()[:5]
        return topic, [(-float(score), int(rank), document)]
    except ValueError:
        raise ValueError("not a line of a run: topic Q0 document rank score name") from None


def _parse_record(line: str) -> tuple[str, list[Any]]:
    """Parse a query with its `results`, or with one result, in order of rank."""
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        record = None
    if not isinstance(record, dict):
        raise ValueError("not a JSON object")
    key = next((record.pop(name) for name in QUERY_KEYS if name in record), None)
    if not isinstance(key, str | int) or isinstance(key, bool):
        raise ValueError(f"names no query; expected is one of {', '.join(QUERY_KEYS)}")
    return str(key), record["results"] if isinstance(record.get("results"), list) else [record]


@dataclass(frozen=True)
class RetrieverChoice:
    """A retriever and its mapping; None as a name is the search of the collection."""

    name: str | None = None
    mapping: str | None = None


# `choose_retrievers` reads them.
retriever_options = add_options(
    option(
        "--retriever retrievers NAME*",
        "Test this retriever: http(s)://…, module:attribute, mcp:TOOL@SERVER or a recorded run (TREC, JSONL). "
        "Given twice, the second is compared with the first.",
    ),
    option(
        "--retriever-map mappings FILE|JSON*", "Request template and paths to ids, texts and scores for --retriever."
    ),
)


def choose_retrievers(names: Sequence[str], mappings: Sequence[str]) -> list[RetrieverChoice]:
    """Pair retrievers with their mappings; without retrievers, return the search of the collection."""
    if not names:
        if mappings:
            raise click.UsageError("--retriever-map describes a retriever: add --retriever.")
        return [RetrieverChoice()]
    if len(names) > MOST:
        raise click.UsageError(f"--retriever can be given twice, to compare two retrievers, not {len(names)} times.")
    if len(mappings) > len(names):
        raise click.UsageError("There are more --retriever-map than --retriever.")
    of_each = list(mappings) * len(names) if len(mappings) == 1 else [*mappings, *[None] * len(names)]
    pairs = zip(names, of_each, strict=False)
    return [RetrieverChoice() if name == COLLECTION else RetrieverChoice(name, mapping) for name, mapping in pairs]


def has_store(given: Options) -> bool:
    """Whether a collection is given beside a retriever, by an option or a setting."""
    return bool(given.api or explicit_collection(given) or given.data != default_data_folder())


@contextmanager
def open_choice(choice: RetrieverChoice, given: Options, cases: Sequence[TestCase]) -> Iterator[Backend]:
    """Open the retriever, with the collection where one is given; without a retriever, the collection alone."""
    with ExitStack() as stack:
        if choice.name is None:
            yield stack.enter_context(open_backend(given))
            return
        store = stack.enter_context(open_backend(given)) if has_store(given) else None
        mapper = read_mapper(choice.mapping)
        retriever = _choose(choice.name, mapper, cases)
        stack.callback(retriever.close)
        yield RetrieverBackend(_hide_secrets(choice.name), retriever, mapper, store, cases)


def adapt_plan(plan: RunPlan, backend: Backend, jobs: int | None, *, judge_latency: bool) -> RunPlan:
    """Return the plan for this backend. A retriever states no stages, and a recorded run has no latency at all.

    Latency is judged only for a service, unless requested: a process on this machine says nothing about a service.
    """
    if not isinstance(backend, RetrieverBackend):
        return plan
    return replace(
        plan,
        retriever=backend.name,
        has_collection=backend.store is not None,
        stages=STAGES[:1] if backend.retriever.is_live else (),
        jobs=jobs or backend.retriever.jobs,
        judge_latency=judge_latency or backend.retriever.is_served,
    )


def name_baseline(report: SuiteReport, earlier: SuiteReport) -> SuiteReport:
    """Return the report with the retriever that it was compared with, in place of a file's name."""
    if report.comparison is None:
        return report
    name = earlier.suite.retriever or f"the search of {earlier.suite.collection}"
    return report.model_copy(update={"comparison": report.comparison.model_copy(update={"baseline": name})})


def _hide_secrets(name: str) -> str:
    """Return the name for reports, without what may be secret: parameters and passwords of a URL, commands."""
    tool, _, server = name.partition("@") if name.startswith("mcp:") else ("", "", name)
    if not server.startswith(("http://", "https://")):
        return mask_secrets(tool or name)
    parts = urlsplit(server)
    return mask_secrets(tool or f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}")


def _choose(name: str, mapper: Mapper, cases: Sequence[TestCase]) -> Retriever:
    add_secrets([("url", name)])
    if name.startswith(("http://", "https://")):
        from chunkproof_cli.retrievers.http_service import HttpRetriever

        return HttpRetriever(name, mapper)
    if name.startswith("mcp:"):
        try:
            from chunkproof_cli.retrievers.mcp_client import McpRetriever
        except ImportError:
            raise NotConfiguredError("MCP tools need the SDK: pip install 'chunkproof[mcp]'") from None
        return McpRetriever(name.removeprefix("mcp:"), mapper)
    file = Path(name)
    if file.is_file():
        return RecordedRetriever(file, mapper, cases)
    if _ATTRIBUTE.fullmatch(name):
        return PythonRetriever(name, mapper)
    raise InvalidParameterError(f"--retriever {name}: there is no such file; a retriever is {KINDS}")


OPTION = "--retriever"
QUERY_NAMES = ("query_text", "query", "question", "text", "q", "prompt", "input")
TOP_K_NAMES = ("top_k", "k", "limit", "n", "n_results", "num_results", "max_results")
PASSED_ON = ("filters", "collection")
METHODS = ("retrieve", "invoke", "run", "similarity_search_with_score", "query", "search")
VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


class PythonRetriever(Retriever):
    """Calls a function or an object of the process; one call at a time unless `--jobs` says otherwise."""

    def __init__(self, name: str, mapper: Mapper) -> None:
        target = import_target(name, OPTION)
        if inspect.isfunction(target) and not parameters_of(target):  # a factory
            try:
                target = target()
            except (Exception, SystemExit) as error:
                raise InvalidParameterError(f"{OPTION} {name}: {describe_exception(error)}") from error
        self._call = _choose_call(target, mapper, name)
        # One loop for all calls: what async clients hold belongs to the loop that they were first used in.
        self._portal: BlockingPortal | None = None
        self._open = ExitStack()
        self._lock = Lock()

    def retrieve(self, request: Mapping[str, Any]) -> Any:
        """Call it; an exception is a `RetrieverError` with its class, message and line."""
        try:
            answer = self._call(request)
            return self._wait_for(answer) if inspect.isawaitable(answer) else answer
        except ChunkproofError:
            raise
        except (Exception, SystemExit) as error:
            raise RetrieverError(describe_exception(error)) from error

    def _wait_for(self, answer: Awaitable[Any]) -> Any:
        with self._lock:
            if self._portal is None:
                self._portal = self._open.enter_context(start_blocking_portal())
        return self._portal.call(as_coroutine, answer)

    def close(self) -> None:
        """Stop the loop of asynchronous calls; the object itself belongs to its module."""
        self._open.close()


def _choose_call(target: Any, mapper: Mapper, name: str) -> Callable[[Mapping[str, Any]], Any]:
    """Return how to call the target with a request."""
    # A pipeline of Haystack, whose components take their inputs by name.
    is_pipeline = callable(getattr(target, "run", None)) and callable(getattr(target, "inputs", None))
    function = target if inspect.isroutine(target) else _find_method(target)
    if function is None:
        raise InvalidParameterError(
            f"--retriever {name}: {type(target).__name__} is not a retriever; name a function that takes the query, "
            f"or an object with one of the methods {', '.join(METHODS)}"
        )
    named = [] if is_pipeline else [parameter.name for parameter in parameters_of(function)]

    def call(request: Mapping[str, Any]) -> Any:
        mapper.check_filters(request, taken=mapper.request is None and "filters" in named)
        if is_pipeline:
            return target.run(
                _fill_pipeline(target, request) if mapper.request is None else fill_template(mapper.request, request)
            )
        if mapper.request is not None:
            arguments = fill_template(mapper.request, request)
            return function(**arguments) if isinstance(arguments, Mapping) else function(arguments)
        return _call_by_signature(function, request)

    return call


def _find_method(target: Any) -> Callable[..., Any] | None:
    """Return the method that retrieves, else the object itself if it can be called; a class is neither."""
    if inspect.isclass(target):
        return None
    methods = (method for name in METHODS if callable(method := getattr(target, name, None)))
    return next(methods, target if callable(target) else None)


def _call_by_signature(function: Callable[..., Any], request: Mapping[str, Any]) -> Any:
    """Pass the query by name or as the first argument, and whatever else the parameters ask for."""
    parameters = parameters_of(function)
    named = [p.name for p in parameters if p.kind not in (*VARIADIC, inspect.Parameter.POSITIONAL_ONLY)]
    given = {name: request["top_k"] for name in named if name in TOP_K_NAMES}
    given |= {name: request.get(name) for name in named if name in PASSED_ON}
    first = parameters[0] if parameters else None
    if first is not None and first.kind is inspect.Parameter.KEYWORD_ONLY:
        query = next((name for name in named if name in QUERY_NAMES), first.name)
        return function(**{query: request["query_text"]}, **given)
    return function(request["query_text"], **given)


def _fill_pipeline(pipeline: Any, request: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Fill the open inputs of a pipeline: every query, `top_k`, and nothing else."""
    filled: dict[str, dict[str, Any]] = {}
    for component, inputs in pipeline.inputs().items():
        values = {
            name: request["query_text"] if name in QUERY_NAMES else request["top_k"]
            for name in inputs
            if name in (*QUERY_NAMES, *TOP_K_NAMES)
        }
        if values:
            filled[component] = values
    if not any(name in QUERY_NAMES for values in filled.values() for name in values):
        raise RetrieverError(
            "The pipeline has no open input for the query; name it in --retriever-map, such as "
            '{"request": {"embedder": {"text": "{query_text}"}}}'
        )
    return filled
