"""`make receipt-oracle`: tamper with thousands of receipts, and see that each is refused for the right reason.

The attacker holds the tiles and may compute new proofs, but has no key. Every document is also judged by the verifier
of docs/verify.html, run by node: both must agree on every claim that is checked offline.
"""

import copy
import json
import logging
import random
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from shutil import which
from time import monotonic
from typing import Any
from unicodedata import normalize
from uuid import UUID

import click

from chunkproof.collection.reader import Reader
from chunkproof.collection.services import Services
from chunkproof.contract import SearchQuery
from chunkproof.seals.entries import vector_bytes
from chunkproof.seals.notes import digest, encode
from chunkproof.seals.receipts import Claim, Evidence, Repetition, verify_receipt
from chunkproof.seals.sealing import Seal
from chunkproof.search.filters import map_filters
from chunkproof.stores.store_port import Point

from support.chunks import ask, fill, make_services
from support.seals import find_seal, new_signer, pack, seal, unpack
from support.stores import MemoryStore

VERIFIER = Path(__file__).with_suffix("").with_name("receipt_verifier.mjs")
SIZE, CHUNKS, TENANT = 6, 240, "t1"
OFFLINE = {"seal", "membership", "texts", "order", "request", "tenant"}
Document = Any


@dataclass
class World:
    """A sealed collection of two tenants, an older seal of it, and keys."""

    services: Services
    seal: Seal
    older: Seal
    key: str
    forged: Callable[[str], str]
    rng: random.Random
    answers: list[Document] = field(default_factory=list)

    def honest(self, collection: str = "docs") -> Document:
        """A response with its receipt."""
        rng = self.rng
        request: dict[str, Any] = {
            "query_vector": [rng.gauss(1 if at == 0 else 0, 1) for at in range(SIZE)],
            "top_k": rng.randint(4, 12),
            "receipt": rng.choice(["full", "full", True]),
            "collection": collection,
        }
        if rng.random() < 0.5:
            request["filters"] = {"part": rng.randrange(3)}
        if rng.random() < 0.3:
            request["similarity_threshold"] = 0.2
        if rng.random() < 0.4:
            request["with_payload"] = True
        answer = json.loads(ask(self.services.for_tenant(TENANT), **request).to_json())
        if rng.random() < 0.1:  # by a key that nobody was given, as in a log with witnesses
            answer["receipt"]["checkpoint"] += f"— witness.example {encode(rng.randbytes(68))}\n"
        return answer

    def full(self, *, payloads: bool | None = None) -> Document:
        """A copy of one with at least four results, and with the vector of its query; with payloads, or without."""
        while True:
            found = self.rng.choice(self.answers)
            has_payloads = "with_payload" in found["receipt"]["request"]
            if len(found["results"]) >= 4 and "query_vector" in found["receipt"] and payloads in (None, has_payloads):
                return unpack(copy.deepcopy(found))

    def prove(self, document: Document) -> None:
        """Compute the nodes again, as anyone with the tiles can."""
        rows = document["receipt"]["results"]
        tree = self.seal.whole if any("payload" in row["entry"] for row in rows) else self.seal.tree
        document["receipt"]["nodes"] = encode(b"".join(tree.prove([row["leaf"] for row in rows])))

    def judge(self, document: Document, keys: list[Any], *, again: bool) -> list[Claim]:
        """Verify a document, and search again if its kind needs that."""
        evidence = Evidence.parse(document)
        claims = verify_receipt(evidence, keys)
        if again:
            reader = Reader(self.services, self.services.settings.collection)
            filters = json.loads(document["receipt"]["request"].get("filters", "{}"))
            parsed = SearchQuery.parse({"query_text": "x", "filters": filters}).filters
            claims += Repetition(evidence, reader, map_filters(parsed, reader) if parsed else (), self.seal).run()[0]
        return claims


def renumber(document: Document) -> None:
    """Give the results of the response the ranks 1, 2, 3, …"""
    for rank, row in enumerate(document["results"], 1):
        row["rank"] = rank
    document["execution"]["result_count"] = len(document["results"])


