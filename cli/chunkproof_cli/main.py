"""The `chunkproof` command. Exit codes: 0 success, 1 a check failed, 2 wrong usage or input, 3 could not judge."""

import atexit
import gc
import io
import logging
import os
import signal
import sys
import traceback
import warnings
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any

import click

from chunkproof import __version__
from chunkproof.base import errors
from chunkproof_cli.exits import COULD_NOT_JUDGE, INTERRUPTED, WRONG_INPUT, discard_stdout, exit_code

PIPE_CLOSED = 141
NO_FILE = (FileNotFoundError, PermissionError, IsADirectoryError, NotADirectoryError)
NEW_OBJECTS = 50_000
# With these options, `search` and `serve` do not use the local model, or not in this process.
OTHERS = ("--api", "--embedder", "--help", "--workers")
BY_WORDS = ("--mode text", "--mode=text")

# The first sentence of each command's help, so that `chunkproof --help` imports none of them.
SUMMARIES = {
    "demo": "Load a sample handbook, search it, validate a good and a corrupted chunk, and run a suite.",
    "doctor": "Check a collection without changing it: what works, what does not, and how to fix it.",
    "load": "Embed the chunks of PATH and write them to a collection.",
    "search": "Find the stored chunks nearest to TEXT, or to each of several texts.",
    "validate": "Check that the stored text of CHUNK_ID equals its original, byte for byte.",
    "collection": "Show what the collection NAME holds and how its payloads are read.",
    "suite": "Test what a collection returns: run, check, start, tune or publish a suite of cases.",
    "report": "Render the canonical report FILE of a suite, an audit, a diff or an absence in other formats.",
    "why": "Find out why an expected chunk is not among the results of TEXT, and what would bring it back.",
    "snapshot": "Keep what a collection holds now, to find out later what changed and what it cost.",
    "manifest": "Write a manifest of what should be stored, for `chunkproof audit`.",
    "diff": "Compare two collections: texts, metadata, vectors, and what both return for a suite's queries.",
    "audit": "Compare every chunk of MANIFEST with what is stored, byte for byte, and list what else is stored.",
    "key": "Make a key NAME that signs seals, receipts and reports.",
    "seal": "Commit to what COLLECTION holds now: a signed root over all of its texts, vectors and payloads.",
    "verify": "Check a receipt, or a signed report, without store, account or network.",
    "canary": "Notice when the weights behind a model's name change, by embedding fixed texts again.",
    "absent": "Prove that deleted chunks, texts or documents are no longer stored or found, in any collection.",
    "pull": "Copy COLLECTION from the server at QDRANT_URL into the embedded store, and verify the copy.",
    "push": "Copy COLLECTION from the embedded store to the server at QDRANT_URL, and verify the copy.",
    "serve": "Run the Lambda handlers behind a local HTTP gateway, with a console for the browser at /.",
    "sandbox": "Run what the Lambda functions need on this machine, for `sam local`.",
    "mcp": "Serve search, validation and collection info to agents (Model Context Protocol, over standard streams).",
    "latency": "Show how long requests took, stage by stage, and how many were within the target.",
    "publish": "Publish COLLECTION of the embedded store to the bucket that the functions of a stack search.",
    "secret": "Store the keys of Qdrant and embedding services in Secrets Manager, where a deployed stack reads them.",
}

SUITE_SUMMARIES = {
    "init": "Write a starter suite: a template, or cases made from your own collection.",
    "lint": "List all problems of SUITE, each with its line.",
    "publish": "Set SUITE as the suite that a deployed stack runs on its schedule and after each deployment.",
    "run": "Run the cases of SUITE and judge the success criteria.",
    "tune": "Search for the weights of hybrid search on half of the cases of SUITE.",
}
# Commands that have no module of their own.
SHARED_MODULES = {"key": "seal", "pull": "copying", "push": "copying", "snapshot": "manifest"}
SHARED_MODULES |= {"suite_publish": "suite_run"}


