import json
from pathlib import Path
from typing import Any

import pytest

from chunkproof.base.request import Deadline
from chunkproof.stores.edge import EdgeStore
from chunkproof.stores.store_port import WritableStore

from support.cohere_server import CohereServer
from support.commands import Command, small_disk
from support.qdrant_server import QdrantServer, old_qdrant


def write(path: Path, *lines: object) -> Path:
    texts = [line if isinstance(line, bytes) else json.dumps(line).encode() for line in lines]
    path.write_bytes(b"\n".join(texts) + b"\n")
    return path


def points(folder: Path, collection: str) -> int:
    store = EdgeStore(folder)
    try:
        return store.describe(collection, Deadline(1000)).points_count
    finally:
        store.close()


def test_loading_twice_gives_the_same_collection(chunkproof: Command, handbook_file: Path, tmp_path: Path) -> None:
    for _ in range(2):
        run = chunkproof("load", handbook_file, "--collection", "c", "--data", tmp_path / "d", "--json")
        assert run.code == 0
        assert run.json == {"collection": "c", "chunks": 41, "embedding_model": "all-MiniLM-L6-v2"}
    assert points(tmp_path / "d", "c") == 41


@pytest.mark.parametrize("nested", [True, False])
def test_a_line_may_have_the_names_of_profile_nested(chunkproof: Command, tmp_path: Path, nested: bool) -> None:
    metadata = {"source_url": "https://docs.example.com/ros2", "page_title": "ROS2", "chunk_index": 0, "tokens": 512}
    line = {"chunk_id": "a7f3e2b9", "chunk_text": "ROS2 is a framework", **({} if nested else metadata)}
    if nested:
        line |= {"metadata": metadata, "similarity_score": 0.8, "rank": 1}
    file = write(tmp_path / "chunks.jsonl", line)

    run = chunkproof("load", file, "--collection", "c", "--data", tmp_path / "d", "--json")
    assert run.json == {"collection": "c", "chunks": 1, "embedding_model": "all-MiniLM-L6-v2"}
    assert "Extra fields" not in run.err
    found = chunkproof("search", "ROS2", "--collection", "c", "--data", tmp_path / "d", "--json").json["results"][0]
    assert (found["text"], found["metadata"]["chunk_id"]) == ("ROS2 is a framework", "a7f3e2b9")
    names = ("url", "document_title", "position", "tokens")
    assert [found["metadata"][name] for name in names] == list(metadata.values())


@pytest.mark.parametrize("size", [4_000, 40_000, 100_000], ids=["vectors", "store", "later in the store"])
def test_on_a_full_disk_loading_stops_with_a_message_and_can_be_run_again(
    chunkproof: Command, handbook_file: Path, tmp_path: Path, size: int
) -> None:
    given = ("load", handbook_file, "--collection", "c", "--data", tmp_path / "d")
    with small_disk(size):
        run = chunkproof(*given)
    assert run.code == 3
    assert "Run the same command again" in run.err
    assert "Traceback" not in run.err
    assert chunkproof(*given).code == 0
    assert points(tmp_path / "d", "c") == 41


def test_a_store_that_another_user_can_change_is_not_opened(
    chunkproof: Command, handbook_file: Path, tmp_path: Path
) -> None:
    given = ("--collection", "c", "--data", tmp_path / "d")
    assert chunkproof("load", handbook_file, *given).code == 0
    (tmp_path / "d").chmod(0o777)
    for command in (("load", handbook_file), ("search", "robot"), ("doctor",)):
        run = chunkproof(*command, *given)
        assert run.code == 2
        assert f"--data {tmp_path / 'd'} is not opened" in run.err
        assert "other users can write" in run.err


