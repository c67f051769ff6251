"""The report of a check that something deleted is gone: for the requester of an erasure."""

from datetime import datetime
from enum import StrEnum
from typing import Literal

from pydantic import Field

from chunkproof.models import Model

OUT_OF_REACH = (
    "snapshots and backups of the server",
    "replicas that did not answer: each read is answered by one",
    "deleted points that the server has not yet removed from its disk",
    "collections and servers that this key cannot see",
    "copies outside of the vector store: sources, caches, logs, manifests and reports",
)


class How(StrEnum):
    """How something deleted was found."""

    ID = "id"
    URL = "url"
    EXACT_TEXT = "exact text"
    NEAR_TEXT = "near-duplicate text"
    PASSAGE = "passage"
    VECTOR = "vector"


# Hits of these kinds include the vector and the parts of the text.
SAME_TEXT = (How.EXACT_TEXT, How.NEAR_TEXT)


class Hit(Model):
    """Something deleted that is still stored."""

    how: How
    collection: str
    point_id: int | str
    field: str | None = Field(None, description="The payload field, where it was found in one")
    details: str


class SubjectResult(Model):
    """One chunk, text or URL that must be gone."""

    name: str = Field(description="Its id, URL, or the hash of the text")
    kind: Literal["chunk", "text", "url"]
    sha256: str | None
    characters: int | None
    hits: tuple[Hit, ...]


class CollectionCheck(Model):
    """One collection that was read."""

    name: str
    aliases: tuple[str, ...]
    points: int
    read: int = Field(description="Points that were read and compared")
    searches: int = Field(description="Sentences that were searched for")
    not_checked: tuple[str, ...] = Field(description="What could not be checked, and why")


class AbsenceReport(Model):
    """Whether everything that was deleted is gone."""

    report: Literal["absence"] = "absence"
    checked_at: datetime
    host: str
    subjects_total: int
    found: int = Field(description="Subjects that are still stored")
    hits_total: int
    subjects: tuple[SubjectResult, ...] = Field(description="Those that are still stored first")
    collections: tuple[CollectionCheck, ...]
    checks: tuple[str, ...] = Field(description="What was compared")
    not_checked: tuple[str, ...] = Field(description="What could not be checked, though it should have been")
    out_of_reach: tuple[str, ...] = Field(description="What no check of this kind can see")
    seconds: float

    def canonical_json(self) -> str:
        """Write the report in its canonical form."""
        return self.model_dump_json(indent=2) + "\n"

    @property
    def verdict(self) -> str:
        """The line that explains the exit code."""
        where = f"{len(self.collections):,} collections ({sum(one.read for one in self.collections):,} points)"
        if self.found:
            return f"FOUND: {self.found:,} of {self.subjects_total:,} are still stored, {self.hits_total:,} times."
        if self.not_checked:
            return f"NOT PROVED: nothing was found in {where}, but {len(self.not_checked):,} checks could not be made."
        return f"ABSENT: none of {self.subjects_total:,} is stored in {where}."
