import gzip
import json
import os
import signal
import subprocess
import sys
import time
from hashlib import sha256
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from chunkproof.audit.ledger import LEDGER_FILES, load_progress
from chunkproof.base.files import LOCK_FILE
from chunkproof.base.request import Deadline
from chunkproof.collection import reader
from chunkproof.net.transport import DeadlineTransport
from chunkproof.stores.edge import EdgeStore
from chunkproof.stores.edge_folder import copy_folder
from chunkproof.stores.server import ServerStore
from chunkproof.stores.store_port import Point
from chunkproof_cli.reports.outputs import AUDIT

from support.audits import Planted, fill, planted
from support.commands import FULL, Command, needs_full
from support.fault_proxy import Call, Fault, fault_proxy
from support.faults import Latency, Responds, qdrant_error
from support.qdrant_server import QdrantServer

HANDBOOK = ("--collection", "handbook")


@pytest.fixture
def manifest(handbook: Command, handbook_file: Path, tmp_path: Path) -> Path:
    file = tmp_path / "manifest.jsonl"
    assert handbook("manifest", handbook_file, "-o", file).code == 0
    return file


def change(tmp_path: Path, chunk_id: str, **payload: object) -> None:
    """Change a stored chunk directly in the store."""
    store = EdgeStore(tmp_path / "data-home" / "chunkproof")
    page = store.scroll("handbook", Deadline(10_000), limit=1_000, with_vector="")
    point = next(p for p in page.points if p.payload["chunk_id"] == chunk_id)
    changed = Point(point.id, {**point.payload, **payload}, vector=point.vector)
    store.upsert("handbook", [changed], "", Deadline(10_000))
    store.close()


def test_a_collection_passes_the_audit_of_what_was_loaded(handbook: Command, manifest: Path, tmp_path: Path) -> None:
    run = handbook("audit", manifest, *HANDBOOK)
    assert run.code == 0
    assert "chunks are stored as they should be, byte for byte." in run.out
    assert not (tmp_path / "manifest.jsonl.audit").exists()


def test_a_changed_chunk_fails_the_audit_and_every_report_shows_it_escaped(
    handbook: Command, manifest: Path, tmp_path: Path
) -> None:
    changed = "<script>alert(1)</script> \x1b[31m | `x` @everyone"
    change(tmp_path, "robotics-control-03", text=changed, url="https://x.example/<b>")
    files = [tmp_path / f"report{suffix}" for suffix in (*AUDIT.extensions, ".jsonl")]
    run = handbook("audit", manifest, *HANDBOOK, *(word for file in files for word in ("-o", file)), "--json")
    assert run.code == 1
    assert run.json["kinds"]["mismatch"] == 1
    assert json.loads((tmp_path / "report.json").read_text("utf-8")) == run.json
    (finding,) = map(json.loads, (tmp_path / "report.jsonl").read_text("utf-8").splitlines())
    assert finding == run.json["findings"][0]
    assert finding["chunk_id"] == "robotics-control-03"
    assert finding["mismatch"]["stored_sha256"] == sha256(changed.encode()).hexdigest()
    for file in files[1:]:
        assert "robotics-control-03" in file.read_text("utf-8").replace("\\", ""), file
        assert "\x1b" not in file.read_text("utf-8")

    page = (tmp_path / "report.html").read_text("utf-8")
    assert "<script" not in page
    assert page.count('<table class="chart') == 3  # kinds, causes, sources
    _Balanced().feed(page)
    failures = ET.parse(tmp_path / "report.xml").findall(".//failure")
    assert [failure.get("type") for failure in failures] == ["mismatch"]
    assert "@everyone" not in (tmp_path / "report.md").read_text("utf-8")


def test_a_canonical_report_is_rendered_in_other_formats(handbook: Command, manifest: Path, tmp_path: Path) -> None:
    canonical, page, again = (tmp_path / name for name in ("a.json", "a.html", "b.html"))
    handbook("audit", manifest, *HANDBOOK, "-o", canonical, "-o", page)
    assert handbook("report", canonical, "-o", again).code == 0
    assert again.read_bytes() == page.read_bytes()
    assert "byte for byte" in handbook("report", canonical).out
    assert handbook("report", canonical, "-o", tmp_path / "all.jsonl").code == 2


class _Balanced(HTMLParser):
    """Fails on a tag that is closed in the wrong order."""

    def __init__(self) -> None:
        super().__init__()
        self._open: list[str] = []

    def handle_starttag(self, tag: str, _attrs: object) -> None:
        if tag != "meta":
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag


def test_only_the_kinds_of_fail_on_fail_the_audit(handbook: Command, manifest: Path, tmp_path: Path) -> None:
    change(tmp_path, "robotics-control-03", url="https://elsewhere.example")
    assert handbook("audit", manifest, *HANDBOOK, "--fail-on", "mismatch,missing").code == 0
    assert handbook("audit", manifest, *HANDBOOK, "--fail-on", "metadata_mismatch").code == 1
    wrong = handbook("audit", manifest, *HANDBOOK, "--fail-on", "mismatches")
    assert wrong.code == 2
    assert "choose among mismatch, missing" in wrong.err


def test_an_audit_against_a_snapshot_finds_changes(handbook: Command, manifest: Path, tmp_path: Path) -> None:
    del manifest
    for name in ("before.jsonl", "before.jsonl.gz", "before.jsonl.zst"):
        assert handbook("manifest", *HANDBOOK, "--hash", "-o", tmp_path / name).code == 0
    assert gzip.decompress((tmp_path / "before.jsonl.gz").read_bytes()) == (tmp_path / "before.jsonl").read_bytes()
    assert b"original_text" not in (tmp_path / "before.jsonl").read_bytes()
    change(tmp_path, "robotics-control-03", text="another text")
    for name in ("before.jsonl", "before.jsonl.gz", "before.jsonl.zst"):
        run = handbook("audit", tmp_path / name, *HANDBOOK, "--json")
        assert [(f["chunk_id"], f["kind"]) for f in run.json["findings"]] == [("robotics-control-03", "mismatch")]


def test_a_damaged_compressed_manifest_is_an_input_error(handbook: Command, manifest: Path, tmp_path: Path) -> None:
    whole = gzip.compress(manifest.read_bytes(), mtime=0)
    middle = len(whole) // 2
    for content in (
        whole[:middle],
        whole[:middle] + b"\xff" * 40 + whole[middle + 40 :],
        whole[:-4] + b"oops",
    ):
        (tmp_path / "m.gz").write_bytes(content)
        run = handbook("audit", tmp_path / "m.gz", *HANDBOOK)
        assert run.code == 2
        assert "m.gz cannot be decompressed" in run.err
        assert not (tmp_path / "m.gz.audit").exists()


def test_metadata_fields_may_be_separated_by_spaces_and_one_that_no_chunk_has_is_named(
    handbook: Command, manifest: Path, handbook_file: Path, tmp_path: Path
) -> None:
    del manifest
    for source in ((handbook_file,), HANDBOOK):
        file = tmp_path / "fields.jsonl"
        run = handbook("manifest", *source, "--metadata", "url, position ,positoin", "-o", file)
        assert run.code == 0
        assert "--metadata: no chunk has positoin; an audit will not compare it" in run.err
        assert list(json.loads(file.read_bytes().splitlines()[0])["metadata"]) == ["url", "position"]
    assert "no chunk has" not in handbook("manifest", handbook_file, "-o", file).err


def test_a_manifest_names_chunks_without_readable_text_and_audits_clean(
    handbook: Command, manifest: Path, tmp_path: Path
) -> None:
    del manifest
    change(tmp_path, "robotics-control-03", text=None)
    run = handbook("manifest", *HANDBOOK, "-o", tmp_path / "m.jsonl")
    assert run.code == 0
    assert "robotics-control-03" in run.err
    assert handbook("audit", tmp_path / "m.jsonl", *HANDBOOK).code == 0


def test_vectors_are_checked_on_request(handbook: Command, manifest: Path, tmp_path: Path) -> None:
    change(tmp_path, "robotics-control-03", text="A text about the price of bananas in March.")
    run = handbook("audit", manifest, *HANDBOOK, "--vectors", "--fail-on", "stale_vector", "--json")
    assert run.code == 1
    stale = [f for f in run.json["findings"] if f["kind"] == "stale_vector"]
    assert [f["chunk_id"] for f in stale] == ["robotics-control-03"]
    assert "the stored text was changed later" in stale[0]["details"]
    kinds = run.json["vectors"]["kinds"]
    assert kinds["vector_ok"] == run.json["audited"] - 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("nothing.jsonl",), "nothing.jsonl: no such file"),
        (("M", "-o", "x.pdf"), "the extension must be one of"),
        (("M", "--sample", "0"), "--sample"),
        (("M", "--vectors=few"), "few is not a number of chunks"),
        (("M", "--resume", "--restart"), "not both"),
        (("M", "--collection", "nope"), "Collection nope not found"),
        (("M", "--api", "https://x"), "--api"),
    ],
)
def test_wrong_usage_is_refused_before_the_audit_starts(
    handbook: Command, manifest: Path, tmp_path: Path, arguments: tuple[str, ...], message: str
) -> None:
    run = handbook("audit", *(manifest if word == "M" else word for word in arguments))
    assert run.code == 2
    assert message in run.err
    assert not (tmp_path / "manifest.jsonl.audit").exists()


