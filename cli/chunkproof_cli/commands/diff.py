"""`chunkproof diff`: texts and metadata, vectors, and what two collections return for the queries of a suite."""

import sys
import tempfile
from array import array
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from heapq import merge
from itertools import groupby, islice
from operator import itemgetter
from pathlib import Path
from statistics import median
from time import monotonic
from typing import Any

import click

from chunkproof.audit.audit_run import Audit, cosine_of_any, read_all_vectors
from chunkproof.audit.ledger import AuditPlan, Progress, SortedRows, parse_point_key, point_key, prepare
from chunkproof.audit.manifest_file import open_manifest
from chunkproof.base.errors import CorruptChunkError, InvalidParameterError
from chunkproof.base.files import private_files
from chunkproof.collection.facts import choose_vector
from chunkproof.collection.reader import Reader, in_batches
from chunkproof.contract import RetrievalResponse
from chunkproof.proof.integrity import digest
from chunkproof.proof.vector_judge import SAME, cosine
from chunkproof.service.terminal import local_backend
from chunkproof.stores.store_port import PointId, Vector, VectorConfig
from chunkproof.suite.cases import Suite
from chunkproof.suite.outcome import TestCaseResult, TestStatus
from chunkproof.suite.runner import CaseRunner, Search
from chunkproof.suite.suite_file import SuiteSource, read_source
from chunkproof_cli.connections import Address, open_address, parse_address
from chunkproof_cli.diff_report import (
    DiffReport,
    NamedVectorDiff,
    QueryDiff,
    RankChange,
    Side,
    SpaceRelation,
    TextDiff,
    VectorDiff,
)
from chunkproof_cli.manifest_sources import EntryShape, entries_of_collection, write_manifest
from chunkproof_cli.options import (
    common_options,
    option,
    output_option,
    parse_options,
    reject_api,
    sign_option,
)
from chunkproof_cli.output import print_json, progress_bar, show_warnings_once
from chunkproof_cli.reports.outputs import DIFF
from chunkproof_cli.suites.baseline import CHANCE, Pair, measure_changes

MAX_FINDINGS = 200
# Pairs that show whether vectors are in one space; whether they are equal, all pairs show.
PAIRS = 256
# In one space, a text is nearest to itself; in another one, one time in as many as there are texts.
LEAST_NEAREST = 0.9
# Fewer pairs show nothing about neighbours.
LEAST_PAIRS = 5
ROUNDS, SEED = 10_000, 20_250_101
MAX_ROWS = 200
SHOWN_METRICS = ("pass rate", "hit_rate@5", "recall@5", "recall@10", "mrr@10", "ndcg@10")
EXAMPLES = """\b
Examples:
  chunkproof diff handbook handbook-v2
  chunkproof diff handbook handbook-cohere --allow vectors --queries suite.yaml -o migration.html
  chunkproof diff handbook handbook --to-url https://new.example.com:6333 --queries suite.yaml
  chunkproof diff https://old.example.com:6333/collections/docs docs --min-overlap 95
  chunkproof diff docs docs-small-chunks --allow texts --queries suite.yaml --tolerate 1
"""

Readers = tuple[Reader, Reader]


