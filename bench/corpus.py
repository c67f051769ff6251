"""What is searched: chunks of 2 KB with vectors of 1024 values, in the payload shape that each library writes."""

import json
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from random import Random
from typing import Any
from uuid import UUID
from zlib import crc32

import numpy as np

POINTS = 3_000
SIZE = 1024
TEXT_BYTES = 2_048
QUERY_VECTORS = 64
_WORDS = (
    *("vector", "index", "query", "chunk", "store", "answer", "graph", "node", "search", "score", "payload"),
    *(
        "filter",
        "segment",
        "memory",
        "latency",
        "cluster",
        "shard",
        "replica",
        "recall",
        "precision",
        "token",
    ),
    *("robot", "arm", "sensor", "motor", "gripper", "joint", "torque", "planner", "camera", "calibration"),
)

Payload = dict[str, Any]


def unit_vectors(count: int, seed: int, size: int = SIZE) -> np.ndarray:
    """Directions spread evenly, the same in every process."""
    raw = np.random.default_rng(seed).standard_normal((count, size))
    return raw / np.linalg.norm(raw, axis=1, keepdims=True)


@cache
def query_vectors() -> np.ndarray:
    """What the embedding service answers, one of these for each text: each has a chunk at a cosine of about 0.7."""
    mixed = unit_vectors(POINTS, seed=1)[:QUERY_VECTORS] + unit_vectors(QUERY_VECTORS, seed=2)
    return mixed / np.linalg.norm(mixed, axis=1, keepdims=True)


def vector_number(text: str) -> int:
    """Which of the query vectors a text gets."""
    return crc32(text.encode()) % QUERY_VECTORS


def text_of(number: int, length: int = TEXT_BYTES) -> str:
    """A chunk's text: ASCII, so that characters are bytes."""
    words = Random(number)
    text = f"Chunk {number}."
    while len(text) < length:
        sentence = " ".join(words.choices(_WORDS, k=11))
        text += f" {sentence.capitalize()}."
    return text[:length]


def id_of(number: int) -> str:
    return str(UUID(int=Random(number + 10_000_000).getrandbits(128), version=4))


def metadata_of(number: int) -> Payload:
    """What every payload says of a chunk, under the names that the library uses or leaves alone."""
    return {
        "url": f"https://docs.example.com/handbook/page-{number // 20}",
        "document_title": f"Handbook, page {number // 20}",
        "document_id": f"page-{number // 20}",
        "position": number % 20,
        "timestamp": "2025-12-15T10:30:00Z",
    }


def _plain(number: int, text: str) -> Payload:
    return {"chunk_id": id_of(number), "text": text, **metadata_of(number)}


def _langchain(number: int, text: str) -> Payload:
    return {"page_content": text, "metadata": metadata_of(number)}


def _llamaindex(number: int, text: str) -> Payload:
    metadata = metadata_of(number)
    node = {
        "id_": id_of(number),
        "embedding": None,
        "metadata": metadata,
        "excluded_embed_metadata_keys": [],
        "excluded_llm_metadata_keys": [],
        "relationships": {},
        "metadata_template": "{key}: {value}",
        "metadata_separator": "\n",
        "text": text,
        "mimetype": "text/plain",
        "start_char_idx": None,
        "end_char_idx": None,
        "text_template": "{metadata_str}\n\n{content}",
        "class_name": "TextNode",
    }
    return {
        **metadata,
        "_node_content": json.dumps(node),
        "_node_type": "TextNode",
        "document_id": "None",
        "doc_id": "None",
        "ref_doc_id": "None",
    }


def _haystack(number: int, text: str) -> Payload:
    meta = metadata_of(number)
    return {
        "id": id_of(number),
        "content": text,
        "blob": None,
        "meta": meta,
        "score": None,
        "sparse_embedding": None,
    }


SHAPES: Mapping[str, Callable[[int, str], Payload]] = {
    "plain": _plain,
    "langchain": _langchain,
    "llamaindex": _llamaindex,
    "haystack": _haystack,
}


def queries() -> Iterator[str]:
    """Questions without end, no two alike."""
    number = 0
    while True:
        number += 1
        yield f"Question {number}: how is the {_WORDS[number % len(_WORDS)]} of an arm calibrated?"
