"""Collections published to a bucket, as files that a function fetches instead of asking a server.

    parts/SHA256              a piece of a file, under its own hash: never changed, and shared by versions
    versions/SHA256.json      the files of one version of a collection, under the hash of this list
    collections/NAME.json     the version in force: replaced in one step, and the last thing that is written

A function that reads a collection therefore sees one version or another, never parts of two.
"""

import fcntl
import json
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path, PurePosixPath
from secrets import token_hex
from time import sleep
from typing import Annotated
from urllib.parse import quote, unquote

from pydantic import Field, TypeAdapter

from chunkproof.base import errors
from chunkproof.base.files import make_private_folder
from chunkproof.net.s3 import Bucket, NoBucketError, ObjectStoreError, map_in_parallel
from chunkproof.stores.edge_folder import data_ranges

FORMAT = 1
# Large enough that requests do not count, small enough that sixteen at a time share the bandwidth.
PART_BYTES = 8 << 20
EARLIER_VERSIONS = 20
# The list of files, beside the fetched files: the next version reuses what did not change.
PARTS_FILE = ".version.json"
# The folders of what is being fetched.
PARTIAL = ".*.part"
COLLECTIONS, VERSIONS, SUFFIX = "collections/", "versions/", ".json"
# A part that could not be read is requested again after a pause, which doubles.
PART_ATTEMPTS = 4
PAUSE_S = 0.2
AGAIN = "publish the collection again"
Progress = Callable[[int], None]
Size = Annotated[int, Field(ge=0)]
Digest = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]


class DamagedVersionError(errors.CorruptChunkError):
    """What was fetched is not what was published."""


@dataclass(frozen=True, slots=True)
class Part:
    """A piece of a file; what lies between pieces is empty."""

    offset: Size
    length: Size
    sha256: Digest


@dataclass(frozen=True, slots=True)
class PublishedFile:
    """A file of a collection's folder."""

    path: str
    size: Size
    parts: tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class Version:
    """The files of one version of a collection."""

    collection: str
    points: Size
    files: tuple[PublishedFile, ...]

    def to_json(self) -> bytes:
        """Return the list of files, always the same bytes for the same files."""
        return json.dumps({"format": FORMAT, **asdict(self)}, sort_keys=True, separators=(",", ":")).encode()

    @property
    def digest(self) -> str:
        """The version's name: the hash of its list of files."""
        return sha256(self.to_json()).hexdigest()

    @property
    def stored_bytes(self) -> int:
        """Bytes to fetch, and to keep on disk."""
        return sum(part.length for part in self.parts)

    @property
    def parts(self) -> Iterator[Part]:
        """The parts of all files."""
        return (part for file in self.files for part in file.parts)

    @classmethod
    def from_json(cls, content: bytes) -> "Version":
        """Read a list of files; a path may not lead out of the folder."""
        try:
            if (published := json.loads(content).get("format")) == FORMAT:
                version = TypeAdapter(cls).validate_json(content)
        except (ValueError, AttributeError, RecursionError):
            raise DamagedVersionError(f"A published list of files is damaged: {AGAIN}") from None
        if published != FORMAT:
            raise errors.InvalidParameterError(
                "The collection was published by another version of Chunkproof: update this one"
            )
        for file in version.files:
            if file.size >= 1 << 50 or any(part.offset + part.length > file.size for part in file.parts):
                raise DamagedVersionError(f"A published list of files is damaged: {AGAIN}")
            if PurePosixPath(file.path).is_absolute() or ".." in PurePosixPath(file.path).parts or "\0" in file.path:
                raise DamagedVersionError(f"A published path leads out of its folder: {file.path!r}")
        return version


@dataclass(frozen=True, slots=True)
class Pointer:
    """Which version of a collection is in force, and which were before, latest first.

    `later` are the versions that a roll-back took out of force, the last one first.
    """

    version: Digest
    published_at: str
    earlier: tuple[Digest, ...] = ()
    later: tuple[Digest, ...] = ()

    @property
    def versions(self) -> tuple[str, ...]:
        """All versions that can be put in force."""
        return tuple(dict.fromkeys((self.version, *self.earlier, *self.later)))


