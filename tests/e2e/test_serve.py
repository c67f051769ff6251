"""`chunkproof serve` as a process: the same handlers and results, over HTTP."""

import asyncio
import gzip
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
from mcp import Client

from chunkproof_cli.commands.serve import allow_many_connections, open_listener

from support import openapi
from support.commands import Command
from support.listeners import refusing_address
from support.qdrant_server import free_port
from support.serving import Serving, serving, start, wait_until_ready

QUESTION = "composed and decomposed accents"


@pytest.fixture(scope="module")
def server(loaded_handbook: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    with serving(loaded_handbook, tmp_path_factory.mktemp("serve")) as running:
        yield running


@pytest.fixture
def http(server: Serving) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.url, timeout=30) as client:
        yield client


def shape(answer: dict[str, Any]) -> list[tuple[int, str, str]]:
    return [(r["rank"], r["metadata"]["chunk_id"], r["text"]) for r in answer["results"]]


def scores(answer: dict[str, Any]) -> list[float]:
    return [r["similarity_score"] for r in answer["results"]]


# results


@pytest.mark.parametrize(
    ("request_", "options"),
    [
        ({"query_text": QUESTION}, []),
        (
            {"query_text": "what stops a robot arm", "top_k": 20, "similarity_threshold": 0.3},
            ["-k", 20, "--threshold", 0.3],
        ),
        (
            {"query_text": "text", "top_k": 7, "filters": {"position": {"lt": 3}}},
            ["-k", 7, "--filter", 'position={"lt": 3}'],
        ),
    ],
)
def test_results_are_those_of_the_search_command(
    http: httpx.Client, handbook: Command, request_: dict[str, Any], options: list[object]
) -> None:
    local = handbook("search", request_["query_text"], *options, "--collection", "handbook", "--json").json
    served = http.post("/search", json=request_).json()
    assert shape(served) == shape(local)
    assert served["results"]
    assert scores(served) == pytest.approx(scores(local), abs=1e-5)
    assert [r["metadata"] for r in served["results"]] == [r["metadata"] for r in local["results"]]


def test_every_answer_carries_a_request_id_of_its_own(http: httpx.Client) -> None:
    ids = {http.get("/health").headers["x-request-id"] for _ in range(3)}
    assert len(ids) == 3
    assert "" not in ids


def test_a_body_may_come_compressed_and_without_a_content_type(http: httpx.Client) -> None:
    packed = gzip.compress(json.dumps({"query_text": QUESTION, "top_k": 1}).encode())
    answer = http.post("/search", content=packed, headers={"content-encoding": "gzip"})
    assert (answer.status_code, answer.json()["query"]) == (200, QUESTION)


def test_a_compressed_body_comes_as_bytes_and_never_as_json(http: httpx.Client) -> None:
    packed = gzip.compress(json.dumps({"query_text": QUESTION, "top_k": 1}).encode())
    headers = {"content-encoding": "gzip", "content-type": "application/octet-stream"}
    assert http.post("/search", content=packed, headers=headers).status_code == 200
    answer = http.post("/search", content=packed, headers={**headers, "content-type": "application/json"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "INVALID_REQUEST")
    assert answer.json()["errors"][0].endswith("send it as content-type application/octet-stream")


def test_a_long_query_comes_back_code_point_for_code_point(http: httpx.Client) -> None:
    query = "e\u0301 é\u00a0" * 2_000
    answer = http.post("/search", json={"query_text": query})
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "QUERY_TOO_LONG")
    assert answer.json()["query"] == query


def test_a_form_as_curl_sends_it_is_read_as_json(http: httpx.Client) -> None:
    kind = {"content-type": "application/x-www-form-urlencoded"}
    assert http.post("/search", content=b'{"query_text": "backups", "top_k": 1}', headers=kind).status_code == 200


def test_failures_have_the_contracts_status_and_envelope(http: httpx.Client) -> None:
    empty = http.post("/search", json={"query_text": " "})
    assert (empty.status_code, empty.json()["errors"]) == (400, ["query_text cannot be empty"])
    unknown = http.post("/validate-chunk", json={"chunk_id": "nobody", "original_text": "x"})
    assert (unknown.status_code, unknown.json()["errors"]) == (404, ["Chunk nobody not found"])
    method = http.get("/search")
    assert (method.status_code, method.headers["allow"]) == (405, "POST")
    assert http.head("/health").status_code == 405
    assert http.get("/nowhere").json()["error"]["code"] == "NOT_FOUND"


