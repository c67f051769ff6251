"""List prices of embedding and reranking, for the cost of a thousand searches.

Prices change: `PRICES_OF` says when these were compared with public sources. A file of configurations can replace and
add some. docs/guides/suites.md says which of them no source confirms.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil

from pydantic import Field

from chunkproof.models.base import Model

PRICES_OF = "2026-11"
# USD for a million tokens. Cohere lists no price of its v3 models any more: it is Bedrock's for the same ones. A model
# on this machine costs nothing by the call.
EMBEDDING: Mapping[str, float] = {
    "embed-english-v3.0": 0.10,
    "embed-multilingual-v3.0": 0.10,
    "embed-english-light-v3.0": 0.10,
    "embed-multilingual-light-v3.0": 0.10,
    "embed-v4.0": 0.12,
    "embed-v5.0-pro": 0.12,
    "embed-v5.0-fast": 0.08,
    "cohere.embed-english-v3": 0.10,
    "cohere.embed-multilingual-v3": 0.10,
    "cohere.embed-v4:0": 0.12,
    "amazon.titan-embed-text-v1": 0.10,
    "amazon.titan-embed-text-v2:0": 0.02,
    "text-embedding-3-small": 0.02,
    "text-embedding-3-large": 0.13,
    "text-embedding-ada-002": 0.10,
    "voyage-4-large": 0.12,
    "voyage-4": 0.06,
    "voyage-4-lite": 0.02,
    "voyage-3-large": 0.18,
    "voyage-3": 0.06,
    "voyage-3-lite": 0.02,
    "gemini-embedding-001": 0.15,
    "all-MiniLM-L6-v2": 0.0,
}
# USD for a thousand searches of up to 100 documents each.
RERANK: Mapping[str, float] = {
    "rerank-v3.5": 2.00,
    "rerank-english-v3.0": 2.00,
    "rerank-multilingual-v3.0": 2.00,
    "rerank-v4.0-fast": 2.00,
    "rerank-v4.0-pro": 2.50,
}
DOCUMENTS_PER_SEARCH = 100
# Lambda on arm64: USD for a second with 1 GB, and for a thousand requests.
LAMBDA_SECOND, LAMBDA_THOUSAND = 0.0000133334, 0.0002
CHARS_PER_TOKEN = 4


class Prices(Model):
    """Prices in USD that replace or add to the list."""

    embedding: dict[str, float] = Field(default_factory=dict, description="For a million tokens, by model")
    rerank: dict[str, float] = Field(
        default_factory=dict, description="For a thousand searches of up to 100 documents, by model"
    )


@dataclass(frozen=True)
class Usage:
    """What a search used: models by name, None where it used none."""

    query_chars: int
    embedding_model: str | None
    rerank_model: str | None
    candidates: int


def cost_per_thousand(usages: Sequence[Usage], latency_ms: float, prices: Prices) -> tuple[float | None, str]:
    """Return USD for a thousand searches that take this long, and what that is made of; None without a price."""
    if not usages:
        return None, "no search was judged"
    embedding, rerank = {**EMBEDDING, **prices.embedding}, {**RERANK, **prices.rerank}
    used = {one.embedding_model: embedding for one in usages} | {one.rerank_model: rerank for one in usages}
    if unknown := sorted(model for model, known in used.items() if model is not None and model not in known):
        return None, f"no price is known for {', '.join(unknown)}: set it under prices"
    parts = {
        "embedding": sum(_tokens(one) * embedding[one.embedding_model] for one in usages if one.embedding_model) / 1e6,
        "rerank": sum(_units(one) * rerank[one.rerank_model] for one in usages if one.rerank_model) / 1e3,
    }
    shares = {name: total / len(usages) * 1e3 for name, total in parts.items()}
    shares["Lambda"] = latency_ms * LAMBDA_SECOND + LAMBDA_THOUSAND
    return sum(shares.values()), ", ".join(f"{name} {share:.4f}" for name, share in shares.items() if share)


def _tokens(usage: Usage) -> int:
    """Estimate the tokens of a query: about one for four characters."""
    return ceil(usage.query_chars / CHARS_PER_TOKEN)


def _units(usage: Usage) -> int:
    return ceil(usage.candidates / DOCUMENTS_PER_SEARCH)
