import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from chunkproof.stores.edge_folder import copy_folder

from support.commands import Command


def test_json_is_the_response_of_the_contract(handbook: Command) -> None:
    run = handbook("search", "composed and decomposed accents", "--collection", "handbook", "-k", 2, "--json")
    assert run.code == 0
    assert run.json["query"] == "composed and decomposed accents"
    assert [r["rank"] for r in run.json["results"]] == [1, 2]
    assert run.json["results"][0]["metadata"]["chunk_id"] == "vectordb-text-hygiene-00"
    assert run.json["execution"]["requested_top_k"] == 2
    assert "error" not in run.json


def test_every_problem_of_a_search_is_reported_at_once(handbook: Command) -> None:
    run = handbook("search", " ", "-k", 0, "--threshold", 2, "--collection", "handbook")
    assert run.code == 2
    assert run.err.splitlines() == [
        "TEXT cannot be empty",
        "--top-k must be between 1 and 1000",
        "--threshold must be between 0.0 and 1.0",
    ]


def test_an_unknown_collection_is_not_mistaken_for_no_hits(handbook: Command) -> None:
    run = handbook("search", "anything", "--collection", "handbok", "--json")
    assert run.code == 2
    assert run.json["error"] == {"code": "COLLECTION_NOT_FOUND", "message": "Collection handbok not found"}
    assert "Did you mean handbook?" in run.err


def test_a_question_longer_than_the_model_reads_is_refused(handbook: Command) -> None:
    run = handbook("search", "robot " * 300, "--collection", "handbook")
    assert run.code == 2
    assert "TEXT is too long: 302 tokens, all-MiniLM-L6-v2 reads 256" in run.err


@pytest.mark.parametrize(
    ("option", "count"),
    [
        ("document_id=vectordb-text-hygiene", 11),
        ('document_id=["vectordb-text-hygiene", "languages"]', 28),
        ('position={"lt": 2}', 6),
        ("position=3", 3),
        ("has_code=true", None),
        ('timestamp={"gte": "2026-01-01", "lt": "2026-02-01"}', 41),
        ('timestamp={"gte": "2026-02-01"}', 0),
        ('not={"document_id": "languages"}', 24),
    ],
)
def test_filters_narrow_the_results(handbook: Command, option: str, count: int | None) -> None:
    run = handbook("search", "text", "-k", 100, "--filter", option, "--collection", "handbook", "--json")
    every = handbook("search", "text", "-k", 100, "--collection", "handbook", "--json")
    assert run.code == 0
    if count is None:
        assert all("```" in r["text"] for r in run.json["results"])
    else:
        negative = 41 - every.json["execution"]["result_count"]  # chunks with a cosine below 0 never appear
        assert count - negative <= run.json["execution"]["result_count"] <= count


@pytest.mark.parametrize("option", ["nofield", "=x", "a=[1", 'a={"gte"'])
def test_an_invalid_filter_is_wrong_usage(handbook: Command, option: str) -> None:
    run = handbook("search", "text", "--filter", option, "--collection", "handbook")
    assert run.code == 2
    assert "--filter" in run.err


def test_stored_text_cannot_control_the_terminal(chunkproof: Command, tmp_path: Path) -> None:
    file = tmp_path / "c.jsonl"
    text = "\x1b[2J\x9b31m[bold]not bold[/bold] \u202ereversed"
    file.write_text(json.dumps({"chunk_id": "a\x1b[0m", "text": text}), "utf-8")
    chunkproof("load", file, "--collection", "c")
    for arguments in (("search", "bold", "--collection", "c"), ("doctor", "--collection", "c")):
        out = chunkproof(*arguments).out
        assert "\x1b" not in out
        assert "\x9b" not in out
        assert "\u202e" not in out
        assert "[bold]not bold[/bold]" in out
    shown = chunkproof("search", "bold", "--collection", "c", "--json")
    assert "\x1b" not in shown.out
    assert "\x9b" not in shown.out
    assert shown.json["results"][0]["text"] == text


