"""Texts and addresses hidden somewhere in a payload, in forms chosen at random: `absent` finds each, and no others."""

from random import Random
from time import process_time
from typing import Any

from chunkproof.audit.absence import Search, Subject
from chunkproof.collection.reader import Reader
from chunkproof.proof.integrity import digest
from chunkproof.stores.store_port import Point

from support.chunks import make_services
from support.forms import TEXTS, URLS, hide_address, hide_text
from support.stores import MemoryStore
from tools.checks.attack.attack import Attack

# Of forms in one step each is found that is not named in KNOWN; of those in several steps, this share.
KNOWN = (
    "Punycode",
    "Greek look-alikes",
    "chunks of Base64",
    "xxd",
    "UTF-7",
    "AMP page",
    "package",
    "ROT13",
    "translated",
)
SHARES = {1: 1.0, 2: 0.85, 3: 0.5}
ENOUGH = 40


def run(attack: Attack) -> None:
    """Hide something in each of several points, and look for it and for what is not there."""
    store = MemoryStore()
    reader = Reader(make_services(store, "docs"), "docs")
    tried = {depth: [0, 0] for depth in SHARES}
    while attack.goes_on():
        started = process_time()
        wrong = _try(attack.rng, reader, tried)
        attack.note(process_time() - started, wrong)
    store.close()


def _try(rng: Random, reader: Reader, tried: dict[int, list[int]]) -> str | None:
    is_url, depth = rng.random() < 0.3, rng.choice((1, 1, 2, 3))
    secret = rng.choice(URLS) if is_url else rng.choice(list(TEXTS.values()))
    other = f"{secret}-2" if is_url else "".join(rng.sample("abcdefghijklmnopqrstuvwxyz", 20))
    hidden = (hide_address if is_url else hide_text)(rng, secret, depth)
    if hidden is None or any(name in hidden[0] for name in KNOWN):
        return None
    point = Point(rng.randrange(10**9), {"text": "Redacted.", "raw": hidden[1]})
    tried[depth][0] += 1
    tried[depth][1] += look_for(secret, is_url, point, reader)
    if look_for(other, is_url, point, reader):
        return f"found what is not there: {other!r} in {point.payload}"
    most, found = tried[depth]
    if (depth == 1 or most >= ENOUGH) and found < SHARES[depth] * most:
        tried[depth][1] = most
        return f"said absent: {secret!r} in {hidden[0]}: {point.payload}"
    return None


def look_for(what: str, is_url: bool, point: Any, reader: Reader) -> bool:
    """Whether a text or an address is found in a point."""
    subject = Subject(what, "url") if is_url else Subject("secret", "text", what, digest(what))
    search = Search([subject])
    search._compare(point, reader)
    return bool(search.hits_total)
