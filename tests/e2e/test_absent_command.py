"""What was deleted is proved absent, or found: by id, text, near text, URL and search, in every collection."""

import base64
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from chunkproof.audit.absence import choose_sentences
from chunkproof.base.request import Deadline
from chunkproof.net.transport import DeadlineTransport
from chunkproof.stores.edge import EdgeStore
from chunkproof.stores.server import ServerStore
from chunkproof.stores.store_port import Point

from support.commands import Command, Run
from support.qdrant_server import QdrantServer
from support.sdk import sdk

SECRET = (
    "Jane Doe of 12 Elm Street ordered a gripper on 3 May and returned it two weeks later. "
    "She asked for a refund by phone, and the agent noted that her sister would collect the parcel."
)
FORMATS = (".json", ".txt", ".md", ".html")


def add(tmp_path: Path, collection: str, *points: Point, size: int = 384) -> None:
    store = EdgeStore(tmp_path / "data-home" / "chunkproof")
    if collection not in store.collections(Deadline(10_000)):
        store.create(collection, size, Deadline(10_000))
    store.upsert(collection, points, "", Deadline(10_000))
    store.close()


def point(point_id: int | str, size: int = 384, **payload: Any) -> Point:
    return Point(point_id, payload, vector=(1.0, *[0.0] * (size - 1)))


def manifest(tmp_path: Path, *lines: dict[str, Any]) -> Path:
    file = tmp_path / "deleted.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return file


def ways(run: Run) -> list[tuple[str, str, str | None]]:
    return [
        (hit["how"], hit["collection"], hit["field"]) for subject in run.json["subjects"] for hit in subject["hits"]
    ]


def test_what_is_nowhere_is_absent_and_the_dated_reports_do_not_repeat_it(handbook: Command, tmp_path: Path) -> None:
    deleted = manifest(tmp_path, {"chunk_id": "people/jane-1", "original_text": SECRET})
    files = [tmp_path / f"erasure{suffix}" for suffix in FORMATS]
    outputs = [word for file in files for word in ("-o", file)]
    url = ("--url", "https://docs.example.com/people/jane")
    run = handbook("absent", deleted, *url, "--text", "Jane Doe", *outputs, "--json")
    assert run.code == 0, run.out
    assert run.json["verdict"].startswith("ABSENT: none of 3 is stored in 1 collections (41 points).")
    (checked,) = run.json["collections"]
    assert (checked["name"], checked["read"], checked["searches"]) == ("handbook", 41, 4)
    again = tmp_path / "again.html"
    assert handbook("report", tmp_path / "erasure.json", "-o", again).code == 0
    assert again.read_bytes() == (tmp_path / "erasure.html").read_bytes()
    for file in files:
        shown = file.read_text("utf-8")
        assert "Elm Street" not in shown
        assert f"{datetime.now(UTC):%Y-%m-%d}" in shown
        assert "snapshots and backups of the server" in shown
        assert "people/jane" in shown.replace("\\", "")


@pytest.mark.parametrize(
    ("payload", "how", "field"),
    [
        ({"text": SECRET}, "exact text", "text"),
        ({"page_content": SECRET.upper().replace(" ", "  ")}, "near-duplicate text", "text"),
        ({"text": f"From the archive. {SECRET[:110]} The rest is lost."}, "passage", "text"),
        ({"text": "Something else.", "notes": {"old": [SECRET]}}, "exact text", "notes.old[]"),
        ({"text": "Redacted.", "chunk_id": "people/jane-1"}, "id", None),
        ({"text": "Redacted.", "url": "https://docs.example.com/people/jane/#top"}, "url", "url"),
    ],
    ids=["exact", "near", "passage", "nested", "id", "url"],
)
def test_a_remainder_in_another_collection_is_found(
    handbook: Command, tmp_path: Path, payload: dict[str, Any], how: str, field: str | None
) -> None:
    add(tmp_path, "other", point(5, **payload))
    deleted = manifest(tmp_path, {"chunk_id": "people/jane-1", "original_text": SECRET})
    run = handbook("absent", deleted, "--url", "https://docs.example.com/people/jane", "--json")
    assert run.code == 1
    assert ways(run) == [(how, "other", field)]
    assert run.json["verdict"] == "FOUND: 1 of 2 are still stored, 1 times."


