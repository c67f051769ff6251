"""A case may demand that texts are verified, or at least not changed."""

from typing import Any

import pytest

from chunkproof.contract import SearchResult
from chunkproof.contract.response import ChunkMetadata, ForeignResult, Integrity
from chunkproof.suite.cases import TestCase
from chunkproof.suite.judge import IntegrityError, find_unmet
from chunkproof.suite.runner import NotJudgeableError, check_judgeable

RESULT: dict[str, Any] = {
    "rank": 1,
    "text": "text",
    "similarity_score": 0.9,
    "metadata": ChunkMetadata(chunk_id="a"),
}


def case(expected: Any) -> TestCase:
    return TestCase(name="one", query_text="where?", expect_integrity=expected)


@pytest.mark.parametrize(
    ("expected", "integrity", "message"),
    [
        ("verified", "verified", None),
        ("verified", "unknown", "a at rank 1 has no hash to verify its text by"),
        ("verified", "changed", "a at rank 1 was changed: its text does not match its hash"),
        ("unchanged", "verified", None),
        ("unchanged", "unknown", None),
        ("unchanged", "changed", "a at rank 1 was changed: its text does not match its hash"),
    ],
)
def test_a_case_demands_integrity(expected: str, integrity: Integrity, message: str | None) -> None:
    unmet = find_unmet(case(expected), [SearchResult(**RESULT, integrity=integrity)], 1.0)
    assert [str(reason) for reason in unmet] == ([message] if message else [])
    assert all(isinstance(reason, IntegrityError) for reason in unmet)


def test_other_retrievers_cannot_be_judged_by_it() -> None:
    with pytest.raises(NotJudgeableError, match="expect_integrity cannot be judged"):
        check_judgeable(case("verified"), [ForeignResult(**RESULT)])
