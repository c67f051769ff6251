"""The options that commands share, and the flags that error messages name."""

import atexit
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from math import isnan
from pathlib import Path, PurePosixPath
from tempfile import mkdtemp
from typing import Any, TypeVar

import click

from chunkproof.base.errors import InvalidParameterError

Command = TypeVar("Command", bound=Callable[..., Any])
_sources: dict[Path, str] = {}


@dataclass(frozen=True)
class Options:
    """The values of the common options."""

    collection: str | None
    data: Path
    json: bool
    api: str | None = None
    embedder: str | None = None


def add_options(*options: Callable[[Any], Any]) -> Callable[[Command], Command]:
    """Make one decorator of several, which adds the options in this order."""

    def decorate(command: Command) -> Command:
        decorated: Any = command
        for option in reversed(options):
            decorated = option(decorated)
        return decorated  # type: ignore[no-any-return]

    return decorate


def fetch_file(name: Any) -> Path:
    """Return the path; download `s3://BUCKET/KEY` to a file that lasts as long as the process."""
    from chunkproof.net.s3 import is_s3_address, parse_address

    if isinstance(name, Path) or not is_s3_address(name):
        return Path(name)
    bucket, key = parse_address(name)
    file = Path(mkdtemp(dir=_download_folder())) / PurePosixPath(key).name
    bucket.download(key, file)
    _sources[file] = name
    return file


def option(
    declared: str, text: str, default: Any = None, *, exists: bool = False, **settings: Any
) -> Callable[[Command], Command]:
    """Add an option as its help shows it, such as `-o --output FILE`; without a word for a value, it is a flag.

    The word says what a value is, unless `type` does; `*` behind it lets the option be repeated. A name in lower case
    is the parameter's. `exists` is set for a file or folder that is read.
    """
    kinds: dict[str, Callable[[], Any]] = {
        "FILE": lambda: click.Path(path_type=Path, dir_okay=False, exists=exists),
        "DIR": lambda: click.Path(path_type=Path, file_okay=False, exists=exists),
        "N": lambda: click.IntRange(1),
        "PERCENT": lambda: click.FloatRange(0, 100),
        "REPORT": lambda: fetch_file,
        "SUITE": lambda: fetch_file,
    }
    *names, word = declared.split()
    if word.startswith("-") or word.islower():
        names.append(word)
        settings.setdefault("is_flag", None if settings.keys() & {"type", "callback", "flag_value"} else True)
    else:
        settings |= {"metavar": word.removesuffix("*"), "multiple": word.endswith("*")}
        if kind := kinds.get(settings["metavar"]):
            settings.setdefault("type", kind())
    if default is not None:
        settings = {"default": default, "show_default": True, **settings}
    return click.option(*names, help=text, **{"show_envvar": "envvar" in settings, **settings})


def data_option(what: str) -> Callable[[Command], Command]:
    """Add `--data`, the folder of the embedded store."""
    return option("--data DIR", f"Folder of the embedded store{what}.")


# For a command that prints no result.
store_options = add_options(
    option("--collection NAME", "Name of the collection; CHUNKPROOF_COLLECTION by default, else the store's only one."),
    data_option(", which is used when QDRANT_URL is not set"),
)
json_option = option("--json as_json", "Print JSON on standard output.")
# `parse_options` makes one `Options` of them.
common_options = add_options(store_options, json_option)


# For a command that can run against a deployed stack.
api_option = option(
    "--api URL",
    "Use the API of a deployed stack. Requests carry CHUNKPROOF_TOKEN as bearer token if it is set, and "
    "are otherwise signed with your AWS credentials.",
    envvar="CHUNKPROOF_API",
)


def _check_embedder(value: str) -> str:
    from chunkproof.base.embedder_config import ALLOWED_PROVIDERS, is_provider

    if not is_provider(value):
        raise click.BadParameter(f"{value} is none of {ALLOWED_PROVIDERS}", param_hint="--embedder")
    return value


# For a command that embeds texts.
embedder_option = option(
    "--embedder NAME",
    "Embed with cohere, bedrock, openai or local, or with a function of yours, module:function, which is "
    "imported from the current folder or the environment and run. For every collection; by default "
    "CHUNKPROOF_MODELS and CHUNKPROOF_EMBEDDER decide.",
    type=_check_embedder,
)


