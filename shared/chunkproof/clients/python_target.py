"""Import what `module:attribute` names: code of the user's own, from the current folder or the environment."""

import importlib
import sys
from pathlib import Path
from traceback import extract_tb
from typing import Any

from chunkproof.errors import InvalidParameterError

MAX_MESSAGE = 220


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
