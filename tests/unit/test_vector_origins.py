"""Which model made a vector: another model is named where it is shown, and nothing else is called one."""

import random
from collections import Counter

import numpy as np
import pytest

from chunkproof.base.request import Deadline
from chunkproof.embedders.embedder_port import InputType
from chunkproof.proof.vector_judge import Origin, VectorOrigins
from chunkproof.stores.store_port import Vector
from chunkproof_cli.local.corpus import sample_chunks

from support.wordllama_model import WORDLLAMA

CHUNKS = list(sample_chunks())
SAMPLE, SUBJECTS = 64, 20


def embed(texts: list[str]) -> list[Vector]:
    return [tuple(vector) for vector in WORDLLAMA.embed(texts, InputType.DOCUMENT, Deadline(60_000))]


MADE = embed([chunk["text"] for chunk in CHUNKS])
GENERATOR = np.random.default_rng(4)
TURN = np.linalg.qr(GENERATOR.normal(size=(WORDLLAMA.dimension, WORDLLAMA.dimension)))[0]
# A model of its own: a projection of the counts of each text's letter pairs.
PAIRS = GENERATOR.normal(size=(26 * 26, WORDLLAMA.dimension))


def count_pairs(text: str) -> Vector:
    counts = Counter(zip(text.lower(), text.lower()[1:], strict=False))
    letters = "abcdefghijklmnopqrstuvwxyz"
    return tuple(np.sqrt([counts[a, b] for a in letters for b in letters]) @ PAIRS)


WORLDS: dict[str, tuple[list[Vector], set[Origin]]] = {
    "another model": ([tuple(TURN @ vector) for vector in MADE], {Origin.ANOTHER_MODEL, Origin.UNKNOWN}),
    "random": ([tuple(row) for row in GENERATOR.normal(size=(len(MADE), WORDLLAMA.dimension))], {Origin.UNKNOWN}),
    "positive random": ([tuple(row) for row in GENERATOR.random((len(MADE), WORDLLAMA.dimension))], {Origin.UNKNOWN}),
    "other texts": ([*MADE[50:], *MADE[:50]], {Origin.THIS_MODEL, Origin.UNKNOWN}),
    "titles": (embed([chunk["document_title"] for chunk in CHUNKS]), {Origin.THIS_MODEL, Origin.UNKNOWN}),
    "questions": (embed([chunk["text"][-30:] for chunk in CHUNKS]), {Origin.THIS_MODEL, Origin.UNKNOWN}),
    "letters": ([count_pairs(chunk["text"]) for chunk in CHUNKS], {Origin.ANOTHER_MODEL, Origin.UNKNOWN}),
}


@pytest.mark.parametrize("share", [0.3, 1.0])
@pytest.mark.parametrize("world", WORLDS)
def test_no_vector_gets_an_origin_that_it_does_not_have(world: str, share: float) -> None:
    vectors, right = WORLDS[world]
    rng = random.Random(f"{world} {share}")
    foreign = [number for number in range(len(MADE)) if rng.random() < share]
    stored = [vectors[n] if n in set(foreign) else MADE[n] for n in range(len(MADE))]
    origins = VectorOrigins([(stored[n], MADE[n]) for n in rng.sample(range(len(MADE)), SAMPLE)])
    found = Counter(origins.find(stored[n], MADE[n])[0] for n in rng.sample(foreign, SUBJECTS))
    assert set(found) <= right, found
    if world == "another model":
        assert found[Origin.ANOTHER_MODEL] == SUBJECTS
    if world == "other texts":
        assert found[Origin.THIS_MODEL] >= 0.9 * SUBJECTS


def test_another_model_is_named_however_much_its_vectors_have_in_common() -> None:
    """Vectors of one model often have a direction in common; where another model turns it to is chance."""
    common = np.array(MADE) + 2 * GENERATOR.normal(size=WORDLLAMA.dimension) / np.sqrt(WORDLLAMA.dimension)
    for _ in range(12):
        turn = np.linalg.qr(GENERATOR.normal(size=(WORDLLAMA.dimension, WORDLLAMA.dimension)))[0]
        sample = GENERATOR.choice(len(MADE), SAMPLE, replace=False)
        assert VectorOrigins([(tuple(turn @ common[n]), tuple(common[n])) for n in sample]).other_model is not None
