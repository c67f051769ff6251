"""Filters by canonical names: they mean the payload field that this collection keeps the value in."""

from typing import Any

import pytest

from chunkproof.base.errors import InvalidParameterError
from chunkproof.base.request import Deadline
from chunkproof.collection.services import Services
from chunkproof.stores.store_port import Point, WritableStore

from support.chunks import ask, fill, make_services
from support.pipelines import dense_vector, pipeline, write

EAST = [1.0, 0.0]


@pytest.fixture(params=["memory", pytest.param("server", marks=pytest.mark.server)])
def either(request: pytest.FixtureRequest) -> WritableStore:
    """A store in memory and one on a server."""
    chosen: WritableStore = request.getfixturevalue(f"{request.param}_store")
    return chosen


def texts(services: Services, filters: dict[str, Any]) -> list[str]:
    return sorted(result.text for result in ask(services, query_vector=EAST, filters=filters).results)


def point(number: int, payload: dict[str, Any]) -> Point:
    return Point(number, {"text": str(number), **payload}, vector=(1.0, 0.0))


@pytest.mark.parametrize(
    ("payload", "filters"),
    [
        ({"source_url": "https://a.example"}, {"url": "https://a.example"}),
        ({"metadata": {"source": "https://a.example"}}, {"url": "https://a.example"}),
        ({"meta": {"url": "https://a.example"}}, {"url": "https://a.example"}),
        ({"page_title": "A"}, {"document_title": "A"}),
        ({"chunk_index": 4}, {"position": 4}),
        ({"meta": {"split_id": 4}}, {"position": {"gte": 4, "lt": 5}}),
        ({"ingested_at": "2025-12-27T10:30:00Z"}, {"timestamp": {"gte": "2025-12-27"}}),
        ({"chunk_size": 380}, {"tokens": {"gt": 379.5}}),
        ({"ref_doc_id": "d-1"}, {"document_id": "d-1"}),
        ({"has_code": True}, {"has_code": True}),
        ({"section_headers": ["A", "B"]}, {"section_headers": "B"}),
        ({"chunk_id": "c-1"}, {"chunk_id": "c-1"}),
        ({"id": "c-1"}, {"chunk_id": ["c-0", "c-1"]}),
        ({"metadata": {"chunk_id": "c-1"}}, {"chunk_id": "c-1"}),
        ({"own": {"field": 5}}, {"own.field": 5}),
    ],
    ids=str,
)
def test_a_name_selects_by_the_mapped_field(
    either: WritableStore, collection: str, payload: dict[str, Any], filters: dict[str, Any]
) -> None:
    fill(either, collection, point(1, payload), point(2, {}))
    services = make_services(either, collection)
    assert texts(services, filters) == ["1"]
    assert texts(services, {"not": filters}) == ["2"]


def test_a_name_selects_by_every_field_that_the_collection_uses_for_it(either: WritableStore, collection: str) -> None:
    layouts = ({"url": "u"}, {"source_url": "u"}, {"metadata": {"source": "u"}}, {"url": "v"}, {})
    fill(either, collection, *(point(n, payload) for n, payload in enumerate(layouts, start=1)))
    services = make_services(either, collection)
    assert texts(services, {"url": "u"}) == ["1", "2", "3"]
    assert texts(services, {"not": {"url": "u"}}) == ["4", "5"]


def test_a_payload_map_decides_what_a_name_means(either: WritableStore, collection: str) -> None:
    fill(either, collection, point(1, {"link": "u", "url": "v"}), point(2, {"link": "v", "url": "u"}))
    assert texts(make_services(either, collection, PAYLOAD_MAP='{"url": "link"}'), {"url": "u"}) == ["1"]


def test_all_conditions_must_hold(either: WritableStore, collection: str) -> None:
    fill(
        either,
        collection,
        point(1, {"source_url": "u", "chunk_index": 1}),
        point(2, {"source_url": "u", "chunk_index": 2}),
        point(3, {"source_url": "v", "chunk_index": 2}),
    )
    assert texts(make_services(either, collection), {"url": "u", "position": 2}) == ["2"]


def test_a_filter_and_a_threshold_work_together(either: WritableStore, collection: str) -> None:
    points = ((1, (1.0, 0.0), "u"), (2, (0.8, 0.6), "u"), (3, (0.6, 0.8), "u"), (4, (1.0, 0.0), "v"))
    fill(either, collection, *(Point(n, {"text": str(n), "url": url}, vector=v) for n, v, url in points))
    answer = ask(make_services(either, collection), query_vector=EAST, filters={"url": "u"}, similarity_threshold=0.7)
    assert [result.text for result in answer.results] == ["1", "2"]


