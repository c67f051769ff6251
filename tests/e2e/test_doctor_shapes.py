"""What doctor proposes for collections of unknown pipelines, and whether its settings work when they are pasted."""

import gzip
import json
import shlex
from base64 import a85encode, b32encode, b64encode, b85encode, encodebytes, urlsafe_b64encode
from bz2 import compress as bzip2
from collections.abc import Callable
from functools import cache
from hashlib import md5, sha256, sha512
from typing import Any
from urllib.parse import quote
from zlib import compress

import pytest
from qdrant_client import models

from chunkproof.base.request import Deadline
from chunkproof.embedders.embedder_port import InputType
from chunkproof.embedders.local_model import MiniLm
from chunkproof.stores.store_port import WritableStore

from support.commands import Command, Run
from support.qdrant_server import QdrantServer
from support.sdk import sdk

pytestmark = pytest.mark.server

TOPICS = ("the harbour", "a bakery", "solar panels", "night trains", "beekeeping", "old maps", "ice hockey", "violins")
TEXTS = [
    f"What to know about {topic}: part {number} explains how it began, who works there and what it costs today."
    for number, topic in enumerate(TOPICS, start=1)
]
PARENT = "The whole chapter, of which each chunk is a small part, with everything that was ever said about it. " * 9
COSINE = models.VectorParams(size=384, distance=models.Distance.COSINE)
EUCLID = models.VectorParams(size=384, distance=models.Distance.EUCLID)
OTHER = models.VectorParams(size=8, distance=models.Distance.COSINE)


@cache
def vectors_of(texts: tuple[str, ...]) -> list[list[float]]:
    return MiniLm().embed(list(texts), InputType.DOCUMENT, Deadline(60_000))


def blocks(text: str, *kinds: str) -> list[dict[str, Any]]:
    return [{"type": kind, "text": text} if kind == "text" else {"type": kind, "url": "a.png"} for kind in kinds]


def halves(text: str) -> list[str]:
    first, _, second = text.partition(": ")
    return [f"{first}:", second]


