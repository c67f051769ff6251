"""Stores that return other points than they count, from some page on, and audits that are resumed over another state.

No verdict is made of an incomplete scan, and a resumed audit reports what one that was never interrupted reports.
"""

import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random
from time import process_time
from typing import Any

from chunkproof.audit.absence import Search, Subject
from chunkproof.audit.ledger import load_progress
from chunkproof.audit.manifest_file import Entry
from chunkproof.base.errors import ChunkproofError, IncompleteScanError
from chunkproof.base.request import Deadline
from chunkproof.collection import reader as reader_module
from chunkproof.collection.reader import Reader
from chunkproof.stores.store_port import Page, Point, WritableStore

from support.audits import VECTOR, fill, resume, run_audit, services_on
from support.stores import MemoryStore
from tools.checks.attack.attack import Attack

POINTS, PAGE = 60, 7
Lie = Callable[[Page, Any, Random], Page]
LIES: dict[str, Lie] = {
    "ends early": lambda page, _start, _rng: replace(page, next_id=None),
    "leaves points out": lambda page, _start, rng: replace(page, points=_without_one(page, rng)),
    "repeats the page": lambda page, start, _rng: replace(page, next_id=start or 0),
    "repeats a point": lambda page, _start, rng: replace(page, points=(*page.points, rng.choice(page.points))),
    "turns around": lambda page, _start, _rng: replace(page, points=page.points[::-1]),
    "is empty": lambda page, _start, _rng: replace(page, points=(), next_id=None),
}


class Lying:
    """A store whose pages are wrong from the n-th on; `stop` raises an error there instead."""

    def __init__(self, store: WritableStore, lie: Lie | None, first: int, rng: Random) -> None:
        self._store, self._lie, self._first, self._rng = store, lie, first, rng
        self._pages = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def scroll(self, collection: str, deadline: Any, **options: Any) -> Page:
        page = self._store.scroll(collection, deadline, **options)
        if options.get("limit", 0) > PAGE:  # not the scan: a sample of the collection
            return page
        self._pages += 1
        if self._pages < self._first or len(page.points) < 2:
            return page
        if self._lie is None:
            raise KeyboardInterrupt
        return self._lie(page, options.get("start"), self._rng)


def run(attack: Attack) -> None:
    """Lie to audits and to `absent`, and interrupt audits whose collection is then replaced."""
    page_size, reader_module.PAGE_SIZE = reader_module.PAGE_SIZE, PAGE
    try:
        while attack.goes_on():
            started, store = process_time(), MemoryStore()
            attempt = attack.rng.choice((_lie_to_audit, _lie_to_absent, _replace_and_resume))
            with tempfile.TemporaryDirectory() as folder:
                wrong = attempt(attack.rng, store, Path(folder))
            store.close()
            attack.note(process_time() - started, wrong)
    finally:
        reader_module.PAGE_SIZE = page_size


def _lie_to_audit(rng: Random, store: WritableStore, folder: Path) -> str | None:
    fill(store, "docs", _points("first"))
    name, first = rng.choice(list(LIES)), rng.randrange(1, 7)
    lines = _manifest("first")[: rng.choice((POINTS, 10))]
    lying: Any = Lying(store, LIES[name], first, rng)
    try:
        report = run_audit(lines, folder / "state", services_on(lying), "docs")
    except IncompleteScanError:
        return None
    return f"a store that {name} from page {first} on: {report.kinds}"


def _lie_to_absent(rng: Random, store: WritableStore, _folder: Path) -> str | None:
    fill(store, "docs", _points("first"))
    name, first = rng.choice(list(LIES)), rng.randrange(1, 7)
    lying: Any = Lying(store, LIES[name], first, rng)
    search = Search([Subject("x", "text", "nowhere to be found in here", None)], max_searches=0)
    check = search.check(Reader(services_on(lying), "docs", pauses=(0.0,)), ())
    return None if check.not_checked else f"a store that {name} from page {first} on: {check}"


def _replace_and_resume(rng: Random, store: WritableStore, folder: Path) -> str | None:
    """Replace some of the collection while an audit is interrupted, and resume it."""
    fill(store, "docs", _points("first"))
    lines = _manifest("first")
    stopped: Any = Lying(store, None, rng.randrange(2, 8), rng)
    try:
        report = run_audit(lines, folder / "state", services_on(stopped), "docs")
        return None if report.kinds["match"] == POINTS else f"never interrupted: {report.kinds}"
    except KeyboardInterrupt:
        pass
    changed = rng.sample(range(1, POINTS + 1), rng.choice((1, 5, POINTS)))
    store.upsert("docs", [_points("second")[number - 1] for number in changed], "", Deadline(60_000))
    progress = load_progress(folder / "state")
    try:
        assert progress is not None
        report = resume(folder / "state", services_on(store), "docs", progress.spec.manifest.sha256)
    except ChunkproofError:
        return None  # an error is no verdict
    wrong = report.kinds.get("mismatch", 0)
    return None if wrong == len(changed) else f"{len(changed)} replaced, {wrong} found by the resumed audit"


def _points(state: str) -> list[Point]:
    numbers = range(1, POINTS + 1)
    return [Point(n, {"chunk_id": f"c{n}", "text": f"Chunk {n} of the {state} state."}, vector=VECTOR) for n in numbers]


def _manifest(state: str) -> list[bytes]:
    return [Entry(f"c{p.id}", str(p.payload["text"]), point_id=p.id).to_line() for p in _points(state)]


def _without_one(page: Page, rng: Random) -> tuple[Point, ...]:
    left_out = rng.randrange(len(page.points))
    return tuple(point for number, point in enumerate(page.points) if number != left_out)