@click.command(epilog=EXAMPLES)
@click.argument("a")
@click.argument("b")
@option("--to-url URL", "Server of B, where it is not that of A.")
@option(
    "--to-api-key KEY",
    "Key of the server of B, where B is named by --to-url or its URL.",
    envvar="CHUNKPROOF_TO_API_KEY",
)
@option("--from-api-key KEY", "Key of the server of A, where A is named by its URL.", envvar="CHUNKPROOF_FROM_API_KEY")
@option("--queries SUITE", "Search for the queries of a suite in both: exit 1 if one that passes in A fails in B.")
@option(
    "--allow allowed",
    "What may differ: texts for another chunking, vectors for another model. May be repeated.",
    type=click.Choice(["texts", "metadata", "vectors"]),
    multiple=True,
)
@option("--metadata FIELD,…", "Fields to compare; all for every field but text and ids, none for no field.", "all")
@option("--tolerate N", "With --queries: let N queries newly fail.", 0, type=click.IntRange(0))
@option("--min-overlap PERCENT", "With --queries: exit 1 if both return less in common.")
@output_option("Write the report: .json, .html, .md, .txt, .xml (JUnit) or .ctrf.json (CTRF).")
@sign_option
@common_options
@reject_api("a diff reads the collections themselves; set QDRANT_URL")
def diff(a: str, b: str, outputs: tuple[Path, ...], queries: Path | None, metadata: str, **options: Any) -> None:
    """Compare two collections: texts, metadata, vectors, and what both return for a suite's queries.

    A and B are collections of the configured store, or URLs such as https://HOST:6333/collections/NAME. Chunks are
    matched by id, then by text, then by the nearest text. Exit 1 when something differs that may not, 3 when that
    could not be judged. The last line names what decided.
    """
    keys = {name: options.pop(name) for name in ("to_url", "to_api_key", "from_api_key")}
    allowed, tolerate, min_overlap = (options.pop(name) for name in ("allowed", "tolerate", "min_overlap"))
    given = parse_options(**options)
    DIFF.check(outputs)
    if given.collection:
        raise click.UsageError("A and B name the collections: leave --collection out.")
    if queries is None and (min_overlap is not None or tolerate):
        raise click.UsageError("--min-overlap and --tolerate are about the results of --queries.")
    named = [name.strip() for name in metadata.split(",") if name.strip()]
    fields = None if metadata == "all" else [] if metadata == "none" else named
    first, second = parse_address(a, "A"), _parse_second(b, keys["to_url"])
    if first == second:
        raise click.UsageError(f"A and B are both {first}: name two collections.")
    suite = read_source(SuiteSource(queries)).suite if queries else None
    with ExitStack() as stack:
        a_services = stack.enter_context(open_address(first, given, keys["from_api_key"]))
        b_services = a_services
        if first.url != second.url:
            b_services = stack.enter_context(open_address(second, given, keys["to_api_key"]))
        report = run_diff(
            (Reader(a_services, first.collection), Reader(b_services, second.collection)),
            fields,
            suite,
            allowed=tuple(dict.fromkeys(allowed)),
            tolerate=tolerate,
            min_overlap=None if min_overlap is None else min_overlap / 100,
        )
    DIFF.write(report, outputs)
    if given.json:
        print_json({**report.model_dump(mode="json"), "verdict": report.verdict, "exit_code": report.exit_code})
    else:
        DIFF.print(report)
    sys.exit(report.exit_code)


def _parse_second(name: str, url: str | None) -> Address:
    if url is None:
        return parse_address(name, "B")
    if "://" in name:
        raise click.UsageError("Give the URL of B in its address or with --to-url, not both.")
    return parse_address(f"{url.rstrip('/')}/collections/{name}", "--to-url")


def run_diff(
    readers: Readers,
    fields: list[str] | None,
    suite: Suite | None = None,
    *,
    allowed: tuple[str, ...] = (),
    tolerate: int = 0,
    min_overlap: float | None = None,
) -> DiffReport:
    """Compare texts, metadata and vectors, and the results of a suite's queries where one is given.

    The rest are rules: what may differ, how many queries may newly fail, how much of the results must be the same.
    """
    began, started_at = monotonic(), datetime.now(UTC)
    (a, config_a), (b, config_b) = map(_describe, readers)
    if suite:  # what is missing is found before everything is read
        for reader in readers:
            reader.require_embedder()
    with progress_bar("Reading A", a.points) as read, progress_bar("Comparing B", b.points) as done:
        texts = _compare_texts(readers, fields, read, done)
    vectors, others = _compare_vectors(readers, config_a, config_b, is_quick="vectors" in allowed)
    return DiffReport(
        a=a,
        b=b,
        changed=tuple(reader.change_note for reader in readers if reader.change_note),
        texts=texts,
        vectors=vectors,
        others=others,
        queries=_compare_queries(suite, readers) if suite else None,
        allowed=allowed,
        tolerate=tolerate,
        min_overlap=min_overlap,
        started_at=started_at,
        seconds=round(monotonic() - began, 3),
    )


