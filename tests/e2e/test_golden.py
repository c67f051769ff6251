"""Outputs compared with golden files: reports, exit codes, messages, log lines and the answers to the sample events.

Everything here is made through public surfaces (commands, HTTP, files), so the files outlive any change inside. After
an intended change, `make golden` writes them again; read the difference before committing it. What renders a report
starts from the reports of tests/data/golden/inputs, which are written only where they are missing.
"""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any

import httpx
import pytest

from chunkproof_cli.main import cli

from support import golden_model
from support.cohere_server import KEY, cohere_server
from support.commands import Command
from support.qdrant_server import free_port

ROOT = Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "tests" / "data" / "golden"
INPUTS = GOLDEN / "inputs"
WRITE = os.environ.get("CHUNKPROOF_GOLDEN") == "write"
MODEL = "support.golden_model:MODEL"
# The day of the chunks and of the log lines, which stays.
FIXED_DAY = "2026-01-15"
LONGEST = 200
# Whether an earlier request of the same process had the same query.
DEPENDS_ON_ORDER = ("embedding_cached", "cold_start", "cold")


# ---------------------------------------------------------------------------------------------------- normalization


def _is_measured(key: str) -> bool:
    if key in ("seconds", "bytes", "Timestamp", "cost_per_thousand"):
        return True
    limits = ("limit_ms", "max_latency_ms", "target_ms")
    return key.endswith(("_ms", "_seconds", "_second", "_time", "Latency")) and key not in limits


def normalize_json(value: Any, key: str = "") -> Any:
    """Replace what differs from run to run, shorten long texts to a hash, and round scores; keys stay."""
    if isinstance(value, dict):
        return {name: normalize_json(part, f"{name}_ms" if _is_measured(key) else name) for name, part in value.items()}
    if isinstance(value, list):
        return [normalize_json(part, key) for part in value]
    if isinstance(value, bool) or value is None:
        return "<any>" if key in DEPENDS_ON_ORDER else value
    if isinstance(value, int | float):
        return "<measured>" if _is_measured(key) else round(value, 4)
    text = "<version>" if key == "chunkproof_version" else normalize_text(value)
    return text if len(text) <= LONGEST else f"{text[:80]}… <sha256 {_hash(text)}>"


def normalize_text(text: str) -> str:
    """Replace times, dates of today, generated ids, the version and durations."""
    text = re.sub(r"/\S*/golden\d+(?=[/\s])", "/lab", text)
    text = re.sub(r"(Usage: |Try ')\S+.*?\bchunkproof ", r"\1chunkproof ", text)
    text = re.sub(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}", "<uuid4>", text)
    text = re.sub(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d([.,]\d+)?)?(Z|\+00:?00)?", _replace_time, text)
    for days in (0, 1):
        text = text.replace(f"{datetime.now(UTC) - timedelta(days=days):%Y-%m-%d}", "<today>")
    text = re.sub(r"\b\d[\d,]*(\.\d+)? (ms|s|seconds|chunks a second)\b", r"<n> \2", text)
    text = re.sub(r"\(embedding \d+, search \d+\)", "(embedding <n>, search <n>)", text)
    return _collapse_padding(text)


def _replace_time(match: re.Match[str]) -> str:
    return match[0] if match[0].startswith(FIXED_DAY) else "<time>"


def normalize_html(page: str, *, measured: bool) -> str:
    """Replace the style sheet by its hash, and each chart by its hash and labels; a measured one by its words."""
    page = re.sub(r"<style>.*?</style>", lambda match: f"<style>{_hash(match[0])}</style>", page, flags=re.S)
    page = re.sub(r"<svg.*?</svg>", lambda match: _describe_chart(match[0], measured=measured), page, flags=re.S)
    return page.replace("><", ">\n<")


def _describe_chart(svg: str, *, measured: bool) -> str:
    labels = re.findall(r"<text[^>]*>([^<]+)<", svg)
    if measured:
        return f"<svg>{[label for label in labels if not re.search(r'[0-9]', label)]}</svg>"
    return f"<svg>{_hash(svg)} {labels}</svg>"


def _hash(text: str) -> str:
    return sha256(text.encode()).hexdigest()[:16]


