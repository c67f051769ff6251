"""Collections of any model, from `doctor` to `suite run`: OpenAI's API, two models at once, a function of one's own."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from chunkproof.base.request import Deadline
from chunkproof.embedders.embedder_port import InputType
from chunkproof.embedders.local_model import local_model
from chunkproof_cli.loading import write_chunks
from chunkproof_cli.local.corpus import sample_chunks

from support.commands import Command
from support.openai_server import OpenAiServer, openai_server
from support.qdrant_server import QdrantServer

SIZE = 1536
CHUNKS = 8
QUESTIONS = ("How do robots share a coordinate frame?", "What is ROS 2?")


def padded(text: str) -> list[float]:
    """Embed a text by its meaning, in as many values as text-embedding-3-small has."""
    (vector,) = local_model().embed([text[:400]], InputType.QUERY, Deadline(60_000))
    return [*vector, *[0.0] * (SIZE - len(vector))]


@pytest.fixture(scope="module")
def api() -> Iterator[OpenAiServer]:
    with openai_server(padded) as server:
        yield server


@pytest.fixture
def chunks_file(tmp_path: Path) -> Path:
    file = tmp_path / "chunks.jsonl"
    write_chunks(file, list(sample_chunks())[:CHUNKS])
    return file


@pytest.fixture
def openai(monkeypatch: pytest.MonkeyPatch, api: OpenAiServer) -> OpenAiServer:
    monkeypatch.setenv("CHUNKPROOF_EMBEDDER", "openai")
    monkeypatch.setenv("CHUNKPROOF_MODEL", "text-embedding-3-small")
    monkeypatch.setenv("OPENAI_BASE_URL", api.url)
    monkeypatch.setenv("OPENAI_API_KEY", str(api.key))
    return api


def findings(run: object) -> dict[str, tuple[str, str]]:
    return {f["check"]: (f["level"], f["remedy"] or "") for f in run.json["findings"]}  # type: ignore[attr-defined]


@pytest.mark.server
def test_a_collection_of_1536_values_works_from_doctor_to_suite_run(
    chunkproof: Command,
    chunks_file: Path,
    openai: OpenAiServer,
    served_qdrant: QdrantServer,
    collection: str,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.setenv("QDRANT_URL", served_qdrant.url)
    monkeypatch.setenv("CHUNKPROOF_COLLECTION", collection)
    loaded = chunkproof("load", chunks_file, "--json")
    assert loaded.json == {"collection": collection, "chunks": CHUNKS, "embedding_model": "text-embedding-3-small"}
    info = chunkproof("collection", collection, "--json").json
    assert (info["vector_size"], info["points_count"]) == (SIZE, CHUNKS)

    doctor = chunkproof("doctor", "--json")
    assert doctor.code == 0, doctor.out
    assert findings(doctor)["vectors"][0] == "ok"
    assert doctor.json["verdict"].startswith(f"Verdict: collection {collection} is ready")

    chunk = next(iter(sample_chunks()))
    found = chunkproof("search", chunk["text"][:300], "-k", "1", "--json").json
    assert found["results"][0]["metadata"]["chunk_id"] == chunk["chunk_id"]
    assert found["execution"]["embedding_model"] == "text-embedding-3-small"

    manifest = tmp_path / "manifest.jsonl"
    assert chunkproof("manifest", chunks_file, "-o", manifest).code == 0
    audit = chunkproof("audit", manifest, "--vectors", "--json", "--state", tmp_path / "state")
    assert audit.code == 0, audit.out + audit.err
    assert audit.json["vectors"]["model"] == "text-embedding-3-small"
    assert audit.json["vectors"]["kinds"]["vector_ok"] == CHUNKS

    suite = tmp_path / "suite.yaml"
    suite.write_text(
        f"name: s\ncases:\n- name: first\n  query_text: {json.dumps(chunk['text'][:200])}\n"
        f"  expected_doc_ids: [{chunk['chunk_id']}]\n  top_k: 3\n"
    )
    ran = chunkproof("suite", "run", suite, "--json", "--ignore-latency")
    assert ran.code == 0, ran.out + ran.err
    assert {request["authorization"] for request in openai.requests} == {f"Bearer {openai.key}"}


def test_without_the_setting_doctor_names_it_and_nothing_is_searched(
    chunkproof: Command, chunks_file: Path, openai: OpenAiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert chunkproof("load", chunks_file, "--collection", "docs").code == 0
    for name in ("CHUNKPROOF_EMBEDDER", "CHUNKPROOF_MODEL", "OPENAI_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name)
    doctor = chunkproof("doctor", "--json")
    assert doctor.code == 1
    level, remedy = findings(doctor)["vectors"]
    assert level == "FAIL"
    assert remedy == (
        "Set CHUNKPROOF_EMBEDDER=openai CHUNKPROOF_MODEL=text-embedding-3-small OPENAI_API_KEY=… (or OPENAI_BASE_URL=…)"
    )
    for command in (("search", "robots"), ("load", chunks_file)):
        run = chunkproof(*command, "--collection", "docs", "--json")
        assert run.code == 2
        assert run.json["error"]["code"] == "DIMENSION_MISMATCH"
        assert "all-MiniLM-L6-v2 makes 384 values, collection docs stores 1536" in run.err
        assert "CHUNKPROOF_MODEL" in run.err


def test_each_collection_is_searched_with_its_own_model(
    chunkproof: Command, chunks_file: Path, api: OpenAiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = {"provider": "openai", "model": "text-embedding-3-small", "base_url": api.url, "key": "HOUSE_API_KEY"}
    monkeypatch.setenv("CHUNKPROOF_MODELS", json.dumps({"large": own}))
    monkeypatch.setenv("HOUSE_API_KEY", str(api.key))
    for name, model, size in (("large", "text-embedding-3-small", SIZE), ("small", "all-MiniLM-L6-v2", 384)):
        assert chunkproof("load", chunks_file, "--collection", name, "--json").json["embedding_model"] == model
        assert chunkproof("collection", name, "--json").json["vector_size"] == size
        found = chunkproof("search", QUESTIONS[1], "--collection", name, "--json").json
        assert found["execution"]["embedding_model"] == model
        assert chunkproof("doctor", "--collection", name).code == 0


def test_doctor_names_the_entry_of_a_collection_with_the_wrong_model(
    chunkproof: Command, chunks_file: Path, openai: OpenAiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert chunkproof("load", chunks_file, "--collection", "docs").code == 0
    monkeypatch.setenv("CHUNKPROOF_MODELS", json.dumps({"docs": {"provider": "local"}}))
    level, remedy = findings(chunkproof("doctor", "--collection", "docs", "--json"))["vectors"]
    assert level == "FAIL"
    assert remedy == 'Set CHUNKPROOF_MODELS (docs) to {"provider": "openai", "model": "text-embedding-3-small"}'
    run = chunkproof("search", "robots", "--collection", "docs")
    assert run.code == 2
    assert "set CHUNKPROOF_MODELS (docs) to the model that made the collection" in run.err


def test_an_embedder_that_is_down_is_not_ready(
    chunkproof: Command, chunks_file: Path, openai: OpenAiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert chunkproof("load", chunks_file, "--collection", "docs").code == 0
    monkeypatch.setenv("OPENAI_API_KEY", "sk-wrong")
    doctor = chunkproof("doctor", "--json")
    assert doctor.code == 1
    assert findings(doctor)["search"][0] == "FAIL"
    assert "refused the key; check OPENAI_API_KEY" in doctor.out
    assert "sk-wrong" not in doctor.out


FUNCTION = """
from chunkproof.embedders.embedder_port import InputType
from chunkproof.embedders.local_model import local_model
from chunkproof.base.request import Deadline

def embed(texts):
    return local_model().embed([text[:400] for text in texts], InputType.QUERY, Deadline(60_000))

def broken(texts):
    raise RuntimeError("the weights are gone")

def flat(texts):
    return [0.5, 0.5]

NUMBER = 3
"""


@pytest.fixture
def own_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "my_models_e2e.py").write_text(FUNCTION)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return "my_models_e2e"


def test_a_function_of_ones_own_embeds(chunkproof: Command, chunks_file: Path, own_module: str) -> None:
    flag = ("--embedder", f"{own_module}:embed", "--collection", "docs")
    assert chunkproof("load", chunks_file, *flag, "--json").json["embedding_model"] == f"{own_module}:embed"
    found = chunkproof("search", QUESTIONS[1], *flag, "--json")
    assert found.json["execution"]["embedding_model"] == f"{own_module}:embed"
    assert found.json["results"]
    assert "WARNING" not in found.err
    assert chunkproof("doctor", *flag).code == 0


@pytest.mark.parametrize(
    ("name", "code", "message"),
    [
        ("my_models_e2e:broken", 3, "broken raised RuntimeError: the weights are gone (my_models_e2e.py, line 10)"),
        ("my_models_e2e:flat", 3, "my_models_e2e:flat must return one list of numbers for each text"),
        ("my_models_e2e:NUMBER", 2, "CHUNKPROOF_EMBEDDER my_models_e2e:NUMBER: int cannot embed; name a function"),
        ("my_models_e2e:missing", 2, "my_models_e2e has no missing"),
        ("no_such_module_e2e:embed", 2, "no_such_module_e2e cannot be imported: ModuleNotFoundError"),
        ("voyage", 2, "voyage is none of `cohere`, `bedrock`, `openai`, `local`, or `module:function`"),
    ],
)  # fmt: skip
def test_an_error_in_it_is_reported_as_such(
    handbook: Command, own_module: str, name: str, code: int, message: str
) -> None:
    run = handbook("search", "robots", "--embedder", name)
    assert run.code == code
    assert message in run.err
    assert "Traceback" not in run.err


@pytest.mark.parametrize(
    "command",
    [
        ("search", "x", "--api", "https://api.example.com"),
        ("doctor", "--stack", "s"),
        ("audit", "m.jsonl", "--stack", "s"),
        ("suite", "run", "suite.yaml", "--stack", "s"),
    ],
    ids=lambda command: command[0],
)
def test_a_deployed_stack_embeds_with_its_own_settings(chunkproof: Command, command: tuple[str, ...]) -> None:
    run = chunkproof(*command, "--embedder", "local")
    assert run.code == 2
    assert "--embedder" in run.err


def test_a_wrong_setting_is_named_at_the_start(chunkproof: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CHUNKPROOF_MODELS", '{"docs": {"provider": "openai"}}')
    run = chunkproof("search", "x")
    assert run.code == 2
    assert "CHUNKPROOF_MODELS (docs): model is missing" in run.err
