"""A look at a deployed stack, through its own API: the smoke test after `make deploy`."""

from collections.abc import Iterator

from chunkproof.errors import ChunkproofError
from chunkproof.models.health import DependencyHealth, Health
from chunkproof.settings import Settings
from chunkproof_cli.cloud import stack_outputs
from chunkproof_cli.context import REMOTE_DEADLINE_MS
from chunkproof_cli.diagnosis import Examination, Finding, Level
from chunkproof_cli.remote import RemoteApi

REMEDIES = {
    "Qdrant": "Check QdrantUrl, the key in the secret, and that the functions' network reaches it",
    "embedder": "Check the key in the secret, and EmbeddingModel",
}


def examine_stack(name: str, collection: str | None) -> Examination:
    """Ask the stack's health and its collection."""
    outputs = stack_outputs(name)
    wanted = collection or outputs.get("Collection", "")
    found = Examination(outputs["ApiUrl"], [wanted], wanted)
    found.findings.append(Finding(Level.OK, "stack", f"{name} is {outputs['StackStatus']}"))
    found.findings.append(Finding(Level.OK, "authorization", outputs.get("Authorization", "unknown")))
    token = Settings.from_env().token
    with RemoteApi(
        outputs["ApiUrl"], token.get_secret_value() if token else None, REMOTE_DEADLINE_MS / 1000
    ) as api:
        found.findings += _health(api.health())
        try:
            found.info = api.collection(wanted)
            found.mapping = found.info.payload_map
            found.findings.append(
                Finding(Level.OK, "collection", f"{wanted} has {found.info.points_count:,} points")
            )
        except ChunkproofError as error:
            remedy = "Set the parameter Collection to one that exists"
            found.findings.append(Finding(Level.FAIL, "collection", str(error), remedy))
    return found


def _health(health: Health) -> Iterator[Finding]:
    for name, dependency in (("Qdrant", health.qdrant), ("embedder", health.embedder)):
        yield _answered(name, dependency)


def _answered(name: str, dependency: DependencyHealth | None) -> Finding:
    if dependency is not None and dependency.status == "ok":
        return Finding(Level.OK, name, f"answers in {dependency.latency_ms:.0f} ms")
    why = dependency.message if dependency else None
    return Finding(Level.FAIL, name, why or "did not answer", REMEDIES[name])