def normalize_compared(text: str) -> str:
    """Replace the times and costs of a comparison, whose metrics have three decimals."""
    text = re.sub(r"; [a-z ]+ is the fastest", "; <one> is the fastest", normalize_text(text))
    text = re.sub(r"(?<![\d.])\d+\.(\d|\d{4})(?![\d.])", "<n>", text)
    text = re.sub(r"([│|] |\">)\d[\d,]*(?= *[│|<])", r"\1<n>", text)  # from 100 ms on without decimals
    return _collapse_padding(text)


def _collapse_padding(text: str) -> str:
    """Remove what pads the cells of a table to the width of what was replaced."""
    return "\n".join(re.sub(" {2,}", "  ", line) if "<n>" in line else line for line in text.split("\n"))


def compare(name: str, sections: Mapping[str, str]) -> None:
    """Compare these outputs with the golden file of this name, or write it."""
    made = "".join(
        f"=== {title}\n{text.rstrip()}\n" for title, text in sections.items() if text.strip() or "exit" in title
    )
    file = GOLDEN / f"{name}.txt"
    if WRITE:
        file.write_bytes(made.encode())
    assert made == file.read_bytes().decode(), f"{file.relative_to(ROOT)} differs: `make golden` writes what is new"


def dump(document: Any) -> str:
    return json.dumps(document, ensure_ascii=False, indent=1)


# ------------------------------------------------------------------------------------------------------ the laboratory

OLDER = "Tune the gains of the controller by hand: raise the proportional gain until the arm oscillates, then halve it."
# Long enough that no two chunks have the same score.
DRILLS = "Restore the backup on an empty machine, and note how long it all took"
FAR = "the integral of a controller that the motor cannot follow"
SUITE: dict[str, Any] = {
    "name": "golden",
    "collection": "handbook",
    "defaults": {"top_k": 3},
    "cases": [
        {
            "name": "accents",
            "query_text": "Composed and decomposed: the word can be stored in two ways",
            "expected_doc_ids": ["vectordb-text-hygiene"],
        },
        {
            "name": "links",
            "query_text": "How many neighbours does a node keep?",
            "expected_doc_ids": ["vectordb-hnsw-01"],
            "top_k": 5,
            "tags": ["graph"],
        },
        {"name": "backup", "query_text": DRILLS, "expected_keywords": ["quarter"], "top_k": 3},
        {
            "name": "gone",
            "query_text": "Composed and decomposed: the word can be stored in two ways",
            "expected_doc_ids": ["languages-99"],
        },
        {"name": "far", "query_text": FAR, "expected_doc_ids": ["robotics-control-01"]},
        {"name": "cake", "query_text": "strawberry cake", "expect_no_results": True, "relevance_threshold": 0.6},
    ],
}
# Enough cases for a choice that chance does not explain, and so no time decides.
MANY = {
    **SUITE,
    "cases": [{**SUITE["cases"][0], "name": f"accents-{n}"} for n in range(12)],
}
CONFIGURATIONS = """
configurations:
  - name: as it is
  - name: strict
    search: {similarity_threshold: 0.99}
  - name: stricter
    search: {similarity_threshold: 0.999}
prices:
  embedding: {golden-words: 0.1}
"""
LINE = {"message": "request", "timestamp": "2026-01-15 09:00:00,250+0000", "status": 200, "cold_start": False}
LINES: list[dict[str, Any]] = [
    {"route": "POST /search", "stages_ms": {"embedding": 90.0, "search": 40.5, "format": 1.5, "total": 133.0}},
    {"route": "POST /search", "stages_ms": {"embedding": 110.0, "search": 60.0, "format": 2.0, "total": 173.25}},
    {"route": "POST /search", "stages_ms": {"embedding": 2000.0, "search": 80.0, "format": 2.5, "total": 2100.0}},
    {"route": "POST /validate-chunk", "stages_ms": {"lookup": 12.0, "total": 15.0}},
    {
        "route": "POST /search",
        "stages_ms": {"total": 3.0},
        "status": 400,
        "cold_start": True,
        "error_code": "INVALID_REQUEST",
    },
]


