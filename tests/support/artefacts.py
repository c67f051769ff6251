"""Run a handler as Lambda does: in a process with the built artefacts, the runtime's packages and nothing else."""

import json
import subprocess
import textwrap
from pathlib import Path
from typing import Any

import boto3

from support.python313 import python313

# The packages of Lambda's runtime.
RUNTIME = ("boto3", "botocore", "s3transfer", "jmespath", "dateutil", "six.py", "urllib3")
CALL = """
    import json, sys
    import app
    class Context:
        aws_request_id = "a-request"
        function_name = __import__("os").environ.get("AWS_LAMBDA_FUNCTION_NAME", "f")
        memory_limit_in_mb = 1024
        invoked_function_arn = "arn:aws:lambda:us-east-1:123456789012:function:f"
        def get_remaining_time_in_millis(self):
            return 900000
    answer = app.lambda_handler(json.load(sys.stdin), Context())
    stale = [m.__name__ for m in list(sys.modules.values()) if (getattr(m, "__cached__", None) or "").endswith(".pyc")
             and "layer" in m.__cached__ and not __import__("os").path.exists(m.__cached__)]
    print("ANSWER" + json.dumps({"answer": answer, "stale": stale}))
"""


def link_runtime_packages(folder: Path) -> Path:
    """Link the runtime's own packages into a folder for the path."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in RUNTIME:
        (folder / name).symlink_to(Path(boto3.__file__).parents[1] / name)
    return folder


def call_handler(
    event: dict[str, Any], environment: dict[str, str], printed_lines: list[str] | None = None
) -> dict[str, Any]:
    """Call the handler in a process without other packages; return its response, and what it printed in the list."""
    own = {"PYTHONDONTWRITEBYTECODE": "1", "POWERTOOLS_SERVICE_NAME": "chunkproof"}
    run = subprocess.run(
        [str(python313()), "-S", "-W", "error::ImportWarning", "-c", textwrap.dedent(CALL)],
        input=json.dumps(event),
        env={**own, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr[-2000:]
    if printed_lines is not None:
        printed_lines += run.stdout.split("ANSWER")[0].splitlines()
    printed = json.loads(run.stdout.split("ANSWER")[1])
    assert printed["stale"] == []
    answer: dict[str, Any] = printed["answer"]
    return answer
