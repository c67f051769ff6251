"""Any pipeline's payload → a chunk: the contract's mapping table, row by row."""

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chunkproof.base.errors import CorruptChunkError
from chunkproof.collection.payload_map import NAMES, PayloadMap, flatten, lies_in_json_string
from chunkproof.stores.store_port import Point

from .strategies import JSON_VALUES
from support.doc_tables import names_in, read_table


def read_contract_table() -> dict[str, list[str]]:
    """Return the names of each canonical field, in the order of the table in docs/contract.md."""
    table = {}
    for fields, names in read_table("contract.md", "| canonical field | names |"):
        # After a semicolon it says what applies where no name has a value.
        table |= {field: names_in(names.partition(";")[0]) or [field] for field in names_in(fields)}
    return table


TABLE = read_contract_table()
ROWS = [(field, name) for field, names in TABLE.items() for name in names]
NEIGHBOURS = [(field, *pair) for field, names in TABLE.items() for pair in pairwise(names)]
READ = PayloadMap()


def nest(name: str, value: object) -> dict[str, object]:
    """Return the object that has the value under a name, which may have a dot."""
    first, _, rest = name.partition(".")
    return {first: nest(rest, value) if rest else value}


def chunk(payload: dict[str, object], point_id: int | str = 1):
    return READ.chunk_of(Point(point_id, payload))


def metadata(payload: dict[str, object], point_id: int | str = 1):
    return chunk({"text": "t"} | payload, point_id).metadata


def test_the_contract_lists_the_names_in_the_order_in_which_they_are_tried():
    assert {field: list(names) for field, names in NAMES.items()} == TABLE


@pytest.mark.parametrize(("field", "name"), ROWS)
def test_a_field_is_found_under_each_name(field, name):
    assert READ.value(field, {name: "here"}) == "here"


@pytest.mark.parametrize(("field", "name"), ROWS)
@pytest.mark.parametrize("parent", ["metadata", "meta", "meta_data"])
def test_every_name_is_also_tried_under_metadata_meta_and_meta_data(field, name, parent):
    assert READ.value(field, {parent: nest(name, "here")}) == "here"
    assert READ.value(field, {f"{parent}.{name}": "here"}) == "here"


@pytest.mark.parametrize(("field", "name"), ROWS)
@pytest.mark.parametrize("parent", ["metadata", "meta", "meta_data"])
def test_a_dot_into_a_json_string_parses_it(field, name, parent):
    assert READ.value(field, {parent: json.dumps(nest(name, "here"))}) == "here"


@pytest.mark.parametrize(("field", "first", "second"), NEIGHBOURS)
def test_the_first_name_of_a_row_wins(field, first, second):
    assert READ.value(field, {second: "later", first: "first"}) == "first"


@pytest.mark.parametrize("field", TABLE)
def test_the_top_level_wins_over_metadata_and_metadata_over_meta(field):
    name = TABLE[field][0]

    assert READ.value(field, {"meta": nest(name, "3"), "metadata": nest(name, "2")} | nest(name, "1")) == "1"
    assert READ.value(field, {"meta": nest(name, "3"), "metadata": nest(name, "2")}) == "2"


@pytest.mark.parametrize(("field", "first", "second"), NEIGHBOURS)
def test_a_null_is_no_match(field, first, second):
    assert READ.value(field, {first: None, second: "here"}) == "here"


@pytest.mark.parametrize("value", ["", 0, False, [], {}])
def test_an_empty_value_is_a_match(value):
    assert READ.value("url", {"url": value, "source": "later"}) == value


def test_llamaindex_keeps_its_text_inside_a_json_string():
    payload = {"_node_content": json.dumps({"text": "node text", "metadata": {"url": "not here"}})}

    assert chunk(payload).text == "node text"
    assert chunk(payload).metadata.url is None


def test_the_nodes_text_wins_over_metadata_spread_beside_it():
    assert chunk({"_node_content": '{"text": "node"}', "document": "handbook.pdf"}).text == "node"


def test_an_empty_text_counts_only_when_there_is_no_other():
    assert chunk({"_node_content": '{"text": ""}', "text": "own"}).text == "own"
    assert chunk({"text": ""}).text == ""


def test_the_top_level_comes_before_what_is_nested():
    assert chunk({"page_content": "own", "metadata": {"text": "some metadata"}}).text == "own"


@pytest.mark.parametrize("broken", ["{", "not json", "[1]", "5", '{"text": ', "", '{"text": ' + "9" * 5000 + "}"])
def test_a_string_that_is_no_json_object_leads_nowhere(broken):
    assert READ.value("text", {"_node_content": broken}) is None
    assert READ.value("url", {"metadata": broken}) is None


