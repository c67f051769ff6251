import json
import unicodedata
from hashlib import sha256
from pathlib import Path

from chunkproof.base.request import Deadline
from chunkproof.collection.lookup import point_id_for
from chunkproof.stores.edge import EdgeStore
from chunkproof.stores.store_port import Point
from chunkproof_cli.local.corpus import sample_chunks

from support.commands import Command

CHUNK = next(c for c in sample_chunks() if c["chunk_id"] == "vectordb-text-hygiene-00")


def test_a_good_chunk_passes_by_text_by_hash_and_by_its_own_hash(handbook: Command, tmp_path: Path) -> None:
    file = tmp_path / "original.txt"
    file.write_bytes(CHUNK["text"].encode())
    ways = [
        ("--original", CHUNK["text"]),
        ("--original-file", file),
        ("--sha256", sha256(CHUNK["text"].encode()).hexdigest()),
        (),
    ]
    for way in ways:
        run = handbook("validate", CHUNK["chunk_id"], *way, "--collection", "handbook", "--json")
        assert run.code == 0, way
        assert run.json["matches"] is True
        assert run.json["stored_text"] == CHUNK["text"]


def test_a_silently_normalized_chunk_is_reported_with_the_first_different_byte(
    chunkproof: Command, handbook_file: Path, tmp_path: Path
) -> None:
    data = ("--collection", "handbook", "--data", tmp_path / "d")
    chunkproof("load", handbook_file, *data)
    store, deadline, point = (EdgeStore(tmp_path / "d"), Deadline(10_000), point_id_for(CHUNK["chunk_id"]))
    good = store.fetch("handbook", [point], deadline, with_vector="")[0]
    normalized = unicodedata.normalize("NFC", CHUNK["text"])
    store.upsert("handbook", [Point(good.id, {**good.payload, "text": normalized}, vector=good.vector)], "", deadline)
    store.close()

    run = chunkproof("validate", CHUNK["chunk_id"], "--original", CHUNK["text"], *data)
    assert run.code == 1
    byte = CHUNK["text"].encode().index("e\N{COMBINING ACUTE ACCENT}".encode())
    assert "unicode_normalization" in run.out
    assert f"byte {byte}," in run.out
    by_hash = chunkproof("validate", CHUNK["chunk_id"], *data, "--json")
    assert by_hash.code == 1
    assert by_hash.json["mismatch_details"] == "The stored text does not match content_hash"


def test_an_original_file_is_compared_with_every_byte_of_it(handbook: Command, tmp_path: Path) -> None:
    file = tmp_path / "original.txt"
    file.write_bytes(CHUNK["text"].encode() + b"\n")
    run = handbook("validate", CHUNK["chunk_id"], "--original-file", file, "--collection", "handbook", "--json")
    assert run.code == 1
    assert run.json["mismatch"]["kind"] == "whitespace"


def test_an_unknown_chunk_fails_and_an_unreadable_original_is_wrong_input(handbook: Command, tmp_path: Path) -> None:
    unknown = handbook("validate", "unknown", "--original", "x", "--collection", "handbook")
    assert (unknown.code, unknown.err) == (
        1,
        "Chunk unknown not found\nchunkproof search shows the ids of chunks; --collection names another collection.\n",
    )
    file = tmp_path / "latin1.txt"
    file.write_bytes(b"caf\xe9")
    latin = handbook("validate", CHUNK["chunk_id"], "--original-file", file, "--collection", "handbook")
    assert latin.code == 2
    assert latin.err == f"--original-file {file}: not UTF-8 at byte 3\n"
    missing = handbook("validate", CHUNK["chunk_id"], "--original-file", tmp_path / "none", "--collection", "handbook")
    assert missing.code == 2
    assert "No such file" in missing.err


def test_only_one_original_is_allowed(handbook: Command) -> None:
    assert handbook("validate", "x", "--original", "a", "--sha256", "0" * 64).code == 2
    assert "64 hexadecimal digits" in handbook("validate", "x", "--sha256", "abc").err