@pytest.mark.parametrize("filters", [{"text": "A vector"}, {"not": {"text": "A vector"}}])
def test_a_name_whose_value_lies_in_a_json_string_is_refused(
    either: WritableStore, collection: str, filters: dict[str, Any]
) -> None:
    write(either, collection, "llamaindex_dense", with_indexes=False)
    vector = dense_vector(pipeline("llamaindex_dense")["points"][0])
    with pytest.raises(InvalidParameterError) as caught:
        ask(make_services(either, collection), query_vector=vector, filters=filters)
    assert caught.value.message == (
        "filters.text cannot be used: this collection keeps it inside a JSON string (_node_content.text)"
    )


def test_a_document_id_that_a_search_shows_can_be_filtered_by(either: WritableStore, collection: str) -> None:
    fill(either, collection, point(1, {"source_url": "u"}), point(2, {"source_url": "v"}))
    services = make_services(either, collection)
    shown = ask(services, query_vector=EAST).results[0].metadata.model_dump()["document_id"]
    assert shown == "u"
    assert texts(services, {"document_id": "u"}) == ["1"]


def test_a_collection_filled_after_the_first_filter_is_filtered_rightly(either: WritableStore, collection: str) -> None:
    fill(either, collection)
    services = make_services(either, collection)
    assert texts(services, {"url": "u"}) == []
    either.upsert(collection, [point(1, {"source_url": "u"})], "", Deadline(60_000))
    assert texts(services, {"url": "u"}) == ["1"]


def test_a_result_has_the_value_that_was_filtered_by(either: WritableStore, collection: str) -> None:
    layouts = ({"url": "u"}, {"source_url": "u"}, {"url": "v", "source_url": "u"})
    fill(either, collection, *(point(n, payload) for n, payload in enumerate(layouts, start=1)))
    answer = ask(make_services(either, collection), query_vector=EAST, filters={"url": "u"})
    assert {result.metadata.url for result in answer.results} == {"u"}


@pytest.mark.server
def test_a_name_that_is_no_path_for_the_store_is_refused_as_such(server_store: WritableStore, collection: str) -> None:
    fill(server_store, collection, point(1, {"a\\b": "v"}))
    with pytest.raises(InvalidParameterError) as caught:
        texts(make_services(server_store, collection), {"a\\b": "v"})
    assert caught.value.code == "INVALID_REQUEST"


def test_a_filter_on_a_field_that_no_point_has_says_so(either: WritableStore, collection: str) -> None:
    fill(either, collection, point(1, {"language": "en"}), point(2, {"tags": [{"name": "a"}]}))
    services = make_services(either, collection)
    notes = {
        "langage": (f"No point of collection {collection} has the field langage; did you mean language?",),
        "xyz": (f"No point of collection {collection} has the field xyz",),
        "url": (f"No point of collection {collection} has the field url",),
        "language": (),
        "tags[].name": (),
    }
    for field, expected in notes.items():
        answer = ask(services, query_vector=EAST, filters={field: "de"})
        assert (answer.status, answer.results, answer.notes) == ("success", (), expected)
    assert "notes" not in ask(services, query_vector=EAST, filters={"language": "en"}).model_dump()


def test_a_field_that_only_a_later_point_has_is_not_called_absent(either: WritableStore, collection: str) -> None:
    many = (point(number, {}) for number in range(1, 151))
    fill(either, collection, *many, point(200, {"rare": "yes"}))
    services = make_services(either, collection)
    assert ask(services, query_vector=EAST, filters={"rare": "no"}).notes == ()
    assert ask(services, query_vector=EAST, filters={"other": "no"}).notes == (
        f"No point of collection {collection} has the field other",
    )


def test_a_filter_on_chunk_id_takes_the_point_ids_that_results_show(either: WritableStore, collection: str) -> None:
    fill(either, collection, *(point(number, {"id": "the document"}) for number in (1, 2, 3)))
    services = make_services(either, collection)
    assert texts(services, {"chunk_id": ["1", "3"]}) == ["1", "3"]
    assert texts(services, {"not": {"chunk_id": "1"}}) == ["2", "3"]
