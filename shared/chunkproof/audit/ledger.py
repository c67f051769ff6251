"""The ledger of an audit: one SQLite file with the manifest, what else was read, and the findings.

Rows have a state, and everything between two calls of `save` is one transaction, which also holds how far the audit
has read. So a process that is killed at any moment leaves the ledger as of its last `save`, and to resume is a query.

    entry      the lines of the manifest as they were written
    chunk      its chunks, one row for each id, in the order in which a scan returns points
    stray      stored points whose ids the manifest does not expect there
    finding    what is wrong
    progress   one row: what is audited, and how far the audit is
"""

import errno
import os
import resource
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from datetime import UTC, datetime
from enum import IntEnum
from hashlib import sha256
from itertools import groupby
from json.encoder import encode_basestring_ascii
from pathlib import Path
from secrets import token_hex
from typing import Any, Literal, NamedTuple, Self

from pydantic import Field, ValidationError
from pydantic_core import from_json, to_json

from chunkproof.audit.manifest_file import Entry, check_lines, parse_checked_line
from chunkproof.base.errors import InvalidParameterError
from chunkproof.contract import Model
from chunkproof.stores.store_port import PointId

LEDGER_FILE = "ledger.sqlite"
# A ledger that has no audit yet: without a journal, a kill would leave it damaged.
PREPARED_FILE = "ledger.new"
LEDGER_FILES = (LEDGER_FILE, *(f"{LEDGER_FILE}-{end}" for end in ("journal", "wal", "shm")), PREPARED_FILE)
# Each step of a query lets the read-ahead thread run for milliseconds: few, large reads are faster.
ROWS_AT_A_TIME = 1_000
_TABLES = """
CREATE TABLE entry (id INTEGER PRIMARY KEY, point TEXT, chunk_id TEXT, sha256 BLOB, metadata BLOB, line BLOB);
CREATE TABLE chunk (
    id INTEGER PRIMARY KEY, point TEXT, chunk_id TEXT, conflict INTEGER, sha256 BLOB, metadata BLOB, entry INTEGER,
    moved_to TEXT, state INTEGER
);
CREATE TABLE stray (
    id INTEGER PRIMARY KEY, point TEXT, chunk_id TEXT, claimed INTEGER, sha256 BLOB, source TEXT, state INTEGER
);
CREATE TABLE finding (id INTEGER PRIMARY KEY, chunk_id TEXT, kind TEXT, sort_key TEXT, content TEXT);
CREATE TABLE progress (process TEXT, content TEXT);
"""
_COLUMNS = "chunk.id, chunk.point, chunk.chunk_id, conflict, sha256, metadata, moved_to"


class ChunkState(IntEnum):
    """What is known about a chunk of the manifest that was read; most are stored, and keep this state."""

    STORED = 0
    ABSENT = 1  # not on its expected point; it may be on another one
    REPEATED = 2  # on its expected point, and on others
    MISSING = 3  # no point has its id; its text may be stored under another id
    FAULTY = 4  # a finding says what is wrong


class StrayState(IntEnum):
    """What is known about a point whose id the manifest does not expect there."""

    READ = 0
    UNKNOWN = 1  # the manifest does not have its id
    UNCLAIMED = 2  # and its text may be that of a chunk
    RESOLVED = 3


class ExpectedChunk(NamedTuple):
    """A chunk of the manifest; `conflict` when the manifest has it twice with different content.

    What every comparison needs has a column of its own. The entry is read and parsed only where more is needed.
    """

    ledger: "Ledger"
    id: int
    key: str
    chunk_id: str
    conflict: int
    hashed: bytes
    packed_metadata: bytes | None
    moved_to: str | None

    @property
    def point_id(self) -> PointId:
        """The point that it is expected on, or was found on by its text, under another id."""
        return parse_point_key(self.moved_to or self.key)

    @property
    def sha256(self) -> str:
        """The SHA-256 of the text; empty where it is unknown."""
        return self.hashed.hex()

    @property
    def metadata(self) -> Mapping[str, Any]:
        """The fields to compare."""
        return from_json(self.packed_metadata) if self.packed_metadata else {}

    @property
    def entry(self) -> Entry:
        """The whole entry, read and parsed again."""
        return self.ledger.read_entry(self.id)


