"""What every command has in common: its options, the services it works with, how it fails."""

import os
import shlex
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from io import UnsupportedOperation
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
from platformdirs import user_data_path

from chunkproof.clients import Embedder
from chunkproof.connect import cohere_embedder, served_store
from chunkproof.deadline import Deadline
from chunkproof.errors import (
    ChunkNotFoundError,
    ChunkproofError,
    CorruptChunkError,
    ForbiddenError,
    InvalidParameterError,
    NotConfiguredError,
    NotFoundError,
    RequestTooLargeError,
    ResponseTooLargeError,
    SettingsError,
)
from chunkproof.services import Services
from chunkproof.settings import Settings
from chunkproof.suite.diagnosis import Diagnostician
from chunkproof.suite.door import Door, InProcess
from chunkproof.suite.witness import ApiWitness
from chunkproof_cli.local.minilm import local_model
from chunkproof_cli.remote import RemoteApi

if TYPE_CHECKING:
    from chunkproof.clients.qdrant import QdrantStore

TooLarge = RequestTooLargeError | ResponseTooLargeError
TERMINAL_DEADLINE_MS = 10_000
REMOTE_DEADLINE_MS = 30_000
FAILED, WRONG_INPUT, COULD_NOT_JUDGE = 1, 2, 3

Command = TypeVar("Command", bound=Callable[..., Any])


@dataclass(frozen=True)
class Options:
    """The options that every command takes."""

    collection: str | None
    data: Path
    json: bool
    api: str | None = None


def common_options(command: Command) -> Command:
    """Add `--collection`, `--data` and `--json`, handed over as one `Options`."""
    decorated: Any = command
    for option in (
        click.option("--json", "as_json", is_flag=True, help="Print JSON on standard output."),
        click.option(
            "--data",
            type=click.Path(path_type=Path, file_okay=False),
            metavar="DIR",
            help="Folder of the embedded store (used when QDRANT_URL is not set).",
        ),
        click.option(
            "--collection", metavar="NAME", help="Which collection; CHUNKPROOF_COLLECTION by default."
        ),
    ):
        decorated = option(decorated)
    return decorated  # type: ignore[no-any-return]


def api_option(command: Command) -> Command:
    """Add `--api` to a command that a deployed stack can answer."""
    option = click.option(
        "--api",
        metavar="URL",
        envvar="CHUNKPROOF_API",
        show_envvar=True,
        help="Ask a deployed stack: signed with the AWS credentials at hand, or with CHUNKPROOF_TOKEN as bearer.",
    )
    decorated: Command = option(command)
    return decorated


def output_option(what: str) -> Callable[[Command], Command]:
    """Add `-o`, once or several times: the format of a report goes by its file's extension."""
    return click.option(
        "-o",
        "--output",
        "outputs",
        multiple=True,
        type=click.Path(path_type=Path),
        metavar="FILE",
        help=f"{what} May be repeated.",
    )


def without_api(why: str) -> Callable[[Command], Command]:
    """For a command that no deployed stack can answer: `--api` is refused with the reason, not passed over."""

    def refuse(_context: click.Context, _option: click.Parameter, url: str | None) -> None:
        if url is not None:
            raise click.BadParameter(why, param_hint="--api")

    return click.option("--api", metavar="URL", callback=refuse, expose_value=False, help=f"Not here: {why}.")


def options(collection: str | None, data: Path | None, as_json: bool, api: str | None = None) -> Options:
    """The common options with their defaults."""
    if collection is not None and not collection.strip():
        raise click.BadParameter("it is empty", param_hint="--collection")
    return Options(collection, data or _default_data(), as_json, api)


def _default_data() -> Path:
    return user_data_path("chunkproof")


@dataclass(frozen=True)
class Connection:
    """A store that can be written to, an embedder, and the services over both."""

    services: Services
    store: "QdrantStore"
    embedder: Embedder


@contextmanager
def connection(given: Options, settings: Settings | None = None) -> Iterator[Connection]:
    """Store and embedder, each as configured or else local; closed at the end."""
    settings = settings or Settings.from_env()
    with ExitStack() as open_things:
        store = served_store(settings) if settings.qdrant_url else _embedded(given.data)
        open_things.callback(store.close)
        embedder: Embedder = local_model()
        if (settings.embedder or ("cohere" if settings.cohere_api_key else "local")) == "cohere":
            if settings.cohere_api_key is None and settings.secret_arn is None:
                raise NotConfiguredError("COHERE_API_KEY is not set, and CHUNKPROOF_EMBEDDER asks for Cohere")
            embedder = cohere = cohere_embedder(settings)
            open_things.callback(cohere.close)
        yield Connection(Services(settings, store, embedder), store, embedder)


def local(using: Services) -> InProcess:
    """This process answers, with store and embedder of its own and a terminal's patience."""
    return InProcess(using, lambda: deadline(using.settings))


def diagnostician(answering: Door, given: Options, source: str) -> Diagnostician:
    """Who looks into failed cases, with commands that ask the same store or stack."""
    witness = answering.witness() if isinstance(answering, InProcess) else ApiWitness(answering)
    where = f"--api {shlex.quote(given.api)}" if given.api else ""
    if given.api is None and Settings.from_env().qdrant_url is None and given.data != _default_data():
        where = f"--data {shlex.quote(str(given.data))}"
    return Diagnostician(witness, source, where)


def named_collection(given: Options) -> str | None:
    """The collection that was asked for: by option, or by a setting that differs from its default."""
    if given.collection is not None:
        return given.collection
    set_to = Settings.from_env().collection
    return None if set_to == Settings.model_fields["collection"].default else set_to


def remote_api(url: str) -> RemoteApi:
    """The API at this address, with the token and the deadline of the settings."""
    settings = Settings.from_env()
    token = settings.token.get_secret_value() if settings.token else None
    return RemoteApi(url, token, (settings.deadline_ms or REMOTE_DEADLINE_MS) / 1000)


@contextmanager
def backend(given: Options) -> Iterator[Door]:
    """Who answers a command: the stack at `--api`, else this process."""
    if given.api is None:
        with services(given) as using:
            yield local(using)
        return
    with remote_api(given.api) as api:
        yield api


@contextmanager
def services(given: Options) -> Iterator[Services]:
    """The same for commands that only read."""
    with connection(given) as connected:
        yield connected.services


def _embedded(folder: Path) -> "QdrantStore":
    from chunkproof.clients.qdrant import QdrantStore  # a second to import: not for --help

    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidParameterError(f"--data {folder}: {error.strerror}") from None
    return QdrantStore.embedded(folder)


def deadline(settings: Settings) -> Deadline:
    """The time one request from a terminal may take."""
    return Deadline(settings.deadline_ms or TERMINAL_DEADLINE_MS)


def exit_code(error: ChunkproofError) -> int:
    """1 a check failed, 2 wrong usage or input, 3 could not judge."""
    if isinstance(error, ChunkNotFoundError | CorruptChunkError):
        return FAILED
    if isinstance(error, InvalidParameterError | NotFoundError | SettingsError | ForbiddenError | TooLarge):
        return WRONG_INPUT
    return COULD_NOT_JUDGE


def silence_stdout() -> None:
    """When nobody reads on, or nothing can be written: nothing more to say, and no complaint at exit."""
    with suppress(UnsupportedOperation):  # not a file: nothing that could complain
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
