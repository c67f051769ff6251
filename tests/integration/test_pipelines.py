"""Collections as eight pipelines write them, read as they are: the five documents' and three frameworks'."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from chunkproof.base.request import Deadline
from chunkproof.collection.facts import collection_info
from chunkproof.collection.services import Services
from chunkproof.embedders.local_model import MiniLm
from chunkproof.net.transport import DeadlineTransport
from chunkproof.stores.server import ServerStore
from chunkproof.stores.store_port import WritableStore

from support.chunks import ask, check, make_services
from support.pipelines import dense_vector, pipeline, write
from support.sdk import sdk
from support.stores import MemoryStore

SETUP = "https://docs.example.com/guide/setup"
PDF = "https://docs.example.com/papers/hybrid-search.pdf"
DOCUMENTS = ("doc_000", "doc_001", "doc_002", "doc_003", "doc_004")
FRAMEWORKS = tuple(f"{name}_{kind}" for name in ("langchain", "llamaindex", "haystack") for kind in ("dense", "hybrid"))

# What the metadata of one point is, field by field; what is not named is null.
DOCUMENT_POINTS: dict[str, dict[str, Any]] = {
    "doc_000": {
        "document_id": SETUP,
        "url": SETUP,
        "position": 245,
        "timestamp": "2025-12-15T10:30:00Z",
        "document_title": "Vector Database Setup Guide",
    },
    "doc_001": {"document_id": SETUP, "url": SETUP, "position": 1, "timestamp": "2025-12-15T10:30:00Z"},
    "doc_002": {
        "document_id": SETUP,
        "url": SETUP,
        "document_title": "Getting Started Guide",
        "section_heading": "Sizes",
        "breadcrumb": "Docs > Getting Started",
        "position": 1,
        "tokens": 22,
        "content_type": "text",
        "has_code": False,
        "timestamp": "2025-12-27T10:30:00Z",
        "content_hash": "92e6c3389080f95d",
        "embedding_model": "embed-english-v3.0",
    },
    "doc_003": {
        "document_id": SETUP,
        "url": SETUP,
        "position": 1,
        "total_chunks": 3,
        "timestamp": "2025-12-10T15:30:00",
        "embedding_model": "embed-multilingual-v3.0",
    },
    "doc_004": {
        "document_id": SETUP,
        "url": SETUP,
        "document_title": "Module 1: Setup",
        "section_headers": ["Module 1: Setup", "Sizes"],
        "position": 1,
        "tokens": 22,
    },
}
SECOND_TEXT = "Die Größe der Vektoren muss übereinstimmen.\r\nSonst antwortet der Server mit 400 \N{UPSIDE-DOWN FACE}."
FRAMEWORK_POINTS: dict[str, dict[str, Any]] = {
    "langchain": {"document_id": PDF, "url": PDF, "document_title": "Hybrid search for robot manuals"},
    "llamaindex": {
        "document_id": "a614c0c6-21b8-518d-970d-be72953dfe11",
        "url": PDF,
        "document_title": "Hybrid search for robot manuals",
    },
    "haystack": {
        "url": PDF,
        "document_title": "Hybrid search for robot manuals",
        "content_type": "application/pdf",
        "position": 0,
    },
}
MAPPINGS = {
    "doc_000": {
        "text": "text",
        "url": "url",
        "position": "position",
        "timestamp": "timestamp",
        "document_title": "document_title",
    },
    "doc_001": {"text": "content", "url": "url", "position": "position", "timestamp": "created_at"},
    "doc_002": {
        "text": "chunk_text",
        "url": "source_url",
        "document_title": "page_title",
        "section_heading": "section_heading",
        "breadcrumb": "breadcrumb",
        "position": "chunk_index",
        "tokens": "chunk_size",
        "content_type": "content_type",
        "has_code": "has_code",
        "timestamp": "ingested_at",
        "content_hash": "content_hash",
        "embedding_model": "embedding_model",
    },
    "doc_003": {
        "text": "content",
        "url": "source_url",
        "position": "chunk_index",
        "total_chunks": "total_chunks",
        "timestamp": "timestamp",
        "embedding_model": "embedding_model",
    },
    "doc_004": {
        "text": "chunk_text",
        "url": "source_url",
        "document_title": "page_title",
        "section_headers": "section_headers",
        "position": "chunk_index",
        "tokens": "tokens",
    },
    "langchain": {"text": "page_content", "url": "metadata.source", "document_title": "metadata.title"},
    "llamaindex": {
        "text": "_node_content.text",
        "url": "url",
        "document_id": "document_id",
        "document_title": "title",
    },
    "haystack": {
        "text": "content",
        "url": "meta.url",
        "document_id": "meta.source_id",
        "document_title": "meta.title",
        "position": "meta.split_id",
        "content_type": "meta.content_type",
    },
}
NULL: dict[str, Any] = {
    **dict.fromkeys(("document_id", "url", "position", "timestamp", "document_title", "section_heading")),
    **dict.fromkeys(("breadcrumb", "total_chunks", "tokens", "content_type", "has_code", "content_hash")),
    "embedding_model": None,
    "section_headers": [],
}


@dataclass
class Loaded:
    """One pipeline's collection in one engine."""

    name: str
    services: Services

    @property
    def points(self) -> list[dict[str, Any]]:
        stored: list[dict[str, Any]] = pipeline(self.name)["points"]
        return stored

    @property
    def family(self) -> str:
        return self.name.removesuffix("_dense").removesuffix("_hybrid")