class AuditPlan(Model):
    """How to audit: by ids or by a complete scan, the sample size, the number of vectors to check (0: all).

    Chunks whose ids are not stored are matched by their text, unless `match_by` is `id`. `near_duplicates` is the
    similarity from which two stored texts are reported. With `all_metadata`, stored fields that the manifest does not
    name are differences too.
    """

    by_ids: bool = False
    sample: int | None = None
    vectors: int | None = None
    match_by: Literal["text", "id"] = "text"
    near_duplicates: float | None = None
    all_metadata: bool = False

    @property
    def is_by_ids(self) -> bool:
        """Whether only the chunks of the manifest, or of the sample, are read."""
        return self.by_ids or self.sample is not None


class ManifestFacts(Model):
    """The manifest: entries are its lines, chunks the different ids."""

    name: str
    sha256: str
    entries: int
    chunks: int
    repeated: int = Field(description="Entries beyond the first one of their chunk")
    presence_only: int = Field(
        0, description="Chunks whose text the manifest does not know: only their ids are compared"
    )


class AuditSpec(AuditPlan):
    """What is audited, and how; an audit can be resumed only with the same."""

    collection: str
    host: str
    manifest: ManifestFacts
    model: str | None = None
    version: str | None = None

    @property
    def audited(self) -> int:
        """Chunks to judge: the whole manifest, or the sample."""
        return min(self.sample or self.manifest.chunks, self.manifest.chunks)


class MatchFacts(Model):
    """How the chunks of the manifest were found, and how often texts are stored."""

    by_id: int
    by_text: int = Field(description="No point has their id; a point with the same text does")
    by_nearest_text: int = Field(description="Neither id nor text is stored; they are compared with the nearest text")
    repeated_texts: int = Field(description="Texts that several points have")
    extra_points: int = Field(description="Points beyond the first one of each text")


class Progress(Model):
    """How far an audit is: it reads the collection, checks vectors, and writes its report."""

    spec: AuditSpec
    process: str = Field(default_factory=lambda: token_hex(8), description="Which process writes this ledger")
    phase: Literal["read", "vectors", "report"] = "read"
    started_at: datetime = Field(default_factory=lambda: datetime.now(UTC))
    read_at: datetime = Field(default_factory=lambda: datetime.now(UTC))
    compared: int = 0
    points: int = 0
    changed: int = 0
    matching: MatchFacts | None = None
    vectors_ok: int = 0
    vector_names: tuple[str, ...] = ()
    vectors_not_compared: tuple[str, ...] = ()
    vectors_checked: int = 0
    vectors_position: int = 0
    vectors_earlier: int = 0
    same_from: float | None = None
    seconds: float = 0.0
    reading_seconds: float = 0.0
    resumed: int = 0


