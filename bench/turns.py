"""Rounds in which every contestant has its turn, so that what else the machine does weighs on all alike."""

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack

from bench import corpus
from bench.bootstrap import QUICK_ACK
from bench.contestants import Contestant
from bench.process import ContestantError, Machine, Process, Reply
from support.api import post

Taken = dict[str, list[Reply]]
_queries = corpus.queries()


def search_event(top_k: int) -> bytes:
    """A search as API Gateway hands it over, with a query that was never asked before."""
    return _line("/search", {"query_text": next(_queries), "top_k": top_k})


def validate_event(number: int) -> bytes:
    """A validation of a chunk that matches."""
    asked = {"chunk_id": corpus.id_of(number), "original_text": corpus.text_of(number)}
    return _line("/validate-chunk", asked)


def many_event(count: int, *, searches: bool) -> bytes:
    """So many searches, or validations of chunks that match, in one request."""
    if searches:
        return _line("/search", {"queries": [{"query_text": next(_queries), "top_k": 1} for _ in range(count)]})
    chunks = [{"chunk_id": corpus.id_of(number), "original_text": corpus.text_of(number)} for number in range(count)]
    return _line("/validate-chunks", {"chunks": chunks})


def _line(path: str, document: Mapping[str, object]) -> bytes:
    return json.dumps(post(path, document)).encode()


def order(names: list[str], number: int) -> list[str]:
    """Who begins changes from round to round."""
    first = number % len(names)
    return [*names[first:], *names[:first]]


def rounds(names: list[str], count: int, ask: Callable[[str, int], Reply]) -> Taken:
    """Each one's replies; the same round asks all the same."""
    taken: Taken = {name: [] for name in names}
    for number in range(count):
        for name in order(names, number):
            taken[name].append(ask(name, number))
    return taken


def check_texts_agree(texts: Mapping[str, list[str]], count: int) -> None:
    """Refuse to compare what does not answer alike."""
    first, *others = texts
    if len(texts[first]) != count:
        raise ContestantError(f"{first} found {len(texts[first])} chunks instead of {count}")
    for other in others:
        if texts[other] != texts[first]:
            raise ContestantError(f"{other} did not find what {first} found, in that order")


def running(contestants: Mapping[str, Contestant], machine: Machine, stack: ExitStack) -> Iterator[tuple[str, Process]]:
    """A long-lived process for each, ended with the stack."""
    for name, who in contestants.items():
        yield name, stack.enter_context(Process(who, machine, QUICK_ACK))


def warm_rounds(
    contestants: Mapping[str, Contestant],
    machine: Machine,
    count: int,
    event: Callable[[], bytes],
    warm_up: int = 20,
) -> Taken:
    """Rounds over long-lived processes, the first ones not counted."""
    events = [event() for _ in range(warm_up + count)]
    with ExitStack() as stack:
        processes = dict(running(contestants, machine, stack))
        taken = rounds(list(processes), len(events), lambda name, number: processes[name].ask(events[number]))
    return {name: replies[warm_up:] for name, replies in taken.items()}


def check_agreement(taken: Taken, count: int) -> None:
    """Every round's answers hold the same texts."""
    for replies in zip(*taken.values(), strict=True):
        check_texts_agree({name: reply.texts for name, reply in zip(taken, replies, strict=True)}, count)