def test_a_body_that_is_not_utf8_is_refused(http: httpx.Client) -> None:
    answer = http.post("/search", content=b'{"query_text": "\xff"}', headers={"content-type": "application/json"})
    assert (answer.status_code, answer.json()["errors"]) == (
        400,
        ["The request body is not UTF-8 at byte 16"],
    )


def test_a_failure_outside_of_any_route_has_one_content_type(http: httpx.Client) -> None:
    answer = http.post("/search", content=b"\xff")
    assert answer.headers.get_list("content-type") == ["application/json"]


def test_deep_health_is_ok(http: httpx.Client) -> None:
    body = http.get("/health", params={"deep": "true"}).json()
    assert (body["status"], body["qdrant"]["status"], body["embedder"]["status"]) == ("ok", "ok", "ok")


# limits of the gateway


def test_a_body_over_ten_megabytes_gets_the_error_of_api_gateway(http: httpx.Client) -> None:
    answer = http.post("/search", content=b" " * (10 * 1024 * 1024 + 1))
    assert (answer.status_code, answer.json()) == (413, {"message": "Request Entity Too Large"})


def test_a_body_over_the_limit_of_lambda_gets_our_error(http: httpx.Client) -> None:
    answer = http.post("/search", content=b" " * 6_291_457)
    assert (answer.status_code, answer.json()["error"]["code"]) == (413, "REQUEST_TOO_LARGE")


def test_twenty_clients_at_once_each_get_their_own_answer(server: Serving) -> None:
    def ask(number: int) -> list[bool]:
        with httpx.Client(base_url=server.url, timeout=60) as client:
            bodies = [
                client.post(
                    "/search",
                    json={
                        "query_text": f"question {number} {turn}",
                        "query_id": f"{number}-{turn}",
                        "top_k": 1,
                    },
                ).json()
                for turn in range(5)
            ]
        return [
            (body["query"], body["query_id"], body["status"])
            == (f"question {number} {turn}", f"{number}-{turn}", "success")
            for turn, body in enumerate(bodies)
        ]

    with ThreadPoolExecutor(20) as pool:
        assert all(all(answers) for answers in pool.map(ask, range(20)))


# documentation


