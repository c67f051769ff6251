"""Types of the options of `chunkproof audit`."""

from typing import Any

import click

from chunkproof.audit.findings import FAULTS


class Kinds(click.ParamType[tuple[str, ...]]):
    """Kinds of findings, comma-separated."""

    name = "kinds"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, ...]:
        """Split the list, and refuse what is not a kind of finding."""
        if isinstance(value, tuple):
            return value
        kinds = tuple(part.strip() for part in str(value).split(",") if part.strip())
        allowed = [kind.value for kind in FAULTS]
        unknown = [kind for kind in kinds if kind not in allowed]
        if unknown or not kinds:
            self.fail(f"{', '.join(unknown) or 'nothing'}: choose among {', '.join(allowed)}", param, ctx)
        return kinds


class Count(click.ParamType[int]):
    """A number of chunks from 1 on, or `all`."""

    name = "count"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return the number; 0 for all."""
        if value == "all":
            return 0
        try:
            count = int(value)
        except ValueError:
            count = 0
        if count < 1:
            self.fail(f"{value} is not a number of chunks", param, ctx)
        return count


class OptionalCount(click.Command):
    """A command where `--vectors` takes the next word as its value only if that is a number or `all`.

    Otherwise click would take the manifest in `chunkproof audit --vectors manifest.jsonl` as the value.
    """

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Write out `--vectors=all` where the option has no value, then parse."""
        after = [*args[1:], ""]
        is_flag = [
            word == "--vectors" and not (next_.isdecimal() or next_ == "all")
            for word, next_ in zip(args, after, strict=True)
        ]
        return super().parse_args(
            ctx, [f"{word}=all" if flag else word for word, flag in zip(args, is_flag, strict=True)]
        )