# Name, payload of a text, and the text that validate should find when it is not the same.
Shape = Callable[[str, int], dict[str, Any]]
PAYLOADS: dict[str, Shape] = {
    # known names, read as they are
    "text": lambda text, n: {"text": text},
    "page_content and metadata": lambda text, n: {"page_content": text, "metadata": {"source": f"{n}.md"}},
    "content beside a title": lambda text, n: {"content": text, "title": f"Chapter {n}"},
    "text beside a list of words": lambda text, n: {"text": text, "tags": ["a", "b", "c"]},
    "data": lambda text, n: {"data": text, "user_id": "u1"},
    "node as a JSON string": lambda text, n: {"_node_content": json.dumps({"text": text}), "doc_id": f"d{n}"},
    # names in other languages
    "German": lambda text, n: {"inhalt": text, "titel": f"Kapitel {n}"},
    "French": lambda text, n: {"texte": text, "auteur": "Jean"},
    "Spanish": lambda text, n: {"contenido": text, "fuente": f"https://example.org/{n}"},
    "Chinese": lambda text, n: {"正文": text, "标题": f"第{n}章"},
    "Russian": lambda text, n: {"текст": text, "источник": f"{n}.html"},
    "Arabic": lambda text, n: {"نص": text},
    # inside objects
    "one object deep": lambda text, n: {"chunk": {"body": text, "n": n}},
    "three objects deep": lambda text, n: {"a": {"b": {"c": text}}},
    "a JSON string with other names": lambda text, n: {"doc": json.dumps({"words": text, "page": n})},
    "a flat name with dots": lambda text, n: {"fields.body": text},
    # lists and blocks
    "a list with one text": lambda text, n: {"passages": [text]},
    "a list of lines": lambda text, n: {"lines": halves(text)},
    "one block": lambda text, n: {"content": blocks(text, "text")},
    "blocks with a picture": lambda text, n: {"content": blocks(text, "text", "image")},
    "a list under the usual name": lambda text, n: {"text": [text]},
    "blocks in an object": lambda text, n: {"document": {"blocks": [{"paragraph": text}]}},
    "nested blocks": lambda text, n: {"message": {"parts": [{"data": {"body": text}}]}},
    "an object under the usual name": lambda text, n: {"text": {"value": text, "annotations": []}},
    "a row": lambda text, n: {"row": [n, text, "2024-01-01"]},
    "pairs of name and value": lambda text, n: {
        "fields": [{"name": "body", "value": text}, {"name": "n", "value": "1"}]
    },
    "a heading and a paragraph": lambda text, n: {"blocks": [{"data": {"text": f"H {n}"}}, {"data": {"text": text}}]},
    "a list under a name with dots": lambda text, n: {"doc.parts": [{"body.text": text}]},
    "five lists deep": lambda text, n: {"pages": [{"columns": [{"blocks": [{"lines": [{"spans": [{"s": text}]}]}]}]}]},
    # several fields with texts: the one that was embedded
    "parent and child": lambda text, n: {"parent": {"body": f"{n % 3} {PARENT}"}, "child": {"body": text}},
    "a parent of its own": lambda text, n: {"parent_body": f"{n} {PARENT}", "child_body": text},
    "an object of children": lambda text, n: {"children": [{"body": text}], "parent": {"summary": f"{n} {PARENT}"}},
    "text is the parent": lambda text, n: {"text": f"{n} {PARENT}", "passage": text},
    "a summary and a body": lambda text, n: {"summary": f"Summary number {n} of a page", "body": text},
    "raw HTML beside it": lambda text, n: {"html": f"<div class='x'><p>{text}</p></div>" * 3, "plain": text},
    "question and answer": lambda text, n: {"answer": f"Yes, {n} times, as it was said before. " * 4, "question": text},
    "encoded bytes beside it": lambda text, n: {"raw": "QUJD" * 200, "passage": text},
    # what other pipelines write, and exports of other stores
    "Verba": lambda text, n: {"doc_name": f"{n}.pdf", "content_without_overlap": text, "pca": [0.1], "title": f"T {n}"},
    "Cognee": lambda text, n: {"id": f"0{n}", "payload_data": {"text": text, "type": "DocumentChunk"}},
    "GraphRAG": lambda text, n: {"attributes": json.dumps({"title": f"Entity {n}", "description": text})},
    "PrivateGPT": lambda text, n: {"window": f"{PARENT} {n} {text}", "original_text": text, "page_label": str(n)},
    "RAGFlow": lambda text, n: {"content_with_weight": text, "content_ltks": text.lower().replace(":", "")},
    "Weaviate": lambda text, n: {"class": "Chunk", "properties": {"chunkBody": text, "hasCategory": [{"beacon": "w"}]}},
    "Pinecone": lambda text, n: {"id": f"v{n}", "metadata": {"chunk": text, "source_file": f"{n}.md"}},
    "Milvus": lambda text, n: {"pk": n, "$meta": {"doc": text, "lang": "en"}},
    "Milvus, as a JSON string": lambda text, n: {"auto_id": n, "dynamic_field": json.dumps({"chunk_body": text})},
    "Elasticsearch": lambda text, n: {"_source": {"doc": {"chunk": {"payload": {"body": text}}}}},
    "Chinese objects": lambda text, n: {"元数据": {"来源": f"{n}.md"}, "内容": {"正文": text}},
    "Russian objects": lambda text, n: {"документ": {"содержание": text, "страница": n}},
    "Bedrock": lambda text, n: {
        "AMAZON_BEDROCK_TEXT_CHUNK": text,
        "AMAZON_BEDROCK_METADATA": json.dumps({"source": f"s3://b/{n}.md", "parentText": PARENT}),
        "x-amz-bedrock-kb-source-uri": f"s3://b/{n}.md",
    },
    "Azure AI Search": lambda text, n: {"chunk_id": f"abc_pages_{n}", "parent_id": "abc", "chunk": text},
    "FastGPT": lambda text, n: {"q": text, "a": "", "chunkIndex": n, "indexes": [{"type": "default", "text": text}]},
    "LangGraph": lambda text, n: {"prefix": "memories.u1", "key": f"k{n}", "value": {"memory": text}},
    "Graphiti": lambda text, n: {"uuid": f"{n:032x}", "episode_body": text, "source_description": "chat"},
    "Vanna": lambda text, n: {"documentation": text},
    "semantic-router": lambda text, n: {
        "sr_utterance": text,
        "sr_route": f"route {n % 3}",
        "sr_function_schema": "null",
    },
    "Vertex": lambda text, n: {"sourceUri": f"gs://b/{n}.pdf", "chunk": {"text": text, "pageSpan": {"firstPage": 1}}},
    "Firestore": lambda text, n: {"fields": {"body": {"stringValue": text}, "title": {"stringValue": f"Chapter {n}"}}},
    "Debezium": lambda text, n: {"payload": {"before": None, "after": {"id": n, "body": text}, "op": "c"}},
    "Notion": lambda text, n: {
        "object": "block",
        "paragraph": {"rich_text": [{"type": "text", "text": {"content": text, "link": None}, "plain_text": text}]},
    },
    "Jira": lambda text, n: {
        "key": f"AB-{n}",
        "fields": {
            "summary": f"Ticket {n}",
            "description": {"type": "doc", "content": [{"type": "paragraph", "content": [{"text": text}]}]},
        },
    },
    "Textract": lambda text, n: {"Blocks": [{"BlockType": "LINE", "Text": text, "Geometry": {"Left": 0.1}}]},
    "Paddle OCR": lambda text, n: {"result": [[[[0, 0], [1, 1]], [text, 0.99]]], "image": f"{n}.jpg"},
    "ChatGPT": lambda text, n: {"message": {"author": {"role": "user"}, "content": {"parts": [text]}}},
    "URIs as names": lambda text, n: {
        "@id": f"urn:{n}",
        "http://schema.org/text": [{"@value": text, "@language": "en"}],
    },
    "a copy in lower case": lambda text, n: {"a_folded": text.lower(), "b_passage": text},
    "an encrypted copy": lambda text, n: {
        "passage": text,
        "sealed": b64encode(sha512(text.encode()).digest() * 9).decode(),
    },
    "one of twelve long fields": lambda text, n: {
        **{f"part_{each}": f"{n}: part {each}. {PARENT[:200]}" for each in range(11)},
        "fact": text,
    },
    # names and values that need care in a path
    "a JSON list of objects": lambda text, n: {"chunks": json.dumps([{"body": text}])},
    "a JSON list of texts": lambda text, n: {"passages": json.dumps([text])},
    "a name with dots in an object": lambda text, n: {"doc": {"body.text": text}},
    "a list in a list": lambda text, n: {"rows": [[text]]},
    "a list of objects in a list": lambda text, n: {"rows": [[{"cell": text}]]},
    "a name with a space": lambda text, n: {"Chunk Text": text, "Page No.": n},
    "a name with an apostrophe": lambda text, n: {"l'article": text},
    "a name with brackets": lambda text, n: {"body[0]": text},
    "a number under the usual name": lambda text, n: {"text": n, "raw": text},
    "null under the usual name": lambda text, n: {"text": None, "raw": text},
    "languages under the usual name": lambda text, n: {"text": {"en": text, "de": f"Was man über Thema {n} weiß."}},
    "a longer list of encoded bytes": lambda text, n: {
        "words": text,
        "page": b64encode(bzip2(PARENT.encode())).decode(),
    },
    # several pipelines in one collection
    "two fields in turn": lambda text, n: {"body_a": text} if n % 2 else {"body_b": text},
    "half under the usual name": lambda text, n: {"text": text} if n % 2 else {"corpo": text},
    "a translation beside it": lambda text, n: {"en": text, "de": f"Was man über Thema {n} wissen sollte, und warum."},
}
READ_AS_STORED = {"text", "page_content and metadata", "content beside a title", "text beside a list of words"}
READ_AS_STORED |= {"data", "node as a JSON string"}


