"""A retriever in Python, named as `module:attribute`: a function, or an object of a framework.

No framework is imported. An object is called by the method that its framework gives retrievers: `retrieve`
(LlamaIndex), `invoke` (LangChain), `run` (Haystack). The module comes from the current folder or the environment.
"""

import inspect
from collections.abc import Awaitable, Callable, Mapping
from contextlib import ExitStack
from threading import Lock
from typing import Any

from anyio.from_thread import BlockingPortal, start_blocking_portal

from chunkproof.base.errors import ChunkproofError, InvalidParameterError
from chunkproof.embedders.python_embedder import describe_exception, import_target
from chunkproof_cli.retrievers.mapping import Mapper, Retriever, RetrieverError, fill_template

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
        if inspect.isfunction(target) and not _parameters(target):
            target = _make(target, name)  # a factory
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
        return self._portal.call(_as_coroutine, answer)

    def close(self) -> None:
        """Stop the loop of asynchronous calls; the object itself belongs to its module."""
        self._open.close()


def _make(factory: Callable[[], Any], name: str) -> Any:
    try:
        return factory()
    except (Exception, SystemExit) as error:
        raise InvalidParameterError(f"--retriever {name}: {describe_exception(error)}") from error


def _choose_call(target: Any, mapper: Mapper, name: str) -> Callable[[Mapping[str, Any]], Any]:
    """Return how to call the target with a request."""
    # A pipeline of Haystack, whose components take their inputs by name.
    is_pipeline = callable(getattr(target, "run", None)) and callable(getattr(target, "inputs", None))
    function = target if inspect.isroutine(target) else _find_method(target)
    if function is None:
        raise InvalidParameterError(
            f"--retriever {name}: {type(target).__name__} is no retriever; name a function that takes the query, "
            f"or an object with one of the methods {', '.join(METHODS)}"
        )
    named = [] if is_pipeline else [parameter.name for parameter in _parameters(function)]

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
    parameters = _parameters(function)
    named = [p.name for p in parameters if p.kind not in (*VARIADIC, inspect.Parameter.POSITIONAL_ONLY)]
    given = {name: request["top_k"] for name in named if name in TOP_K_NAMES}
    given |= {name: request.get(name) for name in named if name in PASSED_ON}
    first = parameters[0] if parameters else None
    if first is not None and first.kind is inspect.Parameter.KEYWORD_ONLY:
        query = next((name for name in named if name in QUERY_NAMES), first.name)
        return function(**{query: request["query_text"]}, **given)
    return function(request["query_text"], **given)


def _parameters(function: Callable[..., Any]) -> list[inspect.Parameter]:
    try:
        return list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):  # of C
        return [inspect.Parameter("query", inspect.Parameter.POSITIONAL_ONLY)]


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


async def _as_coroutine(answer: Awaitable[Any]) -> Any:
    return await answer
