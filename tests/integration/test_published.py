"""Published collections: content-addressed parts, a pointer that moves in one step, and files that are checked."""

import json
import os
from pathlib import Path

import pytest

from chunkproof.base.errors import CollectionNotFoundError, InvalidParameterError
from chunkproof.net.s3 import Bucket
from chunkproof.stores.published import PART_BYTES, DamagedVersionError, PublishedCollections, Version, list_version

HOLE = 5 * PART_BYTES


@pytest.fixture
def published(s3_bucket: Bucket) -> PublishedCollections:
    return PublishedCollections(s3_bucket)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a small file, a large one and one that is mostly a hole."""
    made = tmp_path / "docs"
    (made / "segments").mkdir(parents=True)
    (made / "collection.json").write_text("{}")
    (made / "segments" / "large").write_bytes(os.urandom(PART_BYTES + 10))
    with (made / "segments" / "sparse").open("wb") as file:
        file.truncate(HOLE)
        file.seek(HOLE - 7)
        file.write(b"the end")
    return made


def files_of(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def publish(published: PublishedCollections, folder: Path) -> Version:
    version = list_version(folder, files_of(folder), "docs", 3)
    published.publish(folder, version, lambda _: None)
    return version


def contents(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and path.name != ".version.json"
    }


def test_what_is_fetched_is_what_was_published(published: PublishedCollections, folder: Path, tmp_path: Path) -> None:
    version = publish(published, folder)
    pointer = published.pointer("docs")
    assert (pointer.version, pointer.earlier) == (version.digest, ())
    published.fetch(published.version(pointer.version), tmp_path / "fetched")
    assert contents(tmp_path / "fetched") == contents(folder)
    assert published.names() == ["docs"]


def test_holes_are_neither_uploaded_nor_written(published: PublishedCollections, folder: Path, tmp_path: Path) -> None:
    version = publish(published, folder)
    assert version.stored_bytes < 2 * PART_BYTES
    published.fetch(version, tmp_path / "fetched")
    assert (tmp_path / "fetched" / "segments" / "sparse").stat().st_blocks * 512 < PART_BYTES


def test_the_same_files_are_the_same_version_and_are_uploaded_once(
    published: PublishedCollections, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = publish(published, folder)
    written: list[str] = []
    monkeypatch.setattr(Bucket, "write", lambda _, key, content: written.append(key))
    again = publish(published, folder)
    assert again.digest == first.digest
    assert not [key for key in written if key.startswith("parts/")]


def test_a_new_version_reuses_what_did_not_change(
    published: PublishedCollections, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    published.fetch(publish(published, folder), tmp_path / "old")
    (folder / "collection.json").write_text('{"changed": true}')
    newer = publish(published, folder)
    read: list[str] = []
    original = Bucket.read
    monkeypatch.setattr(Bucket, "read", lambda self, key: read.append(key) or original(self, key))
    published.fetch(newer, tmp_path / "new", reuse=tmp_path / "old")
    assert contents(tmp_path / "new") == contents(folder)
    assert len(read) == 1


def test_rolling_back_moves_only_the_pointer(published: PublishedCollections, folder: Path) -> None:
    first = publish(published, folder)
    (folder / "collection.json").write_text("[]")
    second = publish(published, folder)
    assert published.pointer("docs").earlier == (first.digest,)
    published.point_to("docs", published.find_version("docs", first.digest[:8]).digest)
    pointer = published.pointer("docs")
    assert (pointer.version, pointer.earlier) == (first.digest, (second.digest,))
    with pytest.raises(InvalidParameterError, match="zzz is not one version of docs"):
        published.find_version("docs", "zzz")


def test_a_damaged_part_is_found_and_leaves_no_folder(
    published: PublishedCollections, folder: Path, tmp_path: Path
) -> None:
    version = publish(published, folder)
    part = next(file for file in version.files if file.path == "segments/large").parts[1]
    published.bucket.write(f"parts/{part.sha256}", b"0123456789")
    with pytest.raises(DamagedVersionError, match="not what was published"):
        published.fetch(version, tmp_path / "fetched")
    assert list(tmp_path.glob("fetched*")) == []
    assert list(tmp_path.glob(".*.part")) == []


def test_a_changed_list_of_files_is_found(published: PublishedCollections, folder: Path) -> None:
    version = publish(published, folder)
    published.bucket.write(f"versions/{version.digest}.json", version.to_json().replace(b"large", b"lorge"))
    with pytest.raises(DamagedVersionError, match="changed after it was published"):
        published.version(version.digest)


@pytest.mark.parametrize("path", ["../outside", "/etc/passwd", "a/../../b"])
def test_a_path_that_leads_out_of_the_folder_is_refused(path: str) -> None:
    document = {"format": 1, "collection": "docs", "points": 0}
    document["files"] = [{"path": path, "size": 0, "parts": []}]
    with pytest.raises(DamagedVersionError, match="leads out of its folder"):
        Version.from_json(json.dumps(document).encode())


def test_an_unpublished_collection_does_not_exist(published: PublishedCollections) -> None:
    with pytest.raises(CollectionNotFoundError):
        published.pointer("docs")


def test_collection_names_of_any_kind_are_kept(published: PublishedCollections, folder: Path) -> None:
    version = list_version(folder, files_of(folder), "Ünï cödé & co.", 3)
    published.publish(folder, version, lambda _: None)
    assert published.names() == ["Ünï cödé & co."]
    assert published.pointer("Ünï cödé & co.").version == version.digest


def test_a_damaged_part_is_uploaded_again(published: PublishedCollections, folder: Path, tmp_path: Path) -> None:
    version = publish(published, folder)
    for file in version.files:
        published.bucket.write(f"parts/{file.parts[0].sha256}", b"damaged")
    publish(published, folder)
    published.fetch(version, tmp_path / "fetched")
    assert contents(tmp_path / "fetched") == contents(folder)


@pytest.mark.parametrize(
    "pointer",
    [b"", b"{", b"[]", b"{}", b'{"version": 1, "published_at": ""}', b'{"version": "../../etc", "published_at": ""}'],
)
def test_a_malformed_pointer_is_one_error_and_publishing_replaces_it(
    published: PublishedCollections, folder: Path, pointer: bytes
) -> None:
    version = publish(published, folder)
    published.bucket.write("collections/docs.json", pointer)
    with pytest.raises(DamagedVersionError, match="does not name a version: publish the collection again"):
        published.pointer("docs")
    publish(published, folder)
    assert published.pointer("docs").version == version.digest


@pytest.mark.parametrize(
    "content", [b"[]", b'{"format": 1}', b'{"format": 1, "collection": "docs", "files": 3}', b"\xff"]
)
def test_a_malformed_list_of_files_is_one_error(content: bytes) -> None:
    with pytest.raises(DamagedVersionError, match="A published list of files is damaged"):
        Version.from_json(content)
