"""The report of `chunkproof doctor`: facts about a collection, and the result of each check."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from functools import partial
from typing import Any

from chunkproof.contract import CollectionInfo


class Level(StrEnum):
    """The result of a check: passed, worth knowing, or failed."""

    OK = "ok"
    NOTE = "note"
    FAIL = "FAIL"


@dataclass(frozen=True)
class CheckResult:
    """The result of one check, and how to fix what it found."""

    level: Level
    check: str
    message: str
    remedy: str | None = None
    # Of what was checked, as far as it was counted: chunks, vectors or fields.
    share: float | None = None


ok, note, fail = partial(CheckResult, Level.OK), partial(CheckResult, Level.NOTE), partial(CheckResult, Level.FAIL)


# The parts of a collection's health, and the checks that each one rests on.
HEALTH = {
    "readable texts": ("text", "mojibake", "headings"),
    "vectors that belong": ("vectors", "vector", "distance", "points without vectors"),
    "no duplicates": ("duplicate texts", "shared ids"),
    "indexes": ("payload index", "vector index"),
    "coverage": ("missing chunks",),
}
# The most that a collection can have while a check fails.
FAILING_SCORE = 49


@dataclass(frozen=True)
class HealthPart:
    """One part of a collection's health: the share that is sound, None if it was not checked; and what improves it."""

    name: str
    share: float | None
    message: str
    remedy: str | None = None


@dataclass
class DoctorReport:
    """Facts about a collection, the results of the checks, and settings to use."""

    host: str
    collections: list[str]
    collection: str | None = None
    info: CollectionInfo | None = None
    mapping: Mapping[str, str] = field(default_factory=dict)
    rows: list[dict[str, Any]] = field(default_factory=list)
    shares: dict[str, float] = field(default_factory=dict)
    checks: list[CheckResult] = field(default_factory=list)
    suggested_settings: list[str] = field(default_factory=list)
    proposed_map: dict[str, Any] = field(default_factory=dict)
    # Whether the stored vectors are of the proposed field.
    is_embedded: bool = False
    proposed_vector: str | None = None
    # How each field is read, with the proposed map if there is one.
    shown: Mapping[str, str] = field(default_factory=dict)
    # Why no map can read the texts; fields whose texts were embedded together.
    unreadable: str | None = None
    joined: tuple[str, ...] = ()
    content_hash: str | None = None
    store: str = "Qdrant"
    # What was counted without a finding, by the part of the health that it is about.
    sound: dict[str, str] = field(default_factory=dict)

    @property
    def passed(self) -> bool:
        """Whether no check failed."""
        return all(check.level is not Level.FAIL for check in self.checks)

    @property
    def verdict(self) -> str:
        """The report in one line."""
        failed = [result.check for result in self.checks if result.level is Level.FAIL]
        notes = sum(result.level is Level.NOTE for result in self.checks)
        if failed:
            return f"Verdict: collection {self.collection} does not fit yet ({', '.join(failed)})."
        noted = f", with {notes} note{'s' * (notes > 1)}" if notes else ""
        return f"Verdict: collection {self.collection} is ready{noted}."

    @property
    def health(self) -> list[HealthPart]:
        """The parts of the health, each as good as the worst of its checks."""
        return [self._judge_part(name, checks) for name, checks in HEALTH.items()]

    def _judge_part(self, name: str, checks: Sequence[str]) -> HealthPart:
        by_level = {Level.OK: 1.0, Level.FAIL: 0.0}
        results = [result for result in self.checks if result.check in checks]
        shares = [by_level.get(each.level) if each.share is None else each.share for each in results]
        counted = [pair for pair in zip(shares, results, strict=True) if pair[0] is not None]
        if counted:
            share, worst = min(counted, key=lambda pair: pair[0] or 0.0)
            return HealthPart(name, share, worst.message, worst.remedy)
        if results or name not in self.sound:
            return HealthPart(name, None, results[0].message if results else "Not checked here")
        return HealthPart(name, 1.0, self.sound[name])

    @property
    def score(self) -> int | None:
        """The mean of the parts that were checked, of 100, rounded down; at most 49 while a check fails."""
        shares = [part.share for part in self.health if part.share is not None]
        if not shares:
            return None
        mean = int(100 * sum(shares) / len(shares) + 1e-9)
        return mean if self.passed else min(FAILING_SCORE, mean)

    def to_json(self) -> dict[str, Any]:
        """Return the report as `--json` prints it."""
        names = ("host", "store", "collections", "collection", "verdict", "content_hash", "shares", "score")
        return {
            **{name: getattr(self, name) for name in names},
            "fits": self.passed,
            "info": self.info.model_dump(mode="json") if self.info else None,
            "payload_map": dict(self.mapping),
            "proposed_payload_map": self.proposed_map or None,
            "samples": self.rows,
            "health": [asdict(part) for part in self.health],
            "findings": [asdict(result) for result in self.checks],
            "set": self.suggested_settings,
        }
