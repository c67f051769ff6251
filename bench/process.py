"""A contestant's process as the harness sees it: events in, answers and figures out."""

import json
import os
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter_ns
from typing import Any, Self

from bench.contestants import Contestant
from bench.share import Stops

BOOTSTRAP = Path(__file__).with_name("bootstrap.py")
# -S and -P: nothing on the path but what is named, as in Lambda. -B: no bytecode is written.
OPTIONS = ("-S", "-P", "-B")


class ContestantError(Exception):
    """A contestant failed, or answered something else than the others; the message says which and how."""


@dataclass(frozen=True)
class Machine:
    """What all processes share: the interpreter, the runtime's packages, the services, where logs go."""

    python: Path
    runtime: Path
    services: Mapping[str, str]
    logs: int
    # Of a processor, for each process; by the group, or else by stops.
    share: float = 1.0
    group: Path | None = None

    def environment(self, who: Contestant) -> dict[str, str]:
        """All variables of the process; nothing is inherited."""
        return {
            "PATH": "/usr/local/bin:/usr/bin:/bin",
            "HOME": tempfile.gettempdir(),
            "LANG": "en_US.UTF-8",
            "TZ": ":UTC",
            "PYTHONPATH": os.pathsep.join(map(str, [*who.path, self.runtime])),
            "AWS_REGION": "us-east-1",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_EXECUTION_ENV": "AWS_Lambda_python3.13",
            "AWS_LAMBDA_FUNCTION_NAME": "bench",
            "AWS_LAMBDA_FUNCTION_MEMORY_SIZE": "1024",
            "AWS_LAMBDA_INITIALIZATION_TYPE": "on-demand",
            "LAMBDA_TASK_ROOT": str(who.task),
            "POWERTOOLS_SERVICE_NAME": "bench",
            "POWERTOOLS_METRICS_NAMESPACE": "Bench",
            **dict(who.settings),
            **self.services,
            "COLLECTION": who.collection,
            "CHUNKPROOF_COLLECTION": who.collection,
        }


@dataclass(frozen=True)
class Reply:
    """An answer, and what it cost.

    `since_spawn_ms` is for a first one: from before the spawn to the answer read; `imports_ms` until the handler was
    imported.
    """

    answer: dict[str, Any]
    wall_ms: float
    cpu_ms: float
    since_spawn_ms: float
    imports_ms: float
    process_cpu_ms: float
    peak_mb: float

    @property
    def body(self) -> Any:
        return json.loads(self.answer["body"])

    @property
    def texts(self) -> list[str]:
        """What was found, best first."""
        return [result["text"] for result in self.body["results"]]


class Process:
    """One running handler; ends with the block."""

    def __init__(self, who: Contestant, machine: Machine, *options: str) -> None:
        self._who = who
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the process
        reading, writing = os.pipe()
        self._spawned = perf_counter_ns()
        # The shell joins the group, and becomes the process.
        join = ["/bin/sh", "-c", f'echo $$ > {machine.group}/cgroup.procs; exec "$@"', "sh"] if machine.group else []
        self._process = subprocess.Popen(
            [*join, machine.python, *OPTIONS, BOOTSTRAP, who.handler, str(writing), *options],
            stdin=subprocess.PIPE,
            stdout=machine.logs,
            stderr=self._errors,
            pass_fds=(writing,),
            env=machine.environment(who),
            cwd=who.task,
            start_new_session=True,  # Ctrl-C is for the harness, which ends this process in turn
        )
        is_stopped = machine.share < 1 and machine.group is None
        self._stops = Stops(self._process.pid, machine.share) if is_stopped else None
        os.close(writing)
        self._answers = os.fdopen(reading, "rb")

    def ask(self, event: bytes) -> Reply:
        """One event through the handler."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(event + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            pass  # it ended; there will be no answer
        line = self._answers.readline()
        read = perf_counter_ns()
        figures = self._answers.readline()
        if not figures:
            raise ContestantError(f"{self._who.title} ended without an answer:\n{self._trouble()}")
        answer, measured = json.loads(line), json.loads(figures)
        if answer["statusCode"] != 200:
            raise ContestantError(f"{self._who.title} answered {answer['statusCode']}: {answer['body'][:500]}")
        return Reply(
            answer,
            measured["wall_ns"] / 1e6,
            measured["cpu_ns"] / 1e6,
            (read - self._spawned) / 1e6,
            (measured["ready_ns"] - self._spawned) / 1e6,
            measured["process_cpu_ns"] / 1e6,
            measured["peak_kb"] / 1024,
        )

    def _trouble(self) -> str:
        self._process.wait()
        self._errors.seek(0)
        return self._errors.read().decode("utf-8", "replace")[-2000:]

    def close(self) -> None:
        if self._stops:
            self._stops.close()
        self._process.kill()
        self._process.wait()
        if self._process.stdin:
            self._process.stdin.close()
        self._answers.close()
        self._errors.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
