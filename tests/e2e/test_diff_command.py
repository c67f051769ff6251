"""Two collections compared: texts, metadata, vectors and results, with one verdict."""

import json
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from uuid import UUID

import pytest

from chunkproof.base.request import Deadline
from chunkproof.embedders.embedder_port import Embedder, InputType
from chunkproof.net.transport import DeadlineTransport
from chunkproof.stores.edge import EdgeStore
from chunkproof.stores.server import ServerStore
from chunkproof.stores.store_port import Point
from chunkproof_cli.commands.diff import bootstrap_mean, judge_vectors
from chunkproof_cli.diff_report import SpaceRelation
from chunkproof_cli.reports.outputs import DIFF

from support.commands import Command
from support.qdrant_server import QdrantServer
from support.wordllama_model import WordLlamaEmbedder

Change = Callable[[list[Point]], Sequence[Point]]


def copy_handbook(tmp_path: Path, name: str, change: Change = lambda points: points) -> list[Point]:
    """Write the handbook as another collection; return its points."""
    store = EdgeStore(tmp_path / "data-home" / "chunkproof")
    points = change(list(store.scroll("handbook", Deadline(10_000), limit=1_000, with_vector="").points))
    sparse = next(iter(store.describe("handbook", Deadline(10_000)).sparse_vectors), None)
    store.create(name, len(points[0].vector or ()), Deadline(10_000), text_search=sparse is not None)
    store.upsert(name, points, "", Deadline(10_000), text_vector=sparse)
    store.close()
    return list(points)


def with_random_ids(points: list[Point]) -> list[Point]:
    rng = random.Random(3)
    return [
        Point(
            str(UUID(int=rng.getrandbits(128))),
            {key: value for key, value in point.payload.items() if key != "chunk_id"},
            vector=point.vector,
        )
        for point in points
    ]


def embed_again(embedder: Embedder) -> Change:
    def change(points: list[Point]) -> list[Point]:
        texts = [str(point.payload["text"]) for point in points]
        vectors = embedder.embed(texts, InputType.DOCUMENT, Deadline(60_000))
        return [Point(p.id, p.payload, vector=tuple(vector)) for p, vector in zip(points, vectors, strict=True)]

    return change


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    """Two queries that the handbook answers, one by a chunk of its own ids."""
    cases = [
        {
            "name": "control",
            "query_text": "How does a controller correct the position of a joint?",
            "expected_keywords": ["control"],
        },
        {"name": "zeros", "query_text": "What is a zero-width space?", "expected_keywords": ["zero"], "top_k": 5},
    ]
    file = tmp_path / "suite.json"
    file.write_text(json.dumps({"name": "two", "cases": cases}))
    return file


def test_a_copy_under_other_ids_is_equal_and_returns_the_same(handbook: Command, suite: Path, tmp_path: Path) -> None:
    points = copy_handbook(tmp_path, "copy", with_random_ids)
    run = handbook("diff", "handbook", "copy", "--queries", suite, "--json")
    assert run.code == 0, run.out
    assert run.json["texts"]["kinds"]["match"] == len(points)
    assert run.json["texts"]["matching"]["by_text"] == len(points)
    assert run.json["vectors"]["space"] == "same vectors"
    assert (run.json["queries"]["overlap"], run.json["queries"]["same_order"]) == (1.0, 2)
    assert run.json["verdict"].startswith(f"Equal. {len(points)} of {len(points)} chunks the same")


def test_changed_chunks_are_counted_by_kind_in_every_format(handbook: Command, tmp_path: Path) -> None:
    def change(points: list[Point]) -> list[Point]:
        points[0] = Point(points[0].id, {**points[0].payload, "text": "<script>x</script>"}, vector=points[0].vector)
        points[1] = Point(points[1].id, {**points[1].payload, "url": "https://moved.example"}, vector=points[1].vector)
        new = Point(77, {"chunk_id": "new", "text": "Only here."}, vector=points[3].vector)
        return [*points[:2], *points[3:], new]

    points = copy_handbook(tmp_path, "changed", change)
    files = [tmp_path / f"diff{suffix}" for suffix in DIFF.extensions]
    run = handbook("diff", "handbook", "changed", *(word for file in files for word in ("-o", file)), "--json")
    assert run.code == 1
    kinds = {kind: count for kind, count in run.json["texts"]["kinds"].items() if count}
    assert kinds == {"match": len(points) - 3, "mismatch": 1, "missing": 1, "metadata_mismatch": 1, "orphan": 1}
    assert run.json["verdict"].startswith("Different: texts differ, metadata differs. ")
    for file in files:
        shown = file.read_text("utf-8")
        assert "<script>" not in shown or file.suffix in (".txt", ".json"), file
    assert "only in A" in (tmp_path / "diff.md").read_text("utf-8")
    allowed = handbook("diff", "handbook", "changed", "--allow", "texts", "--allow", "metadata")
    assert allowed.code == 0
    assert "Equal but for what may differ." in allowed.out
    again = tmp_path / "again.html"
    assert handbook("report", tmp_path / "diff.json", "-o", again).code == 0
    assert again.read_bytes() == (tmp_path / "diff.html").read_bytes()


