import re
import shlex
import tempfile
import unicodedata
from pathlib import Path

import pytest

from chunkproof.service.terminal import default_data_folder
from chunkproof_cli.local.corpus import sample_chunks

from support.commands import Command


def test_the_demo_numbers_its_steps_prints_commands_that_work_and_uses_a_folder_of_its_own(
    chunkproof: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with monkeypatch.context() as configured:  # the demo is embedded, whatever is configured
        configured.setenv("QDRANT_URL", "http://127.0.0.1:9")
        configured.setenv("COHERE_API_KEY", "none")
        run = chunkproof("demo")
    assert run.code == 0
    assert "are in collection handbook" in run.out
    assert "Feedforward against gravity" in run.out
    assert "The stored text is the original, byte for byte." in run.out
    assert "MISMATCH: Unicode normalization differs" in run.out
    assert "handbook: 42 of 42 cases passed, 0 failed" in run.out

    steps = re.findall(r"^(\d)\. (\w+)", run.out, re.M)
    names = ["Load", "Search", "Search", "Validate", "Validate", "Run"]
    assert steps == [(str(number), name) for number, name in enumerate(names, 1)]

    last = run.out.strip().splitlines()[-3:]
    assert [line.split()[1] for line in last] == ["search", "validate", "doctor"]
    for line in last:
        assert chunkproof(*shlex.split(line)[1:]).code == 0, line
    data = shlex.split(last[0])[-2:]
    chunk = next(c for c in sample_chunks() if unicodedata.normalize("NFC", c["text"]) != c["text"])
    where = ("--collection", "handbook", *data)
    assert chunkproof("validate", chunk["chunk_id"], *where, "--original", chunk["text"]).code == 0

    assert data[0] == "--data"
    assert Path(data[1]).parent == tmp_path, "each demo has a new folder"
    assert not default_data_folder().exists(), "and leaves the user's data alone"


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


def test_an_export_replaces_no_file_and_names_a_folder_that_is_not_there(chunkproof: Command, tmp_path: Path) -> None:
    (tmp_path / "mine.jsonl").write_text("mine")
    taken = chunkproof("demo", "--export", tmp_path / "mine.jsonl")
    assert taken.code == 2
    assert (tmp_path / "mine.jsonl").read_text() == "mine"
    nowhere = chunkproof("demo", "--export", tmp_path / "none" / "x.jsonl")
    assert nowhere.code == 2
    assert "No such file or directory" in nowhere.err