def text(world: World, one: Document) -> None:
    result = world.rng.choice(one["results"])
    at = world.rng.randrange(len(result["text"]))
    kept = result["text"][at + world.rng.randrange(2) :]
    result["text"] = result["text"][:at] + world.rng.choice("§\u00a0\u200b") + kept


def score(world: World, one: Document) -> None:
    world.rng.choice(one["results"])["similarity_score"] += world.rng.choice([-0.001, 0.001, 1e-9])


def score_in_both(world: World, one: Document) -> None:
    row, result = one["receipt"]["results"][0], one["results"][0]
    row["score"], result["similarity_score"] = "0.9999", 0.9999
    if world.rng.random() < 0.5:
        low = float(one["receipt"]["request"]["similarity_threshold"])
        one["receipt"]["results"][-1]["score"], one["results"][-1]["similarity_score"] = repr(low), low


def order(world: World, one: Document) -> None:
    scores = [row["similarity_score"] for row in one["results"]]
    swap(one, world.rng.choice([at for at in range(len(scores) - 1) if scores[at] > scores[at + 1]]))


def equal_scores(world: World, one: Document) -> None:
    while not (ties := [at for at, (a, b) in enumerate(pairwise(one["results"])) if is_tie(a, b)]):
        one.clear()
        one.update(world.full())
    swap(one, world.rng.choice(ties))


def is_tie(one: Document, other: Document) -> bool:
    return bool(one["similarity_score"] == other["similarity_score"])


def swap(one: Document, at: int) -> None:
    for rows in (one["results"], one["receipt"]["results"]):
        rows[at], rows[at + 1] = rows[at + 1], rows[at]
    renumber(one)


def mixed(world: World, one: Document) -> None:
    """A chunk of another honest receipt instead of the first one."""
    taken = {row["leaf"] for row in one["receipt"]["results"]}
    rows: list[Any] = []
    while not rows:
        other = world.full(payloads="with_payload" in one["receipt"]["request"])
        pairs = zip(other["receipt"]["results"], other["results"], strict=True)
        rows = [pair for pair in pairs if pair[0]["leaf"] not in taken]
    row, result = world.rng.choice(rows)
    one["receipt"]["results"][0] |= {"leaf": row["leaf"], "entry": row["entry"]}
    one["results"][0] |= {name: result[name] for name in ("point_id", "text", "metadata", "payload") if name in result}
    world.prove(one)


def other_collection(world: World, one: Document) -> None:
    """An honest receipt of another collection, which the same key sealed."""
    one.clear()
    one.update(unpack(world.honest("other")))
    one["receipt"]["collection"] = one["execution"]["collection"] = "docs"


def unicode_equal(world: World, one: Document) -> None:
    result = world.rng.choice(one["results"])
    result["text"] = normalize("NFD", result["text"])


def odd_number(world: World, one: Document) -> None:
    row, odd = world.rng.choice(one["receipt"]["results"]), float(one["receipt"]["results"][0]["score"])
    row["score"] = world.rng.choice([odd, f" {odd}", "nan", "0x1", "1_0", "-0.0", "0.5e+1", [str(odd)], None])


def extra_field(world: World, one: Document) -> None:
    world.rng.choice(one["receipt"]["results"])["entry"]["note"] = world.rng.choice(["", None, 1, -0.0])


def emptied(world: World, one: Document) -> None:
    one["results"], one["receipt"]["results"], one["receipt"]["nodes"] = [], [], ""


def left_out(world: World, one: Document) -> None:
    scores = [row["similarity_score"] for row in one["results"]]
    at = world.rng.randrange(sum(score > scores[-1] + 1e-5 for score in scores))  # a tie proves nothing
    del one["results"][at], one["receipt"]["results"][at]
    renumber(one)
    world.prove(one)


