"""What `why --fix` writes down, sent to a real server, brings the chunk back."""

from pathlib import Path

import httpx
import pytest
from integration.test_why import CASES, OTHERS, PUMPS, QUESTION, point

from chunkproof.audit.reader import Reader
from chunkproof.audit.snapshot import Snapshot, SnapshotWriter
from chunkproof.clients.qdrant.server import ServerStore
from chunkproof.clients.qdrant.store import QdrantStore
from chunkproof.deadline import Deadline
from chunkproof.why.explain import Question, explain
from chunkproof.why.report import Cause, Explanation

from support.chunks import fill, make_services
from support.words import Words

pytestmark = pytest.mark.server
WRITTEN = [
    Cause.TEXT_CHANGED,
    Cause.STALE_VECTOR,
    Cause.DELETED,
    Cause.SPLIT_DIFFERENTLY,
    Cause.DUPLICATES,
    Cause.FIELD_RENAMED,
    Cause.VALUE_CHANGED,
]


@pytest.mark.parametrize("cause", WRITTEN)
def test_the_operations_bring_the_chunk_back(
    server_store: QdrantStore, collection: str, tmp_path: Path, cause: Cause
) -> None:
    points = [point(n, text) for n, text in enumerate((PUMPS, *OTHERS), start=1)]
    fill(server_store, collection, *points, size=Words.dimension)
    services = make_services(server_store, collection, Words())
    file = tmp_path / "before.snapshot"
    SnapshotWriter(file, Reader(services, collection), texts=True, vectors=True).write()
    plant, request = CASES[cause]
    question = Question({"query_text": QUESTION, "top_k": 2, **request}, "c1", Snapshot(file))

    def ask() -> Explanation:
        services.forget(collection)
        return explain(question, services=services, new_deadline=lambda: Deadline(60_000))

    assert plant is not None
    plant(server_store, collection)
    lost = ask()
    assert lost.report.verdict.causes == (cause,), lost.report.verdict.line
    assert lost.fix is not None
    assert isinstance(server_store, ServerStore)
    url = f"{server_store.url}/collections/{collection}/points/batch?wait=true"
    sent = httpx.post(url, json={"operations": lost.fix.operations})
    assert sent.status_code == 200, sent.text
    assert ask().report.verdict.found