class Ledger:
    """The file of one audit. On a full disk every method raises `OSError`."""

    def __init__(self, path: Path, journal: str) -> None:
        self.manifest: ManifestFacts
        self.progress: Progress
        self._open(path, journal)

    def _open(self, path: Path, journal: str) -> None:
        self.path = path
        # Sorting takes as much space as the table: it belongs on the disk that the user chose.
        folder = str(path.parent).replace("'", "''")
        with _disk_errors(self.path):
            self._db = sqlite3.connect(path, isolation_level=None)
            self._db.executescript(
                f"PRAGMA journal_mode={journal}; PRAGMA synchronous=OFF; PRAGMA temp_store_directory='{folder}'; BEGIN"
            )
        self._file = path.stat()

    @classmethod
    def create(cls, folder: Path) -> Self:
        """Create an empty ledger."""
        (folder / PREPARED_FILE).unlink(missing_ok=True)
        ledger = cls(folder / PREPARED_FILE, "OFF")
        for statement in _TABLES.split(";\n"):
            ledger.execute(statement)
        return ledger

    def start(self, progress: Progress) -> None:
        """Begin the audit: from now on, the ledger can be resumed."""
        path, self.progress = self.path.with_name(LEDGER_FILE), progress
        self.execute("INSERT INTO progress VALUES (?, ?)", progress.process, progress.to_json())
        self.commit()
        self.close()
        for name in LEDGER_FILES[:-1]:  # of an audit that was stopped while it removed them
            path.with_name(name).unlink(missing_ok=True)
        self.path.rename(path)
        self._open(path, "WAL")

    @classmethod
    def resume(cls, folder: Path, progress: Progress) -> Self:
        """Open the ledger of an interrupted audit, which belongs to this process from now on."""
        ledger = cls(folder / LEDGER_FILE, "WAL")
        ledger.progress, ledger.manifest = progress, progress.spec.manifest
        ledger.execute("UPDATE progress SET process = ?, content = ?", progress.process, progress.to_json())
        ledger.commit()
        return ledger

    def forget(self, kept: Iterable[str]) -> None:
        """Forget what was read and all findings but those of some kinds, so that the collection is read again."""
        kinds = tuple(kept)
        marks = ", ".join("?" * len(kinds))
        self.execute(f"DELETE FROM finding WHERE kind NOT IN ({marks})", *kinds)  # noqa: S608 - question marks
        self.execute("DELETE FROM stray")
        self.execute("UPDATE chunk SET state = ?, moved_to = NULL", ChunkState.STORED)
        again = {"phase": "read", "compared": 0, "points": 0, "changed": 0, "matching": None}
        now = {"read_at": datetime.now(UTC), "vectors_earlier": self.progress.vectors_checked}
        self.save(self.progress.model_copy(update={**again, **now}))

    def save(self, progress: Progress) -> None:
        """Keep everything so far, and the progress with it; refuse if the ledger is not this process's own any more."""
        sql = "UPDATE progress SET content = ? WHERE process = ?"
        is_same = self.path.exists() and os.path.samestat(self.path.stat(), self._file)
        if not is_same or not self.execute(sql, progress.to_json(), progress.process).rowcount:
            raise InvalidParameterError(
                f"{self.path.parent} was removed or taken over by another audit while this one ran: "
                "start again, with a folder of its own (--state)"
            )
        self.commit()
        self.progress = progress

    def commit(self) -> None:
        """Keep everything so far, and begin the next transaction."""
        self.execute("COMMIT")
        self.execute("BEGIN")

    def close(self) -> None:
        """Close the file; what was not saved is lost."""
        with suppress(sqlite3.Error):
            self._db.close()

    def execute(self, sql: str, *values: Any) -> sqlite3.Cursor:
        """Run one statement."""
        with _disk_errors(self.path):
            return self._db.execute(sql, values)

    def add_rows(self, sql: str, rows: Iterable[tuple[Any, ...]]) -> int:
        """Run one statement for each row; return how many there were."""
        with _disk_errors(self.path):
            return self._db.executemany(sql, rows).rowcount

    def rows(self, sql: str, *values: Any) -> Iterator[tuple[Any, ...]]:
        """Yield the rows of a query."""
        cursor = self.execute(sql, *values)
        while True:
            with _disk_errors(self.path):
                rows = cursor.fetchmany(ROWS_AT_A_TIME)
            if not rows:
                return
            yield from rows

    def count(self, sql: str, *values: Any) -> int:
        """Return the number that a query gives."""
        return int(next(self.rows(sql, *values))[0])

    def define(self, name: str, function: Callable[..., Any]) -> None:
        """Let SQL call a function of one argument, which always gives the same for the same."""
        self._db.create_function(name, 1, function, deterministic=True)

    def read(self, after: int = 0, where: str = "TRUE") -> Iterator[ExpectedChunk]:
        """Yield the chunks beyond this one, in the order of their points; rows may be changed meanwhile."""
        sql = f"SELECT {_COLUMNS} FROM chunk WHERE id > ? AND {where} ORDER BY id LIMIT {ROWS_AT_A_TIME}"  # noqa: S608
        while rows := list(self.rows(sql, after)):
            for row in rows:
                yield ExpectedChunk._make((self, *row))
            after = rows[-1][0]

    def read_chunk(self, chunk: int) -> ExpectedChunk:
        """Read one chunk by its row."""
        row = next(self.rows(f"SELECT {_COLUMNS} FROM chunk WHERE id = ?", chunk))  # noqa: S608 - a constant
        return ExpectedChunk(self, *row)

    def read_entry(self, chunk: int) -> Entry:
        """Read the entry of a chunk from the manifest."""
        sql = "SELECT line FROM entry WHERE id = (SELECT entry FROM chunk WHERE id = ?)"
        return parse_checked_line(next(self.rows(sql, chunk))[0])

    def mark(self, chunk: ExpectedChunk, state: ChunkState) -> None:
        """Change the state of a chunk."""
        self.execute("UPDATE chunk SET state = ? WHERE id = ?", state, chunk.id)

    def draw(self, size: int, name: str) -> str:
        """Draw chunks by a hash of their ids, the same ones every time; return the condition that selects them."""
        if size >= self.manifest.chunks:
            return "TRUE"
        self.define("draw_number", lambda chunk_id: sha256(encode_id(chunk_id).encode()).digest()[:12])
        self.execute(f"CREATE TEMP TABLE drawn_{name} (id INTEGER PRIMARY KEY)")
        sql = "SELECT id FROM chunk ORDER BY draw_number(chunk_id) LIMIT ?"
        self.execute(f"INSERT INTO drawn_{name} {sql}", size)
        return f"id IN drawn_{name}"