@pytest.fixture(scope="module", params=["memory", pytest.param("server", marks=pytest.mark.server)])
def engine(request: pytest.FixtureRequest) -> Iterator[WritableStore]:
    if request.param == "memory":
        store = MemoryStore()
    else:
        store = ServerStore(request.getfixturevalue("served_qdrant").url, DeadlineTransport())
    yield store
    store.close()


@pytest.fixture(scope="module")
def local_model() -> MiniLm:
    return MiniLm()


@pytest.fixture(scope="module", params=DOCUMENTS + FRAMEWORKS)
def loaded(request: pytest.FixtureRequest, engine: WritableStore, local_model: MiniLm) -> Loaded:
    collection = f"pipelines-{request.param}"
    if not sdk(engine).collection_exists(collection):
        write(engine, collection, request.param, with_indexes=engine.host != "memory")
    return Loaded(request.param, make_services(engine, collection, local_model))


def text_of(point: dict[str, Any], family: str) -> str:
    """The chunk's text, found by hand."""
    payload = point["payload"]
    found = {
        "doc_000": lambda: payload["text"],
        "doc_001": lambda: payload["content"],
        "doc_002": lambda: payload["chunk_text"],
        "doc_003": lambda: payload["content"],
        "doc_004": lambda: payload["chunk_text"],
        "langchain": lambda: payload["page_content"],
        "llamaindex": lambda: json.loads(payload["_node_content"])["text"],
        "haystack": lambda: payload["content"],
    }[family]()
    assert isinstance(found, str)
    return found


def id_of(point: dict[str, Any], family: str) -> str:
    """The chunk's id, found by hand: only these pipelines keep a text of their own for it."""
    key = {"doc_000": "chunk_id", "doc_004": "chunk_id", "haystack": "id"}.get(family)
    return str(point["payload"][key] if key else point["id"])


def test_each_stored_vector_finds_its_own_chunk_with_its_text_byte_for_byte(loaded: Loaded) -> None:
    for point in loaded.points:
        answer = ask(loaded.services, query_vector=dense_vector(point), top_k=10)
        best = answer.results[0]
        assert best.similarity_score == pytest.approx(1.0, abs=1e-5)
        assert best.metadata.chunk_id == id_of(point, loaded.family)
        assert best.text.encode() == text_of(point, loaded.family).encode()
        assert answer.execution.skipped == 0


def test_every_id_of_an_answer_validates_that_very_point(loaded: Loaded) -> None:
    vector = dense_vector(loaded.points[0])
    answer = ask(loaded.services, query_vector=vector, top_k=10, with_payload=True)
    by_id = {id_of(point, loaded.family): point for point in loaded.points}
    assert answer.results
    for result in answer.results:
        assert result.payload == by_id[result.metadata.chunk_id]["payload"]
        verdict = check(loaded.services, result.metadata.chunk_id, original_text=result.text)
        assert verdict.chunk_id == result.metadata.chunk_id
        assert verdict.stored_text == result.text
        assert (verdict.matches, verdict.validation_passed) == (True, True)


