"""Manifests on disk: JSON lines, plain or compressed with gzip or zstd."""

import gzip
import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from hashlib import sha256
from pathlib import Path
from typing import IO, Any

from chunkproof.audit.manifest import GZIP_MAGIC, ZSTD_MAGIC, cannot_decompress, read_lines
from chunkproof.errors import InvalidParameterError
from chunkproof.files import replace_file

STDIN = Path("-")
# Bytes that are read from a pipe at a time.
PIPE_BUFFER = 1024 * 1024


def find_manifest(name: str) -> Path:
    """Return the path of a manifest: a file, a pipe, or `-` for standard input."""
    path = Path(name)
    if path != STDIN and not path.exists():
        raise InvalidParameterError(f"{path}: no such file")
    if path.is_dir():
        raise InvalidParameterError(f"{path} is a folder, not a manifest")
    return path


def manifest_name(path: Path) -> str:
    """Return how reports and messages call a manifest: by its file name, if it has one."""
    if path in (STDIN, Path("/dev/stdin")):
        return "standard input"
    return path.name if path.is_file() and not path.absolute().is_relative_to("/dev") else "a pipe"


@contextmanager
def open_manifest(path: Path) -> Iterator[Iterator[bytes]]:
    """Open a manifest, compressed or not, and yield its lines; raise `InvalidParameterError` when it is damaged.

    It is opened once and read from start to end, so a pipe can be read as well.
    """
    raw = nullcontext(sys.stdin.buffer) if path == STDIN else path.open("rb")
    with raw as stream, _decompress(stream) as file:
        yield _lines(file, path)


def size_in_megabytes(path: Path) -> int | None:
    """Return how much there is to read; None when that is unknown: it is compressed, or a pipe."""
    if not path.is_file():
        return None
    with path.open("rb") as file:
        magic = file.read(4)
    return None if magic.startswith(GZIP_MAGIC) or magic == ZSTD_MAGIC else int(path.stat().st_size / 1e6)


def hash_manifest(path: Path) -> str:
    """Return the SHA-256 of its lines."""
    digest = sha256()
    with open_manifest(path) as lines:
        for line in lines:
            digest.update(line)
    return digest.hexdigest()


@contextmanager
def create_manifest(path: Path) -> Iterator[IO[bytes]]:
    """Create a manifest, compressed according to its extension; it appears only when it is complete."""
    with replace_file(path) as target, _compress(target, path.suffix) as file:
        yield file


def _lines(file: IO[bytes], path: Path) -> Iterator[bytes]:
    try:
        yield from read_lines(file, str(path))
    except Exception as error:
        # Two packages define the class; neither is imported for a manifest that is not zstd.
        if type(error).__name__ != "ZstdError":
            raise
        raise cannot_decompress(path, error) from None


def _decompress(stream: IO[bytes]) -> Any:
    magic = stream.read(4)
    if stream.seekable():
        stream.seek(-len(magic), os.SEEK_CUR)
    else:
        stream = io.BufferedReader(_Prefixed(magic, stream), PIPE_BUFFER)
    if magic.startswith(GZIP_MAGIC):
        return gzip.open(stream, "rb")
    if magic == ZSTD_MAGIC:
        return import_zstd().open(stream, "rb")
    return nullcontext(stream)


class _Prefixed(io.RawIOBase):
    """A stream after the bytes that have been read from it already."""

    def __init__(self, prefix: bytes, stream: IO[bytes]) -> None:
        self._prefix = prefix
        self._stream = stream

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._prefix or self._stream.read(len(buffer))
        taken, self._prefix = data[: len(buffer)], data[len(buffer) :]
        buffer[: len(taken)] = taken
        return len(taken)


def _compress(target: IO[bytes], suffix: str) -> Any:
    if suffix == ".gz":
        # Without a date and a name, the same chunks always make the same file.
        return gzip.GzipFile("", "wb", compresslevel=6, fileobj=target, mtime=0)
    if suffix in (".zst", ".zstd"):
        return import_zstd().open(target, "wb")
    return nullcontext(target)


def import_zstd() -> Any:
    """Return the module for zstd: Python's own from 3.14 on."""
    try:
        from compression import zstd
    except ImportError:
        from backports import zstd
    return zstd