def foreign_tenant(world: World, one: Document) -> None:
    at, taken = world.rng.randrange(len(one["results"])), {row["leaf"] for row in one["receipt"]["results"]}
    other = world.rng.choice([n for n in range(CHUNKS) if n not in taken and _tenant(world, n) != TENANT])
    has_payloads = "with_payload" in one["receipt"]["request"]
    entry = json.loads((world.seal.whole if has_payloads else world.seal.tree).entry(other))
    one["receipt"]["results"][at] |= {"leaf": other, "entry": entry}
    number = int(entry["point"])
    one["results"][at] |= {"point_id": number, "text": text_of(number)}
    if has_payloads:
        one["results"][at]["payload"] = payload_of(number)
    one["results"][at]["metadata"]["chunk_id"] = entry["chunk"]
    world.prove(one)


def _tenant(world: World, leaf: int) -> str:
    return f"t{int(json.loads(world.seal.tree.entry(leaf))['point']) % 2}"


def other_version(world: World, one: Document) -> None:
    one["receipt"]["checkpoint"] = world.older.note


def replayed(world: World, one: Document) -> None:
    one["receipt"] = world.full()["receipt"]


def cut_list(world: World, one: Document) -> None:
    del one["results"][world.rng.randrange(1, len(one["results"])) :]


def swapped_key(world: World, one: Document) -> None:
    one["receipt"]["checkpoint"] = world.forged(one["receipt"]["checkpoint"].rpartition("\n\n")[0] + "\n")


def changed_filter(world: World, one: Document) -> None:
    request = one["receipt"]["request"]
    # A filter that all results meet would make another receipt that is true.
    parts = {int(row["entry"]["point"]) % 3 for row in one["receipt"]["results"]}
    request["filters"] = json.dumps({"part": world.rng.choice([part for part in range(3) if parts != {part}])})


def truncated_path(world: World, one: Document) -> None:
    from base64 import b64decode

    nodes = b64decode(one["receipt"]["nodes"])
    kept = world.rng.choice([nodes[32:], nodes[:-32], nodes[:-1], nodes[:32] + nodes[64:], b""])
    one["receipt"]["nodes"] = encode(kept)


def edited_checkpoint(world: World, one: Document) -> None:
    lines = one["receipt"]["checkpoint"].split("\n")
    at, other = world.rng.choice([0, 1, 2, 3]), encode(world.rng.randbytes(32))
    lines[at] = ("x" + lines[0], str(int(lines[1]) + 1), other, lines[3].rpartition(" ")[0] + " " + other)[at]
    one["receipt"]["checkpoint"] = "\n".join(lines)


def edited_entry(world: World, one: Document) -> None:
    entry = world.rng.choice(one["receipt"]["results"])["entry"]
    entry[world.rng.choice(["text", "vector", "payload"])] = encode(world.rng.randbytes(32))


def moved_leaf(world: World, one: Document) -> None:
    row = world.rng.choice(one["receipt"]["results"])
    row["leaf"] = world.rng.choice([row["leaf"] ^ 1, row["leaf"] + CHUNKS, -1, str(row["leaf"]), 0.5])


def payload(world: World, one: Document) -> None:
    _with_payloads(world, one)
    edit_payload(world, one)


def payload_unproved(world: World, one: Document) -> None:
    """An edited payload, and a true proof of what most receipts prove, which has no payloads."""
    _with_payloads(world, one)
    edit_payload(world, one)
    for row in one["receipt"]["results"]:
        row["entry"] = json.loads(world.seal.tree.entry(row["leaf"]))
    world.prove(one)


def payload_added(world: World, one: Document) -> None:
    """A payload beside a receipt of a response that had none."""
    one.clear()
    one.update(world.full(payloads=False))
    result = world.rng.choice(one["results"])
    result["payload"] = payload_of(result["point_id"])


def both_trees(world: World, one: Document) -> None:
    """An entry of one tree among the entries of the other."""
    row = world.rng.choice(one["receipt"]["results"])
    tree = world.seal.tree if "payload" in row["entry"] else world.seal.whole
    row["entry"] = json.loads(tree.entry(row["leaf"]))
    if world.rng.random() < 0.5:
        world.prove(one)


