"""Tenants through the real handlers: a caller sees its own chunks, and nothing tells it of others'."""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from dataclasses import field as dataclass_field
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as examples
from hypothesis import strategies as st
from qdrant_client import models

from chunkproof.base.request import Deadline
from chunkproof.collection.services import MAX_TENANTS
from chunkproof.embedders.cohere import CohereEmbedder
from chunkproof.net.transport import DeadlineTransport
from chunkproof.service import container
from chunkproof.stores.server import ServerStore
from chunkproof.stores.store_port import Point, WritableStore

from support import openapi
from support.api import Event, Reply, get, invoke, post
from support.chunks import SECONDS_60, fill, make_services
from support.cohere_server import KEY, CohereServer, cohere_server
from support.qdrant_server import QdrantServer
from support.sdk import sdk
from support.stores import MemoryStore

CLAIM = "custom:org"
FIELD = "tenant"
EAST = [1.0, 0.0]
UUID_OF_B = "550e8400-e29b-41d4-a716-446655440000"


def point(number: int | str, text: str, **payload: Any) -> Point:
    return Point(number, {"text": text, "url": "https://a.example", **payload}, vector=(1.0, 0.0))


POINTS = (
    point(1, "a one", tenant="a", chunk_id="same-id", colour="red"),
    point(2, "b two", tenant="b", chunk_id="same-id", price=4.5, document_title="B's plans"),
    point(3, "a three", tenant="a", chunk_id="only-a"),
    point(4, "b four", tenant="b", chunk_id="only-b"),
    point(UUID_OF_B, "b five", tenant="b"),
    point(6, "nobody's", chunk_id="only-nobody"),
    point(7, "a number's", tenant=7, chunk_id="only-7"),
)
OWN = {"a": {"a one", "a three"}, "b": {"b two", "b four", "b five"}, "c": set[str]()}
KINDS = [
    "memory",
    pytest.param("server", marks=pytest.mark.server),
    pytest.param("strict", marks=pytest.mark.server),
]


@dataclass(frozen=True)
class Shelf:
    """Where collections can be made; in strict mode these fields are indexed, and no others."""

    store: WritableStore
    is_strict: bool = False
    kept: dict[str, str] = dataclass_field(default_factory=dict)

    def make(self, points: tuple[Point, ...], *indexed: str) -> str:
        name = f"tenants-{uuid4().hex[:12]}"
        if not self.is_strict:
            fill(self.store, name, *points)
            return name
        sdk(self.store).create_collection(
            name,
            vectors_config=models.VectorParams(size=2, distance=models.Distance.COSINE),
            strict_mode_config=models.StrictModeConfig(enabled=True, unindexed_filtering_retrieve=False),
        )
        for field in indexed:
            sdk(self.store).create_payload_index(name, field, field_schema="keyword", wait=True)
        if points:
            self.store.upsert(name, points, "", Deadline(SECONDS_60))
        return name

    def refilled(self, world: "World") -> str:
        """The collection of this tenant field, with these points and no others: making one takes its time."""
        name = self.kept.get(world.field)
        if name is None:
            name = self.kept[world.field] = self.make(world.points, world.field, "chunk_id")
        else:
            everything = models.FilterSelector(filter=models.Filter())
            sdk(self.store).delete(name, points_selector=everything, wait=True)
            self.store.upsert(name, world.points, "", Deadline(SECONDS_60))
        return name


@pytest.fixture(scope="module", params=KINDS)
def shelf(request: pytest.FixtureRequest) -> Iterator[Shelf]:
    """In memory, on a server, and on a server in strict mode."""
    if request.param == "memory":
        store = MemoryStore()
    else:
        store = ServerStore(request.getfixturevalue("served_qdrant").url, DeadlineTransport())
    yield Shelf(store, request.param == "strict")
    store.close()


@pytest.fixture(scope="module")
def in_memory() -> Iterator[Shelf]:
    store = MemoryStore()
    yield Shelf(store)
    store.close()


@pytest.fixture(scope="module")
def on_server(served_qdrant: QdrantServer) -> Iterator[dict[bool, Shelf]]:
    """Without and with strict mode."""
    store = ServerStore(served_qdrant.url, DeadlineTransport())
    yield {is_strict: Shelf(store, is_strict) for is_strict in (False, True)}
    store.close()


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """Warnings about titles that chunks lack are not what these tests are about."""
    logging.getLogger("chunkproof").setLevel(logging.CRITICAL)
    yield
    logging.getLogger("chunkproof").setLevel(logging.INFO)


