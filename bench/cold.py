"""Cold: a fresh process up to its first answer, from unpacked artefacts, with the page cache warm."""

from collections.abc import Mapping

from bench.artefacts import bytecode_in
from bench.contestants import Contestant
from bench.process import ContestantError, Machine, Process, Reply
from bench.results import Part
from bench.turns import check_agreement, rounds, search_event

TOP_K = 10


def measure_cold(
    contestants: Mapping[str, Contestant], machine: Machine, count: int, name: str = "cold", note: str = ""
) -> Part:
    """Wall and CPU time from before the spawn to the answer, and the memory at its peak."""
    before = {name: bytecode_in(who.folder) for name, who in contestants.items()}
    events = [search_event(TOP_K) for _ in range(count + 1)]

    def start(name: str, number: int) -> Reply:
        with Process(contestants[name], machine) as process:
            return process.ask(events[number])

    taken = rounds(list(contestants), count + 1, start)
    check_agreement(taken, TOP_K)
    if before != {name: bytecode_in(who.folder) for name, who in contestants.items()}:
        raise ContestantError("a cold start wrote bytecode, so that the next one was not cold")
    title = f"cold: a fresh process up to its first answer, {count} rounds in turn, page cache warm{note}"
    part = Part(name, title)
    for who, replies in taken.items():
        counted = replies[1:]  # the first fills the page cache
        part.add(
            who,
            wall_ms=[reply.since_spawn_ms for reply in counted],
            cpu_ms=[reply.process_cpu_ms for reply in counted],
            peak_mb=[reply.peak_mb for reply in counted],
        )
    return part