def port_option(name: str, default: int, what: str, least: int = 1) -> Callable[[Command], Command]:
    """Add an option that names a port to listen on."""
    return option(name, what, default, type=click.IntRange(least, 65535))


def output_option(what: str) -> Callable[[Command], Command]:
    """Add `-o`, which may be repeated; the file's extension selects the format of the report."""
    return option("-o --output outputs FILE*", f"{what} May be repeated.", type=click.Path(path_type=Path))


SIGNER = "chunkproof.signer"


def sign_option(command: Command) -> Command:
    """Add `--sign`; the key is opened before any work starts, and `ReportKind.write` signs with it."""

    def keep(context: click.Context, _option: click.Parameter, key: str | None) -> None:
        if key is not None:
            from chunkproof.seals.notes import open_signer

            context.meta[SIGNER] = open_signer(key)

    return option(
        "--sign KEY",
        "Sign each file of -o with this key of `chunkproof key`, or kms:ID: FILE.sig is written beside it.",
        callback=keep,
        expose_value=False,
    )(command)


def _parse_tolerance(value: str) -> Any:
    if value != "chance" and not value.isdecimal():
        raise click.BadParameter(f"{value} is neither a number of cases nor the word chance")
    return value if value == "chance" else int(value)


tolerate_option = option(
    "--tolerate N|chance",
    "With --baseline: let N cases newly fail, or as many as chance explains. By default none may.",
    type=_parse_tolerance,
)


def reject_api(reason: str) -> Callable[[Command], Command]:
    """Refuse `--api` with a reason, on a command that cannot run against a deployed stack."""

    def refuse(_context: click.Context, _option: click.Parameter, url: str | None) -> None:
        if url is not None:
            raise click.BadParameter(reason, param_hint="--api")

    return click.option("--api", metavar="URL", callback=refuse, expose_value=False, hidden=True)


def reject_nan(_context: click.Context, _option: click.Parameter, given: float | None) -> float | None:
    """Refuse nan, which no range of numbers excludes."""
    if given is not None and isnan(given):
        raise click.BadParameter("nan is not a number")
    return given


def parse_options(
    collection: str | None,
    data: Path | None,
    as_json: bool = False,
    api: str | None = None,
    embedder: str | None = None,
) -> Options:
    """Return the common options, with defaults for those that are not set."""
    if api is not None and embedder is not None:
        raise click.BadParameter("the deployed stack embeds, with its own settings", param_hint="--embedder")
    if collection is not None and not collection.strip():
        raise click.BadParameter("it is empty; name a collection", param_hint="--collection")
    from chunkproof.service.terminal import default_data_folder  # options are read by commands that need no store

    return Options(collection, data or default_data_folder(), as_json, api, embedder)


def reject_embedder(options: Options, option: str) -> None:
    """Refuse `--embedder` together with an option that leaves embedding to something else."""
    if options.embedder is not None:
        raise click.BadParameter(f"it has no effect with {option}, which embeds by itself", param_hint="--embedder")


def name_collection(request: dict[str, Any], options: Options) -> dict[str, Any]:
    """Return the request with the collection that was named, if one was."""
    name = explicit_collection(options)
    return request if name is None else {**request, "collection": name}


def explicit_collection(options: Options) -> str | None:
    """Return the collection named by `--collection` or `CHUNKPROOF_COLLECTION`; None when neither is set."""
    if options.collection is not None:
        return options.collection
    from chunkproof.base.settings import Settings

    name = Settings.from_env().collection
    return None if name == Settings.model_fields["collection"].default else name


@contextmanager
def name_flags(flags: Mapping[str, str]) -> Iterator[None]:
    """In the messages of a refused request, replace the API's field names by the flags of the command."""
    try:
        yield
    except InvalidParameterError as error:
        # A name that ends with a dot is the beginning of longer ones; others are whole words. The longest comes first.
        longest = sorted(flags, key=len, reverse=True)
        names = "|".join(re.escape(name) + ("" if name.endswith(".") else r"\b") for name in longest)
        fields = re.compile(rf"\b(?:{names})")
        error.messages = tuple(fields.sub(lambda found: flags[found[0]], text) for text in error.messages)
        raise


def source_name(file: Path) -> str:
    """Return the path or S3 address that the user typed."""
    return _sources.get(file, str(file))


@cache
def _download_folder() -> str:
    folder = mkdtemp(prefix="chunkproof-")
    # At exit and not with the command's context, which click does not close when another parameter is wrong.
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder
