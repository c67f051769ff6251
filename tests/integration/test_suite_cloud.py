"""The suite's state machine in moto's interpreter, with the real handler and a real Qdrant server."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from chunkproof.base.errors import EmbeddingError, VectorStoreUnavailableError
from chunkproof.base.request import Deadline
from chunkproof.collection.services import Services
from chunkproof.embedders.embedder_port import InputType
from chunkproof.net.transport import DeadlineTransport
from chunkproof.proof.canaries import TEXTS
from chunkproof.proof.integrity import digest
from chunkproof.service import container
from chunkproof.service.terminal import local_backend
from chunkproof.stores.server import ServerStore
from chunkproof.stores.store_port import Point
from chunkproof.suite import runner
from chunkproof.suite import suite_job as shards
from chunkproof.suite.cases import Suite, assign_collection, read_suite
from chunkproof.suite.diagnosis import Diagnoser
from chunkproof.suite.runner import RunPlan, run_suite
from chunkproof.suite.suite_report import SuiteReport, read_report
from chunkproof.why.explainer import make_explainer
from chunkproof_cli.aws import jobs
from chunkproof_cli.aws.stack import Stack

from support.chunks import SECONDS_60, fill, make_services
from support.log_lines import CapturedOutput, capture_stdout
from support.qdrant_server import QdrantServer
from support.sdk import sdk
from support.states import BUCKET, Cloud, command, deployed
from support.words import Words

TOPICS = ("pump", "well", "river", "star", "gear", "sensor", "wheel", "motor", "cable", "battery", "lamp")
# 22 questions that pass, then one of every other fate; in shards of five.
FATES = [
    {"name": "gone", "query_text": "pump number 1", "expected_doc_ids": ["nowhere"]},
    {
        "name": "filtered",
        "query_text": "well number 1",
        "expected_doc_ids": ["well-1"],
        "filters": {"part": 0},
    },
    {"name": "high", "query_text": "river", "expected_doc_ids": ["river-0"], "relevance_threshold": 0.99},
    {"name": "wrong", "query_text": "x" * 10_001, "expected_doc_ids": ["pump-0"]},
]
SHARD_CASES = 5
THROTTLED = type("Lambda.TooManyRequestsException", (Exception,), {})("Rate Exceeded")


class Embedder(Words):
    """Fails for the given words, so many times each."""

    def __init__(self) -> None:
        self.failures: dict[str, int] = {}

    def embed(self, texts: Any, input_type: InputType, deadline: Deadline) -> list[list[float]]:
        for word, times in self.failures.items():
            if input_type is InputType.QUERY and times and any(word in text for text in texts):
                self.failures[word] -= 1
                raise EmbeddingError("the embedder is down")
        return super().embed(texts, input_type, deadline)


@pytest.fixture
def services(served_qdrant: QdrantServer, collection: str) -> Iterator[Services]:
    """A collection of 22 chunks on the real server."""
    store, embedder = ServerStore(served_qdrant.url, DeadlineTransport()), Embedder()
    texts = {f"{topic}-{n}": f"all about the {topic} number {n}" for topic in TOPICS for n in (0, 1)}
    vectors = embedder.embed(list(texts.values()), InputType.DOCUMENT, Deadline(SECONDS_60))
    points = [
        Point(
            number,
            {"chunk_id": key, "text": text, "part": int(key[-1]), "content_hash": digest(text)},
            vector=tuple(vector),
        )
        for number, ((key, text), vector) in enumerate(zip(texts.items(), vectors, strict=True))
    ]
    fill(store, collection, *points, size=embedder.dimension)
    yield make_services(store, collection, embedder, DEADLINE_MS="20000", CACHE_ENTRIES="0")
    sdk(store).delete_collection(collection)
    store.close()


@pytest.fixture
def cloud(monkeypatch: pytest.MonkeyPatch, services: Services) -> Iterator[Cloud]:
    filled = {"ShardCases": str(SHARD_CASES), "MaxConcurrency": "4"}
    with deployed("suite", filled, monkeypatch) as made, container.override(services):
        yield made


def document(*more: dict[str, Any]) -> dict[str, Any]:
    """A suite of questions that pass, and these cases after them."""
    asked = [
        {
            "name": f"{topic}-{n}",
            "query_text": f"the {topic} number {n}",
            "expected_doc_ids": [f"{topic}-{n}"],
        }
        for topic in TOPICS
        for n in (0, 1)
    ]
    return {"name": "machines", "defaults": {"top_k": 10}, "cases": [*asked, *more]}


def run(cloud: Cloud, suite: dict[str, Any], name: str = "first") -> dict[str, Any]:
    """An execution to its end, as the schedule starts it."""
    address = cloud.put("suite.json", json.dumps(suite).encode())
    return cloud.execute({"suite": address, "collection": "", "source": ""}, name)


def report_of(cloud: Cloud, name: str = "first") -> SuiteReport:
    return read_report(json.dumps(cloud.get(f"runs/{name}/report.json")).encode(), name)


def locally(suite: Suite, services: Services) -> SuiteReport:
    """The same in one process, uninterrupted."""
    backend = local_backend(services)
    plan = RunPlan(suite, f"s3://{BUCKET}/suite.json", assign_collection(suite.cases, services.settings.collection))
    return run_suite(plan, backend, diagnoser=Diagnoser(make_explainer(backend)))


def timeless(report: SuiteReport) -> dict[str, Any]:
    """The report without times and latencies."""
    found = report.model_dump(mode="json")
    for case in found["result"]["test_results"]:
        del case["timing"]
    for part, names in {
        "result": ("execution_time_ms", "timestamp", "performance_metrics"),
        "validation": ("run_id", "started_at", "completed_at", "duration_seconds", "avg_query_time"),
    }.items():
        for name in names:
            del found[part][name]
    del found["latency"]
    found["criteria"] = [one for one in found["criteria"] if one["unit"] != "ms"]
    return found


@pytest.mark.server
def test_the_shards_together_report_what_one_uninterrupted_run_reports(
    cloud: Cloud, services: Services, capsys: pytest.CaptureFixture[str]
) -> None:
    suite = read_suite(document(*FATES))
    found = run(cloud, document(*FATES))
    assert (found["status"], found["error"]) == ("FAILED", "SuiteIncomplete")  # one query no search takes
    assert cloud.calls == {("split", None): 1, ("merge", None): 1, **{("shard", n): 1 for n in range(6)}}
    report = report_of(cloud)
    assert timeless(report) == timeless(locally(suite, services))
    assert [case.name for case in report.result.test_results] == [case.name for case in suite.cases]
    assert (report.result.passed, report.result.failed, report.result.errors) == (22, 3, 1)
    causes = {case.name: [d.cause.value for d in case.diagnosis] for case in report.result.test_results[22:]}
    assert causes == {
        "gone": ["not in collection"],
        "filtered": ["filtered out"],
        "high": ["below threshold"],
        "wrong": [],
    }

    metrics = [json.loads(line) for line in capsys.readouterr().out.splitlines() if "_aws" in line]
    assert [m["PassRate"] for m in metrics] == [[22 / 26 * 100]]
    assert {m["function"] for m in metrics} == {"stack-suite"}


@pytest.mark.server
def test_a_shard_that_fails_twice_and_then_works_leaves_no_trace(cloud: Cloud, services: Services) -> None:
    def trouble(event: dict[str, Any], call: int) -> None:
        if event.get("shard") == 2 and call <= 2:
            raise VectorStoreUnavailableError("host", "down")

    cloud.trouble = trouble
    found = run(cloud, document())
    assert found["status"] == "SUCCEEDED"
    assert json.loads(found["output"]) == {
        "report": f"s3://{BUCKET}/runs/first/report.json",
        "versions": None,
        "cases": 22,
        "passed": 22,
        "failed": 0,
        "errors": 0,
    }
    assert cloud.calls["shard", 2] == 3
    assert timeless(report_of(cloud)) == timeless(locally(read_suite(document()), services))


@pytest.mark.server
def test_what_a_service_kept_from_being_judged_is_tried_again_and_verdicts_are_kept(
    cloud: Cloud, services: Services
) -> None:
    assert isinstance(services.embedder, Embedder)
    services.embedder.failures = {"gear": 2}  # one of its cases is in a shard with four others
    assert run(cloud, document())["status"] == "SUCCEEDED"
    assert cloud.calls["shard", 1] == 2
    kept = cloud.get("runs/first/results/00001.json")["results"]
    assert [case["status"] for case in kept] == ["passed"] * 5


@pytest.mark.server
def test_the_cases_of_a_shard_that_always_fails_are_errors_and_not_lost(cloud: Cloud) -> None:
    def trouble(event: dict[str, Any], _call: int) -> None:
        if event.get("shard") == 2:
            raise MemoryError("no room")

    cloud.trouble = trouble
    found = run(cloud, document())
    assert (found["status"], found["error"]) == ("FAILED", "SuiteIncomplete")
    assert cloud.calls["shard", 2] == 5
    cases = report_of(cloud).result.test_results
    assert [case.name for case in cases] == [case["name"] for case in document()["cases"]]
    assert [case.status.value for case in cases] == ["passed"] * 10 + ["error"] * 5 + ["passed"] * 7
    assert {case.error_message for case in cases[10:15]} == {"Shard 2 could not be run: it did not finish"}
    assert {case.error_code for case in cases[10:15]} == {"SHARD_FAILED"}


@pytest.mark.server
def test_a_service_that_stays_down_is_the_reported_reason(cloud: Cloud, services: Services) -> None:
    assert isinstance(services.embedder, Embedder)
    services.embedder.failures = {"gear number 0": 1_000}
    assert run(cloud, document())["error"] == "SuiteIncomplete"
    assert cloud.calls["shard", 1] == 5
    result = report_of(cloud).result
    assert (result.passed, result.failed, result.errors) == (21, 0, 1)
    (down,) = (case for case in result.test_results if case.status.value == "error")
    assert (down.name, down.error_code) == ("gear-0", "EMBEDDING_FAILED")
    assert down.error_message == "Failed to embed query: the embedder is down"


@pytest.mark.server
def test_shards_share_the_searches_that_are_measured_and_embed_the_others_together(
    cloud: Cloud, services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In five shards, each embeds the query of its cold search and a fifth of the twenty, and three with one call."""
    calls: list[int] = []

    class Counting(Words):
        def embed(self, texts: Any, input_type: InputType, deadline: Deadline) -> list[list[float]]:
            calls.append(len(texts))
            return super().embed(texts, input_type, deadline)

    cases = [{"name": f"{n}", "query_text": f"the {TOPICS[n % 11]} {n}", "relevance_threshold": 0.1} for n in range(25)]
    monkeypatch.setattr(runner, "MEASURED", 5)
    counting = make_services(services.store, services.settings.collection, Counting(), CACHE_ENTRIES="0")
    with container.override(counting):
        for name in ("first", "second"):  # in the same process, which remembers no query
            assert run(cloud, {"name": "many", "cases": cases}, name)["status"] == "SUCCEEDED"
            assert sorted(calls) == [1] * 10 + [3] * 5
            calls.clear()
            total = report_of(cloud, name).latency[0]
            assert (total.cold and total.cold.count, total.warm and total.warm.count) == (5, 5)


