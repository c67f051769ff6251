"""BM25 vectors made here are those that a server makes; servers that make none can be searched by words."""

import json
import random
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from chunkproof.base.errors import TextIndexRequiredError, VectorStoreUnavailableError
from chunkproof.base.request import Deadline
from chunkproof.collection.services import Services
from chunkproof.embedders.embedder_port import InputType
from chunkproof.net.transport import DeadlineTransport
from chunkproof.stores import server
from chunkproof.stores.hybrid import make_bm25_vector
from chunkproof.stores.server import ServerStore
from chunkproof.stores.store_port import TEXT_VECTOR, DenseLeg, Point, StoreQuery, TextLeg, VectorConfig, WritableStore

from support.chunks import SECONDS_60, ask, make_services
from support.qdrant_server import QdrantServer, old_qdrant
from support.recording_server import RecordingServer

pytestmark = pytest.mark.server

ALPHABET = "abcdefgh éüñßЖщ泵ポ🙂'-_.,;!?0123 \n\t"
TEXTS = (
    "the pump stops",
    "The quick brown foxes are jumping over lazy dogs' backs",
    "running runs ran runner",
    "Die Pumpen laufen heiß ohne Kühlmittel über",
    "El año pasado llovió muchísimo en la montaña",
    "Насос останавливается, когда фильтр забит",
    "泵停止运转当过滤器堵塞时",
    "ポンプが停止します",
    "مضخة توقفت عن العمل",
    "पंप बंद हो गया",
    "ไทยภาษา ไม่มีช่องว่าง",
    "한국어 문장입니다",
    "ERR-4711-X: see sheet 12, F3_a",
    "C++ C# .NET node.js 1,234.56 0x1F user@example.com",
    "naïve café NAÏVE CAFÉ İstanbul straße STRASSE",
    "\u212b ﬁ ligature zero\u200bwidth \ufeffbom",
    "🙂🙃 emoji",
    "don't can't co-operate",
    "foo\x00bar",
    # Without a token: nothing, stop words, punctuation.
    "",
    " \n",
    "the and of",
    "!!! ???",
    # Longer than average, and a word longer than any.
    "x " * 1000 + "pump",
    "a" * 500,
    *("".join(letters.choices(ALPHABET, k=letters.randint(1, 80))) for letters in map(random.Random, range(100))),
)


@pytest.fixture(scope="module")
def inferred(served_qdrant: QdrantServer) -> Iterator[httpx.Client]:
    """A collection whose vectors the server made of the texts; their ids count from 0."""
    with httpx.Client(base_url=f"{served_qdrant.url}/collections/inferred") as client:
        client.put("", json={"sparse_vectors": {TEXT_VECTOR: {"modifier": "idf"}}}).raise_for_status()
        points = [
            {"id": number, "vector": {TEXT_VECTOR: {"text": text, "model": "qdrant/bm25"}}}
            for number, text in enumerate(TEXTS)
        ]
        client.put("/points?wait=true", json={"points": points}).raise_for_status()
        yield client


def test_the_vectors_of_stored_texts_are_those_of_the_server(inferred: httpx.Client) -> None:
    body = {"limit": len(TEXTS), "with_vector": True}
    found = inferred.post("/points/scroll", json=body).json()["result"]["points"]
    assert len(found) == len(TEXTS)
    for point in found:
        of_server = point["vector"].get(TEXT_VECTOR, {"indices": [], "values": []})
        made = make_bm25_vector(TEXTS[point["id"]], is_query=False)
        expected = dict(zip(of_server["indices"], of_server["values"], strict=True))
        assert dict(zip(made["indices"], made["values"], strict=True)) == pytest.approx(expected)


def test_queries_score_as_those_of_the_server(inferred: httpx.Client) -> None:
    def search(query: Any) -> dict[int, float]:
        body = {"query": query, "using": TEXT_VECTOR, "limit": len(TEXTS)}
        answer = inferred.post("/points/query", json=body).raise_for_status()
        return {point["id"]: point["score"] for point in answer.json()["result"]["points"]}

    for text in TEXTS:
        expected = search({"text": text, "model": "qdrant/bm25"})
        assert search(make_bm25_vector(text, is_query=True)) == pytest.approx(expected), text
    assert search(make_bm25_vector("the and of", is_query=True)) == {}
    assert len(search(make_bm25_vector("pumps", is_query=True))) == 2


# a server that makes no vectors

CHUNKS = {"The pump stops.": (1.0, 0.0), "ERR-4711-X: fuse F3.": (0.0, 1.0), "A valve leaks.": (0.6, 0.8)}
POINTS = [
    Point(number, {"text": text, "doc": "ab"[number % 2]}, vector=vector)
    for number, (text, vector) in enumerate(CHUNKS.items(), 1)
]


class Eastern:
    model, dimension, max_batch = "eastern", 2, 96

    def excess(self, _text: str) -> str | None:
        return None

    def embed(self, texts: Any, _kind: InputType, _deadline: Deadline) -> list[list[float]]:
        return [[1.0, 0.0] for _ in texts]


