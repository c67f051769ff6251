"""Receipts of searches on real stores: what they prove, offline and with the collection at hand."""

import copy
import json
import random
import shutil
from collections.abc import Iterator
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from chunkproof.base.errors import InvalidParameterError
from chunkproof.base.request import Deadline
from chunkproof.collection.reader import Reader
from chunkproof.collection.services import Services
from chunkproof.net.s3 import Bucket, ObjectStoreError
from chunkproof.seals import merkle, receipts
from chunkproof.seals.entries import canonical_json, hash_tenant, hash_text, read_id, read_row, write_id, write_row
from chunkproof.seals.notes import decode
from chunkproof.seals.receipts import Claim, Evidence, Repetition, verify_receipt
from chunkproof.search.filters import map_filters
from chunkproof.service import container
from chunkproof.stores.store_port import Point, WritableStore

from support.api import invoke, post
from support.chunks import SECONDS_60, ask, fill, make_services
from support.sdk import sdk
from support.seals import find_seal, new_signer, pack, seal, unpack
from support.stores import MemoryStore

EAST = [1.0, 0.0, 0.0, 0.0]


@pytest.fixture(params=["memory", pytest.param("server", marks=pytest.mark.server)])
def either(request: pytest.FixtureRequest) -> WritableStore:
    """A store in memory and one on a server."""
    chosen: WritableStore = request.getfixturevalue(f"{request.param}_store")
    return chosen


@pytest.fixture(autouse=True)
def _no_seal_is_known() -> Iterator[None]:
    yield
    receipts._find_seal.cache_clear()


def chunks(count: int) -> list[Point]:
    rng = random.Random(31)
    return [
        Point(
            number,
            {"text": f"text {number}", "url": "https://a", "part": number % 3, "owner": f"t{number % 2}"},
            vector=(rng.gauss(2, 1), *(rng.gauss(0, 1) for _ in range(3))),
        )
        for number in range(1, count + 1)
    ]


def as_json(answer: Any) -> Any:
    return json.loads(answer.to_json())


def verdicts(claims: list[Claim]) -> dict[str, str]:
    return {claim.name: claim.verdict for claim in claims}


def test_a_receipt_proves_the_results_offline(either: WritableStore, collection: str, tmp_path: Path) -> None:
    fill(either, collection, *chunks(700), size=4)
    signer = new_signer(tmp_path)
    services = make_services(either, collection, SEALS=str(tmp_path / "seals"))
    seal(services, tmp_path / "seals", signer)
    answer = ask(services, query_vector=EAST, top_k=10, receipt=True)
    assert answer.notes == ()
    assert {result.integrity for result in answer.results} == {"verified"}
    document = as_json(answer)
    assert len(json.dumps(document["receipt"])) < 8_000
    claims = verify_receipt(Evidence.parse(document), [signer.public])
    assert verdicts(claims) == {
        "seal": "proved",
        "membership": "proved",
        "texts": "proved",
        "order": "proved",
        "request": "proved",
        "service": "not proved",
    }
    with container.override(services):
        body = invoke(post("/search", {"query_vector": EAST, "receipt": True})).json
    assert verdicts(verify_receipt(Evidence.parse(body), [signer.public]))["texts"] == "proved"
    alone = verify_receipt(Evidence.parse(document["receipt"]), [signer.public])
    assert verdicts(alone)["texts"] == "not proved"


def test_a_receipt_discloses_no_more_than_a_verifier_needs(
    memory_store: MemoryStore, collection: str, tmp_path: Path
) -> None:
    fill(memory_store, collection, *chunks(700), size=4)
    signer = new_signer(tmp_path)
    services = make_services(memory_store, collection, SEALS=str(tmp_path / "seals"))
    seal(services, tmp_path / "seals", signer)
    answer = as_json(ask(services, query_vector=EAST, receipt=True))
    for row in unpack(copy.deepcopy(answer))["receipt"]["results"]:
        assert row["entry"].keys() == {"v", "point", "chunk", "text"}
    whole = as_json(ask(services, query_vector=EAST, receipt=True, with_payload=True))
    for row in unpack(copy.deepcopy(whole))["receipt"]["results"]:
        assert row["entry"].keys() == {"v", "point", "chunk", "text", "payload", "vector"}
    assert verdicts(verify_receipt(Evidence.parse(whole), [signer.public]))["texts"] == "proved"
    edited = copy.deepcopy(whole)
    edited["results"][1]["payload"]["part"] = 7
    claims = verify_receipt(Evidence.parse(edited), [signer.public])
    refuted = [claim for claim in claims if claim.verdict == "refuted"]
    assert [claim.name for claim in refuted] == ["texts"]
    assert refuted[0].detail == f"the payload of {edited['results'][1]['point_id']} at rank 2 is not the sealed one"
    unproved = answer | {"results": whole["results"]}  # payloads beside a receipt that says nothing of them
    assert verdicts(verify_receipt(Evidence.parse(unproved), [signer.public]))["texts"] == "refuted"


