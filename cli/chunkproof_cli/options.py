"""The options that commands share."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import click

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


def reject_api(why: str) -> Callable[[Command], Command]:
    """For a command that no deployed stack can answer: `--api` is refused with the reason, not passed over."""

    def refuse(_context: click.Context, _option: click.Parameter, url: str | None) -> None:
        if url is not None:
            raise click.BadParameter(why, param_hint="--api")

    return click.option("--api", metavar="URL", callback=refuse, expose_value=False, help=f"Not here: {why}.")


def parse_options(
    collection: str | None, data: Path | None, as_json: bool, api: str | None = None
) -> Options:
    """The common options with their defaults."""
    if collection is not None and not collection.strip():
        raise click.BadParameter("it is empty", param_hint="--collection")
    return Options(collection, data or default_data_folder(), as_json, api)


def default_data_folder() -> Path:
    """The folder of the embedded store where `--data` names none."""
    from platformdirs import user_data_path

    return user_data_path("chunkproof")


def explicit_collection(given: Options) -> str | None:
    """The collection that was asked for: by option, or by a setting that differs from its default."""
    if given.collection is not None:
        return given.collection
    from chunkproof.settings import Settings

    set_to = Settings.from_env().collection
    return None if set_to == Settings.model_fields["collection"].default else set_to
