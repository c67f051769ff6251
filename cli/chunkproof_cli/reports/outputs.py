"""The files that `-o` names, whatever the report."""

from collections.abc import Collection
from pathlib import Path

import click


def check_outputs(files: tuple[Path, ...], extensions: Collection[str]) -> None:
    """Refuse files that cannot be written, before any work starts."""
    for file in files:
        if file.suffix not in extensions:
            raise click.BadParameter(f"{file}: the extension must be one of {', '.join(extensions)}", param_hint="-o")
        if not file.parent.is_dir() or file.is_dir():
            raise click.BadParameter(f"{file}: there is no such folder to write to", param_hint="-o")
