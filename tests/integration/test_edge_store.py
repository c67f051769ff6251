"""An Edge store's folder: several processes, interrupted writes, permissions, names, and what the engine refuses."""

import json
import os
import shutil
import stat
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from random import Random
from types import SimpleNamespace

import pytest
import qdrant_edge as edge

from chunkproof.base.errors import (
    ChunkproofError,
    CollectionNotFoundError,
    InvalidParameterError,
    VectorStoreRefusedError,
    VectorStoreTimeoutError,
    VectorStoreUnavailableError,
)
from chunkproof.base.request import Deadline
from chunkproof.contract.conditions import parse_filters
from chunkproof.service.terminal import open_embedded_store
from chunkproof.stores import edge_folder, edge_shard
from chunkproof.stores.edge import EdgeStore
from chunkproof.stores.edge_shard import filter_indexes
from chunkproof.stores.store_port import Layout, Point, StoreQuery, TextLeg

from support.chunks import fill, nearest
from support.commands import small_disk

POINTS = tuple(Point(n, {"text": f"text {n}", "n": n}, vector=(1.0, n / 10)) for n in range(1, 6))
READ = """
import sys
from pathlib import Path
from chunkproof.stores.edge import EdgeStore
from chunkproof.base.request import Deadline
store = EdgeStore(Path(sys.argv[1]))
print(store.count("c", (), Deadline(10_000)), flush=True)
if sys.argv[2:] == ["write"]:
    store.write_points("c", [{"id": 99, "vector": {"": [1.0, 0.0]}, "payload": {}}], Deadline(10_000))
    print("written", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def store(tmp_path: Path) -> Iterator[EdgeStore]:
    opened = EdgeStore(tmp_path)
    fill(opened, "c", *POINTS)
    opened.close()
    yield opened
    opened.close()


@contextmanager
def process(folder: Path, *arguments: str) -> Iterator["subprocess.Popen[str]"]:
    """Another process that has the collection open."""
    command = [sys.executable, "-c", READ, str(folder), *arguments]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "5\n"
        if arguments:
            assert other.stdout.readline() == "written\n"
        yield other
        other.communicate()


# several processes


def test_several_processes_read_a_collection_at_once(store: EdgeStore, tmp_path: Path, deadline: Deadline) -> None:
    with process(tmp_path), process(tmp_path):
        assert [point.id for point in nearest(store, "c", (1.0, 0.1), limit=1)] == [1]
        assert store.count("c", (), deadline) == 5


def test_a_collection_that_another_process_reads_is_not_written(
    store: EdgeStore, tmp_path: Path, deadline: Deadline, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(edge_folder, "LOCK_WAIT_S", 0.05)
    with process(tmp_path), pytest.raises(VectorStoreUnavailableError, match="another process"):
        store.upsert("c", POINTS[:1], "", deadline)
    store.upsert("c", POINTS[:1], "", deadline)
    assert store.count("c", (), deadline) == 5


def test_a_collection_that_another_process_writes_is_not_read(
    store: EdgeStore, tmp_path: Path, deadline: Deadline, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(edge_folder, "LOCK_WAIT_S", 0.05)
    with process(tmp_path, "write"), pytest.raises(VectorStoreUnavailableError, match="another process"):
        store.count("c", (), deadline)
    assert store.count("c", (), deadline) == 6


def test_other_collections_can_be_read_while_one_is_written(
    store: EdgeStore, tmp_path: Path, deadline: Deadline
) -> None:
    fill(store, "other", *POINTS)
    store.close()
    with process(tmp_path, "write"):
        assert store.collections(deadline) == ["c", "other"]
        assert store.count("other", (), deadline) == 5


def test_threads_share_a_store(store: EdgeStore, deadline: Deadline) -> None:
    def use(number: int) -> int:
        if number % 5 == 0:
            store.upsert("c", [Point(100 + number, {"n": number}, vector=(0.0, 1.0))], "", deadline)
        return len(nearest(store, "c", (1.0, 0.1), limit=3))

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(use, range(40))) == [3] * 40
    assert store.count("c", (), deadline) == 13


# interrupted writes


def test_an_interrupted_write_is_complete_after_opening(store: EdgeStore, tmp_path: Path, deadline: Deadline) -> None:
    points = [{"id": 2, "vector": {"": [0.0, 1.0]}, "payload": {"n": 20}}, {"id": 9, "vector": {"": [1.0, 0.0]}}]
    points[1]["payload"] = {"n": 90}
    journal = tmp_path / "shards" / "c" / "journal"
    journal.write_text(json.dumps(points), "utf-8")
    found = store.scroll("c", deadline, limit=10, with_vector="").points
    assert {point.id: point.payload["n"] for point in found} == {1: 1, 2: 20, 3: 3, 4: 4, 5: 5, 9: 90}
    assert found[1].vector == (0.0, 1.0)
    assert not journal.exists()


def test_a_write_that_the_disk_has_no_room_for_changes_nothing(
    store: EdgeStore, deadline: Deadline, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(edge_shard, "SPARE_BYTES", 1 << 60)
    with pytest.raises(VectorStoreUnavailableError, match="No space left"):
        store.upsert("c", [Point(7, {}, vector=(1.0, 0.0))], "", deadline)
    monkeypatch.undo()
    assert store.count("c", (), deadline) == 5


def test_a_failed_write_is_reported_and_what_was_stored_stays(store: EdgeStore, deadline: Deadline) -> None:
    points = [Point(n, {"text": "x" * 1_000}, vector=(1.0, 0.0)) for n in range(10, 200)]
    with small_disk(50_000), pytest.raises(VectorStoreUnavailableError, match="cannot be used"):
        store.upsert("c", points, "", deadline)
    assert store.count("c", (), deadline) == 5
    store.upsert("c", points, "", deadline)
    assert store.count("c", (), deadline) == 195


def test_indexes_are_built_in_a_copy_that_replaces_the_shard(
    store: EdgeStore, tmp_path: Path, deadline: Deadline, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(edge_shard, "OPTIMIZE_FROM_BYTES", 0)
    folder = tmp_path / "shards" / "c"
    before = [path.name for path in folder.glob("shard-*")]
    (folder / "shard-abandoned").mkdir()
    store.optimize("c")
    (after,) = folder.glob("shard-*")
    assert [after.name] != before
    assert [point.id for point in store.scroll("c", deadline, limit=9).points] == [1, 2, 3, 4, 5]


VALUES: tuple[object, ...] = (
    *("a", "b", "", "3", "true", "2024-01-01", "2025-06-01T12:00:00+02:00", "A", "ä", "a\u0308", "x" * 1_000),
    *(3, 4, 3.0, 3.5, 0, -1, 2**53 + 1, 1e300, True, False, None),
    *([], ["a", "b"], ["a", 3, True], [None], [3, 4.5], {}, {"x": 1}),
)
FILTERS = (
    *(
        {"f": value}
        for value in ("a", "", "3", "true", "2024-01-01", "ä", "x" * 1_000, 3, 0, 2**53 + 1, 3.5, True, False)
    ),
    *({"not": {"f": value}} for value in ("a", 3, True)),
    *({"f": ["a", 3, True, 3.5]}, {"f": {"gte": 3}}, {"f": {"gt": 3, "lt": 4}}, {"not": {"f": {"lte": 0}}}),
    *({"f": {"gte": "2024-01-01T00:00:00Z"}}, {"not": {"f": {"lt": "2025-01-01T00:00:00Z"}}}),
)


@pytest.mark.parametrize("sampled", ["a", True])
def test_the_indexes_for_filters_change_no_result(
    tmp_path: Path, deadline: Deadline, sampled: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(edge_shard, "OPTIMIZE_FROM_BYTES", 0)
    store = EdgeStore(tmp_path)
    payloads = [{}, *({"f": value} for value in VALUES)]
    fill(store, "c", *(Point(n, payload, vector=(1.0, 0.0)) for n, payload in enumerate(payloads)))

    def selected() -> list[list[object]]:
        conditions = [parse_filters(filters) for filters in FILTERS]
        return [[point.id for point in store.scroll("c", deadline, limit=99, where=w).points] for w in conditions]

    without = selected()
    monkeypatch.setattr(edge_shard, "filter_indexes", lambda _: filter_indexes([{"f": sampled}]))
    store.optimize("c")
    assert store.describe("c", deadline).indexed_fields["f"] == ("bool" if sampled is True else "keyword")
    assert selected() == without
    assert any(without)
    store.close()


def test_a_large_collection_gets_indexes_for_filters_that_a_copy_on_a_server_does_not_have(
    tmp_path: Path, deadline: Deadline, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(edge_shard, "OPTIMIZE_FROM_BYTES", 0)
    store = EdgeStore(tmp_path)
    payload = {
        "chunk_id": "a-1",
        "text": "words",
        "lang": "de",
        "is_draft": False,
        "tags": ["x", "y"],
        "metadata": {"author": "Ada", "page": 3, "summary": "s" * 300},
        "version": 2,
        "empty": [],
        "none": None,
    }
    fill(store, "c", Point(1, payload, vector=(1.0, 0.0)))
    before = store.layout("c", deadline)
    store.optimize("c")
    assert store.describe("c", deadline).indexed_fields == {
        "chunk_id": "keyword",
        "text": "text",
        "lang": "keyword",
        "is_draft": "bool",
        "tags": "keyword",
        "metadata.author": "keyword",
    }
    assert store.layout("c", deadline) == before
    (tmp_path / "shards" / "c" / "layout.json").unlink()
    assert store.layout("c", deadline).indexes.keys() == before.indexes.keys()
    store.close()


def test_no_index_of_payloads_is_read_whole_when_a_collection_is_opened(
    tmp_path: Path, deadline: Deadline, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(edge_shard, "OPTIMIZE_FROM_BYTES", 0)
    store = EdgeStore(tmp_path)
    fill(store, "c", Point(1, {"chunk_id": "a", "text": "words", "lang": "de"}, vector=(1.0, 0.0)))
    store.optimize("c")
    store.close()
    (shard,) = (tmp_path / "shards" / "c").glob("shard-*")
    indexes = edge.EdgeShard.load(str(shard)).info().payload_schema
    assert indexes.keys() == {"chunk_id", "text", "lang"}
    assert all(index.params.on_disk or index.params.memory == edge.Memory.Cold for index in indexes.values())


def find_words(store: EdgeStore, words: str) -> list[int | str]:
    found = store.search([StoreQuery("c", 10, text=TextLeg(words, field="text"))], Deadline(10_000))[0]
    return [point.id for point in found]


def test_words_are_found_in_texts_without_spaces_once_they_are_most_of_a_collection(
    store: EdgeStore, deadline: Deadline
) -> None:
    store.upsert("c", [Point(10, {"text": "水泵错误代码 4711"}, vector=(1.0, 0.0))], "", deadline)
    store.optimize("c")
    assert (find_words(store, "4711"), find_words(store, "水泵")) == ([10], [])
    more = ["水泵需要每年润滑一次。", "東京タワーの高さ", "过滤器堵塞", "ภาษาไทยไม่มีช่องว่าง", "检查水泵", "更换过滤器"]
    points = [Point(20 + n, {"text": text}, vector=(1.0, 0.0)) for n, text in enumerate(more)]
    store.upsert("c", points, "", deadline)
    store.optimize("c")
    assert sorted(find_words(store, "水泵"), key=int) == [10, 20, 24]
    store.close()
    assert sorted(find_words(store, "过滤器"), key=int) == [22, 25]
    assert store.count("c", (), deadline) == 12


def test_words_are_found_without_their_accents_and_english_endings(store: EdgeStore, deadline: Deadline) -> None:
    store.upsert("c", [Point(10, {"text": "Cafés in Zürich pumping oil"}, vector=(1.0, 0.0))], "", deadline)
    store.close()
    assert find_words(store, "CAFE") == find_words(store, "zürich") == find_words(store, "pumps") == [10]


def test_what_an_interrupted_creation_left_is_removed(store: EdgeStore, tmp_path: Path, deadline: Deadline) -> None:
    left = tmp_path / "shards" / ".0123456789abcdef.part"
    (left / "shard-0").mkdir(parents=True)
    assert store.collections(deadline) == ["c"]
    store.create("d", 2, deadline)
    assert not left.exists()
    assert store.collections(deadline) == ["c", "d"]


@pytest.mark.parametrize("seed", range(3))
def test_counts_of_values_are_exact_whatever_was_written_deleted_and_indexed(
    tmp_path: Path, deadline: Deadline, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(edge_shard, "OPTIMIZE_FROM_BYTES", 0)
    random, store = Random(seed), EdgeStore(tmp_path)
    optimizers = edge.EdgeOptimizersConfig(indexing_threshold=20, deleted_threshold=0.1, vacuum_min_vector_number=50)
    vectors = {"": edge.EdgeVectorParams(size=2, distance=edge.Distance.Cosine)}
    config = edge.EdgeConfig(vectors=vectors, wal_enabled=False, optimizers=optimizers)
    monkeypatch.setattr(edge_shard, "to_edge_config", lambda _layout: config)
    store.create("c", 2, deadline)
    written: dict[int, str] = {}
    for step in range(12):
        batch = {random.randrange(3_000): "" for _ in range(random.choice([5, 200, 2_000]))}
        batch = {number: f"id-{random.choice([number, number, random.randrange(40)])}" for number in batch}
        written |= batch
        points = [Point(n, {"chunk_id": chunk_id}, vector=(1.0, random.random())) for n, chunk_id in batch.items()]
        store.upsert("c", points, "", deadline)
        if step % 3 == 1:
            gone = random.sample(sorted(written), len(written) // 4)
            written = {number: chunk_id for number, chunk_id in written.items() if number not in gone}
            with store._writing("c") as shard:
                shard.engine.update(edge.UpdateOperation.delete_points(gone))
                shard.engine.flush()
        if step % 4 == 2:
            store.optimize("c")
        if step % 5 == 3:
            store.close()
        assert store.facet("c", "chunk_id", (), deadline, limit=9_999) == Counter(written.values())
    store.close()


def test_points_that_a_damaged_file_lost_are_missed(store: EdgeStore, tmp_path: Path, deadline: Deadline) -> None:
    assert store.count("c", (), deadline) == 5
    store.close()
    (versions,) = (tmp_path / "shards" / "c").rglob("*id_tracker.versions")
    versions.write_bytes(b"")
    with pytest.raises(InvalidParameterError, match=r"c is damaged, 0 of its 5 points can be read; restore it"):
        store.count("c", (), deadline)
    with pytest.raises(InvalidParameterError, match="is damaged"):
        store.upsert("c", POINTS, "", deadline)


def test_a_renamed_collection_still_knows_its_points(store: EdgeStore, tmp_path: Path, deadline: Deadline) -> None:
    store.rename("c", "d")
    record = json.loads((tmp_path / "shards" / "d" / "collection.json").read_text("utf-8"))
    assert (record["name"], record["points"]) == ("d", 5)
    assert store.count("d", (), deadline) == 5


# what the engine refuses


@pytest.mark.parametrize(
    "point",
    [
        Point(7, {}, vector=(1.0,)),
        Point(7, {}, vector=(1.0, float("nan"))),
        Point(7, {}, vector=(1.0, float("inf"))),
        Point(7, {}, vector=(1.0, 1e39)),
        Point(7, {"x": "\ud800"}, vector=(1.0, 0.0)),
        Point(7, {"x": float("nan")}, vector=(1.0, 0.0)),
        Point("no-uuid", {}, vector=(1.0, 0.0)),
        Point(-1, {}, vector=(1.0, 0.0)),
    ],
    ids=repr,
)
def test_a_batch_with_a_point_that_does_not_fit_changes_nothing(
    store: EdgeStore, deadline: Deadline, point: Point
) -> None:
    with pytest.raises(VectorStoreRefusedError):
        store.upsert("c", [Point(8, {}, vector=(1.0, 0.0)), point], "", deadline)
    assert store.count("c", (), deadline) == 5


def test_searches_and_pages_end_when_the_time_is_over(store: EdgeStore) -> None:
    """The engine itself takes no deadline."""
    queries = [StoreQuery("c", 1, text=TextLeg("a", field="text"))] * 2
    with pytest.raises(VectorStoreTimeoutError, match="out of time"):
        store.search(queries, Deadline(0))
    with pytest.raises(VectorStoreTimeoutError, match="out of time"):
        store.scroll("c", Deadline(0), limit=1)


def test_an_unknown_vector_is_refused(store: EdgeStore, deadline: Deadline) -> None:
    with pytest.raises(VectorStoreRefusedError, match="no vector is named 'title'"):
        store.upsert("c", [Point(8, {}, vector=(1.0, 0.0))], "title", deadline)
    with pytest.raises(VectorStoreRefusedError, match="no sparse vector is named 'words'"):
        store.write_points(
            "c", [{"id": 1, "vector": {"words": {"indices": [1], "values": [1.0]}}, "payload": {}}], Deadline(10_000)
        )


def test_a_collection_cannot_be_created_twice(store: EdgeStore, deadline: Deadline) -> None:
    with pytest.raises(VectorStoreRefusedError, match="exists already"):
        store.create("c", 2, deadline)
    assert store.count("c", (), deadline) == 5


def test_a_removed_collection_is_not_found(store: EdgeStore, tmp_path: Path, deadline: Deadline) -> None:
    store.drop("c")
    with pytest.raises(CollectionNotFoundError):
        store.count("c", (), deadline)
    assert not (tmp_path / "shards" / "c").exists()
    fill(store, "c", *POINTS[:2])
    assert store.count("c", parse_filters({"n": {"gte": 2}}), deadline) == 1


def test_a_damaged_shard_is_an_error_that_names_the_folder(
    store: EdgeStore, tmp_path: Path, deadline: Deadline
) -> None:
    (segment,) = (tmp_path / "shards" / "c").glob("shard-*/segments/*/segment.json")
    segment.write_bytes(b"{")
    with pytest.raises(VectorStoreUnavailableError) as caught:
        store.count("c", (), deadline)
    assert str(tmp_path) in str(caught.value)


def test_a_file_that_was_cut_off_is_an_error_that_names_the_folder(
    store: EdgeStore, tmp_path: Path, deadline: Deadline, capfd: pytest.CaptureFixture[str]
) -> None:
    for status in (tmp_path / "shards" / "c").glob("shard-*/segments/**/status.dat"):
        status.write_bytes(b"")
    with pytest.raises(VectorStoreUnavailableError) as caught:
        store.search([StoreQuery("c", 1, text=TextLeg("text", field="text"))], deadline)
    assert str(tmp_path) in str(caught.value)
    capfd.readouterr()  # the engine reports its panic itself


def test_a_collection_that_was_deleted_while_it_is_open_is_an_error_that_names_the_folder(
    store: EdgeStore, tmp_path: Path, deadline: Deadline
) -> None:
    assert store.count("c", (), deadline) == 5
    shutil.rmtree(tmp_path / "shards" / "c")
    for read in (store.describe, store.layout):
        with pytest.raises(VectorStoreUnavailableError) as caught:
            read("c", deadline)
        assert str(tmp_path) in str(caught.value)


# names and permissions


@pytest.mark.parametrize("name", ["Handbook", "handbook", "with space", "größe", "x" * 255, "ü" * 200, "a.b", "-", "~"])
def test_every_collection_name_has_a_folder_of_its_own(store: EdgeStore, deadline: Deadline, name: str) -> None:
    fill(store, name, *POINTS[:1])
    fill(store, f"{name[:-1]}é", *POINTS[:2])
    assert store.count(name, (), deadline) == 1
    assert sorted(store.collections(deadline)) == sorted(["c", name, f"{name[:-1]}é"])


def test_only_the_owner_can_read_a_store(tmp_path: Path, deadline: Deadline) -> None:
    before = os.umask(0o002)
    try:
        store = EdgeStore(tmp_path / "data")
        fill(store, "c", *POINTS)
        store.close()
        paths = [path for path in (tmp_path / "data" / "shards").rglob("*") if path.exists()]
        modes = {path: stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "data", *paths)}
        assert {path: mode for path, mode in modes.items() if mode & 0o077} == {}
    finally:
        os.umask(before)


def test_a_folder_that_another_user_can_write_to_is_refused(store: EdgeStore, tmp_path: Path) -> None:
    (tmp_path / "shards").chmod(0o777)
    with pytest.raises(InvalidParameterError, match="other users can write to"):
        EdgeStore(tmp_path)
    (tmp_path / "shards").chmod(0o700)
    (tmp_path / "shards" / "c").chmod(0o770)
    with pytest.raises(InvalidParameterError, match="other users can write to"):
        EdgeStore(tmp_path).count("c", (), Deadline(1_000))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
@pytest.mark.parametrize("part", [".", "shards", "shards/c", "shards/c/shard-0/edge_config.json"])
def test_a_folder_of_another_user_is_refused(store: EdgeStore, tmp_path: Path, part: str) -> None:
    os.chown(tmp_path / part, 12345, -1)
    with pytest.raises(InvalidParameterError, match="belongs to another user"):
        EdgeStore(tmp_path).count("c", (), Deadline(1_000))


def test_other_files_beside_a_store_keep_their_permissions(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").touch(0o644)
    tmp_path.chmod(0o755)
    EdgeStore(tmp_path).close()
    assert stat.S_IMODE((tmp_path / "notes.txt").stat().st_mode) == 0o644
    assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o755


def test_a_machine_without_the_engine_is_told_to_use_a_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("chunkproof.stores.qdrant.has_edge", lambda: False)
    with pytest.raises(VectorStoreUnavailableError, match="set QDRANT_URL to use a server"):
        open_embedded_store(tmp_path)


def test_a_link_in_place_of_the_shards_is_refused(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "shards").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(InvalidParameterError, match="is not a folder"):
        EdgeStore(tmp_path)


def test_a_record_that_cannot_be_read_is_named(store: EdgeStore, tmp_path: Path, deadline: Deadline) -> None:
    record = tmp_path / "shards" / "c" / "collection.json"
    record.write_text('{"format": 9, "name": "c"}', "utf-8")
    with pytest.raises(ChunkproofError, match="another version of Chunkproof"):
        store.collections(deadline)
    record.write_text("{", "utf-8")
    with pytest.raises(ChunkproofError, match=r"collection\.json is damaged"):
        store.collections(deadline)


# folders from elsewhere


@pytest.mark.parametrize("shard", ["../../../elsewhere", "/tmp", "shard-0/../shard-0", "shard-", "", None, 5])
def test_a_record_cannot_name_a_shard_outside_of_its_folder(store: EdgeStore, tmp_path: Path, shard: object) -> None:
    store.close()
    record = {"format": 1, "name": "c", "shard": shard}
    (tmp_path / "shards" / "c" / "collection.json").write_text(json.dumps(record), "utf-8")
    opened = EdgeStore(tmp_path)
    with pytest.raises(InvalidParameterError, match=r"collection\.json is damaged"):
        opened.count("c", (), Deadline(1_000))
    with pytest.raises(InvalidParameterError, match=r"collection\.json is damaged"):
        opened.upsert("c", POINTS[:1], "", Deadline(1_000))


@pytest.mark.parametrize("kind", ["link", "pipe", "writable"])
def test_a_file_of_a_shard_that_is_not_the_users_own_is_refused(store: EdgeStore, tmp_path: Path, kind: str) -> None:
    store.close()
    shard = tmp_path / "shards" / "c" / "shard-0"
    target = next(path for path in sorted(shard.rglob("*")) if path.is_file())
    if kind == "writable":
        target.chmod(0o666)
    else:
        target.rename(tmp_path / "elsewhere")
        target.symlink_to(tmp_path / "elsewhere") if kind == "link" else os.mkfifo(target, 0o600)
    with pytest.raises(
        InvalidParameterError, match="other users can write to" if kind == "writable" else "is not a file"
    ):
        EdgeStore(tmp_path).count("c", (), Deadline(1_000))


def test_a_link_in_place_of_a_shard_is_refused(store: EdgeStore, tmp_path: Path) -> None:
    store.close()
    shard = tmp_path / "shards" / "c" / "shard-0"
    shard.rename(tmp_path / "elsewhere")
    shard.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(InvalidParameterError, match="is not a folder"):
        EdgeStore(tmp_path).count("c", (), Deadline(1_000))


def test_a_record_that_is_a_pipe_is_not_waited_for(store: EdgeStore, tmp_path: Path) -> None:
    store.close()
    record = tmp_path / "shards" / "c" / "collection.json"
    record.unlink()
    os.mkfifo(record, 0o600)
    with pytest.raises(InvalidParameterError, match=r"collection\.json is damaged"):
        EdgeStore(tmp_path).collections(Deadline(1_000))


@pytest.mark.parametrize("journal", ["{", "5", "[5]", '[{"id": 1}]', "null", '{"id": 1}'])
def test_a_damaged_journal_is_named(store: EdgeStore, tmp_path: Path, journal: str) -> None:
    store.close()
    path = tmp_path / "shards" / "c" / "journal"
    path.write_text(journal, "utf-8")
    path.chmod(0o600)
    with pytest.raises(InvalidParameterError, match="journal is damaged"):
        EdgeStore(tmp_path).count("c", (), Deadline(1_000))


def test_a_nearly_full_disk_is_named_before_the_engine_maps_a_file(
    tmp_path: Path, deadline: Deadline, monkeypatch: pytest.MonkeyPatch
) -> None:
    def make(store: EdgeStore) -> None:
        store.create("other", 2, deadline)

    def open_to_read(store: EdgeStore) -> None:
        store.count("c", (), deadline)

    def unpack(store: EdgeStore) -> None:
        (tmp_path / "snapshot").write_bytes(b"-")
        store.import_snapshot("copy", tmp_path / "snapshot", Layout({}), [])

    with closing(EdgeStore(tmp_path)) as store:
        store.create("c", 2, deadline)
        store.upsert("c", [Point(1, {}, vector=(1.0, 0.0))], "", deadline)
    monkeypatch.setattr(edge_shard, "hole_bytes", lambda _folder: 40 << 20)
    monkeypatch.setattr(shutil, "disk_usage", lambda _folder: SimpleNamespace(free=20 << 20))
    for use in (make, open_to_read, unpack):
        with closing(EdgeStore(tmp_path)) as store, pytest.raises(VectorStoreUnavailableError, match="No space left"):
            use(store)
    assert [path.name for path in (tmp_path / "shards").glob(".*.part")] == []
