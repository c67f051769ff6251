"""What retrievers return, in the shapes that services and frameworks use."""

from dataclasses import dataclass, field
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest

from chunkproof.base.errors import InvalidParameterError
from chunkproof_cli.retrievers.mapping import (
    Mapper,
    ResultPath,
    RetrieverError,
    fill_template,
    fill_url,
    read_mapper,
    read_results,
)

REQUEST = {"query_text": 'Was heißt "Größe"?', "top_k": 7, "collection": "docs"}


def shown(answer: Any) -> list[tuple[str, str | None, float | None]]:
    return [(one.metadata.chunk_id, one.text, one.score) for one in read_results(answer)]


@dataclass
class LangChainDocument:
    page_content: str
    metadata: dict[str, Any]
    id: str | None = None


@dataclass
class LlamaIndexNode:
    id_: str
    text: str
    metadata: dict[str, Any] = field(default_factory=dict)
    ref_doc_id: str | None = None


@dataclass
class HaystackDocument:
    id: str
    content: str
    meta: dict[str, Any]
    score: float


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (["a", "b"], [("a", None, None), ("b", None, None)]),
        ([1, 2], [("1", None, None), ("2", None, None)]),
        ([("a", 17.5), ("b", 3)], [("a", None, 17.5), ("b", None, 3.0)]),
        ([{"id": "a", "text": "A", "score": 0.5}], [("a", "A", 0.5)]),
        ({"results": [{"id": 7, "content": "A"}]}, [("7", "A", None)]),
        ({"hits": {"total": 1, "hits": [{"_id": "a", "_score": 2.5, "body": "A"}]}}, [("a", "A", 2.5)]),
        ({"ranker": {"documents": [HaystackDocument("a", "A", {}, 0.9)]}}, [("a", "A", 0.9)]),
        ([LangChainDocument("A", {"_id": "p1", "source": "x.md"})], [("p1", "A", None)]),
        ([(LangChainDocument("A", {"chunk_id": "c", "_id": "p1"}), 0.7)], [("c", "A", 0.7)]),
        ([SimpleNamespace(node=LlamaIndexNode("n1", "A"), score=0.8)], [("n1", "A", 0.8)]),
        (
            SimpleNamespace(source_nodes=[SimpleNamespace(node=LlamaIndexNode("n1", "A"), score=0.8)]),
            [("n1", "A", 0.8)],
        ),
        ([SimpleNamespace(id=3, score=0.5, payload={"page_content": "A"})], [("3", "A", 0.5)]),
        ([{"id": "a", "payload": {"text": "A"}, "score": 1}], [("a", "A", 1.0)]),
        ({"points": []}, []),
        ([], []),
    ],
)
def test_results_are_read_in_every_usual_shape(answer: Any, expected: list[Any]) -> None:
    assert shown(answer) == expected


def test_the_metadata_has_the_source_and_the_document() -> None:
    (found,) = read_results([LangChainDocument("A", {"source": "x.md", "title": "X", "at": datetime.now(UTC)}, "i")])
    assert (found.metadata.url, found.metadata.document_title) == ("x.md", "X")
    node = LlamaIndexNode("n1", "A", {"url": "https://x"}, ref_doc_id="d1")
    (found,) = read_results([SimpleNamespace(node=node, score=0.8)])
    assert (found.metadata.chunk_id, found.metadata.document_id, found.metadata.url) == ("n1", "d1", "https://x")


def test_a_result_with_a_text_only_is_listed_by_its_hash() -> None:
    ((key, text, _),) = shown([{"text": "A"}])
    assert (key, text) == ("sha256:559aead08264d579", "A")


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (None, "The retriever returned nothing; a list of results is expected"),
        ("a text", "The retriever returned a value of type str; a list of results is expected"),
        ({"detail": "no", "errors": ["x"]}, "The retriever returned an object with detail, errors; a list"),
        ([{"score": 1.0}], "Result 1 of the retriever has neither an id nor a text"),
    ],
)
def test_what_is_no_result_is_an_error(answer: Any, message: str) -> None:
    with pytest.raises(RetrieverError, match=message):
        read_results(answer)