def test_an_excerpt_shows_its_own_ellipses_and_escapes_the_text(handbook: Command, tmp_path: Path) -> None:
    text = "The height “of” a robot arm is measured from the floor… to the flange, in every pose that it can take."
    file = tmp_path / "chunks.jsonl"
    file.write_text(json.dumps({"chunk_id": "a", "text": text}), "utf-8")
    assert handbook("load", file, "--collection", "excerpts").code == 0
    run = handbook("validate", "a", "--original", text.replace("floor…", "flooR…"), "--collection", "excerpts")
    assert run.code == 1
    assert "…'m the floor\\u2026 to the flange, in every pos'…" in run.out
    assert "…'m the flooR\\u2026 to the flange, in every pos'…" in run.out


def test_metadata_is_a_note_unless_strict(handbook: Command, tmp_path: Path) -> None:
    file = tmp_path / "chunks.jsonl"
    file.write_text(json.dumps({"chunk_id": "a", "text": "A chunk of a file.", "url": "manual.pdf"}), "utf-8")
    assert handbook("load", file, "--collection", "files").code == 0
    given = ("validate", "a", "--original", "A chunk of a file.", "--collection", "files")
    run = handbook(*given)
    assert run.code == 0
    assert "note" in run.out
    assert "The stored text is the original, byte for byte." in run.out
    strict = handbook(*given, "--strict", "--json")
    assert (strict.code, strict.json["matches"], strict.json["validation_passed"]) == (1, True, False)
    assert strict.json["point_id"] == point_id_for("a")


def test_with_nothing_to_compare_with_the_flags_are_named(handbook: Command, tmp_path: Path) -> None:
    store = EdgeStore(tmp_path / "bare")
    store.create("bare", 2, Deadline(10_000))
    store.upsert("bare", [Point(1, {"text": "x"}, vector=(1.0, 0.0))], "", Deadline(10_000))
    store.close()
    run = handbook("validate", "1", "--collection", "bare", "--data", tmp_path / "bare")
    assert run.code == 2
    assert "give --original or --sha256" in run.err
    assert "original_text" not in run.err


def test_a_chunk_is_also_found_by_its_source_or_title_if_no_other_has_the_same(handbook: Command) -> None:
    for name in (CHUNK["url"], CHUNK["section_heading"]):
        run = handbook("validate", name, "--original", CHUNK["text"], "--collection", "handbook", "--json")
        assert (run.code, run.json["chunk_id"]) == (0, CHUNK["chunk_id"])
    for name in (CHUNK["document_id"], CHUNK["document_title"]):
        run = handbook("validate", name, "--original", CHUNK["text"], "--collection", "handbook")
        assert run.code == 2
        assert f"{CHUNK['document_id']}-0" in run.err
    assert handbook("validate", "no such title", "--original", "x", "--collection", "handbook").code == 1


def test_every_chunk_of_a_source_is_found_however_far_from_its_name(chunkproof: Command, tmp_path: Path) -> None:
    store = EdgeStore(tmp_path / "far")
    store.create("far", 2, Deadline(10_000))
    points = [
        Point(n, {"text": f"text {n}", "source": "a.md"}, vector=(cosine, 0.6)) for n, cosine in ((1, 0.8), (2, -0.8))
    ]
    store.upsert(
        "far", [*points, Point(3, {"text": "other", "source": "b.md"}, vector=(-1.0, 0.0))], "", Deadline(10_000)
    )
    store.close()
    where = ("--collection", "far", "--data", tmp_path / "far")
    shared = chunkproof("validate", "a.md", "--original", "text 1", *where)
    assert shared.code == 2
    assert "name one of them: 1, 2" in shared.err
    assert chunkproof("validate", "b.md", "--original", "other", *where).code == 0


def test_errors_about_an_original_name_the_option_that_was_given(handbook: Command) -> None:
    for options in (("--original", "bytes \udcff"), ("--sha256", "12ab")):
        run = handbook("validate", CHUNK["chunk_id"], *options, "--collection", "handbook")
        assert run.code == 2
        assert options[0] in run.err
        assert "original_" not in run.err
