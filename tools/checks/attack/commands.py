"""Commands in processes of their own, forked from this one: what takes time is their work, and not their imports."""

import os
import signal
import sys
import time
import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import qdrant_client  # noqa: F401 - imported before the fork, as what the commands below import
import tokenizers  # noqa: F401

import chunkproof_cli.commands.audit
import chunkproof_cli.commands.load
import chunkproof_cli.commands.manifest
import chunkproof_cli.commands.serve
import chunkproof_cli.commands.suite_run  # noqa: F401
from chunkproof.embedders.local_model import import_onnxruntime, local_model
from chunkproof.stores import edge, server  # noqa: F401
from chunkproof_cli.main import main

import_onnxruntime()
_running: set[int] = set()


@dataclass(frozen=True)
class Process:
    """A running command; its output goes to files in `folder`."""

    pid: int
    folder: Path
    name: str
    started: float

    def kill(self, how: signal.Signals) -> None:
        os.kill(self.pid, how)

    def wait(self) -> "Ended":
        _, status = os.waitpid(self.pid, 0)
        _running.discard(self.pid)
        out, err = ((self.folder / f"{self.name}.{kind}").read_text("utf-8") for kind in ("out", "err"))
        return Ended(os.waitstatus_to_exitcode(status), out, err, time.monotonic() - self.started)


@dataclass(frozen=True)
class Ended:
    """How a command ended: its exit code, or minus the number of the signal that killed it."""

    code: int
    out: str
    err: str
    seconds: float


def start(folder: Path, name: str, *arguments: object, env: Mapping[str, str] | None = None) -> Process:
    """Start `chunkproof` with these arguments, in this folder."""
    started = time.monotonic()
    for kind in ("out", "err"):  # it may be killed before it opens them
        (folder / f"{name}.{kind}").write_bytes(b"")
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid:
        _running.add(pid)
        return Process(pid, folder, name, started)
    code = 70
    try:
        for number, kind in ((1, "out"), (2, "err")):
            os.dup2(os.open(folder / f"{name}.{kind}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
        sys.stdout, sys.stderr = (os.fdopen(number, "w", encoding="utf-8", closefd=False) for number in (1, 2))
        os.chdir(folder)
        os.environ.update(env or {})
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        local_model.cache_clear()  # a loaded model does not survive a fork
        sys.argv = ["chunkproof", *map(str, arguments)]
        main()
        code = 0
    except SystemExit as exit_:
        code = exit_.code if isinstance(exit_.code, int) else 0
    except BaseException:  # noqa: BLE001 - the child must not go on as its parent
        traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os._exit(code)


def stop_all() -> None:
    """Kill the commands that still run, when an attack ends before they do."""
    for pid in tuple(_running):
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        _running.discard(pid)
