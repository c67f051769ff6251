"""A function or object of the user's own that embeds, named as `module:function`, and how such names are imported."""

import asyncio
import importlib
import inspect
import re
import sys
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from traceback import extract_tb
from typing import Any

from chunkproof.base.embedder_config import EmbedderConfig, is_provider
from chunkproof.base.errors import ChunkproofError, EmbeddingError, EmbeddingTimeoutError, InvalidParameterError
from chunkproof.base.request import Deadline, run_with_timeout
from chunkproof.embedders.embedder_port import Embedder, InputType
from chunkproof.embedders.embedding_api import ConfiguredEmbedder

MAX_MESSAGE = 220
WANTED = (
    "name a function that takes a list of texts and returns a list of numbers for each, "
    "or an object with embed_documents and embed_query, or with encode"
)
Embed = Callable[[list[str], InputType], Any]


def open_python_embedder(config: EmbedderConfig, *, from_here: bool) -> Embedder:
    """Import the function or object that the config names; an object that is an `Embedder` is used as it is.

    `from_here` allows modules of the current folder, and puts messages of exceptions into errors: the user who runs the
    command wrote the code. A deployed function does neither.
    """
    option = config.place or "CHUNKPROOF_EMBEDDER"
    target = import_target(config.provider, option, from_here=from_here)
    return _wrap(target, config, f"{option} {config.provider}", show_messages=from_here)


def wrap_embedder(target: Any) -> Embedder:
    """Return an `Embedder` that calls a function or an object; one that is an `Embedder` is returned as it is."""
    name = re.sub(r"\W", "_", getattr(target, "__qualname__", type(target).__qualname__).rpartition(".")[2])
    module = getattr(target, "__module__", None) or "python"
    provider = f"{module}:{name}"
    config = EmbedderConfig(provider=provider if is_provider(provider) else f"python:{name}")
    return _wrap(target, config, "embedder", show_messages=True)


def _wrap(target: Any, config: EmbedderConfig, subject: str, *, show_messages: bool) -> Embedder:
    if not inspect.isclass(target) and callable(getattr(target, "embed", None)) and hasattr(target, "max_batch"):
        own: Embedder = target
        return own
    embed = _choose_call(target)
    if embed is None:
        raise InvalidParameterError(f"{subject}: {type(target).__name__} cannot embed; {WANTED}")
    named = config.model or getattr(target, "model", None)
    model = named if isinstance(named, str) and named else config.provider
    return PythonEmbedder(embed, config, model, show_messages=show_messages)


class PythonEmbedder(ConfiguredEmbedder):
    """An `Embedder` that calls a function; its exceptions are `EmbeddingError`s with their class, line and message.

    The function should refuse a text that it cannot embed with a `ValueError`, and not cut it.
    """

    max_batch = 32

    def __init__(self, embed: Embed, config: EmbedderConfig, model: str, *, show_messages: bool) -> None:
        super().__init__(config, "python", config.provider, model=model)
        self._embed = embed
        self._show_messages = show_messages

    def embed(self, texts: Sequence[str], input_type: InputType, deadline: Deadline) -> list[list[float]]:
        """Return one vector per text, of length 1."""
        name, sent = self._config.provider, self._add_prefix(texts, input_type)
        try:
            answer = run_with_timeout(lambda: self._call(sent, input_type), deadline.remaining_ms() / 1000)
            vectors = [[float(value) for value in vector] for vector in answer]
        except ChunkproofError:
            raise
        except TimeoutError:
            raise EmbeddingTimeoutError(
                f"{name} did not answer in time; load the model when the module is imported, or raise "
                "CHUNKPROOF_DEADLINE_MS"
            ) from None
        except (Exception, SystemExit) as error:
            raised = describe_exception(error, with_message=self._show_messages)
            raise EmbeddingError(f"{name} raised {raised}") from error
        if len(vectors) != len(sent):
            raise EmbeddingError(f"{name} returned {len(vectors)} vectors for {len(sent)} texts")
        return self._to_unit_vectors(vectors, self.model)

    def _call(self, texts: list[str], input_type: InputType) -> list[Any]:
        answer = self._embed(texts, input_type)
        if inspect.isawaitable(answer):
            answer = asyncio.run(as_coroutine(answer))
        if hasattr(answer, "tolist"):  # numpy, torch
            answer = answer.tolist()
        vectors = [vector.tolist() if hasattr(vector, "tolist") else vector for vector in answer]
        if not all(isinstance(vector, list | tuple) for vector in vectors):
            raise EmbeddingError(f"{self._config.provider} must return one list of numbers for each text")
        return vectors


def _choose_call(target: Any) -> Embed | None:
    """Return how to call the target; None when it cannot embed."""
    if inspect.isclass(target):
        return None
    if callable(getattr(target, "embed_documents", None)) and callable(getattr(target, "embed_query", None)):
        return lambda texts, input_type: (
            [target.embed_query(text) for text in texts]
            if input_type is InputType.QUERY
            else target.embed_documents(texts)
        )
    function = target if inspect.isroutine(target) else getattr(target, "encode", target)
    if not callable(function):
        return None
    if any(parameter.name == "input_type" for parameter in parameters_of(function)):
        return lambda texts, input_type: function(texts, input_type=input_type.value)
    return lambda texts, _input_type: function(texts)


def parameters_of(function: Callable[..., Any]) -> list[inspect.Parameter]:
    """Return the parameters of a function; one positional parameter for a function of C, which states none."""
    try:
        return list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return [inspect.Parameter("argument", inspect.Parameter.POSITIONAL_ONLY)]


async def as_coroutine(answer: Awaitable[Any]) -> Any:
    """Await anything that can be awaited: event loops run coroutines only."""
    return await answer


def import_target(name: str, option: str, *, from_here: bool = True) -> Any:
    """Import and return it; `InvalidParameterError` says what is missing, and names the option.

    With `from_here`, the current folder comes first, as it does for `python -m`.
    """
    module_name, _, path = name.partition(":")
    here = str(Path.cwd())
    if from_here and here not in sys.path:
        sys.path.insert(0, here)
    try:
        target: Any = importlib.import_module(module_name)
    except (Exception, SystemExit) as error:
        raise InvalidParameterError(
            f"{option} {name}: {module_name} cannot be imported: {describe_exception(error)}"
        ) from error
    for step in path.split("."):
        try:
            target = getattr(target, step)
        except AttributeError:
            raise InvalidParameterError(f"{option} {name}: {module_name} has no {path}") from None
    return target


def describe_exception(error: BaseException, *, with_message: bool = True) -> str:
    """Return the class, the shortened message, and the line of the caller's code that raised it."""
    frames = [frame for frame in extract_tb(error.__traceback__) if not frame.filename.startswith("<frozen")]
    at = f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno})" if frames else ""
    message = " ".join(str(error).split()) if with_message else ""
    message = message if len(message) <= MAX_MESSAGE else message[: MAX_MESSAGE - 1] + "…"
    return f"{type(error).__name__}{': ' if message else ''}{message}{at}"