def _describe(reader: Reader) -> tuple[Side, VectorConfig | None]:
    """Describe a side, and choose its dense vector; None if it has no single one."""
    description, vector = reader.describe(), None
    with suppress(InvalidParameterError):
        vector = choose_vector(description.vectors, reader.settings.vector_name, reader.name)
    side = Side(
        collection=reader.name,
        host=reader.store.host,
        points=description.points_count,
        vector_size=vector.size if vector else None,
        distance=vector.distance if vector else None,
        quantization=description.quantization,
        model=reader.embedder.model if reader.embedder else None,
    )
    return side, vector


def _compare_texts(
    readers: Readers, fields: list[str] | None, on_read: Callable[[int], None], on_compared: Callable[[int], None]
) -> TextDiff:
    """Audit B against a manifest of A."""
    (a, b), unreadable, compared = readers, list[str](), 0

    def advance(progress: Progress) -> None:
        nonlocal compared
        on_compared(progress.points - compared)
        compared = progress.points

    with private_files(), tempfile.TemporaryDirectory() as folder:
        manifest, state = Path(folder) / "a.jsonl", Path(folder) / "audit"
        if not write_manifest(entries_of_collection(a, EntryShape(fields), on_read, unreadable), manifest):
            raise InvalidParameterError(f"Collection {a.name} has no chunk to compare with")
        state.mkdir()
        with open_manifest(manifest) as lines:
            ledger = prepare(lines, a.name, state)
        audit = Audit(state, b.services, b.name, AuditPlan(all_metadata=fields is None), advance)
        report = audit.run(audit.start(ledger))
    return TextDiff(
        kinds=report.kinds,
        mismatch_kinds=report.mismatch_kinds,
        matching=report.matching,
        unreadable=len(unreadable),
        findings_total=report.findings_total,
        findings=report.findings[:MAX_FINDINGS],
    )


def _compare_vectors(
    readers: Readers, config_a: VectorConfig | None, config_b: VectorConfig | None, *, is_quick: bool
) -> tuple[VectorDiff, tuple[NamedVectorDiff, ...]]:
    """Compare the vectors that searches use, and all others, of all points that both have; of some if `is_quick`."""
    names: dict[str, None] = {}
    for reader, config in zip(readers, (config_a, config_b), strict=True):
        found = reader.describe()
        own = (*(vector.name for vector in found.vectors), *found.sparse_vectors)
        names |= dict.fromkeys(name for name in own if config is None or name != config.name)
    main, others = _Tally(config_a.name if config_a else ""), [_Tally(name) for name in names]
    for some in in_batches(islice(_pair_points(readers), PAIRS if is_quick else None)):
        both = list(zip(readers, map(list, zip(*some, strict=True)), (config_a, config_b), strict=True))
        if config_a and config_b and config_a.size == config_b.size:
            of_a, of_b = (each.read_points(ids, config.name if config else None) for each, ids, config in both)
            main.add([(of_a[a].vector, of_b[b].vector) for a, b in some if a in of_a and b in of_b])
        left, right = (read_all_vectors(each, ids) if others else {} for each, ids, _ in both)
        for tally in others:
            tally.is_read &= bool(left and right)
            tally.add([(left.get(a, {}).get(tally.name), right.get(b, {}).get(tally.name)) for a, b in some])
    diffs = [tally.to_diff() for tally in (*([main] if main.only_in != [0, 0] else []), *others)]
    if config_a is None or config_b is None:
        judged = VectorDiff(space=SpaceRelation.UNKNOWN, details="A collection has no single dense vector")
    elif config_a.size != config_b.size:
        judged = VectorDiff(space=SpaceRelation.OTHER_SIZE, details=f"{config_a.size} and {config_b.size} values")
    elif not main.cosines:
        judged = VectorDiff(space=SpaceRelation.UNKNOWN, details="No text has the vector in both collections")
    else:
        judged = judge_vectors(main.first, main.cosines)
    return judged.model_copy(update={"name": main.name}), tuple(diffs)


