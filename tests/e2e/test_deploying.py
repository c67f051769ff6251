"""The deployment guide's own commands, from the secret to `sam delete`, run against an account on this machine.

Needs `CHUNKPROOF_SAM` with the path of sam, and Python 3.13 to build the layer.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import gettempdir
from typing import Any

import pytest

from chunkproof.stores.published_store import CHECK_EVERY_S
from chunkproof_cli.local.sandbox_services import KEY

from support.account import Account, account
from support.cloud import Host, handbook_host
from support.handbook import COLLECTION
from support.http_api import HttpApis
from support.python313 import python313
from support.resources import Deployment
from tools.checks.invoke import differences

SAM = os.environ.get("CHUNKPROOF_SAM")
# Of the shell that runs the tests, such as those that the README sets.
OTHER_SETTINGS = ("AWS_", "MAKE", "MFLAGS", "CHUNKPROOF_", "QDRANT_", "COHERE_")
ROOT = Path(__file__).resolve().parents[2]
ARCHITECTURE = "arm64" if os.uname().machine in ("arm64", "aarch64") else "x86_64"

pytestmark = [
    pytest.mark.skipif(not SAM, reason="CHUNKPROOF_SAM does not name the AWS SAM CLI"),
    pytest.mark.skipif(not python313(), reason="no Python 3.13 to build the layer with"),
]


@dataclass
class Workplace:
    """A checkout of its own, in a terminal whose AWS is the account."""

    folder: Path
    aws: Account
    apis: HttpApis
    host: Host
    parameters: tuple[str, ...] = ()

    @property
    def stack(self) -> Deployment:
        return self.aws.cloudformation.stacks["chunkproof"]

    def run(self, command: str, typed: str = "", **variables: str) -> str:
        """What a line prints, both streams; it must succeed."""
        done = self.attempt(command, typed, **variables)
        assert done.returncode == 0, f"{command}\n{done.stdout}"
        return done.stdout

    def attempt(self, command: str, typed: str = "", **variables: str) -> "subprocess.CompletedProcess[str]":
        inherited = {k: v for k, v in os.environ.items() if not k.startswith(OTHER_SETTINGS)}
        return subprocess.run(
            ["bash", "-c", command],
            cwd=self.folder,
            env={**inherited, **self.aws.variables, **self._tools(), **self._apis(command), **variables},
            input=typed,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )

    def _tools(self) -> dict[str, str]:
        """What this machine has already is not installed again."""
        own = Path(sys.executable).parent
        make = f"-- VENV={own.parent} SAM={SAM} PYTHON313={python313()} ARCH={ARCHITECTURE}"
        path = os.pathsep.join([str(own), str(Path(str(SAM)).parent), os.environ["PATH"]])
        return {"MAKEFLAGS": make, "PATH": path, "SAM_CLI_TELEMETRY": "0"}

    def _apis(self, command: str) -> dict[str, str]:
        if command.startswith("make"):  # which gets packages, not by way of this proxy
            return {}
        stack = self.aws.cloudformation.stacks.get("chunkproof")
        return {**self.apis.variables, "API": stack.outputs["ApiUrl"] if stack else ""}

    def configure(self) -> None:
        """Write the parameters of the default environment into samconfig.toml, as one does in an editor."""
        file = self.folder / "samconfig.toml"
        lines = "".join(f"  {json.dumps(parameter)},\n" for parameter in self.parameters)
        text = (ROOT / "samconfig.toml").read_text("utf-8")
        given = r'  "QdrantUrl=https://CHANGE-ME[^\n]+\n'
        file.write_text(re.sub(given, lambda _: lines, text, count=1), "utf-8")


def guide_commands(number: int) -> list[str]:
    """Return the commands of a block of the guide, continued lines joined and comments removed."""
    block = deploying_section().split("```\n")[number * 2 + 1].replace("\\\n", "")
    return [re.sub(r"\s+#.*", "", line) for line in block.splitlines()]


def deploying_section() -> str:
    page = (ROOT / "docs" / "guides" / "deploy.md").read_text("utf-8")
    return page.split("\n## Deploying\n")[1].split("\n## ")[0]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workplace]:
    folder = tmp_path_factory.mktemp("checkout") / "chunkproof"
    # Only what belongs to the project: the commands of the README leave their results beside it.
    listing = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    for name in subprocess.run(listing, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\0"):
        if name and not name.startswith(".") and (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)
    for file in ("pyproject.toml", "tests/requirements.txt", "cli/requirements.txt"):
        os.utime(folder / file, (0, 0))  # older than the virtualenv, which is that of this checkout
    with handbook_host() as host, account() as (aws, apis):
        yield Workplace(folder, aws, apis, host)


@pytest.fixture(scope="module")
def deployed(place: Workplace) -> Workplace:
    """After the guide's first block: keys stored, parameters written, the stack made, and looked at."""
    secret, edit, deploy, doctor = guide_commands(0)
    assert edit == "$EDITOR samconfig.toml"
    keys = {"QDRANT_API_KEY": "which-this-server-ignores", "COHERE_API_KEY": KEY}
    arn = place.run(secret, typed=json.dumps(keys)).split()[-1]
    # A cold start on a busy machine is not what this is about.
    settings = {"COHERE_BASE_URL": place.host.cohere_url, "CHUNKPROOF_DEADLINE_MS": 20_000}
    place.parameters = (
        f"QdrantUrl={place.host.qdrant_url}",
        f"SecretArn={arn}",
        f"Collection={COLLECTION}",
        f"Settings='{json.dumps(settings)}'",
    )
    place.configure()
    said = place.run(deploy, typed="y\n")
    assert "Successfully created/updated stack - chunkproof in us-east-1" in said
    assert "Verdict: collection handbook is ready." in place.run(doctor)
    return place


