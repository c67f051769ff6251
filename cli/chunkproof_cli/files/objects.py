"""Files of a command's line that may as well be objects in S3."""

import atexit
import shutil
from functools import cache
from pathlib import Path, PurePosixPath
from tempfile import mkdtemp
from typing import Any

import click

from chunkproof.clients.s3 import is_s3_address, parse_address

_fetched: dict[Path, str] = {}


class FileOrObject(click.ParamType[Path]):
    """A path; `s3://BUCKET/KEY` is fetched, and is a file for as long as this process runs."""

    name = "path"

    def convert(self, value: Any, _param: click.Parameter | None, _context: click.Context | None) -> Path:
        """The file; an object that cannot be had is raised as what it is."""
        if isinstance(value, Path) or not is_s3_address(value):
            return Path(value)
        bucket, key = parse_address(value)
        file = Path(mkdtemp(dir=_folder())) / PurePosixPath(key).name
        bucket.download(key, file)
        _fetched[file] = value
        return file


def source_name(file: Path) -> str:
    """The file as the command's line has it."""
    return _fetched.get(file, str(file))


@cache
def _folder() -> str:
    folder = mkdtemp(prefix="chunkproof-")
    # Not the command's context: it is not closed when another of its parameters turns out wrong.
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder
