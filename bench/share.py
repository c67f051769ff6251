"""A share of a processor, as Lambda gives a function by its memory: by cgroup where one can be made, else by stops."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event, Thread

# Lambda gives a whole processor at 1,769 MB.
MB_PER_PROCESSOR = 1_769
PERIOD_US = 20_000
CGROUPS = Path("/sys/fs/cgroup")


def share_of(memory_mb: int) -> float:
    """The share of a processor that a function of this memory gets; more than one of one thread has no use."""
    return min(1.0, memory_mb / MB_PER_PROCESSOR)


@contextmanager
def cgroup(share: float) -> Iterator[Path | None]:
    """Make a group whose processes share this part of a processor; None where this user cannot make one."""
    group = _make_group(int(share * PERIOD_US))
    try:
        yield group
    finally:
        if group:
            group.rmdir()


def _make_group(quota: int) -> Path | None:
    for parent, limits in (
        (CGROUPS / "cpu", {"cpu.cfs_period_us": f"{PERIOD_US}", "cpu.cfs_quota_us": f"{quota}"}),
        (CGROUPS, {"cpu.max": f"{quota} {PERIOD_US}"}),
    ):
        group = parent / f"chunkproof-bench-{os.getpid()}"
        if not (parent / "cgroup.procs").exists():
            continue
        with suppress(OSError):
            group.mkdir()
            try:
                for file, value in limits.items():
                    (group / file).write_text(value, "ascii")
            except OSError:
                group.rmdir()
                raise
            return group
    return None


class Stops:
    """Stops a process for a part of every period, until it is closed."""

    def __init__(self, pid: int, share: float) -> None:
        self._pid, self._share = pid, share
        self._ended = Event()
        self._thread = Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        period = PERIOD_US / 1e6
        with suppress(ProcessLookupError):
            while not self._ended.wait(period * self._share):
                os.kill(self._pid, signal.SIGSTOP)
                self._ended.wait(period * (1 - self._share))
                os.kill(self._pid, signal.SIGCONT)

    def close(self) -> None:
        self._ended.set()
        self._thread.join()
