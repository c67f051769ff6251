"""The folder in which an audit keeps its state: used by one audit at a time, and never at the cost of a report."""

import gzip
import io
import json
import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from chunkproof.audit.ledger import LEDGER_FILE, Ledger, Progress, load_progress
from chunkproof.base.files import lock_folder
from chunkproof.stores.edge_folder import copy_folder

from support.commands import FULL, Command, needs_full, small_disk

HANDBOOK = ("--collection", "handbook")


@pytest.fixture
def manifest(handbook: Command, handbook_file: Path, tmp_path: Path) -> Path:
    file = tmp_path / "manifests" / "manifest.jsonl"
    file.parent.mkdir()
    assert handbook("manifest", handbook_file, "-o", file).code == 0
    return file


@pytest.fixture
def long_manifest(manifest: Path) -> Path:
    """A manifest that also lists 3,000 chunks that are missing: what is found is larger than the sorted manifest."""
    with manifest.open("a", encoding="utf-8") as file:
        for number in range(3_000):
            print(json.dumps({"chunk_id": f"missing-{number:04d}", "original_text": "x" * 40}), file=file)
    return manifest


class _Pipe(io.TextIOWrapper):
    """A standard input that cannot be read twice."""

    def __init__(self, content: bytes) -> None:
        raw = io.BytesIO(content)
        raw.seekable = lambda: False  # type: ignore[method-assign]
        super().__init__(raw)


def left_beside(manifest: Path) -> list[str]:
    return sorted(file.name for file in manifest.parent.iterdir() if file != manifest)


def without_run(report: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in report.items() if name != "run"}


def test_a_folder_in_use_by_another_audit_is_refused_and_left_alone(
    handbook: Command, manifest: Path, tmp_path: Path
) -> None:
    state = tmp_path / "state"
    for more in ((), ("--resume",), ("--restart",)):
        with lock_folder(state):
            (state / LEDGER_FILE).write_text("of the other audit", "utf-8")
            run = handbook("audit", manifest, *HANDBOOK, "--state", state, *more)
            assert run.code == 2
            assert f"{state} is in use by another audit" in run.err
            assert "--state" in run.err
            assert (state / LEDGER_FILE).read_text("utf-8") == "of the other audit"


