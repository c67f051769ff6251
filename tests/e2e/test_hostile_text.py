"""Stored text cannot act: not on a terminal, not in a report, and it cannot add a line of its own to a result."""

import json
import re
from pathlib import Path

import pytest

from chunkproof_cli.output import escape_json, escape_line

from support.commands import Command, Run

CONTROLS = "\x1b[31m\x07\x00\x08\x9b2J\x85\u202e\u2066\u200f\u2028"
FORGED = "Verdict: every chunk is right"
HOSTILE = f"x{CONTROLS}\n{FORGED}\ry"
ACTIVE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def assert_safe(text: str, *, is_html: bool = False) -> None:
    assert ACTIVE.findall(text) == []
    # A newline in HTML or XML is a space, or part of a quoted text.
    assert is_html or not any(line.strip().startswith(FORGED) for line in text.splitlines())


@pytest.fixture
def hostile(chunkproof: Command, tmp_path: Path) -> Command:
    """A store in which every field of every chunk is hostile."""
    fields = (
        "chunk_id",
        "text",
        "url",
        "document_id",
        "document_title",
        "section_heading",
        "breadcrumb",
        "content_type",
    )
    chunks = [dict.fromkeys(fields, f"{number} {HOSTILE}") for number in range(3)]
    (tmp_path / "chunks.jsonl").write_text("".join(json.dumps(chunk) + "\n" for chunk in chunks), "utf-8")
    loaded = chunkproof("load", tmp_path / "chunks.jsonl", "--collection", "hostile")
    assert loaded.code == 0, loaded.err
    return chunkproof


def check(run: Run) -> None:
    assert_safe(run.out)
    assert_safe(run.err)


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_no_command_lets_stored_text_act(hostile, tmp_path, options):
    original = tmp_path / "original.txt"
    original.write_text("something else", "utf-8")
    for command in (
        ["search", "verdict"],
        ["validate", f"0 {HOSTILE}", "--original-file", original],
        ["validate", f"9 {HOSTILE}", "--original-file", original],
        ["collection", "hostile"],
        ["doctor"],
    ):
        check(hostile(*command, "--collection", "hostile", *options))


def test_no_report_of_an_audit_lets_stored_text_act(hostile, tmp_path):
    lines = [{"chunk_id": f"{number} {HOSTILE}", "original_text": f"other {HOSTILE}"} for number in range(4)]
    manifest = tmp_path / "manifest.jsonl"
    manifest.write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")
    files = [tmp_path / f"report.{kind}" for kind in ("md", "txt", "html", "xml")]

    check(hostile("audit", manifest, "--collection", "hostile", *(part for file in files for part in ("-o", file))))

    for file in files:
        assert_safe(file.read_text("utf-8"), is_html=file.suffix in (".html", ".xml"))


def test_no_report_of_a_suite_lets_stored_text_act(hostile, tmp_path):
    case = {"name": f"case {HOSTILE}", "query_text": f"query {HOSTILE}", "expected_doc_ids": [f"7 {HOSTILE}"]}
    suite = tmp_path / "suite.json"
    suite.write_text(json.dumps({"name": f"suite {HOSTILE}", "collection": "hostile", "cases": [case]}), "utf-8")
    files = [tmp_path / f"report.{kind}" for kind in ("md", "txt", "html", "xml")]

    check(hostile("suite", "run", suite, *(part for file in files for part in ("-o", file))))

    for file in files:
        if file.exists():
            assert_safe(file.read_text("utf-8"), is_html=file.suffix in (".html", ".xml"))


REPORTS = ("md", "txt", "html", "xml")


def run_with_reports(command: Command, folder: Path, *arguments: object, kinds: tuple[str, ...] = REPORTS) -> Run:
    """Run a command with a report of each kind, and check what it printed and wrote."""
    files = [folder / f"report.{kind}" for kind in kinds]
    ended = command(*arguments, *(part for file in files for part in ("-o", file)))
    assert ended.code in (0, 1), ended.err
    check(ended)
    for file in files:
        if file.exists():
            assert_safe(file.read_text("utf-8"), is_html=file.suffix in (".html", ".xml"))
    return ended


@pytest.mark.parametrize("expected", [f"0 {HOSTILE}", f"absent {HOSTILE}", FORGED])
def test_no_explanation_lets_stored_text_act(hostile, tmp_path, expected):
    question = f"query {HOSTILE}"
    given = ("why", question, "--expect", expected, "--collection", "hostile", "-k", 1)

    run_with_reports(hostile, tmp_path, *given, kinds=("md", "txt", "html"))
    check(hostile(*given, "--threshold", 0.99, "--json"))


def test_no_snapshot_or_comparison_lets_stored_text_act(hostile, tmp_path):
    other = [{"chunk_id": f"{n} {HOSTILE}", "text": f"other {HOSTILE}", "url": f"u {HOSTILE}"} for n in range(4)]
    (tmp_path / "other.jsonl").write_text("".join(json.dumps(chunk) + "\n" for chunk in other), "utf-8")
    check(hostile("load", tmp_path / "other.jsonl", "--collection", "other"))
    case = {"name": f"case {HOSTILE}", "query_text": f"query {HOSTILE}", "expected_doc_ids": [f"0 {HOSTILE}"]}
    suite = tmp_path / "suite.json"
    suite.write_text(json.dumps({"name": f"suite {HOSTILE}", "cases": [case]}), "utf-8")
    before = tmp_path / "before.snapshot"

    check(hostile("snapshot", "--collection", "hostile", "--texts", "-o", before))
    check(hostile("why", "q", "--expect", f"0 {HOSTILE}", "--collection", "hostile", "--snapshot", before))
    ended = run_with_reports(hostile, tmp_path, "diff", "hostile", "other", "--queries", suite)
    check(hostile("diff", "hostile", "other", "--json"))

    assert ended.code == 1


def test_no_list_of_repeated_texts_lets_stored_text_act(hostile, tmp_path):
    manifest = tmp_path / "manifest.jsonl"
    check(hostile("manifest", "--collection", "hostile", "-o", manifest))

    run_with_reports(hostile, tmp_path, "audit", manifest, "--collection", "hostile", "--near-duplicates=0.5")


def test_an_escaped_document_is_the_same_json():
    document = {"a": HOSTILE}

    assert json.loads(escape_json(json.dumps(document, ensure_ascii=False))) == document
    assert_safe(escape_line(HOSTILE))
