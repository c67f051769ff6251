"""Seals of real stores: trees that others can check, append-only histories, interruptions that lose nothing."""

import json
import random
import sqlite3
import subprocess
import sys
import time
from contextlib import closing, suppress
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import boto3
import pytest

from chunkproof.base.errors import ChunkproofError, CorruptChunkError, InvalidParameterError
from chunkproof.base.request import Deadline
from chunkproof.net.s3 import Bucket
from chunkproof.seals.entries import canonical_json, hash_text, shorten
from chunkproof.seals.merkle import SealFiles, TreeReader, extend_tree, leaf_hash, open_files, root_of
from chunkproof.seals.notes import Checkpoint, PublicKey, RefutedError, decode, encode, open_note, open_signer
from chunkproof.seals.receipts import Evidence, verify_receipt
from chunkproof.seals.sealing import files_of
from chunkproof.stores.qdrant import open_edge_store
from chunkproof.stores.store_port import Point, WritableStore

from support.chunks import SECONDS_60, ask, fill, make_services
from support.sdk import sdk
from support.seals import find_seal, new_signer, seal
from support.stores import MemoryStore


@pytest.fixture(params=["memory", pytest.param("server", marks=pytest.mark.server)])
def either(request: pytest.FixtureRequest) -> WritableStore:
    """A store in memory and one on a server."""
    chosen: WritableStore = request.getfixturevalue(f"{request.param}_store")
    return chosen


def chunk(number: int, text: str | None = None, **payload: Any) -> Point:
    return Point(number, {"text": text or f"text {number}", "url": "https://a", **payload}, vector=(1.0, number / 100))


def naive_root(entries: list[bytes]) -> bytes:
    """RFC 9162, 2.1.1, as it is written there."""
    if len(entries) == 1:
        return sha256(b"\0" + entries[0]).digest()
    k = 1
    while 2 * k < len(entries):
        k *= 2
    return sha256(b"\1" + naive_root(entries[:k]) + naive_root(entries[k:])).digest()


@pytest.mark.parametrize("size", [1, 2, 3, 5, 255, 256, 257, 511, 513, 1000])
def test_a_tree_is_the_one_of_the_rfc_however_it_grew(tmp_path: Path, size: int) -> None:
    entries = [f"entry {number}".encode() for number in range(size)]
    files = SealFiles(str(tmp_path))
    grown = 0
    while grown < size:
        grown = extend_tree(files, grown, entries[grown : grown + 300]).size
    tree = TreeReader(files, size)
    root = tree.range_hash(0, size)
    assert root == naive_root(entries)
    assert list(tree.entries()) == entries
    rng = random.Random(size)
    for count in (1, min(10, size), size):
        leaves = rng.sample(range(size), count)
        hashes = {leaf: leaf_hash(tree.entry(leaf)) for leaf in leaves}
        nodes = tree.prove(leaves)
        assert root_of(hashes, nodes, size) == root
        assert root_of(hashes, nodes[:-1], size) != root or not nodes
        assert root_of(hashes, [*nodes, bytes(32)], size) is None
        assert root_of({**hashes, leaves[0]: bytes(32)}, nodes, size) != root


def test_canonical_json_is_that_of_rfc_8785() -> None:
    value = {"€": 1.0, "b": [1e21, 1e-7, -0.0], "a": '\u0007"\\é\u2028', "i": [2**53 - 1, 2**63]}
    expected = '{"a":"\\u0007\\"\\\\é\u2028","b":[1e+21,1e-7,0],"i":[9007199254740991,"9223372036854775808"],"€":1}'
    assert canonical_json(value).decode() == expected
    assert canonical_json({"b": 1, "a": "\u0007é\n"}).decode() == '{"a":"\\u0007é\\n","b":1}'