def test_signed_requests_are_answered(deployed: Workplace) -> None:
    curl, search = guide_commands(1)
    by_curl = json.loads(deployed.run(curl))
    assert by_curl["status"] == "success"
    by_command = json.loads(deployed.run(f"{search} --json"))
    assert differences(by_curl, by_command) == []
    assert by_curl["results"][0]["metadata"]["chunk_id"] == "vectordb-security-00"


def test_agents_call_tools_with_the_same_signature(deployed: Workplace) -> None:
    called = {"name": "search", "arguments": {"query_text": "How do I rotate the key?"}}
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": called}
    curl = guide_commands(1)[0].replace("/search", "/mcp")
    reply = json.loads(deployed.run(re.sub("-d '[^']+'", f"-d '{json.dumps(message)}'", curl)))
    found = reply["result"]["structuredContent"]["results"]
    assert found[0]["metadata"]["chunk_id"] == "vectordb-security-00"


def test_the_smoke_test_of_the_first_deployment_passes(deployed: Workplace) -> None:
    page = (ROOT / "docs" / "first-deployment.md").read_text("utf-8")
    command = re.findall(r"^(make smoke .+)$", page, re.M)[0]
    alarm = deployed.stack.resources["ErrorAlarm"].name
    with played_cloudwatch(deployed.aws, deployed.stack.outputs["SearchLogGroup"], alarm):
        printed = deployed.run(command, **deployed.apis.variables)
    rows = {row[0]: row[1:] for row in re.findall(r"^\| ([a-z-]+) \| (\w+) \| ([\d.]+) \| (.+) \|$", printed, re.M)}
    verdicts = {name: verdict for name, (verdict, _, _) in rows.items() if name != "step"}
    assert verdicts == {
        **dict.fromkeys(["stack", "api", "gzip", "cold-start", "alarm"], "ok"),
        **dict.fromkeys(["audit", "suite", "canary"], "skipped"),  # this stack has none of them yet
    }
    assert "as application/octet-stream: 200" in rows["gzip"][2]
    assert "1 without SnapStart: 812 to 812 ms" in rows["cold-start"][2]
    assert re.match(r"on \d+ s after the error, over \d+ s after it", rows["alarm"][2])


