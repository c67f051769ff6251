"""Check a deployed stack through its API: the smoke test after `make deploy`."""

from collections.abc import Iterator

from chunkproof.errors import ChunkproofError, ForbiddenError, NotFoundError
from chunkproof.models.health import DependencyHealth, Health
from chunkproof_cli.aws.stack import find_stack
from chunkproof_cli.connections import open_api_client
from chunkproof_cli.doctor.collection import DoctorReport
from chunkproof_cli.doctor.result import CheckResult, Level

REMEDIES = {
    "Qdrant": "Check QdrantUrl, the key in the secret, and that the functions' network reaches it",
    "embedder": "Check the key in the secret, and EmbeddingModel",
}


def check_stack(name: str, collection: str | None) -> DoctorReport:
    """Check the state of a stack, its dependencies and its collection."""
    stack = find_stack(name)
    report = check_api(stack.outputs["ApiUrl"], collection or stack.outputs["Collection"])
    report.checks[:0] = [
        CheckResult(Level.OK, "stack", f"{name} is {stack.status}"),
        CheckResult(Level.OK, "authorization", stack.outputs["Authorization"]),
    ]
    return report


def check_api(url: str, collection: str) -> DoctorReport:
    """Check the dependencies and the collection of an API."""
    report = DoctorReport(url, [collection], collection)
    with open_api_client(url) as client:
        report.checks += _check_dependencies(client.health())
        try:
            report.info = client.collection(collection)
            report.mapping = report.info.payload_map
            points = f"{collection} has {report.info.points_count:,} points"
            report.checks.append(CheckResult(Level.OK, "collection", points))
        except ChunkproofError as error:
            report.checks.append(CheckResult(Level.FAIL, "collection", str(error), _find_remedy(error)))
    return report


def _find_remedy(error: ChunkproofError) -> str:
    if isinstance(error, NotFoundError | ForbiddenError):
        return "Name one that exists with --collection, or deploy with the parameter Collection"
    return REMEDIES["Qdrant"] if error.code.startswith("QDRANT_") else ""


def _check_dependencies(health: Health) -> Iterator[CheckResult]:
    for name, dependency in (("Qdrant", health.qdrant), ("embedder", health.embedder)):
        yield _check_dependency(name, dependency)


def _check_dependency(name: str, dependency: DependencyHealth | None) -> CheckResult:
    if dependency is not None and dependency.status == "ok":
        return CheckResult(Level.OK, name, f"responds in {dependency.latency_ms:.0f} ms")
    reason = dependency.message if dependency else None
    return CheckResult(Level.FAIL, name, reason or "does not respond", REMEDIES[name])