@dataclass(frozen=True)
class Lab:
    """A folder with the files of a user, and a data folder with collections."""

    folder: Path

    def environment(self) -> dict[str, str]:
        return {
            "CHUNKPROOF_EMBEDDER": MODEL,
            "XDG_DATA_HOME": str(self.folder / "home"),
            "CHUNKPROOF_COLLECTION": "handbook",
            "CHUNKPROOF_DEADLINE_MS": "60000",
        }


def write_lines(file: Path, lines: list[Any]) -> None:
    file.write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines), "utf-8")


def break_chunks(chunks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return what a careless pipeline makes of the chunks: each fault on another one."""
    broken = {chunk["chunk_id"]: dict(chunk) for chunk in chunks}
    for chunk_id, change in (
        ("vectordb-text-hygiene-00", lambda text: text.replace("e\u0301", "\u00e9")),
        ("vectordb-text-hygiene-01", lambda text: text.replace("\n", "\r\n")),
        ("vectordb-text-hygiene-02", lambda text: text[:150]),
        ("vectordb-text-hygiene-03", lambda text: text.replace(" ", "")),
        ("vectordb-text-hygiene-04", lambda text: f"{text} "),
        ("vectordb-text-hygiene-05", lambda text: text.upper()),
        ("vectordb-text-hygiene-07", lambda text: text.replace("the", "&lt;b&gt;")),
    ):
        broken[chunk_id]["text"] = change(broken[chunk_id]["text"])
    broken["vectordb-hnsw-00"]["url"] = "https://elsewhere.example.com/<b>"
    broken["vectordb-hnsw-04"]["text"] = broken["vectordb-hnsw-05"]["text"]
    orphan = {**broken["vectordb-hnsw-02"], "chunk_id": "left-over-00", "text": "Left over from an older version."}
    near = {**broken["vectordb-hnsw-03"], "chunk_id": "near-00", "text": broken["vectordb-hnsw-03"]["text"] + " Again."}
    del broken["vectordb-operations-05"]
    return [*broken.values(), orphan, near]


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    lab = Lab(tmp_path_factory.mktemp("golden"))
    folder = lab.folder
    chunks = [json.loads(line) for line in (INPUTS / "chunks.jsonl").read_text("utf-8").splitlines()]
    texts = {chunk["chunk_id"]: chunk["text"] for chunk in chunks}
    write_lines(folder / "chunks.jsonl", chunks)
    write_lines(folder / "broken.jsonl", break_chunks(chunks))
    write_lines(folder / "other.jsonl", [chunks[-1]])
    write_lines(folder / "deleted.jsonl", [{"chunk_id": c["chunk_id"], "original_text": c["text"]} for c in chunks[:2]])
    write_lines(folder / "requests.jsonl", [{**LINE, **line} for line in LINES])
    for name, suite in (("suite.json", SUITE), ("many.json", MANY)):
        (folder / name).write_text(json.dumps(suite), "utf-8")
    (folder / "configurations.yaml").write_text(CONFIGURATIONS, "utf-8")
    (folder / "bad-suite.yaml").write_text("name: bad\ncases:\n  - {name: a, query: x}\n  - {name: a}\n", "utf-8")
    (folder / "original.txt").write_text(texts["vectordb-hnsw-01"], "utf-8")
    with pytest.MonkeyPatch.context() as patch:
        for name, value in lab.environment().items():
            patch.setenv(name, value)
        patch.chdir(folder)

        def run(*arguments: str) -> None:
            cli.main([*arguments], standalone_mode=False)

        run("load", "chunks.jsonl", "--collection", "handbook", "--hybrid")
        run("snapshot", "--collection", "handbook", "--texts", "--vectors", "-o", "before.snapshot")
        run("manifest", "chunks.jsonl", "-o", "manifest.jsonl")
        query = texts["vectordb-operations-02"]
        patch.setattr(
            golden_model,
            "PLANTED",
            {
                texts["vectordb-operations-00"]: OLDER,
                texts["vectordb-operations-01"]: texts["vectordb-operations-01"][:256],
                query: f"question {query}",
                texts["vectordb-text-hygiene-10"]: "quasar nebula pulsar " * 9,
                texts["vectordb-operations-03"]: "zygote quark " * 9,
            },
        )
        run("load", "broken.jsonl", "--collection", "broken")
        patch.setattr(golden_model.WordModel, "model", "some-other-model")
        run("load", "other.jsonl", "--collection", "broken")
        patch.setattr(golden_model.WordModel, "model", "golden-words")
        patch.setattr(golden_model, "SIZE", 8)
        run("load", "other.jsonl", "--collection", "other-model")
    return lab


@pytest.fixture
def command(lab: Lab, chunkproof: Command, monkeypatch: pytest.MonkeyPatch) -> Command:
    """Runs a command in the folder of the laboratory."""
    for name, value in lab.environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(lab.folder)
    return chunkproof


def show_file(file: Path, *, measured: bool) -> str:
    """Return a file as it is compared; one with measured times is normalized."""
    text = file.read_text("utf-8")
    if file.suffix == ".json":
        return dump(normalize_json(json.loads(text)))
    if file.suffix == ".jsonl":
        return "\n".join(dump(normalize_json(json.loads(line))) for line in text.splitlines())
    if file.suffix == ".html":
        text = normalize_html(text, measured=measured)
    return normalize_text(text) if measured else text


# ------------------------------------------------------------------------------------------------------------ commands

STALE = (
    "why 'A snapshot is a consistent copy of a collection at one moment' --collection broken"
    " --expect vectordb-operations-00 -k 2"
)
JSON_COMMANDS = {
    "search": f"search '{DRILLS}' -k 2 --json",
    "search-hybrid": f"search '{DRILLS}' --mode hybrid -k 2 --explain --highlight --neighbours 1 --json",
    "search-filtered": f"search '{DRILLS}' -k 2 --filter document_id=vectordb-hnsw --json",
    "validate-match": "validate vectordb-hnsw-01 --original-file original.txt --json",
    "validate-mismatch": "validate vectordb-text-hygiene-03 --original-file original.txt --json",
    "validate-own-hash": "validate vectordb-hnsw-01 --json --strict",
    "collection": "collection handbook --json",
    "doctor": "doctor --json",
    "doctor-broken": "doctor --collection broken --json",
    "suite-run": "suite run suite.json --json --exact",
    "suite-run-repeated": "suite run suite.json --json --repeat 2 --tag graph",
    "suite-run-broken": "suite run suite.json --collection broken --json",
    "suite-lint": "suite lint suite.json --json",
    "suite-tune": "suite tune many.json --json",
    "audit-match": "audit manifest.jsonl --collection handbook --json",
    "audit-faults": "audit manifest.jsonl --collection broken --json",
    "audit-vectors": "audit manifest.jsonl --collection broken --vectors --near-duplicates --json",
    "audit-partial": "audit manifest.jsonl --collection broken --partial --match id --json",
    "audit-queries": "audit manifest.jsonl --collection broken --queries suite.json --json",
    "absent-stored": "absent deleted.jsonl --url https://handbook.example.com/vectordb-hnsw --text 'Left over' --json",
    "absent": "absent --collection handbook --text 'Jane Doe of 12 Elm Street' --json",
    "diff": "diff handbook broken --queries suite.json --json",
    "latency": "latency --logs requests.jsonl --slo 99 --json",
    "why-found": f"why '{DRILLS}' --expect vectordb-operations-01 --json",
    "why-rank": f"why '{FAR}' --expect robotics-control-01 -k 2 --json",
    "why-threshold": f"why '{DRILLS}' --expect vectordb-operations-01 --threshold 0.9 --json",
    "why-filter": f"why '{DRILLS}' --expect vectordb-operations-01 --filter document_id=vectordb-hnsw --json",
    "why-two": f"why '{DRILLS}' --expect vectordb-operations-01 --threshold 0.9 --filter position=4 --json",
    "why-absent": f"why '{DRILLS}' --expect nobody --json",
    "why-stale-vector": f"{STALE} --json",
    "why-snapshot": f"{STALE} --snapshot before.snapshot --json",
    "why-text": "why 'ef_construct' --mode TEXT --expect vectordb-hnsw-02 -k 1 --json",
    "canary-unknown": "canary check --json",
    "manifest": "manifest chunks.jsonl -o made.jsonl --json",
    "snapshot": "snapshot -o made.snapshot --json",
}


@pytest.mark.parametrize("name", JSON_COMMANDS)
def test_a_command_prints_the_same_json(command: Command, name: str) -> None:
    run = command(*shlex.split(JSON_COMMANDS[name]))
    document = dump(normalize_json(run.json)) if run.out.strip() else ""
    compare(f"json-{name}", {f"exit {run.code}": document, "stderr": normalize_text(run.err)})


# Written by a run and compared after normalization; the formats of the others are rendered from fixed reports.
WRITTEN = {
    "suite-compare": ("suite run many.json --compare configurations.yaml", (".json", ".md", ".html")),
    "why": (f"why '{DRILLS}' --expect vectordb-operations-01 --threshold 0.9", (".txt", ".md", ".html")),
    "why-broken": (f"{STALE} --snapshot before.snapshot", (".txt", ".md")),
    "fix": (f"why '{FAR}' --expect robotics-control-01 --collection broken -k 1 --fix fix.json", ()),
    "search": (f"search '{DRILLS}' -k 2", ()),
    "validate": ("validate vectordb-text-hygiene-00 --collection broken --original-file original.txt", ()),
    "collection": ("collection handbook", ()),
    "doctor": ("doctor --collection broken", ()),
}


@pytest.mark.parametrize("name", WRITTEN)
def test_a_command_prints_and_writes_the_same_text(command: Command, lab: Lab, name: str) -> None:
    line, suffixes = WRITTEN[name]
    files = [lab.folder / f"out{suffix}" for suffix in suffixes]
    run = command(*shlex.split(line), *(word for file in files for word in ("-o", file)))
    sections = {f"exit {run.code}": normalize_text(run.out), "stderr": normalize_text(run.err)}
    sections |= {file.name: show_file(file, measured=True) for file in files}
    if name == "suite-compare":
        sections = {
            title: re.sub(r"Lambda [\d.]+", "Lambda <n>", text) if title.endswith(".json") else normalize_compared(text)
            for title, text in sections.items()
        }
    compare(f"text-{name}", sections)


def test_an_audit_lists_the_same_findings(command: Command, lab: Lab) -> None:
    file = lab.folder / "findings.jsonl"
    run = command("audit", "manifest.jsonl", "--collection", "broken", "--json", "-o", file)
    compare("findings", {f"exit {run.code}": show_file(file, measured=True)})


REPORTS = {
    "suite": ("suite run suite.json --exact", (".txt", ".md", ".html", ".xml")),
    "suite-broken": ("suite run suite.json --collection broken", (".md",)),
    "audit": (
        "audit manifest.jsonl --collection broken --vectors --near-duplicates --queries suite.json",
        (".txt", ".md", ".html", ".xml"),
    ),
    "audit-match": ("audit manifest.jsonl", (".txt", ".md", ".html", ".xml")),
    "absence": ("absent deleted.jsonl --text 'Left over'", (".txt", ".md", ".html")),
    "absence-nothing": ("absent --text 'Jane Doe of 12 Elm Street'", (".txt",)),
    "diff": ("diff handbook broken --queries suite.json", (".txt", ".md", ".html", ".xml")),
}


@pytest.mark.parametrize("name", REPORTS)
def test_a_report_is_rendered_as_before(command: Command, lab: Lab, name: str) -> None:
    line, suffixes = REPORTS[name]
    report = INPUTS / f"{name}.json"
    if WRITE and not report.exists():
        command(*shlex.split(line), "-o", report)
        report.write_text(report.read_text("utf-8").replace(str(lab.folder), "/lab"), "utf-8")
    files = [lab.folder / f"rendered{suffix}" for suffix in suffixes]
    run = command("report", report, *(word for file in files for word in ("-o", file)))
    printed = command("report", report)
    sections = {
        f"exit {run.code}": run.out,
        "stderr": normalize_text(run.err),
        f"printed, exit {printed.code}": printed.out,
    }
    compare(f"report-{name}", sections | {file.name: show_file(file, measured=False) for file in files})


def test_a_suite_report_is_compared_with_a_baseline_as_before(command: Command, lab: Lab) -> None:
    files = [lab.folder / f"compared{suffix}" for suffix in (".md", ".txt", ".html")]
    outputs = [word for file in files for word in ("-o", file)]
    run = command("report", INPUTS / "suite-broken.json", "--baseline", INPUTS / "suite.json", *outputs)
    sections = {f"exit {run.code}": run.out, "stderr": normalize_text(run.err)}
    compare("report-baseline", sections | {file.name: show_file(file, measured=False) for file in files})


def test_the_latency_of_a_log_is_rendered_as_before(command: Command, lab: Lab) -> None:
    page = lab.folder / "latency.html"
    run = command("latency", "--logs", "requests.jsonl", "-o", page)
    sections = {f"exit {run.code}": run.out, "stderr": normalize_text(run.err)}
    compare("report-latency", sections | {page.name: show_file(page, measured=False)})


def test_a_canary_is_recorded_and_checked_as_before(
    command: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert command("load", "other.jsonl").code == 0
    sections: dict[str, str] = {}
    for line in ("canary record", "canary check", "canary check --json"):
        run = command(*shlex.split(line))
        output = dump(normalize_json(run.json)) if "--json" in line else normalize_text(run.out)
        sections |= {f"{line}: exit {run.code}": output, f"{line}: stderr": normalize_text(run.err)}
    compare("canary", sections)


EXITS = (
    "--version",
    "nonsense",
    "search",
    "search ''",
    "search x --top-k 0",
    "search x --threshold 2",
    "search x --collection nowhere",
    "search x --filter position",
    "search x --mode sideways",
    "search 'Embed this while the service is down'",
    "search x --collection other-model",
    "validate nobody",
    "validate vectordb-hnsw-01",
    "validate vectordb-hnsw-01 --original other",
    "validate vectordb-hnsw-01 --sha256 abc",
    "collection nowhere",
    "suite run nowhere.json",
    "suite run bad-suite.yaml",
    "suite run many.json",
    "suite run suite.json --limit SC-1=5",
    "suite run many.json --collection nowhere",
    "suite lint bad-suite.yaml --offline",
    "suite lint many.json --offline",
    "report manifest.jsonl",
    "report nowhere.json",
    "audit nowhere.jsonl",
    "audit chunks.jsonl",
    "audit manifest.jsonl",
    "audit manifest.jsonl --collection broken",
    "audit manifest.jsonl --collection broken --fail-on duplicate",
    "audit manifest.jsonl --fail-on nothing",
    "absent",
    "absent --text 'Jane Doe of 12 Elm Street'",
    "absent --text 'Left over from an older version.'",
    "diff handbook handbook",
    "diff handbook broken",
    "diff handbook nowhere",
    "latency",
    "latency --logs requests.jsonl",
    "latency --logs requests.jsonl --slo 99",
    "latency --logs manifest.jsonl",
    "why x --expect vectordb-hnsw-01 --threshold 7",
    "why x",
    "canary check",
    "load nowhere.jsonl",
    "load manifest.jsonl",
    "manifest chunks.jsonl -o nowhere/made.jsonl",
    "pull handbook",
    "publish handbook",
)
UNREACHABLE = ("search x", "validate x", "collection x", "suite run many.json", "audit manifest.jsonl", "doctor")


def test_exit_codes_and_messages_are_as_before(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    table = [_exit(command, line) for line in EXITS]
    monkeypatch.setenv("QDRANT_URL", "http://127.0.0.1:9")
    table += ["", "with QDRANT_URL where nothing listens", ""]
    table += [_exit(command, line) for line in UNREACHABLE]
    monkeypatch.setenv("QDRANT_URL", "nonsense")
    table += ["", "with a wrong QDRANT_URL", "", _exit(command, "search x")]
    compare("exits", {"exit codes": "\n".join(table)})


def _exit(command: Command, line: str) -> str:
    run = command(*shlex.split(line))
    message = normalize_text(run.err).strip().replace("\n", "\n      ")
    return f"{run.code}  chunkproof {line}" + (f"\n      {message}" if message else "")


# ---------------------------------------------------------------------------------------------------------------- HTTP


@dataclass(frozen=True)
class Served:
    """A running `chunkproof serve`, and the file with its log."""

    url: str
    log: Path


@pytest.fixture(scope="module")
def served(lab: Lab) -> Iterator[Served]:
    """The handlers, with a stand-in of Cohere's API for reranking."""
    port, log = free_port(), lab.folder / "functions.log"
    with cohere_server() as cohere, log.open("wb") as output:
        environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("CHUNKPROOF_")},
            **lab.environment(),
            "COHERE_API_KEY": KEY,
            "COHERE_BASE_URL": cohere.url,
            "PYTHONPATH": str(ROOT / "tests"),
        }
        process = subprocess.Popen(
            [sys.executable, "-m", "chunkproof_cli", "serve", "--port", str(port)],
            cwd=lab.folder,
            env=environment,
            stdout=output,
            stderr=subprocess.DEVNULL,
        )
        server = Served(f"http://127.0.0.1:{port}", log)
        try:
            _wait(server, process)
            yield server
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait()