@dataclass(frozen=True, slots=True)
class Pruned:
    """Which versions are left, which were deleted, and the bytes of the parts that were deleted with them."""

    kept: tuple[str, ...]
    deleted: tuple[str, ...]
    bytes: int


def list_version(folder: Path, paths: Iterable[Path], collection: str, points: int) -> Version:
    """List these files of a folder, in parts; holes and zeros are left out."""
    files = tuple(
        PublishedFile(path.relative_to(folder).as_posix(), path.stat().st_size, tuple(_list_parts(path)))
        for path in sorted(paths)
    )
    return Version(collection, points, files)


def _list_parts(path: Path) -> Iterator[Part]:
    with path.open("rb") as file:
        for start, end in data_ranges(file.fileno()):  # the engine's files are large pages that are mostly empty
            for offset in range(start, end, PART_BYTES):
                data = os.pread(file.fileno(), min(PART_BYTES, end - offset), offset)
                if data.strip(b"\0"):
                    yield Part(offset, len(data), sha256(data).hexdigest())


@dataclass(frozen=True)
class PublishedCollections:
    """The published collections of one bucket."""

    bucket: Bucket

    def names(self) -> list[str]:
        """Return the names of all collections, sorted."""
        keys = self.bucket.list_keys(COLLECTIONS)
        return sorted(unquote(key.removeprefix(COLLECTIONS).removesuffix(SUFFIX)) for key in keys)

    def pointer(self, collection: str) -> Pointer:
        """Return which version is in force."""
        try:
            return TypeAdapter(Pointer).validate_json(self.bucket.read(_pointer_key(collection)))
        except NoBucketError:
            raise
        except errors.NotFoundError:
            raise errors.CollectionNotFoundError(collection) from None
        except ValueError:
            raise DamagedVersionError(f"The pointer of {collection} does not name a version: {AGAIN}") from None

    def version(self, digest: str) -> Version:
        """Return the files of a version; the list itself is checked against its hash."""
        try:
            content = self.bucket.read(_version_key(digest))
        except errors.NotFoundError:
            raise DamagedVersionError(f"The list of files of version {digest[:12]} is missing: {AGAIN}") from None
        if sha256(content).hexdigest() != digest:
            raise DamagedVersionError(f"The list of files of version {digest[:12]} was changed after it was published")
        return Version.from_json(content)

    def publish(self, folder: Path, version: Version, on_bytes: Progress) -> Pointer:
        """Upload what the bucket lacks, then put the version in force."""
        wanted = {part.sha256: (file.path, part) for file in version.files for part in file.parts}

        def upload(item: tuple[str, Part]) -> int:
            path, part = item
            key = _part_key(part.sha256)
            if self.bucket.sha256_of(key) != part.sha256:  # it is missing, or is not what was published
                with (folder / path).open("rb") as file:
                    data = os.pread(file.fileno(), part.length, part.offset)
                if sha256(data).hexdigest() != part.sha256:
                    raise errors.InvalidParameterError(f"{path} was changed while it was published: publish it again")
                self.bucket.write(key, data, with_checksum=True)
            return part.length

        for length in map_in_parallel(upload, wanted.values()):
            on_bytes(length)
        self.bucket.write(_version_key(version.digest), version.to_json())
        return self.point_to(version.collection, version.digest)

    def point_to(self, collection: str, digest: str) -> Pointer:
        """Put a version in force: one object, replaced in one step."""
        try:
            before: Pointer | None = self.pointer(collection)
        except (errors.CollectionNotFoundError, DamagedVersionError):
            before = None
        past = () if before is None else before.versions
        return self._write_pointer(collection, digest, tuple(one for one in past if one != digest))

    def roll_back(self, collection: str) -> Pointer:
        """Put the version before the current one in force; the next roll-back goes one further back."""
        before = self.pointer(collection)
        if not before.earlier:
            raise errors.InvalidParameterError(f"Collection {collection} has no version before {before.version[:12]}")
        digest = self.version(before.earlier[0]).digest
        return self._write_pointer(collection, digest, before.earlier[1:], (before.version, *before.later))

    def _write_pointer(
        self, collection: str, digest: str, earlier: tuple[str, ...], later: tuple[str, ...] = (), since: str = ""
    ) -> Pointer:
        now = since or datetime.now(UTC).isoformat(timespec="seconds")
        pointer = Pointer(digest, now, earlier[:EARLIER_VERSIONS], later[:EARLIER_VERSIONS])
        self.bucket.write(_pointer_key(collection), json.dumps(asdict(pointer)).encode())
        return pointer

    def prune(self, collection: str, keep: int) -> "Pruned":
        """Delete all versions but the one in force and those before it, with the parts that no version has.

        What was pruned can no longer be put in force. An interrupted one is completed by the next: lists of files are
        deleted last.
        """
        pointer = self.pointer(collection)
        kept = pointer.versions[:keep]
        keys = self.bucket.list_keys(VERSIONS)
        lists = map_in_parallel(self.version, (key.removeprefix(VERSIONS).removesuffix(SUFFIX) for key in keys))
        versions = {version.digest: version for version in lists}
        gone = [one for one, version in versions.items() if version.collection == collection and one not in kept]
        used = {part.sha256 for one, version in versions.items() if one not in gone for part in version.parts}
        parts = {part.sha256: part.length for one in gone for part in versions[one].parts if part.sha256 not in used}
        earlier, later = (tuple(one for one in past if one in kept) for past in (pointer.earlier, pointer.later))
        self._write_pointer(collection, pointer.version, earlier, later, pointer.published_at)
        for deleted in (map(_part_key, parts), map(_version_key, gone)):
            for _ in map_in_parallel(self.bucket.delete, deleted):
                pass
        return Pruned(kept, tuple(gone), sum(parts.values()))

    def find_version(self, collection: str, prefix: str) -> Version:
        """Return the version whose hash begins with this, among those that are or were in force."""
        pointer = self.pointer(collection)
        found = [one for one in pointer.versions if one.startswith(prefix)]
        if len(found) != 1:
            known = ", ".join(one[:12] for one in pointer.versions)
            raise errors.InvalidParameterError(f"{prefix} is not one version of {collection}: they are {known}")
        return self.version(found[0])

    def fetch(self, version: Version, target: Path, reuse: Path | None = None) -> None:
        """Fetch a version into a folder that appears when all of it is there and checked.

        Parts that another version already has on this machine, in `reuse`, are copied instead of fetched. What a fetch
        that failed has finished stays on disk, and the next one of the same version goes on from there.
        """
        make_private_folder(target.parent)
        with _partial_folder(target, version) as partial:
            for file in version.files:
                path = partial / file.path
                make_private_folder(path.parent)
                path.touch(mode=0o600)
                os.truncate(path, file.size)
            present = _index_parts(reuse) if reuse is not None else {}
            work = [(partial / file.path, part) for file in version.files for part in file.parts]
            try:
                for _ in map_in_parallel(lambda item: self._write_part(*item, present), work):
                    pass
            except DamagedVersionError:  # it will never be complete
                shutil.rmtree(partial, ignore_errors=True)
                raise
            try:
                partial.replace(target)
            except OSError:
                if not target.is_dir():  # another one fetched the same version at the same time, and was faster
                    raise
                shutil.rmtree(partial, ignore_errors=True)

    def _write_part(self, path: Path, part: Part, present: dict[str, tuple[Path, Part]]) -> None:
        if _read_part(path, part) is not None:
            return  # an earlier fetch finished it
        data = _read_part(*present[part.sha256]) if part.sha256 in present else None
        data = data or self._fetch_part(path.name, part)
        with path.open("r+b") as file:
            os.pwrite(file.fileno(), data, part.offset)

    def _fetch_part(self, name: str, part: Part) -> bytes:
        """Fetch a part; repeat that if the transfer breaks, or ends in other bytes than were published."""
        for attempt in range(PART_ATTEMPTS):
            if attempt:
                sleep(PAUSE_S * 2 ** (attempt - 1))
            try:
                data = self.bucket.read(_part_key(part.sha256))
            except errors.NotFoundError:
                raise DamagedVersionError(f"A part of {name} is missing: {AGAIN}") from None
            except ObjectStoreError as error:
                if error.is_misconfigured or attempt == PART_ATTEMPTS - 1:
                    raise
                continue
            if sha256(data).hexdigest() == part.sha256:
                return data
        raise DamagedVersionError(f"A part of {name} is not what was published: {AGAIN}")


