"""What a newcomer meets on the command line: defaults, suggestions, help."""

import json
from pathlib import Path

import pytest

from chunkproof_cli.main import SUMMARIES, cli

from support.commands import Command

CHUNKS = '{"chunk_id": "a", "text": "how to take a backup", "url": "https://a.example"}\n'


@pytest.fixture
def data(chunkproof: Command, tmp_path: Path) -> Path:
    """A store whose only collection is not the default one."""
    (tmp_path / "chunks.jsonl").write_text(CHUNKS, "utf-8")
    folder = tmp_path / "store"
    assert chunkproof("load", tmp_path / "chunks.jsonl", "--collection", "manuals", "--data", folder).code == 0
    return folder


def test_the_only_collection_of_a_store_is_the_default(chunkproof: Command, data: Path, tmp_path: Path) -> None:
    found = chunkproof("search", "backup", "--data", data, "--json")
    assert json.loads(found.out)["execution"]["collection"] == "manuals"
    assert json.loads(chunkproof("collection", "--data", data, "--json").out)["name"] == "manuals"
    assert chunkproof("validate", "a", "--original", "how to take a backup", "--data", data).code == 0
    assert chunkproof("doctor", "--data", data).code == 0
    manifest = tmp_path / "m.jsonl"
    assert chunkproof("manifest", tmp_path / "chunks.jsonl", "-o", manifest).code == 0
    assert chunkproof("audit", manifest, "--data", data).code == 0
    suite = {"name": "s", "cases": [{"name": "c", "query_text": "backup", "expected_doc_ids": ["a"]}]}
    (tmp_path / "suite.json").write_text(json.dumps(suite), "utf-8")
    assert chunkproof("suite", "run", tmp_path / "suite.json", "--data", data).code == 0


def test_an_unknown_collection_gets_a_suggestion(chunkproof: Command, data: Path) -> None:
    near = chunkproof("search", "backup", "--collection", "manual", "--data", data)
    assert (near.code, "Did you mean manuals?" in near.err) == (2, True)
    far = chunkproof("search", "backup", "--collection", "xyz", "--data", data)
    assert (far.code, "The store has manuals." in far.err) == (2, True)


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("CHUNKPROOF_COLECTION", "CHUNKPROOF_COLLECTION"),
        ("CHUNKPROOF_MAX_TOPK", "CHUNKPROOF_MAX_TOP_K"),
        ("QDRANT_APIKEY", "QDRANT_API_KEY"),
        ("CHUNKPROOF_FROM_API_KEY", None),  # which other commands read
        ("CHUNKPROOF_HOUSE_STYLE", None),
    ],
)
def test_a_misspelt_setting_gets_a_suggestion(
    chunkproof: Command, data: Path, monkeypatch: pytest.MonkeyPatch, name: str, meant: str | None
) -> None:
    monkeypatch.setenv(name, "1")
    run = chunkproof("collection", "--data", data)
    assert (run.code, run.err) == (0, f"{name} is not a setting: did you mean {meant}?\n" if meant else "")


@pytest.mark.parametrize(
    "command", [("search", "backup", "take a backup", "how to take a backup"), ("validate", "https://a.example")]
)
def test_a_warning_about_several_searches_is_shown_once(
    chunkproof: Command, data: Path, command: tuple[str, ...], caplog: pytest.LogCaptureFixture
) -> None:
    chunkproof(*command, "--data", data)
    warnings = [text.split(" (")[0] for text in caplog.messages if "missing from payload" in text]
    assert warnings
    assert len(warnings) == len(set(warnings)), caplog.messages


def test_a_list_of_queries_may_begin_with_a_byte_order_mark(chunkproof: Command, data: Path, tmp_path: Path) -> None:
    file = tmp_path / "queries.txt"
    file.write_bytes(b"\xef\xbb\xbfbackup\r\noil\r\n")
    found = chunkproof("search", "--queries", file, "--data", data, "--json")
    assert [each["query"] for each in found.json["responses"]] == ["backup", "oil"]


@pytest.mark.parametrize(("typed", "meant"), [("serch", "search"), ("validat", "validate"), ("docter", "doctor")])
def test_an_unknown_command_gets_a_suggestion(chunkproof: Command, typed: str, meant: str) -> None:
    shown = chunkproof(typed)
    assert shown.code == 2
    assert f"No such command {typed!r}. Did you mean {meant!r}?" in shown.err


def test_an_option_that_does_not_apply_is_not_shown(chunkproof: Command) -> None:
    for name in SUMMARIES:
        assert "Not available" not in chunkproof(name, "--help").out
    assert "--json" not in chunkproof("serve", "--help").out


def test_summaries_are_not_cut(chunkproof: Command) -> None:
    shown = " ".join(chunkproof("--help").out.split())
    assert all(summary in shown for summary in SUMMARIES.values())
    assert list(SUMMARIES) == cli.list_commands(None)  # type: ignore[arg-type]