@pytest.mark.server
def test_a_shard_that_runs_out_of_time_is_called_again_and_continues(cloud: Cloud, services: Services) -> None:
    searched = 0

    def count(_event: dict[str, Any], _call: int) -> None:
        nonlocal searched
        searched, cloud.context.left_ms = 0, 900_000

    class Draining(Words):
        """Every second search takes the rest of the time."""

        def embed(self, texts: Any, input_type: InputType, deadline: Deadline) -> list[list[float]]:
            nonlocal searched
            searched += input_type is InputType.QUERY
            if searched == 2:
                cloud.context.left_ms = 60_000
            return super().embed(texts, input_type, deadline)

    cloud.trouble = count
    draining = make_services(services.store, services.settings.collection, Draining(), CACHE_ENTRIES="0")
    with container.override(draining):
        made = document()
        made["cases"] = made["cases"][:5]
        assert run(cloud, made)["status"] == "SUCCEEDED"
    assert cloud.calls["shard", 0] == 3
    assert report_of(cloud).result.passed == 5


@pytest.mark.server
@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            b"name: machines\ncases: []\n",
            "cannot be read as a suite: it is not valid JSON: Expecting value at line 1 column 1. "
            "A suite in S3 is JSON; chunkproof suite publish and suite run --stack upload any kind of suite as JSON",
        ),
        (b"\xff", "cannot be read as a suite: it is not UTF-8 at byte 0. A suite in S3 is JSON; "),
        (b'{"name": "m", "cases": []}', "cases: cases is empty: there is nothing to run"),
        (
            b'{"name": "m", "cases": [{"name": "a", "query_text": "b", "topk": 3}]}',
            "cases[0].topk: topk is not a known field; did you mean top_k?",
        ),
        (
            b'{"name": "m", "collection": "none", '
            b'"cases": [{"name": "a", "query_text": "b", "expected_keywords": ["c"]}]}',
            "Collection none not found",
        ),
    ],
)
def test_an_invalid_suite_fails_at_once_with_the_reason(cloud: Cloud, content: bytes, message: str) -> None:
    address = cloud.put("suite.json", content)
    found = cloud.execute({"suite": address, "collection": "", "source": ""})
    assert (found["status"], cloud.calls) == ("FAILED", {("split", None): 1})
    assert message in json.loads(found["cause"])["errorMessage"]


