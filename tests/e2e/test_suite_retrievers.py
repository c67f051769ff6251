"""`suite run --retriever`: any retriever, with the same cases, metrics, gate and reports."""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from socketserver import StreamRequestHandler, ThreadingTCPServer
from threading import Thread
from typing import Any

import pytest

from support.commands import Command, Run
from support.recording_server import CannedResponse, RecordedRequest, recording_server

CASES = [
    {"name": "q1", "query_text": "one", "expected_doc_ids": ["a"]},
    {"name": "q2", "query_text": "two", "expected_doc_ids": ["b"], "top_k": 3},
]
FUNCTIONS = """
class Document:
    def __init__(self, page_content, **metadata):
        self.page_content, self.metadata, self.id = page_content, metadata, None

class LangChainRetriever:
    def invoke(self, input, config=None, **kwargs):
        return [Document("The text of a.", _id="a", source="a.md"), Document("The text of b.", _id="b")]

class Node:
    def __init__(self, id_):
        self.id_, self.text, self.metadata = id_, f"The text of {id_}.", {"url": "https://x"}

class NodeWithScore:
    def __init__(self, id_, score):
        self.node, self.score = Node(id_), score

class LlamaIndexRetriever:
    def retrieve(self, str_or_query_bundle):
        return [NodeWithScore("a", 0.9), NodeWithScore("b", 0.8)]

class HaystackPipeline:
    def inputs(self):
        return {"embedder": {"text": {}}, "retriever": {"filters": {}, "top_k": {}, "scale_score": {}}}
    def run(self, data):
        assert set(data) == {"embedder", "retriever"} and set(data["retriever"]) == {"top_k"}
        assert data["embedder"]["text"] in ("one", "two")
        return {"retriever": {"documents": [{"id": "a", "content": "A", "meta": {}, "score": 0.9}, {"id": "b"}]}}

langchain, llama, haystack = LangChainRetriever(), LlamaIndexRetriever(), HaystackPipeline()

def ids(query, top_k):
    assert top_k in (10, 3)
    return ["a", "b"]

def keyword_only(*, question, k=5):
    return [("a", 17.5), ("b", 3.25)]

import asyncio
lock = asyncio.Lock()

async def later(query):
    async with lock:  # belongs to one loop
        await asyncio.sleep(0)
        return ["a", "b"]

def prints(query):
    print("searching", query)
    return ["a", "b"]

def exits(query):
    raise SystemExit("no key")

def make():
    return ids

def first_only(query):
    return [{"id": "a", "text": "The text of a.", "score": 12.5}]

def broken(query):
    if query == "two":
        raise KeyError("no index")
    return ["a"]

def many(query):
    return [*"vwxyz", "a", "b"]

def filtered(query, filters=None):
    return ["a"] if filters == {"year": 2024} else []

number = 7
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a suite and a module, as the current one."""
    (tmp_path / "suite.json").write_text(json.dumps({"name": "try", "collection": "docs", "cases": CASES}), "utf-8")
    (tmp_path / "own_rag.py").write_text(FUNCTIONS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "own_rag", raising=False)
    return tmp_path


def states(run: Run) -> dict[str, str]:
    return {case["name"]: case["status"] for case in run.json["result"]["test_results"]}


def message(run: Run, name: str) -> str:
    (case,) = (case for case in run.json["result"]["test_results"] if case["name"] == name)
    return str(case["error_message"])


@pytest.mark.parametrize(
    "name", ["ids", "keyword_only", "later", "prints", "make", "langchain", "llama", "haystack", "langchain.invoke"]
)
def test_python_retrievers_pass_the_suite(name: str, folder: Path, chunkproof: Command) -> None:
    run = chunkproof("suite", "run", "suite.json", "--retriever", f"own_rag:{name}", "--json")
    assert (run.code, states(run)) == (0, {"q1": "passed", "q2": "passed"}), run.err
    assert run.json["suite"]["retriever"] == f"own_rag:{name}"
    assert run.json["result"]["metrics"]["mrr@1"] == 0.5
    assert run.json["result"]["metrics"]["recall@3"] == 1.0


def test_a_missing_document_fails_and_scores_keep_their_scale(folder: Path, chunkproof: Command) -> None:
    run = chunkproof("suite", "run", "suite.json", "--retriever", "own_rag:first_only", "--json", "-o", "r.html")
    assert (run.code, states(run)) == (1, {"q1": "passed", "q2": "failed"})
    failed = run.json["result"]["test_results"][1]
    assert failed["actual_results"][0]["similarity_score"] == 12.5
    assert failed["diagnosis"][0]["message"] == (
        "Not looked into: no collection was given beside the retriever; --collection NAME names it"
    )
    by_id = {one["id"]: one for one in run.json["criteria"]}
    assert by_id["SC-001"]["details"] == "no collection was given beside the retriever"
    assert by_id["stage-embedding"]["verdict"] == "not judged"


def test_a_retriever_that_exits_does_not_end_the_run(folder: Path, chunkproof: Command) -> None:
    run = chunkproof("suite", "run", "suite.json", "--retriever", "own_rag:exits", "--json")
    assert (run.code, states(run)) == (3, {"q1": "error", "q2": "error"})
    assert message(run, "q1").startswith("SystemExit: no key")


def test_only_the_first_top_k_results_count(folder: Path, chunkproof: Command) -> None:
    run = chunkproof("suite", "run", "suite.json", "--retriever", "own_rag:many", "--json")
    assert states(run) == {"q1": "passed", "q2": "failed"}


def test_an_exception_is_an_error_of_its_case_and_not_a_failure(folder: Path, chunkproof: Command) -> None:
    run = chunkproof("suite", "run", "suite.json", "--retriever", "own_rag:broken", "--json")
    assert (run.code, states(run)) == (3, {"q1": "passed", "q2": "error"})
    assert message(run, "q2").startswith("KeyError: 'no index' (own_rag.py, line ")


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("own_rag:missing", "own_rag has no missing"),
        ("no_such_module:x", "no_such_module cannot be imported: ModuleNotFoundError"),
        ("own_rag:number", "int is not a retriever; name a function"),
        ("own_rag:Node", "is not a retriever"),
        ("nothing.run", "there is no such file; a retriever is http(s)://…"),
        ("http://", "not an http or https URL"),
        ("mcp:tool", "write mcp:TOOL@COMMAND"),
        ("mcp:tool@no-such-command", "no-such-command cannot be started: No such file or directory"),
    ],
)
def test_a_retriever_that_cannot_be_opened_is_wrong_input(
    name: str, reason: str, folder: Path, chunkproof: Command
) -> None:
    run = chunkproof("suite", "run", "suite.json", "--retriever", name)
    assert run.code == 2
    assert reason in run.err.replace("\n", " ")


def respond(request: RecordedRequest) -> CannedResponse:
    query = json.loads(request.body)["q"]
    hits = [{"key": "a", "body": "The text of a.", "rank": 9.5}, {"key": "b", "body": "The text of b.", "rank": 7}]
    return CannedResponse(body=json.dumps({"took": 1, "hits": hits if query == "one" else hits[1:]}).encode())


def test_a_service_is_asked_by_a_mapping(folder: Path, chunkproof: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAG_TOKEN", "secret")
    (folder / "mapping.yaml").write_text(
        "request: {q: '{query_text}', limit: '{top_k}'}\n"
        "headers: {authorization: 'Bearer ${RAG_TOKEN}'}\n"
        "results: $.hits[*]\nid: $.key\ntext: $.body\nscore: $.rank\n"
    )
    with recording_server(respond) as server:
        url = f"{server.url}/query?tenant=7"
        options = ("--retriever", url, "--retriever-map", "mapping.yaml")
        run = chunkproof("suite", "run", "suite.json", *options, "--json", "-o", "r.json")
    assert (run.code, states(run)) == (0, {"q1": "passed", "q2": "passed"})
    assert sorted(json.loads(request.body)["limit"] for request in server.requests) == [3, 10]
    assert {request.headers["authorization"] for request in server.requests} == {"Bearer secret"}
    assert run.json["suite"]["retriever"] == f"{server.url}/query"
    assert "secret" not in (folder / "r.json").read_text("utf-8")


def test_a_service_is_asked_by_get_where_the_url_has_the_query(folder: Path, chunkproof: Command) -> None:
    answer = CannedResponse(body=b'{"results": [{"id": "a"}, {"id": "b"}]}')
    with recording_server(lambda _: answer) as server:
        run = chunkproof("suite", "run", "suite.json", "--retriever", f"{server.url}/?q={{query_text}}&k={{top_k}}")
    assert run.code == 0
    assert sorted((r.method, r.path) for r in server.requests) == [("GET", "/?q=one&k=10"), ("GET", "/?q=two&k=3")]


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (CannedResponse(500), "The retriever answered 500 Internal Server Error"),
        (CannedResponse(503), "The retriever answered 503 Service Unavailable"),
        (CannedResponse(404), "The retriever answered 404 Not Found; check the URL"),
        (CannedResponse(body=b"<html>"), "The retriever's response is not JSON"),
        (CannedResponse(body=b'{"detail": "x"}'), "The retriever returned an object with detail"),
        (CannedResponse(429, headers={"retry-after": "0.01"}), "The retriever answered 429 Too Many Requests"),
    ],
)
def test_errors_of_a_service_are_errors_of_the_cases(
    answer: CannedResponse, reason: str, folder: Path, chunkproof: Command
) -> None:
    with recording_server(lambda _: answer) as server:
        run = chunkproof("suite", "run", "suite.json", "--retriever", server.url, "--json")
    assert (run.code, states(run)) == (3, {"q1": "error", "q2": "error"})
    assert message(run, "q1").startswith(reason)