def test_a_seal_commits_to_every_chunk(either: WritableStore, collection: str, tmp_path: Path) -> None:
    fill(either, collection, *(chunk(number) for number in range(1, 601)))
    signer = new_signer(tmp_path)
    services = make_services(either, collection)
    report = seal(services, tmp_path / "seals", signer)
    assert (report.size, report.added, report.removed, report.rewritten, report.history) == (600, 600, 0, 0, 1)
    found = find_seal(tmp_path / "seals", collection)
    text, signed = open_note(found.note, [signer.public])
    assert signed == [signer.public]
    assert naive_root(list(found.checked_entries())) == found.checkpoint.roots[1] == Checkpoint.parse(text).roots[1]
    assert naive_root(list(found.tree.entries())) == found.checkpoint.roots[0] == Checkpoint.parse(text).roots[0]
    for point in (1, 77, 600):
        leaf = found.find_leaf(point)
        assert leaf is not None
        entry, whole = json.loads(found.tree.entry(leaf)), json.loads(found.whole.entry(leaf))
        assert entry == {"v": 1, "point": str(point), "chunk": str(point), "text": hash_text(f"text {point}")}
        assert whole == entry | {"payload": whole["payload"], "vector": whole["vector"]}
    assert found.find_leaf(601) is None
    assert found.info().collection == collection


def test_a_second_seal_adds_what_is_new_and_proves_that_nothing_else_changed(
    either: WritableStore, collection: str, tmp_path: Path
) -> None:
    fill(either, collection, *(chunk(number) for number in range(1, 301)))
    signer, services = new_signer(tmp_path), make_services(either, collection)
    seal(services, tmp_path / "seals", signer)
    first = find_seal(tmp_path / "seals", collection)
    full = {path: path.read_bytes() for path in (tmp_path / "seals").rglob("tile/**/*") if path.is_file()}
    either.upsert(collection, [chunk(number) for number in range(0, 1)], "", Deadline(SECONDS_60))
    report = seal(services, tmp_path / "seals", signer)
    assert (report.size, report.added, report.is_append_only, report.history) == (301, 1, True, 1)
    second = find_seal(tmp_path / "seals", collection)
    assert second.tree.range_hash(0, 300) == first.checkpoint.roots[0]
    assert second.whole.range_hash(0, 300) == first.checkpoint.roots[1]
    assert second.info().previous == first.checkpoint.text()
    assert len(second.info().consistency) == len(second.info().whole_consistency) > 0
    assert second.find_leaf(0) == 300  # new chunks follow old ones
    assert {path: path.read_bytes() for path in full} == full
    unchanged = seal(services, tmp_path / "seals", signer)
    assert (unchanged.added, unchanged.root) == (0, report.root)
    assert find_seal(tmp_path / "seals", collection).note == second.note


def test_what_was_removed_or_rewritten_is_said(either: WritableStore, collection: str, tmp_path: Path) -> None:
    fill(either, collection, *(chunk(number) for number in range(1, 11)))
    signer, services = new_signer(tmp_path), make_services(either, collection)
    seal(services, tmp_path / "seals", signer)
    either.upsert(collection, [chunk(3, "another text")], "", Deadline(SECONDS_60))
    sdk(either).delete(collection, [7])
    report = seal(services, tmp_path / "seals", signer)
    assert (report.rewritten_points, report.removed_points) == (("3",), ("7",))
    assert (report.is_append_only, report.history) == (False, 2)
    found = find_seal(tmp_path / "seals", collection)
    assert found.checkpoint.origin.endswith("/2")
    assert found.info().rewritten == 1


@pytest.mark.parametrize("name", ["tile/entries/000.p/10", "whole/tile/entries/000.p/10"])
def test_a_seal_that_was_tampered_with_is_not_extended(
    memory_store: MemoryStore, collection: str, tmp_path: Path, name: str
) -> None:
    fill(memory_store, collection, *(chunk(number) for number in range(1, 11)))
    signer, services = new_signer(tmp_path), make_services(memory_store, collection)
    seal(services, tmp_path / "seals", signer)
    bundle = tmp_path / "seals" / collection / "1" / name
    bundle.write_bytes(bundle.read_bytes().replace(b'"point":"4"', b'"point":"5"'))
    with pytest.raises(CorruptChunkError, match="are not those that were sealed"):
        seal(services, tmp_path / "seals", signer)


def test_a_vector_or_a_payload_alone_is_rewritten_too(
    memory_store: MemoryStore, collection: str, tmp_path: Path
) -> None:
    """Short entries do not show it, whole ones do."""
    fill(memory_store, collection, *(chunk(number) for number in range(1, 11)))
    signer, services = new_signer(tmp_path), make_services(memory_store, collection)
    seal(services, tmp_path / "seals", signer)
    changed = [chunk(2, note="new"), replace(chunk(5), vector=(0.0, 1.0))]
    memory_store.upsert(collection, changed, "", Deadline(SECONDS_60))
    assert seal(services, tmp_path / "seals", signer).rewritten_points == ("2", "5")