@pytest.mark.server
def test_before_a_suite_is_published_a_scheduled_run_ends_without_a_failure(cloud: Cloud) -> None:
    found = cloud.execute({"suite": f"s3://{BUCKET}/suite.json", "collection": "", "source": ""})
    assert (found["status"], cloud.calls) == ("SUCCEEDED", {("split", None): 1})


@pytest.mark.server
def test_a_missing_suite_that_was_asked_for_says_so(cloud: Cloud) -> None:
    found = cloud.execute({"suite": f"s3://{BUCKET}/mine.json", "collection": "", "source": ""})
    assert (found["status"], found["error"]) == ("FAILED", "NotFoundError")
    assert f"There is no s3://{BUCKET}/mine.json: upload the suite with chunkproof suite publish" in found["cause"]


@pytest.mark.server
def test_a_step_that_lambda_throttles_waits_longer_than_one_that_fails(cloud: Cloud) -> None:
    def throttle(event: dict[str, Any], call: int) -> None:
        if event["step"] == "merge" and call <= 4:  # States.ALL gives up after two
            raise THROTTLED

    cloud.trouble = throttle
    assert run(cloud, document())["status"] == "SUCCEEDED"
    assert cloud.calls["merge", None] == 5


@pytest.mark.server
def test_a_suite_that_is_too_large_is_rejected(cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shards, "MAX_CASES", 21)
    found = run(cloud, document())
    assert found["error"] == "InvalidParameterError"
    assert "has 22 cases, more than 21: run it in parts" in found["cause"]


