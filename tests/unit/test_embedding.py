"""Query embeddings: what cannot be one is refused, and what was one is remembered."""

import math
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest

from chunkproof.base.errors import EmbeddingError, EmbeddingSizeError, EmbeddingTimeoutError
from chunkproof.base.request import Deadline
from chunkproof.collection.embedding import QueryEmbedder, check_embeddings
from chunkproof.embedders.embedder_port import InputType


class Letters:
    """An embedder of two values that tell texts apart; keeps what it was asked."""

    model = "letters-v1"
    dimension: int | None = None
    max_batch = 96

    def __init__(self, failures: int = 0) -> None:
        self.asked: list[str] = []
        self.failures = failures

    def excess(self, _text: str) -> str | None:
        return None

    def embed(self, texts: Sequence[str], input_type: InputType, _deadline: Deadline) -> list[list[float]]:
        assert input_type is InputType.QUERY
        self.asked += texts
        if self.failures:
            self.failures -= 1
            raise EmbeddingTimeoutError("too slow")
        return [self.vector(text) for text in texts]

    @staticmethod
    def vector(text: str) -> list[float]:
        angle = sum(map(ord, text)) % 360
        return [math.cos(angle), math.sin(angle)]


class Fixed(Letters):
    """Always answers the same."""

    def __init__(self, answer: list[list[float]]) -> None:
        super().__init__()
        self.answer = answer

    def embed(self, texts: Sequence[str], _input_type: InputType, _deadline: Deadline) -> list[list[float]]:
        self.asked += texts
        return self.answer


def refusal(vectors: Sequence[Sequence[float]], count: int) -> str:
    with pytest.raises(EmbeddingError) as refused:
        check_embeddings(vectors, count)
    return refused.value.message.removeprefix("Failed to embed query: ")


def test_sound_embeddings_are_returned_as_they_are():
    vectors = [[0.6, -0.8], [1, 0.0], [-1.0, 1e-30]]

    assert check_embeddings(vectors, 3) is vectors


def test_rounding_beyond_one_is_sound():
    assert check_embeddings([[1.0000001, 0.0]], 1)


@pytest.mark.parametrize(
    ("vectors", "count", "reason"),
    [
        ([], 1, "1 texts were sent and 0 embeddings returned"),
        ([[1.0], [1.0]], 1, "1 texts were sent and 2 embeddings returned"),
        ([[1.0], [0.6, 0.8]], 2, "the embeddings have different sizes"),
        ([[]], 1, "an embedding is empty"),
        ([[0.6, math.nan]], 1, "an embedding has a value that is not a finite number"),
        ([[math.inf, 0.0]], 1, "an embedding has a value that is not a finite number"),
        ([[0.0, -math.inf]], 1, "an embedding has a value that is not a finite number"),
        ([["0.6", 0.8]], 1, "an embedding has a value that is not a finite number"),
        ([[None, 0.8]], 1, "an embedding has a value that is not a finite number"),
        ([[1.01, 0.0]], 1, "an embedding has a value outside [-1, 1]"),
        ([[0.0, -127]], 1, "an embedding has a value outside [-1, 1]"),
        ([[0.0, 0.0, -0.0]], 1, "an embedding is all zeros"),
        ([[0.6, 0.8], [0.0, 0.0]], 2, "an embedding is all zeros"),
        pytest.param(
            [[10**400]], 1, "an embedding has a value outside [-1, 1]",
            id="huge",
        ),
    ],
)  # fmt: skip
def test_what_cannot_be_an_embedding_is_refused_with_the_reason(vectors, count, reason):
    assert refusal(vectors, count) == reason


def test_no_texts_have_no_embeddings():
    assert check_embeddings([], 0) == []


def test_a_query_is_embedded_and_says_when(deadline):
    embedding = QueryEmbedder(Letters(), 10).embed("abc", deadline)

    assert embedding.vector == Letters.vector("abc")
    assert not embedding.cached
    assert embedding.time_ms >= 0
    assert embedding.embedded_at.tzinfo is not None


def test_the_same_text_is_embedded_once(deadline):
    letters = Letters()
    queries = QueryEmbedder(letters, 10)

    first, second = (queries.embed("abc", deadline) for _ in range(2))

    assert letters.asked == ["abc"]
    assert (first.cached, second.cached) == (False, True)
    assert second.vector == first.vector
    assert second.embedded_at == first.embedded_at


