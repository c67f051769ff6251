"""Before a new version gets traffic, send it one search and one validation, as the gateway would."""

import json
import os
from collections.abc import Mapping
from typing import Any

QUESTION = {"query_text": "What is this about?", "top_k": 1}
ABSENT = {"chunk_id": "no-such-chunk", "original_text": "text"}

Answer = dict[str, Any]


def lambda_handler(event: Mapping[str, str], _context: object) -> str | None:
    """Tell CodeDeploy whether the new versions may have traffic; return what is wrong with them."""
    problem = find_problem()
    print(json.dumps({"message": "rollout", "problem": problem}))
    _client("codedeploy").put_lifecycle_event_hook_execution_status(
        deploymentId=event["DeploymentId"],
        lifecycleEventHookExecutionId=event["LifecycleEventHookExecutionId"],
        status="Failed" if problem else "Succeeded",
    )
    return problem


def find_problem() -> str | None:
    """Say which request the new version answers worse than the live one; None if it answers both as well."""
    found, problem = _compare("SEARCH", "/search", QUESTION)
    if problem:
        return problem
    results = found.get("results") or []
    chunk = {"chunk_id": results[0]["metadata"]["chunk_id"], "original_text": results[0]["text"]} if results else ABSENT
    return _compare("VALIDATION", "/validate-chunk", chunk)[1]


def _compare(name: str, path: str, body: Mapping[str, Any]) -> tuple[Answer, str | None]:
    """Ask the new version and, where it fails, the live one: a failure of both is no fault of the release."""
    answer, outcome = _ask(os.environ[f"NEW_{name}"], path, body)
    if outcome == "200":
        return answer, None
    _, before = _ask(os.environ[f"LIVE_{name}"], path, body)
    problem = None if outcome == before else f"POST {path}: the new version gives {outcome}, the live one {before}"
    return answer, problem


def _ask(function: str, path: str, body: Mapping[str, Any]) -> tuple[Answer, str]:
    """Call a version; return the body of its answer, and the outcome: the status and the problem, if there is one."""
    event = {
        "version": "2.0",
        "routeKey": f"POST {path}",
        "rawPath": path,
        "rawQueryString": "",
        "headers": {"content-type": "application/json"},
        "requestContext": {
            "http": {"method": "POST", "path": path},
            "requestId": "rollout",
            "routeKey": f"POST {path}",
            "stage": "$default",
        },
        "body": json.dumps(body),
        "isBase64Encoded": False,
    }
    reply = _client("lambda").invoke(FunctionName=function, Payload=json.dumps(event).encode())
    proxy = json.loads(reply["Payload"].read())
    if reply.get("FunctionError"):
        return {}, f"a crash: {proxy.get('errorMessage')}"
    answer: Answer = json.loads(proxy["body"])  # plain: the event accepts no encoding
    code = (answer.get("error") or {}).get("code")
    parts = [str(proxy["statusCode"]), code, "a mismatch" if answer.get("matches") is False else None]
    return answer, " ".join(part for part in parts if part)


def _client(service: str) -> Any:
    import boto3  # of Lambda's runtime

    return boto3.client(service)