class Retrained(Embedder):
    """Another model under the same name: it reads words backwards."""

    def embed(self, texts: Any, input_type: InputType, deadline: Deadline) -> list[list[float]]:
        return super().embed([text[::-1] for text in texts], input_type, deadline)


def canary_metrics(written: CapturedOutput) -> list[tuple[float, float]]:
    """The metrics of canaries since the last call."""
    lines = written.metrics
    written.clear()
    assert {line["function"] for line in lines} == {"stack-suite"}
    return [(round(line["CanaryDrift"][0], 6), line["CanaryChanged"][0]) for line in lines]


@pytest.mark.server
def test_other_weights_under_the_same_name_are_a_metric_and_a_log_line(
    cloud: Cloud, services: Services, capsys: pytest.CaptureFixture[str]
) -> None:
    scheduled = {"canary": {"action": "check", "record_missing": True}}
    with capture_stdout(capsys) as written:
        for _ in range(2):  # the first run records
            assert cloud.execute(scheduled)["status"] == "SUCCEEDED"
        assert canary_metrics(written) == [(0.0, 0.0), (0.0, 0.0)]

        services.embedder = Retrained()
        (found,) = json.loads(cloud.execute(scheduled)["output"])["canaries"]
        assert (found["state"], found["model"]) == ("changed", "words")
        (line,) = written.saying("canary")
        assert (line["level"], line["model"], line["state"]) == ("WARNING", "words", "changed")
        assert line["texts"][0]["text"] in TEXTS
        assert canary_metrics(written) == [(round(found["drift"], 6), 1.0)]
        assert cloud.calls == {("canary", None): 3}

        assert cloud.execute({"canary": {"action": "record"}})["status"] == "SUCCEEDED"
        assert canary_metrics(written) == [(0.0, 0.0)]  # so that the alarm is over
        assert json.loads(cloud.execute(scheduled)["output"])["canaries"][0]["state"] == "same"


