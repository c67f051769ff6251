"""The contract of `Embedder`, tested with Cohere on a loopback server and with the local model."""

from collections.abc import Iterator

import pytest

from chunkproof.clients.cohere import CohereEmbedder
from chunkproof.clients.local_model import MiniLm
from chunkproof.clients.ports import Embedder, InputType
from chunkproof.clients.transport import DeadlineTransport
from chunkproof.deadline import Deadline
from chunkproof.errors import QueryTooLongError

from support.cohere_server import KEY, cohere_server

TEXTS = ["How do robots see?", "Ein Satz auf Deutsch: Größe.", "How do robots see?", "🤖", "a"]


@pytest.fixture(scope="module", params=["cohere", "minilm"])
def embedder(request: pytest.FixtureRequest) -> Iterator[Embedder]:
    if request.param == "minilm":
        yield MiniLm()
        return
    with cohere_server() as server:
        made = CohereEmbedder(
            DeadlineTransport(lambda: {"authorization": f"Bearer {KEY}"}),
            model="embed-english-v3.0",
            base_url=server.url,
        )
        yield made
        made.close()


def embed(embedder: Embedder, *texts: str, as_: InputType = InputType.QUERY) -> list[list[float]]:
    return embedder.embed(texts, as_, Deadline(60_000))


def cosine(left: list[float], right: list[float]) -> float:
    return sum(a * b for a, b in zip(left, right, strict=True))


def test_there_is_one_vector_per_text_in_order(embedder: Embedder) -> None:
    together = embed(embedder, *TEXTS)
    assert len(together) == len(TEXTS)
    for text, vector in zip(TEXTS, together, strict=True):
        assert vector == pytest.approx(embed(embedder, text)[0], abs=1e-6)


def test_vectors_have_length_one(embedder: Embedder) -> None:
    for vector in embed(embedder, *TEXTS):
        assert cosine(vector, vector) == pytest.approx(1.0, abs=1e-5)


def test_the_same_text_has_the_same_vector(embedder: Embedder) -> None:
    first, _, third, *_ = embed(embedder, *TEXTS)
    assert first == pytest.approx(third, abs=1e-6)


def test_different_texts_have_different_vectors(embedder: Embedder) -> None:
    first, second = embed(embedder, "robots", "gardens")
    assert cosine(first, second) < 0.99


@pytest.mark.parametrize("as_", list(InputType))
def test_a_text_longer_than_the_model_reads_is_refused_and_never_truncated(embedder: Embedder, as_: InputType) -> None:
    with pytest.raises(QueryTooLongError) as caught:
        embed(embedder, "short", "word " * 600, as_=as_)
    assert caught.value.code == "QUERY_TOO_LONG"
    assert embedder.model in caught.value.message


def test_vectors_have_the_stated_dimension(embedder: Embedder) -> None:
    (vector,) = embed(embedder, "robots")
    assert embedder.dimension in (None, len(vector))


def test_cohere_states_its_model_and_batch_size() -> None:
    local = MiniLm()
    assert (local.model, local.dimension) == ("all-MiniLM-L6-v2", 384)
    assert local.max_batch >= 1


def test_the_local_model_reports_a_text_that_is_too_long_without_a_call() -> None:
    local = MiniLm()
    assert local.excess("short") is None
    # 254 words of one token each and two special tokens are exactly its limit
    assert local.excess(" ".join(["robot"] * 254)) is None
    assert local.excess(" ".join(["robot"] * 255)) == "257 tokens, all-MiniLM-L6-v2 reads 256"


@pytest.mark.parametrize(
    ("question", "near", "far"),
    [
        (
            "How does a robot know where it is?",
            "Localization lets a machine estimate its position on a map.",
            "Bake the bread for forty minutes until the crust is brown.",
        ),
        (
            "What is a vector database?",
            "It stores embeddings and finds the nearest ones to a query.",
            "The orchestra tuned its violins before the concert.",
        ),
    ],
)
def test_a_paraphrase_is_nearer_than_an_unrelated_sentence(question: str, near: str, far: str) -> None:
    query, close, distant = embed(MiniLm(), question, near, far)
    assert cosine(query, close) > cosine(query, distant) + 0.1
