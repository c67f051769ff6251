"""Published collections: content-addressed parts, a pointer that moves in one step, and files that are checked."""

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from chunkproof.base.errors import CollectionNotFoundError, InvalidParameterError
from chunkproof.net.s3 import Bucket, ObjectStoreError
from chunkproof.stores import published as module
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


class FlakyBucket(Bucket):
    """A bucket whose reads of parts fail when `fails` says so; `reads` has the keys that were read."""

    def read(self, key: str) -> bytes:
        content = super().read(key)
        if key.startswith("parts/"):
            READS.append(key)
            if FAILS(key):
                raise ObjectStoreError("S3 could not be reached: IncompleteReadError", "IncompleteReadError")
        return content


READS: list[str] = []


def FAILS(_key: str) -> bool:  # noqa: N802 - replaced by each test
    return False


@pytest.fixture
def flaky(s3_bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> PublishedCollections:
    monkeypatch.setattr(module, "PAUSE_S", 0.0)
    READS.clear()
    return PublishedCollections(FlakyBucket(s3_bucket.name))


def test_each_part_is_requested_again_when_its_transfer_breaks(
    flaky: PublishedCollections, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    version = publish(flaky, folder)
    monkeypatch.setitem(globals(), "FAILS", lambda key: READS.count(key) < 3)
    flaky.fetch(version, tmp_path / "fetched")
    assert contents(tmp_path / "fetched") == contents(folder)
    assert {READS.count(key) for key in READS} == {3}


def test_finished_parts_survive_a_broken_transfer(
    flaky: PublishedCollections, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    version = publish(flaky, folder)
    broken = next(file for file in version.files if file.path == "segments/large").parts[1].sha256
    monkeypatch.setitem(globals(), "FAILS", lambda key: key.endswith(broken))
    with pytest.raises(ObjectStoreError):
        flaky.fetch(version, tmp_path / "fetched")
    assert not (tmp_path / "fetched").exists()
    monkeypatch.setitem(globals(), "FAILS", lambda _key: False)
    READS.clear()
    flaky.fetch(version, tmp_path / "fetched")
    assert [f"parts/{broken}"] == READS
    assert contents(tmp_path / "fetched") == contents(folder)
    assert list(tmp_path.glob(".*.part")) == []


def test_a_finished_part_that_was_changed_meanwhile_is_fetched_again(
    flaky: PublishedCollections, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    version = publish(flaky, folder)
    monkeypatch.setitem(globals(), "FAILS", lambda key: key == READS[-1])
    with pytest.raises(ObjectStoreError):
        flaky.fetch(version, tmp_path / "fetched")
    (partial,) = tmp_path.glob(".*.part")
    (partial / "collection.json").write_text("[]")
    monkeypatch.setitem(globals(), "FAILS", lambda _key: False)
    flaky.fetch(version, tmp_path / "fetched")
    assert contents(tmp_path / "fetched") == contents(folder)


@pytest.mark.parametrize("what", ["list", "part"])
def test_what_is_missing_in_the_bucket_is_one_error(
    published: PublishedCollections, folder: Path, tmp_path: Path, what: str
) -> None:
    version = publish(published, folder)
    gone = version.files[0].parts[0].sha256
    published.bucket.delete(f"versions/{version.digest}.json" if what == "list" else f"parts/{gone}")
    with pytest.raises(DamagedVersionError, match="missing: publish the collection again") as caught:
        published.fetch(published.version(version.digest), tmp_path / "fetched")
    assert published.bucket.name not in str(caught.value)


def test_pruning_keeps_the_latest_versions_and_every_part_that_one_of_them_has(
    published: PublishedCollections, folder: Path, tmp_path: Path
) -> None:
    versions = []
    for text in ("1", "22", "333", "4444"):
        (folder / "collection.json").write_text(text)
        versions.append(publish(published, folder))
    other = Version("other", 1, versions[0].files[:1])  # it has a part of the first version
    published.publish(folder.parent / "nowhere", replace(other, files=()), lambda _: None)
    published.bucket.write(f"versions/{other.digest}.json", other.to_json())
    pruned = published.prune("docs", 2)
    assert pruned.kept == (versions[3].digest, versions[2].digest)
    assert set(pruned.deleted) == {versions[0].digest, versions[1].digest}
    assert pruned.bytes == len("22"), "the part of the first version is in use"
    assert published.pointer("docs").versions == pruned.kept
    for number, version in enumerate(versions[2:]):
        published.fetch(published.version(version.digest), tmp_path / f"fetched-{number}")
    with pytest.raises(DamagedVersionError, match="is missing"):
        published.version(versions[0].digest)
    again = published.prune("docs", 2)
    assert (again.kept, again.deleted, again.bytes) == (pruned.kept, (), 0)
    left = {key.removeprefix("parts/") for key in published.bucket.list_keys("parts/")}
    assert left == {part.sha256 for version in (*versions[2:], other) for part in version.parts}


def test_pruning_deletes_nothing_if_a_list_of_files_cannot_be_read(
    published: PublishedCollections, folder: Path
) -> None:
    publish(published, folder)
    (folder / "collection.json").write_text("new")
    publish(published, folder)
    published.bucket.write(f"versions/{'0' * 64}.json", b"{}")
    keys = published.bucket.list_keys("")
    with pytest.raises(DamagedVersionError):
        published.prune("docs", 1)
    assert published.bucket.list_keys("") == keys
