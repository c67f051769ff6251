"""The folder of an Edge store: a folder for each collection, locks between processes, and a journal of writes.

    DATA/shards/NAME/collection.json   name of the collection, of the folder with its shard, and how many points it
                                       had when it was last closed; without this file, the collection does not exist
                     lock              locked by each process that has the collection open
                     layout.json       how it was made: its vectors, indexes, and what only a server uses
                     journal           the write that is under way; an interrupted one is repeated
                     shard-…/          the engine's files

This module knows the folder, and `edge.py` the engine.
"""

import fcntl
import json
import os
import re
import shutil
import stat
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from errno import ENOSPC, ENXIO
from hashlib import sha256
from pathlib import Path
from secrets import token_hex
from time import monotonic, sleep
from typing import Any

from chunkproof.base.errors import CollectionNotFoundError, InvalidParameterError
from chunkproof.base.files import LockedError, lock_folder, make_private_folder, private_files, replace_file, write_file

SHARDS = "shards"
RECORD = "collection.json"
LOCK = "lock"
JOURNAL = "journal"
FIRST_SHARD = "shard-0"
FORMAT = 1
COPY_BYTES = 1 << 20
# Opening, creating and recovering take so long at most; a load takes longer, and is not waited for.
LOCK_WAIT_S = 1.0
_STEP_S = 0.02
_PLAIN_NAME = re.compile(r"[a-z0-9_-]{1,100}")
_SHARD_NAME = re.compile(r"shard-[0-9a-f]{1,8}")
MAX_RECORD_BYTES = 10_000


def shard_path(folder: Path, collection: str) -> Path:
    """Return where the files of a collection are in a data folder."""
    return folder / SHARDS / _folder_name(collection)


@contextmanager
def locked_files(folder: Path, collection: str) -> Iterator[tuple[Path, list[Path]]]:
    """Return the folder of a collection and the files that make it up; no process can write to it meanwhile."""
    found = ShardFolder(folder).find(collection)
    if found is None:
        raise CollectionNotFoundError(collection)
    lock = CollectionLock(found)
    try:
        lock.acquire(exclusive=False)
        shard = ShardCopies(found).current
        yield found, [found / RECORD, *(path for path in shard.rglob("*") if path.is_file())]
    except LockedError:
        raise InvalidParameterError(f"Another process writes to collection {collection}: try again later") from None
    finally:
        lock.release()