def test_the_documentation_needs_nothing_but_this_server(http: httpx.Client) -> None:
    page = http.get("/docs")
    assert (page.status_code, page.headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert "http://" not in page.text
    assert "https://" not in page.text
    assets = re.findall(r'(?:src|href)="(/[^"]+)"', page.text)
    assert len(assets) == 2
    kinds = {asset: http.get(asset).headers["content-type"] for asset in assets}
    assert sorted(kinds.values()) == ["application/javascript", "text/css"]
    assert all(http.get(asset).status_code == 200 and len(http.get(asset).content) > 10_000 for asset in assets)


def test_the_requests_that_the_documentation_fills_in_succeed(http: httpx.Client) -> None:
    document = http.get("/openapi.json").json()
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            named = {p["name"]: p["example"] for p in operation.get("parameters", ()) if p["in"] == "path"}
            body = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("example")
            answer = http.request(method, path.format(**named), json=body)
            assert answer.status_code == 200, (path, answer.text)
            assert "requestBody" not in operation or body
    assert http.post(
        "/search", json=document["paths"]["/search"]["post"]["requestBody"]["content"]["application/json"]["example"]
    ).json()["results"]


def test_the_openapi_document_is_the_committed_one(http: httpx.Client) -> None:
    assert http.get("/openapi.json").json() == openapi.document()


# the log


def test_every_request_is_logged_on_standard_error(server: Serving, http: httpx.Client) -> None:
    http.get("/health", params={"deep": "true"})
    http.post("/search", json={"query_text": " "})
    lines = server.written.splitlines()
    assert any(re.fullmatch(r"INFO GET /health 200 \d+ ms", line) for line in lines)
    assert any(re.fullmatch(r"INFO POST /search 400 \d+ ms", line) for line in lines)
    assert server.url in lines[0]
    assert "/docs" in lines[0]


def test_a_path_cannot_control_the_terminal_or_forge_a_log_line(server: Serving, http: httpx.Client) -> None:
    http.get("/%1B[2Jx%0AINFO%20GET%20/forged%20200%201%20ms")
    assert "\x1b" not in server.written
    assert "INFO GET /forged 200 1 ms" not in server.written.splitlines()


@pytest.mark.parametrize("target", [b"/collections/\xc3\xa9", b"/health?deep=\xc3\xa9", b"*", b"//", b"/%zz", b"/%ff"])
def test_an_odd_request_line_causes_no_traceback(server: Serving, target: bytes) -> None:
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as raw:
        raw.sendall(b"GET " + target + b" HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n")
        answer = b"".join(iter(lambda: raw.recv(65_536), b""))
    assert re.match(rb"HTTP/1\.1 4\d\d ", answer)
    assert "Traceback" not in server.written


def test_a_client_that_disconnects_early_causes_no_traceback(server: Serving, http: httpx.Client) -> None:
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as raw:
        raw.sendall(b"POST /search HTTP/1.1\r\nhost: a\r\ncontent-length: 1000\r\n\r\n{")
    assert http.get("/health").status_code == 200
    assert "Traceback" not in server.written


# start and end


def test_an_interrupt_ends_it_without_a_traceback(loaded_handbook: Path, tmp_path: Path) -> None:
    with serving(loaded_handbook, tmp_path) as running:
        assert httpx.post(f"{running.url}/search", json={"query_text": "a"}, timeout=30).status_code == 200
        running.process.send_signal(signal.SIGINT)
        assert running.process.wait(timeout=20) in (0, 130)
    assert "Traceback" not in running.written


@pytest.fixture(scope="module")
def second(server: Serving, tmp_path_factory: pytest.TempPathFactory) -> tuple[int, str]:
    """Exit code and words of another server at the same port."""
    folder = tmp_path_factory.mktemp("second")
    process = start("--port", server.port, "--data", folder / "empty", log=folder / "log")
    return process.wait(timeout=30), (folder / "log").read_text("utf-8")


def test_a_port_in_use_is_reported_without_a_traceback(server: Serving, second: tuple[int, str]) -> None:
    code, written = second
    assert code != 0
    assert "address already in use" in written.lower()
    assert str(server.port) in written
    assert "Traceback" not in written


def test_a_port_in_use_is_not_a_failed_check_and_prints_no_address(second: tuple[int, str]) -> None:
    code, written = second
    assert code in (2, 3)
    assert "Serving" not in written


@pytest.mark.parametrize("host", ["999.1.1.1", "a..b"])
def test_an_unknown_host_is_reported_without_a_traceback(tmp_path: Path, host: str) -> None:
    process = start("--host", host, "--data", tmp_path / "empty", log=tmp_path / "log")
    assert process.wait(60) == 2
    log = (tmp_path / "log").read_text("utf-8")
    assert log == f"Cannot listen on {host}:8080: unknown host; set another with --host\n"


def test_a_collection_that_is_served_can_be_searched_but_not_written(
    server: Serving, http: httpx.Client, chunkproof: Command, handbook_file: Path
) -> None:
    assert http.get("/collections/handbook").status_code == 200
    given = ("--data", server.log.parent / "data", "--collection", "handbook")
    assert chunkproof("search", QUESTION, *given).code == 0
    run = chunkproof("load", handbook_file, *given)
    assert run.code == 3
    assert "reads it while this one would write" in run.err


def test_a_port_chosen_by_the_system_is_printed(tmp_path: Path) -> None:
    log = tmp_path / "log"
    process = start("--port", 0, "--data", tmp_path / "empty", log=log)
    try:
        give_up = time.monotonic() + 20
        while "Serving" not in log.read_text("utf-8") and time.monotonic() < give_up:
            time.sleep(0.05)
        announced = re.search(r"http://127\.0\.0\.1:(\d+)", log.read_text("utf-8"))
        assert announced is not None
        assert int(announced[1]) > 0
    finally:
        process.kill()
        process.wait()


def test_the_body_of_an_answer_does_not_wait_until_its_headers_are_acknowledged() -> None:
    with open_listener("127.0.0.1", 0) as listener, socket.create_connection(listener.getsockname()):
        connection, _ = listener.accept()
        with connection:
            assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_agents_find_the_tools_over_http(server: Serving) -> None:
    async def search() -> Any:
        async with Client(f"{server.url}/mcp") as client:
            return await client.call_tool("search", {"query": "How do I take a backup?", "top_k": 2})

    found = asyncio.run(search())
    assert [result["rank"] for result in found.structured_content["results"]] == [1, 2]


# clients that do not behave


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("evil.example", 403),
        ("evil.example:8080", 403),
        ("localhost.evil.example", 403),
        ("localhost", 200),
        ("LOCALHOST:1", 200),
        ("127.0.0.1:8080", 200),
        ("[::1]:8080", 200),
        ("app.localhost", 200),
    ],
)
def test_only_requests_to_its_own_name_or_an_address_are_served(http, host, status):
    assert http.get("/health", headers={"host": host}).status_code == status


