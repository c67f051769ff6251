"""A model of a few lines for the golden files: the same numbers on every machine, and faults on request.

A text's vector counts its words, each under a hash; a little of its own keeps two texts from having the same score,
whose order would be open. `PLANTED` maps texts to what is embedded in their place when they
are loaded, as a broken pipeline would do it.
"""

import re
from hashlib import sha256, shake_256

SIZE = 384
# The query of events/search.503-embedder-down.json.
FAILING_QUERY = "Embed this while the service is down"
PLANTED: dict[str, str] = {}


def embed_words(text: str) -> list[float]:
    """Return the unit vector of a text's words."""
    vector = [(byte - 127.5) / 5_000 for byte in shake_256(text.encode()).digest(SIZE)]
    for word in re.findall(r"\w+", text.lower()):
        code = sha256(word.encode()).digest()
        vector[int.from_bytes(code[:4], "big") % SIZE] += 1.0 if code[4] & 1 else -1.0
    length = sum(value * value for value in vector) ** 0.5
    return [round(value / length, 6) for value in vector]


class WordModel:
    """Embeds a question differently from a document, as Cohere's models do."""

    model = "golden-words"

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        return [embed_words(PLANTED.get(text, text)) for text in texts]

    def embed_query(self, text: str) -> list[float]:
        if text == FAILING_QUERY:
            raise ConnectionError("the model is down")
        return embed_words(f"question {text}")


MODEL = WordModel()
