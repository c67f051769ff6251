"""Manifests from what people have, and the coverage of source documents."""

import json
import os
import re
import sqlite3
import sys
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from time import process_time
from typing import Any
from uuid import NAMESPACE_URL, uuid5

import psycopg
import pytest

from chunkproof.audit import manifest_file
from chunkproof.base import files
from chunkproof.base.errors import InvalidParameterError
from chunkproof.base.request import Deadline
from chunkproof.stores.edge import EdgeStore
from chunkproof.stores.server import ServerStore
from chunkproof.stores.store_port import Point
from chunkproof_cli.manifest_sources import Folder, extract_text
from chunkproof_cli.reports.outputs import AUDIT

from support.commands import Command
from support.pipelines import FOLDER, pipeline, write
from support.postgres_server import postgres_server
from support.qdrant_server import QdrantServer

GUIDE = "# Set up\n\nBolt the base to a table, then connect the controller with the red cable.\n"
NOTES = "<html><head><title>T</title><script>var hidden;</script></head><body><p>Move each joint to its mark.</p>"
NOTES += "<p>Never &lt;b&gt; open the housing while it is powered!</p></body></html>"
WARNING = "Never <b> open the housing while it is powered!"


def store_texts(tmp_path: Path, texts: dict[str, str], name: str = "docs") -> None:
    store = EdgeStore(tmp_path / "data-home" / "chunkproof")
    store.create(name, 2, Deadline(10_000))
    points = [
        Point(number, {"chunk_id": chunk_id, "text": text}, vector=(1.0, 0.0))
        for number, (chunk_id, text) in enumerate(texts.items())
    ]
    store.upsert(name, points, "", Deadline(10_000))
    store.close()


def store_pipeline(tmp_path: Path, name: str) -> list[dict[str, Any]]:
    store = EdgeStore(tmp_path / "data-home" / "chunkproof")
    write(store, name, name, with_indexes=False)
    store.close()
    return pipeline(name)["points"]


def read_lines(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text("utf-8").splitlines()]


@pytest.fixture
def documents(tmp_path: Path) -> Path:
    folder = tmp_path / "sources"
    (folder / "deep").mkdir(parents=True)
    (folder / "guide.md").write_bytes(b"\xef\xbb\xbf" + GUIDE.replace("\n", "\r\n").encode())
    (folder / "deep" / "notes.html").write_text(NOTES)
    (folder / "picture.png").write_bytes(b"\x89PNG")
    (folder / ".hidden.md").write_text("never read")
    return folder


def test_chunks_are_located_in_a_folder_and_the_audit_reports_coverage_in_every_format(
    chunkproof: Command, documents: Path, tmp_path: Path
) -> None:
    texts = {
        "guide-1": "Set up Bolt the base to a table, then connect the controller with the red cable.",
        "notes-1": "Move each joint to its mark.",
        "old-1": "<script>alert(1)</script> A page that was removed from the sources last year.",
    }
    store_texts(tmp_path, texts)
    manifest = tmp_path / "manifest.jsonl"
    run = chunkproof("manifest", "--from", documents, "--collection", "docs", "-o", manifest, "--json")
    assert run.code == 0
    assert [line["chunk_id"] for line in read_lines(manifest)] == ["guide-1", "notes-1"]
    coverage = run.json["source_coverage"]
    assert (coverage["documents_total"], coverage["stale"], coverage["verbatim"]) == (2, 1, 1)
    assert coverage["not_verbatim"] == {"whitespace": 1}
    assert "1 chunks are in no source and not in the manifest" in run.err

    files = [tmp_path / f"report{suffix}" for suffix in AUDIT.extensions]
    outputs = [word for file in files for word in ("-o", file)]
    audit = chunkproof("audit", manifest, "--collection", "docs", "--sources", documents, *outputs, "--json")
    assert audit.code == 1
    found = audit.json["source_coverage"]
    assert [(p["line"], p["excerpt"]) for p in found["documents"][0]["passages"]] == [(4, WARNING[:-1])]
    assert found["documents"][0]["name"] == "deep/notes.html"
    letters = sum(char.isalnum() for char in GUIDE + extract_text(NOTES))
    assert (found["characters"], found["covered"]) == (letters, letters - sum(map(str.isalnum, WARNING)))
    for file in files[1:]:
        shown = file.read_text("utf-8")
        assert "<script>" not in shown or file.suffix == ".txt", file
        assert "1 chunk in no source" in shown, file
    page = (tmp_path / "report.html").read_text("utf-8")
    assert "<mark>Never &lt;b&gt; open the housing while it is powered</mark>" in page