def test_a_service_that_is_down_is_an_error(folder: Path, chunkproof: Command) -> None:
    run = chunkproof("suite", "run", "suite.json", "--retriever", "http://127.0.0.1:9", "--json")
    assert (run.code, states(run)) == (3, {"q1": "error", "q2": "error"})
    assert "could not be reached" in message(run, "q1")


RUNS = {
    "bm25.run": "q1 Q0 b 2 1.5 bm25\nq1 Q0 a 1 9.5 bm25\nq2 Q0 b 1 4.0 bm25\n",
    "results.jsonl": '{"query_id": "q1", "results": [{"id": "a", "score": 9.5}, {"id": "b", "score": 1.5}]}\n'
    '{"query": "two", "results": ["b"]}\n',
    "rows.jsonl": '{"qid": "q1", "docid": "a", "score": 9.5}\n{"qid": "q1", "docid": "b"}\n'
    '{"qid": "q2", "docid": "b"}\n',
}


@pytest.mark.parametrize("file", RUNS)
def test_a_recorded_run_is_judged(file: str, folder: Path, chunkproof: Command) -> None:
    (folder / file).write_text(RUNS[file])
    run = chunkproof("suite", "run", "suite.json", "--retriever", file, "--json")
    assert (run.code, states(run)) == (0, {"q1": "passed", "q2": "passed"})
    assert run.json["result"]["metrics"]["mrr@3"] == 1.0
    assert run.json["latency"] == []


def test_a_query_that_was_not_recorded_is_an_error(folder: Path, chunkproof: Command) -> None:
    (folder / "some.run").write_text("q1 Q0 a 1 9.5 x\n")
    run = chunkproof("suite", "run", "suite.json", "--retriever", "some.run", "--json")
    assert (run.code, states(run)) == (3, {"q1": "passed", "q2": "error"})
    assert message(run, "q2") == "some.run has no results for q2"


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("q1 Q0 a first 9.5 x\n", "some.run:1: not a line of a run"),
        ('{"qid": "q1"\n', "some.run:1: not a JSON object"),
        ('{"docid": "a"}\n', "some.run:1: names no query"),
        ("other Q0 a 1 9.5 x\n", "none of its queries (other …) is the name or query_text of a case"),
        ("", "some.run:1: there are no results in it"),
    ],
)
def test_a_broken_run_names_its_line(content: str, reason: str, folder: Path, chunkproof: Command) -> None:
    (folder / "some.run").write_text(content)
    run = chunkproof("suite", "run", "suite.json", "--retriever", "some.run")
    assert run.code == 2
    assert reason in run.err


@pytest.mark.parametrize(
    ("expects", "reason"),
    [
        ({"expected_keywords": ["text"]}, "The retriever returns no texts, so expected_keywords cannot be judged"),
        ({"relevance_threshold": 0.5}, "The retriever returns no scores, so relevance_threshold cannot be judged"),
        (
            {"expect_no_results": True, "relevance_threshold": 0.5},
            "The retriever returns no scores, so relevance_threshold cannot be judged",
        ),
    ],
)
def test_a_case_that_the_results_cannot_judge_is_an_error(
    expects: dict[str, Any], reason: str, folder: Path, chunkproof: Command
) -> None:
    case = {"name": "q", "query_text": "one", **expects}
    (folder / "suite.json").write_text(json.dumps({"name": "try", "cases": [case]}))
    run = chunkproof("suite", "run", "suite.json", "--retriever", "own_rag:ids", "--json")
    assert (run.code, states(run), message(run, "q")) == (3, {"q": "error"}, reason)


@pytest.mark.parametrize(
    ("retriever", "mapping", "status"),
    [
        ("own_rag:filtered", None, "passed"),
        ("own_rag:ids", None, "error"),
        ("own_rag:langchain", None, "error"),
        ("own_rag:haystack", None, "error"),
        ("own_rag:filtered", '{"request": {"query": "{query_text}", "filters": "{filters}"}}', "passed"),
        ("own_rag:filtered", '{"request": {"query": "{query_text}"}}', "error"),
    ],
)
def test_filters_of_a_case_reach_the_retriever_or_it_cannot_be_judged(
    retriever: str, mapping: str | None, status: str, folder: Path, chunkproof: Command
) -> None:
    case = {"name": "q", "query_text": "one", "expected_doc_ids": ["a"], "filters": {"year": 2024}}
    (folder / "suite.json").write_text(json.dumps({"name": "try", "cases": [case]}))
    options = ("--retriever-map", mapping) if mapping else ()
    run = chunkproof("suite", "run", "suite.json", "--retriever", retriever, *options, "--json")
    assert states(run) == {"q": status}
    assert (run.code, "which the retriever does not take" in message(run, "q")) == (
        (0, False) if status == "passed" else (3, True)
    )


def test_a_recorded_run_has_no_latency_to_judge(folder: Path, chunkproof: Command) -> None:
    case = {"name": "q1", "query_text": "one", "max_latency_ms": 100}
    (folder / "suite.json").write_text(json.dumps({"name": "try", "cases": [case]}))
    (folder / "some.run").write_text("q1 Q0 a 1 9.5 x\n")
    run = chunkproof("suite", "run", "suite.json", "--retriever", "some.run", "--json")
    assert (run.code, message(run, "q1")) == (3, "A recorded run has no latency, so max_latency_ms cannot be judged")


def test_two_retrievers_are_compared_in_one_report(folder: Path, chunkproof: Command) -> None:
    both = ("--retriever", "own_rag:ids", "--retriever", "own_rag:first_only")
    run = chunkproof("suite", "run", "suite.json", *both, "--json", "-o", "r.html", "-o", "r.md", "-o", "r.xml")
    found = run.json["comparison"]
    assert run.json["suite"]["retriever"] == "own_rag:first_only"
    assert (found["baseline"], found["cases"]) == ("own_rag:ids", 2)
    assert (found["newly_failing"], found["newly_passing"]) == (["q2"], [])
    (change,) = (one for one in found["changes"] if one["name"] == "recall@3")
    assert (change["before"], change["after"]) == (1.0, 0.5)
    assert change["low"] < -0.5 < change["high"]
    assert all(name in (folder / "r.html").read_text("utf-8") for name in ("own_rag:ids", "own_rag:first_only"))
    assert r"own\_rag:ids" in (folder / "r.md").read_text("utf-8")


def test_every_format_names_the_retriever(folder: Path, chunkproof: Command) -> None:
    outputs = ("-o", "r.html", "-o", "r.txt")
    run = chunkproof("suite", "run", "suite.json", "--retriever", "own_rag:ids", *outputs)
    assert run.out.splitlines()[-1].startswith("try by own_rag:ids: 2 of 2 cases passed, 0 failed, in ")
    assert "2 of 2 cases passed, 0 failed by own_rag:ids." in (folder / "r.html").read_text("utf-8")
    assert "Retriever: own_rag:ids" in (folder / "r.txt").read_text("utf-8")


