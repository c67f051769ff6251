"""The report of `chunkproof doctor`: facts about a collection, and the result of each check."""

from collections.abc import Mapping
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


ok, note, fail = partial(CheckResult, Level.OK), partial(CheckResult, Level.NOTE), partial(CheckResult, Level.FAIL)


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
    # A field whose texts are encoded, and how; two fields whose texts were embedded together.
    encoded: tuple[str, str] | None = None
    joined: tuple[str, ...] = ()
    content_hash: str | None = None
    store: str = "Qdrant"

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

    def to_json(self) -> dict[str, Any]:
        """Return the report as `--json` prints it."""
        return {
            "host": self.host,
            "store": self.store,
            "collections": self.collections,
            "collection": self.collection,
            "fits": self.passed,
            "verdict": self.verdict,
            "info": self.info.model_dump(mode="json") if self.info else None,
            "payload_map": dict(self.mapping),
            "proposed_payload_map": self.proposed_map or None,
            "content_hash": self.content_hash,
            "samples": self.rows,
            "shares": self.shares,
            "findings": [asdict(result) for result in self.checks],
            "set": self.suggested_settings,
        }
