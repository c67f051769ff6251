"""What `why --fix` writes is read back by the framework that wrote the collection, exactly as before the damage.

Run in the environments that `test_retriever_examples.py` describes; elsewhere they skip.
"""

import json
import os
import subprocess
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
from e2e.test_retriever_examples import ENVIRONMENTS, ROOT
from integration.test_why import NEW, OTHERS, PUMPS, QUESTION
from qdrant_client import models

from chunkproof.audit.snapshot_file import Snapshot, SnapshotWriter
from chunkproof.base.request import Deadline
from chunkproof.collection.reader import Reader
from chunkproof.proof.backend import LocalBackend
from chunkproof.stores.store_port import WritableStore
from chunkproof.why.explainer import Explainer
from chunkproof.why.probe import Question

from support.chunks import make_services
from support.qdrant_server import QdrantServer
from support.sdk import sdk
from support.words import Words

pytestmark = pytest.mark.server


def run(framework: str, what: str, url: str, collection: str, given: Any) -> Any:
    """Run the framework's own classes, in its environment."""
    python = Path(ENVIRONMENTS or "/nowhere") / framework / "bin" / "python"
    if not python.exists():
        pytest.skip("make test-frameworks runs it")
    command = [str(python), "-m", "support.framework_nodes", framework, what, url, collection]
    env = {**os.environ, "PYTHONPATH": f"{ROOT / 'shared'}:{ROOT / 'tests'}"}
    done = subprocess.run(command, env=env, input=json.dumps(given), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def replace_text(value: Any) -> Any:
    """Return a payload with another text, wherever the framework keeps it."""
    if isinstance(value, dict):
        return {name: replace_text(each) for name, each in value.items()}
    return value.replace(PUMPS, NEW) if isinstance(value, str) else value


# What is damaged, and the mode of the search that shows it.
CASES = [
    ("dense vector", "dense"),
    ("all vectors", "text"),
    ("text and vectors", "text"),
    ("text and vectors", "hybrid"),
]


@pytest.mark.parametrize("framework", ["langchain", "llamaindex", "haystack"])
def test_the_framework_reads_what_it_wrote(
    framework: str, server_store: WritableStore, served_qdrant: QdrantServer, tmp_path: Path
) -> None:
    collection, client = f"framework-{framework}", sdk(server_store)
    run(framework, "write", served_qdrant.url, collection, [PUMPS, *OTHERS])
    scroll = partial(client.scroll, collection, limit=100, with_payload=True, with_vectors=True)
    points, read = scroll()[0], run(framework, "read", served_qdrant.url, collection, QUESTION)
    own = next(point for point in points if PUMPS in json.dumps(point.payload))
    other = next(point for point in points if OTHERS[3] in json.dumps(point.payload))
    services = make_services(server_store, collection, Words())
    file = tmp_path / "before.snapshot"
    SnapshotWriter(file, Reader(services, collection), texts=True, vectors=True).write()
    assert isinstance(own.vector, dict)
    assert isinstance(other.vector, dict)
    try:
        for damage, mode in CASES:
            kept = {
                name: values for name, values in own.vector.items() if damage == "dense vector" and "sparse" in name
            }
            payload = replace_text(own.payload) if damage == "text and vectors" else own.payload
            client.upsert(collection, [models.PointStruct(id=own.id, payload=payload, vector={**other.vector, **kept})])
            question = Question({"query_text": QUESTION, "top_k": 2, "mode": mode}, str(own.id), Snapshot(file))
            answer = Explainer(LocalBackend(services, lambda: Deadline(60_000))).explain(question)
            assert answer.fix is not None, answer.report.verdict.line
            url = f"{served_qdrant.url}/collections/{collection}/points/batch?wait=true"
            assert httpx.post(url, json={"operations": answer.fix.operations}).status_code == 200
            assert [describe(point) for point in scroll()[0]] == [describe(point) for point in points], (damage, mode)
        assert run(framework, "read", served_qdrant.url, collection, QUESTION) == read
    finally:
        client.delete_collection(collection)


def describe(point: models.Record) -> Any:
    """Return a point with its vectors rounded, as 32-bit numbers are stored, and its words in one order."""
    vectors = json.loads(point.model_dump_json())["vector"]
    rounded = {
        name: [round(value, 4) for value in each]
        if isinstance(each, list)
        else sorted(zip(*each.values(), strict=True))
        for name, each in vectors.items()
    }
    return point.payload, rounded