@dataclass(frozen=True)
class PinnedCollections(PublishedCollections):
    """The same collections at certain versions, whichever are in force; others do not belong to them."""

    versions: Mapping[str, str]

    def names(self) -> list[str]:
        """Return the names of the collections that have a version here, sorted."""
        return sorted(self.versions)

    def pointer(self, collection: str) -> Pointer:
        """Return the version that was chosen."""
        if collection not in self.versions:
            raise errors.InvalidParameterError(
                f"The run began without a published version of {collection}: start it again"
            )
        return Pointer(self.versions[collection], "")


def _index_parts(folder: Path) -> dict[str, tuple[Path, Part]]:
    """Return where each part of a fetched version is on this machine."""
    version = _read_list(folder)
    return {
        part.sha256: (folder / file.path, part) for file in (version.files if version else ()) for part in file.parts
    }


def _read_list(folder: Path) -> Version | None:
    try:
        return Version.from_json((folder / PARTS_FILE).read_bytes())
    except (OSError, errors.ChunkproofError):
        return None


def _read_part(path: Path, part: Part) -> bytes | None:
    """Return a part of a file on this machine; None if the file does not have it."""
    try:
        with path.open("rb") as file:
            data = os.pread(file.fileno(), part.length, part.offset)
    except OSError:
        return None
    return data if sha256(data).hexdigest() == part.sha256 else None


