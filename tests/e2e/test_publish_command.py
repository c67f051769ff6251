"""`chunkproof publish` as a person runs it."""

from pathlib import Path

import pytest

from chunkproof.base.request import Deadline
from chunkproof.base.settings import Settings
from chunkproof.collection.services import Services
from chunkproof.net.s3 import Bucket
from chunkproof.seals.notes import PublicKey
from chunkproof.seals.receipts import Evidence, verify_receipt
from chunkproof.service import container
from chunkproof.stores.published import PublishedCollections
from chunkproof.stores.published_store import PublishedStore
from chunkproof.stores.store_port import Point
from chunkproof_cli.aws import stack
from chunkproof_cli.aws.stack import FunctionLimits, find_misfit

from support.api import invoke, post
from support.commands import Command

edge = pytest.importorskip("chunkproof.stores.edge", reason="Qdrant's engine has no wheel for this system")


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A data folder with a collection of one chunk."""
    folder = tmp_path / "data"
    write(folder, "first")
    return folder


def write(folder: Path, text: str) -> None:
    store = edge.EdgeStore(folder)
    if not store.collections(Deadline(1000)):
        store.create("docs", 2, Deadline(10_000))
    store.upsert("docs", [Point(1, {"chunk_id": "c1", "text": text}, vector=(1.0, 0.0))], "", Deadline(10_000))
    store.close()


def test_a_collection_is_published_listed_and_rolled_back(chunkproof: Command, s3_bucket: Bucket, data: Path) -> None:
    to = ("--bucket", s3_bucket.name, "--data", data)
    first = chunkproof("publish", "docs", *to, "--json")
    assert first.code == 0, first.err
    write(data, "second")
    second = chunkproof("publish", "docs", *to)
    assert "of docs is in force" in second.out
    listed = chunkproof("publish", "docs", *to, "--list", "--json").json
    assert [one["points"] for one in listed["versions"]] == [1, 1]
    assert listed["versions"][1]["version"] == first.json["version"]
    back = chunkproof("publish", "docs", *to, "--rollback", "--json")
    assert back.json["version"] == first.json["version"]
    assert PublishedCollections(s3_bucket).pointer("docs").version == first.json["version"]
    named = chunkproof("publish", "docs", *to, "--version", listed["versions"][0]["version"][:8], "--json")
    assert named.json["version"] == listed["versions"][0]["version"]


def test_a_published_version_is_sealed_and_its_searches_have_receipts(
    chunkproof: Command, s3_bucket: Bucket, data: Path, tmp_path: Path
) -> None:
    key = tmp_path / "seal.key"
    chunkproof("key", "example.com/docs", "-o", key)
    done = chunkproof("publish", "docs", "--bucket", s3_bucket.name, "--data", data, "--key", key)
    assert "1 chunks are sealed in s3://" in done.err, done.err
    environ = {"CHUNKPROOF_COLLECTION": "docs", "CHUNKPROOF_PUBLISHED_BUCKET": s3_bucket.name}
    settings = Settings.from_env(environ)
    store = PublishedStore(PublishedCollections(s3_bucket), tmp_path / "fetched")
    with container.override(Services(settings, store, None)):
        response = invoke(post("/search", {"query_vector": [1.0, 0.0], "receipt": True}))
    store.close()
    answer = response.json
    assert answer["receipt"]["versions"]["collection"] == PublishedCollections(s3_bucket).pointer("docs").version
    public = PublicKey.parse(key.with_name("seal.key.pub").read_text())
    verdicts = {claim.name: claim.verdict for claim in verify_receipt(Evidence.parse(answer), [public])}
    assert set(verdicts.values()) - {verdicts["service"]} == {"proved"}


def test_each_rollback_goes_one_version_further_back(chunkproof: Command, s3_bucket: Bucket, data: Path) -> None:
    to = ("--bucket", s3_bucket.name, "--data", data)
    versions = []
    for text in ("first", "second", "third"):
        write(data, text)
        versions.append(chunkproof("publish", "docs", *to, "--json").json["version"])
    assert chunkproof("publish", "docs", *to, "--rollback", "--json").json["version"] == versions[1]
    assert chunkproof("publish", "docs", *to, "--rollback", "--json").json["version"] == versions[0]
    last = chunkproof("publish", "docs", *to, "--rollback")
    assert (last.code, f"Collection docs has no version before {versions[0][:12]}" in last.err) == (2, True)
    assert PublishedCollections(s3_bucket).pointer("docs").version == versions[0]
    again = chunkproof("publish", "docs", *to, "--version", versions[2][:8], "--json")
    assert again.json["version"] == versions[2]
    assert chunkproof("publish", "docs", *to, "--rollback", "--json").json["version"] == versions[0]


def test_old_versions_are_pruned(chunkproof: Command, s3_bucket: Bucket, data: Path) -> None:
    to = ("--bucket", s3_bucket.name, "--data", data)
    versions = []
    for text in ("first", "second", "third"):
        write(data, text)
        versions.append(chunkproof("publish", "docs", *to, "--json").json["version"])
    pruned = chunkproof("publish", "docs", *to, "--prune", "--keep", 2, "--json").json
    assert (pruned["kept"], pruned["deleted"]) == ([versions[2], versions[1]], [versions[0]])
    assert pruned["bytes"] > 0
    listed = chunkproof("publish", "docs", *to, "--list", "--json").json["versions"]
    assert [one["version"] for one in listed] == pruned["kept"]
    again = chunkproof("publish", "docs", *to, "--prune", "--keep", 1)
    assert "Deleted 1 version of docs and " in again.out
    assert "1 version left." in again.out
    assert chunkproof("publish", "docs", *to, "--rollback").code == 2


def test_a_dry_run_publishes_nothing(chunkproof: Command, s3_bucket: Bucket, data: Path) -> None:
    run = chunkproof("publish", "docs", "--bucket", s3_bucket.name, "--data", data, "--dry-run")
    assert (run.code, "Nothing was published" in run.out) == (0, True)
    assert PublishedCollections(s3_bucket).names() == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "give either --stack or --bucket"),
        (("--bucket", "published", "--list", "--rollback"), "only one of"),
        (("--bucket", "published", "--prune"), "--prune and --keep together"),
        (("--bucket", "published", "--keep", "2"), "--prune and --keep together"),
        (("--bucket", "published", "--prune", "--keep", "0"), "--keep"),
        (("--bucket", "published", "--rollback"), "Collection docs not found"),
        (("--bucket", "nowhere"), "There is no s3://nowhere/"),
    ],
)
def test_wrong_usage_ends_with_2(
    chunkproof: Command, s3_bucket: Bucket, data: Path, arguments: tuple[str, ...], message: str
) -> None:
    run = chunkproof("publish", "docs", "--data", data, *arguments)
    assert run.code == 2
    assert message in " ".join(run.err.split())


def test_an_unknown_collection_ends_with_2(chunkproof: Command, s3_bucket: Bucket, data: Path) -> None:
    run = chunkproof("publish", "nothing", "--data", data, "--bucket", s3_bucket.name)
    assert (run.code, "Collection nothing not found" in run.err) == (2, True)


def test_a_collection_that_does_not_fit_is_refused_with_the_parameter_to_set(
    chunkproof: Command, s3_bucket: Bucket, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stack, "SPARE_BYTES", 10_241 << 20)
    run = chunkproof("publish", "docs", "--data", data, "--bucket", s3_bucket.name)
    assert run.code == 1
    assert "the functions have 10,240 MB, which is all that Lambda offers: use a server" in run.out
    with stack.list_locked(data, "docs") as (_, version):
        monkeypatch.setattr(stack, "SPARE_BYTES", 0)
        assert find_misfit(version.stored_bytes, FunctionLimits(disk_mb=512, memory_mb=1024)) is None
        misfit = find_misfit(version.stored_bytes, FunctionLimits(disk_mb=512, memory_mb=128))
        assert misfit is not None
        assert misfit.endswith("deploy with MemorySize=256")
