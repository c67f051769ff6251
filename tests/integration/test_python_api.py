"""`import chunkproof`: connect, search, validate, run suites and audit, on an embedded store and on a server."""

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import chunkproof
from chunkproof.base.settings import Settings
from chunkproof.embedders.local_model import local_model
from chunkproof.service.terminal import default_data_folder
from chunkproof.stores.edge import EdgeStore
from chunkproof_cli.loading import Loader
from chunkproof_cli.local.corpus import sample_suite

from support.cohere_server import KEY
from support.handbook import COLLECTION, chunks, loaded_handbook
from support.listeners import refusing_address, silent_server
from support.qdrant_server import QdrantServer

QUESTION = "How does HNSW search its graph?"

STABLE = {
    "CONTRACT_VERSION", "__version__", "connect", "Chunkproof", "Settings",
    "SearchQuery", "RetrievalQuery", "RetrievalResponse", "SearchResult", "RetrievalResult", "ChunkMetadata",
    "ExecutionMetadata", "ValidationResult", "CollectionInfo",
    "Suite", "TestCase", "TestStatus", "TestSuiteResult", "SuiteReport", "ValidationReport", "AuditReport",
    "ChunkproofError", "InvalidParameterError", "QueryTooLongError", "DimensionMismatchError", "AmbiguousIdError",
    "IndexRequiredError", "ChunkNotFoundError", "CollectionNotFoundError", "RateLimitedError", "EmbeddingError",
    "EmbeddingTimeoutError", "VectorStoreUnavailableError", "VectorStoreTimeoutError", "NotConfiguredError",
    "MissingDocumentError", "RelevanceError", "PerformanceError",
}  # fmt: skip


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of an embedded store with part of the handbook."""
    folder = tmp_path_factory.mktemp("store")
    store = EdgeStore(folder)
    Loader(store, local_model(), COLLECTION, None).load(chunks())
    store.close()
    return folder


@pytest.fixture
def proof(data: Path) -> Iterator[chunkproof.Chunkproof]:
    with chunkproof.connect(data=data, collection=COLLECTION) as opened:
        yield opened


# names


def test_no_public_name_goes_away():
    assert set(chunkproof.__all__) >= STABLE


def test_every_public_name_can_be_imported_and_is_listed_by_dir():
    for name in chunkproof.__all__:
        assert getattr(chunkproof, name) is not None
    assert set(chunkproof.__all__) <= set(dir(chunkproof))
    with pytest.raises(AttributeError, match="no attribute 'conect'"):
        _ = chunkproof.conect


def test_importing_the_package_imports_nothing_heavy():
    code = "import chunkproof, sys; print(*(m for m in sys.modules if m.partition('.')[0] in "
    code += "('pydantic', 'httpx', 'qdrant_client', 'yaml', 'numpy', 'onnxruntime') or m.startswith('chunkproof.')))"

    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == ""


# calls


def test_additions_are_keyword_arguments_with_typed_results(proof):
    response = proof.search(QUESTION, top_k=1, highlight=True, neighbours=1, explain=True)

    result = response.results[0]
    sentence = result.highlight.sentence
    assert result.text[sentence.start : sentence.end] == sentence.text
    assert result.neighbours.before or result.neighbours.after
    assert result.explain.confidence.percentile > 90
    assert response.explain.random_scores.sample_size == response.explain.points
    with pytest.raises(ValueError, match="set COHERE_API_KEY"):
        proof.search(QUESTION, rerank=True)
    assert chunkproof.RetrievalResponse.model_validate_json(response.to_json()) == response


def test_a_search_needs_only_a_text(proof):
    response = proof.search(QUESTION)

    assert response.status == "success"
    assert len(response.results) == 5
    assert response.results[0].metadata.document_id == "vectordb-hnsw"


def test_words_pages_and_several_queries_are_searched(proof):
    hybrid = proof.search("hnsw_ef", mode="hybrid", group_by="document_id", top_k=2)
    assert len({result.group for result in hybrid.results}) == 2
    assert all(result.scores.fused for result in hybrid.results)
    page = proof.search("backup", top_k=1, cursor="start")
    assert proof.search("backup", top_k=1, cursor=page.next_cursor).results[0].point_id != page.results[0].point_id
    found = proof.search_many(["backup", {"query_text": "accents", "top_k": 3}, ""], top_k=1)
    assert [(one.status, len(one.results)) for one in found] == [("success", 1), ("success", 3), ("error", 0)]
    assert [one.status for one in asyncio.run(proof.asearch_many(["backup"]))] == ["success"]


def test_one_text_is_not_taken_for_several_queries(proof):
    with pytest.raises(chunkproof.InvalidParameterError, match="queries must be a list"):
        proof.search_many("backup")
    for query in (None, 5, [None], ["a"], {"query_text": "backup"}):
        with pytest.raises(chunkproof.InvalidParameterError, match="query must be a text, a sequence of numbers"):
            proof.search(query)
    assert [one.error.message for one in proof.search_many([5])] == ["queries[0] must be a JSON object"]


def test_arguments_have_the_names_of_the_api_and_former_names_still_work(proof):
    now = proof.search(query_text=QUESTION, similarity_threshold=0.1, top_k=1)
    before = proof.search(query=QUESTION, threshold=0.1, top_k=1)
    assert now.results == before.results
    assert now.execution.threshold_applied == before.execution.threshold_applied == 0.1
    (best,) = now.results
    chunk = best.metadata.chunk_id
    assert proof.validate(chunk, original_text=best.text).matches
    assert proof.validate(chunk, original=best.text).matches
    assert not proof.validate(chunk, sha256="0" * 64).matches
    assert proof.why(query_text=QUESTION, expected=chunk).verdict.found
    assert proof.why(query=QUESTION, expect=chunk).verdict.found
    for wrong in ({"original_text": "a", "original": "b"}, {"nonsense": "a"}):
        with pytest.raises(ValueError, match=r"original_text and original are the same argument|nonsense"):
            proof.validate(chunk, **wrong)
    with pytest.raises(ValueError, match="expected is required"):
        proof.why(QUESTION)


def test_a_search_takes_a_limit_a_threshold_filters_and_other_fields(proof):
    response = proof.search(
        QUESTION, top_k=2, threshold=0.1, filters={"document_id": "vectordb-operations"}, with_payload=True
    )

    assert {result.metadata.document_id for result in response.results} == {"vectordb-operations"}
    assert len(response.results) <= 2
    assert response.execution.threshold_applied == 0.1
    assert response.results[0].payload["document_id"] == "vectordb-operations"


def test_a_search_takes_a_vector_or_a_whole_query(proof):
    vector = proof.search(QUESTION, top_k=1, with_vectors=True).results[0].vector
    by_vector = proof.search(vector, top_k=1)
    by_query = proof.search(chunkproof.RetrievalQuery(query_text=QUESTION, top_k=3, query_id="mine"))

    assert by_vector.results[0].similarity_score == pytest.approx(1.0)
    assert (by_query.query_id, len(by_query.results)) == ("mine", 3)


def test_results_convert_to_records(proof):
    response = proof.search(QUESTION, top_k=2)
    first, second = [chunkproof.RetrievalResult.of(result, response.query_id) for result in response.results]

    assert (first.rank, second.rank) == (1, 2)
    assert first.chunk_text == response.results[0].text
    assert first.source_url == response.results[0].metadata.url
    assert first.query_id == response.query_id


def test_a_limit_of_the_settings_holds_for_every_kind_of_query(data):
    settings = Settings.from_env({"CHUNKPROOF_MAX_TOP_K": "3", "CHUNKPROOF_COLLECTION": COLLECTION})
    with chunkproof.connect(data=data, settings=settings) as proof:
        assert len(proof.search(QUESTION).results) == 3
        for query in (QUESTION, chunkproof.SearchQuery(query_text=QUESTION)):
            with pytest.raises(ValueError, match="top_k must be between 1 and 3"):
                proof.search(query, top_k=4)


def test_a_chunk_is_validated_by_its_text_or_its_hash(proof):
    chunk = proof.search(QUESTION, top_k=1).results[0]
    chunk_id = chunk.metadata.chunk_id

    assert proof.validate(chunk_id, chunk.text).validation_passed
    assert proof.validate(chunk_id).matches, "by its own content hash"
    assert not proof.validate(chunk_id, chunk.text + " ").matches
    assert not proof.validate(chunk_id, sha256="0" * 64).matches
    with pytest.raises(chunkproof.ChunkNotFoundError):
        proof.validate("no such chunk", "text")


def test_the_default_collection_and_others_are_described(proof):
    info = proof.collection()

    assert (info.name, info.vector_size, info.points_count) == (COLLECTION, 384, len(chunks()))
    with pytest.raises(chunkproof.CollectionNotFoundError):
        proof.collection("another")


CASE = {"name": "hnsw", "query_text": QUESTION, "expected_doc_ids": ["vectordb-hnsw"]}


@pytest.mark.parametrize("kind", ["file", "text", "dict", "cases", "dicts", "suite"])
def test_a_suite_is_a_file_a_dict_or_cases(proof, tmp_path, kind):
    document = {"name": "mine", "cases": [CASE]}
    file = tmp_path / "suite.json"
    file.write_text(json.dumps(document))
    suites = {
        "file": file,
        "text": str(file),
        "dict": document,
        "cases": [chunkproof.TestCase(**CASE, status="failed", error_message="of an earlier run")],
        "dicts": [CASE],
        "suite": chunkproof.Suite(name="mine", cases=[chunkproof.TestCase(**CASE)]),
    }
    report = proof.run_suite(suites[kind])

    assert (report.result.total_tests, report.result.passed) == (1, 1)
    assert report.result.test_results[0].status is chunkproof.TestStatus.PASSED
    assert "Status: connected" in report.validation.to_summary()


def test_a_yaml_suite_runs_and_failed_cases_are_diagnosed(proof, tmp_path):
    file = tmp_path / "suite.yaml"
    file.write_text("name: mine\ncases:\n- {name: no, query_text: robots, expected_doc_ids: [nowhere]}\n")
    report = proof.run_suite(file, top_k=3)
    [case] = report.result.test_results

    assert (report.result.failed, case.top_k) == (1, 3)
    assert case.diagnosis[0].cause == "not in collection"


def test_a_wrong_suite_names_every_problem(proof):
    with pytest.raises(ValueError, match="query_text is required") as raised:
        proof.run_suite([{"name": "a", "expected_doc_ids": ["x"]}, {**CASE, "topk": 3}])
    assert "did you mean top_k?" in str(raised.value)


def test_the_sample_suite_has_a_case_for_what_is_not_loaded(proof):
    assert proof.run_suite(str(sample_suite())).result.total_tests > 10


def test_an_audit_takes_a_file_or_its_lines(proof, tmp_path):
    lines = [{"chunk_id": chunk.chunk_id, "original_text": chunk.text} for chunk in chunks()]
    file = tmp_path / "manifest.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))

    for manifest in (file, str(file), lines):
        report = proof.audit(manifest)
        assert (report.audited, report.kinds["match"]) == (len(lines), len(lines))
    lines[0]["original_text"] += "!"
    assert proof.audit(lines, partial=True).kinds["mismatch"] == 1
    assert proof.audit(lines, sample=3, vectors=2).vectors.checked == 2


@pytest.mark.parametrize("wrong", [{"sample": 0}, {"vectors": -1}])
def test_an_audit_refuses_counts_below_one(proof, wrong):
    with pytest.raises(ValueError, match="must be at least 1"):
        proof.audit([], **wrong)


def test_async_calls_run_side_by_side(data):
    async def ask() -> list[str]:
        async with chunkproof.connect(data=data, collection=COLLECTION) as proof:
            responses = await asyncio.gather(*(proof.asearch(QUESTION, top_k=n) for n in range(1, 6)))
            first = responses[0].results[0]
            assert (await proof.avalidate(first.metadata.chunk_id, first.text)).matches
            assert (await proof.acollection()).name == COLLECTION
            return [len(response.results) for response in responses]

    assert asyncio.run(ask()) == [1, 2, 3, 4, 5]


# connections


@pytest.mark.server
def test_a_server_is_a_url_and_a_key(served_qdrant: QdrantServer, monkeypatch):
    with loaded_handbook(served_qdrant.url) as cohere:
        monkeypatch.setenv("COHERE_API_KEY", KEY)
        monkeypatch.setenv("COHERE_BASE_URL", cohere.url)
        with chunkproof.connect(served_qdrant.url + "/", "any-key", collection=COLLECTION) as proof:
            assert proof.search(QUESTION).results[0].metadata.document_id == "vectordb-hnsw"
            assert proof.run_suite([CASE]).result.passed == 1
        with chunkproof.connect(served_qdrant.url, collection=COLLECTION, embedder="local") as proof:
            assert proof.search(QUESTION).execution.embedding_model == local_model().model


def test_the_environment_names_the_store_and_its_data_is_local_without(monkeypatch):
    with chunkproof.connect() as proof:
        assert str(default_data_folder()) in repr(proof)
    monkeypatch.setenv("QDRANT_URL", "http://localhost:1")
    monkeypatch.setenv("CHUNKPROOF_COLLECTION", "books")
    with chunkproof.connect() as proof:
        assert repr(proof) == "<Chunkproof localhost:1, collection books>"


def test_the_only_collection_of_a_store_is_the_default(data):
    with chunkproof.connect(data=data) as proof:
        assert proof.collection().name == COLLECTION
    with chunkproof.connect(data=data) as proof:
        assert proof.search(QUESTION, top_k=1).execution.collection == COLLECTION
        with pytest.raises(chunkproof.CollectionNotFoundError):
            proof.search(QUESTION, collection="another")


def test_the_key_of_the_environment_is_not_sent_to_another_server(monkeypatch):
    monkeypatch.setenv("QDRANT_API_KEY", "secret")
    with chunkproof.connect("http://localhost:1") as proof:
        assert proof.settings.qdrant_api_key is None


class Counting:
    """An embedder of a caller's own."""

    model, dimension, max_batch = "counting", 384, 8

    def excess(self, _text: str) -> str | None:
        return None

    def embed(self, texts, _input_type, _deadline):
        return [[1.0] + [0.0] * 383 for _ in texts]


