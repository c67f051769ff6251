"""Client for objects in S3."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from chunkproof.errors import InvalidParameterError, NotFoundError, UnavailableError

SCHEME = "s3://"
# Requests at the same time, each with a connection of its own.
CONNECTIONS = 16


class ObjectStoreError(UnavailableError):
    """S3 could not be reached, or refused the request."""

    code = "S3_FAILED"


@dataclass(frozen=True, slots=True)
class Bucket:
    """One bucket. A missing object raises `NotFoundError`, any other failure `ObjectStoreError`."""

    name: str

    def address(self, key: str) -> str:
        """Return the address of an object, `s3://BUCKET/KEY`."""
        return f"s3://{self.name}/{key}"

    def read(self, key: str) -> bytes:
        """Read a whole object."""
        with self._translate_errors(key):
            return bytes(_client().get_object(Bucket=self.name, Key=key)["Body"].read())

    def open(self, key: str) -> Any:
        """Open an object as a file that can be read once."""
        with self._translate_errors(key):
            return _client().get_object(Bucket=self.name, Key=key)["Body"]

    def write(self, key: str, content: bytes) -> None:
        """Create or replace an object."""
        with self._translate_errors(key):
            _client().put_object(Bucket=self.name, Key=key, Body=content)

    def exists(self, key: str) -> bool:
        """Whether there is such an object."""
        try:
            with self._translate_errors(key):
                _client().head_object(Bucket=self.name, Key=key)
        except NotFoundError:
            return False
        return True

    def list_keys(self, prefix: str) -> list[str]:
        """Return the keys that begin with the prefix, in order."""
        with self._translate_errors(prefix):
            pages = _client().get_paginator("list_objects_v2").paginate(Bucket=self.name, Prefix=prefix)
            return [item["Key"] for page in pages for item in page.get("Contents", ())]

    def upload(self, key: str, file: Path) -> None:
        """Create or replace an object from a file of any size."""
        with self._translate_errors(key):
            _client().upload_file(str(file), self.name, key)

    def download(self, key: str, file: Path) -> None:
        """Copy an object to a file."""
        with self._translate_errors(key):
            _client().download_file(self.name, key, str(file))

    @contextmanager
    def _translate_errors(self, key: str) -> Iterator[None]:
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            yield
        except ClientError as error:
            code = str(error.response.get("Error", {}).get("Code"))
            if code in ("NoSuchKey", "404", "NoSuchBucket"):
                raise NotFoundError(f"There is no {self.address(key)}") from None
            raise ObjectStoreError(f"S3 refused {self.address(key)} ({code})") from None
        except BotoCoreError as error:
            raise ObjectStoreError(f"S3 could not be reached: {type(error).__name__}") from None


def is_s3_address(text: str) -> bool:
    """Whether the text is meant as the address of an object."""
    return text.startswith(SCHEME)


def parse_address(address: str) -> tuple[Bucket, str]:
    """Split an address into bucket and key."""
    bucket, _, key = address.removeprefix(SCHEME).partition("/")
    if not is_s3_address(address) or not bucket or not key:
        raise InvalidParameterError(f"{address} is not the address of an object, s3://BUCKET/KEY")
    return Bucket(bucket), key


@cache
def _client() -> Any:
    import boto3
    from botocore.config import Config

    return boto3.client("s3", config=Config(max_pool_connections=CONNECTIONS))
