"""Keep keys, headers and stored text out of log lines, whichever library writes them and at every level."""

import logging
from collections.abc import Mapping
from types import TracebackType
from typing import Any

from chunkproof.base.errors import ChunkproofError

# They log requests and responses below WARNING: botocore the body of a secret, httpcore the headers.
LIBRARIES = frozenset(
    {
        *("botocore", "boto3", "s3transfer", "urllib3", "httpcore", "httpx", "h2", "hpack", "asyncio"),
        *("cohere", "openai", "qdrant_client", "mcp", "grpc", "requests"),
    }
)
NOT_LOGGED = "not logged: it may show keys or stored text"

ExcInfo = tuple[type[BaseException], BaseException, TracebackType | None]

# What an exception can be found in.
HOLDERS = (BaseException, Mapping, list, tuple, set)


def install() -> None:
    """Make every log record of this process safe. Handlers, formatters and levels stay as they are.

    A logged exception keeps its class and its traceback, and loses its message: libraries quote the input there.
    Messages of `ChunkproofError` are written for callers and stay.
    """
    make_record = logging.getLogRecordFactory()
    if not getattr(make_record, "is_safe", False):
        logging.setLogRecordFactory(_SafeFactory(make_record))


class _SafeFactory:
    is_safe = True

    def __init__(self, make_record: Any) -> None:
        self._make_record = make_record

    def __call__(self, *given: Any, **options: Any) -> logging.LogRecord:
        record: logging.LogRecord = self._make_record(*given, **options)
        if isinstance(record.exc_info, tuple) and isinstance(record.exc_info[1], BaseException):
            error = without_message(record.exc_info[1])
            record.exc_info = (type(error), error, error.__traceback__)
        if record.levelno < logging.WARNING and record.name.partition(".")[0] in LIBRARIES:
            record.msg, record.args = NOT_LOGGED, ()
        else:
            record.msg, record.args = _without_messages(record.msg), _without_messages(record.args)
        return record


def _without_messages(value: Any, depth: int = 0) -> Any:
    """Replace the exceptions in the arguments of a log line, in lists and objects too."""
    if isinstance(value, BaseException):
        return without_message(value)
    if depth < 6:
        if isinstance(value, Mapping) and any(isinstance(item, HOLDERS) for item in value.values()):
            return {name: _without_messages(item, depth + 1) for name, item in value.items()}
        if isinstance(value, list | tuple | set) and any(isinstance(item, HOLDERS) for item in value):
            return tuple(_without_messages(item, depth + 1) for item in value)
    return value


def without_message(error: BaseException, depth: int = 0) -> BaseException:
    """Return an exception with the same class name and traceback, and the same chain of causes, but no message."""
    name = type(error).__name__
    kind: type[Exception] = type(name, (Exception,), {"__module__": type(error).__module__, "__qualname__": name})
    safe = kind(*error.messages) if isinstance(error, ChunkproofError) else kind()
    safe.__traceback__ = error.__traceback__
    if depth < 10:
        cause, context = error.__cause__, error.__context__
        safe.__cause__ = None if cause is None else without_message(cause, depth + 1)
        safe.__context__ = None if context is None else without_message(context, depth + 1)
    safe.__suppress_context__ = error.__suppress_context__  # setting a cause sets it
    return safe