@pytest.mark.parametrize(("value", "width"), [(0.5, 4), (0.1, 8), (1, 4)])
def test_a_cached_vector_is_short_only_where_it_loses_nothing(deadline, value, width):
    class Even(Letters):
        def embed(self, texts, input_type, deadline):
            return [[value] * 3 for _ in texts]

    queries = QueryEmbedder(Even(), 10)
    queries.embed("abc", deadline)

    assert queries.embed("abc", deadline).vector == [value] * 3
    assert [kept.itemsize for kept, _ in queries._kept.values()] == [width]


@pytest.mark.parametrize("other", ["Abc", "abc ", " abc", "abc\n", "áb", "a\u0301b"])
def test_only_exactly_the_same_text_is_remembered(other, deadline):
    letters = Letters()
    queries = QueryEmbedder(letters, 10)

    for text in ("abc", "\u00e1b" if other == "a\u0301b" else "abc", other):
        queries.embed(text, deadline)

    assert letters.asked[-1] == other


def test_another_model_or_dimension_is_another_embedding(deadline):
    queries = QueryEmbedder(Letters(), 10)
    queries.embed("abc", deadline)

    letters = Letters()
    letters.model = "letters-v2"
    assert not queries.for_embedder(letters, "CHUNKPROOF_MODEL").embed("abc", deadline).cached
    letters.dimension = 2
    queries = queries.for_embedder(letters, "CHUNKPROOF_MODEL")
    assert not queries.embed("abc", deadline).cached


def test_another_collection_of_the_same_size_shares_it(deadline):
    queries = QueryEmbedder(Letters(), 10)
    queries.embed("abc", deadline)

    assert queries.for_embedder(queries.embedder, "CHUNKPROOF_MODELS.notes").embed("abc", deadline).cached


def test_the_least_recently_used_is_forgotten_first(deadline):
    queries = QueryEmbedder(Letters(), 2)

    cached = [queries.embed(text, deadline).cached for text in ("a", "b", "a", "c", "a", "b")]

    # a and b are kept; a is used again, so c pushes b out; a is still there, b is not.
    assert cached == [False, False, True, False, True, False]


def test_a_size_of_zero_keeps_none(deadline):
    letters = Letters()
    queries = QueryEmbedder(letters, 0)

    assert [queries.embed("abc", deadline).cached for _ in range(3)] == [False] * 3
    assert letters.asked == ["abc"] * 3


def test_a_failure_is_not_remembered(deadline):
    queries = QueryEmbedder(Letters(failures=1), 10)

    with pytest.raises(EmbeddingTimeoutError):
        queries.embed("abc", deadline)

    assert not queries.embed("abc", deadline).cached


def test_an_embedding_that_cannot_be_one_is_not_remembered(deadline):
    fixed = Fixed([[0.0, 0.0]])
    queries = QueryEmbedder(fixed, 10)
    with pytest.raises(EmbeddingError, match="zeros"):
        queries.embed("abc", deadline)

    fixed.answer = [[0.6, 0.8]]

    assert queries.embed("abc", deadline).vector == [0.6, 0.8]


def test_an_embedding_of_another_size_than_the_collections_is_refused_with_both_sizes(deadline):
    queries = QueryEmbedder(Letters(), 10)

    for _ in range(2):
        embedding = queries.embed("abc", deadline)
        error = queries.wrong_size("abc", embedding, "books", 1024)
        assert isinstance(error, EmbeddingSizeError)
        assert "letters-v1 makes 2 values, collection books stores 1024" in str(error)
        assert not embedding.cached, "an embedding of the wrong size is not kept"


def test_threads_get_their_own_texts_vector(deadline):
    queries = QueryEmbedder(Letters(), 3)
    texts = [f"{n % 7}" for n in range(700)]

    with ThreadPoolExecutor(8) as pool:
        embeddings = list(pool.map(lambda text: queries.embed(text, deadline), texts))

    assert [embedding.vector for embedding in embeddings] == [Letters.vector(text) for text in texts]


def test_what_threads_embedded_is_kept_for_all(deadline):
    queries = QueryEmbedder(Letters(), 7)
    texts = [f"{n % 7}" for n in range(70)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda text: queries.embed(text, deadline), texts))

    assert all(queries.embed(text, deadline).cached for text in texts)
