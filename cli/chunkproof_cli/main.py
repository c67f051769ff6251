"""The `chunkproof` command: exit 0 all well, 1 a check failed, 2 wrong usage or input, 3 could not judge."""

import io
import logging
import os
import sys
import warnings
from importlib import import_module
from pathlib import Path

import click

from chunkproof import __version__
from chunkproof.errors import ChunkproofError, CollectionNotFoundError
from chunkproof_cli.exits import COULD_NOT_JUDGE, discard_stdout, exit_code
from chunkproof_cli.output import escape_controls, print_json

INTERRUPTED, PIPE_CLOSED = 130, 141
# Each in the module of its name.
COMMANDS = (
    "demo",
    "doctor",
    "load",
    "search",
    "validate",
    "collection",
    "suite",
    "report",
    "manifest",
    "audit",
    "serve",
    "latency",
    "secret",
)


class Commands(click.Group):
    """Imports a command when it is asked for: a search need not wait for what only suites use."""

    def list_commands(self, _context: click.Context) -> list[str]:
        """All names, without importing anything."""
        return list(COMMANDS)

    def get_command(self, _context: click.Context, name: str) -> click.Command | None:
        """The command of this name, if there is one."""
        if name not in COMMANDS:
            return None
        command: click.Command = getattr(import_module(f"chunkproof_cli.commands.{name}"), name)
        return command

    def invoke(self, context: click.Context) -> object:
        """Run it; a reader that has gone is for `main` to tell: with its number, click would exit 1, a failed check."""
        try:
            return super().invoke(context)
        except BrokenPipeError:
            raise BrokenPipeError from None


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
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


def main() -> None:
    """Run a command, and turn every failure into a message and an exit code."""
    if sys.stdout is None or sys.stderr is None:
        sys.exit(COULD_NOT_JUDGE)  # nobody to tell
    _prepare_streams()
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(message)s", stream=sys.stderr)
    # Local mode advises a server for large collections; the README says so, once.
    warnings.filterwarnings("ignore", module="qdrant_client.*")
    try:
        try:
            _run()
        finally:
            sys.stdout.flush()  # what cannot be written is told here, and not by Python as it ends
    except BrokenPipeError:
        discard_stdout()
        sys.exit(PIPE_CLOSED)
    except OSError as error:
        discard_stdout()
        click.echo(f"{error.filename or 'The system'}: {error.strerror}", err=True)
        sys.exit(COULD_NOT_JUDGE)


def _run() -> None:
    try:
        cli.main(standalone_mode=False)
    except click.exceptions.Exit as exit_:
        sys.exit(exit_.exit_code)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        click.echo("Interrupted", err=True)
        sys.exit(INTERRUPTED)
    except ChunkproofError as error:
        for message in error.messages:
            click.echo(escape_controls(message), err=True)
        if isinstance(error, CollectionNotFoundError):
            click.echo(
                "Name one with --collection or CHUNKPROOF_COLLECTION; chunkproof doctor lists them.", err=True
            )
        if "--json" in sys.argv:
            detail = {"code": error.code, "message": error.message}
            print_json({"status": "error", "errors": list(error.messages), "error": detail})
        sys.exit(exit_code(error))


def _prepare_streams() -> None:
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a terminal that lacks a character shows its code instead
            stream.reconfigure(errors="backslashreplace")
    if sys.stdin is None:  # closed by who started this: the same as nothing in it
        sys.stdin = Path(os.devnull).open(encoding="utf-8")  # noqa: SIM115 - as long as the process
