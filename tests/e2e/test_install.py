"""The built wheel and source distribution, installed into empty virtualenvs."""

import json
import os
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.cloud import handbook_host
from support.qdrant_server import NoServerError
from support.recording_server import CannedResponse, recording_server
from support.template import ROOT
from tools.dist import build
from tools.pins import pins


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return build(tmp_path_factory.mktemp("dist"))


def install(file: Path, folder: Path, extras: str = "") -> Path:
    """Install a distribution as a user would, with the tested versions of what it needs; return its bin folder."""
    uv = [sys.executable, "-m", "uv", "--quiet"]
    subprocess.run([*uv, "venv", "--python", sys.executable, str(folder)], check=True)
    wanted = [f"chunkproof{extras} @ {file.as_uri()}", "--constraint", str(ROOT / "tests" / "requirements.txt")]
    subprocess.run([*uv, "pip", "install", "--python", str(folder / "bin" / "python"), *wanted], check=True)
    return folder / "bin"


def run(bin_folder: Path, *arguments: str, cwd: Path, **variables: str) -> "subprocess.CompletedProcess[str]":
    """Run the installed command with nothing of this checkout in its environment."""
    environment = {"PATH": os.defpath, "HOME": str(cwd), **variables}
    command = [str(bin_folder / "chunkproof"), *arguments]
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False, timeout=300)


@pytest.fixture(scope="module")
def from_wheel(built: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    (wheel,) = (file for file in built if file.suffix == ".whl")
    return install(wheel, tmp_path_factory.mktemp("wheel") / "venv", "[local,mcp,qdrant,cohere]")


@pytest.fixture(scope="module")
def from_source(built: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    (source,) = (file for file in built if file.name.endswith(".tar.gz"))
    return install(source, tmp_path_factory.mktemp("source") / "venv", "[qdrant,cohere]")


@pytest.fixture(scope="module")
def core(built: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    (wheel,) = (file for file in built if file.suffix == ".whl")
    return install(wheel, tmp_path_factory.mktemp("core") / "venv")


@pytest.fixture(scope="module")
def server() -> Iterator[dict[str, str]]:
    try:
        with handbook_host() as host:
            yield host.variables()
    except NoServerError as error:
        pytest.skip(str(error))


def test_a_build_gives_the_same_bytes_again(built: list[Path], tmp_path: Path) -> None:
    assert [file.read_bytes() for file in build(tmp_path)] == [file.read_bytes() for file in built]


def test_both_have_the_page_of_the_console(built: list[Path]) -> None:
    (wheel,) = (file for file in built if file.suffix == ".whl")
    (source,) = (file for file in built if file.name.endswith(".tar.gz"))
    page = ROOT / "cli" / "chunkproof_cli" / "local" / "page"
    names = {str(file.relative_to(ROOT / "cli")) for file in page.rglob("*") if file.is_file()}
    assert "chunkproof_cli/local/page/console/console.js" in names
    with zipfile.ZipFile(wheel) as packed:
        assert names <= set(packed.namelist())
    with tarfile.open(source) as archive:
        assert names <= {name.partition("/cli/")[2] for name in archive.getnames()}


def test_the_wheel_shows_the_demo_with_the_local_model(from_wheel: Path, tmp_path: Path) -> None:
    shown = run(from_wheel, "demo", cwd=tmp_path)
    assert shown.returncode == 0, shown.stdout + shown.stderr
    assert "42 of 42" in shown.stdout


def test_both_examine_a_collection_of_a_server(
    from_wheel: Path, from_source: Path, server: dict[str, str], tmp_path: Path
) -> None:
    for installed in (from_wheel, from_source):
        shown = run(installed, "doctor", cwd=tmp_path, **server)
        assert shown.returncode == 0, shown.stdout + shown.stderr


def test_without_the_local_model_the_message_names_the_extra(from_source: Path, tmp_path: Path) -> None:
    (tmp_path / "chunks.jsonl").write_text('{"chunk_id": "a", "text": "a text", "url": "https://a.example"}\n', "utf-8")
    shown = run(from_source, "load", "chunks.jsonl", cwd=tmp_path)
    assert (shown.returncode, shown.stdout) == (3, "")
    assert "pip install 'chunkproof[local]'" in shown.stderr
    assert "Traceback" not in shown.stderr


def test_without_the_protocols_sdk_the_message_names_the_extra(from_source: Path, tmp_path: Path) -> None:
    shown = run(from_source, "mcp", cwd=tmp_path)
    assert shown.returncode == 3
    assert "pip install 'chunkproof[mcp]'" in shown.stderr


def test_without_extras_a_retriever_behind_http_is_tested_and_its_report_rendered(core: Path, tmp_path: Path) -> None:
    (tmp_path / "suite.yaml").write_text(
        "name: s\ncases:\n  - name: a\n    query_text: what is it\n    expected_keywords: [hello]\n", "utf-8"
    )
    answer = b'{"results": [{"id": "a", "text": "hello world", "score": 0.9}]}'
    with recording_server(lambda _: CannedResponse(200, answer, {"content-type": "application/json"})) as server:
        lines = (
            ("suite", "lint", "--offline", "suite.yaml"),
            ("suite", "run", "suite.yaml", "--retriever", server.url, "-o", "r.json", "-o", "r.html", "-o", "r.xml"),
            ("suite", "run", "suite.yaml", "--retriever", server.url, "--baseline", "r.json"),
            ("report", "r.json", "-o", "r.md"),
        )
        for line in lines:
            shown = run(core, *line, cwd=tmp_path)
            assert shown.returncode == 0, shown.stdout + shown.stderr
    assert "pip install &#x27;chunkproof[charts]&#x27;" in (tmp_path / "r.html").read_text("utf-8")
    site = next((core.parent / "lib").glob("python*"))
    assert sum(file.stat().st_size for file in site.rglob("*") if file.is_file()) < 60_000_000


@pytest.mark.parametrize(
    ("line", "variables", "extra"),
    [
        (("search", "a"), {}, "local"),
        (("demo",), {}, "local"),
        (("serve",), {}, "serve"),
        (("doctor",), {"QDRANT_URL": "http://127.0.0.1:9"}, "qdrant"),
        (("mcp",), {}, "mcp"),
    ],
)
def test_without_its_extra_a_command_names_it(
    core: Path, tmp_path: Path, line: tuple[str, ...], variables: dict[str, str], extra: str
) -> None:
    shown = run(core, *line, cwd=tmp_path, **variables)
    assert shown.returncode == 3, shown.stdout + shown.stderr
    assert f"pip install 'chunkproof[{extra}]'" in shown.stderr
    assert "Traceback" not in shown.stderr


def test_the_wheel_carries_a_bill_of_materials(built: list[Path]) -> None:
    (wheel,) = (file for file in built if file.suffix == ".whl")
    with zipfile.ZipFile(wheel) as packed:
        (name,) = (name for name in packed.namelist() if ".dist-info/sboms/" in name)
        listed = json.loads(packed.read(name))
    assert listed["bomFormat"] == "CycloneDX"
    assert {part["name"]: part["version"] for part in listed["components"]}["httpx"] == pins("cli/requirements.txt")[
        "httpx"
    ][0]