def _wait(server: Served, process: "subprocess.Popen[bytes]") -> None:
    give_up = time.monotonic() + 60
    while time.monotonic() < give_up and process.poll() is None:
        try:
            httpx.get(f"{server.url}/health", timeout=5)
            return
        except httpx.TransportError:
            time.sleep(0.05)
    raise AssertionError("chunkproof serve did not start")


OF_THE_GATEWAY = {"date", "server", "content-length", "connection"}


def _send(server: Served, name: str) -> httpx.Response:
    event = json.loads((ROOT / "events" / name).read_text("utf-8"))
    return httpx.request(
        event["requestContext"]["http"]["method"],
        f"{server.url}{event['rawPath']}?{event['rawQueryString']}".rstrip("?"),
        content=event.get("body"),
        headers={
            "content-type": event["headers"].get("content-type", "application/json"),
            "accept-encoding": "identity",
            **{header: value for header, value in event["headers"].items() if header.startswith("mcp-")},
        },
        timeout=60,
    )


@pytest.mark.parametrize("name", sorted(file.stem for file in (ROOT / "events").glob("*.json")))
def test_a_sample_event_is_answered_as_before(served: Served, name: str) -> None:
    reply = _send(served, f"{name}.json")
    headers = sorted({header.lower() for header in reply.headers} - OF_THE_GATEWAY)
    answer = reply.json()
    if name.startswith("mcp."):  # an agent gets the same twice, as text and as an object
        (content,) = answer["result"]["content"]
        assert json.loads(content.pop("text")) == answer["result"]["structuredContent"]
    body = dump(normalize_json(answer))
    compare(f"event-{name}", {f"status {reply.status_code}": "\n".join(headers), "body": body})


