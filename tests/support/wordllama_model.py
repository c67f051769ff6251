"""WordLlama's static embeddings of 256 values: a second model that a package carries, for tests of migrations.

Its own loader looks for the tokenizer in a folder that the package does not have, and then wants to download it. So the
two files are read here: a vector for each token, averaged over the tokens of a text.
"""

from collections.abc import Sequence
from functools import cache
from importlib.metadata import files
from typing import Any

import numpy as np

from chunkproof.base.request import Deadline
from chunkproof.embedders.embedder_port import InputType

MODEL = "wordllama-l2-supercat-256"


class WordLlamaEmbedder:
    """Embeds texts with the weights of the package `wordllama`."""

    model = MODEL
    dimension = 256
    max_batch = 256

    def excess(self, text: str) -> str | None:
        """No text is too long: its tokens are averaged."""
        del text

    def embed(self, texts: Sequence[str], input_type: InputType, deadline: Deadline) -> list[list[float]]:
        """Average the vectors of each text's tokens; queries and documents are embedded alike."""
        del input_type, deadline
        tokenizer, weights = _load()
        return [_average(weights, tokenizer.encode(text, add_special_tokens=False).ids) for text in texts]


def _average(weights: Any, tokens: Sequence[int]) -> list[float]:
    mean = weights[tokens].mean(axis=0) if tokens else weights[0]
    unit: list[float] = (mean / max(float(np.linalg.norm(mean)), 1e-12)).tolist()
    return unit


@cache
def _load() -> tuple[Any, Any]:
    from safetensors.numpy import load_file
    from tokenizers import Tokenizer

    found = {file.name: str(file.locate()) for file in files("wordllama") or ()}
    weights = next(iter(load_file(found["l2_supercat_256.safetensors"]).values()))
    return Tokenizer.from_file(found["l2_supercat_tokenizer_config.json"]), weights.astype(np.float32)


# For settings, which name an embedder as `module:object`.
WORDLLAMA = WordLlamaEmbedder()