def _with_payloads(world: World, one: Document) -> None:
    one.clear()
    one.update(world.full(payloads=True))


def edit_payload(world: World, one: Document) -> None:
    """Change, add or remove a field of one payload."""
    found = world.rng.choice(one["results"])["payload"]
    name = world.rng.choice([*found, "note"])
    found[name] = world.rng.choice(["", None, 7, str(found.get(name)) + " ", [found.get(name)]])
    if name != "note" and world.rng.random() < 0.3:
        del found[name]


def as_list(world: World, one: Document) -> None:
    """A list of one text for a text: joined, it would be the same."""
    receipt, result = pack(one)["receipt"], world.rng.choice(one["results"])
    texts = [(receipt, "checkpoint"), (receipt, "nodes"), (receipt["tenant"], "name"), (receipt["tenant"], "salt")]
    texts += [(result, "text"), (result, "point_id"), (one, "query_id"), (one["execution"], "collection")]
    holder, name = world.rng.choice(texts)
    holder[name] = [holder[name]]


def repeated(world: World, one: Document) -> None:
    """A result a second time, in the response too."""
    at = world.rng.randrange(len(one["results"]))
    for rows in (one["results"], one["receipt"]["results"]):
        rows.insert(at, copy.deepcopy(rows[at]))
    renumber(one)
    if world.rng.random() < 0.5:
        world.prove(one)


def added_result(world: World, one: Document) -> None:
    """More results in the response than in the receipt."""
    one["results"].append(copy.deepcopy(world.rng.choice(one["results"])))
    renumber(one)


def odd_nodes(world: World, one: Document) -> None:
    """Nodes beside no results, too many, or in another order."""
    from base64 import b64decode

    nodes = b64decode(one["receipt"]["nodes"])
    if world.rng.random() < 0.3:
        one["results"], one["receipt"]["results"] = [], []
    elif world.rng.random() < 0.5:
        one["receipt"]["nodes"] = encode(nodes + bytes(32))
    else:
        one["receipt"]["nodes"] = encode(nodes[32:64] + nodes[:32] + nodes[64:])


def odd_id(world: World, one: Document) -> None:
    """A shortened id that is none, or one of another point."""
    row = world.rng.choice(pack(one)["receipt"]["results"])
    odd = ["~", "~AAAA", "~AAAAAAAAAAAAAAAAAAAAAB", "~AAAAAAAAAAAAAAAAAAAAA=", "~~" + str(row[2]), "~" + str(row[2])]
    row[2] = world.rng.choice([*odd, [row[2]], 7, None, ""])


def odd_row(world: World, one: Document) -> None:
    """A result of too few or too many parts, or of others than a receipt has."""
    rows = pack(one)["receipt"]["results"]
    at = world.rng.randrange(len(rows))
    row = rows[at]
    odd = [
        row[:4],
        [*row[:5], {}, {}],
        [*row[:5], []],
        [*row[:5], {"tenant": None}],
        7,
        str(row),
        row[:3],
        None,
    ]
    rows[at] = world.rng.choice(odd)


def other_tenant(world: World, one: Document) -> None:
    """Another tenant's name, or another salt, where the entries name no tenant themselves."""
    tenant = pack(one)["receipt"]["tenant"]
    name, value = world.rng.choice([("name", "t0"), ("name", TENANT + " "), ("salt", encode(bytes(16))), ("salt", "")])
    tenant[name] = value


def odd_note(world: World, one: Document) -> None:
    """A checkpoint with two texts, other line ends, spaces, or a text that nobody signed in front."""
    note, older = one["receipt"]["checkpoint"], world.older.note
    text, _, signatures = note.rpartition("\n\n")
    odd = [older + "\n" + note, text + "\n" + older, text + "\n\n\n" + signatures, " " + note, note + "\n", note[:-1]]
    odd += [note.replace("\n", "\r\n"), note.replace("\n", "\n\n", 1)]
    one["receipt"]["checkpoint"] = world.rng.choice([*odd, older.rpartition("\n\n")[0] + "\n\n" + signatures])


def no_number(world: World, one: Document) -> None:
    """A vector of the query that has no direction: nothing would be further from it than anything else."""
    odd = world.rng.choice([float("nan"), float("inf"), float("-inf")])
    content = vector_bytes([odd, *(world.rng.gauss(0, 1) for _ in range(SIZE - 1))])
    one["receipt"] |= {"query_vector": encode(content), "vector": digest(content)}


def large_limit(world: World, one: Document) -> None:
    """A number of results that is no number, or larger than a double can count."""
    one["receipt"]["request"]["top_k"] = world.rng.choice([2.5, True, None, "10", [10], -1, 0])


def other_vector(world: World, one: Document) -> None:
    one["receipt"]["query_vector"] = encode(vector_bytes([world.rng.gauss(0, 1) for _ in range(SIZE)]))


@dataclass(frozen=True)
class Kind:
    """A way to tamper, the claims of which at least one must be refuted, and whether that takes another search."""

    tamper: Callable[[World, Document], None]
    refuted: tuple[str, ...]
    again: bool = False


KINDS = (
    Kind(text, ("texts",)),
    Kind(score, ("order",)),
    Kind(score_in_both, ("scores",), again=True),
    Kind(order, ("order",)),
    Kind(left_out, ("complete",), again=True),
    Kind(foreign_tenant, ("tenant",)),
    Kind(other_version, ("membership",)),
    Kind(replayed, ("request", "texts")),
    Kind(cut_list, ("texts",)),
    Kind(swapped_key, ("seal",)),
    Kind(changed_filter, ("scores", "complete"), again=True),
    Kind(truncated_path, ("membership",)),
    Kind(edited_checkpoint, ("seal",)),
    Kind(edited_entry, ("membership",)),
    Kind(moved_leaf, ("membership",)),
    Kind(other_vector, ("request",)),
    Kind(equal_scores, ("order",)),
    Kind(mixed, ("scores",), again=True),
    Kind(other_collection, ("request",)),
    Kind(unicode_equal, ("texts",)),
    Kind(odd_number, ("order",)),
    Kind(extra_field, ("membership",)),
    Kind(emptied, ("complete",), again=True),
    Kind(payload, ("texts",)),
    Kind(payload_unproved, ("texts",)),
    Kind(payload_added, ("texts",)),
    Kind(both_trees, ("membership",)),
    Kind(as_list, ("seal", "membership", "texts", "request")),
    Kind(repeated, ("membership",)),
    Kind(added_result, ("texts",)),
    Kind(odd_nodes, ("membership",)),
    Kind(odd_id, ("membership", "texts")),
    Kind(odd_row, ("membership", "texts")),
    Kind(other_tenant, ("membership",)),
    Kind(odd_note, ("seal",)),
    Kind(no_number, ("scores", "complete"), again=True),
    Kind(large_limit, ("order",)),
)


def text_of(number: int) -> str:
    return f"text {number} é"


def payload_of(number: int) -> dict[str, Any]:
    chunk = (f"c{number}", f"~{number}", str(UUID(int=number << 96)))[number % 3]
    return {"text": text_of(number), "part": number % 3, "owner": f"t{number % 2}", "chunk_id": chunk}


