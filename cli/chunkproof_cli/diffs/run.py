"""Compare two collections from start to report."""

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic
from typing import Any

from chunkproof.audit.reader import CALL_MS, Reader
from chunkproof.audit.state import Progress
from chunkproof.deadline import Deadline
from chunkproof.errors import InvalidParameterError
from chunkproof.files import private_files
from chunkproof.suite.cases import Suite
from chunkproof_cli.diffs.queries import compare_queries
from chunkproof_cli.diffs.report import DiffReport, QueryDiff, Side
from chunkproof_cli.diffs.texts import compare_texts
from chunkproof_cli.diffs.vectors import compare_vectors
from chunkproof_cli.output import progress_bar, show_warnings_once

Readers = tuple[Reader, Reader]


@dataclass(frozen=True)
class Rules:
    """What may differ, how many queries may newly fail, and how much of the results must be the same."""

    allowed: tuple[str, ...] = ()
    tolerate: int = 0
    min_overlap: float | None = None


def run_diff(readers: Readers, fields: Sequence[str], suite: Suite | None, rules: Rules) -> DiffReport:
    """Compare texts, metadata and vectors, and the results of a suite's queries where one is given."""
    began, started_at = monotonic(), datetime.now(UTC)
    a, b = map(_describe, readers)
    if suite:  # what is missing is found before everything is read
        for reader in readers:
            reader.services.query_embedder(reader.collection)
    with (
        private_files(),
        tempfile.TemporaryDirectory() as folder,
        progress_bar("Reading A", a.points) as read,
        progress_bar("Comparing B", b.points) as done,
    ):
        texts = compare_texts(readers, fields, Path(folder), read, _Points(done))
    return DiffReport(
        a=a,
        b=b,
        texts=texts,
        vectors=compare_vectors(*readers),
        queries=_compare_queries(suite, readers) if suite else None,
        allowed=rules.allowed,
        tolerate=rules.tolerate,
        min_overlap=rules.min_overlap,
        started_at=started_at,
        seconds=round(monotonic() - began, 3),
    )


def _describe(reader: Reader) -> Side:
    services = reader.services
    found = services.store.describe(reader.collection, Deadline(CALL_MS))
    named = (each for each in found.vectors if each.name == (services.settings.vector_name or ""))
    vector = next(named, None) or (found.vectors[0] if len(found.vectors) == 1 else None)
    embedder = services.embedder_of(reader.collection)
    return Side(
        collection=reader.collection,
        host=services.store.host,
        points=found.points_count,
        vector_size=vector.size if vector else None,
        distance=vector.distance if vector else None,
        quantization=found.quantization,
        model=embedder.model if embedder else None,
    )


def _compare_queries(suite: Suite, readers: Readers) -> QueryDiff:
    with progress_bar("Searching", len(suite.cases)) as done, show_warnings_once():
        found = compare_queries(suite, *readers, done)
    if len(found.not_judged) == found.queries:
        raise InvalidParameterError(
            f"No query could be searched in both collections ({found.reason}): CHUNKPROOF_MODELS names a model for "
            "each collection"
        )
    return found


class _Points:
    """Advances a bar by the points that were compared since the last call."""

    def __init__(self, done: Any) -> None:
        self._done, self._before = done, 0

    def __call__(self, progress: Progress) -> None:
        self._done(progress.points - self._before)
        self._before = progress.points