@pytest.mark.server
@pytest.mark.parametrize("given", [True, {}, {"action": "forget"}])
def test_a_wrong_request_for_canaries_fails_at_once(cloud: Cloud, given: Any) -> None:
    found = cloud.execute({"canary": given})
    assert (found["error"], cloud.calls) == ("InvalidParameterError", {("canary", None): 1})
    assert '"check" or "record"' in json.loads(found["cause"])["errorMessage"]


@pytest.mark.server
def test_an_embedder_that_is_down_is_asked_again_and_is_not_a_change(cloud: Cloud, services: Services) -> None:
    assert isinstance(services.embedder, Embedder)
    cloud.execute({"canary": {"action": "record"}})
    services.embedder.failures = {"pump": 2}
    found = cloud.execute({"canary": {"action": "check"}})
    assert json.loads(found["output"])["canaries"][0]["state"] == "same"
    assert cloud.calls["canary", None] == 4


@pytest.mark.server
def test_the_command_records_and_checks_the_canaries_of_a_stack(chunkproof: Any, services: Services) -> None:
    code, _, err = chunkproof("canary", "check", "--stack", "prod")
    assert (code, "chunkproof canary record --stack prod" in err) == (3, True)
    code, _, err = chunkproof("canary", "record", "--stack", "prod")
    assert (code, f"Recorded words of {services.settings.collection}, 64 values" in err) == (0, True)
    code, out, _ = chunkproof("canary", "check", "--stack", "prod")
    assert (code, "drift 0.000000" in out) == (0, True)
    services.embedder = Retrained()
    code, out, _ = chunkproof("canary", "check", "--stack", "prod", "--json")
    assert (code, json.loads(out[out.index("{\n") :])["canaries"][0]["state"]) == (1, "changed")


@pytest.mark.server
def test_the_command_says_how_a_stack_gets_canaries(chunkproof: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "find_stack", lambda name: Stack(name, "CREATE_COMPLETE", {}, {}))
    code, _, err = chunkproof("canary", "check", "--stack", "prod")
    assert (code, "deploy it with Suite=true and Canary=true" in err) == (2, True)


