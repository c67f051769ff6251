"""Snapshots: what they keep, that they are of one state, and that a damaged one is refused."""

import os
import subprocess
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from chunkproof.audit.manifest_file import import_zstd
from chunkproof.audit.snapshot_file import Snapshot, SnapshotWriter, hash_vector
from chunkproof.base.errors import InvalidParameterError
from chunkproof.base.request import Deadline
from chunkproof.collection.reader import Reader
from chunkproof.proof.integrity import digest
from chunkproof.stores.store_port import Page, Point, WritableStore

from support.chunks import fill, make_services
from support.commands import FULL, needs_full
from support.words import Words


def write(reader: Reader, file: Path, **options: Any) -> int:
    return SnapshotWriter(file, reader, **options).write()


@pytest.fixture
def reader(store: WritableStore, collection: str) -> Reader:
    """Three points: one with metadata, one with a number as its id, one without a text."""
    payload = {"chunk_id": "pumps", "text": "how a pump moves water", "url": "https://docs.example.com/p"}
    points = [
        Point(1, {**payload, "metadata": {"lang": "en", "long": "x" * 300}, "tags": ["a", "b"]}, vector=(1.0, 0.0)),
        Point(2, {"text": "the water of a river", "document_id": 7}, vector=(0.0, 1.0)),
        Point(3, {"chunk_id": "empty"}, vector=(0.6, 0.8)),
    ]
    fill(store, collection, *points)
    return Reader(make_services(store, collection, Words()), collection)


def test_a_snapshot_keeps_hashes_and_fields_that_filters_use(reader: Reader, tmp_path: Path) -> None:
    file = tmp_path / "before.snapshot"
    assert write(reader, file) == 3
    snapshot = Snapshot(file)
    first, second, third = snapshot.entries()
    assert (first.point_id, first.chunk_id, first.original_text, first.vector) == (1, "pumps", None, None)
    assert first.sha256 == digest("how a pump moves water")
    assert first.vector_sha256 == hash_vector((1.0, 0.0))
    assert first.payload["metadata.lang"] == "en"
    assert first.payload["tags"] == ["a", "b"]
    assert not {"metadata.long", "text"} & set(first.payload)
    assert (second.chunk_id, second.document_id) == ("2", "7")
    assert third.sha256 == digest("")
    assert (snapshot.header.collection, snapshot.header.model) == (reader.name, "words")
    assert not list(tmp_path.glob(".*"))


def test_texts_and_vectors_are_kept_in_full_on_request(reader: Reader, tmp_path: Path) -> None:
    file = tmp_path / "before.snapshot"
    write(reader, file, texts=True, vectors=True)
    [found] = Snapshot(file).find("https://docs.example.com/p")
    assert (found.original_text, found.vector) == ("how a pump moves water", (1.0, 0.0))
    assert Snapshot(file).find_text("the water of a river")[0].point_id == 2
    assert [Snapshot(file).find(key)[0].point_id for key in ("1", "pumps", "7")] == [1, 1, 2]
    assert Snapshot(file).find("elsewhere") == ()


def test_a_snapshot_that_was_interrupted_begins_again_and_is_of_one_state(
    reader: Reader, store: WritableStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "now.snapshot"
    monkeypatch.setattr("chunkproof.collection.reader.PAGE_SIZE", 1)
    stopped = Reader(reader.services, reader.name)
    pages = stopped.pages

    def first_pages(*vector: Any) -> Iterator[Page]:
        yield from islice(pages(*vector), 2)
        raise KeyboardInterrupt

    monkeypatch.setattr(stopped, "pages", first_pages)
    with pytest.raises(KeyboardInterrupt):
        write(stopped, file, texts=True)
    assert not list(tmp_path.iterdir())
    (tmp_path / ".now.snapshot.partial").mkdir()  # of a process that was killed
    (tmp_path / ".now.snapshot.partial" / "part.zst").write_bytes(b"x" * 100_000)
    new = Point(1, {"chunk_id": "pumps", "text": "changed after the first page"}, vector=(1.0, 0.0))
    store.upsert(reader.name, [new], "", Deadline(60_000))
    assert write(reader, file, texts=True) == 3
    texts = [entry.original_text for entry in Snapshot(file).entries()]
    assert texts == ["changed after the first page", "the water of a river", ""]
    assert list(tmp_path.iterdir()) == [file]


@needs_full
def test_a_device_in_place_of_the_file_stays_a_device(reader: Reader, tmp_path: Path) -> None:
    link = tmp_path / "full.snapshot"
    link.symlink_to(FULL)
    with pytest.raises(OSError, match="No space left"):
        write(reader, link)
    assert FULL.is_char_device()


def test_a_snapshot_can_be_written_to_a_pipe(reader: Reader, tmp_path: Path) -> None:
    pipe, copy = tmp_path / "pipe", tmp_path / "copy.snapshot"
    os.mkfifo(pipe)
    with subprocess.Popen(["cp", str(pipe), str(copy)]):
        write(reader, pipe)
    assert len(list(Snapshot(copy).entries())) == 3
    assert pipe.is_fifo()


def test_two_processes_do_not_write_the_same_snapshot(reader: Reader, tmp_path: Path) -> None:
    holder = (
        "import sys, time; from pathlib import Path; from chunkproof.base.files import lock_folder\n"
        "with lock_folder(Path(sys.argv[1])): print('locked', flush=True); time.sleep(60)"
    )
    folder = tmp_path / ".before.snapshot.partial"
    with subprocess.Popen([sys.executable, "-c", holder, str(folder)], stdout=subprocess.PIPE, env=os.environ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"locked\n"
        with pytest.raises(InvalidParameterError, match="another process"):
            write(reader, tmp_path / "before.snapshot")
        other.kill()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is not a snapshot"),
        (b"not zstd at all", "is not a snapshot"),
        (import_zstd().compress(b"not a snapshot at all")[:-4], "cannot be decompressed"),
        (import_zstd().compress(b'{"format": "another"}\n'), "is not a snapshot"),
    ],
)
def test_another_file_is_not_read_as_a_snapshot(tmp_path: Path, content: bytes, message: str) -> None:
    file = tmp_path / "other"
    file.write_bytes(content)
    with pytest.raises(InvalidParameterError, match=message):
        list(Snapshot(file).entries())


def test_a_snapshot_that_was_cut_is_refused(reader: Reader, tmp_path: Path) -> None:
    file = tmp_path / "before.snapshot"
    write(reader, file)
    lines = import_zstd().decompress(file.read_bytes()).splitlines(keepends=True)
    file.write_bytes(import_zstd().compress(b"".join(lines[:-1])))
    with pytest.raises(InvalidParameterError, match="not complete"):
        list(Snapshot(file).entries())
