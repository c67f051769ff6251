"""Published collections without a Qdrant server: write points with the engine, publish them, run functions on them."""

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import boto3
import pytest

from chunkproof.base.request import Deadline
from chunkproof.base.settings import Settings
from chunkproof.collection.services import Services
from chunkproof.embedders.embedder_port import Embedder
from chunkproof.net.s3 import Bucket
from chunkproof.service import container
from chunkproof.stores.published import PublishedCollections
from chunkproof.stores.store_port import Point
from chunkproof_cli.aws.stack import list_locked

from support.chunks import SECONDS_60
from support.states import REGION, Cloud

BUCKET = "published-of-a-test"


def make_bucket() -> PublishedCollections:
    """Make the bucket in the region of the state machine."""
    boto3.client("s3").create_bucket(Bucket=BUCKET, CreateBucketConfiguration={"LocationConstraint": REGION})
    return PublishedCollections(Bucket(BUCKET))


def publish(published: PublishedCollections, folder: Path, collection: str, points: Sequence[Point]) -> str:
    """Write a collection of exactly these points, put it in force and return its version."""
    from chunkproof.stores.edge import EdgeStore

    data = folder / uuid4().hex
    store = EdgeStore(data)
    store.create(collection, len(points[0].vector or ()), Deadline(SECONDS_60))
    store.upsert(collection, points, "", Deadline(SECONDS_60))
    store.close()
    with list_locked(data, collection) as (where, version):
        return published.publish(where, version, lambda _: None).version


@contextmanager
def lambda_container(folder: Path, collection: str, embedder: Embedder | None, **settings: str) -> Iterator[Services]:
    """A Lambda container that was just started: it has an empty disk and knows no Qdrant server."""
    environ = {f"CHUNKPROOF_{name}": value for name, value in settings.items()}
    given = Settings.from_env({"CHUNKPROOF_PUBLISHED_BUCKET": BUCKET, "CHUNKPROOF_COLLECTION": collection, **environ})
    folder.mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tempfile, "tempdir", str(folder))
        store = container.published_store(given)
        assert store is not None
        try:
            with container.override(Services(given, store, embedder)):
                yield container.services()
        finally:
            store.close()


def run_in_new_containers(cloud: Cloud, start: Callable[[Path], Any], folder: Path) -> None:
    """Let every step of a state machine run in a container of its own, as Lambda may do."""
    invoke = cloud.invoke

    def invoke_anew(event: dict[str, Any]) -> dict[str, Any]:
        with start(folder / f"container-{uuid4().hex}"):
            return invoke(event)

    cloud.invoke = invoke_anew  # type: ignore[method-assign]
