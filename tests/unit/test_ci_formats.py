"""CTRF and SARIF: the required properties of both formats, for any text."""

from datetime import UTC, datetime
from pathlib import Path

import click
import pytest

from chunkproof_cli.reports.outputs import AUDIT, SUITE, WHY
from chunkproof_cli.reports.to_junit import JunitCase, JunitSuite, SarifResult, render_ctrf, render_sarif

from support.ci_formats import check_ctrf, check_sarif

ODD = 'tab\t nul\0 quote" lone \u202e <b> 漢'


def test_cases_become_ctrf_with_failures_apart_from_errors() -> None:
    cases = [
        JunitCase("a", 0.0124),
        JunitCase(ODD, 1.5, "failure", "not in collection", ODD, ODD),
        JunitCase("c", problem="error", type="X", message="no answer"),
        JunitCase("d", problem="skipped"),
    ]
    started = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    found = check_ctrf(render_ctrf(JunitSuite("handbook", "x", cases, [("verdict", ODD)], started, 2.25)))
    assert [test["status"] for test in found["tests"]] == ["passed", "failed", "other", "skipped"]
    assert [test["duration"] for test in found["tests"]] == [12, 1500, 0, 0]
    assert found["tests"][1]["message"] == ODD
    assert found["summary"]["stop"] - found["summary"]["start"] == 2250


def test_findings_become_sarif_and_are_recognized_in_a_later_run() -> None:
    rows = [SarifResult("missing", "error", ODD, "a folder/m.jsonl", 0, ODD), SarifResult("suite", "note", "b", "c", 7)]
    first, second = check_sarif(render_sarif(rows))
    place = first["locations"][0]["physicalLocation"]
    assert place == {"artifactLocation": {"uri": "a%20folder/m.jsonl"}, "region": {"startLine": 1}}
    moved, _ = check_sarif(render_sarif([SarifResult("missing", "error", "x", "a folder/m.jsonl", 9, ODD), rows[1]]))
    assert first["partialFingerprints"] == moved["partialFingerprints"] != second["partialFingerprints"]
    assert check_sarif(render_sarif([])) == []


def test_the_name_of_a_file_chooses_the_format(tmp_path: Path) -> None:
    AUDIT.check((tmp_path / "a.ctrf.json", tmp_path / "a.sarif"))
    SUITE.check((tmp_path / "a.ctrf.json",))
    for kind, name in ((SUITE, "a.sarif"), (SUITE, "a.ctrf"), (WHY, "a.ctrf.json"), (WHY, "a.sarif")):
        with pytest.raises(click.BadParameter, match="the extension must be one of"):
            kind.check((tmp_path / name,))
