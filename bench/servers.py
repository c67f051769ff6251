"""The two services that every contestant calls: a real Qdrant server and the quick stand-in for Cohere, on loopback."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from qdrant_client import QdrantClient, models

from bench import corpus
from support.cohere_server import KEY
from support.qdrant_server import qdrant_server

# The official client keeps no connection alive to localhost and 127.0.0.1.
ADDRESS = "127.0.0.2"
ROOT = Path(__file__).resolve().parents[1]
BATCH, BATCH_BYTES = 250, 10_000_000  # Qdrant takes 32 MB at once
LONG_TEXTS = {"1-KB": 1_024, "10-KB": 10_240, "100-KB": 102_400, "1-MB": 1_048_576}
LONG_POINTS = 40  # enough that five are on the query's side, with scores above 0


@dataclass(frozen=True)
class Services:
    """Where both listen, and the collections' client."""

    qdrant_url: str
    cohere_url: str

    @property
    def variables(self) -> dict[str, str]:
        """What a contestant finds in its environment."""
        return {
            "QDRANT_URL": self.qdrant_url,
            "COHERE_BASE_URL": self.cohere_url,
            "COHERE_API_KEY": KEY,
            "CHUNKPROOF_CACHE_ENTRIES": "0",
            # A busy machine is not what is measured.
            "CHUNKPROOF_DEADLINE_MS": "20000",
        }

    @property
    def variables_with_secret(self) -> dict[str, str]:
        """The same with the key in a secret, as a deployment has it."""
        arn = "arn:aws:secretsmanager:us-east-1:123456789012:secret:keys"
        return {
            **{name: value for name, value in self.variables.items() if name != "COHERE_API_KEY"},
            "SECRET_ARN": arn,
            "CHUNKPROOF_SECRET_ARN": arn,
            "AWS_ENDPOINT_URL_SECRETS_MANAGER": self.cohere_url,
            "AWS_ACCESS_KEY_ID": "bench",
            "AWS_SECRET_ACCESS_KEY": "bench",
        }

    @property
    def variables_with_extension(self) -> dict[str, str]:
        """Besides, where AWS's Parameters and Secrets extension gives the secret."""
        port = self.cohere_url.rpartition(":")[2]
        return {"CHUNKPROOF_SECRETS_PORT": port, "AWS_SESSION_TOKEN": "bench"}


@contextmanager
def services(say: Callable[[str], None]) -> Iterator[Services]:
    """Both, with every collection filled."""
    with qdrant_server(ADDRESS) as qdrant, _cohere() as cohere_url:
        say(f"Qdrant at {qdrant.url}: {corpus.POINTS:,} chunks of 2 KB in each library's own shape")
        client = _client(qdrant.url)
        try:
            vectors = corpus.unit_vectors(corpus.POINTS, seed=1)
            texts = [corpus.text_of(number) for number in range(corpus.POINTS)]
            for name in corpus.SHAPES:
                _fill(client, name, name, texts, vectors)
            yield Services(qdrant.url, cohere_url)
        finally:
            client.close()


def fill_long_texts(url: str) -> None:
    """A collection for each length of text, named by it."""
    client = _client(url)
    vectors = corpus.unit_vectors(LONG_POINTS, seed=1)
    for name, length in LONG_TEXTS.items():
        texts = [corpus.text_of(number, length) for number in range(LONG_POINTS)]
        _fill(client, name, "plain", texts, vectors)
    client.close()


def _client(url: str) -> QdrantClient:
    return QdrantClient(url=url, timeout=60, check_compatibility=False)


def _fill(client: QdrantClient, name: str, shape: str, texts: list[str], vectors: object) -> None:
    if client.collection_exists(name):
        client.delete_collection(name)
    client.create_collection(
        name,
        vectors_config=models.VectorParams(size=corpus.SIZE, distance=models.Distance.COSINE),
        # Compared with all, whatever the number: every contestant finds exactly the same.
        optimizers_config=models.OptimizersConfigDiff(indexing_threshold=0),
    )
    batch = min(BATCH, BATCH_BYTES // len(texts[0]))
    for first in range(0, len(texts), batch):
        numbers = range(first, min(first + batch, len(texts)))
        client.upsert(
            name,
            models.Batch(
                ids=[corpus.id_of(number) for number in numbers],
                vectors=[vectors[number].tolist() for number in numbers],  # type: ignore[index]
                payloads=[corpus.SHAPES[shape](number, texts[number]) for number in numbers],
            ),
            wait=True,
        )
    if shape == "plain":  # as Chunkproof's own loader leaves it
        client.create_payload_index(name, "chunk_id", models.PayloadSchemaType.KEYWORD, wait=True)


@contextmanager
def _cohere() -> Iterator[str]:
    process = subprocess.Popen(
        [sys.executable, "-m", "bench.cohere_process", ADDRESS],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": f"{ROOT / 'tests'}{os.pathsep}{ROOT}"},
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        assert process.stdout is not None
        yield f"http://{ADDRESS}:{int(process.stdout.readline())}"
    finally:
        process.kill()
        process.wait()
        if process.stdout:
            process.stdout.close()
