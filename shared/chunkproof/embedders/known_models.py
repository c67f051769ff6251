"""Embedding models that are widely used: who offers them, their sizes, what they read, and which share a space.

Sizes, limits and prefixes were compared with public sources in November 2026. Of services, that is their own
documentation: Cohere (docs.cohere.com/docs/cohere-embed), Voyage (docs.voyageai.com/docs/embeddings; for older models
the lists of others), OpenAI's API reference (8,192 tokens for all embedding models), the user guide of Amazon Bedrock,
Google (ai.google.dev). Of open models and mistral-embed, that is what several other projects state. Nothing confirmed
the token limit of mxbai-embed-large-v1 or the query prefix of arctic-embed.
"""

import re
from dataclasses import dataclass

from chunkproof.embedders.embedder_port import Embedder, query_model

OPENAI_TOKENS, VOYAGE_TOKENS = 8_192, 32_000
BGE_QUERY = "Represent this sentence for searching relevant passages: "


@dataclass(frozen=True, slots=True)
class KnownModel:
    """A model; its usual size comes first. `provider` is the value of `CHUNKPROOF_EMBEDDER` that reaches it."""

    name: str
    provider: str
    sizes: tuple[int, ...]
    max_tokens: int
    query_prefix: str = ""
    document_prefix: str = ""
    # Any size up to the largest, rather than those listed.
    has_any_size: bool = False

    def makes(self, size: int) -> bool:
        """Whether the model can make vectors of this size."""
        return size in self.sizes or (self.has_any_size and size < max(self.sizes))

    def settings(self, size: int) -> list[str]:
        """Return the settings to search a collection of this size with the model."""
        found = [f"CHUNKPROOF_EMBEDDER={self.provider}"]
        if self.provider != "local":
            found.append(f"CHUNKPROOF_MODEL={self.name}")
        if size != self.sizes[0]:
            found.append(f"CHUNKPROOF_DIMENSION={size}")
        return found


def _open(
    name: str, size: int, tokens: int = 512, query: str = "", document: str = "", *, has_any_size: bool = False
) -> KnownModel:
    """A model with open weights, which vLLM, TEI, Ollama and others serve by OpenAI's API."""
    return KnownModel(name, "openai", (size,), tokens, query, document, has_any_size)


def _voyage(name: str, *sizes: int, tokens: int = VOYAGE_TOKENS) -> KnownModel:
    return KnownModel(name, "openai", sizes, tokens)


