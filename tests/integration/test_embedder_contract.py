"""The contract of `Embedder`, tested with every service on a loopback server, the local model and a function."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import pytest

from chunkproof.base.embedder_config import EmbedderConfig
from chunkproof.base.errors import QueryTooLongError
from chunkproof.base.request import Deadline
from chunkproof.embedders.bedrock import BedrockEmbedder
from chunkproof.embedders.cohere import CohereEmbedder
from chunkproof.embedders.embedder_port import Embedder, InputType, query_model
from chunkproof.embedders.local_model import MiniLm
from chunkproof.embedders.openai_api import OpenAiEmbedder
from chunkproof.embedders.python_embedder import open_python_embedder
from chunkproof.net.transport import DeadlineTransport

from support.bedrock_server import CREDENTIALS, REGION, bedrock_server
from support.cohere_server import KEY, cohere_server, hashed
from support.openai_server import KEY as OPENAI_KEY
from support.openai_server import openai_server

TEXTS = ["How do robots see?", "Ein Satz auf Deutsch: Größe.", "How do robots see?", "🤖", "a"]


def bearer(key: str) -> DeadlineTransport:
    return DeadlineTransport(lambda: {"authorization": f"Bearer {key}"})


@contextmanager
def cohere(**fields: Any) -> Iterator[Embedder]:
    with cohere_server() as server:
        yield CohereEmbedder(bearer(KEY), base_url=server.url, **fields)


@contextmanager
def openai(habits: dict[str, Any] | None = None, **fields: Any) -> Iterator[Embedder]:
    with openai_server(**habits or {}) as server:
        yield OpenAiEmbedder(bearer(OPENAI_KEY), base_url=server.url, model="text-embedding-3-small", **fields)


@contextmanager
def bedrock(model: str, size: int, length: float = 1.0) -> Iterator[Embedder]:
    with pytest.MonkeyPatch.context() as patch, bedrock_server(hashed(size), length) as server:
        for name, value in CREDENTIALS.items():
            patch.setenv(name, value)
        made = BedrockEmbedder(DeadlineTransport(), base_url=server.url, region=REGION, model=model)
        embed(made, "the credentials are read once")  # tests have others in their environment
        yield made


@contextmanager
def function() -> Iterator[Embedder]:
    yield open_python_embedder(EmbedderConfig(provider=f"{__name__}:embed_words"), from_here=True)


def embed_words(texts: list[str]) -> list[list[float]]:
    """Embed texts of up to 512 words, in vectors of any length."""
    for text in texts:
        if len(text.split()) > 512:
            raise QueryTooLongError(f"{__name__}:embed_words reads 512 words")
    return [[3.0 * value for value in hashed(64)(text)] for text in texts]


EMBEDDERS = {
    "cohere": lambda: cohere(model="embed-english-v3.0"),
    "cohere, two models": lambda: cohere(model="embed-v5.0-pro", query_model="embed-v5.0-fast"),
    "minilm": lambda: nullcontext(MiniLm()),
    "openai": openai,
    "openai, base64": lambda: openai(encoding="base64"),
    "openai, 256 values": lambda: openai(dimension=256),
    "openai, another order": lambda: openai({"in_reverse": True}),
    "openai, a service that cuts texts": lambda: openai({"cuts": True}, max_tokens=512),
    "openai, a service of small batches": lambda: openai({"max_batch": 2}),
    "openai, vectors of any length": lambda: openai({"length": 17.0}),
    "cohere on bedrock": lambda: bedrock("cohere.embed-english-v3", 1024),
    "titan": lambda: bedrock("amazon.titan-embed-text-v2:0", 1024),
    "titan, first version": lambda: bedrock("amazon.titan-embed-text-v1", 1536, length=12.5),
    "a function": function,
}


@pytest.fixture(scope="module", params=EMBEDDERS)
def embedder(request: pytest.FixtureRequest) -> Iterator[Embedder]:
    with EMBEDDERS[request.param]() as made:
        yield made
        if hasattr(made, "close"):
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
    assert (query_model(embedder) if as_ is InputType.QUERY else embedder.model) in caught.value.message
    assert embed(embedder, "word " * 200, as_=as_)


def test_as_many_texts_as_a_batch_may_have_are_embedded(embedder: Embedder) -> None:
    texts = [f"text {n}" for n in range(embedder.max_batch)]
    assert len(embed(embedder, *texts, as_=InputType.DOCUMENT)) == embedder.max_batch


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