def test_an_embedder_can_be_an_object(data):
    with chunkproof.connect(data=data, collection=COLLECTION, embedder=Counting()) as proof:
        assert proof.search("anything").execution.embedding_model == "counting"


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"url": "localhost:6333"}, "url must be an http or https URL"),
        ({"url": "http://localhost:6333", "data": "folder"}, "Give url or data, not both"),
        ({"api_key": "key"}, "api_key is the key of the server at url"),
        ({"url": "http://localhost:6333", "api_key": "a key"}, "api_key has a character that no key can have"),
        ({"embedder": "voyage"}, "embedder must be cohere, bedrock, openai, local, module:function, a function or an"),
        ({"collection": " "}, "collection cannot be empty"),
    ],
)
def test_a_wrong_argument_is_a_value_error_that_names_it(wrong, message):
    with pytest.raises(ValueError, match=message):
        chunkproof.connect(**wrong)


def test_a_wrong_setting_is_a_value_error_too(monkeypatch):
    monkeypatch.setenv("CHUNKPROOF_MAX_TOP_K", "many")
    with pytest.raises(ValueError, match="CHUNKPROOF_MAX_TOP_K must be 1 to 1000"):
        chunkproof.connect()


def test_a_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match=r"data folder .*file"):
        chunkproof.connect(data=tmp_path / "file" / "store")