@contextmanager
def played_cloudwatch(aws: Account, group: str, alarm: str) -> Iterator[None]:
    """What Lambda and CloudWatch would do: a report line in the log, and an alarm that follows the planted error."""
    logs, watch = aws.client("logs"), aws.client("cloudwatch")
    logs.create_log_group(logGroupName=group)
    logs.create_log_stream(logGroupName=group, logStreamName="lambda")
    report = (
        "REPORT RequestId: 1 Duration: 9.00 ms Billed Duration: 822 ms Memory Size: 1024 MB Init Duration: 812.00 ms"
    )
    event = {"timestamp": int(time.time() * 1000), "message": report}
    logs.put_log_events(logGroupName=group, logStreamName="lambda", logEvents=[event])
    watch.put_metric_alarm(
        AlarmName=alarm,
        Namespace="n",
        MetricName="m",
        Statistic="Sum",
        Period=60,
        EvaluationPeriods=1,
        Threshold=0,
        ComparisonOperator="GreaterThanThreshold",
    )
    watch.set_alarm_state(AlarmName=alarm, StateValue="OK", StateReason="no error yet")
    ended = threading.Event()

    def follow() -> None:
        while not ended.wait(0.5):
            events = logs.filter_log_events(logGroupName=group)["events"]
            if any(json.loads(e["message"])["code"] == "INTERNAL" for e in events if e["message"].startswith("{")):
                watch.set_alarm_state(AlarmName=alarm, StateValue="ALARM", StateReason="planted")
                ended.wait(8)
                watch.set_alarm_state(AlarmName=alarm, StateValue="OK", StateReason="over")
                return

    following = threading.Thread(target=follow, daemon=True)
    following.start()
    try:
        yield
    finally:
        ended.set()
        following.join()


@pytest.mark.parametrize(
    "wrong",
    [
        {"AWS_SECRET_ACCESS_KEY": "another"},
        {"AWS_ACCESS_KEY_ID": "ASIASTRANGER"},
        {"AWS_SESSION_TOKEN": "of-yesterday"},
        {"AWS_SESSION_TOKEN": ""},
    ],
    ids=str,
)
def test_a_wrong_signature_is_refused(deployed: Workplace, wrong: dict[str, str]) -> None:
    curl, search = guide_commands(1)
    assert json.loads(deployed.run(curl, **wrong)) == {"message": "Forbidden"}
    refused = deployed.attempt(search, **wrong)
    assert refused.returncode == 2
    assert "check your AWS credentials and their permission execute-api:Invoke" in refused.stdout


def test_nothing_is_answered_without_a_signature(deployed: Workplace) -> None:
    for path in ("search", "validate-chunk", "mcp", "health", "health/deep", "collections/handbook"):
        method = "-d {}" if path in ("search", "validate-chunk", "mcp") else ""
        assert json.loads(deployed.run(f"curl -s $API/{path} {method}")) == {"message": "Forbidden"}


def test_a_deployment_without_a_change_changes_nothing(deployed: Workplace) -> None:
    before = deployed.stack.resources
    assert "No changes to deploy" in deployed.run("make deploy")
    assert deployed.stack.resources is before


def test_a_line_of_the_layer_reaches_callers(deployed: Workplace) -> None:
    line = 'CONTRACT_VERSION = "1.0"'
    file = deployed.folder / "shared" / "chunkproof" / "__init__.py"
    written = file.read_text("utf-8")
    assert line in written
    file.write_text(written.replace(line, 'CONTRACT_VERSION = "1.0-changed"'), "utf-8")
    curl = guide_commands(1)[0].replace("/search", "/health")
    health = re.sub("-d '[^']+'", "", curl)
    assert health != curl
    assert json.loads(deployed.run(health))["contract_version"] == "1.0"
    deployed.run("make deploy", typed="y\n")
    assert json.loads(deployed.run(health))["contract_version"] == "1.0-changed"
    assert deployed.stack.status == "UPDATE_COMPLETE"
    assert deployed.aws.deleted_versions == set()  # the version before stays until the next deployment


def test_a_release_that_answers_worse_never_gets_traffic(deployed: Workplace) -> None:
    file = deployed.folder / "functions" / "search" / "app.py"
    written = file.read_text("utf-8")
    call = "return search(query, app.collection(query.collection))"
    assert call in written
    file.write_text(written.replace(call, 'raise RuntimeError("a bug")'), "utf-8")
    before = (deployed.stack.resources, dict(deployed.stack.parameters))
    gradual = f'make deploy PARAMS="QdrantUrl={deployed.host.qdrant_url} GradualRollout=true"'
    refused = deployed.attempt(gradual, typed="y\n")
    assert refused.returncode != 0
    assert "UPDATE_ROLLBACK_COMPLETE" in refused.stdout
    assert deployed.aws.hook_statuses == ["Failed"]
    problem = "POST /search: the new version gives 500 INTERNAL, the live one 200"
    assert json.dumps({"message": "rollout", "problem": problem}) in deployed.aws.printed
    assert (deployed.stack.resources, deployed.stack.parameters) == before
    assert json.loads(deployed.run(guide_commands(1)[0]))["status"] == "success"
    file.write_text(written + "# A release without the bug.\n", "utf-8")
    deployed.run(gradual, typed="y\n")
    assert deployed.aws.hook_statuses == ["Failed", "Succeeded"]
    # The first version, and the one that never served, are gone; the one that served before stays.
    functions = [deployed.stack.outputs[f"{name}FunctionName"] for name in ("Search", "ValidateChunk")]
    assert deployed.aws.deleted_versions == {(name, number) for name in functions for number in (1, 3)}