def test_a_lone_surrogate_and_a_nan_do_not_reach_the_report() -> None:
    assert shown([{"id": "a", "text": "x\ud800", "score": float("nan")}]) == [("a", "x?", None)]


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("$.hits[*].id", ["a", "b"]),
        ("hits[0].id", ["a"]),
        ("$.hits[-1]['id']", ["b"]),
        ('$["odd name"].x', [1]),
        ("hits[?id == 'b'].id", ["b"]),
        ('"odd name".x', [1]),
        ("$.hits[*].missing", []),
        ("$.hits[7].id", []),
        ("$", [{"hits": [{"id": "a"}, {"id": "b"}], "odd name": {"x": 1}}]),
    ],
)
def test_a_path_finds_its_values(path: str, found: list[Any]) -> None:
    assert ResultPath(path, "id").find({"hits": [{"id": "a"}, {"id": "b"}], "odd name": {"x": 1}}) == found


@pytest.mark.parametrize("path", ["$..id", "$.hits[", "$.a[?(@.x>1)]"])
def test_a_path_that_cannot_be_read_is_refused(path: str) -> None:
    with pytest.raises(InvalidParameterError, match="such as"):
        ResultPath(path, "id")


def test_a_template_is_filled_with_values_of_their_own_type() -> None:
    template = {"q": "{query_text}", "n": "{top_k}", "in": ["{collection}", "k={top_k}"], "f": "{filters}", "s": 1}
    assert fill_template(template, REQUEST) == {
        "q": 'Was heißt "Größe"?',
        "n": 7,
        "in": ["docs", "k=7"],
        "f": None,
        "s": 1,
    }
    assert fill_url("http://h/?q={query_text}&k={top_k}", {"query_text": "a b&c", "top_k": 3}) == (
        "http://h/?q=a%20b%26c&k=3"
    )


def read(mapping: str, answer: Any) -> list[tuple[str, str | None, float | None]]:
    return [(one.metadata.chunk_id, one.text, one.score) for one in read_mapper(mapping).read(answer)]


def test_a_mapping_reads_each_result_by_paths() -> None:
    answer = {"out": [{"doc": {"key": 1}, "t": "A", "s": 0.5}, {"doc": {"key": 2}, "s": 0.25}]}
    mapping = '{"results": "$.out[*]", "id": "$.doc.key", "text": "$.t", "score": "$.s"}'
    assert read(mapping, answer) == [("1", "A", 0.5), ("2", None, 0.25)]
    assert read(mapping.replace("[*]", ""), answer) == [("1", "A", 0.5), ("2", None, 0.25)]


def test_a_mapping_reads_lists_side_by_side() -> None:
    answer = {"ids": [["a", "b"]], "documents": [["A", "B"]], "near": [0.9, 0.8]}
    mapping = '{"id": "$.ids[0][*]", "text": "$.documents[0]", "score": "$.near"}'
    assert read(mapping, answer) == [("a", "A", 0.9), ("b", "B", 0.8)]
    with pytest.raises(RetrieverError, match=r"2 of \$.ids\[0\]\[\*\], 1 of \$.one: the paths must lead to as many"):
        read('{"id": "$.ids[0][*]", "text": "$.one"}', {**answer, "one": "x"})


@pytest.mark.parametrize(
    ("mapping", "message"),
    [
        ('{"ids": "$.x"}', "--retriever-map: ids is not a known field; known are request, method"),
        ('{"method": "DELETE"}', "method must be GET, POST or PUT"),
        ('{"timeout_s": 0}', "timeout_s must be a number of seconds above 0"),
        ('{"headers": {"a": 1}}', "headers must be an object of texts"),
        ('{"id": 3}', "id must be a path"),
        ('{"id": "$..x"}', "--retriever-map: id: "),
        ("missing.yaml", "No such file"),
        ("{", "JSON"),
    ],
)
def test_a_broken_mapping_is_refused_with_its_reason(mapping: str, message: str) -> None:
    with pytest.raises(InvalidParameterError, match=message):
        read_mapper(mapping)


def test_headers_take_secrets_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    mapper = Mapper(headers={"authorization": "Bearer ${RAG_TOKEN}"})
    with pytest.raises(InvalidParameterError, match="RAG_TOKEN, which is not set"):
        mapper.fill_headers()
    monkeypatch.setenv("RAG_TOKEN", "s3")
    assert mapper.fill_headers() == {"authorization": "Bearer s3"}