@contextmanager
def _partial_folder(target: Path, version: Version) -> Iterator[Path]:
    """Return a locked folder for a fetch: a folder that an interrupted fetch left, or a new one."""
    with ExitStack() as locks:
        for partial in target.parent.glob(PARTIAL):
            if _lock(partial, locks):
                if _read_list(partial) == version:
                    break
                shutil.rmtree(partial, ignore_errors=True)
        else:
            partial = _make_partial(target, locks)
            (partial / PARTS_FILE).write_bytes(version.to_json())
        yield partial


def _make_partial(target: Path, locks: ExitStack) -> Path:
    """Make a locked folder; before it is locked, another fetch may take it for an abandoned one and remove it."""
    while True:
        partial = target.with_name(f".{token_hex(8)}.part")
        make_private_folder(partial)
        if _lock(partial, locks) and partial.is_dir():
            return partial


def remove_partial(folder: Path) -> None:
    """Remove what interrupted fetches left in a folder; one that another process or thread fills stays."""
    with suppress(FileNotFoundError):  # another fetch ended, and its folder is gone
        for partial in folder.rglob(PARTIAL):
            with ExitStack() as locks:
                if _lock(partial, locks):
                    shutil.rmtree(partial, ignore_errors=True)


def _lock(partial: Path, locks: ExitStack) -> bool:
    try:
        file = locks.enter_context((partial / PARTS_FILE).open("ab"))
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _part_key(digest: str) -> str:
    return f"parts/{digest}"


def _version_key(digest: str) -> str:
    return f"{VERSIONS}{digest}{SUFFIX}"


def _pointer_key(collection: str) -> str:
    return f"{COLLECTIONS}{quote(collection, safe='')}{SUFFIX}"