@dataclass
class _Tally:
    """The vectors of one name: how alike they are, the first ones, and how many only one collection has."""

    name: str
    is_read: bool = True
    only_in: list[int] = field(default_factory=lambda: [0, 0])
    cosines: "array[float]" = field(default_factory=lambda: array("d"))
    first: list[tuple[Vector, Vector]] = field(default_factory=list)

    def add(self, pairs: Sequence[tuple[Any, Any]]) -> None:
        present = [pair for pair in pairs if pair[0] is not None and pair[1] is not None]
        self.cosines.extend(cosine_of_any(*pair) for pair in present)
        self.first += present[: PAIRS - len(self.first)]
        for side in (0, 1):
            self.only_in[side] += sum(pair[side] is not None and pair[1 - side] is None for pair in pairs)

    def to_diff(self) -> NamedVectorDiff:
        return NamedVectorDiff(
            name=self.name,
            pairs=len(self.cosines),
            identical=sum(value >= SAME for value in self.cosines),
            only_in_a=self.only_in[0],
            only_in_b=self.only_in[1],
            is_read=self.is_read,
        )


def _pair_points(readers: Readers) -> Iterator[tuple[PointId, PointId]]:
    """Pair the points of both collections that have the same text, or the same id where they have none."""
    for _, rows in groupby(merge(*map(_sort_points, readers, (0, 1))), key=itemgetter(0)):
        points: tuple[list[PointId], list[PointId]] = [], []
        for _, side, point in rows:
            points[side].append(parse_point_key(point.decode()))
        yield from zip(*points, strict=False)


def _sort_points(reader: Reader, side: int) -> Iterator[tuple[str, int, bytes]]:
    rows, payloads = SortedRows(), reader.services.payloads
    for page in reader.pages():
        for point in page.points:
            text = payloads.find_text(point)
            key = digest(text) if text and text.strip() else f"id {payloads.id_of(point)}"
            rows.add(key, point_key(point.id).encode())
    return ((key, side, content) for key, content in rows)


def judge_vectors(pairs: Sequence[tuple[Vector, Vector]], cosines: Sequence[float] = ()) -> VectorDiff:
    """Decide from pairs of vectors of the same texts, and all of their cosines, whether they are in one space."""
    cosines = cosines or [cosine(left, right) for left, right in pairs]
    identical = sum(each >= SAME for each in cosines)
    nearest = _share_nearest(pairs) if len(pairs) >= LEAST_PAIRS else None
    if identical == len(cosines):
        space = SpaceRelation.SAME_VECTORS
    elif nearest is None:
        space = SpaceRelation.SAME_SPACE if min(cosines) >= LEAST_NEAREST else SpaceRelation.UNKNOWN
    else:
        space = SpaceRelation.SAME_SPACE if nearest >= LEAST_NEAREST else SpaceRelation.OTHER_SPACE
    return VectorDiff(
        space=space,
        pairs=len(cosines),
        identical=identical,
        lowest=round(min(cosines), 6),
        median=round(median(cosines), 6),
        nearest=nearest,
    )


def _share_nearest(pairs: Sequence[tuple[Vector, Vector]]) -> float:
    """Return how many vectors of A are nearest to the vector of the same text in B; equal vectors count."""
    import numpy as np  # a tenth of a second to import

    sides = [np.array(side, dtype=np.float64) for side in zip(*pairs, strict=True)]
    left, right = (side / np.maximum(np.linalg.norm(side, axis=1, keepdims=True), 1e-12) for side in sides)
    products = left @ right.T
    own = np.diag(products)
    return float(np.mean(own >= products.max(axis=1) - 1e-9))


def _compare_queries(suite: Suite, readers: Readers) -> QueryDiff:
    """Run every case in both collections. An expected chunk of A counts in B under any id, if its text is there."""
    a, b = (local_backend(reader.services) for reader in readers)
    runs = []
    with show_warnings_once(), progress_bar("Searching", 2 * len(suite.cases)) as done:
        searches = a.search, _relabel(b.search, _find_expected_texts(suite, readers[0]))
        for reader, backend, search in zip(readers, (a, b), searches, strict=True):
            own = {"collection_name": reader.name, "max_latency_ms": None}
            cases, ahead = [case.model_copy(update=own) for case in suite.cases], backend.embed_ahead
            runs.append(CaseRunner(cases, search, on_result=lambda _: done(1), embed_ahead=ahead).execute())
    result = _summarize(suite.name, list(zip(*runs, strict=True)))
    if len(result.not_judged) == result.queries:
        raise InvalidParameterError(
            f"No query could be searched in both collections ({result.reason}): CHUNKPROOF_MODELS names a model for "
            "each collection"
        )
    return result