def prepare(
    lines: Iterable[bytes], name: str, folder: Path, on_read: Callable[[int], None] = lambda _bytes: None
) -> Ledger:
    """Check the manifest on these lines and sort it; raise `InvalidParameterError` with all wrong lines."""
    ledger, hashed = Ledger.create(folder), sha256()

    def hash_lines() -> Iterator[bytes]:
        for line in lines:
            hashed.update(line)
            on_read(len(line))
            yield line

    def make_rows() -> Iterator[tuple[Any, ...]]:
        for entry, line in check_lines(hash_lines(), name):
            metadata = to_json(entry.metadata) if entry.metadata else None
            digest = bytes.fromhex(entry.sha256)
            yield point_key(entry.expected_point_id), entry.chunk_id, digest, metadata, line

    try:
        sql = "INSERT INTO entry (point, chunk_id, sha256, metadata, line) VALUES (?, ?, ?, ?, ?)"
        entries = ledger.add_rows(sql, make_rows())
        ledger.execute(
            "INSERT INTO chunk (point, chunk_id, conflict, sha256, metadata, entry, state) "
            "SELECT point, chunk_id, 0, sha256, metadata, id, ? FROM entry ORDER BY point, chunk_id",
            ChunkState.STORED,
        )
        ledger.execute("CREATE INDEX chunk_by_id ON chunk (chunk_id)")
        repeated = _merge_repeated(ledger)
        unknown = ledger.count("SELECT count(*) FROM chunk WHERE sha256 = x''")
        ledger.commit()
    except BaseException:
        ledger.close()
        ledger.path.unlink(missing_ok=True)
        raise
    ledger.manifest = ManifestFacts(
        name=name,
        sha256=hashed.hexdigest(),
        entries=entries,
        chunks=entries - repeated,
        repeated=repeated,
        presence_only=unknown,
    )
    return ledger


