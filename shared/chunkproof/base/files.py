"""Files that are complete or absent, folders that one process uses at a time, private files, and gzip with a limit."""

import fcntl
import os
import stat
import sys
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from errno import EEXIST
from pathlib import Path
from secrets import token_hex
from threading import Lock
from typing import IO

from chunkproof.base.errors import InvalidParameterError

LOCK_FILE = ".chunkproof.lock"
# Another process may remove the folder between two steps of locking it; then it is made again.
LOCK_ATTEMPTS = 20


class LockedError(Exception):
    """Another process uses the folder."""


@contextmanager
def replace_file(path: Path) -> Iterator[IO[bytes]]:
    """Write a file that appears, or replaces the old one, only when all of it is on disk.

    An existing file keeps its permissions, and a link its target. What cannot be replaced is written directly: a
    device, a pipe, a file in a folder that this user cannot write to.
    """
    target = Path(os.path.realpath(path))
    before = target.stat() if target.exists() else None
    if before is not None and not (stat.S_ISREG(before.st_mode) and os.access(target.parent, os.W_OK)):
        with target.open("wb") as file:
            yield file
        return
    part = target.with_name(f".{token_hex(8)}.part")
    try:
        with part.open("xb") as file:
            if before is not None:
                part.chmod(stat.S_IMODE(before.st_mode))
            yield file
            file.flush()
            os.fsync(file.fileno())
        part.replace(target)
    except OSError as error:
        if error.filename in (None, str(part)):
            raise OSError(error.errno, error.strerror, str(path)) from None
        raise
    finally:
        part.unlink(missing_ok=True)


def read_text(file: Path, option: str = "", encoding: str = "utf-8-sig") -> str:
    """Read the text of a file, or of standard input for `-`; `InvalidParameterError` says why it cannot be read."""
    try:
        return (sys.stdin.buffer.read() if str(file) == "-" else file.read_bytes()).decode(encoding)
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else f"not UTF-8 at byte {error.start}"
        raise InvalidParameterError(f"{option} {file}: {reason}".lstrip()) from None


def write_file(path: Path, text: str) -> None:
    """Write a text as UTF-8 with `replace_file`."""
    with replace_file(path) as file:
        file.write(text.encode())


def write_new_file(path: Path, text: str) -> None:
    """Write a text as UTF-8 to a file that must not exist yet; raise `FileExistsError` if it does."""
    part = path.with_name(f".{token_hex(8)}.part")
    try:
        write_file(part, text)
        try:
            os.link(part, path)  # unlike a rename, it fails if another process was faster
        except OSError:
            if path.exists():
                raise FileExistsError(EEXIST, os.strerror(EEXIST), str(path)) from None
            part.replace(path)  # the file system has no links
    finally:
        part.unlink(missing_ok=True)


@contextmanager
def lock_folder(folder: Path) -> Iterator[None]:
    """Make the folder if it does not exist, and let no other process lock it; raise `LockedError` if one has.

    The system releases the lock when the process ends, however it ends. Its owner may remove the folder.
    """
    lock = _lock(folder)
    try:
        yield
    finally:
        os.close(lock)


def _lock(folder: Path) -> int:
    path = folder / LOCK_FILE
    failure: Exception = LockedError()
    for _ in range(LOCK_ATTEMPTS):
        try:
            make_private_folder(folder)
            lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except (FileNotFoundError, FileExistsError) as error:
            failure = error
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # The file may have been removed, with its folder, by the process that had the lock before.
            if os.path.samestat(os.fstat(lock), path.stat()):
                return lock
        except BlockingIOError:
            os.close(lock)
            raise LockedError from None
        except FileNotFoundError:
            pass
        except OSError:
            os.close(lock)
            raise
        os.close(lock)
    raise failure


def make_private_folder(folder: Path) -> None:
    """Make the folder, and its parents, for this user alone, if it does not exist."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    folder.mkdir(mode=0o700, exist_ok=True)


class _Umask:
    """The process's mask for new files; several threads may need it to be private at the same time."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._users = 0
        self._before = 0

    def enter(self) -> None:
        with self._lock:
            if self._users == 0:
                self._before = os.umask(0o077)
            self._users += 1

    def leave(self) -> None:
        with self._lock:
            self._users -= 1
            if self._users == 0:
                os.umask(self._before)


_umask = _Umask()


@contextmanager
def private_files() -> Iterator[None]:
    """Let only this user read the files and folders that the process makes inside the block."""
    _umask.enter()
    try:
        yield
    finally:
        _umask.leave()


class DecompressedTooLargeError(Exception):
    """The decompressed content is larger than the limit; decompression stopped there."""


# Real content has one member or a few, and each member costs a copy of the rest.
MAX_MEMBERS = 100
GZIP = zlib.MAX_WBITS | 16
GZIP_OR_DEFLATE = zlib.MAX_WBITS | 32


def decompress(content: bytes, limit: int, wbits: int = GZIP) -> bytes:
    """Decompress all members, together at most `limit` bytes.

    Raises `zlib.error` or `EOFError` when the content is not valid gzip, or ends too early.
    """
    parts, room = [], limit
    for _ in range(MAX_MEMBERS):
        decompressor = zlib.decompressobj(wbits)
        part = decompressor.decompress(content, room + 1)  # one byte more shows that there is more
        if len(part) > room:
            raise DecompressedTooLargeError
        if not decompressor.eof:
            raise EOFError
        parts.append(part)
        room -= len(part)
        content = decompressor.unused_data
        if not content:
            return b"".join(parts)
    raise zlib.error(f"more than {MAX_MEMBERS} members")