def build(folder: Path, seed: int) -> World:
    """Fill a store and seal it twice."""
    rng = random.Random(seed)
    store = MemoryStore()
    vectors = [tuple(rng.gauss(0, 1) for _ in "123456") for _ in range(CHUNKS + 1)]
    points = [  # every tenth has the vector of a neighbour of the same tenant and part
        Point(
            n,
            payload_of(n),
            vector=vectors[n - 6 if n % 10 == 7 else n],
        )
        for n in range(1, CHUNKS + 1)
    ]
    fill(store, "docs", *points[:-10], size=SIZE)
    names = {
        "ALLOWED_COLLECTIONS": "docs,other",
        "TENANT_FIELD": "owner",
        "TENANT_CLAIM": "tenant",
        "SEALS": str(folder / "seals"),
    }
    services, signer = make_services(store, "docs", **names), new_signer(folder)
    seal(services, folder / "seals", signer)
    older = find_seal(folder / "seals", "docs")
    from chunkproof.base.request import Deadline

    store.upsert("docs", points[-10:], "", Deadline(60_000))
    seal(services, folder / "seals", signer)
    from chunkproof.seals.notes import sign_note

    fill(store, "other", *points[:100], size=SIZE)
    seal(services, folder / "seals", signer, collection="other")
    forger = new_signer(folder, signer.public.name)
    latest = find_seal(folder / "seals", "docs")
    return World(services, latest, older, str(signer.public), lambda note: sign_note(note, [forger]), rng)


@click.command()
@click.option("--count", default=10_000, show_default=True, help="Tampers, and as many honest receipts.")
@click.option("--seed", default=31, show_default=True)
def main(count: int, seed: int) -> None:
    """Print how many tampers of each kind were detected with the right reason, and how many honest were refused."""
    logging.disable(logging.WARNING)
    from chunkproof.seals.notes import PublicKey

    started = monotonic()
    with tempfile.TemporaryDirectory() as folder:
        world = build(Path(folder), seed)
        keys = [PublicKey.parse(world.key)]
        done: Counter[str] = Counter()
        missed: list[str] = []
        asked: list[tuple[Document, dict[str, str]]] = []
        refused = 0
        for number in range(count):
            document = world.honest()
            world.answers.append(document)
            again = number % 20 == 0 and "query_vector" in document["receipt"]
            claims = world.judge(document, keys, again=again)
            refused += any(claim.verdict == "refuted" for claim in claims)
            asked.append((document, {c.name: c.verdict for c in claims if c.name in OFFLINE}))
        for number in range(count):
            kind = KINDS[number % len(KINDS)]
            document = world.full()
            kind.tamper(world, document)
            pack(document)
            claims = world.judge(document, keys, again=kind.again)
            refuted = {claim.name for claim in claims if claim.verdict == "refuted"}
            done[kind.tamper.__name__] += 1
            if not refuted & set(kind.refuted):
                missed.append(f"{kind.tamper.__name__}: refuted {sorted(refuted) or 'nothing'}, not {kind.refuted}")
            asked.append((document, {c.name: c.verdict for c in claims if c.name in OFFLINE}))
        disagreed = compare_with_node(asked, world.key)
    for name, number in done.items():
        click.echo(f"  {name:<18} {number:>6}")
    click.echo(f"{count - len(missed):,} of {count:,} tampers of {len(KINDS)} kinds detected with the right reason")
    for line in missed[:10]:
        click.echo(f"  missed: {line}")
    click.echo(f"{refused:,} of {count:,} honest receipts refused")
    click.echo(f"{disagreed} in {monotonic() - started:.0f} s")
    sys.exit(bool(missed or refused or not disagreed.startswith(("0 of", "node"))))


def compare_with_node(asked: list[tuple[Document, dict[str, str]]], key: str) -> str:
    """Say on how many documents the verifier of the page judges otherwise."""
    if which("node") is None:
        return "node is not installed: the second verifier was not asked;"
    lines = "".join(json.dumps({"text": json.dumps(document), "keys": [key]}) + "\n" for document, _ in asked)
    done = subprocess.run(["node", str(VERIFIER)], input=lines, capture_output=True, text=True, check=True)
    others = [json.loads(line) for line in done.stdout.splitlines()]
    wrong = 0
    for (document, ours), theirs in zip(asked, others, strict=True):
        differ = ours != {name: verdict for name, verdict in theirs.items() if name in OFFLINE}
        if differ and not wrong:
            click.echo(f"  first difference: {ours} {theirs} {json.dumps(copy.copy(document))[:2000]}")
        wrong += differ
    return f"{wrong:,} of {len(asked):,} documents judged otherwise by the second verifier;"


if __name__ == "__main__":
    main()