def test_parameters_that_do_not_go_together_are_refused_with_the_reason(deployed: Workplace) -> None:
    before = deployed.stack.resources
    built = ".aws-sam/build/template.yaml --config-file $PWD/samconfig.toml"  # as `make deploy` calls it
    parameters = "QdrantUrl=http://x JwtIssuer=https://issuer.example"
    refused = deployed.attempt(f"sam deploy --template-file {built} --parameter-overrides {parameters}")
    assert refused.returncode != 0
    assert "With JwtIssuer, JwtAudience must name at least one audience" in refused.stdout
    assert deployed.stack.resources is before


def test_a_wrong_setting_fails_the_build_with_the_message_of_the_start(deployed: Workplace) -> None:
    for given, message in {
        """Settings="'{\\"CHUNKPROOF_MAX_TOP_K\\": 5000}'" """: "Settings: CHUNKPROOF_MAX_TOP_K must be 1 to 1000",
        """Settings="'{\\"MAX_TOP_K\\": 5}'" """: "Settings: CHUNKPROOF_SETTINGS: there is no setting MAX_TOP_K",
        "MaxTopK=5": "there is no parameter MaxTopK",
    }.items():
        refused = deployed.attempt("make deploy", PARAMS=f"QdrantUrl=http://x {given}")
        assert refused.returncode != 0
        assert f"parameters: {message}" in refused.stdout


def test_audits_and_suites_come_with_a_parameter_and_commands_find_them(deployed: Workplace) -> None:
    empty = r"""SuiteSchedule='\"\"'"""  # as the guide writes an empty value
    assert f'PARAMS="{empty}"' in (ROOT / "docs" / "guides" / "deploy.md").read_text("utf-8")
    added = f"QdrantUrl={deployed.host.qdrant_url} Audit=true Suite=true Canary=true {empty}"
    deployed.run(f'make deploy PARAMS="{added}"', typed="y\n")
    assert deployed.stack.parameters["SuiteSchedule"] == ""
    outputs = deployed.stack.outputs
    assert {"AuditStateMachineArn", "AuditBucketName", "SuiteStateMachineArn", "SuiteBucketName"} <= set(outputs)
    suite = ROOT / "cli" / "chunkproof_cli" / "local" / "suite.yaml"
    deployed.run(f"chunkproof suite publish {suite} --stack chunkproof")
    kept = deployed.aws.client("s3").list_objects_v2(Bucket=outputs["SuiteBucketName"])["Contents"]
    assert [item["Key"] for item in kept] == ["suite.json"]
    assert outputs["CanaryRecords"] == f"s3://{outputs['SuiteBucketName']}/canaries/"


def test_deleting_leaves_what_the_guide_says(deployed: Workplace) -> None:
    buckets = {deployed.stack.outputs[name] for name in ("AuditBucketName", "SuiteBucketName")}
    section = deploying_section()
    (command,) = re.findall(r"`(sam delete [^`]+)`", section)
    deployed.run(command, typed="y\n" * 5)
    assert set(deployed.aws.cloudformation.stacks) == {"aws-sam-cli-managed-default"}
    (secret,) = deployed.aws.client("secretsmanager").list_secrets()["SecretList"]
    assert secret["Name"] == "chunkproof-keys"
    (uploads,) = deployed.aws.cloudformation.resources("AWS::S3::Bucket")
    kept = {bucket["Name"] for bucket in deployed.aws.client("s3").list_buckets()["Buckets"]}
    assert kept == {uploads.name, *buckets}
    missing = deployed.attempt("chunkproof doctor --stack chunkproof")
    assert missing.returncode == 2
    assert "--stack chunkproof: there is no such stack in this AWS account and region" in missing.stdout