def test_every_point_id_validates_its_point_too(loaded: Loaded) -> None:
    for point in loaded.points:
        text = text_of(point, loaded.family)
        assert check(loaded.services, str(point["id"]), original_text=text).validation_passed


def test_the_collection_is_described_with_its_mapping(loaded: Loaded) -> None:
    collection = loaded.services.settings.collection
    info = collection_info(loaded.services.collection(collection, Deadline(60_000)))
    size = 384 if loaded.name in FRAMEWORKS else 3
    name = "text-dense" if loaded.name in ("llamaindex_hybrid", "haystack_hybrid") else ""
    assert (info.vector_size, info.distance_metric, info.points_count) == (size, "Cosine", len(loaded.points))
    assert [(v.name, v.size, v.distance_metric) for v in info.vectors] == [(name, size, "Cosine")]
    assert info.payload_map == MAPPINGS[loaded.family]


@pytest.mark.parametrize("loaded", DOCUMENTS, indirect=True)
def test_the_metadata_of_a_documents_chunk_is_mapped(loaded: Loaded) -> None:
    best = ask(loaded.services, query_vector=[0.6, 0.8, 0.0]).results[0]
    shown = best.metadata.model_dump()
    assert best.text == SECOND_TEXT
    assert shown.pop("chunk_id") == id_of(loaded.points[1], loaded.family)
    assert shown == {**NULL, **DOCUMENT_POINTS[loaded.name]}


@pytest.mark.parametrize("loaded", FRAMEWORKS, indirect=True)
def test_the_metadata_of_a_frameworks_chunk_is_mapped(loaded: Loaded) -> None:
    answer = ask(loaded.services, query_text="How do dense and sparse vectors work together?", top_k=1)
    (best,) = answer.results
    assert best.text.startswith("Dense vectors find passages that mean the same in other words")
    shown = best.metadata.model_dump()
    expected = {**NULL, **FRAMEWORK_POINTS[loaded.family]}
    if loaded.family == "haystack":
        assert shown.pop("document_id") != shown["url"], "Haystack's id of the whole document"
        expected.pop("document_id")
    shown.pop("chunk_id")
    assert shown == expected


@pytest.mark.parametrize("loaded", FRAMEWORKS, indirect=True)
@pytest.mark.parametrize(
    ("question", "beginning"),
    [
        ("What does a robot do when something is in its way?", "A warehouse robot builds a map"),
        ("How many questions did they measure recall on?", "We measured recall on 1,200 questions"),
    ],
)
def test_a_question_finds_its_passage(loaded: Loaded, question: str, beginning: str) -> None:
    assert ask(loaded.services, query_text=question).results[0].text.startswith(beginning)


def test_a_canonical_name_filters_by_the_pipelines_own_field(loaded: Loaded) -> None:
    point = loaded.points[0]
    url = ask(loaded.services, query_vector=dense_vector(point)).results[0].metadata.url
    answer = ask(loaded.services, query_vector=dense_vector(point), filters={"url": url}, top_k=10)
    same = sum(f'"{url}"' in str(p["payload"]).replace("'", '"') for p in loaded.points)
    assert len(answer.results) == same > 0
    assert {result.metadata.url for result in answer.results} == {url}
    assert not ask(loaded.services, query_vector=dense_vector(point), filters={"url": f"{url}x"}).results


@pytest.mark.parametrize("loaded", ["doc_002", "doc_004"], indirect=True)
def test_chunks_that_carry_their_hash_are_proved_without_an_original(loaded: Loaded) -> None:
    for point in loaded.points:
        verdict = check(loaded.services, id_of(point, loaded.family))
        assert (verdict.matches, verdict.validation_passed) == (True, True)
        proof = "content_hash" if loaded.name == "doc_002" else "chunk_id"
        assert {c.name: c.passed for c in verdict.checks}[proof] is True
