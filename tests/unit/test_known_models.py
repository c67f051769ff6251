"""Models by name, by size, and which of them share a space."""

import pytest

from chunkproof.embedders.known_models import KNOWN_MODELS, can_compare, find_model, is_same_space


@pytest.mark.parametrize(
    ("name", "known", "size"),
    [
        ("text-embedding-3-small", "text-embedding-3-small", 1536),
        ("openai/text-embedding-3-large", "text-embedding-3-large", 3072),
        ("text-embedding-ada-002", "text-embedding-ada-002", 1536),
        ("BAAI/bge-small-en-v1.5", "bge-small-en-v1.5", 384),
        ("sentence-transformers/all-MiniLM-L6-v2", "all-MiniLM-L6-v2", 384),
        ("nomic-embed-text:latest", "nomic-embed-text-v1.5", 768),
        ("mxbai-embed-large", "mxbai-embed-large-v1", 1024),
        ("us.cohere.embed-v4:0", "cohere.embed-v4:0", 1536),
        (
            "arn:aws:bedrock:us-east-1::foundation-model/amazon.titan-embed-text-v2:0",
            "amazon.titan-embed-text-v2:0",
            1024,
        ),
        ("voyage-3-lite", "voyage-3-lite", 512),
        ("wordllama", "wordllama", 256),
    ],
)
def test_a_model_is_known_by_the_names_that_services_give_it(name, known, size):
    found = find_model(name)
    assert found is not None
    assert (found.name, found.sizes[0]) == (known, size)


@pytest.mark.parametrize(
    ("name", "tokens"),
    [
        ("voyage-law-2", 16_000),
        ("voyage-code-2", 16_000),
        ("voyage-2", 4_000),
        ("voyage-4", 32_000),
        ("text-embedding-3-small", 8_192),
        ("amazon.titan-embed-text-v2:0", 8_192),
    ],
)
def test_a_model_reads_as_many_tokens_as_its_service_documents(name: str, tokens: int) -> None:
    found = find_model(name)
    assert found is not None
    assert found.max_tokens == tokens


def test_models_that_shorten_their_vectors_make_any_smaller_size() -> None:
    for name in ("gemini-embedding-001", "Qwen3-Embedding-8B", "text-embedding-3-large"):
        found = find_model(name)
        assert found is not None
        assert found.makes(768)
        assert not found.makes(5000)


def test_an_unknown_model_is_not_guessed():
    assert find_model("our-own-model") is None


def test_names_are_listed_once():
    names = [model.name for model in KNOWN_MODELS]
    assert len(names) == len(set(names))


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("embed-v5.0-pro", "embed-v5.0-fast", True),
        ("voyage-4-large", "voyage-4-lite", True),
        ("voyage-3-large", "voyage-4-large", False),
        ("embed-english-v3.0", "cohere.embed-english-v3", True),
        ("BAAI/bge-m3", "bge-m3", True),
        ("embed-english-v3.0", "embed-multilingual-v3.0", False),
        ("text-embedding-3-small", "text-embedding-ada-002", False),
        ("embed-v4.0", "embed-v5.0-pro", False),
        ("amazon.titan-embed-text-v1", "amazon.titan-embed-text-v2:0", False),
    ],
)
def test_models_of_one_space_can_be_compared(one, other, same):
    assert is_same_space(one, other) is same
    assert is_same_space(other, one) is same


class Embedder:
    model, query_model, same_space = "embed-v5.0-pro", "house-model", ("house-model-2024",)


@pytest.mark.parametrize(
    ("stored", "comparable"),
    [("embed-v5.0-fast", True), ("house-model", True), ("house-model-2024", True), ("embed-v4.0", False)],
)
def test_the_settings_may_add_models_to_a_space(stored, comparable):
    assert can_compare(Embedder(), stored) is comparable


def test_a_smaller_size_of_a_model_is_named_with_its_setting():
    small = find_model("text-embedding-3-small")
    assert small is not None
    assert small.makes(1536)
    assert small.makes(256)
    assert not small.makes(3072)
    assert small.settings(512) == [
        "CHUNKPROOF_EMBEDDER=openai",
        "CHUNKPROOF_MODEL=text-embedding-3-small",
        "CHUNKPROOF_DIMENSION=512",
    ]