def test_a_missing_url_logs_a_warning_and_stdout_stays_json(
    chunkproof: Command, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "c.jsonl"
    file.write_text('{"chunk_id": "a", "text": "no url here"}\n')
    chunkproof("load", file, "--collection", "c")
    run = chunkproof("search", "url", "--collection", "c", "--json")
    assert run.json["execution"]["result_count"] == 1
    assert "Required field 'url' missing from payload" in caplog.text


def test_a_collection_that_another_process_writes_to_is_named(handbook: Command, tmp_path: Path) -> None:
    folder = tmp_path / "shared"
    script = (
        "from chunkproof.stores.edge import EdgeStore; from pathlib import Path; import sys;"
        "from chunkproof.base.request import Deadline; s = EdgeStore(Path(sys.argv[1]));"
        "s.create('c', 384, Deadline(60_000));"
        "s.write_points('c', [{'id': 1, 'vector': {}, 'payload': {}}], Deadline(60_000));"
        "print('open', flush=True); sys.stdin.read()"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", script, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "open\n"
        run = handbook("search", "x", "--data", folder, "--collection", "c")
        assert run.code == 3
        assert "another process writes to this collection" in run.err
    finally:
        holder.communicate("")


@pytest.mark.parametrize(
    ("environment", "code", "messages"),
    [
        ({"QDRANT_URL": "http://127.0.0.1:9"}, 3, ["Qdrant service unavailable at 127.0.0.1:9"]),
        (
            {"QDRANT_URL": "localhost:6333", "CHUNKPROOF_MAX_TOP_K": "many"},
            2,
            ["QDRANT_URL must be an http or https URL", "CHUNKPROOF_MAX_TOP_K must be 1 to 1000"],
        ),
        (
            {"CHUNKPROOF_EMBEDDER": "cohere"},
            3,
            ["CHUNKPROOF_EMBEDDER is cohere, but COHERE_API_KEY is not set"],
        ),
    ],
)
def test_an_invalid_setting_or_an_unreachable_server_is_named(
    chunkproof: Command,
    monkeypatch: pytest.MonkeyPatch,
    environment: dict[str, str],
    code: int,
    messages: list[str],
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    run = chunkproof("search", "x")
    assert run.code == code
    assert run.err.splitlines()[: len(messages)] == messages


def test_help_shows_examples_and_version_is_known(chunkproof: Command) -> None:
    assert "Examples:" in chunkproof("search", "--help").out
    assert chunkproof("--version").out.startswith("chunkproof, version ")
    assert chunkproof("serch").code == 2


def test_a_closed_pipe_causes_no_traceback(handbook: Command, tmp_path: Path) -> None:
    piped = subprocess.run(
        [
            "bash",
            "-o",
            "pipefail",
            "-c",
            f"{sys.executable} -m chunkproof_cli demo --export /dev/stdout | head -n 1",
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert "Traceback" not in piped.stderr


def test_a_number_in_quotes_is_a_string(chunkproof: Command, tmp_path: Path) -> None:
    file = tmp_path / "c.jsonl"
    file.write_text(json.dumps({"chunk_id": "a", "text": "one", "document_id": "12345"}))
    chunkproof("load", file, "--collection", "c")
    as_number = chunkproof("search", "one", "--filter", "document_id=12345", "--collection", "c", "--json")
    as_string = chunkproof("search", "one", "--filter", 'document_id="12345"', "--collection", "c", "--json")
    assert (len(as_number.json["results"]), len(as_string.json["results"])) == (0, 1)


def test_a_very_short_query_logs_a_warning(handbook: Command, caplog: pytest.LogCaptureFixture) -> None:
    assert handbook("search", "PID", "--collection", "handbook", "--json").code == 0
    assert "Query is very short" in caplog.text


def test_output_is_valid_on_an_ascii_terminal(loaded_handbook: Path, tmp_path: Path) -> None:
    copy_folder(loaded_handbook, tmp_path / "data")
    command = [
        sys.executable,
        "-m",
        "chunkproof_cli",
        "search",
        "nombre de robots",
        "--collection",
        "handbook",
    ]
    for options in (["--json"], []):
        run = subprocess.run(
            [*command, "--data", str(tmp_path / "data"), *options],
            env={**os.environ, "PYTHONIOENCODING": "ascii"},
            capture_output=True,
            check=False,
        )
        assert run.returncode == 0, run.stderr
        if options:
            assert json.loads(run.stdout)["results"]


@pytest.mark.parametrize(("file", "code"), [("collection.json", 2), ("shard-0/edge_config.json", 3)])
def test_a_damaged_collection_is_named(handbook: Command, tmp_path: Path, file: str, code: int) -> None:
    (tmp_path / "data-home" / "chunkproof" / "shards" / "handbook" / file).write_bytes(b"not json")
    run = handbook("search", "a question", "--collection", "handbook")
    assert run.code == code
    assert "chunkproof" in run.err
    assert "Traceback" not in run.err