_ALL_VOYAGE = (1024, 256, 512, 2048)
# The most widely used of a size first: where only the size is known, it is the one to name.
KNOWN_MODELS = (
    KnownModel("all-MiniLM-L6-v2", "local", (384,), 256),
    KnownModel("embed-english-v3.0", "cohere", (1024,), 512),
    KnownModel("embed-multilingual-v3.0", "cohere", (1024,), 512),
    KnownModel("embed-english-light-v3.0", "cohere", (384,), 512),
    KnownModel("embed-multilingual-light-v3.0", "cohere", (384,), 512),
    KnownModel("text-embedding-3-small", "openai", (1536,), OPENAI_TOKENS, has_any_size=True),
    KnownModel("text-embedding-ada-002", "openai", (1536,), OPENAI_TOKENS),
    KnownModel("text-embedding-3-large", "openai", (3072,), OPENAI_TOKENS, has_any_size=True),
    KnownModel("embed-v4.0", "cohere", (1536, 256, 512, 1024), 128_000),
    KnownModel("embed-v5.0-pro", "cohere", (2048, 256, 512, 768, 1024, 1536), 128_000),
    KnownModel("embed-v5.0-fast", "cohere", (2048, 256, 512, 768, 1024, 1536), 128_000),
    KnownModel("amazon.titan-embed-text-v1", "bedrock", (1536,), 8_192),
    KnownModel("amazon.titan-embed-text-v2:0", "bedrock", (1024, 512, 256), 8_192),
    KnownModel("cohere.embed-english-v3", "bedrock", (1024,), 512),
    KnownModel("cohere.embed-multilingual-v3", "bedrock", (1024,), 512),
    KnownModel("cohere.embed-v4:0", "bedrock", (1536, 256, 512, 1024), 128_000),
    _voyage("voyage-4-large", *_ALL_VOYAGE),
    _voyage("voyage-4", *_ALL_VOYAGE),
    _voyage("voyage-4-lite", *_ALL_VOYAGE),
    _voyage("voyage-3", 1024),
    _voyage("voyage-3-lite", 512),
    _voyage("voyage-3-large", *_ALL_VOYAGE),
    _voyage("voyage-3.5", *_ALL_VOYAGE),
    _voyage("voyage-3.5-lite", *_ALL_VOYAGE),
    _voyage("voyage-code-3", *_ALL_VOYAGE),
    _voyage("voyage-2", 1024, tokens=4_000),
    _voyage("voyage-large-2", 1536, tokens=16_000),
    _voyage("voyage-code-2", 1536, tokens=16_000),
    _voyage("voyage-multilingual-2", 1024),
    _voyage("voyage-law-2", 1024, tokens=16_000),
    _voyage("voyage-finance-2", 1024),
    _open("bge-small-en-v1.5", 384, query=BGE_QUERY),
    _open("bge-base-en-v1.5", 768, query=BGE_QUERY),
    _open("bge-large-en-v1.5", 1024, query=BGE_QUERY),
    _open("bge-m3", 1024, 8_192),
    _open("e5-small-v2", 384, query="query: ", document="passage: "),
    _open("e5-base-v2", 768, query="query: ", document="passage: "),
    _open("e5-large-v2", 1024, query="query: ", document="passage: "),
    _open("multilingual-e5-small", 384, query="query: ", document="passage: "),
    _open("multilingual-e5-base", 768, query="query: ", document="passage: "),
    _open("multilingual-e5-large", 1024, query="query: ", document="passage: "),
    _open("gte-small", 384),
    _open("gte-base", 768),
    _open("gte-large", 1024),
    _open("all-MiniLM-L12-v2", 384, 128),
    _open("all-mpnet-base-v2", 768, 384),
    _open("multi-qa-mpnet-base-dot-v1", 768),
    _open("paraphrase-multilingual-MiniLM-L12-v2", 384, 128),
    KnownModel(
        "nomic-embed-text-v1.5", "openai", (768, 512, 256, 128, 64), 8_192, "search_query: ", "search_document: "
    ),
    _open("nomic-embed-text-v1", 768, 8_192, "search_query: ", "search_document: "),
    _open("mxbai-embed-large-v1", 1024, query=BGE_QUERY),
    _open("snowflake-arctic-embed-s", 384, query=BGE_QUERY),
    _open("snowflake-arctic-embed-m", 768, query=BGE_QUERY),
    _open("snowflake-arctic-embed-l", 1024, query=BGE_QUERY),
    _open("jina-embeddings-v2-base-en", 768, 8_192),
    _open("jina-embeddings-v3", 1024, 8_192),
    _open("mistral-embed", 1024, 8_192),
    _open("text-embedding-004", 768, 2_048),
    _open("gemini-embedding-001", 3072, 2_048, has_any_size=True),
    _open("Qwen3-Embedding-0.6B", 1024, 32_768, has_any_size=True),
    _open("Qwen3-Embedding-4B", 2560, 32_768, has_any_size=True),
    _open("Qwen3-Embedding-8B", 4096, 32_768, has_any_size=True),
    KnownModel("wordllama", "module:function", (256, 64, 128, 512, 1024), 1_000_000),
)
# Different models of a service whose vectors can be compared with each other.
_FAMILIES = ({"embed-v5.0-pro", "embed-v5.0-fast"}, {"voyage-4-large", "voyage-4", "voyage-4-lite"})
# The same, and models under several names.
_SPACES = (
    *_FAMILIES,
    {"embed-english-v3.0", "embed-english-v3"},
    {"embed-multilingual-v3.0", "embed-multilingual-v3"},
    {"embed-v4.0", "embed-v4"},
    {"nomic-embed-text-v1.5", "nomic-embed-text"},
    {"mxbai-embed-large-v1", "mxbai-embed-large"},
    {"all-minilm-l6-v2", "all-minilm"},
)
# What services put before or behind a name: owners, regions of inference profiles, tags of Ollama.
_AROUND = re.compile(r"^.*/|^(us|eu|apac|au|jp|ca|global)\.(?=cohere|amazon)|^cohere\.|:latest$|:0$")


def plain_name(model: str) -> str:
    """Return a model's name without its owner, region or tag, in lower case: `BAAI/bge-m3` is `bge-m3`."""
    name, shorter = model.strip().lower(), ""
    while (shorter := _AROUND.sub("", name)) != name:
        name = shorter
    return name


def find_model(name: str) -> KnownModel | None:
    """Return what is known of a model by its name, or by the name of one that shares its space."""
    plain = plain_name(name)
    exact = next((model for model in KNOWN_MODELS if model.name.lower() == name.lower()), None)
    return exact or next(
        (model for model in KNOWN_MODELS if plain_name(model.name) == plain),
        next((model for model in KNOWN_MODELS if is_same_space(model.name, name)), None),
    )


def is_same_space(one: str, other: str) -> bool:
    """Whether vectors of the two models can be compared."""
    names = {plain_name(one), plain_name(other)}
    return len(names) == 1 or any(names <= space for space in _SPACES)


def is_same_family(one: str, other: str) -> bool:
    """Whether two different models of one service share a space: not one model under two names."""
    names = {plain_name(one), plain_name(other)}
    return len(names) == 2 and any(names <= family for family in _FAMILIES)


def can_compare(embedder: Embedder, stored_model: str) -> bool:
    """Whether queries of the embedder can be compared with the vectors of this model."""
    same = (embedder.model, query_model(embedder), *getattr(embedder, "same_space", ()))
    return any(is_same_space(model, stored_model) for model in same)
