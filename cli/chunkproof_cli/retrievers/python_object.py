"""A retriever in Python, named as `module:attribute`: a function, or an object of a framework.

No framework is imported. An object is called by the method that its framework gives retrievers: `retrieve`
(LlamaIndex), `invoke` (LangChain), `run` (Haystack). The module comes from the current folder or the environment.
"""

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Mapping
from threading import Lock, Thread
from typing import Any

from chunkproof.clients.python_target import describe_exception, import_target
from chunkproof.errors import ChunkproofError, InvalidParameterError
from chunkproof_cli.retrievers.errors import RetrieverError
from chunkproof_cli.retrievers.mapping import Mapper

OPTION = "--retriever"
QUERY_NAMES = ("query_text", "query", "question", "text", "q", "prompt", "input")
TOP_K_NAMES = ("top_k", "k", "limit", "n", "n_results", "num_results", "max_results")
PASSED_ON = ("filters", "collection")
METHODS = ("retrieve", "invoke", "run", "similarity_search_with_score", "query", "search")
VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


class PythonRetriever:
    """Calls a function or an object of the process; one call at a time unless `--jobs` says otherwise."""

    jobs = 1
    is_live = True
    is_served = False

    def __init__(self, name: str, mapper: Mapper) -> None:
        target = import_target(name, OPTION)
        if inspect.isfunction(target) and not _parameters(target):
            target = _make(target, name)  # a factory
        self._call = _choose_call(target, mapper, name)
        # One loop for all calls: what async clients hold belongs to the loop that they were first used in.
        self._loop: asyncio.AbstractEventLoop | None = None
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
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = Thread(target=self._loop.run_forever, daemon=True)
                self._thread.start()
        return asyncio.run_coroutine_threadsafe(_as_coroutine(answer), self._loop).result()

    def close(self) -> None:
        """Stop the loop of asynchronous calls; the object itself belongs to its module."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()


def _make(factory: Callable[[], Any], name: str) -> Any:
    try:
        return factory()
    except (Exception, SystemExit) as error:
        raise InvalidParameterError(f"--retriever {name}: {describe_exception(error)}") from error


def _choose_call(target: Any, mapper: Mapper, name: str) -> Callable[[Mapping[str, Any]], Any]:
    """Return how to call the target with a request."""
    if _is_pipeline(target):
        return lambda request: _run_pipeline(target, mapper, request)
    function = target if inspect.isroutine(target) else _find_method(target)
    if function is None:
        raise InvalidParameterError(
            f"--retriever {name}: {type(target).__name__} is no retriever; name a function that takes the query, "
            f"or an object with one of the methods {', '.join(METHODS)}"
        )
    takes_filters = mapper.request is None and any(p.name == "filters" for p in _parameters(function))

    def call(request: Mapping[str, Any]) -> Any:
        mapper.check_filters(request, taken=takes_filters)
        if mapper.request is not None:
            return _call_with(function, mapper.fill(request))
        return _call_by_signature(function, request)

    return call


def _find_method(target: Any) -> Callable[..., Any] | None:
    """Return the method that retrieves, else the object itself if it can be called; a class is neither."""
    if inspect.isclass(target):
        return None
    methods = (method for name in METHODS if callable(method := getattr(target, name, None)))
    return next(methods, target if callable(target) else None)


def _call_with(function: Callable[..., Any], arguments: Any) -> Any:
    return function(**arguments) if isinstance(arguments, Mapping) else function(arguments)


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


def _is_pipeline(target: Any) -> bool:
    """Whether it is a pipeline of Haystack, whose components take their inputs by name."""
    return callable(getattr(target, "run", None)) and callable(getattr(target, "inputs", None))


def _run_pipeline(pipeline: Any, mapper: Mapper, request: Mapping[str, Any]) -> Any:
    mapper.check_filters(request, taken=False)
    return pipeline.run(mapper.fill(request) if mapper.request is not None else _fill_pipeline(pipeline, request))


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