def test_a_stack_without_a_server_searches_what_was_published(deployed: Workplace) -> None:
    page = (ROOT / "docs" / "guides" / "edge.md").read_text("utf-8")
    _, _, publish, doctor = (re.sub(r"\s+#.*", "", line) for line in page.split("```\n")[1].splitlines())
    others = [given for given in deployed.parameters if not given.startswith("QdrantUrl=")]
    deployed.parameters = ("Store=edge", "Audit=true", "Suite=true", *others)
    deployed.configure()
    deployed.run("make deploy", typed="y\n")
    deployed.run(
        "chunkproof demo --export chunks.jsonl && chunkproof load chunks.jsonl --collection handbook --data data"
    )
    deployed.run(publish.replace("docs", "handbook") + " --data data")
    assert "Verdict: collection handbook is ready." in deployed.run(doctor)
    found = json.loads(deployed.run(guide_commands(1)[0]))
    assert (found["status"], found["results"][0]["metadata"]["chunk_id"]) == ("success", "vectordb-security-00")
    outputs = deployed.stack.outputs
    assert (outputs["QdrantUrl"], "PublishedBucketName" in outputs) == ("none", True)
    assert {"AuditStateMachineArn", "SuiteStateMachineArn"} <= set(outputs)
    functions = list(deployed.aws.cloudformation.resources("AWS::Lambda::Function"))
    variables = [function.properties["Environment"]["Variables"] for function in functions]
    bucket = outputs["PublishedBucketName"]
    assert [one["CHUNKPROOF_PUBLISHED_BUCKET"] for one in variables] == [bucket] * 4
    assert [len(function.properties["Layers"]) for function in functions] == [2] * 4

    version = deployed.aws.client("s3").get_object(Bucket=bucket, Key=f"collections/{COLLECTION}.json")["Body"].read()
    audited = run_audit(deployed, outputs["AuditBucketName"])
    assert audited["version"] == json.loads(version)["version"]
    assert {kind: count for kind, count in audited["kinds"].items() if count} == {"match": audited["audited"]}
    tested = run_suite(deployed, outputs["SuiteBucketName"])
    assert (tested["passed"], tested["versions"]) == (tested["cases"], {COLLECTION: audited["version"]})
    corrupted = run_audit(deployed, outputs["AuditBucketName"], "b", planted='s/"text": "/"text": "X/')
    assert (corrupted["faults"] > 0, corrupted["kinds"]["mismatch"]) == (True, 1)
    check_that_the_alarm_sees_it(deployed, corrupted["faults"])
    publish = publish.replace("docs", "handbook") + " --data data"
    check_the_receipt(deployed, publish)
    check_a_frozen_function(deployed, partial(update_and_prune, deployed, publish))
    shutil.rmtree(Path(gettempdir()) / "chunkproof-published", ignore_errors=True)


def check_that_the_alarm_sees_it(place: Workplace, faults: int) -> None:
    """The metric that the function wrote is the one that the alarm watches, and above its threshold."""
    alarms = place.aws.cloudformation.resources("AWS::CloudWatch::Alarm")
    (alarm,) = (one.properties for one in alarms if one.properties.get("MetricName") == "AuditFindings")
    watched = {dimension["Name"]: dimension["Value"] for dimension in alarm["Dimensions"]}
    lines = [json.loads(line) for line in place.aws.printed if '"AuditFindings"' in line]
    values = [line["AuditFindings"][0] for line in lines if watched.items() <= line.items()]
    assert values == [0, faults]  # of the clean audit, and of this one
    assert values[1] > float(alarm["Threshold"]) >= values[0]


def check_the_receipt(place: Workplace, publish: str) -> None:
    """The version is sealed as it is published; a function proves its results, and a changed answer is refuted."""
    place.run("chunkproof key example.com/handbook")
    place.run(f"{publish} --key seal.key")
    curl = re.sub("-d '([^']+)}'", r"""-d '\1, "receipt": true}'""", guide_commands(1)[0])
    answer = place.run(f"{curl} | tee answer.json")
    assert "receipt" in json.loads(answer), json.loads(answer).get("notes")
    verified = place.run("chunkproof verify answer.json --key seal.key.pub")
    for claim in ("seal", "membership", "texts", "order"):
        assert re.search(rf"^ *proved +{claim}\b|^ *{claim}: +proved|{claim}.*proved", verified, re.M), verified
    place.run("""sed 's/"text":"/"text":"X/' answer.json > changed.json""")
    refuted = place.attempt("chunkproof verify changed.json --key seal.key.pub")
    assert (refuted.returncode, "refuted" in refuted.stdout) == (1, True), refuted.stdout


