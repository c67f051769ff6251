"""Check what decides speed and ranking: indexes, quantization, sparse vectors."""

from collections.abc import Callable, Iterator, Sequence
from statistics import fmean

from pydantic_core import to_json

from chunkproof.clients.ports import Description, Point
from chunkproof.clients.qdrant.filters import USABLE_INDEXES, required_indexes
from chunkproof.deadline import Deadline
from chunkproof.errors import InvalidParameterError
from chunkproof.models.filters import parse_filters
from chunkproof.retrieval.filters import map_filters
from chunkproof.retrieval.services import Services
from chunkproof.suite.cases import Suite
from chunkproof_cli.doctor.result import CheckResult, Level
from chunkproof_cli.publishing import Limits, find_misfit

# Below this, Qdrant compares all vectors anyway: its default indexing threshold is 20 MB of vectors.
MIN_INDEXED_POINTS = 10_000
MOSTLY_INDEXED = 0.9
FLOAT_BYTES = 4
# The index of vectors takes about a fifth of their size.
INDEX_SHARE = 1.2
# What Qdrant's BM25 model assumes unless it is given another average length.
DEFAULT_AVG_LEN = 256


def check_vector_index(description: Description) -> Iterator[CheckResult]:
    """Compare the indexed vectors with the points: a search compares all others one by one."""
    points, indexed = description.points_count, description.indexed_vectors_count
    if points < MIN_INDEXED_POINTS and not 0 < indexed < MOSTLY_INDEXED * points:
        return
    if indexed < MOSTLY_INDEXED * points:
        name = description.name
        yield CheckResult(
            Level.NOTE,
            "vector index",
            f"{indexed:,} of {points:,} vectors are indexed ({indexed / points:.0%}); the rest is compared one by one",
            "Wait until the status is green, then lower the threshold: "
            f'client.update_collection("{name}", optimizers_config=OptimizersConfigDiff(indexing_threshold=10000))',
        )


def check_room(description: Description, points: Sequence[Point]) -> Iterator[CheckResult]:
    """Say whether functions without a server (Store=edge) would have room for the collection, by its sampled points."""
    if not points:
        return
    payload = fmean(len(to_json(point.payload, fallback=str)) for point in points)
    vectors = sum(FLOAT_BYTES * vector.size for vector in description.vectors)
    size = round(description.points_count * (payload + vectors * INDEX_SHARE))
    misfit = find_misfit(size, Limits())
    said = f"About {max(1, size >> 20):,} MB as a published collection"
    if misfit is None:
        yield CheckResult(Level.OK, "without a server", f"{said}: functions with Store=edge have room for it")
    else:
        yield CheckResult(Level.OK, "without a server", f"{said}. {misfit}, to search it with Store=edge")


def check_quantization(description: Description) -> Iterator[CheckResult]:
    """Say how the vectors are compressed: scores and ranks are then approximate without rescoring."""
    if description.quantization:
        yield CheckResult(
            Level.NOTE,
            "quantization",
            f"Vectors are compressed ({description.quantization}): searches may miss results that exact search finds",
            "Compare with exact search: chunkproof suite run SUITE --exact",
        )


def check_sparse_vectors(
    description: Description, points: Sequence[Point], services: Services
) -> Iterator[CheckResult]:
    """Check the IDF modifier of sparse vectors, and the length of texts that BM25 assumes."""
    for name, modifier in description.sparse_vectors.items():
        if modifier != "idf":
            config = f'{{"{name}": SparseVectorParams(modifier=Modifier.IDF)}}'
            yield CheckResult(
                Level.NOTE,
                "IDF modifier",
                f"The sparse vector {name} has no IDF modifier: BM25 would rate rare and common words alike "
                "(SPLADE needs none)",
                f'client.update_collection("{description.name}", sparse_vectors_config={config})',
            )
    texts = [services.payloads.value("text", point.payload) for point in points]
    lengths = [len(text.split()) for text in texts if isinstance(text, str) and text.strip()]
    if description.sparse_vectors and lengths:
        average = fmean(lengths)
        if not DEFAULT_AVG_LEN / 2 <= average <= DEFAULT_AVG_LEN * 2:
            yield CheckResult(
                Level.NOTE,
                "BM25 avg_len",
                f"The sampled texts have {average:.0f} words on average; Qdrant's BM25 assumes {DEFAULT_AVG_LEN}",
                f'If BM25 made the sparse vectors: Document(model="qdrant/bm25", options={{"avg_len": {average:.0f}}})',
            )


def check_suite_filters(
    suite: Suite, description: Description, services: Services, deadline: Callable[[], Deadline]
) -> Iterator[CheckResult]:
    """Find the filters of a suite's cases on fields without an index."""
    missing: dict[tuple[str, str], int] = {}
    for case in suite.cases:
        if case.collection_name not in (None, description.name) or not case.filters:
            continue
        try:
            where = map_filters(parse_filters(case.filters), description.name, services, deadline())
        except InvalidParameterError:
            continue  # `suite lint` reports it
        for field, schema in required_indexes(where):
            if description.indexed_fields.get(field) not in USABLE_INDEXES[schema]:
                missing[field, schema] = missing.get((field, schema), 0) + 1
    for (field, schema), cases in missing.items():
        yield CheckResult(
            Level.NOTE,
            "suite filter",
            f"No index on {field}, on which {cases} case{'s' * (cases > 1)} of {suite.name} filter{'s' * (cases == 1)}",
            f'create_payload_index("{description.name}", field_name="{field}", field_schema="{schema}")',
        )