def test_an_audit_whose_sources_are_covered_passes_and_less_coverage_can_be_allowed(
    chunkproof: Command, documents: Path, tmp_path: Path
) -> None:
    store_texts(tmp_path, {"guide": GUIDE, "notes": "Move each joint to its mark."})
    manifest = tmp_path / "m.jsonl"
    assert chunkproof("manifest", "--collection", "docs", "-o", manifest).code == 0
    audit = ("audit", manifest, "--collection", "docs", "--sources", documents)
    assert chunkproof(*audit).code == 1
    assert chunkproof(*audit, "--min-coverage", "60").code == 0
    (documents / "deep" / "broken.pdf").write_bytes(b"%PDF-1.4 nothing")
    unread = chunkproof(*audit, "--min-coverage", "60")
    assert unread.code == 3
    assert "1 file not read" in unread.out


def test_the_text_of_a_pdf_is_located(chunkproof: Command, tmp_path: Path) -> None:
    folder = tmp_path / "pdf"
    folder.mkdir()
    (folder / "paper.pdf").write_bytes(make_pdf("Dense vectors find passages that mean the same in other words."))
    store_texts(tmp_path, {"p": "Dense vectors find passages that mean the same in other words."})
    run = chunkproof("manifest", "--from", folder, "--collection", "docs", "-o", tmp_path / "m.jsonl", "--json")
    assert (run.code, run.json["source_coverage"]["share"], run.json["source_coverage"]["stale"]) == (0, 1.0, 0)


def make_pdf(line: str) -> bytes:
    """Write a PDF of one page by hand."""
    content = f"BT /F1 12 Tf 72 720 Td ({line}) Tj ET".encode()
    parts = [
        b"<</Type/Catalog/Pages 2 0 R>>",
        b"<</Type/Pages/Kids[3 0 R]/Count 1>>",
        b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 612 792]/Contents 4 0 R/Resources<</Font<</F1 5 0 R>>>>>>",
        b"<</Length %d>>stream\n%b\nendstream" % (len(content), content),
        b"<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>",
    ]
    written, places = b"%PDF-1.4\n", []
    for number, part in enumerate(parts, start=1):
        places.append(len(written))
        written += b"%d 0 obj%b\nendobj\n" % (number, part)
    table = b"".join(b"%010d 00000 n \n" % place for place in places)
    end = b"xref\n0 6\n0000000000 65535 f \n%btrailer<</Size 6/Root 1 0 R>>\nstartxref\n%d\n%%%%EOF" % (
        table,
        len(written),
    )
    return written + end


