"""A look at a deployed stack, through its own API: the smoke test after `make deploy`."""

from collections.abc import Iterator

from chunkproof.errors import ChunkproofError, ForbiddenError, NotFoundError
from chunkproof.models.health import DependencyHealth, Health
from chunkproof_cli.aws.stack import find_stack
from chunkproof_cli.connections import open_api_client
from chunkproof_cli.doctor.collection import CheckResult, DoctorReport, Level

REMEDIES = {
    "Qdrant": "Check QdrantUrl, the key in the secret, and that the functions' network reaches it",
    "embedder": "Check the key in the secret, and EmbeddingModel",
}


def check_stack(name: str, collection: str | None) -> DoctorReport:
    """Ask the stack's health and its collection."""
    stack = find_stack(name)
    found = check_api(stack.outputs["ApiUrl"], collection or stack.outputs["Collection"])
    found.findings[:0] = [
        CheckResult(Level.OK, "stack", f"{name} is {stack.status}"),
        CheckResult(Level.OK, "authorization", stack.outputs["Authorization"]),
    ]
    return found


def check_api(url: str, collection: str) -> DoctorReport:
    """The same of an API whose stack is not known."""
    found = DoctorReport(url, [collection], collection)
    with open_api_client(url) as api:
        found.findings += _health(api.health())
        try:
            found.info = api.collection(collection)
            found.mapping = found.info.payload_map
            points = f"{collection} has {found.info.points_count:,} points"
            found.findings.append(CheckResult(Level.OK, "collection", points))
        except ChunkproofError as error:
            found.findings.append(CheckResult(Level.FAIL, "collection", str(error), _remedy(error)))
    return found


def _remedy(error: ChunkproofError) -> str:
    if isinstance(error, NotFoundError | ForbiddenError):
        return "Name one that exists: the parameter Collection, or --collection"
    return REMEDIES["Qdrant"] if error.code.startswith("QDRANT_") else ""


def _health(health: Health) -> Iterator[CheckResult]:
    for name, dependency in (("Qdrant", health.qdrant), ("embedder", health.embedder)):
        yield _answered(name, dependency)


def _answered(name: str, dependency: DependencyHealth | None) -> CheckResult:
    if dependency is not None and dependency.status == "ok":
        return CheckResult(Level.OK, name, f"answers in {dependency.latency_ms:.0f} ms")
    why = dependency.message if dependency else None
    return CheckResult(Level.FAIL, name, why or "did not answer", REMEDIES[name])
