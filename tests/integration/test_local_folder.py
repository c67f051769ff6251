"""Folders of local stores: opened by one process, by their owner alone, and nothing in them is run."""

import base64
import json
import os
import pickle
import sqlite3
import stat
from pathlib import Path

import pytest

from chunkproof.clients.ports import Point
from chunkproof.clients.qdrant.store import QdrantStore
from chunkproof.deadline import Deadline
from chunkproof.errors import InvalidParameterError, VectorStoreUnavailableError

from support.commands import small_disk

VECTOR = (0.6, 0.8)


@pytest.fixture
def folder(tmp_path: Path, deadline: Deadline) -> Path:
    """A store with one collection of one point."""
    path = tmp_path / "store"
    store = QdrantStore.open_local(path)
    store.create("c", 2, deadline)
    store.upsert("c", [Point(1, {"text": "é", "n": [1, None, True, {"x": 1.5}]}, vector=VECTOR)], "", deadline)
    store.close()
    return path


def plant(folder: Path, value: bytes) -> None:
    """Add a row to the collection's database."""
    database = sqlite3.connect(folder / "collection" / "c" / "storage.sqlite")
    with database:
        key = base64.b64encode(pickle.dumps(2)).decode()
        database.execute("INSERT OR REPLACE INTO points VALUES (?, ?)", (key, value))
    database.close()


class _Runs:
    def __init__(self, call: object, *arguments: object) -> None:
        self._call = (call, arguments)

    def __reduce__(self) -> object:
        return self._call


def _global(module: str, name: str, argument: str) -> bytes:
    """A pickle that calls an attribute of a module, dots included."""
    words = "".join(f"\x8c{chr(len(text))}{text}" for text in (module, name))
    return b"\x80\x04" + words.encode("latin-1") + b"\x93\x8c" + bytes([len(argument)]) + argument.encode() + b"\x85R."


def test_a_point_is_read_as_it_was_written(folder: Path, deadline: Deadline) -> None:
    store = QdrantStore.open_local(folder)
    (point,) = store.fetch("c", [1], deadline, with_vector="")
    assert point.payload == {"text": "é", "n": [1, None, True, {"x": 1.5}]}
    assert point.vector == pytest.approx(VECTOR)
    store.close()


@pytest.mark.parametrize("kind", ["call", "builtin", "dotted", "method of a model"])
def test_a_planted_pickle_is_refused_and_runs_nothing(folder: Path, tmp_path: Path, kind: str) -> None:
    ran = tmp_path / "ran"
    pickles = {
        "call": pickle.dumps(_Runs(os.mkdir, str(ran))),
        "builtin": pickle.dumps(_Runs(exec, f"open({str(ran)!r}, 'w')")),
        "dotted": _global("qdrant_client.http.models.models", "PointStruct.__init__.__globals__", "x"),
        "method of a model": _global("qdrant_client.http.models.models", "PointStruct.parse_raw", "{}"),
    }
    plant(folder, pickles[kind])
    with pytest.raises(VectorStoreUnavailableError, match="which no point is made of"):
        QdrantStore.open_local(folder)
    assert not ran.exists()
    # The lock is released: the folder is refused again for what it holds, and not as in use.
    with pytest.raises(VectorStoreUnavailableError, match="which no point is made of"):
        QdrantStore.open_local(folder)


@pytest.mark.parametrize("part", [".", "meta.json", "collection", "collection/c", "collection/c/storage.sqlite"])
def test_a_folder_that_another_user_can_write_to_is_refused(folder: Path, part: str) -> None:
    changed = folder / part
    for others in (0o020, 0o002):
        before = stat.S_IMODE(changed.stat().st_mode)
        changed.chmod(before | others)
        with pytest.raises(InvalidParameterError, match=r"other users can write to .*chmod -R go-w") as raised:
            QdrantStore.open_local(folder)
        assert "run code" in str(raised.value)
        changed.chmod(before)
    QdrantStore.open_local(folder).close()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
@pytest.mark.parametrize("part", [".", "collection/c/storage.sqlite"])
def test_a_folder_of_another_user_is_refused(folder: Path, part: str) -> None:
    os.chown(folder / part, 12345, -1)
    with pytest.raises(InvalidParameterError, match="belongs to another user"):
        QdrantStore.open_local(folder)


def test_links_inside_a_store_are_refused(folder: Path, tmp_path: Path) -> None:
    other = tmp_path / "bookmarks.sqlite"
    stored = folder / "collection" / "c" / "storage.sqlite"
    stored.rename(other)
    stored.symlink_to(other)
    with pytest.raises(InvalidParameterError, match="neither a file nor a folder"):
        QdrantStore.open_local(folder)


@pytest.mark.parametrize("name", ["../../elsewhere", "/tmp/elsewhere", "..", ""])
def test_a_collection_whose_name_leads_out_of_the_folder_is_refused(folder: Path, tmp_path: Path, name: str) -> None:
    meta = json.loads((folder / "meta.json").read_text("utf-8"))
    meta["collections"][name] = meta["collections"]["c"]
    (folder / "meta.json").write_text(json.dumps(meta), "utf-8")
    with pytest.raises(InvalidParameterError, match="no collection can be named"):
        QdrantStore.open_local(folder)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["store"]


def test_only_the_owner_can_read_a_store(tmp_path: Path, deadline: Deadline) -> None:
    made, empty, older = tmp_path / "made", tmp_path / "empty", tmp_path / "older"
    before = os.umask(0o002)
    try:
        empty.mkdir()
        for folder in (made, empty, older):
            store = QdrantStore.open_local(folder)
            store.create("c", 2, deadline)
            store.upsert("c", [Point(1, {"text": "x"}, vector=VECTOR)], "", deadline)
            store.close()
        for path in (older, *older.rglob("*")):
            path.chmod(0o755 if path.is_dir() else 0o644)
        QdrantStore.open_local(older).close()
        for folder in (made, empty, older):
            modes = {path: stat.S_IMODE(path.stat().st_mode) for path in (folder, *folder.rglob("*"))}
            assert modes == {path: 0o700 if path.is_dir() else 0o600 for path in modes}
    finally:
        os.umask(before)


def test_other_files_beside_a_store_keep_their_permissions(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").touch(0o644)
    tmp_path.chmod(0o755)
    QdrantStore.open_local(tmp_path).close()
    assert stat.S_IMODE((tmp_path / "notes.txt").stat().st_mode) == 0o644
    assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o755


def test_a_full_disk_is_reported_and_what_was_stored_stays(folder: Path, deadline: Deadline) -> None:
    store = QdrantStore.open_local(folder)
    points = [Point(n, {"text": "x" * 1_000}, vector=VECTOR) for n in range(2, 200)]
    with small_disk(50_000), pytest.raises(VectorStoreUnavailableError, match="cannot be written"):
        store.upsert("c", points, "", deadline)
    store.close()
    again = QdrantStore.open_local(folder)
    assert again.fetch("c", [1], deadline)[0].payload["text"] == "é"
    again.upsert("c", points, "", deadline)
    assert again.describe("c", deadline).points_count == 199
    again.close()
