"""Services for a Lambda container: the ones of `chunkproof sandbox` on free ports, or a bucket instead of Qdrant."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest import mock
from urllib.parse import urlsplit

from chunkproof.net import s3
from chunkproof.net.s3 import Bucket
from chunkproof.stores.published import PublishedCollections
from chunkproof_cli.aws.stack import list_locked
from chunkproof_cli.local.sandbox_services import COLLECTION, OTHER_MODEL, load_samples, run_embed_api
from chunkproof_cli.local.sandbox_services import Sandbox as Host
from chunkproof_cli.local.sandbox_services import run_sandbox as handbook_host

__all__ = ["EdgeHost", "Host", "handbook_host", "published_host"]

BUCKET = "published"
CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "testing",
    "AWS_SECRET_ACCESS_KEY": "testing",
    "AWS_DEFAULT_REGION": "us-east-1",
}


@dataclass(frozen=True)
class EdgeHost(Host):
    """S3 with the published sample collections, the embedder, and no Qdrant server."""

    s3_url: str = ""

    def variables(self, seen_from: str = "127.0.0.1") -> dict[str, str]:
        """The settings of a function that reaches this machine by that name."""
        found = super().variables(seen_from)
        del found["QDRANT_URL"]
        address = f"http://{seen_from}:{urlsplit(self.s3_url).port}"
        return {**found, "CHUNKPROOF_PUBLISHED_BUCKET": BUCKET, "AWS_ENDPOINT_URL_S3": address}


@contextmanager
def published_host(listen: str = "127.0.0.1") -> Iterator[EdgeHost]:
    """Publish the sample collections to a simulated S3; no Qdrant server is started."""
    import boto3
    from moto.server import ThreadedMotoServer

    from chunkproof.stores.edge import EdgeStore

    server = ThreadedMotoServer(listen, 0, verbose=False)
    server.start()
    try:
        _, port = server.get_host_and_port()
        url = f"http://127.0.0.1:{port}"
        with (
            mock.patch.dict(os.environ, {**CREDENTIALS, "AWS_ENDPOINT_URL_S3": url}),
            TemporaryDirectory() as folder,
            run_embed_api(listen, 0) as embed_port,
        ):
            s3.aws_client.cache_clear()
            boto3.client("s3").create_bucket(Bucket=BUCKET)
            store = EdgeStore(Path(folder) / "data")
            chunks = load_samples(store)
            store.close()
            for collection in (COLLECTION, OTHER_MODEL):
                with list_locked(Path(folder) / "data", collection) as (where, version):
                    PublishedCollections(Bucket(BUCKET)).publish(where, version, lambda _: None)
            yield EdgeHost("http://127.0.0.1:1", f"http://127.0.0.1:{embed_port}", chunks, url)
    finally:
        s3.aws_client.cache_clear()
        server.stop()
