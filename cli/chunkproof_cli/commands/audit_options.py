"""Types of the options of `chunkproof audit`."""

import re
from typing import Any

import click

from chunkproof.audit.findings import FAULTS

# From this similarity on, two stored texts are near duplicates.
NEAR_DUPLICATE = 0.8


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


class Similarity(click.ParamType[float]):
    """A share of texts in common, above 0 and at most 1."""

    name = "similarity"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the number."""
        try:
            share = float(value)
        except ValueError:
            share = 0.0
        if not 0 < share <= 1:
            self.fail(f"{value} is not a similarity above 0 and up to 1, such as 0.8", param, ctx)
        return share


class OptionalValues(click.Command):
    """A command where some options take the next word as their value only if it looks like one.

    Otherwise click would take the manifest in `chunkproof audit --vectors manifest.jsonl` as the value.
    """

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Write out the default, as in `--vectors=all`, where the option has no value, then parse."""
        return super().parse_args(ctx, list(map(_write_out_default, args, [*args[1:], ""])))


def _write_out_default(word: str, next_word: str) -> str:
    if word == "--vectors" and not (next_word.isdecimal() or next_word == "all"):
        return "--vectors=all"
    if word == "--near-duplicates" and not re.fullmatch(r"[0-9]*\.?[0-9]+", next_word):
        return f"--near-duplicates={NEAR_DUPLICATE}"
    return word