@pytest.mark.parametrize(
    "odd", ["", ',"payload":null', '","vector":null,"', "\\", 'x\\","payload":"', ',"vector":"a"', "é\u2028,"]
)
def test_a_short_entry_is_the_whole_one_without_vector_and_payload(odd: str) -> None:
    whole = {"v": 1, "point": odd, "chunk": odd, "text": hash_text(odd), "tenant": odd, "payload": "A=", "vector": None}
    for vector in (None, hash_text("v")):
        short = shorten(canonical_json(whole | {"vector": vector}))
        assert short == canonical_json({name: whole[name] for name in whole if name not in ("vector", "payload")})


def test_a_new_key_signs_the_same_tree(memory_store: MemoryStore, collection: str, tmp_path: Path) -> None:
    fill(memory_store, collection, chunk(1), chunk(2))
    old, new, services = new_signer(tmp_path), new_signer(tmp_path, "new"), make_services(memory_store, collection)
    seal(services, tmp_path / "seals", old)
    seal(services, tmp_path / "seals", old, new)
    found = find_seal(tmp_path / "seals", collection)
    assert open_note(found.note, [new.public, old.public])[1] == [old.public, new.public]
    assert seal(services, tmp_path / "seals", new).note is None
    other = seal(services, tmp_path / "seals", new_signer(tmp_path, "other"))
    assert (other.note, other.root) == (
        "The last seal is signed by none of these keys",
        encode(found.checkpoint.roots[0]),
    )


def test_notes_and_keys_that_were_edited_are_refused(
    memory_store: MemoryStore, collection: str, tmp_path: Path
) -> None:
    fill(memory_store, collection, chunk(1), chunk(2))
    signer = new_signer(tmp_path)
    seal(make_services(memory_store, collection), tmp_path / "seals", signer)
    note = find_seal(tmp_path / "seals", collection).note
    with pytest.raises(RefutedError, match="is not of this text"):
        open_note(note.replace("\n2\n", "\n3\n"), [signer.public])
    other = new_signer(tmp_path, signer.public.name)
    assert open_note(note, [other.public])[1] == []
    with pytest.raises(InvalidParameterError, match="is not a public key"):
        PublicKey.parse(str(signer.public).replace("+", "+0", 1))
    assert PublicKey.parse(str(signer.public)) == signer.public
    key = next(tmp_path.glob("0.key"))
    assert key.stat().st_mode & 0o077 == 0
    assert decode(encode(b"x")) == b"x"


SEALER = """
import sys
from pathlib import Path
sys.path.insert(0, "tests")
from support.chunks import make_services
from support.sdk import sdk
from support.seals import seal
from chunkproof.seals.notes import open_signer
from chunkproof.seals.sealing import files_of
from chunkproof.stores.qdrant import open_edge_store
import chunkproof.collection.reader as reader
reader.PAGE_SIZE = 20
data, seals, key, work = map(Path, sys.argv[1:5])
report = seal(make_services(open_edge_store(data), "docs"), seals, open_signer(str(key)), work=work)
print(report.size)
"""


def start_sealer(tmp_path: Path, data: Path) -> "subprocess.Popen[str]":
    arguments = [str(data), str(tmp_path / "seals"), str(tmp_path / "0.key"), str(tmp_path / "work")]
    return subprocess.Popen(
        [sys.executable, "-c", SEALER, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def test_a_killed_seal_loses_nothing_and_two_at_once_leave_one_history(tmp_path: Path) -> None:
    folder, work = tmp_path / "data", tmp_path / "work"
    store = open_edge_store(folder)
    fill(store, "docs", *(chunk(number) for number in range(1, 2_001)))
    store.close()
    new_signer(tmp_path)
    for pages in (2, 99):  # while it reads; at or after the end
        process = start_sealer(tmp_path, folder)
        while process.poll() is None and read_pages(work) < pages:
            time.sleep(0.002)
        process.kill()
        process.communicate()
        if (tmp_path / "seals" / "docs" / "latest").exists():  # what is there is whole
            list(find_seal(tmp_path / "seals", "docs").checked_entries())
    both = [start_sealer(tmp_path, folder) for _ in range(2)]
    ended = [(*process.communicate(timeout=120), process.returncode) for process in both]
    assert any(code == 0 and int(out) == 2_000 for out, _, code in ended), ended
    assert all(code == 0 or "Another process seals" in errors or "already" in errors for _, errors, code in ended), (
        ended
    )
    found = find_seal(tmp_path / "seals", "docs")
    assert len(list(found.checked_entries())) == 2_000
    assert found.checkpoint.origin.endswith("/1")
    assert not any(work.iterdir())


def read_pages(work: Path) -> int:
    """How many pages an interrupted or running seal has kept."""
    for file in work.glob("*/chunks.sqlite"):
        with suppress(sqlite3.Error), closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as base:
            return int(base.execute("SELECT count(*) FROM stored").fetchone()[0]) // 20
    return 0


def test_a_seal_in_a_bucket_signed_by_kms(memory_store: MemoryStore, collection: str, s3_bucket: Bucket) -> None:
    fill(memory_store, collection, *(chunk(number) for number in range(1, 301)))
    services = make_services(memory_store, collection)
    kms = boto3.client("kms", region_name="us-east-1")
    made = kms.create_key(KeySpec="ECC_NIST_P256", KeyUsage="SIGN_VERIFY")["KeyMetadata"]["KeyId"]
    signer = open_signer(f"kms:{made}")
    place = open_files(f"s3://{s3_bucket.name}/seals")
    assert seal(services, place, signer).size == 300
    memory_store.upsert(collection, [chunk(999)], "", Deadline(SECONDS_60))
    assert (report := seal(services, place, signer)).size == 301
    assert report.is_append_only
    found = find_seal(place, collection)
    assert open_note(found.note, [signer.public])[1] == [signer.public]
    assert len(list(found.checked_entries())) == 301
    files = files_of(place, collection)
    with files.lock(), pytest.raises(InvalidParameterError, match="Another process seals this collection"):
        seal(services, place, signer)
    s3_bucket.write(f"seals/{collection}/lock", b"0.0")  # of a process that was killed long ago
    assert seal(services, place, signer).added == 0
    asked = make_services(memory_store, collection, SEALS=f"s3://{s3_bucket.name}/seals", RECEIPT_KEY=f"kms:{made}")
    answer = ask(asked, query_vector=[1.0, 0.0], receipt=True)
    claims = verify_receipt(Evidence.parse(json.loads(answer.to_json())), [signer.public])
    assert {claim.name for claim in claims if claim.verdict == "proved"} >= {"seal", "membership", "texts", "service"}
    with pytest.raises(InvalidParameterError, match="without spaces"):
        open_signer(f"kms:{made}=our docs")
    encryption = kms.create_key()["KeyMetadata"]["KeyId"]
    with pytest.raises(ChunkproofError, match="KMS"):
        open_signer(f"kms:{encryption}")


def test_a_reader_of_c2sp_logs_that_others_wrote_accepts_a_seal(
    memory_store: MemoryStore, collection: str, tmp_path: Path
) -> None:
    pytest.importorskip("aics_tlog", reason="aics-tlog needs Python 3.12")
    from tools.checks.tlog_check import check_history

    fill(memory_store, collection, *(chunk(number) for number in range(1, 701)))
    signer, services = new_signer(tmp_path), make_services(memory_store, collection)
    seal(services, tmp_path / "seals", signer)
    memory_store.upsert(collection, [chunk(number) for number in range(701, 1_301)], "", Deadline(SECONDS_60))
    seal(services, tmp_path / "seals", signer)
    folder = tmp_path / "seals" / collection / "1"
    found = check_history(folder, str(signer.public))
    assert found.endswith("/1: 1300 leaves, 7 tiles, 6 bundles, consistent with 700")
    for name in ("tile/0/001", "whole/tile/0/001"):
        whole = (folder / name).read_bytes()
        (folder / name).write_bytes(whole[:-1] + b"x")
        with pytest.raises(Exception, match=r".+"):
            check_history(folder, str(signer.public))
        (folder / name).write_bytes(whole)


def test_two_seals_at_once_leave_one_history(tmp_path: Path) -> None:
    store = MemoryStore()
    fill(store, "docs", *(chunk(number) for number in range(1, 301)))
    services = make_services(store, "docs")
    signer = new_signer(tmp_path)
    files = SealFiles(str(tmp_path / "seals")).within("docs")
    with files.lock(), pytest.raises(InvalidParameterError, match="Another process seals this collection"):
        seal(services, tmp_path / "seals", signer)
    assert seal(services, tmp_path / "seals", signer).size == 300
