"""Send every sample event through `sam local invoke`, against services started here (`make invoke`).

Exit 1 when a response has another status than the event's file name says, a search finds other chunks than the
same search in this process, or CloudWatch would reject the metrics that the container wrote.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from chunkproof.base.request import Deadline
from chunkproof.base.settings import Settings
from chunkproof.collection.services import Services
from chunkproof.contract import SearchQuery
from chunkproof.embedders.local_model import local_model
from chunkproof.search.single import search
from chunkproof_cli.output import print_table, print_title, safe_text, shorten

from support import emf
from support.cloud import BUCKET, EdgeHost, Host, handbook_host, published_host

ROOT = Path(__file__).resolve().parents[2]
# A container reaches this machine by this name.
HOST_NAME = "host.docker.internal"
SCORE_STEP = 1e-5


@dataclass(frozen=True)
class Invocation:
    """One event and its answer."""

    name: str
    event: dict[str, Any]
    status: int
    body: dict[str, Any]
    problems: tuple[str, ...]


def function_of(event: dict[str, Any]) -> str:
    """The function's logical name behind an event's route."""
    return "ValidateChunkFunction" if event["rawPath"].startswith("/validate-chunk") else "SearchFunction"


def promised_status(name: str) -> int:
    """The status in `search.400-empty-query.json`; the status in `search.json` is 200."""
    return int(name.split(".")[1][:3]) if name.count(".") > 1 else 200


def sam_options(environment: Path) -> list[str]:
    """What `sam local` needs to reach the services here; LAMBDA_IMAGE names another image than AWS's."""
    options = ["--env-vars", str(environment)]
    for name in (HOST_NAME, f"{BUCKET}.{HOST_NAME}"):  # an address of S3 begins with the name of the bucket
        options += ["--add-host", f"{name}:{os.environ.get('HOST_ADDRESS', 'host-gateway')}"]
    if image := os.environ.get("LAMBDA_IMAGE"):
        options += ["--invoke-image", image, "--skip-pull-image"]
    return options


def invoke_all(sam: str, template: Path, host: Host, names: str) -> list[Invocation]:
    """Every event of events/ with such a name, in a container each, as many at a time as there are cores."""
    events = sorted((ROOT / "events").glob(f"{names}.json"))
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file, ThreadPoolExecutor(os.cpu_count()) as pool:
        json.dump({"Parameters": host.variables(HOST_NAME)}, file)
        file.flush()
        options = sam_options(Path(file.name))
        return list(pool.map(lambda path: _invoke(path, sam, template, options, host), events))


def _invoke(path: Path, sam: str, template: Path, options: list[str], host: Host) -> Invocation:
    event = json.loads(path.read_text("utf-8"))
    command = [
        sam,
        "local",
        "invoke",
        function_of(event),
        "--template",
        str(template),
        "--event",
        str(path),
        *options,
    ]
    store = "Store=edge" if isinstance(host, EdgeHost) else "QdrantUrl=http://unused"
    command += ["--parameter-overrides", store]
    run = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    print(run.stderr, file=sys.stderr)
    try:
        answer = json.loads(run.stdout.strip().splitlines()[-1])
        status, body = answer["statusCode"], json.loads(answer["body"])
    except (ValueError, KeyError, IndexError, TypeError):
        return Invocation(path.name, event, 0, {}, (f"no answer: {(run.stdout + run.stderr).strip()[-300:]}",))
    problems = []
    if status != promised_status(path.name):
        problems.append(f"status {status}, promised {promised_status(path.name)}")
    if not answer.get("headers", {}).get("x-request-id"):
        problems.append("no x-request-id")
    if event["rawPath"] == "/search" and status == 200:
        problems += differences(body, in_this_process(event, host))
    problems += metric_problems(run.stderr)
    return Invocation(path.name, event, status, body, tuple(problems))


def metric_problems(log: str) -> list[str]:
    """Why CloudWatch would not make metrics of what the container wrote, which must be one set for one request."""
    lines = [line[line.index('{"_aws"') :] for line in log.splitlines() if '{"_aws"' in line]
    if len(lines) != 1:
        return [f"{len(lines)} sets of metrics, one was expected"]
    return emf.problems(json.loads(lines[0]))


