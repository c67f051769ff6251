"""Commands on a server whose strict mode allows only small requests."""

from pathlib import Path

import pytest
from qdrant_client import models

from chunkproof.stores.server import ServerStore

from support.commands import Command
from support.qdrant_server import QdrantServer
from support.sdk import sdk

pytestmark = pytest.mark.server


@pytest.mark.parametrize("rules", [{"max_query_limit": 10}, {"max_query_limit": 3, "search_allow_exact": False}])
def test_every_command_reads_a_collection_with_a_small_limit(
    chunkproof: Command,
    server_store: ServerStore,
    served_qdrant: QdrantServer,
    collection: str,
    rules: dict[str, int],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("QDRANT_URL", served_qdrant.url)
    monkeypatch.setenv("CHUNKPROOF_EMBEDDER", "local")
    chunks, manifest = tmp_path / "chunks.jsonl", tmp_path / "manifest.jsonl"
    assert chunkproof("demo", "--export", chunks).code == 0
    assert chunkproof("load", chunks, "--collection", collection, "--hybrid").code == 0
    strict = models.StrictModeConfig(enabled=True, **rules)  # type: ignore[arg-type]
    sdk(server_store).update_collection(collection, strict_mode_config=strict)
    run = chunkproof("doctor", "--collection", collection)
    assert "unavailable" not in run.out + run.err, run.out + run.err
    run = chunkproof("search", "how do I rotate a key", "--collection", collection, "--top-k", "25", "--json")
    assert (run.code, len(run.json["results"])) == (0, 25), run.err
    run = chunkproof("search", "rotate", "--collection", collection, "--mode", "hybrid", "--json")
    assert run.code == 0, run.err
    assert chunkproof("manifest", "--collection", collection, "--output", manifest).code == 0
    run = chunkproof("audit", manifest, "--collection", collection, "--json")
    assert run.code == 0, run.err