def test_records_of_langchain_make_a_manifest_with_texts_that_their_keys_prove(
    chunkproof: Command, tmp_path: Path
) -> None:
    points = store_pipeline(tmp_path, "langchain_indexed")
    database = tmp_path / "records.sqlite"
    with sqlite3.connect(database) as connection:
        connection.executescript((FOLDER / "record_manager.sql").read_text("utf-8"))
        connection.execute(
            "INSERT INTO upsertion_record VALUES ('u', ?, 'qdrant/indexed', 'x', 1)",
            ("7e7b9a53-36d1-4d9b-a1f6-8a5ad8f46a11",),
        )
    connection.close()
    manifest = tmp_path / "m.jsonl"
    here = ("--collection", "langchain_indexed")
    by_url = chunkproof("manifest", "--from", f"sqlite:///{database}", *here, "-o", tmp_path / "by-url.jsonl")
    run = chunkproof("manifest", "--from", database, *here, "-o", manifest)
    assert (run.code, by_url.code) == (0, 0)
    assert manifest.read_bytes() == (tmp_path / "by-url.jsonl").read_bytes()
    assert "6 of 7 records have their text proved by their key; 1 are in the manifest by their id alone" in run.err
    texts = {line["chunk_id"]: line.get("original_text") for line in read_lines(manifest)}
    assert {str(p["id"]): p["payload"]["page_content"] for p in points} == {k: v for k, v in texts.items() if v}
    audit = chunkproof("audit", manifest, *here, "--json")
    assert audit.json["kinds"]["match"] == 6
    assert audit.json["manifest"]["presence_only"] == 1
    assert [(f["chunk_id"][:8], f["kind"]) for f in audit.json["findings"]] == [("7e7b9a53", "missing")]
    several = chunkproof("manifest", "--from", database, *here, "--namespace", "other", "-o", manifest)
    assert (several.code, "namespaces qdrant/indexed" in several.err) == (2, True)


@pytest.fixture(scope="module")
def records_url() -> Iterator[str]:
    """The URL of a record manager that indexed 198 chunks of 66 sources besides the six that are stored."""
    with postgres_server() as url, psycopg.connect(url) as connection:
        connection.execute((FOLDER / "record_manager.sql").read_text("utf-8").partition(";")[2].rpartition("COMMIT")[0])
        connection.cursor().executemany(
            "INSERT INTO upsertion_record VALUES (%s, %s, 'qdrant/indexed', %s, 1)",
            [(str(n), str(uuid5(NAMESPACE_URL, str(n))), f"https://docs.example.com/{n // 3}") for n in range(198)],
        )
        connection.commit()
        yield url


def test_a_record_manager_in_postgresql_shows_that_langchain_serves_3_percent_of_a_corpus(
    chunkproof: Command, records_url: str, tmp_path: Path
) -> None:
    """Every run of LangChain's index() reports success: it compares with its records, never with the store."""
    store_pipeline(tmp_path, "langchain_indexed")
    manifest, here = tmp_path / "m.jsonl", ("--collection", "langchain_indexed")
    # As LangChain's own settings have it, with the driver for asyncio too.
    for url in (records_url, records_url.replace("postgresql:", "postgresql+asyncpg:")):
        run = chunkproof("manifest", "--from", url, *here, "-o", manifest)
        assert run.code == 0, run.err
        assert "6 of 204 records have their text proved by their key" in run.err
        assert "The collection has 6 of 204 indexed chunks (3%), of 3 of 69 sources." in run.err
    audit = chunkproof("audit", manifest, *here, "--json")
    assert audit.code == 1
    assert (audit.json["kinds"]["match"], audit.json["kinds"]["missing"]) == (6, 198)


def test_a_record_manager_that_cannot_be_read_is_named_without_its_password(
    chunkproof: Command, records_url: str, tmp_path: Path
) -> None:
    store_texts(tmp_path, {"a": "b"})
    with psycopg.connect(records_url, autocommit=True) as connection:
        connection.execute("CREATE DATABASE nothing")
    wrong = {
        records_url.replace("s3cret-of-tests", "wr0ng"): "password authentication failed",
        records_url.replace("/postgres", "/nothing"): 'relation "upsertion_record" does not exist',
        records_url + "?nonsense=1": "nonsense",
        "postgresql://tester@127.0.0.1:1/postgres": "refused",
        "oracle://tester:s3cret-of-tests@127.0.0.1/x": "oracle cannot be read, only in postgresql, mysql, mariadb",
        "://x": "not a database URL",
    }
    for url, message in wrong.items():
        run = chunkproof("manifest", "--from", url, "--collection", "docs", "-o", tmp_path / "m.jsonl")
        assert run.code == 2, run.err
        assert message in " ".join(run.err.split()), run.err
        assert not {"s3cret", "wr0ng"} & set(re.findall(r"s3cret|wr0ng", run.err))


