"""Manifests on disk: JSON lines, plain or compressed by gzip or zstd."""

import gzip
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import IO, Any

from chunkproof.errors import InvalidParameterError

GZIP, ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"


@contextmanager
def manifest_lines(path: Path) -> Iterator[Iterator[bytes]]:
    """The lines of a manifest, whatever it is compressed by; `InvalidParameterError` when it cannot be read."""
    if not path.is_file():
        raise InvalidParameterError(f"{path}: no such file")
    with _opened(path, _magic(path)) as file:
        yield _lines(file, path)


def megabytes(path: Path) -> int | None:
    """How much there is to read; None where only reading tells, as it is compressed."""
    magic = _magic(path)
    return None if magic.startswith(GZIP) or magic == ZSTD else int(path.stat().st_size / 1e6)


def fingerprint(path: Path) -> str:
    """SHA-256 of its lines."""
    found = sha256()
    with manifest_lines(path) as lines:
        for line in lines:
            found.update(line)
    return found.hexdigest()


@contextmanager
def manifest_writer(path: Path) -> Iterator[IO[bytes]]:
    """A new manifest, compressed as its name ends; it appears when it is whole."""
    part = path.with_name(f"{path.name}.part")
    try:
        with _created(part, path.suffix) as file:
            yield file
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def _lines(file: IO[bytes], path: Path) -> Iterator[bytes]:
    try:
        yield from file
    except (OSError, EOFError, zlib.error) as error:
        raise InvalidParameterError(f"{path}: it cannot be unpacked: {error}") from None
    except Exception as error:
        if type(error).__name__ != "ZstdError":
            raise
        raise InvalidParameterError(f"{path}: it cannot be unpacked: {error}") from None


def _magic(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(4)


def _opened(path: Path, magic: bytes) -> Any:
    if magic.startswith(GZIP):
        return gzip.open(path, "rb")
    if magic == ZSTD:
        return _zstd().open(path, "rb")
    return path.open("rb")


def _created(path: Path, suffix: str) -> Any:
    if suffix == ".gz":
        # No date in it: the same chunks make the same file.
        return gzip.GzipFile(path, "wb", compresslevel=6, mtime=0)
    if suffix in (".zst", ".zstd"):
        return _zstd().open(path, "wb")
    return path.open("wb")


def _zstd() -> Any:
    try:
        from compression import zstd  # Python 3.14 has it
    except ImportError:
        from backports import zstd
    return zstd