def test_log_lines_and_metrics_are_as_before(served: Served) -> None:
    sections = {}
    for name in (
        "search.200",
        "validate-chunk.200-mismatch",
        "search.404-unknown-collection",
        "search.503-embedder-down",
    ):
        reply = _send(served, f"{name}.json")
        sections[name] = dump([_normalize_line(line) for line in _lines_of(served.log, reply)])
    compare("log-lines", sections)


def _lines_of(log: Path, reply: httpx.Response) -> list[dict[str, Any]]:
    """Return what was logged for this reply: the lines with its id, and the line of metrics that follows the request's.

    Other requests may still be writing: an interrupted one logs when its service answers.
    """
    request_id = reply.headers["x-request-id"]
    give_up = time.monotonic() + 30
    while time.monotonic() < give_up:
        *whole, _unfinished = log.read_bytes().decode().split("\n")
        lines = [json.loads(line) for line in whole]
        own = [line for line in lines if line.get("request_id") == request_id]
        done = next((n for n, line in enumerate(lines) if line in own and line.get("message") == "request"), len(lines))
        metrics = next((line for line in lines[done:] if "_aws" in line), None)
        if metrics is not None:
            return [*own, metrics]
        time.sleep(0.05)
    raise AssertionError(f"no log line for {reply.status_code}")


def _normalize_line(line: dict[str, Any]) -> Any:
    depending = line.keys() & {"location", "ColdStart", "EmbeddingCacheHit"}
    if "stages_ms" in line:  # the collection is described while the query is embedded: either may end first
        line["stages_ms"] = dict(sorted(line["stages_ms"].items()))
    return normalize_json(line) | dict.fromkeys(sorted(depending), "<any>")