def test_a_retriever_is_compared_with_an_earlier_report(folder: Path, chunkproof: Command) -> None:
    assert chunkproof("suite", "run", "suite.json", "--retriever", "own_rag:ids", "-o", "before.json").code == 0
    options = ("--retriever", "own_rag:ids", "--baseline", "before.json", "--json")
    assert chunkproof("suite", "run", "suite.json", *options).json["comparison"]["newly_failing"] == []


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (("--retriever-map", "{}"), "--retriever-map describes a retriever: add --retriever"),
        (("--retriever", "a:b", "--retriever", "a:b", "--retriever", "a:b"), "--retriever can be given twice"),
        (("--retriever", "own_rag:ids", "--exact"), "--exact needs the store itself"),
        (("--retriever", "own_rag:ids", "--stack", "s"), "With --stack, --retriever cannot be given"),
        (("--retriever", "a:b", "--retriever", "a:b", "--baseline", "suite.json"), "leave --baseline out"),
    ],
)
def test_options_that_do_not_go_together_are_refused(
    options: tuple[str, ...], reason: str, folder: Path, chunkproof: Command
) -> None:
    run = chunkproof("suite", "run", "suite.json", *options)
    assert run.code == 2
    assert reason in " ".join(run.err.split())


MCP_SERVER = """
import json, sys
SERVER = {"name": "x", "version": "1"}
ENTRY = "<entry><content>The text of {0}.</content><metadata>{{\\"chunk_id\\": \\"{0}\\"}}</metadata></entry>"
for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message:
        continue
    method, params = message["method"], message.get("params", {})
    if method == "initialize":
        result = {"protocolVersion": params["protocolVersion"], "capabilities": {}, "serverInfo": SERVER}
    elif method == "tools/list":
        schema = {"type": "object", "properties": {"query": {"type": "string"}, "limit": {}}, "required": ["query"]}
        result = {"tools": [{"name": name, "inputSchema": schema} for name in ("find", "structured", "fails")]}
    else:
        print("not JSON", flush=True)
        assert set(params["arguments"]) == {"query", "limit"}
        if params["name"] == "find":
            texts = ["Results for the query", ENTRY.format("a"), ENTRY.format("b")]
            result = {"content": [{"type": "text", "text": text} for text in texts]}
        elif params["name"] == "structured":
            result = {"content": [], "structuredContent": {"result": [{"id": "a", "text": "A"}, {"id": "b"}]}}
        else:
            result = {"content": [{"type": "text", "text": "no such index"}], "isError": True}
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
"""


@pytest.fixture
def mcp_server(folder: Path) -> str:
    (folder / "server.py").write_text(MCP_SERVER)
    return f"{sys.executable} server.py"


@pytest.mark.parametrize("tool", ["find", "structured"])
def test_an_mcp_tool_is_called(tool: str, mcp_server: str, chunkproof: Command) -> None:
    run = chunkproof("suite", "run", "suite.json", "--retriever", f"mcp:{tool}@{mcp_server}", "--json")
    assert (run.code, states(run)) == (0, {"q1": "passed", "q2": "passed"}), run.out
    assert run.json["suite"]["retriever"] == f"mcp:{tool}"


def test_a_failing_mcp_tool_is_an_error(mcp_server: str, chunkproof: Command) -> None:
    run = chunkproof("suite", "run", "suite.json", "--retriever", f"mcp:fails@{mcp_server}", "--json")
    assert (run.code, message(run, "q1")) == (3, "The tool fails failed: no such index")


def test_an_mcp_server_without_the_tool_lists_those_it_has(mcp_server: str, chunkproof: Command) -> None:
    run = chunkproof("suite", "run", "suite.json", "--retriever", f"mcp:search@{mcp_server}", "--json")
    assert run.code == 2
    assert "the MCP server has no tool search; it has fails, find, structured" in message(run, "q1")


def test_an_mcp_server_that_ends_is_an_error(folder: Path, chunkproof: Command) -> None:
    run = chunkproof("suite", "run", "suite.json", "--retriever", f"mcp:find@{sys.executable} -c pass", "--json")
    assert (run.code, message(run, "q1")) == (3, "The MCP server has ended")