def test_a_migration_to_another_model_is_judged_by_its_queries(
    handbook: Command, suite: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wordllama = WordLlamaEmbedder()
    points = copy_handbook(tmp_path, "wordllama", embed_again(wordllama))
    models = {"wordllama": {"provider": "support.wordllama_model:WORDLLAMA"}}
    monkeypatch.setenv("CHUNKPROOF_MODELS", json.dumps(models))
    without = handbook("diff", "handbook", "wordllama")
    assert without.code == 1
    assert "Different: vectors are of another space." in without.out
    run = handbook("diff", "handbook", "wordllama", "--allow", "vectors", "--queries", suite, "--json")
    assert run.code == 0, run.out
    assert run.json["vectors"]["space"] == "other size"
    assert (run.json["a"]["vector_size"], run.json["b"]["vector_size"]) == (384, 256)
    assert run.json["b"]["model"] == wordllama.model
    assert run.json["texts"]["kinds"]["match"] == len(points)
    assert 0 < run.json["queries"]["overlap"] < 1
    too_little = handbook(
        "diff", "handbook", "wordllama", "--allow", "vectors", "--queries", suite, "--min-overlap", "100"
    )
    assert too_little.code == 1
    assert "is below 100%" in too_little.out


def test_queries_embedded_by_a_model_that_does_not_fit_are_an_input_error(
    handbook: Command, suite: Path, tmp_path: Path
) -> None:
    copy_handbook(tmp_path, "small", embed_again(WordLlamaEmbedder()))
    run = handbook("diff", "handbook", "small", "--allow", "vectors", "--queries", suite)
    assert run.code == 2
    assert "256" in run.err
    assert "CHUNKPROOF_MODELS" in run.err


@pytest.mark.server
def test_collections_of_two_servers_are_compared(
    handbook: Command, served_qdrant: QdrantServer, collection: str, tmp_path: Path
) -> None:
    local = EdgeStore(tmp_path / "data-home" / "chunkproof")
    points = local.scroll("handbook", Deadline(10_000), limit=1_000, with_vector="").points
    local.close()
    remote = ServerStore(served_qdrant.url, DeadlineTransport())
    remote.create(collection, 384, Deadline(10_000))
    remote.upsert(collection, points[1:], "", Deadline(10_000))
    remote.close()
    run = handbook("diff", "handbook", collection, "--to-url", served_qdrant.url, "--json")
    assert (run.code, run.json["texts"]["kinds"]["missing"]) == (1, 1)
    back = handbook("diff", f"{served_qdrant.url}/collections/{collection}", "handbook", "--json")
    assert (back.code, back.json["texts"]["kinds"]["orphan"]) == (1, 1)


def test_wrong_usage_is_explained(handbook: Command) -> None:
    for words, message in {
        ("handbook", "handbook"): "name two collections",
        ("handbook", "nothing"): "Collection nothing not found",
        ("handbook", "http://x/y"): "is not the address of a collection",
        ("handbook", "b", "--min-overlap", "90"): "--queries",
        ("handbook", "b", "--collection", "c"): "leave --collection out",
    }.items():
        run = handbook("diff", *words)
        assert (run.code, message in run.err) == (2, True), run.err


def test_vectors_of_one_space_are_distinguished_from_those_of_another() -> None:
    rng = random.Random(1)

    def vector() -> list[float]:
        return [rng.gauss(0, 1) for _ in range(64)]

    same = [vector() for _ in range(50)]
    noisy = [[value + rng.gauss(0, 0.3) for value in each] for each in same]
    assert judge_vectors([(each, each) for each in same]).space is SpaceRelation.SAME_VECTORS
    assert judge_vectors(list(zip(same, noisy, strict=True))).space is SpaceRelation.SAME_SPACE
    assert judge_vectors([(each, vector()) for each in same]).space is SpaceRelation.OTHER_SPACE
    assert judge_vectors([(same[0], vector())]).space is SpaceRelation.UNKNOWN


def test_the_interval_of_a_mean_holds_it_and_is_the_same_every_time() -> None:
    values = [0.0, 1.0] * 20
    low, high = bootstrap_mean(values)
    assert low < 0.5 < high
    assert abs((low + high) / 2 - 0.5) < 0.05
    assert 0.2 < high - low < 0.4  # 2 * 1.96 * 0.5 / sqrt(40) = 0.31
    assert bootstrap_mean(values) == (low, high)
    assert bootstrap_mean([1.0, 1.0]) == (1.0, 1.0)
