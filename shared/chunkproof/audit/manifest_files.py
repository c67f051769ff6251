"""Manifests on disk: JSON lines, plain or compressed with gzip or zstd."""

import gzip
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import IO, Any

from chunkproof.audit.manifest import GZIP_MAGIC, ZSTD_MAGIC, cannot_decompress, read_lines
from chunkproof.errors import InvalidParameterError


@contextmanager
def open_manifest(path: Path) -> Iterator[Iterator[bytes]]:
    """Open a manifest, compressed or not, and yield its lines; raise `InvalidParameterError` when it is damaged."""
    if not path.is_file():
        raise InvalidParameterError(f"{path}: no such file")
    with _open(path, _read_magic(path)) as file:
        yield _lines(file, path)


def size_in_megabytes(path: Path) -> int | None:
    """Return how much there is to read; None when the manifest is compressed."""
    magic = _read_magic(path)
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
    part = path.with_name(f"{path.name}.part")
    try:
        with _create(part, path.suffix) as file:
            yield file
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def _lines(file: IO[bytes], path: Path) -> Iterator[bytes]:
    try:
        yield from read_lines(file, str(path))
    except Exception as error:
        # Two packages define the class; neither is imported for a manifest that is not zstd.
        if type(error).__name__ != "ZstdError":
            raise
        raise cannot_decompress(path, error) from None


def _read_magic(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(4)


def _open(path: Path, magic: bytes) -> Any:
    if magic.startswith(GZIP_MAGIC):
        return gzip.open(path, "rb")
    if magic == ZSTD_MAGIC:
        return _import_zstd().open(path, "rb")
    return path.open("rb")


def _create(path: Path, suffix: str) -> Any:
    if suffix == ".gz":
        # Without a date, the same chunks always make the same file.
        return gzip.GzipFile(path, "wb", compresslevel=6, mtime=0)
    if suffix in (".zst", ".zstd"):
        return _import_zstd().open(path, "wb")
    return path.open("wb")


def _import_zstd() -> Any:
    try:
        from compression import zstd  # Python 3.14 has it
    except ImportError:
        from backports import zstd
    return zstd