def _find_expected_texts(suite: Suite, a: Reader) -> dict[str, str]:
    """Return the hash of the text of each expected chunk of A, with its id; documents are no chunks."""
    expected = dict.fromkeys(key for case in suite.cases for key in case.grades)
    ids: dict[str, str] = {}
    for batch in in_batches(expected):
        for chunk_id, points in a.look_up(dict.fromkeys(batch)).points.items():
            with suppress(CorruptChunkError):
                ids.setdefault(digest(a.services.payloads.text_of(points[0])), chunk_id)
    return ids


def _relabel(search: Search, ids: dict[str, str]) -> Search:
    """Return the search of a collection in which an expected text has the id that the suite expects."""

    def search_and_relabel(request: dict[str, Any]) -> RetrievalResponse:
        response = search(request)
        results = []
        for result in response.results:
            expected = ids.get(digest(result.text), result.metadata.chunk_id)
            metadata = result.metadata.model_copy(update={"chunk_id": expected})
            results.append(result.model_copy(update={"metadata": metadata}))
        return response.model_copy(update={"results": tuple(results)})

    return search_and_relabel


def _summarize(suite: str, pairs: Sequence[Pair]) -> QueryDiff:
    """Compare the results of each case, and the metrics over all that both sides could answer."""
    judged = [(left, right) for left, right in pairs if left.status.is_judged and right.status.is_judged]
    passes = TestStatus.PASSED
    verdicts = [(right.name, left.status is passes, right.status is passes) for left, right in judged]
    rows = [_compare_results(left, right) for left, right in judged]
    low, high = bootstrap_mean([row.overlap for row in rows])
    changes = measure_changes(judged) if judged else ()
    return QueryDiff(
        suite=suite,
        queries=len(pairs),
        top_k=max((left.top_k for left, _ in pairs), default=0),
        overlap=sum(row.overlap for row in rows) / len(rows) if rows else 0.0,
        overlap_low=low,
        overlap_high=high,
        same_first=sum(row.same_first for row in rows),
        same_order=sum(row.overlap == 1 and row.largest_move == 0 for row in rows),
        changes=tuple(change for change in changes if change.name in SHOWN_METRICS),
        confidence=1 - 2 * CHANCE,
        newly_failing=tuple(name for name, before, after in verdicts if before > after),
        newly_passing=tuple(name for name, before, after in verdicts if before < after),
        not_judged=tuple(left.name for left, right in pairs if (left, right) not in judged),
        reason=next((side.error_message for pair in pairs for side in pair if not side.status.is_judged), None),
        rows=tuple(sorted(rows, key=lambda row: (row.overlap, row.name))[:MAX_ROWS]),
    )


def bootstrap_mean(values: Sequence[float]) -> tuple[float, float]:
    """Return the 95 % interval of the mean: of resampled values, with a fixed seed."""
    if not values:
        return 0.0, 0.0
    import numpy as np  # a tenth of a second to import

    drawn = np.random.default_rng(SEED).integers(0, len(values), (ROUNDS, len(values)))
    low, high = np.quantile(np.array(values)[drawn].mean(axis=1), (0.025, 0.975))
    return float(low), float(high)


def _compare_results(left: TestCaseResult, right: TestCaseResult) -> RankChange:
    """Compare the ranks of each text, the first one where it is repeated."""
    of_a, of_b = (
        {chunk.text_sha256: chunk.rank for chunk in reversed(side.actual_results or ())} for side in (left, right)
    )
    first_a, first_b = ((side.actual_results or (None,))[0] for side in (left, right))
    common, most = of_a.keys() & of_b.keys(), max(len(of_a), len(of_b))
    is_listed = left.status is not right.status
    return RankChange(
        name=left.name,
        query=left.query_text,
        overlap=len(common) / most if most else 1.0,
        same_first=(first_a and first_a.text_sha256) == (first_b and first_b.text_sha256),
        largest_move=max((abs(of_a[text] - of_b[text]) for text in common), default=0),
        status_a=left.status.value,
        status_b=right.status.value,
        results_a=tuple(left.actual_results or ()) if is_listed else (),
        results_b=tuple(right.actual_results or ()) if is_listed else (),
    )
