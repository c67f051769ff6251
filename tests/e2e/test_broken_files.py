"""A file that cannot be read is wrong input, exit 2, for every command that reads one."""

import gzip
from pathlib import Path

import pytest

from support.commands import Command

# The ending of the file, and the command; {} stands for the file.
READERS = {
    "load": ("jsonl", "load {}"),
    "manifest": ("jsonl", "manifest {} -o made.jsonl"),
    "manifest from": ("json", "manifest --from ./{} -o made.jsonl"),
    "audit": ("jsonl", "audit {}"),
    "absent": ("jsonl", "absent {}"),
    "suite run": ("yaml", "suite run {}"),
    "suite run, JSON": ("json", "suite run {}"),
    "suite lint": ("yaml", "suite lint {} --offline"),
    "suite tune": ("yaml", "suite tune {}"),
    "suite publish": ("yaml", "suite publish {} --stack none"),
    "failing": ("json", "suite run suite.json --failing {}"),
    "resume": ("json", "suite run suite.json --resume {}"),
    "baseline": ("json", "suite run suite.json --baseline {}"),
    "configurations": ("yaml", "suite run suite.json --compare {}"),
    "recorded run": ("jsonl", "suite run suite.json --retriever ./{}"),
    "retriever map": ("yaml", "suite run suite.json --retriever http://127.0.0.1:9/ --retriever-map {}"),
    "report": ("json", "report {}"),
    "snapshot": ("snapshot", "why text --expect a --snapshot {}"),
    "queries of a diff": ("yaml", "diff a b --queries {}"),
    "suite of doctor": ("yaml", "doctor --suite {}"),
    "queries of a search": ("txt", "search --queries {}"),
    "log": ("txt", "latency --logs {}"),
}
CONTENTS = {"not UTF-8": b"\xff\xfe\x00bad", "broken JSON": b'{"a": ', "empty": b"", "missing": None, "folder": None}
CONTENTS |= {"blank lines": b"\n" * 300_000, "compressed": gzip.compress(b"{}" * 99), "a long line": b"x" * 33_000_000}
CONTENTS |= {"UTF-16": '{"chunk_id": "a"}\n{"chunk_id": "b"}\n'.encode("utf-16")}


@pytest.mark.parametrize("kind", CONTENTS)
@pytest.mark.parametrize("reader", READERS)
def test_a_broken_file_is_wrong_input_for_every_command(
    reader: str, kind: str, tmp_path: Path, chunkproof: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "suite.json").write_text(
        '{"name": "s", "cases": [{"name": "c", "query_text": "q", "expected_doc_ids": ["a"]}]}'
    )
    ending, command = READERS[reader]
    file = tmp_path / f"broken.{ending}"
    if kind == "folder":
        file.mkdir()
    elif (content := CONTENTS[kind]) is not None:
        file.write_bytes(content)
    run = chunkproof(*command.format(file.name).split())
    assert (run.code, "Traceback" in run.err) == (2, False), run.err
    assert "broken" in run.err or "--" in run.err or "query_text" in run.out
    assert "not valid JSON" not in run.err or kind != "UTF-16", "each of its lines is named"