def in_this_process(event: dict[str, Any], host: Host) -> dict[str, Any]:
    """The same search without container and gateway."""
    from chunkproof.service.container import cohere_reranker, published_store, qdrant_store

    settings = Settings.from_env(host.variables())
    store = published_store(settings) if isinstance(host, EdgeHost) else qdrant_store(settings)
    reranker = cohere_reranker(settings)
    try:
        query = SearchQuery.parse(json.loads(event["body"]))
        services = Services(settings, store, local_model(), reranker=reranker)
        found = search(query, services.collection(query.collection, Deadline(60_000)))
    finally:
        store.close()
        reranker.close()
    return found.model_dump(mode="json")


def differences(left: dict[str, Any], right: dict[str, Any]) -> list[str]:
    """What two answers to the same search disagree on: ids, order, or scores beyond rounding."""
    if "responses" in right:
        pairs = zip(left.get("responses", []), right["responses"], strict=True)
        return [problem for mine, other in pairs for problem in differences(mine, other)]
    ids = [[result["metadata"]["chunk_id"] for result in answer["results"]] for answer in (left, right)]
    if ids[0] != ids[1]:
        return [f"found {ids[0]}, in this process {ids[1]}"]
    pairs = zip(left["results"], right["results"], strict=True)
    if any(abs(a["similarity_score"] - b["similarity_score"]) > SCORE_STEP for a, b in pairs):
        return ["other scores than in this process"]
    return []


@contextmanager
def _without_server(template: Path) -> Iterator[Path]:
    """A copy of the built template for functions without a server, as `sam local` can run it.

    It leaves out every layer behind a condition, and sets only variables that the template declares.
    """
    document = yaml.safe_load(template.read_text("utf-8"))
    function = document["Globals"]["Function"]
    function["Layers"] = [{"Ref": "SharedLayer"}, {"Ref": "EdgeLayer"}]
    function["Environment"]["Variables"]["AWS_ENDPOINT_URL_S3"] = ""
    copy = template.with_name("template-edge.yaml")
    copy.write_text(yaml.safe_dump(document), "utf-8")
    try:
        yield copy
    finally:
        copy.unlink()


def print_report(invocations: list[Invocation]) -> None:
    """The answers, a line each."""
    print_title("Answers from the container")
    lines = [
        (
            invocation.name,
            safe_text(str(invocation.status), "bold red" if invocation.problems else "green"),
            "; ".join(invocation.problems) or shorten(_gist(invocation.body), 90),
        )
        for invocation in invocations
    ]
    print_table(("event", "status", "answer"), lines)


def _gist(body: dict[str, Any]) -> str:
    if isinstance(body.get("errors"), int):  # a batch: counts, and a verdict for each
        return ", ".join(f"{name} {count}" for name, count in body.items() if isinstance(count, int))
    if body.get("errors"):
        return "; ".join(body["errors"])
    if "results" in body:
        found = [f"{r['metadata']['chunk_id']} {r['similarity_score']:.3f}" for r in body["results"]]
        return ", ".join(found) or "no match"
    if "matches" in body:
        return "match" if body["matches"] else str(body["mismatch_details"])
    if "points_count" in body:
        return f"{body['points_count']} points, {body['vector_size']} values, {body['distance_metric']}"
    return json.dumps(body)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--sam", default="sam")
    arguments.add_argument("--template", type=Path, required=True)
    arguments.add_argument("--store", choices=("server", "edge"), default="server")
    arguments.add_argument("--events", default="*", help="names of the events, such as search*")
    given = arguments.parse_args()
    if given.store == "edge":
        with published_host("0.0.0.0") as host, _without_server(given.template) as template:
            invocations = invoke_all(given.sam, template, host, given.events)
    else:
        with handbook_host("0.0.0.0") as host:
            invocations = invoke_all(given.sam, given.template, host, given.events)
    print_report(invocations)
    failed = sum(bool(invocation.problems) for invocation in invocations)
    print(f"{len(invocations) - failed} of {len(invocations)} events answered as promised")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