class LazyGroup(click.Group):
    """A group that shows its help without importing its commands.

    `summaries` has a line for each command. The command `name` is the attribute `name` of the module
    `chunkproof_cli.commands.<prefix><name>`, or of the one in `SHARED_MODULES`.
    """

    def __init__(self, *args: Any, summaries: Mapping[str, str], prefix: str = "", **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.summaries = summaries
        self._prefix = prefix

    def list_commands(self, _context: click.Context) -> list[str]:
        """List the names in the order of the table."""
        return list(self.summaries)

    def get_command(self, _context: click.Context, name: str) -> click.Command | None:
        """Import the command, if there is one of this name."""
        if name not in self.summaries or name in self.commands:
            return self.commands.get(name)
        module = self._prefix + name
        module = f"chunkproof_cli.commands.{SHARED_MODULES.get(module, module)}"
        command: click.Command = getattr(import_module(module), name)
        if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        return command

    def resolve_command(
        self, context: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command; suggest one that resembles an unknown name."""
        name = args[0]
        if name not in self.summaries and not name.startswith("-"):
            near = get_close_matches(name, self.summaries, n=1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            context.fail(f"No such command {name!r}.{hint}")
        return super().resolve_command(context, args)

    def format_commands(self, _context: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the table of commands from the summaries."""
        with formatter.section("Commands"):
            formatter.write_dl(list(self.summaries.items()))


@click.group(
    cls=LazyGroup,
    summaries=SUMMARIES,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, prog_name="chunkproof")
def cli() -> None:
    """Retrieval that proves it returns what was stored.

    With nothing configured, commands work on a local store with a local model: no keys, no Docker.
    Set QDRANT_URL (and QDRANT_API_KEY) to use a server, COHERE_API_KEY to embed with Cohere.

    \b
    Start with:
      chunkproof demo        see it work on a sample handbook
      chunkproof doctor      look at a collection of your own
    """


@cli.group(cls=LazyGroup, summaries=SUITE_SUMMARIES, prefix="suite_")
def suite() -> None:
    """Test what a collection returns: run, check, start, tune or publish a suite of cases."""


def main() -> None:
    """Run a command, and turn every failure into a message and an exit code."""
    # Collecting garbage among imported modules takes a fifth of a search's processor time, most of it at exit.
    gc.set_threshold(NEW_OBJECTS)
    atexit.register(gc.freeze)
    # Where click is installed, httpx imports a command line of its own, with pygments: a tenth of a second.
    sys.modules.setdefault("httpx._main", ModuleType("httpx._main"))
    if sys.stdout is None or sys.stderr is None:
        sys.exit(COULD_NOT_JUDGE)  # no stream to report to
    _prepare_streams()
    errors.make_logs_safe()
    sys.excepthook = _print_bug
    handler = logging.StreamHandler()
    handler.setFormatter(_MaskedFormatter("%(levelname)s %(message)s"))
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
    # qdrant-client advises a server for large embedded collections; the documentation says so once.
    warnings.filterwarnings("ignore", module="qdrant_client.*")
    try:
        try:
            _run()
        finally:
            sys.stdout.flush()  # so that a failing write is reported here and not by Python at exit
    except BrokenPipeError:
        discard_stdout()
        sys.exit(PIPE_CLOSED)
    except SystemExit as end:  # click's code for a closed pipe is 1, and it wraps the stream
        sys.exit(PIPE_CLOSED if type(sys.stdout).__name__.endswith("PacifyFlushWrapper") else end.code)
    except OSError as error:
        discard_stdout()
        click.echo(_mask(f"{error.filename or 'The system'}: {error.strerror}"), err=True)
        sys.exit(WRONG_INPUT if isinstance(error, NO_FILE) else COULD_NOT_JUDGE)


class _MaskedFormatter(logging.Formatter):
    """Hides keys that libraries quote in their log lines."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line without keys."""
        return _mask(super().format(record))


def _print_bug(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    sys.stderr.write(_mask("".join(traceback.format_exception(kind, error, trace))))


def _mask(text: str, *, every: bool = True) -> str:
    from chunkproof_cli.output import mask_secrets  # rich and pydantic: not for --help

    return mask_secrets(text, every=every)


def _run() -> None:
    try:
        preload_model(sys.argv[1:])
        with _command_span(sys.argv[1:]):
            cli.main(standalone_mode=False)
    except click.exceptions.Exit as exit_:
        sys.exit(exit_.exit_code)
    except click.ClickException as error:
        vars(error)["message"] = _mask(error.message, every=False)  # it quotes what was given, among words of ours
        error.show()
        sys.exit(error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        click.echo("Interrupted", err=True)
        sys.exit(INTERRUPTED)
    except (errors.ChunkproofError, ImportError) as error:
        shown = errors.missing_extra(error) if isinstance(error, ImportError) else error
        if shown is None:
            raise
        _print_error(shown)
        sys.exit(exit_code(shown))


def _command_span(arguments: list[str]) -> AbstractContextManager[None]:
    """Make a span of the command where OpenTelemetry is configured; a server has one for each request instead."""
    words = arguments[: 2 if arguments[:1] == ["suite"] else 1]
    if not any(name.startswith("OTEL_") for name in os.environ) or words[:1] in (["serve"], ["mcp"], ["--help"]):
        return nullcontext()
    from chunkproof.base.request import tracing
    from chunkproof.service.container import start_tracing

    start_tracing()
    return tracing.tracer.command(" ".join(("chunkproof", *words))) if tracing.tracer else nullcontext()


def _print_error(error: errors.ChunkproofError) -> None:
    from chunkproof_cli.output import escape_line, print_json  # rich and pydantic: not for --help

    error.messages = tuple(map(_mask, error.messages))
    for message in error.messages:
        click.echo(escape_line(message), err=True)
    if isinstance(error, errors.CollectionNotFoundError) and len(error.messages) == 1:
        click.echo("Name one with --collection or CHUNKPROOF_COLLECTION; chunkproof doctor lists them.", err=True)
    if isinstance(error, errors.ChunkNotFoundError):
        click.echo("chunkproof search shows the ids of chunks; --collection names another collection.", err=True)
    if "--json" in sys.argv:
        detail = {"code": error.code, "message": error.message}
        print_json({"status": "error", "errors": list(error.messages), "error": detail})


def _prepare_streams() -> None:
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # characters that the terminal lacks appear as their code
            stream.reconfigure(errors="backslashreplace")
    if sys.stdin is None:  # a closed standard input reads as an empty one
        sys.stdin = Path(os.devnull).open(encoding="utf-8")  # noqa: SIM115 - open as long as the process


def preload_model(arguments: Sequence[str]) -> None:
    """Start to load the local model if these arguments of the command line will need it.

    What is wrong with the settings is for the command to report.
    """
    line = " ".join(arguments)
    if arguments[:1] not in (["search"], ["serve"]) or any(option in line for option in (*OTHERS, *BY_WORDS)):
        return
    from chunkproof.base.settings import Settings

    with suppress(errors.ChunkproofError):
        settings = Settings.from_env()
        if settings.embedder_on_terminal == "local" and not settings.models:
            from chunkproof.embedders.local_model import local_model

            local_model().prepare()