def test_vectors_without_a_value_may_come_before_the_manifest(handbook: Command, manifest: Path) -> None:
    for words in (("--vectors", manifest), ("--vectors", "3", manifest), (manifest, "--vectors")):
        run = handbook("audit", *words, *HANDBOOK, "--json")
        assert run.code == 0
        checked = 3 if "3" in words else run.json["audited"]
        assert run.json["vectors"]["checked"] == checked


@pytest.mark.parametrize("other_file", ["server.log", "findings.jsonl", "mine.sorted"])
def test_a_folder_with_other_files_is_refused_for_the_state(
    handbook: Command, manifest: Path, tmp_path: Path, other_file: str
) -> None:
    folder = tmp_path / "logs"
    folder.mkdir()
    (folder / other_file).write_text("untouched", "utf-8")
    run = handbook("audit", manifest, *HANDBOOK, "--state", folder)
    assert run.code == 2
    assert f"{folder} holds other files ({other_file})" in run.err
    assert [file.read_text("utf-8") for file in folder.iterdir()] == ["untouched"]


def test_what_a_killed_audit_left_is_no_other_file(handbook: Command, manifest: Path, tmp_path: Path) -> None:
    folder = tmp_path / "state"
    folder.mkdir()
    (folder / LOCK_FILE).touch()
    for file in LEDGER_FILES[1:]:  # a kill while it was begun, or removed
        (folder / file).write_text("half a page", "utf-8")
    assert handbook("audit", manifest, *HANDBOOK, "--state", folder).code == 0
    assert not folder.exists()


def test_a_report_in_the_folder_of_the_state_is_refused(handbook: Command, manifest: Path, tmp_path: Path) -> None:
    state = tmp_path / "state"
    state.mkdir()
    run = handbook("audit", manifest, *HANDBOOK, "--state", state, "-o", state / "findings.jsonl")
    assert run.code == 2
    assert "is for the state of the audit" in run.err


@needs_full
def test_a_report_that_could_not_be_written_is_written_on_resume(
    handbook: Command, manifest: Path, tmp_path: Path
) -> None:
    report = tmp_path / "report.json"
    report.symlink_to(FULL)
    run = handbook("audit", manifest, *HANDBOOK, "-o", report)
    assert run.code == 3
    assert "--resume writes it" in run.err
    report.unlink()
    assert handbook("audit", manifest, *HANDBOOK, "-o", report, "--resume").code == 0
    assert json.loads(report.read_text("utf-8"))["report"] == "audit"


class _FailsAfter(Fault):
    """The server returns this many pages, and only errors from then on, or what else goes wrong."""

    def __init__(self, pages: int, then: Fault | None = None) -> None:
        self._left = pages
        self._then = then or Responds(qdrant_error(503))

    async def handle(self, call: Call) -> None:
        if call.request.start[1].endswith("/points/scroll"):
            self._left -= 1
            if self._left < 0:
                await self._then.handle(call)
                return
        await call.pass_on()


@pytest.fixture
def planted_manifest(served_qdrant: QdrantServer, collection: str, tmp_path: Path) -> tuple[Planted, Path]:
    """A collection with faults on the server, and its manifest."""
    made, manifest = planted(1_500), tmp_path / "m.jsonl"
    store = ServerStore(served_qdrant.url, DeadlineTransport())
    fill(store, collection, made.points)
    store.close()
    manifest.write_bytes(b"".join(made.manifest()))
    return made, manifest