@pytest.mark.parametrize(
    "request_",
    [
        b"POST /search HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nabc\r\n",
        b"POST /search HTTP/1.1\r\nHost: elsewhere\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nabc\r\n",
        b"POST /search HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nabc",
        b"POST /search HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{",
        b"POST /search HTTP/1.1\r\nHost: localhost\r\nContent-Length: x\r\n\r\n{",
        b"\x00\x01\x02\r\n\r\n",
    ],
)
def test_what_is_not_http_leaves_no_traceback(server, http, request_):
    with socket.create_connection(("127.0.0.1", server.port)) as client:
        client.sendall(request_)
        client.settimeout(0.3)
        with suppress(TimeoutError):
            client.recv(1000)

    assert http.get("/health").status_code == 200
    assert "Traceback" not in server.written


def test_ctrl_c_does_not_wait_for_the_rest_of_a_request(loaded_handbook, tmp_path):
    with serving(loaded_handbook, tmp_path) as running, socket.create_connection(("127.0.0.1", running.port)) as client:
        client.sendall(b"POST /search HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{")
        time.sleep(0.3)
        running.process.send_signal(signal.SIGINT)

        assert running.process.wait(timeout=20) is not None
        assert "Traceback" not in running.written


# several processes


def test_workers_share_a_port_and_a_log_hold_a_thousand_clients_and_end_with_the_first(tmp_path: Path) -> None:
    port, log = free_port(), tmp_path / "log"
    env = {**os.environ, "QDRANT_URL": refusing_address()}
    command = [sys.executable, "-m", "chunkproof_cli", "serve", "--port", str(port), "--workers", "2"]
    with log.open("wb") as out, (tmp_path / "stderr").open("wb") as errors:
        process = subprocess.Popen(command, stdout=out, stderr=errors, env=env)
    serving_ = Serving(f"http://127.0.0.1:{port}", process, tmp_path / "stderr")
    wait_until_ready(serving_, 60)
    workers = [int(pid) for pid in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()]
    request = f"GET /health HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\n\r\n".encode()

    async def ask_twice() -> list[bytes]:
        """Each client keeps its connection until all have had their second response."""
        clients = await asyncio.gather(*(asyncio.open_connection("127.0.0.1", port) for _ in range(1_000)))
        heads = []
        for _ in range(2):
            for _, writer in clients:
                writer.write(request)
            heads += [(await reader.readuntil(b"}"))[:15] for reader, _ in clients]
        for _, writer in clients:
            writer.close()
        return heads

    try:
        allow_many_connections()
        assert set(asyncio.run(ask_twice())) == {b"HTTP/1.1 200 OK"}
        until = time.monotonic() + 20
        while log.read_bytes().count(b'"status":200') < 2_001 and time.monotonic() < until:
            time.sleep(0.05)
        lines = [json.loads(line) for line in log.read_text("utf-8").splitlines()]
        assert sum(line.get("status") == 200 for line in lines) >= 2_001  # with the one that waited for readiness
        assert serving_.written.count("Serving ") == 1
        assert len(workers) == 1
    finally:
        process.kill()
        process.wait()
    until = time.monotonic() + 20
    while Path(f"/proc/{workers[0]}").exists() and time.monotonic() < until:
        time.sleep(0.05)
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{serving_.url}/health")


@pytest.mark.parametrize(
    ("environment", "options", "named"),
    [({}, [], "QDRANT_URL"), ({"QDRANT_URL": "http://127.0.0.1:1"}, ["--suite", "judged.yaml"], "--suite")],
)
def test_workers_are_refused_where_one_process_must_do(
    chunkproof: Command, monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], options: list[str], named: str
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    result = chunkproof("serve", "--workers", 2, *options)
    assert result.code == 2
    assert named in result.err