def test_a_lost_connection_is_a_connection_error():
    with chunkproof.connect(refusing_address()) as proof, pytest.raises(ConnectionError) as raised:
        proof.search("anything")
    assert isinstance(raised.value, chunkproof.VectorStoreUnavailableError)
    assert str(raised.value).startswith("Qdrant service unavailable at 127.0.0.1:")


def test_a_timeout_is_a_timeout_error():
    settings = Settings.from_env({"CHUNKPROOF_DEADLINE_MS": "200"})
    with (
        silent_server() as url,
        chunkproof.connect(url, settings=settings) as proof,
        pytest.raises(TimeoutError) as raised,
    ):
        proof.search("anything")
    assert isinstance(raised.value, chunkproof.VectorStoreTimeoutError)


@pytest.mark.parametrize("lost", [True, False])
def test_a_lost_connection_to_the_embedder_is_one_too(data, lost):
    with silent_server() as silent:
        address = refusing_address() if lost else silent
        settings = Settings.from_env(
            {"COHERE_API_KEY": KEY, "COHERE_BASE_URL": address, "CHUNKPROOF_DEADLINE_MS": "500"}
        )
        with (
            chunkproof.connect(data=data, collection=COLLECTION, settings=settings) as proof,
            pytest.raises(ConnectionError if lost else TimeoutError) as raised,
        ):
            proof.search("anything")
    assert isinstance(raised.value, chunkproof.EmbeddingError)