@contextmanager
def deployed(
    store: WritableStore, collection: str, *, field: str = FIELD, embedder: CohereEmbedder | None = None
) -> Iterator[None]:
    """The handlers over this collection, with tenants."""
    given_settings = {"TENANT_CLAIM": CLAIM, "TENANT_FIELD": field, "DEADLINE_MS": str(SECONDS_60)}
    with container.override(make_services(store, collection, embedder, **given_settings)):
        yield


@pytest.fixture(scope="module")
def _library(shelf: Shelf) -> str:
    """The points above, which tests only read."""
    return shelf.make(POINTS, FIELD, "chunk_id", "id", "metadata.chunk_id", "url", "colour")


@pytest.fixture
def library(shelf: Shelf, _library: str) -> Iterator[str]:
    with deployed(shelf.store, _library):
        yield _library


def as_tenant(event: Event, claim: Any) -> Event:
    """The event as API Gateway sends it once it has checked a token with this claim."""
    claims = {"iss": "https://issuer.example", "sub": "somebody", CLAIM: claim}
    event["requestContext"]["authorizer"] = {"jwt": {"claims": claims, "scopes": None}}
    return event


def search(tenant: str, /, **request: Any) -> Reply:
    request = {"query_vector": EAST, "top_k": 100, "with_payload": True, **request}
    return invoke(as_tenant(post("/search", request), tenant))


def found(tenant: str, /, **request: Any) -> set[str]:
    """The texts that a search returns."""
    reply = search(tenant, **request)
    assert reply.status == 200, reply.text
    return {result["text"] for result in reply.json["results"]}


def validate(tenant: str, chunk_id: str, original: str = "?") -> Reply:
    return invoke(as_tenant(post("/validate-chunk", {"chunk_id": chunk_id, "original_text": original}), tenant))


def info(tenant: str, collection: str) -> Any:
    reply = invoke(as_tenant(get(f"/collections/{collection}"), tenant))
    assert reply.status == 200, reply.text
    return reply.json


# search


@pytest.mark.parametrize("tenant", OWN)
@pytest.mark.usefixtures("library")
def test_a_search_finds_exactly_the_callers_own_chunks(tenant: str) -> None:
    assert found(tenant) == OWN[tenant]


@pytest.mark.parametrize("claim", ["A", " a", "a ", "*", "a*", "", "a,b", '["a","b"]', "7", "null", "None", "a' or '1"])
@pytest.mark.usefixtures("library")
def test_a_claim_is_compared_as_it_is(claim: str) -> None:
    reply = search(claim)
    assert (reply.status, reply.json["results"]) == ((200, []) if claim.strip() else (403, []))


@pytest.mark.parametrize(
    "filters",
    [
        {"tenant": "b"},
        {"tenant": ["a", "b"]},
        {"not": {"tenant": "a"}},
        {"not": {"tenant": "c"}},
        {"not": {"not": {"tenant": "b"}}},
        {"url": "https://a.example"},
        {"chunk_id": ["same-id", "only-b"]},
        {"not": {"colour": "red"}},
    ],
    ids=str,
)
@pytest.mark.usefixtures("library")
def test_no_filter_of_a_caller_reaches_further(filters: dict[str, Any]) -> None:
    assert found("a", filters=filters) <= OWN["a"]


@pytest.mark.usefixtures("library")
def test_a_filter_selects_among_the_callers_own_chunks() -> None:
    assert found("a", filters={"chunk_id": "same-id"}) == {"a one"}
    assert found("b", filters={"chunk_id": "same-id"}) == {"b two"}
    assert found("a", filters={"not": {"colour": "red"}}) == {"a three"}


# validate-chunk


@pytest.mark.parametrize(
    "chunk_id", ["2", "4", UUID_OF_B, UUID_OF_B.upper(), "only-b", "6", "only-nobody", "7", "only-7"]
)
@pytest.mark.usefixtures("library")
def test_anothers_chunk_is_as_unknown_as_one_that_does_not_exist(chunk_id: str) -> None:
    theirs, missing = validate("a", chunk_id), validate("a", "no-such-chunk")
    assert (theirs.status, theirs.code) == (404, "CHUNK_NOT_FOUND")
    assert theirs.errors == [f"Chunk {chunk_id} not found"]

    def mask_id(reply: Reply, asked: str) -> str:
        """All that is said, but for the id that was asked for and the time."""
        body = {**reply.json, "execution": None}
        return repr(body).replace(asked, "ID")

    assert mask_id(theirs, chunk_id) == mask_id(missing, "no-such-chunk")


@pytest.mark.parametrize(
    ("tenant", "chunk_id", "text"),
    [
        ("a", "1", "a one"),
        ("a", "only-a", "a three"),
        ("b", UUID_OF_B, "b five"),
        ("b", "only-b", "b four"),
        # Two tenants have this id, each of them once.
        ("a", "same-id", "a one"),
        ("b", "same-id", "b two"),
    ],
)
@pytest.mark.usefixtures("library")
def test_a_callers_own_chunk_is_found_by_either_id(tenant: str, chunk_id: str, text: str) -> None:
    reply = validate(tenant, chunk_id, text)
    assert (reply.status, reply.json["matches"], reply.json["stored_text"]) == (200, True, text)


def test_an_id_that_one_tenant_has_twice_is_ambiguous_for_that_one_alone(shelf: Shelf) -> None:
    name = shelf.make(
        (
            point(1, "one", tenant="a", chunk_id="x"),
            point(2, "two", tenant="a", chunk_id="x"),
            point(3, "three", tenant="b", chunk_id="x"),
        ),
        *(FIELD, "chunk_id", "id", "metadata.chunk_id"),
    )
    with deployed(shelf.store, name):
        twice = validate("a", "x")
        assert (twice.status, twice.code) == (400, "AMBIGUOUS_ID")
        assert twice.errors == ["Chunk id x means more than one point: 1, 2"]
        assert validate("b", "x", "three").json["matches"] is True


# collections


def test_a_collection_counts_only_the_callers_own_chunks(library: str) -> None:
    assert [info(tenant, library)["points_count"] for tenant in OWN] == [2, 3, 0]


def test_a_collection_shows_only_the_fields_of_the_callers_own_chunks(library: str) -> None:
    fields = {tenant: {f["name"]: f["share"] for f in info(tenant, library)["payload_fields"]} for tenant in OWN}
    assert fields["a"] == {"text": 1.0, "url": 1.0, "tenant": 1.0, "chunk_id": 1.0, "colour": 0.5}
    assert fields["b"] == pytest.approx(
        {
            "text": 1.0,
            "url": 1.0,
            "tenant": 1.0,
            "chunk_id": 2 / 3,
            "price": 1 / 3,
            "document_title": 1 / 3,
        }
    )
    assert fields["c"] == {}
    assert "document_title" not in info("a", library)["payload_map"]
    assert info("b", library)["payload_map"]["document_title"] == "document_title"
    assert info("c", library)["payload_map"] == {}


def test_vectors_count_as_indexed_only_if_all_of_the_collection_are(library: str) -> None:
    for tenant, own in OWN.items():
        described = info(tenant, library)
        assert described["indexed_vectors_count"] in (0, len(own))


def test_a_canonical_name_means_the_field_of_the_callers_own_chunks(shelf: Shelf) -> None:
    name = shelf.make(
        (
            Point(1, {"text": "a", "tenant": "a", "url": "https://x.example"}, vector=(1.0, 0.0)),
            Point(2, {"text": "b", "tenant": "b", "source_url": "https://x.example"}, vector=(1.0, 0.0)),
        ),
        *(FIELD, "url", "source_url"),
    )
    with deployed(shelf.store, name):
        for tenant in ("a", "b", "a"):
            assert found(tenant, filters={"url": "https://x.example"}) == {tenant}


# strict mode


@pytest.mark.server
def test_without_an_index_of_the_tenants_field_strict_mode_refuses_instead_of_showing_all(
    server_store: WritableStore,
) -> None:
    name = Shelf(server_store, is_strict=True).make(POINTS, "chunk_id", "id", "metadata.chunk_id")
    with deployed(server_store, name):
        replies = [
            search("a"),
            validate("a", "1"),
            validate("a", "only-a"),
            invoke(as_tenant(get(f"/collections/{name}"), "a")),
        ]
    assert [(reply.status, reply.code) for reply in replies] == [(400, "INDEX_REQUIRED")] * 4
    advice = f'create_payload_index("{name}", field_name="tenant", field_schema="keyword")'
    assert all(advice in reply.errors[0] for reply in replies)


# who asks

ROUTES: dict[str, Callable[[], Event]] = {
    "/search": lambda: post("/search", {"query_vector": EAST}),
    "/validate-chunk": lambda: post("/validate-chunk", {"chunk_id": "1"}),
    "/validate-chunks": lambda: post("/validate-chunks", {"chunks": [{"chunk_id": "1"}]}),
    "/collections/docs": lambda: get("/collections/docs"),
}
IAM = {"iam": {"accountId": "123456789012", "userArn": "arn:aws:iam::123456789012:user/a"}}


def jwt(**claims: Any) -> dict[str, Any]:
    return {"jwt": {"claims": claims, "scopes": None}}


STRANGERS: dict[str, Any] = {
    "no authorizer": None,
    "an empty authorizer": {},
    "IAM": IAM,
    "a Lambda authorizer": {"lambda": {CLAIM: "a"}},
    "a REST API's authorizer": {"claims": {CLAIM: "a"}},
    "no claims": {"jwt": {"scopes": None}},
    "claims null": {"jwt": {"claims": None}},
    "another claim": jwt(org="a", custom="a"),
    "empty": jwt(**{CLAIM: ""}),
    "blank": jwt(**{CLAIM: " \t"}),
    "null": jwt(**{CLAIM: None}),
    "a number": jwt(**{CLAIM: 7}),
    "true": jwt(**{CLAIM: True}),
    "a list": jwt(**{CLAIM: ["a"]}),
    "an object": jwt(**{CLAIM: {"a": 1}}),
}


@pytest.fixture(scope="module")
def _three_routes() -> Iterator[None]:
    store = MemoryStore()
    fill(store, "docs", *POINTS)
    with deployed(store, "docs"):
        yield
    store.close()


@pytest.mark.usefixtures("_three_routes")
@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("authorizer", STRANGERS.values(), ids=STRANGERS.keys())
def test_without_a_claim_that_names_a_tenant_nothing_is_shown(route: str, authorizer: Any) -> None:
    event = ROUTES[route]()
    event["requestContext"]["authorizer"] = authorizer
    if authorizer is None:
        del event["requestContext"]["authorizer"]
    reply = invoke(event)
    assert (reply.status, reply.code) == (403, "FORBIDDEN")
    assert reply.errors == [f"The token has no claim {CLAIM}, which says whose chunks may be seen"]
    method = event["requestContext"]["http"]["method"]
    assert openapi.problems(method, route, 403, reply.json) == []


@pytest.mark.usefixtures("_three_routes")
def test_health_asks_for_no_claim() -> None:
    assert invoke(get("/health")).status == 200


def test_without_tenant_settings_everybody_sees_all(memory_store: WritableStore) -> None:
    fill(memory_store, "docs", *POINTS)
    event = post("/search", {"query_vector": EAST, "top_k": 100})
    with container.override(make_services(memory_store, "docs")):
        assert len(invoke(event).json["results"]) == len(POINTS)


@pytest.mark.usefixtures("_three_routes")
def test_a_tenant_named_anywhere_else_changes_nothing() -> None:
    headers = dict.fromkeys((CLAIM, FIELD, "x-tenant", "x-amzn-oidc-data"), "b")
    # Claims that nobody signed: {"custom:org":"b"}
    headers["authorization"] = "Bearer e30.eyJjdXN0b206b3JnIjoiYiJ9."
    event = as_tenant(post("/search", {"query_vector": EAST, "top_k": 100}, headers), "a")
    event["queryStringParameters"] = {CLAIM: "b", FIELD: "b"}
    event["stageVariables"] = event["pathParameters"] = {FIELD: "b"}
    event["requestContext"]["authorizer"]["lambda"] = {CLAIM: "b", FIELD: "b"}
    event["requestContext"]["authorizer"][CLAIM] = "b"
    assert {result["text"] for result in invoke(event).json["results"]} == OWN["a"]
    for name in (CLAIM, FIELD, "tenant_id"):
        refused = search("a", **{name: "b"})
        assert (refused.status, refused.code) == (400, "INVALID_REQUEST")


@pytest.mark.usefixtures("library")
@pytest.mark.parametrize("name", ["must", "should", "must_not", "min_should", "has_id", "is_empty", "nested", "filter"])
def test_qdrants_own_words_are_payload_fields_like_any_other(shelf: Shelf, name: str) -> None:
    refused = search("a", filters={name: [{"key": FIELD, "match": {"value": "b"}}]})
    assert (refused.status, refused.code) == (400, "INVALID_REQUEST")
    assert refused.errors == [f"filters.{name}[0] must be a string, a number, true or false"]
    reply = search("a", filters={name: [2, 4]})
    if shelf.is_strict:
        assert (reply.code, name in reply.errors[0]) == ("INDEX_REQUIRED", True)
    else:
        assert (reply.status, reply.json["results"]) == (200, []), "no chunk has such a field"


# what is remembered


def test_a_cached_embedding_reveals_nothing_about_another_tenant(
    memory_store: WritableStore,
) -> None:
    fill(memory_store, "docs", *POINTS)
    with cohere_server(lambda _: EAST) as api, closing_embedder(api) as embedder:
        with deployed(memory_store, "docs", embedder=embedder):

            def is_cached(tenant: str) -> bool:
                reply = search(tenant, query_vector=None, query_text="What are the plans?")
                return bool(reply.json["execution"]["embedding_cached"])

            assert [is_cached(tenant) for tenant in ("a", "a", "b", "b", "a", "c")] == [
                *(False, True),
                *(False, True),
                *(True, False),
            ]
        assert len(api.requests) == 3


@contextmanager
def closing_embedder(api: CohereServer) -> Iterator[CohereEmbedder]:
    transport = DeadlineTransport(lambda: {"authorization": f"Bearer {KEY}"})
    embedder = CohereEmbedder(transport, model="m", base_url=api.url)
    yield embedder
    embedder.close()


def test_more_tenants_than_are_remembered_still_see_only_their_own(memory_store: WritableStore) -> None:
    tenants = [f"tenant-{number}" for number in range(MAX_TENANTS + 6)]
    fill(memory_store, "docs", *(point(n, t, tenant=t) for n, t in enumerate(tenants)))
    with deployed(memory_store, "docs"):
        for _ in range(2):
            assert [found(tenant) for tenant in tenants] == [{tenant} for tenant in tenants]


def test_a_chunk_that_names_several_tenants_is_each_ones_own(shelf: Shelf) -> None:
    name = shelf.make(
        (
            point(1, "both", meta={"orgs": ["a", "b"]}),
            point(2, "b alone", meta={"orgs": ["b"]}),
            point(3, "nobody", meta={"orgs": []}),
        ),
        *("meta.orgs", "chunk_id", "id", "metadata.chunk_id"),
    )
    with deployed(shelf.store, name, field="meta.orgs"):
        assert [found(tenant) for tenant in ("a", "b", "c")] == [{"both"}, {"both", "b alone"}, set()]
        assert validate("a", "2").status == 404


# any points, any filter

TENANTS = ("a", "b", "c")
SHAPES = {"tenant": "one", "meta.tenant": "one", "orgs": "several", "meta.orgs[]": "several"}
NAMES = (
    "tenant",
    "meta.tenant",
    "orgs",
    "meta.orgs[]",
    "language",
    "pages",
    "price",
    "free",
    "published",
    "url",
    "none",
)

scalars = (
    st.sampled_from([*TENANTS, "", "en", "2026-01-01", "https://a.example"])
    | st.sampled_from([0, 1, 2, -1, 2**63 - 1])
    | st.sampled_from([0.0, 0.5, -1e300])
    | st.booleans()
)
bounds = st.sampled_from(["gte", "gt", "lte", "lt"])
ranges = st.dictionaries(bounds, st.sampled_from([0, 1, 0.5, -1e300]), min_size=1) | st.dictionaries(
    bounds, st.sampled_from(["2026-01-01", "2025-06-30T12:00:00Z"]), min_size=1
)
wanted = scalars | st.lists(scalars, min_size=1, max_size=3) | ranges


def conditions(inner: st.SearchStrategy[dict[str, Any]] | None = None) -> st.SearchStrategy[dict[str, Any]]:
    fields = st.dictionaries(st.sampled_from(NAMES), wanted, min_size=1, max_size=2)
    if inner is None:
        return fields
    return st.tuples(fields | st.just({}), inner).map(lambda pair: {**pair[0], "not": pair[1]})


filters_of_callers = st.recursive(conditions(), conditions, max_leaves=3)


@dataclass(frozen=True)
class World:
    """Points, each with any tenants in the field, and one caller."""

    field: str
    points: tuple[Point, ...]
    caller: str
    own: set[str]


@st.composite
def worlds(draw: st.DrawFn) -> World:
    field = draw(st.sampled_from(sorted(SHAPES)))
    most = 1 if SHAPES[field] == "one" else 3
    whose = st.lists(st.sampled_from(TENANTS), max_size=most, unique=True)
    owners = draw(st.lists(whose, min_size=1, max_size=5))
    caller = draw(st.sampled_from([*TENANTS, "nobody"]))
    return World(
        field,
        tuple(_point(draw, number, field, own) for number, own in enumerate(owners, start=1)),
        caller,
        {f"text {number}" for number, own in enumerate(owners, start=1) if caller in own},
    )


def _point(draw: st.DrawFn, number: int, field: str, owners: list[str]) -> Point:
    value: Any = owners if SHAPES[field] == "several" else (owners[0] if owners else None)
    parent, _, name = field.removesuffix("[]").rpartition(".")
    payload: dict[str, Any] = {
        "chunk_id": f"c-{number}",
        "language": draw(st.sampled_from(["en", "de"])),
        "pages": draw(st.integers(0, 2)),
        "free": draw(st.booleans()),
        "published": "2026-01-01T00:00:00Z",
        "document_id": "d",
        "position": number if isinstance(number, int) else 0,
        **({"meta": {name: value}} if parent else {name: value}),
    }
    return point(number, f"text {number}", **payload)


def check_world(shelf: Shelf, world: World, filters: dict[str, Any]) -> None:
    """One caller's view: with no filter exactly its own, with a filter those of its own that it selects."""
    name = shelf.refilled(world)
    with container.override(make_services(shelf.store, name, DEADLINE_MS=str(SECONDS_60))):
        of_all = invoke(post("/search", {"query_vector": EAST, "top_k": 100, "filters": filters}))
    with deployed(shelf.store, name, field=world.field):
        assert found(world.caller) == world.own
        assert info(world.caller, name)["points_count"] == len(world.own)
        filtered = search(world.caller, filters=filters)
        texts = {result["text"] for result in filtered.json["results"]}
        assert texts <= world.own
        if of_all.status == 200:
            assert filtered.status == 200, filtered.text
            assert texts == world.own & {result["text"] for result in of_all.json["results"]}
        else:
            assert (shelf.is_strict, of_all.code) == (True, "INDEX_REQUIRED")
        check_additions(search(world.caller, neighbours=2, explain=True), world)
        for each in world.points:
            status = 200 if each.payload["text"] in world.own else 404
            ids = (str(each.id), each.payload["chunk_id"])
            assert [validate(world.caller, chunk_id).status for chunk_id in ids] == [status] * 2


def check_additions(reply: Reply, world: World) -> None:
    """Neighbours, counts and random chunks are the caller's own."""
    assert reply.status == 200, reply.text
    for result in reply.json["results"]:
        around = result.get("neighbours") or {"before": [], "after": []}
        assert {one["text"] for one in (*around["before"], *around["after"])} <= world.own
    explained = reply.json["explain"]
    assert explained["points"] == len(world.own)
    if explained["random_scores"] is not None:
        assert explained["random_scores"]["sample_size"] == len(world.own)


@given(worlds(), filters_of_callers)
@examples(deadline=None, max_examples=50, suppress_health_check=[HealthCheck.too_slow])
def test_no_tenant_gets_a_chunk_of_another(in_memory: Shelf, world: World, filters: dict[str, Any]) -> None:
    check_world(in_memory, world, filters)


@pytest.mark.server
@pytest.mark.parametrize("is_strict", [False, True], ids=["server", "strict"])
@given(worlds(), filters_of_callers)
@examples(deadline=None, max_examples=12, suppress_health_check=[HealthCheck.too_slow])
def test_no_tenant_gets_a_chunk_of_another_from_a_server(
    on_server: dict[bool, Shelf], is_strict: bool, world: World, filters: dict[str, Any]
) -> None:
    check_world(on_server[is_strict], world, filters)
