"""Warm: one search after another in processes that stay; and a validation by id beside the SDK's retrieve."""

from collections.abc import Mapping
from dataclasses import replace
from itertools import count as numbers

from bench import corpus
from bench.contestants import CHUNKPROOF, Contestant
from bench.process import ContestantError, Machine, Reply
from bench.results import Part
from bench.turns import check_agreement, search_event, validate_event, warm_rounds

TOP_K = 10


def measure_warm(contestants: Mapping[str, Contestant], machine: Machine, count: int) -> Part:
    """A search of ten chunks, each with a query of its own."""
    taken = warm_rounds(contestants, machine, count, lambda: search_event(TOP_K))
    check_agreement(taken, TOP_K)
    part = Part("warm", f"warm: one search of ten 2 KB chunks, {count} rounds in turn")
    for name, replies in taken.items():
        part.add(name, **columns(replies), peak_mb=[replies[-1].peak_mb])
    return part


def measure_by_id(validator: Contestant, bare: Contestant, machine: Machine, count: int) -> Part:
    """validate-chunk beside a bare retrieve and comparison."""
    number = numbers()
    both = {CHUNKPROOF: validator, "bare_sdk": replace(bare, handler="bare_sdk.validate_handler")}
    taken = warm_rounds(both, machine, count, lambda: validate_event(next(number) * 7 % corpus.POINTS))
    for name, replies in taken.items():
        if not all(reply.body["matches"] is True for reply in replies):
            raise ContestantError(f"{name} did not find a stored text equal to its original")
    part = Part("by_id", f"by id: validate-chunk beside a bare retrieve, {count} rounds in turn")
    for name, replies in taken.items():
        part.add(name, **columns(replies))
    return part


def columns(replies: list[Reply]) -> dict[str, list[float]]:
    """Time of the handler alone: an event in, a proxy answer out."""
    return {
        "wall_ms": [reply.wall_ms for reply in replies],
        "cpu_ms": [reply.cpu_ms for reply in replies],
    }