class ShardFolder:
    """The folders of the collections in a data folder."""

    def __init__(self, folder: Path) -> None:
        self._data, self._root = folder, folder / SHARDS
        for path in (folder.resolve(), self._root):
            _check_owner(folder, path)
        make_private_folder(folder)
        make_private_folder(self._root)

    def names(self) -> list[str]:
        """Return the names of all collections, sorted."""
        return sorted(name for path in self._root.iterdir() if (name := _read_name(path)) is not None)

    def find(self, collection: str) -> Path | None:
        """Return the folder of a collection; None when it does not exist."""
        path = self._root / _folder_name(collection)
        if _read_name(path) != collection:
            return None
        _check_owner(self._data, path)
        for parent, folders, files in os.walk(path):  # of a folder from elsewhere, links and pipes are refused
            for name in (*folders, *files):
                _check_owner(self._data, Path(parent, name), is_folder=name in folders)
        return path

    @contextmanager
    def making(self, collection: str) -> Iterator[Path]:
        """Make the folder of a new collection, which appears when the block ends without an error.

        Raise `FileExistsError` if the collection exists by then.
        """
        target, part = self._root / _folder_name(collection), self._root / f".{token_hex(8)}.part"
        lock = CollectionLock(part)
        with private_files():
            with self._locked():
                self._remove_abandoned_parts()
                part.mkdir(mode=0o700)
                lock.acquire(exclusive=True)
            try:
                yield part
                _write_record(part, collection, FIRST_SHARD)
                with self._locked():
                    if self.find(collection) is not None:
                        raise FileExistsError(str(target))
                    shutil.rmtree(target, ignore_errors=True)  # without a record: what a removal left
                    part.rename(target)
                sync_folder(self._root)
            finally:
                lock.release()
                shutil.rmtree(part, ignore_errors=True)

    def rename(self, collection: str, name: str) -> None:
        """Rename a collection that the caller has locked; no other may have the new name."""
        path, target = self._root / _folder_name(collection), self._root / _folder_name(name)
        with self._locked():
            record = _read_record(path)
            _write_record(path, name, record["shard"], record.get("points"))
            path.rename(target)
        sync_folder(self._root)

    def remove(self, collection: str) -> None:
        """Remove a collection that the caller has locked."""
        path = self._root / _folder_name(collection)
        (path / RECORD).unlink()
        sync_folder(path)
        shutil.rmtree(path)

    def _remove_abandoned_parts(self) -> None:
        """Remove what interrupted processes left: the lock of a process that has ended is free."""
        for part in self._root.glob(".*.part"):
            lock = CollectionLock(part)
            with suppress(LockedError, OSError):
                lock.acquire(exclusive=True, wait_s=0)
                shutil.rmtree(part, ignore_errors=True)
            lock.release()

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Let only one process add and remove folders."""
        with ExitStack() as stack:
            _wait_for(lambda: stack.enter_context(lock_folder(self._root)), LOCK_WAIT_S)
            yield


class ShardCopies:
    """The shard of a collection, which a changed copy can replace in one step. The caller has the collection locked."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @property
    def current(self) -> Path:
        """The folder with the engine's files."""
        name = _read_record(self._folder).get("shard")
        if not isinstance(name, str) or not _SHARD_NAME.fullmatch(name):  # another one could lead out of the folder
            raise _damaged(self._folder)
        return self._folder / name

    @property
    def points(self) -> int | None:
        """How many points the collection had when it was last closed; None if it was interrupted."""
        points = _read_record(self._folder).get("points")
        return points if isinstance(points, int) else None

    def record_points(self, points: int | None) -> None:
        """Record how many points there are: none known before something is written, all when it is complete."""
        record = _read_record(self._folder)
        if record.get("points") != points:
            _write_record(self._folder, record["name"], record["shard"], points)
            sync_folder(self._folder)

    @contextmanager
    def changing_copy(self) -> Iterator[Path]:
        """Copy the shard; the copy replaces it when the block ends without an error."""
        self.remove_abandoned()
        before, after = self.current, self._folder / f"shard-{token_hex(4)}"
        copy_folder(before, after)
        yield after
        record = _read_record(self._folder)
        _write_record(self._folder, record["name"], after.name)
        sync_folder(self._folder)
        shutil.rmtree(before)

    def remove_abandoned(self) -> None:
        """Remove copies that an interrupted process left."""
        current = self.current
        for path in self._folder.glob("shard-*"):
            if path != current:
                shutil.rmtree(path)


class CollectionLock:
    """The lock of a collection's folder: shared by readers, or of one writer. The system releases it at the end."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / LOCK
        self._file: int | None = None

    def acquire(self, *, exclusive: bool, wait_s: float = LOCK_WAIT_S) -> None:
        """Lock, or lock otherwise than before; raise `LockedError` if another process does not let go in time."""
        if self._file is None:
            flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
            self._file = os.open(self._path, flags, 0o600)
        file, how = self._file, fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH

        def lock() -> None:
            try:
                fcntl.flock(file, how | fcntl.LOCK_NB)
            except BlockingIOError:
                raise LockedError from None

        _wait_for(lock, wait_s)

    def release(self) -> None:
        """Unlock."""
        if self._file is not None:
            os.close(self._file)
            self._file = None


class Journal:
    """The write that is under way in a collection, on disk before it begins and until it is complete."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._path = folder / JOURNAL

    def exists(self) -> bool:
        """Whether a write was interrupted, or is under way."""
        return self._path.exists()

    def read_points(self) -> list[dict[str, Any]]:
        """Return the points of the interrupted write."""
        try:
            points: list[dict[str, Any]] = json.loads(self._path.read_bytes())
            if all({"id", "vector", "payload"} <= point.keys() for point in points):
                return points
        except (ValueError, TypeError, AttributeError):
            pass
        raise InvalidParameterError(f"data folder: {self._path} is damaged; remove {self._folder} and load it again")

    @contextmanager
    def recording(self, write: bytes) -> Iterator[None]:
        """Record a write for the duration of the block; an error leaves the record."""
        with replace_file(self._path) as file:
            file.write(write)
        sync_folder(self._folder)
        yield
        self.clear()

    def clear(self) -> None:
        """Forget the write, which is complete."""
        self._path.unlink()
        sync_folder(self._folder)