def check_a_frozen_function(place: Workplace, update: Callable[[], str]) -> None:
    """A container that Lambda froze during an update answers with the old text, then with the new one."""
    body = {"query_text": "robot", "filters": {"chunk_id": "languages-00"}, "top_k": 1}
    http = {"method": "POST", "path": "/search", "sourceIp": "192.0.2.1"}
    context = {"http": http, "requestId": "r", "routeKey": "POST /search", "stage": "$default"}
    event = {
        "version": "2.0",
        "routeKey": "POST /search",
        "rawPath": "/search",
        "headers": {},
        "body": json.dumps(body),
    }
    event |= {"rawQueryString": "", "requestContext": context, "isBase64Encoded": False}
    folder = place.folder / "container"
    folder.mkdir()

    def ask() -> str:
        container.thaw()
        answer = container.call(event)
        container.freeze()
        return str(json.loads(answer["body"])["results"][0]["text"])

    with place.aws.start_container(place.stack.outputs["SearchFunctionName"], TMPDIR=str(folder)) as container:
        old = ask()
        looked = time.monotonic()
        new = update()
        time.sleep(max(0.0, CHECK_EVERY_S + 1 - (time.monotonic() - looked)))
        answers = [ask()]
        while answers[-1] == old and len(answers) < 100:
            time.sleep(0.05)
            answers.append(ask())
    assert (answers[0], answers[-1]) == (old, new)
    assert set(answers) == {old, new}, "never parts of two versions"


def update_and_prune(place: Workplace, publish: str) -> str:
    """A changed chunk is found once it is published, and still after --prune has left one version; return its text."""
    body = json.dumps({"query_text": "robot", "filters": {"chunk_id": "languages-00"}, "top_k": 1})
    search = re.sub("-d '[^']+'", f"-d '{body}'", guide_commands(1)[0])
    for command in (
        'sed -i \'1s/"text": "X/"text": "Changed. /\' chunks.jsonl',
        "chunkproof load chunks.jsonl --collection handbook --data data",
        publish,
        f"{publish} --prune --keep 1",
    ):
        before = json.loads(place.run(f"{publish} --list --json 2>/dev/null"))["versions"]
        place.run(command)
    after = json.loads(place.run(f"{publish} --list --json 2>/dev/null"))["versions"]
    assert (len(before), after) == (2, before[:1])
    text = str(json.loads(place.run(search))["results"][0]["text"])
    assert text.startswith("Changed. ")
    return text


def run_audit(place: Workplace, bucket: str, audit_id: str = "a", planted: str = "") -> dict[str, Any]:
    """Take the steps of the state machine with the deployed function: every chunk that was published.

    `planted` is what sed does to the first line of the manifest: the stored chunk is then another one.
    """
    place.run("chunkproof manifest chunks.jsonl -o manifest.jsonl")
    if planted:
        place.run(f"sed -i '1{planted}' chunks.jsonl && chunkproof manifest chunks.jsonl -o manifest.jsonl")
    place.aws.client("s3").upload_file(str(place.folder / "manifest.jsonl"), bucket, "manifests/m.jsonl")
    step = partial(run_step, place, "audit", {"bucket": bucket, "audit_id": audit_id})
    step(step="split", manifest=f"s3://{bucket}/manifests/m.jsonl", collection="", shard_entries="100", given={})
    step(step="shard", shard=0)
    return step(step="merge")


def run_suite(place: Workplace, bucket: str) -> dict[str, Any]:
    """Take the steps of the state machine with the deployed function: one question."""
    case = {"name": "one", "query_text": "How do I rotate the key?", "expected_doc_ids": ["vectordb-security-00"]}
    suite = json.dumps({"name": "one", "cases": [case]})
    place.aws.client("s3").put_object(Bucket=bucket, Key="suite.json", Body=suite.encode())
    step = partial(run_step, place, "suite", {"bucket": bucket, "run_id": "r"})
    step(step="split", suite=f"s3://{bucket}/suite.json", collection="", source="", shard_cases="50")
    step(step="shard", shard=0)
    return step(step="merge")


def run_step(place: Workplace, name: str, shared: dict[str, str], **event: Any) -> dict[str, Any]:
    return place.aws.invoke_step(f"chunkproof-{name}", {**shared, **event})