@pytest.fixture
def old(served_qdrant: QdrantServer) -> Iterator[RecordingServer]:
    with old_qdrant(served_qdrant.url) as running:
        yield running


@pytest.fixture
def old_store(old: RecordingServer) -> Iterator[WritableStore]:
    store = ServerStore(old.url, DeadlineTransport())
    yield store
    store.close()


def load(store: WritableStore, collection: str) -> None:
    store.create(collection, 2, Deadline(SECONDS_60), text_search=True)
    store.upsert(collection, POINTS, "", Deadline(SECONDS_60), text_vector=TEXT_VECTOR)


@pytest.fixture
def services(old_store: WritableStore, collection: str) -> Services:
    load(old_store, collection)
    return make_services(old_store, collection, Eastern())


@pytest.mark.parametrize("mode", ["text", "hybrid"])
def test_an_old_server_is_searched_by_words(services: Services, old: RecordingServer, mode: str) -> None:
    answer = ask(services, query_text="What is ERR-4711-X?", mode=mode, explain=True)
    assert 2 in [result.point_id for result in answer.results]
    assert answer.execution.text_search is not None
    assert answer.execution.text_search.by == "sparse_vector"
    assert not any(b"qdrant/bm25" in request.body for request in old.requests)
    assert [request.path for request in old.requests].count("/") == 1


@pytest.mark.parametrize("extra", [{}, {"group_by": "doc"}, {"cursor": "start"}, {"similarity_threshold": 0.5}])
def test_an_old_server_returns_what_a_new_one_does(
    services: Services, server_store: WritableStore, collection: str, extra: dict[str, Any]
) -> None:
    new = make_services(server_store, collection, Eastern())
    for text in ("What is ERR-4711-X?", "pumps and valves", "the"):
        # The old one takes no rank constant, so that only DBSF gives the same scores.
        request = {"query_text": text, "mode": "hybrid", "fusion": {"method": "dbsf"}, **extra}
        answers = [ask(one, **request) for one in (services, new)]
        found = [[(one.point_id, one.scores, one.group) for one in answer.results] for answer in answers]
        assert found[0] == found[1]


def test_queries_of_several_modes_are_one_request_to_an_old_server(services: Services, old: RecordingServer) -> None:
    queries = [{"query_text": "ERR-4711-X", "mode": mode} for mode in ("text", "hybrid", "dense")]
    ask(services, queries=queries)
    before = len(old.requests)
    answer = ask(services, queries=queries)
    assert [(one.status, bool(one.results)) for one in answer.responses or ()] == [("success", True)] * 3
    assert [request.path.rpartition("/")[2] for request in old.requests[before:]] == ["batch"]


def test_what_an_old_server_stored_is_what_a_new_one_would_have(
    services: Services, server_store: WritableStore, collection: str
) -> None:
    load(server_store, f"{collection}-new")
    leg = StoreQuery(
        collection, 5, DenseLeg(VectorConfig("", 2, "Cosine"), (1.0, 0.0)), TextLeg("fuse pump", TEXT_VECTOR)
    )
    found = []
    for name in (collection, f"{collection}-new"):
        points = server_store.search([StoreQuery(name, 5, leg.dense, leg.text)], Deadline(SECONDS_60))[0]
        found.append({point.id: point.scores for point in points})
    assert found[0] == found[1]
    assert services.store.features(Deadline(SECONDS_60)).bm25


def test_without_qdrant_edge_an_old_server_is_a_400_that_says_what_to_do(
    services: Services, old: RecordingServer, collection: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "has_edge", lambda: False)
    store = ServerStore(old.url, DeadlineTransport())
    for mode in ("text", "hybrid"):
        with pytest.raises(TextIndexRequiredError) as caught:
            ask(make_services(store, collection, Eastern()), query_text="fuse", mode=mode)
        assert (caught.value.code, caught.value.status) == ("INDEX_REQUIRED", 400)
        assert caught.value.message == (
            f"Collection {collection} cannot be searched by words: Qdrant 1.14.0 makes no BM25 vectors. Update it to "
            "1.15.3 or later, or run Chunkproof where qdrant-edge-py is installed, which makes them"
        )
    assert len(ask(make_services(store, collection, Eastern()), query_text="fuse").results) == 3
    store.close()


def test_a_new_server_is_sent_the_text(served_qdrant: QdrantServer, collection: str) -> None:
    with old_qdrant(served_qdrant.url, version="1.15.3") as running:
        store = ServerStore(running.url, DeadlineTransport())
        store.create(collection, 2, Deadline(SECONDS_60), text_search=True)
        with pytest.raises(VectorStoreUnavailableError):
            store.upsert(collection, POINTS, "", Deadline(SECONDS_60), text_vector=TEXT_VECTOR)
        sent = next(request for request in running.requests if b"qdrant/bm25" in request.body)
        store.close()
    vectors = [point["vector"] for point in json.loads(sent.body)["points"]]
    assert vectors[0] == {"": [1.0, 0.0], TEXT_VECTOR: {"text": "The pump stops.", "model": "qdrant/bm25"}}
