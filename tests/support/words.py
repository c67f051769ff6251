"""An embedder that counts words: texts that share words are similar. It is fast, and many scores are equal."""

import re
from collections.abc import Sequence
from hashlib import sha256
from math import sqrt

from chunkproof.base.request import Deadline
from chunkproof.embedders.embedder_port import InputType


class Words:
    """Counts words into a few buckets; the vector has length 1."""

    model = "words"
    dimension = 64
    max_batch = 512

    def excess(self, _text: str) -> str | None:
        return None

    def embed(self, texts: Sequence[str], _input_type: InputType, _deadline: Deadline) -> list[list[float]]:
        return [self._vector(text) for text in texts]

    def _vector(self, text: str) -> list[float]:
        counts = [0.0] * self.dimension
        for word in re.findall(r"\w+", text.lower()) or ["nothing"]:
            counts[sha256(word.encode()).digest()[0] % self.dimension] += 1.0
        length = sqrt(sum(count * count for count in counts))
        return [count / length for count in counts]