def test_one_bad_line_is_named_and_nothing_is_written(chunkproof: Command, tmp_path: Path) -> None:
    good = {"chunk_id": "a", "text": "A good chunk."}
    bad = write(
        tmp_path / "chunks.jsonl",
        good,
        {"chunk_id": "b"},
        {"chunk_id": "a", "text": "The same id again."},
        b"{not json",
        b"\xff",
        {"chunk_id": "c", "text": "robot " * 400},
        {"chunk_id": "d", "text": "x", "position": -1, "timestamp": "yesterday"},
        {"chunk_id": "e", "text": "x", "content_hash": "0" * 64},
        b'{"chunk_id": "f", "text": "\\ud800"}',
    )
    run = chunkproof("load", bad, "--collection", "c")
    assert run.code == 2
    assert run.err.splitlines() == [
        "chunks.jsonl:2: text is required",
        "chunks.jsonl:3: chunk_id a is already on line 1",
        "chunks.jsonl:4: The line is not valid JSON: Expecting property name enclosed in double quotes "
        "at line 1 column 2",
        "chunks.jsonl:5: The line is not UTF-8 at byte 0",
        "chunks.jsonl:6: text is too long: 402 tokens, all-MiniLM-L6-v2 reads 256",
        "chunks.jsonl:7: position must be at least 0",
        "chunks.jsonl:7: timestamp must be an ISO 8601 date and time",
        "chunks.jsonl:8: content_hash is not the SHA-256 of text (16 hex digits or more)",
        "chunks.jsonl:9: text has a lone surrogate, which is not valid Unicode",
        "Shorten texts that are too long, or use --truncate to embed only their beginning, or --skip-too-long",
    ]
    assert chunkproof("collection", "c").code == 2
    bad.write_bytes(b'{"chunk_id": "a", "text": "' + b"a" * 33_000_000 + b'"}')
    run = chunkproof("load", bad, "--collection", "c")
    assert (run.code, run.err) == (2, "chunks.jsonl has a line of more than 32 MB, line 1\n")


def test_a_byte_order_mark_is_ignored(chunkproof: Command, tmp_path: Path) -> None:
    file = tmp_path / "chunks.jsonl"
    file.write_bytes(b"\xef\xbb\xbf" + b'{"chunk_id": "a", "text": "one"}\r\n')
    assert chunkproof("load", file, "--collection", "c").code == 0


def test_a_bad_line_leaves_an_existing_collection_unchanged(
    chunkproof: Command, tmp_path: Path, handbook_file: Path
) -> None:
    data = ("--collection", "c", "--data", tmp_path / "d")
    chunkproof("load", handbook_file, *data)
    bad = write(tmp_path / "bad.jsonl", {"chunk_id": "new", "text": "New."}, {"chunk_id": "broken"})
    assert chunkproof("load", bad, *data).code == 2
    assert chunkproof("validate", "new", "--original", "New.", *data).code == 1


def test_many_problems_are_counted_rather_than_all_printed(chunkproof: Command, tmp_path: Path) -> None:
    run = chunkproof("load", write(tmp_path / "c.jsonl", *[{"chunk_id": f"{n}"} for n in range(30)]))
    assert len(run.err.splitlines()) == 21
    assert run.err.splitlines()[-1] == "… and 10 more"


def test_an_id_that_qdrant_does_not_take_is_kept_in_the_payload(chunkproof: Command, tmp_path: Path) -> None:
    uuid = "550e8400-e29b-41d4-a716-446655440000"
    ids = ["docs/intro#1", "42", uuid]
    file = write(
        tmp_path / "c.jsonl",
        *[{"chunk_id": i, "text": f"Text of {i}", "url": "https://e.example.com"} for i in ids],
    )
    assert chunkproof("load", file, "--collection", "c").code == 0
    for chunk_id in ids:
        run = chunkproof("validate", chunk_id, "--original", f"Text of {chunk_id}", "--collection", "c", "--json")
        assert (run.code, run.json["chunk_id"]) == (0, chunk_id)


def test_fields_beyond_the_contract_are_stored_and_named(chunkproof: Command, tmp_path: Path) -> None:
    file = write(tmp_path / "c.jsonl", {"chunk_id": "a", "text": "Hallo", "lang": "de"})
    run = chunkproof("load", file, "--collection", "c")
    assert "Extra fields stored with the chunks: lang" in run.err
    found = chunkproof("search", "Hallo", "--filter", "lang=de", "--collection", "c", "--json").json
    assert found["execution"]["result_count"] == 1
    none = chunkproof("search", "Hallo", "--filter", "lang=fr", "--collection", "c", "--json").json
    assert none["status"] == "success"
    assert none["results"] == []


