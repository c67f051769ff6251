"""`chunkproof load FOLDER`: documents, cut by a plain rule, and a first suite that survives being loaded again."""

import json
import re
from pathlib import Path

import pytest

from chunkproof_cli.loading import MAX_UNITS, cut_documents, cut_text

from support.commands import Command

PROSE = "The controller reports a fault when the arm meets resistance. Release the brake before you move it by hand. "
GUIDE = f"""Preface without a heading.

# Set up ##

Bolt the base to a table.

```sh
# this is a comment, not a heading
```

## Cables

{PROSE * 12}

## Cables

Red is power.
"""
PAGE = "<html><head><title>T</title></head><body><h1>Joints</h1><p>Move each joint to its mark.</p></body></html>"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "docs"
    (folder / "deep").mkdir(parents=True)
    (folder / "guide.md").write_text(GUIDE)
    (folder / "deep" / "joints.html").write_text(PAGE)
    (folder / "notes.txt").write_text("# not Markdown\n\nGrease the third joint every month.")
    (folder / "empty.md").write_text("\n---\n")
    return folder


def test_chunks_have_ids_by_document_and_heading_which_an_edit_elsewhere_leaves(folder: Path) -> None:
    chunks, unread = cut_documents(folder)
    ids = ["guide.md#1", "guide.md#set-up-1", "guide.md#cables-1", "guide.md#cables-2", "guide.md#cables-3"]
    assert [list(chunks), unread] == [[*ids, "notes.txt#1", "deep/joints.html#1"], []]
    assert json.loads(chunks["guide.md#cables-3"]) == {
        "chunk_id": "guide.md#cables-3",
        "text": "## Cables\n\nRed is power.",
        "url": "guide.md",
        "document_id": "guide.md",
        "document_title": "Set up",
        "section_heading": "Cables",
        "position": 4,
    }
    (folder / "guide.md").write_text(GUIDE.replace("Bolt the base", "Screw the base, and every leg of it,"))
    edited, _ = cut_documents(folder)
    assert [name for name in chunks if edited[name] != chunks[name]] == ["guide.md#set-up-1"]


@pytest.mark.parametrize(
    "text",
    [
        GUIDE,
        GUIDE.replace("\n", "\r\n"),
        PROSE * 100,
        "x" * 5_000,
        "Ein Satz über Gelenke und Öl. " * 200,
        "機械の関節は毎月注油してください。" * 100,
        "| a | b |\n" * 500,
        "9f86d081884c7d659a2feaa0c55ad015" * 40,
        "```\n# open to the end\n" + PROSE * 30,
        "# \n#\n####### seven\n#tag\n",
    ],
    ids=range(10),
)
def test_every_sign_is_in_one_chunk_and_no_chunk_is_too_long(text: str) -> None:
    pieces = [piece for _, piece in cut_text(text, is_markdown=True)]
    assert re.sub(r"\W", "", "".join(pieces)) == re.sub(r"\W", "", text)
    assert all(piece in text for piece in pieces)
    assert max(len(re.findall(r"[A-Za-z]{1,4}|\S", piece)) for piece in pieces) <= MAX_UNITS
    if text.startswith(PROSE):
        assert all(piece.endswith(".") for piece in pieces), "sentences are whole"
        assert min(map(len, pieces[:-1])) > 400, "no crumbs"


def test_a_suite_made_of_documents_passes_after_they_are_loaded_again(
    chunkproof: Command, folder: Path, tmp_path: Path
) -> None:
    data, suite, manifest = ("--data", tmp_path / "data"), tmp_path / "suite.yaml", tmp_path / "m.jsonl"
    first = chunkproof("load", folder, "--collection", "first", *data)
    assert (first.code, first.out.split(" of ")[0]) == (0, "7 chunks")
    assert "a pipeline of your own" in " ".join(first.err.split())
    made = chunkproof("suite", "init", "--from-collection", "-n", "5", "--collection", "first", *data, "-o", suite)
    assert made.code == 0, made.err
    again = chunkproof("load", folder, "--collection", "second", *data, "--json")
    assert again.json == {"collection": "second", "chunks": 7, "embedding_model": "all-MiniLM-L6-v2"}
    for collection in ("first", "second"):
        assert chunkproof("suite", "run", suite, "--collection", collection, *data).code == 0
    assert chunkproof("manifest", folder, "-o", manifest).code == 0
    audit = chunkproof("audit", manifest, "--collection", "second", "--sources", folder, *data)
    assert audit.code == 0, audit.out


def test_a_document_that_cannot_be_read_is_refused_or_left_out_by_name(
    chunkproof: Command, folder: Path, tmp_path: Path
) -> None:
    (folder / "scan.pdf").write_bytes(b"%PDF-1.4 nothing")
    given = ("load", folder, "--collection", "c", "--data", tmp_path / "data")
    refused = chunkproof(*given)
    assert refused.code == 2
    assert "scan.pdf was not read: not a readable PDF" in refused.err
    assert "--skip-unreadable" in refused.err
    skipped = chunkproof(*given, "--skip-unreadable", "--json")
    assert (skipped.code, skipped.json["chunks"]) == (0, 7)
    assert skipped.json["unread"][0].startswith("scan.pdf was not read")


def test_what_is_no_folder_of_documents_is_said(chunkproof: Command, folder: Path, tmp_path: Path) -> None:
    (tmp_path / "none").mkdir()
    for path, message in {
        tmp_path / "none": "has no document to read: .txt",
        folder / "guide.md": "is a document: name the folder that it is in",
        tmp_path / "gone": "no such file",
    }.items():
        run = chunkproof("load", path, "--collection", "c", "--data", tmp_path / "data")
        assert (run.code, message in run.err) == (2, True), run.err