def fill(
    store: WritableStore,
    collection: str,
    shape: Shape,
    config: Any = COSINE,
    vector: Callable[[list[float]], Any] = lambda vector: vector,
    **more: Any,
) -> None:
    sdk(store).create_collection(collection, vectors_config=config, **more)
    points = [
        models.PointStruct(id=n, vector=vector(value), payload=shape(text, n))
        for n, (text, value) in enumerate(zip(TEXTS, vectors_of(tuple(TEXTS)), strict=True), start=1)
    ]
    sdk(store).upsert(collection, points, wait=True)


@pytest.fixture
def doctor(
    chunkproof: Command, served_qdrant: QdrantServer, collection: str, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Run]:
    monkeypatch.setenv("QDRANT_URL", served_qdrant.url)
    return lambda: chunkproof("doctor", "--collection", collection, "--json")


def paste(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Set what doctor prints, as a shell does."""
    for line in run.json["set"]:
        name, _, value = line.partition("=")
        monkeypatch.setenv(name, shlex.split(value)[0])


def levels(run: Run) -> dict[str, str]:
    return {item["check"]: item["level"] for item in run.json["findings"]}


def messages(run: Run) -> str:
    return " ".join(f"{item['message']} {item['remedy']}" for item in run.json["findings"])


@pytest.mark.parametrize("name", PAYLOADS)
def test_the_settings_that_doctor_prints_make_validate_and_search_read_the_embedded_text(
    chunkproof: Command,
    doctor: Callable[..., Run],
    server_store: WritableStore,
    collection: str,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
) -> None:
    fill(server_store, collection, PAYLOADS[name])
    run = doctor()
    assert (run.json["proposed_payload_map"] is None) is (name in READ_AS_STORED), run.json["findings"]
    paste(run, monkeypatch)
    assert doctor().json["fits"], messages(doctor())
    text = "\n".join(halves(TEXTS[1])) if name == "a list of lines" else TEXTS[1]
    valid = chunkproof("validate", "2", "--collection", collection, "--original", text)
    assert valid.code == 0, valid.out + valid.err
    assert chunkproof("validate", "2", "--collection", collection, "--original", f"{text}!").code == 1
    found = chunkproof("search", TEXTS[1], "--collection", collection, "--json")
    assert found.json["results"][0]["text"] == text


def thirds(words: list[str]) -> dict[str, Any]:
    return {"a": " ".join(words[:5]), "b": " ".join(words[5:7]), "c": " ".join(words[7:])}


def split(text: str) -> dict[str, Any]:
    return dict(zip(("title", "body"), halves(text), strict=True))


@pytest.mark.parametrize(
    ("shape", "said"),
    [
        (lambda text, n: {"body": b64encode(text.encode()).decode()}, "The texts in body are base64"),
        (lambda text, n: {"text": b64encode(text.encode()).decode()}, "The texts in text are base64"),
        (lambda text, n: {"body": b64encode(compress(text.encode())).decode()}, "are compressed and in base64"),
        (lambda text, n: {"body": b64encode(gzip.compress(text.encode())).decode()}, "are compressed and in base64"),
        (lambda text, n: {"body": text.encode().hex()}, "The texts in body are hexadecimal"),
        (
            lambda text, n: {"name": f"Part {n}", "body": b64encode(text.encode()).decode()},
            "The texts in body are base64",
        ),
        (lambda text, n: {"body": quote(text)}, "The texts in body are percent-encoded"),
        (lambda text, n: {"body": encodebytes(text.encode()).decode()}, "The texts in body are base64"),
        (lambda text, n: {"body": f"data:;base64,{b64encode(text.encode()).decode()}"}, "The texts in body are base64"),
        (lambda text, n: {"body": urlsafe_b64encode(f"{text}ÿ?>".encode()).decode().rstrip("=")}, "are base64"),
        (lambda text, n: {"body": b64encode(bzip2(text.encode())).decode()}, "are compressed and in base64"),
        (lambda text, n: {"body": b32encode(text.encode()).decode()}, "The texts in body are base32"),
        (lambda text, n: {"body": b85encode(text.encode()).decode()}, "The texts in body are base85"),
        (lambda text, n: {"body": a85encode(text.encode()).decode()}, "The texts in body are Ascii85"),
        (lambda text, n: {f"chunk_{n}": text}, "Each text has a name of its own (chunk_1, "),
        (
            lambda text, n: {"pages": {f"id{n}": {"text": text}}, "title": f"Page {n}"},
            "Each text has a name of its own",
        ),
        (lambda text, n: {"words": text.split(" ")}, "The texts in words[] are lists of single words"),
        (lambda text, n: {"letters": list(text)}, "The texts in letters[] are lists of single words or characters"),
        (
            lambda text, n: {"text": b64encode(sha512(text.encode()).digest() * 4).decode()},
            "The texts in text are encoded, compressed or encrypted",
        ),
        (
            lambda text, n: {"body": b64encode(text.encode("utf-16-le")).decode()},
            "The texts in body are encoded, compressed or encrypted",
        ),
        (lambda text, n: {"body": json.dumps(text)}, "The texts in body are JSON strings in quotation marks"),
        (lambda text, n: thirds(text.split(" ")), "of a and b and c together"),
        (lambda text, n: split(text), "The stored vectors are of title and body together"),
        (
            lambda text, n: {"text": split(text)["body"], "heading": split(text)["title"]},
            "of heading and text together",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "payload",
)
def test_what_no_map_can_read_is_said_with_what_to_store_instead(
    doctor: Callable[..., Run], server_store: WritableStore, collection: str, shape: Shape, said: str
) -> None:
    fill(server_store, collection, shape)
    run = doctor()
    assert run.code == 1
    (found,) = [item for item in run.json["findings"] if item["check"] in ("text", "vectors")]
    assert said in found["message"]
    assert found["remedy"].startswith("Store the ")


@pytest.mark.parametrize(
    "template", ["{question}\n{answer}", "Question: {question}\nAnswer: {answer}", "{answer} {question}"]
)
def test_texts_that_were_embedded_together_are_named(
    doctor: Callable[..., Run], server_store: WritableStore, collection: str, template: str
) -> None:
    asked = [
        {"question": f"What is there to know about {topic}?", "answer": text}
        for topic, text in zip(TOPICS, TEXTS, strict=True)
    ]
    made = vectors_of(tuple(template.format(**each) for each in asked))
    sdk(server_store).create_collection(collection, vectors_config=COSINE)
    points = [models.PointStruct(id=n, vector=v, payload=p) for n, (v, p) in enumerate(zip(made, asked, strict=True))]
    sdk(server_store).upsert(collection, points, wait=True)
    assert "answer" in (said := messages(doctor()))
    assert "together, and a payload map reads one field" in said


def test_a_text_that_is_json_is_read_whole_if_the_whole_was_embedded(
    chunkproof: Command,
    doctor: Callable[..., Run],
    server_store: WritableStore,
    collection: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    files = [json.dumps({"name": f"package {n}", "description": text, "private": True}) for n, text in enumerate(TEXTS)]
    whole = iter(vectors_of(tuple(files)))
    fill(server_store, collection, lambda _, n: {"body": files[n - 1], "lang": "json"}, vector=lambda _: next(whole))
    paste(doctor(), monkeypatch)
    assert doctor().json["fits"], messages(doctor())
    assert chunkproof("validate", "2", "--collection", collection, "--original", files[1]).code == 0


def test_failures_come_first_and_the_settings_are_printed_once_to_be_pasted_into_a_shell(
    chunkproof: Command, doctor: Callable[..., Run], server_store: WritableStore, collection: str
) -> None:
    fill(server_store, collection, lambda text, n: {"inhalt": text, "quelle": f"https://example.org/{n}"})
    run = chunkproof("doctor", "--collection", collection)
    found = [line[2:6].strip() for line in run.out.splitlines() if line[2:6] in ("FAIL", "note", "ok  ")]
    assert found == sorted(found, key=["FAIL", "note", "ok"].index)
    map_ = '{"text": "inhalt", "url": "quelle"}'
    assert run.out.count(map_) == 1
    assert f"\n  export CHUNKPROOF_PAYLOAD_MAP='{map_}'\n" in run.out
    assert "Set CHUNKPROOF_PAYLOAD_MAP as printed below" in run.out


def test_vectors_of_another_model_are_not_said_to_come_from_the_one_in_use(
    doctor: Callable[..., Run], server_store: WritableStore, collection: str
) -> None:
    fill(server_store, collection, PAYLOADS["text"], vector=lambda vector: vector[::-1])
    (found,) = [item for item in doctor().json["findings"] if item["check"] == "vectors"]
    assert "come from another model" in found["message"]
    assert "CHUNKPROOF_EMBEDDER=cohere" in found["remedy"]
    assert "CHUNKPROOF_EMBEDDER=local" not in found["remedy"]


@pytest.mark.parametrize(
    ("shape", "proposed"),
    [
        (lambda text, n: {"a_html": f"<div class='x'>\n<p>{text}</p></div>", "plain": text}, "plain"),
        (lambda text, n: {"a_folded": text.lower(), "passage": text}, "passage"),
        (lambda text, n: {"passage": text, "words": [{"w": word} for word in text.split()]}, "passage"),
        (lambda text, n: {"passage": text, "copy": b64encode(text.encode()).decode()}, "passage"),
        (lambda text, n: {"passage": text, "seal": b64encode(sha512(text.encode()).digest() * 9).decode()}, "passage"),
        (lambda text, n: {"texte": text} if n % 3 else {"corps": [text]}, ["texte", "corps[]"]),
        (lambda text, n: {"text": text} if n % 3 else {"corps": text}, ["text", "corps"]),
        (lambda text, n: {"text": text, "title": f"Part {n}"} if n % 3 else {"title": f"Part {n}"}, None),
    ],
    ids=["HTML", "lower case", "words", "base64", "signature", "two pipelines", "one is known", "titles"],
)
def test_without_the_model_the_text_is_told_from_its_copies_and_found_in_every_pipeline(
    doctor: Callable[..., Run], server_store: WritableStore, collection: str, shape: Shape, proposed: Any
) -> None:
    fill(server_store, collection, shape, OTHER, lambda _: [1.0] * 8)
    run = doctor()
    assert (run.json["proposed_payload_map"] or {}).get("text") == proposed
    maps = [line for line in run.json["set"] if "PAYLOAD_MAP" in line]
    assert bool(maps) is (proposed is not None)


def test_ids_that_are_hashes_of_the_text_need_no_other_hash(
    chunkproof: Command, doctor: Callable[..., Run], server_store: WritableStore, collection: str
) -> None:
    fill(server_store, collection, lambda text, n: {"chunk_id": sha256(text.encode()).hexdigest(), "text": text})
    run = doctor()
    assert "content_hash" not in levels(run)
    assert run.json["proposed_payload_map"] is None
    assert chunkproof("validate", "2", "--collection", collection).code == 0


@pytest.mark.parametrize("has_vectors", [True, False])
def test_a_chunk_is_validated_by_a_source_that_no_filter_or_search_reaches(
    chunkproof: Command, doctor: Callable[..., Run], server_store: WritableStore, collection: str, has_vectors: bool
) -> None:
    def shape(text: str, n: int) -> dict[str, Any]:
        source = {"source": f"https://example.org/{n // 3}/{n}", "title": f"Part {n // 3}"}
        return {"text": text, "metadata": json.dumps(source) if has_vectors else source}

    words = {"words": models.SparseVector(indices=[1, 2], values=[1.0, 0.5])}
    sparse = {"sparse_vectors_config": {"words": models.SparseVectorParams()}}
    only_sparse: dict[str, Any] = {"config": {}, "vector": lambda _: words, **sparse}
    fill(server_store, collection, shape, **({} if has_vectors else only_sparse))
    named = ("validate", "https://example.org/0/2", "--collection", collection, "--original")
    assert chunkproof(*named, TEXTS[1]).code == 0
    assert chunkproof(*named, f"{TEXTS[1]}!").code == 1
    shared = chunkproof("validate", "Part 1", "--collection", collection, "--original", TEXTS[2])
    assert (shared.code, "of several chunks; name one of them: 3, 4, 5" in shared.err) == (2, True)
    assert chunkproof("validate", "https://example.org/9", "--collection", collection, "--original", "x").code == 1


def register(count: int) -> list[str]:
    return [f"Entry {n} of the register: {TOPICS[n % 8]}, as it was seen on day {n * 7 % 365}." for n in range(count)]


def fill_many(store: WritableStore, collection: str, texts: list[str], payloads: list[dict[str, Any]]) -> None:
    sdk(store).create_collection(collection, vectors_config=COSINE)
    made = zip(vectors_of(tuple(texts)), payloads, strict=True)
    points = [models.PointStruct(id=n, vector=vector, payload=payload) for n, (vector, payload) in enumerate(made)]
    sdk(store).upsert(collection, points, wait=True)


@pytest.mark.parametrize(
    ("first", "then", "proposed"),
    [("text", "absatz", ["text", "absatz"]), ("image", "absatz", "absatz"), ("text", "image", None)],
)
def test_points_from_all_over_a_collection_show_where_its_texts_are(
    doctor: Callable[..., Run], server_store: WritableStore, collection: str, first: str, then: str, proposed: Any
) -> None:
    texts = register(300)
    names = [first if n < 150 else then for n in range(300)]
    payloads = [{name: f"{n}.png" if name == "image" else texts[n]} for n, name in enumerate(names)]
    fill_many(server_store, collection, texts, payloads)
    run = doctor()
    assert (run.json["proposed_payload_map"] or {}).get("text") == proposed
    assert run.json["shares"]["text"] == (pytest.approx(0.5, abs=0.2) if first == "text" else 0.0)


def test_an_item_of_a_list_is_no_text_where_another_field_says_which_item_it_is(
    doctor: Callable[..., Run], server_store: WritableStore, collection: str
) -> None:
    texts = register(300)
    payloads = [{"chunks": texts[n // 5 * 5 : n // 5 * 5 + 5], "number": n % 5} for n in range(300)]
    fill_many(server_store, collection, texts, payloads)
    said = messages(doctor())
    assert "chunks[0]" not in said
    assert "which the stored vectors do not confirm" in said


def test_texts_that_all_agree_nearly_are_not_called_single_wrong_vectors(
    doctor: Callable[..., Run], server_store: WritableStore, collection: str
) -> None:
    long = [f"{text} {PARENT[:500]}" for text in TEXTS]
    titled = [f"On {topic}: {text}" for topic, text in zip(TOPICS, long, strict=True)]
    fill_many(server_store, collection, titled, [{"text": text} for text in long])
    (found,) = [item for item in doctor().json["findings"] if item["check"] == "vectors"]
    assert "close: the same model, probably with a title" in found["message"]


PAGE = "https://example.org/2"
OTHER_FIELDS: dict[str, tuple[Shape, dict[str, str]]] = {
    "an address in German": (lambda text, n: {"inhalt": text, "quelle": f"https://example.org/{n}"}, {"url": PAGE}),
    "an address in Chinese": (lambda text, n: {"内容": text, "来源": f"https://example.org/{n}"}, {"url": PAGE}),
    "a link beside a picture": (
        lambda text, n: {"text": text, "a_thumbnail": f"{n}.png", "link": f"https://example.org/{n}"},
        {"url": PAGE},
    ),
    "a link behind a picture": (
        lambda text, n: {"text": text, "image": f"https://cdn.example.org/{n}.jpg", "link": f"https://example.org/{n}"},
        {"url": PAGE},
    ),
    "a title beside the text in an object": (
        lambda text, n: {"put": f"id:ns:doc::{n}", "fields": {"title": f"Page {n}", "chunk": text}},
        {"document_title": "Page 2"},
    ),
    "a title beside the address in an object": (
        lambda text, n: {"content": text, "documentMetadata": {"uri": f"gs://bucket/{n}.html", "title": f"Page {n}"}},
        {"url": "gs://bucket/2.html", "document_title": "Page 2"},
    ),
    "metadata in a list": (
        lambda text, n: {"documents": [text], "metadatas": [{"source": f"https://example.org/{n}"}]},
        {"url": PAGE},
    ),
    "a bucket": (lambda text, n: {"text": text, "uri": f"s3://bucket/{n}.pdf"}, {"url": "s3://bucket/2.pdf"}),
    "a path": (lambda text, n: {"text": text, "path": f"/srv/docs/{n}.md"}, {"url": "/srv/docs/2.md"}),
    "a source that is an object": (
        lambda text, n: {"text": text, "source": {"url": f"https://example.org/{n}", "title": f"Page {n}"}},
        {"url": PAGE, "document_title": "Page 2"},
    ),
    "a text under the name of a source": (
        lambda text, n: {"source": text, "link": f"https://example.org/{n}"},
        {"url": PAGE},
    ),
    "metadata under another name": (
        lambda text, n: {"texte": text, "infos": {"source": f"https://example.org/{n}", "title": f"Page {n}"}},
        {"url": PAGE, "document_title": "Page 2"},
    ),
    "a SHA-256": (lambda text, n: {"passage": text, "sum": sha256(text.encode()).hexdigest()}, {}),
    "an MD5 in an object": (
        lambda text, n: {"text": text, "check": {"digest": md5(text.encode(), usedforsecurity=False).hexdigest()}},
        {},
    ),
}


@pytest.mark.parametrize("name", OTHER_FIELDS)
def test_sources_titles_and_hashes_under_other_names_are_proposed(
    chunkproof: Command,
    doctor: Callable[..., Run],
    server_store: WritableStore,
    collection: str,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
) -> None:
    shape, wanted = OTHER_FIELDS[name]
    fill(server_store, collection, shape)
    paste(doctor(), monkeypatch)
    run = doctor()
    assert run.json["fits"], messages(run)
    (first, *_) = chunkproof("search", TEXTS[1], "--collection", collection, "--json").json["results"]
    assert first["text"] == TEXTS[1]
    assert {field: first["metadata"][field] for field in wanted} == wanted
    if wanted:
        assert chunkproof("validate", "2", "--collection", collection, "--original", TEXTS[1]).code == 0
        return
    assert chunkproof("validate", "2", "--collection", collection).code == 0
    sdk(server_store).set_payload(collection, {"text" if "MD5" in name else "passage": f"{TEXTS[1]}!"}, [2], wait=True)
    assert chunkproof("validate", "2", "--collection", collection).code == 1


@pytest.mark.parametrize(
    ("config", "make", "chosen"),
    [
        ({"image": OTHER, "text": COSINE}, lambda v: {"image": [1.0] * 8, "text": v}, "text"),
        ({"a": COSINE, "b": COSINE}, lambda v: {"a": v[::-1], "b": v}, "b"),
        ({"title": COSINE, "body": COSINE}, lambda v: {"body": v}, "body"),
        ({"a": EUCLID, "its 'b'": COSINE}, lambda v: {"a": v, "its 'b'": v}, "its 'b'"),
        ({"a title": COSINE, "body": COSINE}, lambda v: {"a title": vectors_of(("Kapitel 1",))[0], "body": v}, "body"),
    ],
    ids=["one of the model's size", "one that agrees", "one that is empty", "one that has cosines", "one of a title"],
)
def test_of_several_vectors_the_one_of_the_text_is_proposed(
    chunkproof: Command,
    doctor: Callable[..., Run],
    server_store: WritableStore,
    collection: str,
    monkeypatch: pytest.MonkeyPatch,
    config: Any,
    make: Any,
    chosen: str,
) -> None:
    fill(server_store, collection, PAYLOADS["German"], config, make)
    run = doctor()
    assert f"CHUNKPROOF_VECTOR_NAME={shlex.quote(chosen)}" in run.json["set"]
    assert ("8 of 8 points have no vector title" in messages(run)) is ("title" in config)
    paste(run, monkeypatch)
    assert doctor().json["fits"], messages(doctor())
    assert chunkproof("search", TEXTS[0], "--collection", collection, "--json").json["results"][0]["text"] == TEXTS[0]


@pytest.mark.parametrize("kind", ["sparse", "multi"])
def test_a_collection_without_a_dense_vector_is_reported_and_validated(
    chunkproof: Command, doctor: Callable[..., Run], server_store: WritableStore, collection: str, kind: str
) -> None:
    if kind == "sparse":
        sparse = {"sparse_vectors_config": {"words": models.SparseVectorParams()}}
        one = {"words": models.SparseVector(indices=[1, 2], values=[1.0, 0.5])}
        fill(server_store, collection, PAYLOADS["text"], {}, lambda _: one, **sparse)
    else:
        tokens = models.MultiVectorConfig(comparator=models.MultiVectorComparator.MAX_SIM)
        config = models.VectorParams(size=8, distance=models.Distance.COSINE, multivector_config=tokens)
        fill(server_store, collection, PAYLOADS["text"], {"tokens": config}, lambda _: {"tokens": [[1.0] * 8] * 3})
    run = doctor()
    assert run.code == 1
    assert levels(run)["vector"] == "FAIL"
    assert "no dense vector" in messages(run)
    assert levels(run)["text"] == "ok"
    assert chunkproof("doctor", "--collection", collection).code == 1
    assert chunkproof("validate", "2", "--collection", collection, "--original", TEXTS[1]).code == 0


@pytest.mark.parametrize("stored", [0, 3])
def test_a_collection_of_which_most_points_have_no_vector_is_not_ready(
    doctor: Callable[..., Run], server_store: WritableStore, collection: str, stored: int
) -> None:
    with_vector = iter(range(len(TEXTS)))
    fill(
        server_store,
        collection,
        PAYLOADS["text"],
        {"dense": COSINE},
        lambda v: {"dense": v} if next(with_vector) < stored else {},
    )
    run = doctor()
    assert run.code == 1
    assert levels(run)["points without vectors"] == "FAIL"


def test_vectors_of_zeros_are_called_that(
    doctor: Callable[..., Run], server_store: WritableStore, collection: str
) -> None:
    fill(server_store, collection, PAYLOADS["text"], vector=lambda _: [0.0] * 384)
    assert "the stored vectors are all zeros" in messages(doctor())


@pytest.mark.parametrize("text", ["", " \n"])
def test_a_collection_of_empty_texts_is_not_ready(
    doctor: Callable[..., Run], server_store: WritableStore, collection: str, text: str
) -> None:
    fill(server_store, collection, lambda _, n: {"content": text, "page": n})
    run = doctor()
    assert run.code == 1
    assert "The sampled texts in content are empty" in messages(run)


def test_an_alias_is_checked_like_its_collection(
    chunkproof: Command, doctor: Callable[..., Run], server_store: WritableStore, collection: str
) -> None:
    fill(server_store, collection, PAYLOADS["text"])
    alias = models.CreateAlias(collection_name=collection, alias_name=f"{collection}-live")
    sdk(server_store).update_collection_aliases([models.CreateAliasOperation(create_alias=alias)])
    run = chunkproof("doctor", "--collection", f"{collection}-live", "--json")
    assert run.code == 0, run.out + run.err
    assert run.json["collection"] == f"{collection}-live"
    assert chunkproof("doctor", "--collection", f"{collection}-none").code == 2


def test_a_few_wrong_vectors_are_counted_and_named(
    doctor: Callable[..., Run], server_store: WritableStore, collection: str
) -> None:
    texts = [f"{text} This is paragraph {n} of the page." for n in range(14) for text in TEXTS]
    sdk(server_store).create_collection(collection, vectors_config=COSINE)
    vectors = vectors_of(tuple(texts))
    wrong = {3, 40, 41, 77, 100, 111}
    points = [
        models.PointStruct(id=n, vector=vector[::-1] if n in wrong else vector, payload={"text": text})
        for n, (text, vector) in enumerate(zip(texts, vectors, strict=True))
    ]
    sdk(server_store).upsert(collection, points, wait=True)
    run = doctor()
    assert run.code == 1
    assert "106 agree, not 3, 40, 41, 77, 100, 111" in messages(run)


@pytest.mark.parametrize(
    ("text", "check"),
    [
        ("CafÃ© au lait costs three euros.", "mojibake"),
        ("Itâ€™s the owner who decides.", "mojibake"),
        ("Ð¿Ñ€Ð¸Ð²ÐµÑ‚ means hello.", "mojibake"),
        ("The price is \ufffd 20.", "mojibake"),
        ("# Chapter one", "headings"),
        ("## Part\n### Section", "headings"),
    ],
)
def test_damaged_texts_and_bare_headings_are_named(
    doctor: Callable[..., Run], server_store: WritableStore, collection: str, text: str, check: str
) -> None:
    fill(server_store, collection, lambda stored, n: {"text": text if n == 5 else stored})
    found = next(item for item in doctor().json["findings"] if item["check"] == check)
    assert found["level"] == "note"
    assert found["message"].endswith(": 5")


@pytest.mark.parametrize(
    "text", ["Café, naïve, Straße – “quoted”.", "Привет, мир.", "日本語の文章です。", "Preço: 20 €"]
)
def test_other_scripts_are_not_taken_for_mojibake(
    doctor: Callable[..., Run], server_store: WritableStore, collection: str, text: str
) -> None:
    fill(server_store, collection, lambda stored, n: {"text": text if n == 5 else stored})
    assert "mojibake" not in levels(doctor())