NAME = "Zoë Quill"
URL = "https://docs.example.com/people/zoe"
HEXADECIMAL = base64.b64encode(f"of {NAME} anew".encode()).hex()
FORMS: dict[str, Any] = {
    "comment": {"text": f"Hello. <!-- {NAME} --> Bye."},
    "link target": {"text": "See [this](https://x.example/Zoë-Quill) page."},
    "reference": {"text": "See [this][zoë quill] page."},
    "name of a field": {"text": "Hello.", "people": {NAME: 1}},
    "JSON escapes": {"text": "Hello.", "_node": json.dumps({"note": f"by\n{NAME}"})},
    "JSON in JSON": {"text": "Hello.", "_node": json.dumps({"inner": json.dumps({"note": NAME})})},
    "entities": {"text": "By &#90;o&euml; &#x51;uill."},
    "entities twice": {"text": "By Zo&amp;euml; Quill."},
    "URL encoding": {"text": "Hello.", "link": "https://x.example/?q=Zo%C3%AB%20Quill"},
    "URL encoding with plus": {"text": "Hello.", "link": "https://x.example/?q=Zo%C3%AB+Quill"},
    "list of words": {"text": "Hello.", "authors": [{"parts": ["Zoë", "Quill"]}]},
    "markup": {"text": "By <b>Z</b>oë Qu<i class='x'>ill</i>."},
    "attribute": {"text": '<img alt="Zoë Quill">'},
    "Base64": {"text": "Hello.", "blob": "Wm/DqyBRdWlsbCB3YXMgaGVyZQ=="},
    "quoted-printable": {"text": "By Zo=C3=AB Quill."},
    "decomposed": {"text": "By Zoe\u0308 Qu\u00adill."},
    "JSON five times": {"_node": json.dumps(json.dumps(json.dumps(json.dumps(json.dumps(NAME)))))},
    "escapes of JavaScript": {"x": r"Zo\u{eb} Quill"},
    "escapes of Python": {"x": repr(NAME.encode())},
    "long escapes": {"x": r"\U0000005ao\U000000eb Quill"},
    "octal": {"x": r"Zo\303\253 Quill"},
    "RTF": {"x": r"Zo\'eb Quill"},
    "CSS": {"x": r"Zo\EB  Quill"},
    "%u": {"x": "Zo%u00EB+Quill"},
    "URL encoding in Latin-1": {"x": "Zo%eb%20Quill"},
    "URL encoding of entities": {"x": "Zo%26euml%3B%20Quill"},
    "entities with zeros": {"x": "&#0000000090;o&#x000EB; Quill"},
    "behind a reference of 5,000 digits": {"x": "&#" + "9" * 5_000 + "; Zo&euml; Quill"},
    "Base64 in a sentence": {"text": "Attached: d2l0aCBab8OrIFF1aWxsIGhlcmU= (end)."},
    "data URL": {"x": "data:text/plain;base64,eHggWm/DqyBRdWlsbCB5eQ=="},
    "Base64 of UTF-16": {"x": "//5aAG8A6wAgAFEAdQBpAGwAbAA="},
    "word of a mail header": {"x": "=?utf-8?B?Wm/DqyBRdWlsbA==?="},
    "hexadecimal": {"x": "5a 6f c3 ab 20 51 75 69 6c 6c"},
    "Base64 in hexadecimal digits before a word of such digits": {"x": f"Before. {HEXADECIMAL} After."},
    "entities broken over lines, in JSON": {"x": json.dumps({"inner": "Zo&eu=\nml;=20&#8=\n1;uill"})},
    "UTF-7": {"x": "Zo+AOs- Quill"},
    "mojibake": {"x": "Zo\u00c3\u00ab Quill"},
    "full width": {"x": "\uff3a\uff4fë Quill"},
    "invisible characters": {"x": "\u200b".join(NAME)},
    "tag with > in it": {"x": "Zoë <a title='x > y'>Quill</a>"},
    "names of nested fields": {"Zoë": {"Quill": 1}},
    "characters": {"x": list(NAME)},
    "code points": {"x": [ord(char) for char in NAME]},
    "bytes": {"x": list(NAME.encode())},
    "two fields": {"first": "Zoë", "last": "Quill"},
    "objects of a list": {"x": [{"word": "Zoë"}, {"word": "Quill"}]},
}