@pytest.mark.server
def test_a_failing_server_leaves_no_report_and_the_audit_is_resumed_later(
    chunkproof: Command,
    served_qdrant: QdrantServer,
    planted_manifest: tuple[Planted, Path],
    collection: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made, manifest = planted_manifest
    report = tmp_path / "report.json"
    given = ("audit", manifest, "--collection", collection, "-o", report)
    monkeypatch.setattr(reader, "PAUSES", (0.0,))
    with fault_proxy(served_qdrant.url) as proxy:
        monkeypatch.setenv("QDRANT_URL", proxy.url)
        proxy.inject(_FailsAfter(4))
        run = chunkproof(*given)
        assert run.code == 3
        assert "continue with --resume" in run.err
        assert not report.exists()
        proxy.inject(None)
        again = chunkproof(*given)
        assert again.code == 2
        assert "continue it with --resume, or start again with --restart" in again.err
        assert chunkproof(*given, "--resume").code == 1
    written = json.loads(report.read_text("utf-8"))
    assert written["run"]["resumed"] == 1
    assert written["kinds"]["match"] == made.matches


@pytest.mark.server
def test_a_killed_audit_is_resumed_to_the_same_report(
    chunkproof: Command,
    served_qdrant: QdrantServer,
    planted_manifest: tuple[Planted, Path],
    collection: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    manifest, state = planted_manifest[1], tmp_path / "state"
    monkeypatch.setenv("QDRANT_URL", served_qdrant.url)
    given = ["audit", str(manifest), "--collection", collection]
    expected = chunkproof(*given, "--json").json
    with fault_proxy(served_qdrant.url) as proxy:
        proxy.inject(_FailsAfter(6, Latency(5_000)))  # it is waiting for the server when it is killed
        command = [sys.executable, "-m", "chunkproof_cli", *given, "--state", str(state)]
        process = subprocess.Popen(command, env={**os.environ, "QDRANT_URL": proxy.url}, stderr=subprocess.DEVNULL)
        while (left := load_progress(state)) is None or not left.compared:
            assert process.poll() is None
            time.sleep(0.02)
        process.send_signal(signal.SIGKILL)
        process.wait()
        proxy.inject(None)
        monkeypatch.setenv("QDRANT_URL", proxy.url)
        resumed = chunkproof(*given, "--state", state, "--resume", "--json").json
    for result in (expected, resumed):
        del result["run"], result["host"]
    assert resumed == expected


MODULES = """
import atexit, sys
atexit.register(lambda: print("MODULES", *sys.modules, file=sys.stderr))
from chunkproof_cli.main import main
main()
"""


def test_an_audit_imports_nothing_of_suites(manifest: Path, loaded_handbook: Path, tmp_path: Path) -> None:
    copy_folder(loaded_handbook, tmp_path / "data")
    real = ("audit", manifest, *HANDBOOK, "--data", tmp_path / "data", "-o", tmp_path / "report.html")
    for words in (("audit", "--help"), real):
        command = [sys.executable, "-c", MODULES, *map(str, words)]
        run = subprocess.run(command, capture_output=True, text=True, check=True)
        modules = run.stderr.rpartition("MODULES")[2].split()
        assert "chunkproof.audit.audit_run" in modules
        suites = ("chunkproof.suite", "chunkproof_cli.suites", "chunkproof_cli.reports.suite")
        assert [name for name in modules if name.startswith(suites)] == []


def test_the_audit_demo_finds_exactly_the_planted_faults(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from tools.checks.audit_demo import demo

    assert demo(tmp_path / "demo.html", most=60), capsys.readouterr().out
    assert '<table class="chart' in (tmp_path / "demo.html").read_text("utf-8")


def test_a_changed_word_is_shown_in_the_terminal_and_the_verdict_names_the_worst_first(
    chunkproof: Command, tmp_path: Path
) -> None:
    chunks, manifest = tmp_path / "chunks.jsonl", tmp_path / "m.jsonl"
    texts = {"a": "The pump moves wine uphill at night.", "b": "Über Nacht füllt der Bäcker Öfen.", "c": "Other."}
    lines = [json.dumps({"chunk_id": name, "text": text}) for name, text in texts.items()]
    chunks.write_text("\n".join(lines), "utf-8")
    assert chunkproof("load", chunks, "--collection", "c").code == 0
    expected = {"a": texts["a"].replace("wine", "water"), "b": texts["b"].replace("Bäcker", "Köhler"), "gone": "x y z"}
    lines = [json.dumps({"chunk_id": name, "original_text": text}) for name, text in expected.items()]
    manifest.write_text("\n".join(lines), "utf-8")
    run = chunkproof("audit", manifest, "--collection", "c")
    shown = " ".join(run.out.replace("│", " ").split())
    assert "moves wine uphill" in shown
    assert "moves water uphill" in shown
    assert "Bäcker" in shown
    verdict = " ".join(run.out.split())
    kinds = ["2 chunks have another text (2 different)", "1 chunk is missing", "1 stored point is not in the manifest"]
    assert [verdict.index(kind) for kind in kinds] == sorted(verdict.index(kind) for kind in kinds)