def sync_folder(folder: Path) -> None:
    """Put the names in a folder on disk."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def allocated_bytes(folder: Path) -> int:
    """Return how many bytes the files of a folder take on disk."""
    return sum(path.stat().st_blocks * 512 for path in folder.rglob("*") if path.is_file())


def hole_bytes(folder: Path) -> int:
    """Return how many more bytes the files of a folder would take without their holes."""
    files = [path.stat() for path in folder.rglob("*") if path.is_file()]
    return sum(max(0, file.st_size - file.st_blocks * 512) for file in files)


def check_space(folder: Path, needed: int) -> None:
    """Raise `OSError` on a nearly full disk: the engine maps its files, and a failed write ends the process."""
    if shutil.disk_usage(folder).free < needed:
        raise OSError(ENOSPC, os.strerror(ENOSPC), str(folder))


def copy_folder(source: Path, target: Path) -> None:
    """Copy a folder without the holes of its files: the engine's are made of large pages that are mostly empty."""
    shutil.copytree(source, target, copy_function=_copy_sparse)


def data_ranges(file: int) -> Iterator[tuple[int, int]]:
    """Yield the ranges of an open file that are not holes."""
    offset, size = 0, os.fstat(file).st_size
    while offset < size:
        try:
            start = os.lseek(file, offset, os.SEEK_DATA)
        except OSError as error:
            if error.errno != ENXIO:  # a file system without holes; otherwise only a hole is left
                yield offset, size
            return
        offset = os.lseek(file, start, os.SEEK_HOLE)
        yield start, offset


def _copy_sparse(source: str, target: str) -> None:
    with open(source, "rb") as read, open(target, "xb") as write:  # noqa: PTH123 - called by shutil with strings
        write.truncate(os.fstat(read.fileno()).st_size)
        for start, end in data_ranges(read.fileno()):
            for offset in range(start, end, COPY_BYTES):
                data = os.pread(read.fileno(), min(COPY_BYTES, end - offset), offset)
                os.pwrite(write.fileno(), data, offset)


def _read_record(folder: Path) -> dict[str, Any]:
    record: dict[str, Any] = json.loads((folder / RECORD).read_bytes())
    return record


def _write_record(folder: Path, collection: str, shard: str, points: int | None = None) -> None:
    known = {} if points is None else {"points": points}
    write_file(folder / RECORD, json.dumps({"format": FORMAT, "name": collection, "shard": shard, **known}))


def _folder_name(collection: str) -> str:
    """Return a name that every file system can hold: the collection's own if it is plain, else one with a hash."""
    if _PLAIN_NAME.fullmatch(collection):
        return collection
    plain = re.sub(r"[^a-z0-9_-]", "-", collection.lower())[:60]
    return f"{plain}~{sha256(collection.encode()).hexdigest()[:16]}"


def _read_name(path: Path) -> str | None:
    if path.name.startswith("."):
        return None
    try:
        found = (path / RECORD).lstat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    if not stat.S_ISREG(found.st_mode) or found.st_size > MAX_RECORD_BYTES:
        raise _damaged(path)
    try:
        record = json.loads((path / RECORD).read_bytes())
    except ValueError:
        record = None
    if not isinstance(record, dict) or not isinstance(record.get("name"), str):
        raise _damaged(path)
    if record.get("format") != FORMAT:
        raise InvalidParameterError(
            f"data folder: {path} was written by another version of Chunkproof (format {record.get('format')})"
        )
    return str(record["name"])


def _damaged(folder: Path) -> InvalidParameterError:
    return InvalidParameterError(f"data folder: {folder / RECORD} is damaged; remove {folder} and load it again")


def _check_owner(folder: Path, path: Path, *, is_folder: bool = True) -> None:
    """Refuse a folder or file whose content another user may have made or can change."""
    try:
        found = path.lstat()
    except FileNotFoundError:
        return
    if not (stat.S_ISDIR(found.st_mode) if is_folder else stat.S_ISREG(found.st_mode)):
        problem = f"{path} is not a {'folder' if is_folder else 'file'}"
    elif found.st_uid != os.geteuid():
        problem = f"{path} belongs to another user; if you trust its content, make it yours with chown"
    elif found.st_mode & 0o022:
        problem = f"other users can write to {path}; if you trust its content, run: chmod -R go-w {folder}"
    else:
        return
    raise InvalidParameterError(f"data folder {folder} is not opened: {problem}")


def _wait_for(lock: Callable[[], object], seconds: float) -> None:
    """Try to lock for so long; raise `LockedError` if another process does not let go."""
    end = monotonic() + seconds
    while True:
        try:
            lock()
        except LockedError:
            if monotonic() >= end:
                raise
            sleep(_STEP_S)
        else:
            return