def answer_over_http(request: RecordedRequest) -> CannedResponse:
    """Serve MCP as Streamable HTTP: JSON for the first answers, an event stream for the tool's."""
    message = json.loads(request.body or "{}")
    if "id" not in message:
        return CannedResponse(202, b"")
    results: dict[str, Any] = {
        "initialize": {
            "protocolVersion": "2025-06-18",
            "capabilities": {},
            "serverInfo": {"name": "x", "version": "1"},
        },
        "tools/list": {"tools": [{"name": "find", "inputSchema": {"type": "object", "required": ["query"]}}]},
        "tools/call": {"content": [{"type": "text", "text": '[{"id": "a"}, {"id": "b"}]'}]},
    }
    body = json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": results[message["method"]]})
    if message["method"] != "tools/call":
        headers = {"content-type": "application/json", "mcp-session-id": "s1"}
        return CannedResponse(body=body.encode(), headers=headers)
    assert request.headers["mcp-session-id"] == "s1"
    return CannedResponse(
        body=f"event: message\ndata: {body}\n\n".encode(), headers={"content-type": "text/event-stream"}
    )


def test_an_mcp_server_behind_a_url_is_called(folder: Path, chunkproof: Command) -> None:
    with recording_server(answer_over_http) as server:
        run = chunkproof("suite", "run", "suite.json", "--retriever", f"mcp:find@{server.url}/mcp", "--json")
    assert (run.code, states(run)) == (0, {"q1": "passed", "q2": "passed"}), run.out


def test_an_mcp_server_that_refuses_or_is_down_is_an_error_of_the_cases(folder: Path, chunkproof: Command) -> None:
    with recording_server(lambda _: CannedResponse(503)) as server:
        run = chunkproof("suite", "run", "suite.json", "--retriever", f"mcp:find@{server.url}/mcp", "--json")
    assert (run.code, message(run, "q1")) == (3, "The retriever answered 503 Service Unavailable")
    run = chunkproof("suite", "run", "suite.json", "--retriever", "mcp:find@http://127.0.0.1:9/mcp", "--json")
    assert run.code == 3
    assert message(run, "q1").startswith("The retriever could not be reached: ")


def test_an_mcp_server_that_does_not_respond_is_given_up(folder: Path, chunkproof: Command) -> None:
    silent = f"mcp:find@{sys.executable} -c 'import sys; sys.stdin.read()'"
    options = ("--retriever", silent, "--retriever-map", '{"timeout_s": 0.2}', "--json")
    run = chunkproof("suite", "run", "suite.json", *options)
    limit = "0.2 s (timeout_s of --retriever-map)"
    assert (run.code, message(run, "q1")) == (3, f"The MCP server did not respond within {limit}")


def test_an_mcp_tool_needs_the_sdk(folder: Path, chunkproof: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "chunkproof_cli.retrievers.mcp_client", raising=False)
    monkeypatch.setitem(sys.modules, "mcp", None)
    run = chunkproof("suite", "run", "suite.json", "--retriever", "mcp:find@python server.py")
    assert "MCP tools need the SDK: pip install 'chunkproof[mcp]'" in run.err.replace("\n", " ")


HYGIENE = "vectordb-text-hygiene-01"
HANDBOOK_CASES = [
    {"name": "found", "query_text": "invisible characters", "expected_doc_ids": [HYGIENE]},
    {"name": "keyword", "query_text": "text hygiene", "expected_keywords": ["soft hyphen"]},
    {"name": "missed", "query_text": "What is text hygiene?", "expected_doc_ids": [HYGIENE], "top_k": 20},
    {"name": "absent", "query_text": "Anything", "expected_doc_ids": ["no-such-document"]},
]


NAMES = [case["name"] for case in HANDBOOK_CASES]


def test_with_a_collection_failures_are_diagnosed(folder: Path, handbook: Command) -> None:
    (folder / "suite.json").write_text(json.dumps({"name": "try", "cases": HANDBOOK_CASES}))
    lines = (f"{name} Q0 {HYGIENE if name in ('found', 'keyword') else 'z'} 1 9 x" for name in NAMES)
    (folder / "old.run").write_text("\n".join(lines))
    options = ("--retriever", "old.run", "--collection", "handbook")
    run = handbook("suite", "run", "suite.json", *options, "--json")
    found = {case["name"]: case["diagnosis"] for case in run.json["result"]["test_results"]}
    assert states(run) == {"found": "passed", "keyword": "passed", "missed": "failed", "absent": "failed"}
    assert found["absent"][0]["cause"] == "not in collection"
    assert found["missed"][0]["cause"] == "missed by retriever"
    assert found["missed"][0]["message"].startswith(
        f"{HYGIENE} is in handbook, but the retriever does not return it; in a search of handbook it is at rank "
    )
    assert run.json["suite"]["collection"] == "handbook"