def test_without_sqlalchemy_the_extra_is_named(
    chunkproof: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for module in ("sqlalchemy", "psycopg"):
        with monkeypatch.context() as patch:
            patch.setitem(sys.modules, module, None)
            run = chunkproof("manifest", "--from", "postgresql://h/x", "--collection", "docs", "-o", tmp_path / "m")
        assert (run.code, "pip install 'chunkproof[sql]'" in run.err) == (3, True), run.err


def test_nodes_of_a_llamaindex_docstore_make_a_manifest(chunkproof: Command, tmp_path: Path) -> None:
    stored = json.loads((FOLDER / "docstore.json").read_text("utf-8"))
    nodes = {
        key: value["__data__"]["text_resource"]["text"]
        if "text_resource" in value["__data__"]
        else value["__data__"]["text"]
        for key, value in stored["docstore/data"].items()
        if "-node-" in key
    }
    assert len(nodes) == 4
    manifest = tmp_path / "m.jsonl"
    run = chunkproof("manifest", "--from", FOLDER / "docstore.json", "-o", manifest)
    assert run.code == 0
    assert {line["chunk_id"]: line["original_text"] for line in read_lines(manifest)} == nodes
    store_texts(tmp_path, nodes)
    assert chunkproof("audit", manifest, "--collection", "docs", "--fail-on", "mismatch,missing,orphan").code == 0


def test_documents_of_a_docstore_without_nodes_are_sources(chunkproof: Command, tmp_path: Path) -> None:
    stored = json.loads((FOLDER / "docstore.json").read_text("utf-8"))
    data = {key: value for key, value in stored["docstore/data"].items() if "-node-" not in key}
    (tmp_path / "storage").mkdir()
    (tmp_path / "storage" / "docstore.json").write_text(json.dumps({"docstore/data": data}))
    store_texts(
        tmp_path, {"a": next(iter(data.values()))["__data__"]["text"], "b": "Nothing of this is in a document."}
    )
    run = chunkproof("manifest", "--from", tmp_path / "storage", "--collection", "docs", "-o", tmp_path / "m", "--json")
    assert run.code == 0
    assert (run.json["chunks"], run.json["source_coverage"]["stale"]) == (1, 1)
    assert run.json["source_coverage"]["without_chunks"] == len(data) - 1


@pytest.mark.parametrize("options", [(), ("--texts",)], ids=["hashes", "texts"])
def test_a_snapshot_makes_the_manifest_of_the_collection_as_it_was(
    chunkproof: Command, tmp_path: Path, options: tuple[str, ...]
) -> None:
    store_texts(tmp_path, {"a": "One text.", "b": "Another text."})
    before, manifest, direct = (tmp_path / name for name in ("before.snapshot", "m.jsonl", "direct.jsonl"))
    here = ("--collection", "docs")
    assert chunkproof("snapshot", *here, *options, "-o", before).code == 0
    assert chunkproof("manifest", *here, *(() if options else ("--hash",)), "-o", direct).code == 0
    assert chunkproof("manifest", "--from", before, "-o", manifest).code == 0
    assert manifest.read_bytes() == direct.read_bytes()
    assert chunkproof("audit", manifest, *here).code == 0


@pytest.mark.server
def test_another_collection_makes_a_manifest_by_name_and_by_url(
    chunkproof: Command, served_qdrant: QdrantServer, collection: str, tmp_path: Path
) -> None:
    from chunkproof.net.transport import DeadlineTransport

    remote = ServerStore(served_qdrant.url, DeadlineTransport())
    write(remote, collection, "langchain_dense", with_indexes=False)
    remote.close()
    store_pipeline(tmp_path, "langchain_dense")
    by_url, by_name = tmp_path / "url.jsonl", tmp_path / "name.jsonl"
    address = f"{served_qdrant.url}/collections/{collection}"
    assert chunkproof("manifest", "--from", address, "-o", by_url).code == 0
    assert chunkproof("manifest", "--from", "langchain_dense", "-o", by_name).code == 0
    assert by_url.read_bytes() == by_name.read_bytes()
    assert chunkproof("audit", by_url, "--collection", "langchain_dense").code == 0
    wrong = chunkproof("manifest", "--from", f"{served_qdrant.url}/nothing", "-o", by_url)
    assert (wrong.code, "/collections/NAME" in wrong.err) == (2, True)


def test_what_is_no_source_is_refused_with_what_would_be(chunkproof: Command, tmp_path: Path) -> None:
    store_texts(tmp_path, {"a": "b"})
    (tmp_path / "empty").mkdir()
    (tmp_path / "some.json").write_text("{}")
    output = ("-o", tmp_path / "m.jsonl")
    for source, message in {
        "empty": "has no document to read: .txt",
        "some.json": "is not a LlamaIndex docstore",
        "gone.sqlite": "no such file or folder",
    }.items():
        run = chunkproof("manifest", "--from", tmp_path / source, "--collection", "docs", *output)
        assert (run.code, message in run.err) == (2, True), run.err
    assert chunkproof("manifest", tmp_path / "some.json", "--from", "docs", *output).code == 2
    assert chunkproof("manifest", "--from", "unknown", *output).code == 2


def test_links_that_lead_out_of_the_folder_are_not_read(tmp_path: Path) -> None:
    inside, outside = tmp_path / "docs", tmp_path / "private"
    inside.mkdir()
    outside.mkdir()
    (outside / "secret.md").write_text("secret")
    (inside / "own.md").write_text("own")
    (inside / "link.md").symlink_to(outside / "secret.md")
    (inside / "relative.md").symlink_to("../private/secret.md")
    (inside / "folder").symlink_to(outside)
    (inside / "same.md").symlink_to("own.md")
    (inside / ".git").mkdir()
    (inside / ".git" / "config").write_text("AUTHORIZATION: basic secret")
    (inside / "hidden.md").symlink_to(".git/config")
    assert [name for name, _ in Folder(inside).read()] == ["own.md", "same.md"]


@pytest.mark.parametrize("suffix", [".jsonl", ".jsonl.gz", ".jsonl.zst"])
def test_a_line_without_an_end_is_refused_before_it_is_read_whole(
    tmp_path: Path, suffix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "MAX_LINE", 1_000_000)
    file = tmp_path / f"bomb{suffix}"
    with manifest_file.create_manifest(file) as target:
        for _ in range(64):
            target.write(b"a" * 1_000_000)
    tracemalloc.start()
    with pytest.raises(InvalidParameterError, match="more than 1 MB"), manifest_file.open_manifest(file) as lines:
        list(lines)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 20_000_000


def test_the_visible_text_of_html_is_read_as_a_browser_shows_it() -> None:
    page = (
        "<!doctype html><head><title>T</title><body><p title=it's>a &amp; b</p><br/>c <b x='>'>d</b>"
        "<script>if (a < b)</script>e<!-- f -->g < h<svg><svg></svg>k</svg>l<noscript/>m<p>left open <!-- here"
    )
    assert extract_text(page) == "\na & b\n\nc deg < hlm\nleft open "


@pytest.mark.parametrize(
    "part",
    [
        "<!--",
        "<",
        "<a <",
        "<a b='c ",
        "<a b=\"'",
        "<div>",
        "<svg>",
        "<p>a",
        "<script></script x",
        "&#9",
        "<a/",
        "<![CDATA[",
    ],
)
def test_html_is_read_in_linear_time(part: str) -> None:
    def read(count: int) -> float:
        begun = process_time()
        extract_text(part * count)
        return process_time() - begun

    read(1_000)
    assert read(100_000) < 5.0, "quadratic time takes minutes"


HEAD = {
    **{"format": "chunkproof-snapshot", "version": "1.0", "collection": "c", "host": "h", "created_at": "x"},
    **{"vector": {"name": "", "size": 2, "distance": "Cosine"}, "model": None, "texts": True, "vectors": False},
}
NODE = {"text": "a text", "relationships": {"1": {"node_id": "d"}}}


@pytest.mark.parametrize(
    "lines",
    ['{"chunk_id": 5}', '{"chunk_id": ', '{"chunk_id": "a"}\n{"end":true,"points":', '{"chunk_id": "a"}\n{"end"}'],
)
def test_a_snapshot_with_a_line_that_is_none_is_one_error(chunkproof: Command, tmp_path: Path, lines: str) -> None:
    snapshot = tmp_path / "a.snapshot"
    with manifest_file.create_manifest(tmp_path / "a.zst") as file:
        file.write(f"{json.dumps(HEAD, separators=(',', ':'))}\n{lines}\n".encode())
    (tmp_path / "a.zst").rename(snapshot)
    for words in (("manifest", "--from", snapshot, "-o", tmp_path / "m"), ("absent", snapshot), ("audit", snapshot)):
        run = chunkproof(*words)
        assert (run.code, "Traceback" in run.err) == (2, False), run.err


@pytest.mark.parametrize(
    "data",
    [
        {"a": {"__data__": {**NODE, "text": 5}}},
        {"a": {"__data__": {**NODE, "text": "\ud800"}}},
        {"a": {"__data__": {**NODE, "metadata": ["x"]}}},
        {"\ud800": {"__data__": NODE}},
        {"": {"__data__": NODE}},
        {"k" * 5_000: {"__data__": NODE}},
    ],
)
def test_a_docstore_with_a_node_that_is_none_is_one_error(
    chunkproof: Command, tmp_path: Path, data: dict[str, Any]
) -> None:
    (tmp_path / "docstore.json").write_text(json.dumps({"docstore/data": data}))
    run = chunkproof("manifest", "--from", tmp_path / "docstore.json", "-o", tmp_path / "m")
    assert (run.code, "is not a LlamaIndex docstore" in " ".join(run.err.split())) == (2, True), run.err


@pytest.mark.parametrize("key", [None, b"\xff", "", "k" * 5_000])
def test_a_record_whose_key_is_no_id_is_one_error(chunkproof: Command, tmp_path: Path, key: Any) -> None:
    store_texts(tmp_path, {"a": "b"})
    with sqlite3.connect(tmp_path / "a.sqlite") as database:
        database.execute("CREATE TABLE upsertion_record (uuid, key, namespace, group_id, updated_at)")
        database.execute("INSERT INTO upsertion_record VALUES ('u', ?, 'n', 'g', 1.0)", (key,))
    database.close()
    run = chunkproof("manifest", "--from", tmp_path / "a.sqlite", "--collection", "docs", "-o", tmp_path / "m")
    assert (run.code, "has a record whose key is no id" in " ".join(run.err.split())) == (2, True), run.err


def test_a_manifest_of_nothing_but_wrong_lines_is_not_read_to_its_end() -> None:
    lines = iter([b"{}\n"] * 1_000_000)
    with pytest.raises(InvalidParameterError, match="Give original_text"):
        list(manifest_file.check_lines(lines, "bomb"))
    assert sum(1 for _ in lines) > 900_000


def test_a_pipe_is_no_source(chunkproof: Command, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    run = chunkproof("manifest", "--from", tmp_path / "pipe", "-o", tmp_path / "m")
    assert (run.code, "neither a file nor a folder" in " ".join(run.err.split())) == (2, True)
