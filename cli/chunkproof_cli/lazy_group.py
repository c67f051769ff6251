"""A click group that imports a command only when it runs."""

from collections.abc import Mapping
from difflib import get_close_matches
from importlib import import_module
from typing import Any

import click


class LazyGroup(click.Group):
    """A group whose help needs no command's module.

    `summaries` has a line for each command. The command `name` is the attribute `name` of the module
    `chunkproof_cli.commands.<prefix><name>`.
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
        if name not in self.summaries:
            return None
        module = import_module(f"chunkproof_cli.commands.{self._prefix}{name}")
        command: click.Command = getattr(module, name)
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

    def invoke(self, context: click.Context) -> object:
        """Run the command. A closed pipe is raised without its errno, on which click would exit with code 1."""
        try:
            return super().invoke(context)
        except BrokenPipeError:
            raise BrokenPipeError from None