@pytest.mark.parametrize("payload", FORMS.values(), ids=FORMS)
def test_a_text_is_found_in_every_form_and_not_repeated(
    handbook: Command, tmp_path: Path, payload: dict[str, Any]
) -> None:
    add(tmp_path, "other", point(5, **payload))
    run = handbook("absent", "--text", NAME, "--collection", "other", "--searches", 0, "--json")
    assert run.code == 1, run.out
    assert "Quill" not in run.out
    assert any("JSON escapes" in check and "Base64" in check for check in run.json["checks"])


@pytest.mark.parametrize("number", [41110022, 41110022.0, [1, 41110022]])
def test_a_number_is_found(handbook: Command, tmp_path: Path, number: Any) -> None:
    add(tmp_path, "other", point(5, text="Hello.", customer={"no": number}))
    assert handbook("absent", "--text", "4111 0022", "--collection", "other").code == 1


@pytest.mark.parametrize(
    "payload",
    [
        {"link": URL},
        {"links": ["https://docs.example.com/", URL]},
        {"url": f"{URL}?utm_source=mail&x=1"},
        {"url": "http://docs.example.com/people/zoe"},
        {"url": "HTTP://www.Docs.Example.com:443/people/zoe/index.html#top"},
        {"links": ["https://docs.example.com/People/ZOE?Ref=1"]},
        {"text": f"See [her page]({URL}/)."},
        {"_node": json.dumps({"origin": URL.replace("/", "\\/")})},
        {"link": "https%3A%2F%2Fdocs.example.com%2Fpeople%2Fzoe"},
        {"link": "https://docs.example.com./people//x/../zoe"},
        {"link": "https://user:key@docs.example.com:8443/people/./zoe;jsessionid=1"},
        {"link": "https:\\\\docs.example.com\\people\\zoe"},
        {"link": "https://docs.\u200bexample.com/people/zo\u00ade"},
        {"host": "docs.example.com", "path": "people/zoe"},
        {"link": f"https://archive.example/2020/{URL}"},
        {"names": {URL: True}},
    ],
)
def test_a_document_is_found_by_its_url_in_any_field(
    handbook: Command, tmp_path: Path, payload: dict[str, Any]
) -> None:
    add(tmp_path, "other", point(5, **{"text": "Hello.", **payload}))
    assert handbook("absent", "--url", URL, "--collection", "other").code == 1


@pytest.mark.parametrize(
    "stored",
    [
        "https://xn--mller-kva.example/gr%C3%B6%C3%9Fe?id=7",
        "https://XN--MLLER-KVA.example/gr%c3%b6%c3%9fe/?utm=1&id=7#top",
        "https://müller.example/größe?id=7",
        "http://MÜLLER.example/gro\u0308ße?x=&amp;id=7",
    ],
)
@pytest.mark.parametrize(
    "url", ["https://müller.example/größe?id=7", "https://xn--mller-kva.example/gr%C3%B6%C3%9Fe?id=7"]
)
def test_an_international_url_is_found_in_either_spelling_and_with_its_parameters(
    handbook: Command, tmp_path: Path, stored: str, url: str
) -> None:
    add(tmp_path, "other", point(5, text="Hello.", link=stored), point(6, text="Hi.", link=stored.replace("7", "8")))
    run = handbook("absent", "--url", url, "--collection", "other", "--json")
    assert [hit["point_id"] for subject in run.json["subjects"] for hit in subject["hits"]] == [5]


@pytest.mark.parametrize(
    "url", [f"{URL}-jones", f"{URL}/photos", "https://notdocs.example.com/people/zoe", f"{URL}.pdf"]
)
def test_another_document_is_not_found(handbook: Command, tmp_path: Path, url: str) -> None:
    add(tmp_path, "other", point(5, text="Hello.", url=url))
    assert handbook("absent", "--url", URL, "--collection", "other").code == 0


def test_a_short_text_is_found_inside_of_others_and_its_vector_under_another_text(
    handbook: Command, tmp_path: Path
) -> None:
    from chunkproof.embedders.embedder_port import InputType
    from chunkproof.embedders.local_model import local_model

    vector = tuple(local_model().embed([SECRET], InputType.DOCUMENT, Deadline(60_000))[0])
    add(tmp_path, "other", Point(5, {"text": "Removed."}, vector=vector), point(6, text="Call Jane  DOE, please."))
    letter = tmp_path / "letter.txt"
    letter.write_text(SECRET + "\n")
    run = handbook("absent", "--text-file", letter, "--text", "Jane Doe", "--json")
    assert run.code == 1
    assert sorted(ways(run)) == [("passage", "other", "text"), ("vector", "other", None)]