def test_a_beir_folder_is_loaded_by_its_ids(chunkproof: Command, tmp_path: Path) -> None:
    folder = tmp_path / "beir"
    folder.mkdir()
    write(
        folder / "corpus.jsonl",
        {
            "_id": "d1",
            "title": "Rovers",
            "text": "Rovers have six wheels.",
            "metadata": {"url": "https://a.example.com"},
        },
        {"_id": "d2", "title": "", "text": "Vectors have a direction."},
    )
    assert chunkproof("load", folder, "--collection", "c").code == 0
    result = chunkproof("search", "wheels", "-k", 1, "--collection", "c", "--json").json["results"][0]
    assert result["metadata"]["chunk_id"] == "d1"
    assert result["metadata"]["document_title"] == "Rovers"
    assert result["metadata"]["url"] == "https://a.example.com"
    assert result["text"] == "Rovers have six wheels."


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda p: p / "nothing.jsonl", "no such file"),
        (lambda p: p, "it has no corpus.jsonl"),
        (lambda p: write(p / "empty.jsonl"), "the file has no chunks"),
    ],
)
def test_a_path_without_chunks_is_reported(chunkproof: Command, tmp_path: Path, make, message: str) -> None:
    run = chunkproof("load", make(tmp_path))
    assert run.code == 2
    assert message in run.err


def test_a_collection_of_another_size_is_refused_before_any_work(
    chunkproof: Command, tmp_path: Path, handbook_file: Path
) -> None:
    store = EdgeStore(tmp_path / "d")
    store.create("c", 3, Deadline(1000))
    store.close()
    run = chunkproof("load", handbook_file, "--collection", "c", "--data", tmp_path / "d")
    assert run.code == 2
    assert "makes 384 values, collection c stores 3" in run.err