@pytest.fixture
def chunkproof(cloud: Cloud, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    """The command, where stack `prod` has this state machine."""
    return command("Suite", monkeypatch, capsys, CanaryRecords=f"s3://{BUCKET}/canaries/")


@pytest.fixture
def suite_file(tmp_path: Path) -> Path:
    """JSON is YAML too."""
    file = tmp_path / "machines.yaml"
    file.write_text(json.dumps(document(*FATES[:3])), "utf-8")
    return file


@pytest.mark.server
def test_the_command_runs_a_suite_there_and_fetches_its_report(
    chunkproof: Any, suite_file: Path, tmp_path: Path, services: Services
) -> None:
    report, page = tmp_path / "report.json", tmp_path / "again.html"
    code, out, err = chunkproof("suite", "run", suite_file, "--stack", "prod", "--ignore-latency", "-o", report)
    assert code == 1
    assert "is under way in prod; its report will be s3://" in err
    assert "22 of 25 cases passed, 3 failed" in out
    found = json.loads(report.read_text("utf-8"))
    assert found["suite"]["source"] == str(suite_file)
    assert found["suite"]["fingerprint"] == locally(read_suite(document(*FATES[:3])), services).suite.fingerprint

    address = err.split("its report will be ")[1].split()[0]
    code, _out, err = chunkproof("report", address, "-o", page)
    assert (code, err.strip()) == (0, f"Wrote {page}")
    assert "not in collection" in page.read_text("utf-8")
    code, _out, err = chunkproof("report", report, "--baseline", address)
    assert code == 0
    code, _out, err = chunkproof("report", f"s3://{BUCKET}/runs/none/report.json", "-o", page)
    assert (code, err.strip()) == (2, f"There is no s3://{BUCKET}/runs/none/report.json")


@pytest.mark.server
def test_exit_codes_are_those_of_a_run_here(
    chunkproof: Any, cloud: Cloud, suite_file: Path, services: Services
) -> None:
    arguments = ("suite", "run", suite_file, "--stack", "prod", "--ignore-latency")
    suite_file.write_text(json.dumps(document()), "utf-8")
    assert chunkproof(*arguments)[0] == 0
    assert isinstance(services.embedder, Embedder)
    services.embedder.failures = {"gear number 0": 1_000}
    assert chunkproof(*arguments)[0] == 3
    code, _out, err = chunkproof(*arguments, "--collection", "none")
    assert code == 2
    assert "Collection none not found" in err


@pytest.mark.server
def test_what_a_run_in_the_cloud_cannot_do_is_refused(chunkproof: Any, suite_file: Path) -> None:
    code, _out, err = chunkproof(
        "suite", "run", suite_file, "--stack", "prod", "--filter", "x", "--exact", "--repeat", "2"
    )
    assert code == 2
    assert "With --stack, --filter, --repeat, --exact cannot be given" in err


@pytest.mark.server
def test_a_published_suite_is_what_the_stack_runs_and_can_be_run_from_there(
    chunkproof: Any, cloud: Cloud, suite_file: Path, tmp_path: Path
) -> None:
    code, out, err = chunkproof("suite", "publish", suite_file, "--stack", "prod", "--json")
    assert code == 0
    assert "machines, 25 cases, is now the suite that prod runs" in err
    address = json.loads(out)["address"]
    assert cloud.execute({"suite": address, "collection": "", "source": ""}, "daily")["status"] == "SUCCEEDED"
    assert report_of(cloud, "daily").suite.source == address
    file = tmp_path / "report.json"
    assert chunkproof("suite", "run", address, "--stack", "prod", "--ignore-latency", "-o", file)[0] == 1
    assert json.loads(file.read_text("utf-8"))["suite"]["source"] == address


@pytest.mark.server
def test_a_stack_without_suites_says_what_to_do(
    cloud: Cloud, suite_file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    chunkproof = command("Audit", monkeypatch, capsys)
    code, _out, err = chunkproof("suite", "run", suite_file, "--stack", "prod")
    assert code == 2
    assert "Stack prod has no suite: deploy it with Suite=true" in err