def test_a_number_that_another_chunk_has_as_its_id_is_no_remainder(handbook: Command, tmp_path: Path) -> None:
    add(tmp_path, "other", point(7, text="Another text altogether."))
    deleted = manifest(tmp_path, {"chunk_id": "7", "original_text": SECRET})
    assert handbook("absent", deleted).code == 0


def test_what_cannot_be_checked_is_not_proved(handbook: Command, tmp_path: Path) -> None:
    add(tmp_path, "small", point(1, size=3, text="Vectors of another model."), size=3)
    run = handbook("absent", "--text", SECRET, "--json")
    assert run.code == 3
    assert run.json["verdict"].startswith("NOT PROVED: nothing was found")
    assert "small could not be searched" in run.json["not_checked"][0]
    hashed = manifest(tmp_path, {"chunk_id": "x", "original_sha256": "0" * 64})
    unknown = handbook("absent", hashed, "--collection", "handbook", "--json")
    assert unknown.code == 3
    assert "only hashes or ids" in unknown.json["not_checked"][0]
    assert "other collections than handbook" in unknown.json["out_of_reach"][0]


def test_chunks_of_the_handbook_are_found_until_they_are_deleted(
    handbook: Command, handbook_file: Path, tmp_path: Path
) -> None:
    everything = tmp_path / "all.jsonl"
    assert handbook("manifest", handbook_file, "-o", everything).code == 0
    lines = everything.read_bytes().splitlines(keepends=True)
    some = tmp_path / "some.jsonl"
    some.write_bytes(b"".join(lines[:3]))
    before = handbook("absent", some, "--json")
    assert (before.code, before.json["found"]) == (1, 3)
    assert {how for how, _, _ in ways(before)} >= {"id", "exact text"}
    store = EdgeStore(tmp_path / "data-home" / "chunkproof")
    points = store.scroll("handbook", Deadline(10_000), limit=1_000).points
    gone = {json.loads(line)["chunk_id"] for line in lines[:3]}
    sdk(store).delete("handbook", [p.id for p in points if p.payload["chunk_id"] in gone])
    store.close()
    after = handbook("absent", some)
    assert after.code == 0, after.out
    assert "ABSENT: none of 3 is stored" in after.out


@pytest.mark.server
def test_aliases_of_a_server_are_named(
    chunkproof: Command, served_qdrant: QdrantServer, collection: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from qdrant_client import QdrantClient, models

    store = ServerStore(served_qdrant.url, DeadlineTransport())
    store.create(collection, 384, Deadline(10_000))
    store.upsert(collection, [point(1, text=SECRET)], "", Deadline(10_000))
    alias = f"{collection}-alias"
    client = QdrantClient(served_qdrant.url, check_compatibility=False)
    create = models.CreateAlias(collection_name=collection, alias_name=alias)
    client.update_collection_aliases([models.CreateAliasOperation(create_alias=create)])
    assert store.aliases(Deadline(10_000))[alias] == collection
    monkeypatch.setenv("QDRANT_URL", served_qdrant.url)
    run = chunkproof("absent", "--text", SECRET, "--collection", alias, "--json")
    assert run.code == 1
    assert run.json["collections"][0]["aliases"] == [alias]
    client.delete_collection(collection)
    client.close()
    store.close()


def test_wrong_usage_is_explained(handbook: Command, tmp_path: Path) -> None:
    empty = tmp_path / "empty.txt"
    empty.write_text(" ")
    for words, message in {
        (): "Name what must be gone",
        ("--text", "!?"): "at least three letters",
        ("--text-file", empty): "is empty",
        ("--text", SECRET, "--collection", "nothing"): "Collection nothing not found",
        ("--text", SECRET, "-o", "x.pdf"): ".pdf",
    }.items():
        run = handbook("absent", *words)
        assert (run.code, message in run.err) == (2, True), run.err


def test_the_longest_sentences_are_searched_for_in_their_order() -> None:
    text = "A first sentence of some length here. Short. Another sentence that is a little longer.\n\nThe last one."
    assert choose_sentences(text) == [
        text,
        "A first sentence of some length here.",
        "Another sentence that is a little longer.",
    ]