def test_a_retriever_is_compared_with_the_search_of_the_collection(folder: Path, handbook: Command) -> None:
    (folder / "suite.json").write_text(json.dumps({"name": "try", "cases": HANDBOOK_CASES[:1]}))
    (folder / "old.run").write_text(f"found Q0 {HYGIENE} 1 9 x\n")
    options = ("--retriever", "collection", "--retriever", "old.run", "--collection", "handbook", "--json")
    run = handbook("suite", "run", "suite.json", *options)
    assert run.json["comparison"]["baseline"] == "the search of handbook"
    assert run.json["suite"]["retriever"] == "old.run"


SECRET = "k3y-that-stays-here"
ECHOES = {
    "reason": f"HTTP/1.1 401 {SECRET}\r\ncontent-length: 0\r\n\r\n",
    "content type": f"HTTP/1.1 200 OK\r\ncontent-type: text/{SECRET}\r\ncontent-length: 2\r\n\r\nno",
    "status line": f"{SECRET} 200 OK\r\n\r\n",
    "header line": f"HTTP/1.1 200 OK\r\n{SECRET} = x\r\n\r\n",
    "field name": f'HTTP/1.1 200 OK\r\ncontent-length: 28\r\n\r\n{{"{SECRET}": true}}',
    "result": f'HTTP/1.1 200 OK\r\ncontent-length: 52\r\n\r\n[{{"id": "{SECRET}", "text": "{SECRET}"}}]',
}


@contextmanager
def sending(text: str) -> Iterator[str]:
    """Run a server that sends this text to every connection, whatever it asks; yield its address."""

    class Handler(StreamRequestHandler):
        def handle(self) -> None:
            self.request.recv(65536)
            self.wfile.write(text.encode())

    with ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"127.0.0.1:{server.server_address[1]}"
        server.shutdown()


@pytest.mark.parametrize("echo", ECHOES)
@pytest.mark.parametrize("kind", ["http", "userinfo", "mcp", "api"])
def test_a_key_that_a_service_echoes_reaches_no_output_and_no_report(
    echo: str, kind: str, folder: Path, chunkproof: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SERVICE_KEY", SECRET)
    monkeypatch.setenv("CHUNKPROOF_TOKEN", SECRET)
    login = f"me:{SECRET}@" if kind == "userinfo" else ""
    with sending(ECHOES[echo]) as address:
        url = f"http://{login}{address}/find"
        options = ["--api", url] if kind == "api" else ["--retriever", f"mcp:find@{url}" if kind == "mcp" else url]
        if kind in ("http", "mcp"):
            options += ["--retriever-map", '{"headers": {"authorization": "Bearer ${SERVICE_KEY}"}}']
        files = [f"report.{ending}" for ending in ("json", "html", "md", "txt", "xml")]
        shown = chunkproof("suite", "run", "suite.json", *options, *(word for file in files for word in ("-o", file)))
    written = [(folder / file).read_text("utf-8") for file in files if (folder / file).is_file()]
    assert shown.code in (1, 2, 3), shown.err
    assert not [text for text in (shown.out, shown.err, *written) if SECRET in text.replace("\n", "")]


def test_a_key_in_the_message_of_a_tool_or_of_an_exception_is_masked(
    mcp_server: str, folder: Path, chunkproof: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SERVICE_API_KEY", SECRET)
    (folder / "server.py").write_text(MCP_SERVER.replace("no such index", f"{SECRET} is no valid key"))
    run = chunkproof("suite", "run", "suite.json", "--retriever", f"mcp:fails@{mcp_server}", "--json")
    assert (run.code, message(run, "q1")) == (3, "The tool fails failed: *** is no valid key")
    (folder / "leaky.py").write_text(f"def find(query):\n    raise ValueError('refused: {SECRET}')\n")
    run = chunkproof("suite", "run", "suite.json", "--retriever", "leaky:find", "--json")
    assert "refused: ***" in message(run, "q1")
