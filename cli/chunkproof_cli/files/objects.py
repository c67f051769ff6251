"""Path arguments that may also be objects in S3."""

import atexit
import shutil
from functools import cache
from pathlib import Path, PurePosixPath
from tempfile import mkdtemp
from typing import Any

import click

from chunkproof.clients.s3 import is_s3_address, parse_address

_sources: dict[Path, str] = {}


class FileOrObject(click.ParamType[Path]):
    """A path, or `s3://BUCKET/KEY`, which is downloaded to a file that lasts as long as the process."""

    name = "path"

    def convert(self, value: Any, _param: click.Parameter | None, _context: click.Context | None) -> Path:
        """Return the path, after downloading an S3 object."""
        if isinstance(value, Path) or not is_s3_address(value):
            return Path(value)
        bucket, key = parse_address(value)
        file = Path(mkdtemp(dir=_download_folder())) / PurePosixPath(key).name
        bucket.download(key, file)
        _sources[file] = value
        return file


def source_name(file: Path) -> str:
    """Return the path or S3 address that the user typed."""
    return _sources.get(file, str(file))


@cache
def _download_folder() -> str:
    folder = mkdtemp(prefix="chunkproof-")
    # At exit and not with the command's context, which click does not close when another parameter is wrong.
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder
