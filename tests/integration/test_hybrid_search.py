"""Search by words and by both: what dense search misses is found, and every score says what it is."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from qdrant_client import models

from chunkproof.base.errors import ChunkproofError, InvalidParameterError, TextIndexRequiredError
from chunkproof.base.request import Deadline
from chunkproof.collection.services import Services
from chunkproof.contract import RetrievalResponse
from chunkproof.embedders.embedder_port import Embedder, InputType
from chunkproof.net.transport import DeadlineTransport
from chunkproof.stores.edge import EdgeStore
from chunkproof.stores.server import ServerStore
from chunkproof.stores.store_port import TEXT_VECTOR, Layout, Point, PointId, WritableStore

from support.chunks import ask, fill, make_services
from support.sdk import sdk
from support.stores import MemoryStore

CODE = "ERR-4711-X"
WORDS = "pump filter coolant fuse"
COLLECTION = "manual"
# The chunk with the code lies far from any question about pumps, as a table of codes does.
CHUNKS = {
    "The pump stops when its filter is clogged.": (1.0, 0.0, 0.0),
    "The pump runs hot without coolant.": (0.96, 0.28, 0.0),
    "Valves leak when their seals are old.": (0.6, 0.8, 0.0),
    f"{CODE}: supply fuse F3, see sheet 12.": (0.0, 0.28, 0.96),
    "ERR-0815-A: door contact open.": (0.0, 0.0, 1.0),
}
POINTS = tuple(
    Point(
        number,
        {"text": text, "chunk_id": f"c{number}", "document_id": "ab"[number % 2], "url": "https://a.example/x"},
        vector=vector,
    )
    for number, (text, vector) in enumerate(CHUNKS.items(), 1)
)


class Eastern:
    """Every query lies in the east, where the pumps are."""

    model, dimension, max_batch = "eastern", 3, 96

    def __init__(self) -> None:
        self.calls: list[list[str]] = []

    def excess(self, _text: str) -> str | None:
        return None

    def embed(self, texts: Any, _kind: InputType, _deadline: Deadline) -> list[list[float]]:
        self.calls.append(list(texts))
        return [[1.0, 0.0, 0.0] for _ in texts]


def load(store: WritableStore, collection: str, *, text_search: bool = True) -> None:
    deadline = Deadline(60_000)
    store.create(collection, 3, deadline, text_search=text_search)
    fills = text_search and store.features(deadline).bm25
    store.upsert(collection, POINTS, "", deadline, text_vector=TEXT_VECTOR if fills else None)


@pytest.fixture(scope="module", params=["embedded", "indexed", pytest.param("server", marks=pytest.mark.server)])
def shelf(request: pytest.FixtureRequest) -> Iterator[WritableStore]:
    """The same manual in every kind of store: embedded with BM25 vectors, and with a text index alone."""
    if request.param == "server":
        store = ServerStore(request.getfixturevalue("served_qdrant").url, DeadlineTransport())
    else:
        store = MemoryStore(words=True)
    load(store, COLLECTION, text_search=request.param != "indexed")
    yield store
    store.close()


@pytest.fixture
def embedder() -> Eastern:
    return Eastern()


@pytest.fixture
def services(shelf: WritableStore, embedder: Embedder) -> Services:
    return make_services(shelf, COLLECTION, embedder)


def ids(answer: RetrievalResponse) -> list[PointId | None]:
    return [result.point_id for result in answer.results]


def problem(services: Services, **request: Any) -> ChunkproofError:
    with pytest.raises(ChunkproofError) as caught:
        ask(services, **request)
    return caught.value


def test_hybrid_search_finds_the_exact_code_that_dense_search_misses(services: Services) -> None:
    question = f"What does {CODE} mean?"
    assert 4 not in ids(ask(services, query_text=question, top_k=3))
    answer = ask(services, query_text=question, top_k=3, mode="hybrid")
    assert 4 in ids(answer)
    assert ids(ask(services, query_text=CODE, mode="text"))[0] == 4


def test_a_code_is_found_among_others_that_differ_in_one_digit(shelf: WritableStore, collection: str) -> None:
    """Every chunk has the words ERR and X; the number decides, and dense search has it near the end."""
    codes = [f"Unit {n}: error ERR-{4700 + n}-X is shown when fuse F{n} is blown." for n in range(24)]
    deadline = Deadline(60_000)
    is_edge = isinstance(shelf, EdgeStore)
    shelf.create(collection, 3, deadline, text_search=not is_edge)
    points = [Point(n, {"text": text, "chunk_id": f"c{n}"}, vector=(1.0, n / 10, 0.0)) for n, text in enumerate(codes)]
    fills = not is_edge and shelf.features(deadline).bm25
    shelf.upsert(collection, points, "", deadline, text_vector=TEXT_VECTOR if fills else None)
    services = make_services(shelf, collection, Eastern())
    for number in (11, 23):
        code = f"ERR-{4700 + number}-X"
        assert ids(ask(services, query_text=code, mode="text", top_k=1)) == [number]
        assert ids(ask(services, query_text=str(4700 + number), mode="text")) == [number]
        assert number in ids(ask(services, query_text=code, mode="hybrid", top_k=3))


def test_without_the_new_fields_an_answer_has_none_of_theirs(services: Services) -> None:
    answer = ask(services, query_text="pump", query_id="q").to_json()
    for name in ("scores", "group", "mode", "fusion", "text_search", "next_cursor"):
        assert f'"{name}"' not in answer


def test_every_score_of_a_hybrid_result_says_what_it_is(services: Services) -> None:
    answer = ask(services, query_text=CODE, mode="hybrid", top_k=5)
    found = {result.point_id: result for result in answer.results}
    assert found[1].similarity_score == pytest.approx(1.0)
    assert found[1].scores is not None
    assert found[1].scores.dense == pytest.approx(1.0)
    assert found[1].scores.text is None
    assert found[1].scores.fused == pytest.approx(1 / 2, abs=1e-6)
    assert found[4].similarity_score == pytest.approx(0.0, abs=1e-6)
    assert found[4].scores is not None
    assert found[4].scores.text is not None
    fused = [result.scores.fused for result in answer.results if result.scores]
    assert fused == sorted(fused, key=lambda score: -(score or 0.0))
    assert [result.rank for result in answer.results] == [1, 2, 3, 4, 5]


def test_the_response_states_mode_fusion_and_what_words_were_searched_by(services: Services) -> None:
    execution = ask(services, query_text=CODE, mode="hybrid").execution
    assert execution.mode == "hybrid"
    assert execution.fusion is not None
    assert (execution.fusion.method, execution.fusion.k, execution.fusion.candidates) == ("rrf", 2, 100)
    assert execution.text_search is not None
    assert execution.text_search.by in ("sparse_vector", "text_index")
    dbsf = ask(services, query_text=CODE, mode="hybrid", fusion={"method": "dbsf", "candidates": 7}).execution.fusion
    assert dbsf is not None
    assert (dbsf.method, dbsf.k, dbsf.candidates) == ("dbsf", None, 7)


def test_the_rank_constant_is_the_requests(services: Services) -> None:
    answer = ask(services, query_text=CODE, mode="hybrid", fusion={"k": 5})
    best = next(result for result in answer.results if result.point_id == 1)
    assert best.scores is not None
    assert best.scores.fused == pytest.approx(1 / 5, abs=1e-6)


def test_text_mode_embeds_nothing_and_has_no_cosine(services: Services, embedder: Eastern) -> None:
    answer = ask(services, query_text="pump coolant", mode="text")
    assert ids(answer) == [2, 1]
    assert embedder.calls == []
    assert answer.execution.embedding_model is None
    assert answer.execution.embedding_time_ms == 0.0
    for result in answer.results:
        assert result.similarity_score == 0.0
        assert result.scores is not None
        assert (result.scores.dense, result.scores.fused) == (None, None)
        assert (result.scores.text or 0) > 0


def test_text_mode_works_without_an_embedder(shelf: WritableStore) -> None:
    assert ids(ask(make_services(shelf, COLLECTION), query_text=CODE, mode="text"))[0] == 4


def test_no_word_in_common_is_a_success_with_no_results(services: Services) -> None:
    answer = ask(services, query_text="zebra", mode="text")
    assert (answer.status, answer.results) == ("success", ())


def test_the_threshold_is_one_of_the_cosine_and_not_of_the_fused_score(services: Services) -> None:
    request = {"query_text": f"pump {CODE}", "mode": "hybrid", "fusion": {"k": 60}}
    answer = ask(services, **request, similarity_threshold=0.5)
    assert set(ids(answer)) == {1, 2, 3}
    assert all(result.similarity_score >= 0.5 for result in answer.results)
    assert all(((result.scores and result.scores.fused) or 0) < 0.5 for result in answer.results)


def test_filters_apply_to_both_legs(services: Services) -> None:
    for mode in ("text", "hybrid"):
        answer = ask(services, query_text=f"pump {CODE}", mode=mode, filters={"document_id": "a"})
        assert set(ids(answer)) <= {2, 4}
        assert 4 in ids(answer)


def test_vectors_and_payloads_come_with_every_mode(services: Services) -> None:
    for mode in ("text", "hybrid"):
        result = ask(services, query_text=CODE, mode=mode, with_vectors=True, with_payload=True).results[0]
        assert result.vector is not None
        assert len(result.vector) == 3
        assert result.payload is not None


@pytest.mark.parametrize("mode", ["dense", "hybrid"])
def test_grouped_results_have_at_most_group_size_of_each_document(services: Services, mode: str) -> None:
    for size in (1, 2):
        answer = ask(services, query_text=CODE, mode=mode, group_by="document_id", group_size=size, top_k=4)
        groups = [result.group for result in answer.results]
        assert set(groups) == {"a", "b"}
        assert all(groups.count(group) <= size for group in groups)
        assert [result.rank for result in answer.results] == list(range(1, len(groups) + 1))
        assert all(
            result.group == POINTS[int(result.point_id or 0) - 1].payload["document_id"] for result in answer.results
        )


def test_candidates_of_a_hybrid_search_with_groups_grow_with_the_results(services: Services) -> None:
    def candidates(**request: Any) -> int | None:
        fusion = ask(services, query_text=CODE, mode="hybrid", group_by="document_id", **request).execution.fusion
        return fusion and fusion.candidates

    assert candidates() == 100
    assert candidates(top_k=50, group_size=2) == 400
    assert candidates(top_k=1000) == 1000
    assert candidates(top_k=50, fusion={"candidates": 60}) == 60


def test_points_without_the_field_are_left_out_of_groups_and_a_note_says_so(
    memory_store: WritableStore, collection: str
) -> None:
    fill(
        memory_store,
        collection,
        Point(1, {"text": "one", "doc": "a"}, vector=(1.0, 0.0)),
        Point(2, {"text": "two"}, vector=(1.0, 0.0)),
    )
    answer = ask(make_services(memory_store, collection), query_vector=[1.0, 0.0], group_by="doc")
    assert ids(answer) == [1]
    assert answer.notes == (
        "A search grouped by doc leaves out points without the field doc: 1 of the 2 points looked at",
    )


@pytest.mark.parametrize("value", [1.5, True, {"id": "a"}, [], [2.5]])
def test_values_that_form_no_groups_are_left_out_and_a_note_says_so(
    memory_store: WritableStore, collection: str, value: Any
) -> None:
    fill(
        memory_store,
        collection,
        Point(1, {"text": "one", "doc": 7}, vector=(1.0, 0.0)),
        Point(2, {"text": "two", "doc": value}, vector=(1.0, 0.0)),
        Point(3, {"text": "three", "doc": ["b", 2.5]}, vector=(1.0, 0.0)),
    )
    answer = ask(make_services(memory_store, collection), query_vector=[1.0, 0.0], group_by="doc")
    assert answer.notes == (
        "A search grouped by doc leaves out points without a text or an integer in the field doc: 1 of the 3 points "
        "looked at",
    )


def test_diversity_keeps_the_order_of_the_selection(services: Services) -> None:
    relevant = ask(services, query_text="pump", top_k=3, diversity=0.0)
    diverse = ask(services, query_text="pump", top_k=3, diversity=0.8)
    assert ids(relevant) == [1, 2, 3]
    assert ids(diverse)[0] == 1
    assert set(ids(diverse)) & {4, 5}
    assert [result.rank for result in diverse.results] == [1, 2, 3]


def test_of_equal_fused_scores_the_same_one_is_always_left_out(shelf: WritableStore, collection: str) -> None:
    """Each chunk is first by meaning and second by words, or the other way round."""
    deadline = Deadline(60_000)
    shelf.create(collection, 3, deadline, text_search=True)
    texts = {7: "The pump and seven other words of no use", 3: "The pump"}
    vectors = {7: (1.0, 0.0, 0.0), 3: (0.0, 1.0, 0.0)}
    points = [Point(n, {"text": texts[n], "chunk_id": f"c{n}"}, vector=vectors[n]) for n in texts]
    fills = TEXT_VECTOR if shelf.features(deadline).bm25 else None
    shelf.upsert(collection, points, "", deadline, text_vector=fills)
    services = make_services(shelf, collection, Eastern())
    both = ask(services, query_text="pump", mode="hybrid", top_k=2)
    assert len({result.scores.fused for result in both.results if result.scores}) == 1
    for _ in range(20):
        assert ids(ask(services, query_text="pump", mode="hybrid", top_k=1)) == [3]


@pytest.mark.parametrize("mode", ["text", "hybrid"])
def test_at_diversity_0_nothing_changes(services: Services, mode: str) -> None:
    request = {"query_text": f"pump valves {CODE}", "mode": mode, "top_k": 3}
    plain, diverse = ask(services, **request), ask(services, **request, diversity=0.0)
    assert plain.results == diverse.results


def test_a_diverse_hybrid_search_keeps_what_only_its_words_found(services: Services) -> None:
    request = {"query_text": WORDS, "mode": "hybrid", "top_k": 2}
    # Both legs have the pumps (1, 2) first, and these are near to each other. The fuse (4) is far from the query.
    assert ids(ask(services, **request)) == [1, 2]
    answer = ask(services, **request, diversity=0.5)
    assert ids(answer) == [1, 4]
    scores = {result.point_id: result.scores for result in ask(services, **request | {"top_k": 5}).results}
    assert [result.scores for result in answer.results] == [scores[1], scores[4]]
    assert [result.rank for result in answer.results] == [1, 2]
    assert [result.similarity_score for result in answer.results] == pytest.approx([1.0, 0.0], abs=1e-6)
    assert all(result.vector is None for result in answer.results)
    with_vectors = ask(services, **request, diversity=0.5, with_vectors=True)
    assert all(len(result.vector or ()) == 3 for result in with_vectors.results)


def test_a_diverse_text_search_compares_vectors_and_embeds_nothing(services: Services, embedder: Eastern) -> None:
    request = {"query_text": "pump coolant seals", "mode": "text", "top_k": 2}
    assert set(ids(ask(services, **request))) == {2, 3}
    assert ids(ask(services, **request, diversity=1.0))[1] == 3
    assert embedder.calls == []


def test_a_diverse_hybrid_search_has_threshold_filters_and_an_explanation(services: Services) -> None:
    request = {"query_text": WORDS, "mode": "hybrid", "diversity": 0.9, "top_k": 2}
    answer = ask(services, **request, similarity_threshold=0.5, explain=True)
    assert ids(answer) == [1, 3]
    explained = [result.explain for result in answer.results if result.explain]
    assert [one.dense and one.dense.rank for one in explained] == [1, 3]
    for one in explained:
        assert one.fusion is not None
        assert (one.fusion.dense or 0) + (one.fusion.text or 0) == pytest.approx(one.fusion.score)
    assert answer.explain is not None
    assert set(answer.explain.times_ms) == {"embed", "search", "dense", "text"}
    assert set(ids(ask(services, **request, filters={"document_id": "a"}))) == {2, 4}


def test_diverse_queries_of_every_mode_are_answered_together(services: Services) -> None:
    queries = [{"query_text": f"pump {CODE}", "mode": mode} for mode in ("dense", "text", "hybrid")]
    together = ask(services, queries=queries, diversity=0.8, top_k=3)
    alone = [ask(services, **query, diversity=0.8, top_k=3) for query in queries]
    assert [ids(one) for one in together.responses or ()] == [ids(one) for one in alone]


def refuses_words_of_tenants(own: Services) -> bool:
    """Whether the store weighs words by the points of all tenants; then both modes are refused, with the reason."""
    leg, features = own.collection(COLLECTION).text_leg, own.store.features(Deadline(60_000))
    if leg.sparse_vector and features.idf_corpus:
        return False
    for mode in ("text", "hybrid"):
        error = problem(own, query_text=CODE, mode=mode)
        assert error.message.startswith("mode text and mode hybrid are off for tenants: ")
        assert "by how many chunks of all tenants have them" in error.message
        assert error.status == 400
    assert ids(ask(own, query_text=CODE)), "dense search remains"
    return True


def test_a_tenant_has_diverse_results_of_its_own_and_none_by_scores_of_others(shelf: WritableStore) -> None:
    own = make_services(shelf, COLLECTION, Eastern(), TENANT_CLAIM="org", TENANT_FIELD="document_id").for_tenant("a")
    if refuses_words_of_tenants(own):
        return
    answer = ask(own, query_text=CODE, mode="hybrid", diversity=0.5)
    assert set(ids(answer)) == {2, 4}
    error = problem(own, query_text=CODE, mode="text", diversity=0.5)
    assert error.message.startswith("diversity cannot be used in mode text with tenants")


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"mode": "sparse"}, "mode must be one of dense, text, hybrid"),
    ({"mode": 1}, "mode must be one of dense, text, hybrid"),
    ({"mode": "text", "similarity_threshold": 0.5}, "similarity_threshold applies to the cosine similarity"),
    ({"mode": "text", "params": {"exact": True}}, "params are of the index of vectors"),
    ({"fusion": {}}, "fusion needs mode hybrid"),
    ({"mode": "text", "fusion": {"k": 3}}, "fusion needs mode hybrid"),
    ({"mode": "hybrid", "fusion": {"k": 0}}, "fusion.k must be at least 1"),
    ({"mode": "hybrid", "fusion": {"method": "sum"}}, "fusion.method must be 'rrf' or 'dbsf'"),
    ({"mode": "hybrid", "fusion": {"method": "dbsf", "k": 3}}, "fusion.k belongs to rrf, and dbsf has none"),
    ({"mode": "hybrid", "fusion": {"weigths": {}}}, "fusion.weigths is not a known field; did you mean weights?"),
    ({"mode": "hybrid", "fusion": {"weights": {"dense": -1}}}, "fusion.weights.dense must be at least 0"),
    ({"mode": "hybrid", "fusion": {"candidates": 1001}}, "fusion.candidates must be at most 1000"),
    ({"mode": "hybrid", "diversity": 0.5, "top_k": 101}, "diversity in mode hybrid can be had for at most 100 results"),
    ({"mode": "text", "diversity": 0.5, "top_k": 1000}, "diversity in mode text can be had for at most 100 results"),
    ({"mode": "hybrid", "diversity": 0.5, "rerank": True}, "rerank and diversity cannot be combined"),
    ({"diversity": 1.5}, "diversity must be between 0.0 and 1.0"),
    ({"params": {"hnsw_ef": 0}}, "params.hnsw_ef must be at least 1"),
    ({"group_size": 2}, "group_size needs group_by"),
    ({"group_by": "a", "group_size": 0}, "group_size must be between 1 and 100"),
    ({"group_by": "a..b"}, "group_by must name a payload field"),
    ({"group_by": "a", "cursor": "start"}, "cursor and group_by cannot be combined"),
    ({"diversity": 0.5, "cursor": "start"}, "cursor and diversity cannot be combined"),
    ({"group_by": "a", "diversity": 0.5}, "group_by and diversity cannot be combined"),
    ({"cursor": ""}, 'cursor must be "start" or the next_cursor of a response'),
]


@pytest.mark.parametrize(("fields", "message"), WRONG, ids=[message for _, message in WRONG])
def test_what_cannot_be_combined_is_refused_with_the_reason(fields: dict[str, Any], message: str) -> None:
    error = problem(make_services(MemoryStore(), "none"), query_text="pump", **fields)
    assert isinstance(error, InvalidParameterError)
    assert any(one.startswith(message) for one in error.messages), error.messages


def test_a_vector_alone_cannot_be_searched_by_words() -> None:
    error = problem(make_services(MemoryStore(), "x"), query_vector=[1.0], mode="hybrid")
    assert error.messages == ("mode hybrid searches by words and needs query_text, not query_vector",)


@pytest.mark.server
def test_weights_that_the_server_would_ignore_are_refused(server_store: WritableStore, collection: str) -> None:
    load(server_store, collection)
    weights = {"weights": {"dense": 1.0, "text": 3.0}}
    error = problem(make_services(server_store, collection, Eastern()), query_text=CODE, mode="hybrid", fusion=weights)
    assert error.messages == (
        "fusion.weights needs Qdrant 1.17 or later: Qdrant 1.16.3 ignores them. Leave them out, or use dbsf",
    )


def test_weights_move_results_where_the_store_takes_them(memory_store: WritableStore, collection: str) -> None:
    load(memory_store, collection)
    services = make_services(memory_store, collection, Eastern())

    def first(dense: float, text: float) -> PointId | None:
        fusion = {"weights": {"dense": dense, "text": text}}
        return ids(ask(services, query_text=CODE, mode="hybrid", fusion=fusion))[0]

    assert first(1.0, 0.0) == 1
    assert first(0.0, 1.0) == 4


@pytest.mark.server
def test_a_collection_without_words_is_a_400_that_names_the_call(server_store: WritableStore, collection: str) -> None:
    load(server_store, collection, text_search=False)
    services = make_services(server_store, collection, Eastern())
    for mode in ("text", "hybrid"):
        error = problem(services, query_text=CODE, mode=mode)
        assert isinstance(error, TextIndexRequiredError)
        assert (error.code, error.status) == ("INDEX_REQUIRED", 400)
        assert "create_collection(" in error.message
        assert 'sparse_vectors_config={"bm25": SparseVectorParams(modifier="idf")}' in error.message
        assert "chunkproof load --hybrid" in error.message


@pytest.mark.server
@pytest.mark.parametrize("mode", ["text", "hybrid"])
def test_an_empty_collection_has_no_results_until_it_is_filled(tmp_path: Path, mode: str) -> None:
    store = EdgeStore(tmp_path)
    store.create(COLLECTION, 3, Deadline(60_000))
    services = make_services(store, COLLECTION, Eastern())
    assert ids(ask(services, query_text=CODE, mode=mode)) == []
    store.upsert(COLLECTION, POINTS, "", Deadline(60_000))
    assert 4 in ids(ask(services, query_text=CODE, mode=mode))
    store.close()


def test_no_index_is_proposed_for_a_text_inside_of_a_json_string(tmp_path: Path) -> None:
    store = EdgeStore(tmp_path)
    store.create(COLLECTION, 3, Deadline(60_000))
    node = {"_node_content": json.dumps({"text": "The pump stops."}), "_node_type": "TextNode"}
    store.upsert(COLLECTION, [Point(1, node, vector=(1.0, 0.0, 0.0))], "", Deadline(60_000))
    message = str(problem(make_services(store, COLLECTION, Eastern()), query_text="pump", mode="text"))
    assert "chunkproof load --hybrid" in message
    assert "create_payload_index" not in message
    store.close()


def test_a_sparse_vector_of_another_model_is_not_taken_for_bm25(server_store: WritableStore, collection: str) -> None:
    sdk(server_store).create_collection(
        collection,
        vectors_config=models.VectorParams(size=3, distance=models.Distance.COSINE),
        sparse_vectors_config={"splade": models.SparseVectorParams()},
    )
    error = problem(make_services(server_store, collection, Eastern()), query_text=CODE, mode="hybrid")
    assert "its sparse vector splade has no IDF modifier, so it is not BM25" in error.message


@pytest.mark.server
def test_a_collection_of_sparse_vectors_alone_is_searched_by_words(
    server_store: WritableStore, collection: str
) -> None:
    sdk(server_store).create_collection(
        collection,
        vectors_config={},
        sparse_vectors_config={"words": models.SparseVectorParams(modifier=models.Modifier.IDF)},
    )
    points = [
        models.PointStruct(
            id=number, vector={"words": models.Document(text=text, model="qdrant/bm25")}, payload={"page_content": text}
        )
        for number, text in enumerate(CHUNKS, 1)
    ]
    sdk(server_store).upsert(collection, points, wait=True)
    answer = ask(make_services(server_store, collection), query_text=CODE, mode="text")
    assert ids(answer)[0] == 4
    assert answer.execution.text_search is not None
    assert (answer.execution.text_search.by, answer.execution.text_search.name) == ("sparse_vector", "words")
    for fields in ({"mode": "text", "diversity": 0.5}, {"mode": "hybrid"}, {}):
        error = problem(make_services(server_store, collection, Eastern()), query_text=CODE, **fields)
        assert error.message == (
            f"Collection {collection} has no dense vector: only mode text, without diversity, can search it"
        )


@pytest.mark.server
@pytest.mark.parametrize("name", ["", "text sparse", "ü/ß", "a.b[]", '\'quo"te"', "😀", "new\nline", "{name}", "%2F"])
def test_a_sparse_vector_may_have_any_name(server_store: WritableStore, collection: str, name: str) -> None:
    sdk(server_store).create_collection(
        collection,
        vectors_config={"dé nse/ü": models.VectorParams(size=3, distance=models.Distance.COSINE)},
        sparse_vectors_config={name: models.SparseVectorParams(modifier=models.Modifier.IDF)},
    )
    server_store.upsert(collection, POINTS, "dé nse/ü", Deadline(60_000), text_vector=name)
    services = make_services(server_store, collection, Eastern())
    for fields in ({"mode": "text"}, {"group_by": "document_id"}, {"diversity": 0.5}, {"explain": True}):
        answer = ask(services, query_text=CODE, with_vectors=True, **{"mode": "hybrid", **fields})
        found = {result.point_id: result.vector for result in answer.results}
        assert found[4] == pytest.approx((0.0, 0.28, 0.96))


def test_words_are_searched_where_the_pipeline_keeps_them(memory_store: EdgeStore, collection: str) -> None:
    moved = [Point(p.id, {"page_content": p.payload["text"], "metadata": {}}, vector=p.vector) for p in POINTS]
    layout = Layout({"": {"size": 3, "distance": "Cosine"}}, indexes={"page_content": {"type": "text"}})
    memory_store.create_like(collection, layout, Deadline(60_000))
    memory_store.upsert(collection, moved, "", Deadline(60_000))
    answer = ask(make_services(memory_store, collection), query_text=CODE, mode="text")
    assert ids(answer)[0] == 4
    assert answer.execution.text_search is not None
    assert answer.execution.text_search.name == "page_content"


def test_the_query_is_embedded_while_the_collection_is_looked_at(shelf: WritableStore) -> None:
    """The first search needs both; each waits for the other to have begun."""
    from threading import Event

    embedding, describing = Event(), Event()

    class Patient(Eastern):
        def embed(self, texts: Any, kind: InputType, deadline: Deadline) -> list[list[float]]:
            embedding.set()
            assert describing.wait(10)
            return super().embed(texts, kind, deadline)

    services = make_services(shelf, COLLECTION, Patient())
    describe = services.store.describe

    def slow_describe(collection: str, deadline: Deadline) -> Any:
        describing.set()
        assert embedding.wait(10)
        return describe(collection, deadline)

    services.store.describe = slow_describe  # type: ignore[method-assign]
    try:
        assert ask(services, query_text=CODE, mode="hybrid").status == "success"
    finally:
        del services.store.describe


def test_a_tenant_gets_no_score_in_which_others_words_count(shelf: WritableStore) -> None:
    own = make_services(shelf, COLLECTION, Eastern(), TENANT_CLAIM="org", TENANT_FIELD="document_id").for_tenant("a")
    if refuses_words_of_tenants(own):
        return
    for mode in ("text", "hybrid"):
        answer = ask(own, query_text=CODE, mode=mode)
        assert 4 in ids(answer)
        assert all(result.scores is not None and result.scores.text is None for result in answer.results)
    error = problem(own, query_text=CODE, mode="hybrid", fusion={"method": "dbsf"})
    assert error.message.startswith("fusion.method dbsf cannot be used with tenants")