@pytest.mark.parametrize("parent", [None, 5, ["url"], [{"url": "x"}], True])
def test_a_parent_that_is_no_object_leads_nowhere(parent):
    assert READ.value("url", {"metadata": parent}) is None


def test_a_json_string_may_begin_with_white_space():
    assert READ.value("url", {"metadata": '\n {"url": "here"}'}) == "here"


def test_a_document_without_an_id_has_its_urls():
    assert metadata({"source": "https://a.example"}).document_id == "https://a.example"
    assert metadata({"source": "https://a.example", "doc_id": "7"}).document_id == "7"


def test_section_headers_are_a_list_when_there_are_none():
    assert metadata({}).section_headers == []
    assert metadata({"section_headers": ["A", "B"]}).section_headers == ["A", "B"]


@given(st.text())
def test_the_text_is_the_stored_one_code_point_for_code_point(text):
    assert chunk({"page_content": text}).text == text


@pytest.mark.parametrize("payload", [{}, {"text": None}, {"text": 5}, {"text": ["a"]}, {"text": {}}])
def test_a_point_without_text_is_corrupt_and_named(payload):
    with pytest.raises(CorruptChunkError, match=r"^Chunk 7 has no readable text$"):
        chunk(payload, 7)


@pytest.mark.parametrize(
    ("payload", "chunk_id"),
    [
        ({"chunk_id": "c", "id": "i", "metadata": {"chunk_id": "m"}}, "c"),
        ({"id": "i", "metadata": {"chunk_id": "m"}}, "i"),
        ({"metadata": {"chunk_id": "m"}}, "m"),
        ({"metadata": '{"chunk_id": "m"}'}, "42"),  # a store cannot look it up there
        ({"chunk_id": 3, "id": "i"}, "i"),
        ({"chunk_id": 3}, "42"),
        ({"chunk_id": 3, "id": 5, "metadata": {"chunk_id": 7}}, "42"),
        ({"chunk_id": "", "id": " "}, "42"),
        ({"chunk_id": None}, "42"),
        ({"chunk_id": ["c"]}, "42"),
        ({"meta": {"chunk_id": "m"}}, "42"),
        ({}, "42"),
    ],
)
def test_the_id_is_the_payloads_own_string_else_the_points(payload, chunk_id):
    assert metadata(payload, 42).chunk_id == chunk_id


def test_a_uuid_point_id_is_shown_as_it_is():
    assert metadata({}, "550e8400-e29b-41d4-a716-446655440000").chunk_id == "550e8400-e29b-41d4-a716-446655440000"


def test_a_row_of_the_payload_map_comes_instead_of_the_built_in_names():
    own = PayloadMap({"text": ("body.raw", "body.plain"), "chunk_id": ("key",)})
    point = Point(1, {"text": "built-in", "body": {"plain": "own"}, "chunk_id": "c", "key": "k", "title": "T"})

    assert own.chunk_of(point).text == "own"
    assert own.id_of(point) == "k"
    assert own.chunk_of(point).metadata.document_title == "T"
    assert own.value("text", {"text": "built-in"}) is None


def test_an_own_path_reaches_into_json_strings_too():
    assert PayloadMap({"url": ("a.b.c",)}).value("url", {"a": '{"b": "{\\"c\\": \\"deep\\"}"}'}) == "deep"


def test_a_flat_name_with_a_dot_wins_over_the_nested_one():
    assert READ.value("url", {"metadata.url": "flat", "metadata": {"url": "nested"}}) == "flat"


def test_the_path_that_leads_to_a_field_is_known():
    assert READ.path_in("url", {"metadata": {"source": "x"}}) == "metadata.source"
    assert READ.path_in("url", {}) is None
    assert READ.first_path("url") == "url"


def test_paths_in_use_are_listed_by_rank_and_the_usual_one_is_the_most_used():
    payloads = [{"source": "x"}, {"url": "x"}, {"source": "y"}, {}, {"meta": {"url": "z"}}]

    assert READ.paths_in("url", payloads) == ["url", "source", "meta.url"]
    assert READ.usual_path("url", payloads) == "source"
    assert READ.usual_path("url", [{}]) is None


def test_canonical_names_are_those_of_the_table():
    assert READ.fields == tuple(TABLE)
    assert all(READ.is_canonical(field) for field in TABLE)
    assert not READ.is_canonical("chunk_index")


@pytest.mark.parametrize(
    ("path", "payload", "inside"),
    [
        ("_node_content.text", {"_node_content": '{"text": "x"}'}, True),
        ("metadata.url", {"metadata": {"url": "x"}}, False),
        ("url", {"url": '{"a": 1}'}, False),
        ("a.b.c", {"a": {"b": '{"c": 1}'}}, True),
        ("a.b", {}, False),
    ],
)
def test_a_path_through_a_json_string_is_recognised(path, payload, inside):
    assert lies_in_json_string(path, payload) is inside


def test_fields_one_level_down_have_dotted_names():
    payload = {"text": "x", "metadata": {"url": "u", "deep": {"er": 1}}, "tags": ["a"], "empty": {}}

    assert dict(flatten(payload)) == {
        "text": "x", "metadata.url": "u", "metadata.deep": {"er": 1}, "tags": ["a"],
    }  # fmt: skip


def node(**fields: object) -> Point:
    content = {"text": "Body", "metadata": {"title": "T", "secret": "S"}} | fields
    return Point(1, {"_node_content": json.dumps(content)})


@pytest.mark.parametrize(
    ("fields", "embedded"),
    [
        ({}, "title: T\nsecret: S\n\nBody"),
        ({"excluded_embed_metadata_keys": ["secret"]}, "title: T\n\nBody"),
        ({"excluded_embed_metadata_keys": ["secret", "title"]}, "Body"),
        ({"metadata": {}}, "Body"),
        ({"metadata": None}, "Body"),
        (
            {
                "metadata_template": "{key}={value}", "metadata_separator": "; ",
                "text_template": "[{metadata_str}] {content}",
            },
            "[title=T; secret=S] Body",
        ),
    ],
)  # fmt: skip
def test_llamaindex_embeds_a_nodes_metadata_before_its_text(fields, embedded):
    assert READ.embedded_text(node(**fields)) == embedded


def test_other_pipelines_embed_the_text_itself():
    assert READ.embedded_text(Point(1, {"text": "Body", "metadata": {"title": "T"}})) == "Body"


@given(
    st.dictionaries(st.sampled_from([*(name for _, name in ROWS), "id", "chunk_id", "metadata", "meta"]), JSON_VALUES)
)
def test_any_json_payload_is_a_chunk_or_corrupt(payload):
    try:
        read = chunk(payload)
    except CorruptChunkError:
        assert not isinstance(READ.value("text", payload), str)
    else:
        assert read.metadata.chunk_id.strip()
        json.loads(read.metadata.to_json())


def test_a_json_string_too_deep_to_parse_leads_nowhere():
    deep = '{"url": ' + "[" * 100_000 + "]" * 100_000 + "}"

    assert metadata({"metadata": deep}).url is None


def test_a_text_that_is_no_unicode_is_corrupt():
    with pytest.raises(CorruptChunkError):
        chunk({"_node_content": '{"text": "\\ud800"}'})


@pytest.mark.parametrize("name", ["url", "chunk_id", "title"])
def test_metadata_that_is_no_unicode_can_still_be_answered(name):
    json.loads(metadata({"metadata": '{"' + name + '": "\\ud800"}'}).to_json())


def test_metadata_nested_beyond_what_an_answer_can_carry_is_corrupt():
    deep: list[object] = []
    for _ in range(300):
        deep = [deep]

    with pytest.raises(CorruptChunkError, match="metadata nested too deeply"):
        chunk({"text": "x", "section_headers": deep})


@pytest.mark.parametrize(
    ("pipeline", "payload", "text", "url"),
    [
        ("mem0", {"data": "T", "hash": "h", "user_id": "u"}, "T", None),
        ("Spring AI", {"doc_content": "T", "source": "a.pdf"}, "T", "a.pdf"),
        ("LangChain4j", {"text_segment": "T", "file_name": "a.txt", "index": "0"}, "T", "a.txt"),
        (
            "Kernel Memory",
            {"id": "d=1//p=2", "payload": '{"text": "T", "url": "https://a.example"}'},
            "T",
            "https://a.example",
        ),
        ("Semantic Kernel", {"Text": "T", "Key": "k"}, "T", None),
        ("Semantic Kernel, legacy", {"_text": "T", "_description": "d"}, "T", None),
        ("Roo Code", {"codeChunk": "T", "filePath": "src/a.py", "startLine": 1}, "T", "src/a.py"),
        ("AG2", {"_content": "T", "metadata": {}}, "T", None),
        (
            "Unstructured",
            {"text": "T", "metadata-data_source-url": "s3://a/b", "metadata-filename": "b"},
            "T",
            "s3://a/b",
        ),
        ("n8n", {"content": "T", "metadata": {"source": "blob", "blobType": "text/plain"}}, "T", None),
        ("Flowise with a file", {"content": "T", "metadata": {"source": "Blob", "file_name": "a.txt"}}, "T", "a.txt"),
        ("Agno", {"content": "T", "meta_data": {"url": "https://a.example"}}, "T", "https://a.example"),
        ("LightRAG", {"content": "T", "full_doc_id": "doc-1", "file_path": "a.md"}, "T", "a.md"),
    ],
)
def test_what_a_pipeline_writes_is_read(pipeline, payload, text, url):
    assert chunk(payload).text == text, pipeline
    assert chunk(payload).metadata.url == url