def _merge_repeated(ledger: Ledger) -> int:
    """Keep one row for each chunk id, marked as a conflict where its entries differ; return how many are removed."""
    repeated = "SELECT chunk_id FROM chunk GROUP BY chunk_id HAVING count(*) > 1"
    rows = ledger.rows(
        f"SELECT chunk_id, chunk.id FROM chunk WHERE chunk_id IN ({repeated}) "  # noqa: S608 - a constant
        "ORDER BY chunk_id, point, sha256, metadata, (SELECT line FROM entry WHERE entry.id = chunk.entry)"
    )
    removed = 0
    for _, of_id in groupby(rows, key=lambda row: row[0]):
        kept: tuple[int, Entry] | None = None
        for _, chunk in of_id:
            entry = ledger.read_entry(chunk)
            if kept is None:
                kept = chunk, entry
                continue
            if not kept[1].has_same_content_as(entry):
                ledger.execute("UPDATE chunk SET conflict = 1 WHERE id = ?", kept[0])
            ledger.execute("DELETE FROM chunk WHERE id = ?", chunk)
            removed += 1
    return removed


def load_progress(folder: Path) -> Progress | None:
    """Load the progress of an interrupted audit; None when there is none."""
    path = folder / LEDGER_FILE
    if not path.is_file():
        return None
    try:
        with closing(sqlite3.connect(path)) as db:
            content = db.execute("SELECT content FROM progress").fetchone()[0]
        return Progress.model_validate(from_json(content), strict=False)
    except (sqlite3.DatabaseError, ValidationError, ValueError, TypeError):
        raise InvalidParameterError(f"{path} is not the state of an audit: start again with --restart") from None


class SortedRows:
    """Sorts any number of rows in constant memory, by their keys and then by themselves."""

    def __init__(self) -> None:
        # Without a name, the file is in the system's folder for temporary files, and gone when it is closed.
        self._db = sqlite3.connect("", isolation_level=None)
        self._db.executescript("PRAGMA journal_mode=OFF; CREATE TABLE row (key TEXT, content BLOB); BEGIN")
        self.count = 0

    def add(self, key: str, content: bytes) -> None:
        """Add one row."""
        with _disk_errors():
            self._db.execute("INSERT INTO row VALUES (?, ?)", (key, content))
        self.count += 1

    def __iter__(self) -> Iterator[tuple[str, bytes]]:
        """Yield all rows in order, once."""
        with closing(self._db) as db, _disk_errors():
            yield from db.execute("SELECT key, content FROM row ORDER BY key, content")


@contextmanager
def _disk_errors(path: Path | None = None) -> Iterator[None]:
    """Raise what a caller expects: an error of the disk, or of a file that is no ledger of this audit any more."""
    try:
        yield
    except sqlite3.DatabaseError as error:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
            raise InvalidParameterError(
                f"{path} has changed since the audit was interrupted: start again with --restart"
            ) from None
        if code not in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR):
            raise
        # SQLite keeps the number of the system's error to itself; a limit for files is the likeliest cause.
        has_limit = resource.getrlimit(resource.RLIMIT_FSIZE)[0] != resource.RLIM_INFINITY
        number = errno.ENOSPC if code == sqlite3.SQLITE_FULL else errno.EFBIG if has_limit else errno.EIO
        raise OSError(number, os.strerror(number)) from None


def point_key(point_id: PointId) -> str:
    """Return a text that sorts as Qdrant orders point ids: integers by value, then UUIDs."""
    return f"0{point_id:020d}" if isinstance(point_id, int) else f"1{point_id}"


def parse_point_key(key: str) -> PointId:
    """Reverse `point_key`."""
    return int(key[1:]) if key[0] == "0" else key[1:]


def encode_id(chunk_id: str) -> str:
    """Write a chunk id as JSON in ASCII, which reports are sorted by."""
    return encode_basestring_ascii(chunk_id)
