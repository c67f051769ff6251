import shlex
import unicodedata
from pathlib import Path

import pytest

from chunkproof_cli.local.corpus import sample_chunks

from support.commands import Command


def test_demo_shows_everything_ends_with_commands_that_work_and_mends_what_it_corrupted(
    chunkproof: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as misleading:  # it is embedded, whatever is configured
        misleading.setenv("QDRANT_URL", "http://127.0.0.1:9")
        misleading.setenv("COHERE_API_KEY", "none")
        run = chunkproof("demo")
    assert run.code == 0
    assert "are in collection handbook" in run.out
    assert "Feedforward against gravity" in run.out
    assert "The stored text is the original, byte for byte." in run.out
    assert "MISMATCH: Unicode normalization differs" in run.out
    assert "handbook: 42 of 42 cases passed, 0 failed" in run.out
    assert run.out.count("not judged") == 1  # SC-005: no error occurred

    last = run.out.strip().splitlines()[-3:]
    assert [line.split()[1] for line in last] == ["search", "validate", "doctor"]
    for line in last:
        assert chunkproof(*shlex.split(line)[1:]).code == 0, line
    chunk = next(c for c in sample_chunks() if unicodedata.normalize("NFC", c["text"]) != c["text"])
    again = chunkproof("validate", chunk["chunk_id"], "--collection", "handbook", "--original", chunk["text"])
    assert again.code == 0


def test_the_handbook_is_as_large_as_promised_and_in_many_scripts() -> None:
    chunks = list(sample_chunks())
    text = "".join(chunk["text"] for chunk in chunks)
    assert len({chunk["document_id"] for chunk in chunks}) >= 10
    assert len(chunks) >= 80
    assert len({chunk["chunk_id"] for chunk in chunks}) == len(chunks)
    for script in ("GREEK", "ARABIC", "DEVANAGARI", "CJK UNIFIED"):
        assert any(unicodedata.name(c, "").startswith(script) for c in text), script
    assert "```" in text
    assert "|---|" in text
    assert "\N{ZERO WIDTH JOINER}" in text
    assert all(chunk["url"].startswith("https://handbook.example.com/") for chunk in chunks)


def test_handbook_exports_as_a_file_that_load_takes(chunkproof: Command, tmp_path: Path) -> None:
    assert chunkproof("demo", "--export", tmp_path / "chunks.jsonl").code == 0
    assert (tmp_path / "chunks.jsonl").read_text("utf-8").count("\n") == len(list(sample_chunks()))


def test_the_sample_suite_exports_as_a_file_that_can_be_run(chunkproof: Command, tmp_path: Path) -> None:
    assert chunkproof("demo", "--export-suite", tmp_path / "suite.yaml").code == 0
    assert chunkproof("suite", "lint", tmp_path / "suite.yaml", "--offline").code == 0
    assert chunkproof("demo", "--export-suite", tmp_path / "suite.yaml").code == 2


def test_an_export_replaces_no_file_and_names_a_folder_that_is_not_there(
    chunkproof: Command, tmp_path: Path
) -> None:
    (tmp_path / "mine.jsonl").write_text("mine")
    taken = chunkproof("demo", "--export", tmp_path / "mine.jsonl")
    assert taken.code == 2
    assert (tmp_path / "mine.jsonl").read_text() == "mine"
    nowhere = chunkproof("demo", "--export", tmp_path / "none" / "x.jsonl")
    assert nowhere.code == 3
    assert "No such file or directory" in nowhere.err