@pytest.mark.server
def test_cohere_and_a_served_qdrant_work_together(
    chunkproof: Command,
    handbook_file: Path,
    served_qdrant: QdrantServer,
    cohere_api: CohereServer,
    collection: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("QDRANT_URL", served_qdrant.url)
    monkeypatch.setenv("COHERE_API_KEY", cohere_api.key)
    monkeypatch.setenv("COHERE_BASE_URL", cohere_api.url)
    assert chunkproof("load", handbook_file, "--collection", collection).code == 0
    assert {request["input_type"] for request in cohere_api.requests} == {"search_document"}
    found = chunkproof("search", "anything at all", "--collection", collection, "--json").json
    assert found["execution"]["embedding_model"] == "embed-english-v3.0"
    assert cohere_api.requests[-1]["input_type"] == "search_query"
    info = chunkproof("collection", collection, "--json").json
    assert {f["name"]: f["indexed"] for f in info["payload_fields"]}["chunk_id"] is True
    assert chunkproof("doctor", "--collection", collection).code == 0


def test_an_embedder_that_fails_midway_leaves_no_collection(
    chunkproof: Command, handbook_file: Path, cohere_api: CohereServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    from support.recording_server import CannedResponse

    monkeypatch.setenv("COHERE_API_KEY", cohere_api.key)
    monkeypatch.setenv("COHERE_BASE_URL", cohere_api.url)
    cohere_api.responses += [CannedResponse(503, b"{}")] * 2  # once more than it is repeated
    run = chunkproof("load", handbook_file, "--collection", "c")
    assert run.code == 3
    assert chunkproof("collection", "c").code == 2


@pytest.mark.parametrize("name", ["", "  "])
def test_an_empty_collection_name_is_not_the_default_one(chunkproof: Command, handbook_file: Path, name: str) -> None:
    for arguments in (("load", handbook_file), ("collection",), ("search", "x"), ("doctor",)):
        run = chunkproof(*arguments, "--collection", name)
        assert run.code == 2, arguments
        assert "--collection" in run.err
    assert chunkproof("collection", "documentation").code == 2


@pytest.mark.parametrize("name", ["a/b", "..", "x" * 300])
def test_an_invalid_collection_name_is_wrong_input(chunkproof: Command, handbook_file: Path, name: str) -> None:
    run = chunkproof("load", handbook_file, "--collection", name)
    assert run.code == 2
    assert run.err == f"--collection {name}: not a valid collection name\n"


LONG = "robot " * 400


def test_a_text_that_is_too_long_is_truncated_for_the_embedding_only(chunkproof: Command, tmp_path: Path) -> None:
    file = write(tmp_path / "chunks.jsonl", {"chunk_id": "a", "text": "short"}, {"chunk_id": "b", "text": LONG})
    run = chunkproof("load", file, "--collection", "c", "--truncate", "--json")
    assert (run.code, run.json["chunks"], run.json["truncated"]) == (0, 2, ["b"])
    assert chunkproof("validate", "b", "--original", LONG, "--collection", "c").code == 0, "it is stored whole"
    assert chunkproof("search", "robot robot", "--collection", "c", "--json").json["results"][0]["text"] == LONG
    shown = chunkproof("load", file, "--collection", "c", "--truncate").out
    assert "1 truncated, longer than all-MiniLM-L6-v2 reads: b" in shown


def test_a_text_that_is_too_long_is_skipped_on_request(chunkproof: Command, tmp_path: Path) -> None:
    chunks = [{"chunk_id": f"c{n}", "text": LONG if n % 3 == 0 else f"text {n}"} for n in range(1, 9)]
    file = write(tmp_path / "chunks.jsonl", *chunks)
    run = chunkproof("load", file, "--collection", "c", "--skip-too-long", "--json")
    assert (run.code, run.json["chunks"], run.json["skipped"]) == (0, 6, ["c3", "c6"])
    for chunk in chunks:
        code = chunkproof("validate", chunk["chunk_id"], "--original", chunk["text"], "--collection", "c").code
        assert code == (1 if chunk["text"] == LONG else 0)


def test_a_file_of_texts_that_are_all_too_long_is_refused(chunkproof: Command, tmp_path: Path) -> None:
    file = write(tmp_path / "chunks.jsonl", {"chunk_id": "a", "text": LONG})
    run = chunkproof("load", file, "--collection", "c", "--skip-too-long")
    assert run.code == 2
    assert "Every text is longer than all-MiniLM-L6-v2 reads: use --truncate" in run.err


@pytest.mark.parametrize(("flag", "stored"), [(None, None), ("--truncate", 100), ("--skip-too-long", 98)])
def test_a_service_that_counts_tokens_itself_is_asked_for_ever_smaller_parts(
    chunkproof: Command,
    tmp_path: Path,
    cohere_api: CohereServer,
    monkeypatch: pytest.MonkeyPatch,
    flag: str | None,
    stored: int | None,
) -> None:
    monkeypatch.setenv("COHERE_API_KEY", cohere_api.key)
    monkeypatch.setenv("COHERE_BASE_URL", cohere_api.url)
    texts = {f"c{n}": "robot " * 900 if n in (7, 61) else f"text {n}" for n in range(100)}
    file = write(tmp_path / "chunks.jsonl", *({"chunk_id": key, "text": text} for key, text in texts.items()))
    run = chunkproof("load", file, "--collection", "c", "--json", *([flag] if flag else []))
    if stored is None:
        assert run.code == 2
        assert "The text of chunk c7 is longer than embed-english-v3.0 reads" in run.err
        assert "--truncate" in run.err
        assert "--skip-too-long" in run.err
    else:
        assert (run.code, run.json["chunks"]) == (0, stored)
        assert run.json["truncated" if flag == "--truncate" else "skipped"] == ["c7", "c61"]
        assert chunkproof("validate", "c99", "--original", texts["c99"], "--collection", "c").code == 0


@pytest.mark.server
def test_two_loads_may_create_the_collection_at_the_same_moment(
    chunkproof: Command,
    handbook_file: Path,
    served_qdrant: QdrantServer,
    server_store: WritableStore,
    collection: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("QDRANT_URL", served_qdrant.url)
    create = type(server_store).create

    def create_after_another(store: WritableStore, name: str, size: int, deadline: Deadline, **options: bool) -> None:
        create(server_store, name, size, deadline, **options)
        create(store, name, size, deadline, **options)

    monkeypatch.setattr(type(server_store), "create", create_after_another)
    run = chunkproof("load", handbook_file, "--collection", collection)
    assert run.code == 0, run.err
    assert server_store.describe(collection, Deadline(1_000)).points_count == 41


@pytest.mark.server
def test_hybrid_makes_a_collection_that_is_searched_by_words(
    chunkproof: Command,
    handbook_file: Path,
    served_qdrant: QdrantServer,
    server_store: WritableStore,
    collection: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("QDRANT_URL", served_qdrant.url)
    assert chunkproof("load", handbook_file, "--collection", collection, "--hybrid").code == 0
    assert server_store.describe(collection, Deadline(1_000)).sparse_vectors == {"bm25": "idf"}
    # A later load fills the words without the flag.
    assert chunkproof("load", handbook_file, "--collection", collection).code == 0
    run = chunkproof("search", "decomposed", "--mode", "text", "-k", 1, "--collection", collection, "--json")
    assert "decomposed" in run.json["results"][0]["text"].lower()
    plain = f"{collection}-plain"
    assert chunkproof("load", handbook_file, "--collection", plain).code == 0
    refused = chunkproof("load", handbook_file, "--collection", plain, "--hybrid")
    assert refused.code == 2
    assert "--hybrid: collection" in refused.err
    assert "load into a new one with --collection" in refused.err


@pytest.mark.server
def test_hybrid_works_with_a_server_that_makes_no_bm25_vectors(
    chunkproof: Command,
    handbook_file: Path,
    served_qdrant: QdrantServer,
    server_store: WritableStore,
    collection: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with old_qdrant(served_qdrant.url) as old:
        monkeypatch.setenv("QDRANT_URL", old.url)
        loaded = chunkproof("load", handbook_file, "--collection", collection, "--hybrid")
        assert loaded.code == 0, loaded.err
        for mode in ("text", "hybrid"):
            run = chunkproof("search", "decomposed", "--mode", mode, "-k", 3, "--collection", collection, "--json")
            assert any("decomposed" in result["text"].lower() for result in run.json["results"])
        monkeypatch.setattr("chunkproof.stores.server.has_edge", lambda: False)
        other = f"{collection}-other"
        refused = chunkproof("load", handbook_file, "--collection", other, "--hybrid")
        assert refused.code == 2
        assert "--hybrid: Qdrant 1.14.0 makes no BM25 vectors. Update it to 1.15.3 or later" in refused.err
    assert other not in server_store.collections(Deadline(10_000))
    monkeypatch.setenv("QDRANT_URL", served_qdrant.url)
    run = chunkproof("search", "decomposed", "--mode", "text", "-k", 1, "--collection", collection, "--json")
    assert "decomposed" in run.json["results"][0]["text"].lower()


@pytest.mark.parametrize(
    "line",
    [
        {"id": "a", "page_content": "Text of a chunk.", "metadata": {"source": "a.md"}, "type": "Document"},
        {"id": "a", "content": "Text of a chunk.", "meta": {"url": "a.md"}, "score": None},
        {"id": "a", "text": "Text of a chunk.", "source": "a.md"},
        {"chunk_id": "a", "doc_content": "Text of a chunk.", "file_path": "a.md"},
        {"chunk_id": "a", "id": "document 1", "text": "Text of a chunk.", "content": "other", "source": "a.md"},
    ],
    ids=["LangChain", "Haystack", "flat", "Spring AI", "with names of ours"],
)
def test_lines_that_other_tools_exported_are_read_by_the_names_that_collections_are(
    chunkproof: Command, tmp_path: Path, line: dict[str, Any]
) -> None:
    file = tmp_path / "chunks.jsonl"
    file.write_text(json.dumps(line), "utf-8")
    assert chunkproof("load", file, "--collection", "c").code == 0
    (result,) = chunkproof("search", "text of a chunk", "--collection", "c", "--json").json["results"]
    assert (result["text"], result["metadata"]["chunk_id"]) == ("Text of a chunk.", "a")
    assert result["metadata"]["url"] == "a.md"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ('{"body": "x", "chunk_id": "a"}', "chunks.jsonl:1: text is required, and the line has body"),
        ('{"text": "x", "nr": 1, "key": 2}', "chunks.jsonl:1: chunk_id is required, and the line has key, nr"),
        ('{"text": "x", "id": 17}', "chunks.jsonl:1: chunk_id must be a string"),
        ('[\n  {"chunk_id": "a"},\n  {}\n]', "chunks.jsonl is a JSON array: write each object on a line"),
        ("5", "chunks.jsonl:1: The line must be a JSON object"),
    ],
)
def test_a_line_that_cannot_be_read_is_named_with_what_it_has_instead(
    chunkproof: Command, tmp_path: Path, content: str, said: str
) -> None:
    file = tmp_path / "chunks.jsonl"
    file.write_text(content, "utf-8")
    run = chunkproof("load", file, "--collection", "c")
    assert (run.code, run.err) == (2, f"{said}\n")
