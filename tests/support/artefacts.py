"""Run a handler as Lambda does: in a process with the built artefacts, the runtime's packages and nothing else."""

import json
import signal
import subprocess
import textwrap
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, Self

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
    for line in sys.stdin:
        answer = app.lambda_handler(json.loads(line), Context())
        stale = [m.__name__ for m in list(sys.modules.values())
                 if (getattr(m, "__cached__", None) or "").endswith(".pyc")
                 and "layer" in m.__cached__ and not __import__("os").path.exists(m.__cached__)]
        print("ANSWER" + json.dumps({"answer": answer, "stale": stale}), flush=True)
"""


def link_runtime_packages(folder: Path) -> Path:
    """Link the runtime's own packages into a folder for the path."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in RUNTIME:
        (folder / name).symlink_to(Path(boto3.__file__).parents[1] / name)
    return folder


class Container:
    """A process without other packages that answers events; what it prints besides goes to the list."""

    def __init__(self, environment: dict[str, str], printed_lines: list[str] | None = None) -> None:
        own = {"PYTHONDONTWRITEBYTECODE": "1", "POWERTOOLS_SERVICE_NAME": "chunkproof"}
        self._printed = [] if printed_lines is None else printed_lines
        self._errors = TemporaryFile("w+")  # noqa: SIM115 - closed with the process
        self._process = subprocess.Popen(
            [str(python313()), "-S", "-W", "error::ImportWarning", "-c", textwrap.dedent(CALL)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env={**own, **environment},
            text=True,
        )

    def call(self, event: dict[str, Any]) -> dict[str, Any]:
        """Return what the handler returns; it must not raise."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps(event), file=self._process.stdin, flush=True)
        while not (line := self._process.stdout.readline()).startswith("ANSWER"):
            if not line:
                self._errors.seek(0)
                raise AssertionError(self._errors.read()[-2000:])
            self._printed.append(line.rstrip("\n"))
        printed = json.loads(line.removeprefix("ANSWER"))
        assert printed["stale"] == []
        answer: dict[str, Any] = printed["answer"]
        return answer

    def freeze(self) -> None:
        """Stop it, as Lambda does between two events."""
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()
        self._errors.close()


def call_handler(event: dict[str, Any], environment: dict[str, str]) -> dict[str, Any]:
    """Call the handler in a process of its own; return its response."""
    with Container(environment) as container:
        return container.call(event)
