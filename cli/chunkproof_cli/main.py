"""The `chunkproof` command: exit 0 all well, 1 a check failed, 2 wrong usage or input, 3 could not judge."""

import io
import logging
import sys
import warnings

import click

from chunkproof import __version__
from chunkproof.errors import ChunkproofError, CollectionNotFoundError
from chunkproof_cli.commands.collection import collection
from chunkproof_cli.commands.demo import demo
from chunkproof_cli.commands.doctor import doctor
from chunkproof_cli.commands.load import load
from chunkproof_cli.commands.report import report
from chunkproof_cli.commands.search import search
from chunkproof_cli.commands.secret import secret
from chunkproof_cli.commands.serve import serve
from chunkproof_cli.commands.suite import suite
from chunkproof_cli.commands.validate import validate
from chunkproof_cli.context import COULD_NOT_JUDGE, exit_code, silence_stdout
from chunkproof_cli.output import harmless, print_json

INTERRUPTED, PIPE_CLOSED = 130, 141


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
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


for command in (demo, doctor, load, search, validate, collection, suite, report, serve, secret):
    cli.add_command(command)


def main() -> None:
    """Run a command, and turn every failure into a message and an exit code."""
    if sys.stdout is None or sys.stderr is None:
        sys.exit(COULD_NOT_JUDGE)  # nobody to tell
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a terminal that lacks a character shows its code instead
            stream.reconfigure(errors="backslashreplace")
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(message)s", stream=sys.stderr)
    # Local mode advises a server for large collections; the README says so, once.
    warnings.filterwarnings("ignore", module="qdrant_client.*")
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
            click.echo(harmless(message), err=True)
        if isinstance(error, CollectionNotFoundError):
            click.echo(
                "Name one with --collection or CHUNKPROOF_COLLECTION; chunkproof doctor lists them.", err=True
            )
        if "--json" in sys.argv:
            detail = {"code": error.code, "message": error.message}
            print_json({"status": "error", "errors": list(error.messages), "error": detail})
        sys.exit(exit_code(error))
    except BrokenPipeError:
        silence_stdout()
        sys.exit(PIPE_CLOSED)
    except OSError as error:
        click.echo(f"{error.filename or 'The system'}: {error.strerror}", err=True)
        sys.exit(COULD_NOT_JUDGE)
