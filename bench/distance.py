"""Distance: the same contestants with services that are not on this machine, warm and in a fresh process.

Proxies delay every byte (`far_process`), with TLS. What cannot be avoided: a first answer takes three round trips to
Cohere (connection, TLS, request) and one to Qdrant, whose connection can be opened meanwhile; a warm one takes one to
each. The floor does exactly that, through the same proxies, so that what they and the services take is in it.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

import trustme

from bench.contestants import CHUNKPROOF, Contestant
from bench.process import ContestantError, Machine, Process, Reply
from bench.results import Part
from bench.servers import ADDRESS, ROOT, Services
from bench.share import cgroup, share_of
from bench.turns import check_agreement, many_event, rounds, search_event, warm_rounds

QDRANT_MS = (2, 30)
COHERE_MS = 120
SECRET_MS = 15
SEED = 7
TOP_K = 10
WARM_UP = 3
# As many as a request may have.
MOST_QUERIES, MOST_VALIDATIONS = 32, 100
MEMORY_MB = 1_024


@contextmanager
def far_services(near: Services, qdrant_ms: int) -> Iterator[dict[str, str]]:
    """Both services and the secret at a distance: the variables that take the place of the near ones."""
    delays = {near.qdrant_url: qdrant_ms, near.cohere_url: COHERE_MS}
    targets = [f"{urlsplit(url).netloc}={ms}" for url, ms in delays.items()]
    targets.append(f"{urlsplit(near.cohere_url).netloc}={SECRET_MS}")
    with tempfile.TemporaryDirectory() as folder:
        authority = trustme.CA()
        chain, trusted = Path(folder) / "chain.pem", Path(folder) / "ca.pem"
        authority.issue_cert(ADDRESS).private_key_and_cert_chain_pem.write_to_path(str(chain))
        authority.cert_pem.write_to_path(str(trusted))
        process = subprocess.Popen(
            [sys.executable, "-m", "bench.far_process", ADDRESS, chain, str(SEED), *targets],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": f"{ROOT / 'tests'}{os.pathsep}{ROOT}"},
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        try:
            assert process.stdout is not None
            qdrant, cohere, secret = (f"https://{ADDRESS}:{port}" for port in process.stdout.readline().split())
            yield {
                "QDRANT_URL": qdrant,
                "COHERE_BASE_URL": cohere,
                "AWS_ENDPOINT_URL_SECRETS_MANAGER": secret,
                "SSL_CERT_FILE": str(trusted),
                "AWS_CA_BUNDLE": str(trusted),
            }
        finally:
            process.kill()
            process.wait()
            if process.stdout:
                process.stdout.close()


def measure_far_warm(contestants: Mapping[str, Contestant], machine: Machine, ms: int, count: int) -> Part:
    """One search after another, in processes that stay."""
    taken = warm_rounds(contestants, machine, count, lambda: search_event(TOP_K), WARM_UP)
    check_agreement(taken, TOP_K)
    part = Part(f"far_warm_{ms}", f"distance, warm: {_distances(ms)}, {count} rounds in turn")
    for name, replies in taken.items():
        part.add(name, wall_ms=[reply.wall_ms for reply in replies], cpu_ms=[reply.cpu_ms for reply in replies])
    return part


def measure_far_first(
    contestants: Mapping[str, Contestant], machine: Machine, name: str, about: str, count: int
) -> Part:
    """A fresh process up to its first answer: all of it, and what comes after the imports."""
    events = [search_event(TOP_K) for _ in range(count + 1)]

    def start(who: str, number: int) -> Reply:
        with Process(contestants[who], machine) as process:
            return process.ask(events[number])

    taken = rounds(list(contestants), count + 1, start)
    check_agreement(taken, TOP_K)
    part = Part(name, f"distance, first answer of a fresh process: {about}, {count} rounds in turn")
    for who, replies in taken.items():
        counted = replies[1:]  # the first fills the page cache
        part.add(
            who,
            wall_ms=[reply.since_spawn_ms for reply in counted],
            imports_ms=[reply.imports_ms for reply in counted],
            after_imports_ms=[reply.since_spawn_ms - reply.imports_ms for reply in counted],
            cpu_ms=[reply.process_cpu_ms for reply in counted],
        )
    return part


def measure_far_many(ours: Contestant, validator: Contestant, machine: Machine, ms: int, count: int) -> Part:
    """Many searches or validations in one request, beside one: they share its round trips."""
    part = Part("far_many", f"distance, many in one request: {_distances(ms)}, {count} rounds in turn")
    for who, what, most in ((ours, "searches", MOST_QUERIES), (validator, "validations", MOST_VALIDATIONS)):
        with Process(who, machine) as process:
            for number in range(-WARM_UP, count):
                for size in (1, most):
                    reply = process.ask(many_event(size, searches=who is ours))
                    answers = reply.body["responses" if who is ours else "results"]
                    if [answer["status"] for answer in answers] != ["success"] * size:
                        raise ContestantError(f"not all of {size} {what} were answered")
                    if number >= 0:
                        part.extend(f"{what}: {size}", wall_ms=reply.wall_ms, cpu_ms=reply.cpu_ms)
    return part


def measure_distance(
    contestants: Mapping[str, Contestant],
    validator: Contestant,
    machine: Machine,
    services: Services,
    cold: int,
    warm: int,
) -> Iterator[Part]:
    """Warm and first answers at each distance; at the greater one also with a secret, and with Lambda's share."""
    for ms in QDRANT_MS:
        with far_services(services, ms) as far:
            away = replace(machine, services={**services.variables, **far})
            yield measure_far_warm(contestants, away, ms, warm)
            fresh = {name: who for name, who in contestants.items() if name != "bare_sdk"}
            yield measure_far_first(fresh, away, f"far_first_{ms}", _distances(ms), cold)
            if ms != max(QDRANT_MS):
                continue
            yield measure_far_many(contestants[CHUNKPROOF], validator, away, ms, warm)
            with_secret = {name: who for name, who in fresh.items() if name in ("chunkproof", "plain")}
            keyless = replace(machine, services={**services.variables_with_secret, **far})
            about = f"{_distances(ms)}, the key in Secrets Manager {SECRET_MS} ms away"
            yield measure_far_first(with_secret, keyless, f"far_secret_{ms}", about, cold)
            share = share_of(MEMORY_MB)
            with cgroup(share) as group:
                how = "by cgroup" if group else "by repeated stops"
                about = f"{_distances(ms)}, {share:.2f} of a processor ({how}), as Lambda gives {MEMORY_MB:,} MB"
                small = replace(away, share=share, group=group)
                yield measure_far_first(fresh, small, f"far_share_{ms}", about, cold)


def _distances(ms: int) -> str:
    return f"Qdrant {ms} ms, Cohere {COHERE_MS} ms away, TLS"