def test_audits_of_two_collections_and_of_two_stores_keep_their_state_apart(
    handbook: Command, manifest: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    copy_folder(tmp_path / "data-home" / "chunkproof", tmp_path / "other")
    assert handbook("load", _chunks(tmp_path), "--collection", "another").code == 0
    monkeypatch.setattr(Ledger, "save", stop)
    for words in (HANDBOOK, ("--collection", "another"), (*HANDBOOK, "--data", tmp_path / "other")):
        assert handbook("audit", manifest, *words).code == 130
    folders = left_beside(manifest)
    assert len(folders) == 3
    assert [name.rpartition("-")[0] for name in folders] == [
        "manifest.jsonl.another",
        "manifest.jsonl.handbook",
        "manifest.jsonl.handbook",
    ]
    monkeypatch.undo()


def _chunks(tmp_path: Path) -> Path:
    file = tmp_path / "chunks.jsonl"
    file.write_text(json.dumps({"chunk_id": "a", "text": "A chunk."}) + "\n", "utf-8")
    return file


def test_an_audit_whose_folder_was_taken_over_stops_and_leaves_the_other_state(
    handbook: Command, manifest: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state, save = tmp_path / "state", Ledger.save

    def take_over(ledger: Ledger, progress: Progress) -> None:
        ledger.execute("ROLLBACK")
        Ledger.resume(state, progress.model_copy(update={"process": "another"})).close()
        ledger.execute("BEGIN")
        save(ledger, progress)

    monkeypatch.setattr(Ledger, "save", take_over)
    run = handbook("audit", manifest, *HANDBOOK, "--state", state)
    assert run.code == 2
    assert "taken over by another audit" in run.err
    assert run.out == ""
    left = load_progress(state)
    assert left is not None
    assert left.process == "another"


@pytest.mark.parametrize("target_exists", [True, False])
def test_a_state_folder_behind_a_link_gives_the_report_and_keeps_the_link(
    handbook: Command, manifest: Path, tmp_path: Path, target_exists: bool
) -> None:
    target, link = tmp_path / "target", tmp_path / "link"
    target.mkdir()
    link.symlink_to(target)
    if not target_exists:
        target.rmdir()
    run = handbook("audit", manifest, *HANDBOOK, "--state", link, "--json", "-o", tmp_path / "r.json")
    if target_exists:
        assert run.code == 0
        assert json.loads((tmp_path / "r.json").read_text("utf-8")) == run.json
        assert list(target.iterdir()) == []
    else:
        assert run.code == 2
        assert f"--state {link}" in run.err
    assert link.is_symlink()


@needs_full
def test_a_report_that_could_not_be_printed_is_printed_on_resume(manifest: Path, loaded_handbook: Path) -> None:
    data = manifest.parent.parent / "data-home" / "chunkproof"
    command = [sys.executable, "-m", "chunkproof_cli", "audit", str(manifest), *HANDBOOK, "--data", str(data)]
    with FULL.open("w") as full:
        run = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert run.returncode == 3
    assert "--resume writes it" in run.stderr
    again = subprocess.run([*command, "--resume"], capture_output=True, text=True, check=False)
    assert again.returncode == 0
    assert "All 41 chunks are stored as they should be" in again.stdout
    assert left_beside(manifest) == []


def test_on_a_full_disk_an_audit_says_that_it_can_be_resumed_and_gives_the_same_report(
    handbook: Command, long_manifest: Path
) -> None:
    given = ("audit", long_manifest, *HANDBOOK, "--json")
    expected = handbook(*given).json
    with small_disk(1_300_000):  # the sorted manifest fits, the findings do not
        run = handbook(*given)
    assert run.code == 3
    assert "continue with --resume" in run.err
    assert f"{long_manifest}.handbook-" in run.err
    assert "File too large" in run.err
    assert without_run(handbook(*given, "--resume").json) == without_run(expected)
    assert left_beside(long_manifest) == []


def test_where_a_manifest_cannot_be_sorted_the_message_names_the_flag_and_nothing_is_left(
    handbook: Command, long_manifest: Path
) -> None:
    with small_disk(100_000):
        run = handbook("audit", long_manifest, *HANDBOOK)
    assert run.code == 3
    assert "--state names a folder on another disk" in run.err
    assert "Traceback" not in run.err
    assert left_beside(long_manifest) == []


def test_only_the_owner_can_read_the_state(
    handbook: Command, manifest: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    modes: dict[str, int] = {}
    save, folder = Ledger.save, tmp_path / "state"

    def look(ledger: Ledger, progress: Progress) -> None:
        save(ledger, progress)
        modes.update({path.name: stat.S_IMODE(path.stat().st_mode) for path in (folder, *folder.iterdir())})

    monkeypatch.setattr(Ledger, "save", look)
    before = os.umask(0o002)
    try:
        run = handbook("audit", manifest, *HANDBOOK, "--state", folder, "-o", tmp_path / "r.json")
    finally:
        os.umask(before)
    assert run.code == 0
    assert modes.pop("state") == 0o700
    assert set(modes) >= {"ledger.sqlite", "ledger.sqlite-wal"}
    assert set(modes.values()) == {0o600}
    assert stat.S_IMODE((tmp_path / "r.json").stat().st_mode) == 0o664  # a report is as readable as any file


@pytest.mark.parametrize("compressed", [False, True])
def test_a_manifest_comes_from_standard_input(
    handbook: Command, manifest: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compressed: bool
) -> None:
    monkeypatch.chdir(tmp_path)
    before = set(tmp_path.iterdir())
    content = manifest.read_bytes()
    monkeypatch.setattr(sys, "stdin", _Pipe(gzip.compress(content) if compressed else content))
    run = handbook("audit", "-", *HANDBOOK, "--json")
    assert run.code == 0
    assert run.json["manifest"]["name"] == "standard input"
    assert run.json["kinds"]["match"] == 41
    assert set(tmp_path.iterdir()) == before


def test_a_manifest_comes_through_a_pipe_byte_by_byte(handbook: Command, manifest: Path, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    slowly = "import os, sys, time\nout = os.open(sys.argv[2], os.O_WRONLY)\n"
    slowly += "data = open(sys.argv[1], 'rb').read()\n"
    slowly += "[os.write(out, data[n:n+1]) or time.sleep(0.01) for n in range(8)]\nos.write(out, data[8:])"
    writer = subprocess.Popen([sys.executable, "-c", slowly, str(manifest), str(pipe)])
    run = handbook("audit", pipe, *HANDBOOK, "--state", tmp_path / "state", "--json")
    assert writer.wait() == 0
    assert run.code == 0
    assert run.json["kinds"]["match"] == 41


def test_an_interrupted_audit_of_standard_input_is_resumed_with_the_same_manifest(
    handbook: Command, manifest: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.chdir(tmp_path)
    with monkeypatch.context() as meanwhile:
        meanwhile.setattr(Ledger, "save", stop)
        meanwhile.setattr(sys, "stdin", _Pipe(manifest.read_bytes()))
        assert handbook("audit", "-", *HANDBOOK).code == 130
    monkeypatch.setattr(sys, "stdin", _Pipe(b""))
    other = handbook("audit", "-", *HANDBOOK, "--resume")
    assert other.code == 2
    assert "another manifest" in other.err
    monkeypatch.setattr(sys, "stdin", _Pipe(manifest.read_bytes()))
    run = handbook("audit", "-", *HANDBOOK, "--resume", "--json")
    assert run.code == 0
    assert run.json["run"]["resumed"] == 1


def test_a_pipe_cannot_be_audited_in_the_cloud(chunkproof: Command, tmp_path: Path) -> None:
    run = chunkproof("audit", "-", "--stack", "s")
    assert run.code == 2
    assert "MANIFEST must be a file or s3://BUCKET/KEY" in run.err
    assert chunkproof("audit", tmp_path).code == 2
    assert chunkproof("audit", tmp_path / "gone.jsonl").code == 2