def test_the_example_on_the_page_of_the_format_is_read_and_written_so() -> None:
    page = Path(__file__).resolve().parents[2].joinpath("docs/reference/receipt-format.md").read_text("utf-8")
    row, entry = page.split("Backups run at 02:00.`:\n\n```\n")[1].split("\n```")[0].split("\n")
    leaf, score, *_ = json.loads(row)
    assert read_row(json.loads(row), None) == {"leaf": leaf, "score": score, "entry": json.loads(entry)}
    assert write_row(leaf, float(score), json.loads(entry), None) == json.loads(row)
    assert canonical_json(json.loads(entry)).decode() == entry
    assert json.loads(entry)["text"] == hash_text("Backups run at 02:00.")


@pytest.mark.parametrize("tenant", [None, {"name": "t1", "salt": "AAAA"}])
@pytest.mark.parametrize(
    ("others", "kept"),
    [
        ({}, True),
        ({"tenant": None}, True),
        ({"tenant": "another"}, True),
        ({"tenant": hash_tenant("t1", bytes(3), "7")}, False),
        ({"payload": "p", "vector": None, "tenant": None}, True),
    ],
)
def test_an_entry_is_read_as_it_was_written(tenant: Any, others: dict[str, Any], kept: bool) -> None:
    entry = {"v": 1, "point": "7", "chunk": "7", "text": None, **others}
    row = write_row(5, 0.5, entry, tenant)
    assert row == [5, "0.5", "7", None, None, *([others] if others and (kept or not tenant) else [])]
    if others or not tenant:  # an entry of a collection with tenants has one, or null
        assert read_row(row, tenant) == {"leaf": 5, "score": "0.5", "entry": entry}


@pytest.mark.parametrize(
    ("written", "short"),
    [
        ("00000000-0000-0000-0000-000000000000", "~AAAAAAAAAAAAAAAAAAAAAA"),
        ("FFFFFFFF-ffff-ffff-ffff-ffffffffffff", "FFFFFFFF-ffff-ffff-ffff-ffffffffffff"),
        ("ffffffffffffffffffffffffffffffff", "ffffffffffffffffffffffffffffffff"),
        ("~AAAAAAAAAAAAAAAAAAAAAA", "~~AAAAAAAAAAAAAAAAAAAAAA"),
        ("~", "~~"),
        ("~~a", "~~~a"),
        ("a~b", "a~b"),
        ("", ""),
    ],
)
def test_an_id_is_read_as_it_was_however_it_is_written(written: str, short: str) -> None:
    assert (write_id(written), read_id(short)) == (short, written)


def test_a_search_that_is_executed_again_shows_what_was_left_out(
    either: WritableStore, collection: str, tmp_path: Path
) -> None:
    fill(either, collection, *chunks(300), size=4)
    signer = new_signer(tmp_path)
    services = make_services(either, collection, SEALS=str(tmp_path / "seals"))
    seal(services, tmp_path / "seals", signer)
    answer = as_json(ask(services, query_vector=EAST, top_k=5, filters={"part": 1}, receipt="full"))
    claims, left_out = repeat(services, answer, collection, tmp_path)
    assert verdicts(claims) == {"scores": "proved", "complete": "proved"}
    assert left_out == ()
    cut = copy.deepcopy(answer)
    third = answer["results"][2]["metadata"]["chunk_id"]
    del cut["receipt"]["results"][2], cut["results"][2]
    for rank, row in enumerate(cut["results"], 1):
        row["rank"] = rank
    claims, left_out = repeat(services, cut, collection, tmp_path)
    assert verdicts(claims) == {"scores": "proved", "complete": "refuted"}
    assert left_out[0].chunk == third
    wider = copy.deepcopy(answer)
    wider["receipt"]["request"]["filters"] = '{"part":2}'
    claims, _ = repeat(services, wider, collection, tmp_path)
    assert verdicts(claims)["scores"] == "refuted"
    either.upsert(collection, [Point(5, {"text": "changed"}, vector=(1.0, 0, 0, 0))], "", Deadline(SECONDS_60))
    claims, _ = repeat(services, answer, collection, tmp_path)
    assert "cannot tell: the collection at hand is not the sealed one (1 points differ" in claims[-1].detail


@pytest.fixture(scope="module")
def odd_chunks(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Services of a sealed collection, whose best chunks have no text, an empty one, and one that was changed."""
    folder, store = tmp_path_factory.mktemp("odd"), MemoryStore()
    odd: list[dict[str, Any]] = [{}, {"text": ""}, {"text": "tampered", "content_hash": sha256(b"orig").hexdigest()}]
    best = [Point(900 + n, {**one, "part": 1}, vector=(1.0, n / 100, 0, 0)) for n, one in enumerate(odd)]
    hashed = [
        replace(p, payload={**p.payload, "content_hash": sha256(p.payload["text"].encode()).hexdigest()})
        for p in chunks(99)
    ]
    fill(store, "docs", *hashed, *best, size=4)
    services = make_services(store, "docs", SEALS=str(folder / "seals"))
    seal(services, folder / "seals", new_signer(folder))
    return services, folder


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        ({}, "complete: none of"),
        ({"similarity_threshold": 0.95, "top_k": 50}, "complete: none of"),
        ({"filters": {"part": 1}}, "complete: none of"),
        ({"filters": {"part": {"gt": 0.5}}, "top_k": 90}, "complete: none of"),
        ({"require_integrity": True}, "complete: none of"),
        ({"params": {"exact": True}, "rerank": False, "with_vectors": True}, "complete: none of"),
        ({"group_by": "owner", "group_size": 2}, "cannot tell: the search used group_by, group_size"),
        ({"diversity": 0.5}, "cannot tell: the search used diversity"),
        ({"cursor": "start"}, "cannot tell: the search used cursor"),
    ],
)
def test_each_option_is_repeated_exactly_or_said_to_be_beyond_repetition(
    odd_chunks: Any, request_: dict[str, Any], expected: str
) -> None:
    services, folder = odd_chunks
    answer = as_json(ask(services, query_vector=EAST, receipt="full", **request_))
    assert all(
        claim.verdict != "refuted" for claim in verify_receipt(Evidence.parse(answer), []) if claim.name != "seal"
    )
    claims, left_out = repeat(services, answer, "docs", folder)
    assert claims[-1].detail.startswith(expected), claims
    assert (claims[-1].verdict == "proved") is expected.startswith("complete")
    assert left_out == ()


@pytest.mark.parametrize("change", [{"mode": "hybrid"}, {"mode": "text"}, {"rerank": {"model": "m"}}])
def test_what_words_or_a_reranker_decided_cannot_be_repeated(odd_chunks: Any, change: dict[str, Any]) -> None:
    services, folder = odd_chunks
    answer = as_json(ask(services, query_vector=EAST, receipt="full"))
    answer["receipt"]["request"] |= change
    (scores, complete), _ = repeat(services, answer, "docs", folder)
    assert (scores.name, scores.verdict, complete.verdict) == ("scores", "proved", "not proved")
    assert "which cannot be repeated exactly" in complete.detail
    answer["receipt"]["results"][0][1] = "0.5"
    assert repeat(services, answer, "docs", folder)[0][0].verdict == "refuted"


def test_a_collection_that_is_not_the_sealed_one_proves_and_refutes_nothing(
    memory_store: MemoryStore, collection: str, tmp_path: Path
) -> None:
    fill(memory_store, collection, *chunks(50), size=4)
    services = make_services(memory_store, collection, SEALS=str(tmp_path / "seals"))
    seal(services, tmp_path / "seals", new_signer(tmp_path))
    answer = as_json(ask(services, query_vector=EAST, top_k=3, receipt="full"))
    evidence, reader = Evidence.parse(answer), Reader(services, collection)
    verify_receipt(evidence, [])
    assert verdicts(Repetition(evidence, reader).run()[0]) == {"scores": "proved", "complete": "proved"}
    sdk(memory_store).delete(collection, [answer["results"][0]["point_id"]])
    for sealed in (None, find_seal(tmp_path / "seals", collection)):
        claims, left_out = Repetition(evidence, reader, (), sealed).run()
        assert verdicts(claims) == {"scores": "not proved", "complete": "not proved"}
        assert "is not the sealed one" in claims[0].detail
        assert left_out == ()


def repeat(services: Services, answer: Any, collection: str, tmp_path: Path) -> Any:
    evidence = Evidence.parse(answer)
    verify_receipt(evidence, [])
    reader = Reader(services, collection)
    from chunkproof.contract import SearchQuery

    filters = json.loads(answer["receipt"]["request"].get("filters", "{}"))
    where = map_filters(SearchQuery.parse({"query_text": "x", "filters": filters}).filters, reader) if filters else ()
    return Repetition(evidence, reader, where, find_seal(tmp_path / "seals", collection)).run()


def test_a_chunk_that_was_changed_after_the_seal_is_called_so(
    memory_store: MemoryStore, collection: str, tmp_path: Path
) -> None:
    fill(memory_store, collection, *chunks(20), size=4)
    signer = new_signer(tmp_path)
    services = make_services(memory_store, collection, SEALS=str(tmp_path / "seals"))
    seal(services, tmp_path / "seals", signer)
    best = ask(services, query_vector=EAST, top_k=3).results[0]
    memory_store.changed_texts[best.point_id or 0] = "tampered"
    answer = ask(services, query_vector=EAST, top_k=3, receipt=True)
    assert [result.integrity for result in answer.results] == ["changed", "verified", "verified"]
    claims = verify_receipt(Evidence.parse(as_json(answer)), [signer.public])
    assert verdicts(claims)["texts"] == "refuted"
    kept = ask(services, query_vector=EAST, top_k=3, receipt=True, require_integrity=True)
    assert [result.rank for result in kept.results] == [1, 2]
    assert (kept.execution.skipped, (kept.receipt or {})["request"]["left_out"]) == (1, 1)
    assert f"(points {best.point_id})" in kept.notes[0]
    assert verdicts(verify_receipt(Evidence.parse(as_json(kept)), [signer.public]))["texts"] == "proved"


def test_tenants_see_their_own_chunks_and_hashes_of_others(
    memory_store: MemoryStore, collection: str, tmp_path: Path
) -> None:
    fill(memory_store, collection, *chunks(50), size=4)
    signer = new_signer(tmp_path)
    names = {"TENANT_FIELD": "owner", "TENANT_CLAIM": "tenant", "SEALS": str(tmp_path / "seals")}
    services = make_services(memory_store, collection, **names)
    seal(services, tmp_path / "seals", signer)
    answer = as_json(ask(services.for_tenant("t1"), query_vector=EAST, top_k=5, receipt=True))
    claims = verify_receipt(Evidence.parse(answer), [signer.public])
    assert verdicts(claims)["tenant"] == "proved"
    assert '"t0"' not in json.dumps(answer["receipt"])
    assert len(decode(answer["receipt"]["tenant"]["salt"])) == 16
    other = copy.deepcopy(answer)
    other["receipt"]["tenant"]["name"] = "t0"
    judged = verdicts(verify_receipt(Evidence.parse(other), [signer.public]))
    assert (judged["membership"], judged["tenant"], judged["texts"]) == ("refuted", "not proved", "not proved")
    unpack(answer)  # now each entry says its tenant itself
    answer["receipt"]["tenant"]["name"] = "t0"
    judged = verdicts(verify_receipt(Evidence.parse(pack(answer)), [signer.public]))
    assert (judged["membership"], judged["tenant"], judged["texts"]) == ("proved", "refuted", "proved")


def test_a_seal_that_was_made_without_tenants_proves_nothing_to_them(
    memory_store: MemoryStore, collection: str, tmp_path: Path
) -> None:
    fill(memory_store, collection, *chunks(50), size=4)
    seal(make_services(memory_store, collection), tmp_path / "seals", new_signer(tmp_path))
    names = {"TENANT_FIELD": "owner", "TENANT_CLAIM": "tenant", "SEALS": str(tmp_path / "seals")}
    services = make_services(memory_store, collection, **names)
    answer = ask(services.for_tenant("t1"), query_vector=EAST, top_k=5, receipt=True)
    why = "the seal was made without CHUNKPROOF_TENANT_FIELD and CHUNKPROOF_TENANT_CLAIM"
    assert (answer.receipt, answer.notes) == (None, (f"There is no receipt: {why}",))


def test_a_receipt_that_names_no_tenant_has_the_hashes_of_tenants(
    memory_store: MemoryStore, collection: str, tmp_path: Path
) -> None:
    *most, last = chunks(20)
    fill(memory_store, collection, *most, replace(last, payload={"text": "nobody's"}, vector=(1.0, 0, 0, 0)), size=4)
    names = {"TENANT_FIELD": "owner", "TENANT_CLAIM": "tenant", "SEALS": str(tmp_path / "seals")}
    services, signer = make_services(memory_store, collection, **names), new_signer(tmp_path)
    seal(services, tmp_path / "seals", signer)
    for with_payload in (False, True):
        answer = as_json(ask(services, query_vector=EAST, receipt=True, with_payload=with_payload))
        assert answer["receipt"]["results"][0][5]["tenant"] is None
        claims = {claim.name: claim for claim in verify_receipt(Evidence.parse(answer), [signer.public])}
        assert (claims["membership"].verdict, claims["texts"].verdict) == ("proved", "proved")
        assert claims["tenant"].detail == "chunks belong to tenants, and the receipt names none"


def test_an_answer_without_a_seal_is_still_an_answer(
    memory_store: MemoryStore, collection: str, tmp_path: Path
) -> None:
    fill(memory_store, collection, *chunks(20), size=4)
    for settings, why in (
        ({}, "no seals are configured; set CHUNKPROOF_SEALS"),
        ({"SEALS": str(tmp_path / "none")}, f"collection {collection} is not sealed; run chunkproof seal {collection}"),
    ):
        answer = ask(make_services(memory_store, collection, **settings), query_vector=EAST, receipt=True)
        assert (answer.receipt, len(answer.results)) == (None, 5)
        assert answer.notes == (f"There is no receipt: {why}",)


def test_the_reason_for_no_receipt_names_neither_bucket_nor_key(
    memory_store: MemoryStore, collection: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def deny(bucket: Bucket, key: str) -> bytes:
        raise ObjectStoreError(f"S3 refused {bucket.address(key)} (AccessDenied)", "AccessDenied")

    monkeypatch.setattr(Bucket, "read", deny)
    fill(memory_store, collection, *chunks(20), size=4)
    services = make_services(memory_store, collection, SEALS="s3://my-bucket/seals")
    answer = ask(services, query_vector=EAST, receipt=True)
    assert (answer.receipt, len(answer.results)) == (None, 5)
    assert answer.notes == ("There is no receipt: the seal could not be read from S3 (AccessDenied)",)


@pytest.mark.parametrize(
    ("name", "with_payload"),
    [
        *((name, False) for name in ("tile/0/000.p/20", "tile/entries/000.p/20", "index/20/0", "checkpoint")),
        *((name, True) for name in ("whole/tile/0/000.p/20", "whole/tile/entries/000.p/20")),
    ],
)
@pytest.mark.parametrize("damage", [lambda content: content[:99], lambda content: content[::-1][1:]])
def test_a_damaged_seal_costs_the_receipt_and_nothing_else(
    memory_store: MemoryStore, collection: str, tmp_path: Path, name: str, with_payload: bool, damage: Any
) -> None:
    fill(memory_store, collection, *chunks(20), size=4)
    services, signer = make_services(memory_store, collection, SEALS=str(tmp_path / "seals")), new_signer(tmp_path)
    seal(services, tmp_path / "seals", signer)
    file = tmp_path / "seals" / collection / "1" / name
    whole = file.read_bytes()
    file.write_bytes(damage(whole))
    merkle.forget_files()
    answer = ask(services, query_vector=EAST, receipt=True, with_payload=with_payload)
    assert len(answer.results) == 5
    assert answer.receipt is None
    assert "is damaged" in answer.notes[0]
    file.write_bytes(whole)
    receipts._find_seal.cache_clear()
    claims = verify_receipt(Evidence.parse(as_json(ask(services, query_vector=EAST, receipt=True))), [signer.public])
    assert verdicts(claims)["membership"] == "proved"


def test_a_seal_that_replaced_another_in_the_same_place_is_not_mixed_with_it(
    memory_store: MemoryStore, collection: str, tmp_path: Path
) -> None:
    fill(memory_store, collection, *chunks(20), size=4)
    services, signer = make_services(memory_store, collection, SEALS=str(tmp_path / "seals")), new_signer(tmp_path)
    for _ in range(2):  # the second one is of other texts, in files of the same names
        seal(services, tmp_path / "seals", signer)
        memory_store.upsert(collection, [replace(chunks(1)[0], payload={"text": "new"})], "", Deadline(SECONDS_60))
        receipts._find_seal.cache_clear()
        answer = ask(services, query_vector=EAST, receipt=True, top_k=20)
        shutil.rmtree(tmp_path / "seals")
    claims = verify_receipt(Evidence.parse(as_json(answer)), [signer.public])
    assert verdicts(claims)["membership"] == "proved"


class EastEmbedder:
    """Embeds every text as the east."""

    model, dimension, max_batch = "m", 4, 8

    def excess(self, _text: str) -> None:
        return None

    def embed(self, texts: Any, _kind: Any, _deadline: Deadline) -> list[list[float]]:
        return [EAST for _ in texts]


def test_the_scores_of_a_hybrid_search_are_proved(word_store: WritableStore, collection: str, tmp_path: Path) -> None:
    fill(word_store, collection, *chunks(60), size=4)
    services = make_services(word_store, collection, EastEmbedder(), SEALS=str(tmp_path / "seals"))
    seal(services, tmp_path / "seals", new_signer(tmp_path))
    answer = as_json(ask(services, query_text="text 7", mode="hybrid", receipt="full", top_k=8))
    assert repeat(services, answer, collection, tmp_path)[0][0].detail == "each score is that of the sealed vector"
    answer["receipt"]["results"][3][1] = "0.9999"
    assert verdicts(repeat(services, answer, collection, tmp_path)[0]) == {
        "scores": "refuted",
        "complete": "not proved",
    }


def test_a_service_that_signs_is_bound_to_its_answer(
    memory_store: MemoryStore, collection: str, tmp_path: Path
) -> None:
    fill(memory_store, collection, *chunks(20), size=4)
    signer = new_signer(tmp_path)
    services = make_services(
        memory_store, collection, SEALS=str(tmp_path / "seals"), RECEIPT_KEY=str(tmp_path / "0.key")
    )
    seal(services, tmp_path / "seals", signer)
    answer = as_json(ask(services, query_vector=EAST, receipt=True, similarity_threshold=0.25))
    assert verdicts(verify_receipt(Evidence.parse(answer), [signer.public]))["service"] == "proved"
    answer["receipt"]["request"]["top_k"] = 6
    answer["execution"]["requested_top_k"] = 6
    assert verdicts(verify_receipt(Evidence.parse(answer), [signer.public]))["service"] == "refuted"


def test_no_damage_to_a_receipt_ends_in_an_exception_or_is_overlooked(
    memory_store: MemoryStore, collection: str, tmp_path: Path
) -> None:
    fill(memory_store, collection, *chunks(40), size=4)
    signer = new_signer(tmp_path)
    services = make_services(memory_store, collection, SEALS=str(tmp_path / "seals"))
    seal(services, tmp_path / "seals", signer)
    answer = as_json(ask(services, query_vector=EAST, top_k=4, receipt="full"))
    rng = random.Random(31)
    for number in range(1_500):
        damaged = copy.deepcopy(answer)
        damage(damaged["receipt"], rng)
        try:
            evidence = Evidence.parse(damaged)
        except InvalidParameterError:
            continue
        claims = verify_receipt(evidence, [signer.public])
        if number % 10 == 0:
            sealed = find_seal(tmp_path / "seals", collection)
            claims += Repetition(evidence, Reader(services, collection), (), sealed).run()[0]
        assert claims


def damage(value: Any, rng: random.Random) -> None:
    """Replace or remove one value anywhere in a document."""
    while True:
        keys = list(value) if isinstance(value, dict) else list(range(len(value)))
        if not keys:
            return
        key = rng.choice(keys)
        if isinstance(value[key], dict | list) and rng.random() < 0.8:
            value = value[key]
            continue
        if rng.random() < 0.3:
            del value[key]
        else:
            value[key] = rng.choice(
                [None, -1, 0, 1.5, 2**70, "", "x", "\ud800", [], {}, [[]], True, "AAAA", "nan", "1e999"]
            )
        return
