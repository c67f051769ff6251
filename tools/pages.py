"""The pages of docs/ that are made from code; `make docs` writes them, a test tells when one is stale."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click

from chunkproof.settings import Settings
from chunkproof.suite.cases import Suite
from chunkproof.suite.report import SuiteReport
from chunkproof_cli.local.handlers import build_openapi
from chunkproof_cli.main import cli

from tools import dashboard

DOCS = Path(__file__).resolve().parents[1] / "docs"
NOTE = "<!-- Made by `make docs`; edit the code it is made from. -->\n"


def settings_page() -> str:
    """Every setting, from `shared/chunkproof/settings.py`."""
    lines = [
        "# Settings",
        "",
        NOTE,
        "Settings are environment variables, read once at start. An empty one counts as unset; a wrong value",
        "stops with the variable's name and what is allowed.",
        "",
        "| variable | default | allowed | meaning |",
        "|---|---|---|---|",
    ]
    for variable, name in Settings.variables().items():
        field = Settings.model_fields[name]
        default = "" if field.default in (None, (), {}) else f"`{str(field.default).lower()}`"
        lines.append(
            f"| `{variable}` | {default} | {Settings.allowed_values(variable)} | {field.description} |"
        )
    return "\n".join(lines) + "\n"


def cli_page() -> str:
    """The help of every command."""
    parts = ["# Command line\n", NOTE]
    for path, command in _commands("chunkproof", cli):
        context = click.Context(command, info_name=path, **cli.context_settings)
        context.max_content_width = context.terminal_width = 100
        parts.append(f"## {path}\n\n```\n{command.get_help(context)}\n```\n")
    return "\n".join(parts)


def _commands(path: str, command: click.Command) -> Iterator[tuple[str, click.Command]]:
    yield path, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in sorted(command.list_commands(context)):
            if inner := command.get_command(context, name):
                yield from _commands(f"{path} {name}", inner)


def openapi_page() -> str:
    """The API of the functions."""
    return json.dumps(build_openapi(), indent=2, ensure_ascii=False) + "\n"


def suite_schema() -> str:
    """What a suite file may hold, for editors to complete and check."""
    return _schema(Suite.model_json_schema())


def report_schema() -> str:
    """What the canonical report of a suite holds."""
    return _schema(SuiteReport.model_json_schema(mode="serialization"))


def _schema(schema: dict[str, Any]) -> str:
    document = {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


PAGES: dict[str, Callable[[], str]] = {
    "reference/settings.md": settings_page,
    "reference/cli.md": cli_page,
    "openapi.json": openapi_page,
    "suite.schema.json": suite_schema,
    "report.schema.json": report_schema,
    "dashboard.svg": dashboard.draw,
}


def main() -> None:
    for name, page in PAGES.items():
        (DOCS / name).write_text(page(), "utf-8")


if __name__ == "__main__":
    main()
