"""Files that are complete or absent, folders that one process uses at a time, private files, and limits of reading."""

import fcntl
import os
import stat
import sys
import zlib
from codecs import BOM_UTF8, BOM_UTF16_BE, BOM_UTF16_LE
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from errno import EEXIST
from pathlib import Path
from secrets import token_hex
from threading import Lock
from typing import IO, Any

from chunkproof.base.errors import InvalidParameterError

LOCK_FILE = ".chunkproof.lock"
# Another process may remove the folder between two steps of locking it; then it is made again.
LOCK_ATTEMPTS = 20
# A few kB of gzip or zstd can hold a line of gigabytes.
MAX_LINE = 32_000_000
# And any number of short ones: real manifests become 3 to 20 times as large, bombs a thousand times and more.
MAX_TIMES, LEAST_LIMIT, LEAST_LINES = 200, 64_000_000, 100_000
UNPACK = "decompress it first, if it is right"
ARCHIVES = (b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"\xfd7zXZ", b"BZh", b"PK\3\4")  # gzip, zstd, xz, bzip2, zip
MAX_FILE, MAX_PROBLEMS = 200_000_000, 10_000  # of a file that is read whole, and of one that is read by lines


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


def read_file(file: Path, option: str = "", most: int = MAX_FILE) -> bytes:
    """Read a file, or standard input for `-`; `InvalidParameterError` if that cannot be, or it has more bytes."""
    try:
        with nullcontext(sys.stdin.buffer) if str(file) == "-" else file.open("rb") as stream:
            content = stream.read(most + 1)
        reason = f"larger than {most // 1_000_000} MB" if len(content) > most else ""
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
    if reason:
        raise InvalidParameterError(f"{option} {file}: {reason}".lstrip())
    return content


def read_text(file: Path, option: str = "", encoding: str = "utf-8-sig", most: int = MAX_FILE) -> str:
    """Read the text of a file, or of standard input for `-`; `InvalidParameterError` says why it cannot be read."""
    content = read_file(file, option, most)
    try:
        return content.decode(encoding)
    except UnicodeDecodeError as error:
        raise InvalidParameterError(f"{option} {file}: not UTF-8 at byte {error.start}".lstrip()) from None


def read_text_lines(file: Path) -> Iterator[tuple[int, str]]:
    """Yield each line that is not blank, with its number; `InvalidParameterError` says why it cannot be read."""
    try:
        with file.open("rb") as stream:
            for number, line in enumerate(read_lines(stream, file.name), 1):
                if line.strip():
                    yield number, line.decode().rstrip("\r\n")
    except UnicodeDecodeError as error:
        raise InvalidParameterError(f"{file.name}:{number}: not UTF-8 at byte {error.start} of the line") from None
    except OSError as error:
        raise InvalidParameterError(f"{file}: {error.strerror}") from None


def read_lines(file: Any, name: str) -> Iterator[bytes]:
    """Yield the lines of a file that is no bomb; its `packed`, if any, counts the bytes that it is unpacked from."""
    size = count = blank = 0
    packed = getattr(file, "packed", None)
    try:
        while line := file.readline(MAX_LINE + 1):
            if is_first := not count:
                line = line.removeprefix(BOM_UTF8)
            size, count, blank, why = size + len(line), count + 1, blank + line.isspace(), ""
            if is_first and line.startswith((BOM_UTF16_BE, BOM_UTF16_LE)):
                why = "is UTF-16: save it as UTF-8"
            elif is_first and line.startswith(ARCHIVES):
                why = "is compressed in a way that is not read here: decompress it first"
            elif len(line) > MAX_LINE:
                why = f"has a line of more than {MAX_LINE // 1_000_000} MB, line {count}"
            elif blank > max(LEAST_LINES, count * 0.9):
                why = f"has more than {LEAST_LINES:,} blank lines: remove them"
            elif packed and size > max(LEAST_LIMIT, MAX_TIMES * packed.count):
                why = f"becomes more than {MAX_TIMES} times as large and more than {LEAST_LIMIT // 10**6} MB: {UNPACK}"
            elif packed and count > max(LEAST_LINES, packed.most_lines * packed.count):
                why = f"has more than {LEAST_LINES:,} lines, {packed.most_lines} or more in each byte: {UNPACK}"
            if why:
                raise InvalidParameterError(f"{name} {why}")
            yield line
    except Exception as error:
        # Two packages define ZstdError; neither is imported for a file that is not zstd, nor is gzip.
        if isinstance(error, EOFError | zlib.error) or type(error).__name__ in ("BadGzipFile", "ZstdError"):
            raise InvalidParameterError(f"{name} cannot be decompressed: {error}") from None
        raise


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


class _PrivateFiles:
    """Lets only this user read the files and folders that the process makes inside the block.

    The mask for new files is that of the process, and several threads may need it at the same time.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._users = 0
        self._before = 0

    @contextmanager
    def __call__(self) -> Iterator[None]:
        with self._lock:
            if self._users == 0:
                self._before = os.umask(0o077)
            self._users += 1
        try:
            yield
        finally:
            with self._lock:
                self._users -= 1
                if self._users == 0:
                    os.umask(self._before)


private_files = _PrivateFiles()


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
