"""`chunkproof pull` and `chunkproof push`: copy a collection between a server and the embedded store, and verify it."""

import json
import sys
import tempfile
from array import array
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from heapq import merge
from itertools import chain, groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote
from uuid import UUID

import click
import httpx

from chunkproof.base.errors import (
    InvalidParameterError,
    NotConfiguredError,
    ResponseTooLargeError,
    VectorStoreUnavailableError,
)
from chunkproof.base.request import Deadline
from chunkproof.base.settings import Settings
from chunkproof.collection.facts import find_text_paths
from chunkproof.collection.payload_map import PayloadMap
from chunkproof.collection.reader import ScanCheck
from chunkproof.net.secrets import Keys
from chunkproof.net.transport import host_of
from chunkproof.service.container import qdrant_store
from chunkproof.service.terminal import open_embedded_store
from chunkproof.stores.store_port import Json, Layout, Point, PointId, WritableStore
from chunkproof_cli.exits import FAILED
from chunkproof_cli.options import data_option, json_option, name_flags, option, parse_options, reject_api
from chunkproof_cli.output import print_json, print_line, print_note, progress_bar

if TYPE_CHECKING:
    from chunkproof.stores.edge import EdgeStore
    from chunkproof.stores.server import ServerStore

BATCH = 256
CALL_MS = 60_000
MAX_LISTED = 20
# Making a snapshot takes time in proportion to the collection.
MAKING_S = 600.0
READ_S = 60.0
SAMPLE = 100
Advance = Callable[[int], None]


class CopyComparison(NamedTuple):
    """How many points of two collections were compared, and the ids (at most 20) of those that differ."""

    points: int
    differing: int
    differing_ids: tuple[str, ...] = ()


@dataclass(frozen=True)
class Copy:
    """A finished copy: where from, where to, how, and how many points are equal on both sides."""

    collection: str
    name: str
    source: str
    target: str
    method: str
    points: int
    differing: int
    differing_ids: tuple[str, ...]
    not_copied: tuple[str, ...]

    @property
    def is_equal(self) -> bool:
        """Whether the copy has the same points."""
        return not self.differing

    def show(self, *, as_json: bool) -> None:
        """Print the result."""
        if as_json:
            print_json({**asdict(self), "verified": self.is_equal})
            return
        if self.not_copied:
            print_note(f"The copy does not have these settings of the collection: {', '.join(self.not_copied)}")
        if self.is_equal:
            print_line(
                f"{self.points} points of {self.collection} at {self.source} are in collection {self.name} of "
                f"{self.target} (by {self.method}); all payloads and vectors were compared and are equal."
            )
            return
        print_line(
            f"{self.differing} of {self.points} points differ between {self.collection} at {self.source} and its copy, "
            f"for example {', '.join(self.differing_ids[:5])}. If the collection changed meanwhile, run this again."
        )


@contextmanager
def open_both(folder: Path) -> "Iterator[tuple[ServerStore, EdgeStore, Settings]]":
    """Open the server at QDRANT_URL and the embedded store."""
    settings = Settings.from_env()
    if settings.qdrant_url is None:
        raise NotConfiguredError("QDRANT_URL is not set: it names the server of the copy")
    with ExitStack() as stack:
        served = qdrant_store(settings)
        stack.callback(served.close)
        with name_flags({"data folder": "--data"}):
            embedded = open_embedded_store(folder)
        stack.callback(embedded.close)
        yield served, embedded, settings


def pull_collection(collection: str, name: str, folder: Path, how: str, *, replace_old: bool) -> Copy:
    """Copy a server's collection into the embedded store; it appears there when both are equal."""
    with open_both(folder) as (served, embedded, settings):
        deadline = Deadline(CALL_MS)
        if name in embedded.collections(deadline) and not replace_old:
            raise InvalidParameterError(
                f"Collection {name} is in {embedded.host} already: replace it with --replace, or use another name: --as"
            )
        pull = _Pull(served, embedded, settings, collection, f"{name} (incomplete)")
        method = pull.copy(how)
        compared = _compare(served, embedded, (collection, pull.partial))
        if not compared.differing:
            with progress_bar("Building indexes", None):
                embedded.optimize(pull.partial)
            embedded.rename(pull.partial, name)
        else:
            embedded.drop(pull.partial)
        return Copy(collection, name, served.host, embedded.host, method, *compared, tuple(pull.not_copied()))


def push_collection(collection: str, name: str, folder: Path, *, resume: bool) -> Copy:
    """Copy a collection of the embedded store to the server, and compare both."""
    with open_both(folder) as (served, embedded, _settings):
        deadline = Deadline(CALL_MS)
        layout = embedded.layout(collection, deadline)
        if name not in served.collections(deadline):
            served.create_like(name, layout, deadline)
        elif not resume:
            raise InvalidParameterError(
                f"Collection {name} is at {served.host} already: name another with --as, or continue an interrupted "
                "push with --resume, which replaces points with the same ids"
            )
        copy_points(embedded, served, (collection, name))
        compared = _compare(embedded, served, (collection, name))
        return Copy(collection, name, embedded.host, served.host, "scroll", *compared, tuple(layout.not_copied))


@dataclass(frozen=True)
class _Pull:
    """A pull into a collection whose name says that it is incomplete."""

    served: "ServerStore"
    embedded: "EdgeStore"
    settings: Settings
    collection: str
    partial: str

    def copy(self, how: str) -> str:
        """Copy all points, and return by which method."""
        deadline = Deadline(CALL_MS)
        fields, layout = self._text_fields(), self.served.layout(self.collection, deadline)
        names = (self.collection, self.partial)
        if self.partial in self.embedded.collections(deadline):
            print_note("An earlier pull was interrupted; it is continued.")
            copy_points(self.served, self.embedded, names, last_id(self.embedded, self.partial))
        elif how != "scroll" and self._import_snapshot(layout, fields, is_required=how == "snapshot"):
            return "snapshot"
        else:
            self.embedded.create_like(self.partial, layout, deadline, word_fields=fields)
            copy_points(self.served, self.embedded, names)
        return "scroll"

    def not_copied(self) -> list[str]:
        """Return the settings of the server that the embedded store does not use; a push makes some of them again."""
        layout = self.served.layout(self.collection, Deadline(CALL_MS))
        unused = f"quantization_config ({layout.quantization}; push makes it again)"
        return [*([unused] if layout.quantization else []), *layout.not_copied]

    def _import_snapshot(self, layout: Layout, fields: Sequence[str], *, is_required: bool) -> bool:
        """Make the copy from a snapshot; return False where there is none that fits."""
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "shard.snapshot"
            try:
                download_snapshot(self.served.url, Keys(self.settings).for_qdrant(), self.collection, file)
                self.embedded.import_snapshot(self.partial, file, layout, fields)
            except (NoSnapshotError, VectorStoreUnavailableError) as error:
                if is_required:
                    raise InvalidParameterError(f"--by snapshot: {error}; use --by scroll") from None
                print_note(f"No snapshot ({error}); the points are read instead.")
                return False
        return True

    def _text_fields(self) -> list[str]:
        page = self.served.scroll(self.collection, Deadline(CALL_MS), limit=SAMPLE)
        payloads = [dict(point.payload) for point in page.points]
        return find_text_paths(payloads, PayloadMap(self.settings.payload_map))[:1]


def copy_points(
    source: WritableStore, target: WritableStore, names: tuple[str, str], start: PointId | None = None
) -> None:
    """Write the points of a collection to another one that exists, in id order from `start`, with a progress bar."""
    with progress_bar("Copying", source.count(names[0], (), Deadline(CALL_MS))) as advance:
        if start is not None:
            advance(target.count(names[1], (), Deadline(CALL_MS)))
        for points in read_pages(source, names[0], start):
            target.write_points(names[1], points, Deadline(CALL_MS))
            advance(len(points))


def _compare(source: WritableStore, target: WritableStore, names: tuple[str, str]) -> CopyComparison:
    with progress_bar("Comparing", source.count(names[0], (), Deadline(CALL_MS))) as advance:
        return compare_collections(source, target, names, advance)


def compare_collections(
    source: WritableStore, target: WritableStore, names: tuple[str, str], advance: Advance
) -> CopyComparison:
    """Compare payloads and vectors of all points, exactly: texts by their characters, vectors bit by bit."""
    count, differing, listed = 0, 0, list[str]()
    points = merge(read_all(source, names[0]), read_all(target, names[1]), key=_order)
    for _, same_id in groupby(points, key=_order):
        count += 1
        advance(1)
        first, *others = same_id
        if len(others) != 1 or normalize(first) != normalize(others[0]):
            differing += 1
            listed += [str(first["id"])] if differing <= MAX_LISTED else []
    return CopyComparison(count, differing, tuple(listed))


def read_all(source: WritableStore, collection: str) -> Iterator[Json]:
    """Yield all points in id order."""
    return chain.from_iterable(read_pages(source, collection))


def read_pages(source: WritableStore, collection: str, start: PointId | None = None) -> Iterator[list[Json]]:
    """Yield pages of points in id order, smaller ones where points are large."""
    limit, check = BATCH, None
    if start is None:  # an interrupted copy goes on in the middle; all is compared afterwards
        check = ScanCheck(
            collection,
            source.host,
            count=lambda where: source.count(collection, where, Deadline(CALL_MS)),
            look=lambda last: [point["id"] for point in source.read_points(collection, last, 2, Deadline(CALL_MS))[0]],
        )
        layout = source.layout(collection, Deadline(CALL_MS))
        check.contents.vectors.update(dict.fromkeys((*layout.vectors, *layout.sparse_vectors), 0))
    while True:
        try:
            points, following = source.read_points(collection, start, limit, Deadline(CALL_MS))
        except ResponseTooLargeError:
            if limit == 1:
                raise
            limit //= 2
            continue
        if check:
            read = [Point(point["id"], point["payload"]) for point in points]
            following = check.add(read, start, following, chain.from_iterable(point["vector"] for point in points))
        if points:
            yield points
        if following is None or not points:
            return
        start = following


def last_id(target: WritableStore, collection: str) -> PointId | None:
    """Return the largest id of a collection; None when it is empty."""
    last = deque(read_all(target, collection), maxlen=1)
    return last[0]["id"] if last else None


def normalize(point: Json) -> tuple[str, str, Json]:
    """Return what two equal points have in common: numbers as 32 bits, and objects whatever the order of their keys."""
    vectors = {name: _normalize_vector(vector) for name, vector in point["vector"].items()}
    return str(point["id"]), json.dumps(point["payload"], sort_keys=True), vectors


def _normalize_vector(vector: Any) -> Any:
    if isinstance(vector, Mapping):
        return tuple(sorted(zip(vector["indices"], array("f", vector["values"]), strict=True)))
    if vector and isinstance(vector[0], list | tuple):
        return tuple(array("f", row).tobytes() for row in vector)
    return array("f", vector).tobytes()


def _order(point: Json) -> tuple[int, int]:
    """Return a key for Qdrant's order of ids: integers first."""
    point_id = point["id"]
    return (0, point_id) if isinstance(point_id, int) else (1, UUID(point_id).int)


class NoSnapshotError(Exception):
    """The server sends no snapshot that can be used: it forbids them, or the collection has several shards."""


def download_snapshot(url: str, headers: Mapping[str, str], collection: str, file: Path) -> None:
    """Write a snapshot of a collection that has one shard to a file.

    The server makes it while it sends it (from Qdrant 1.13 on) and keeps none, so that a pull which is killed leaves
    nothing there. A response that is cut off is an error, and every point is compared afterwards.
    """
    path = f"/collections/{quote(collection, safe='')}"
    with httpx.Client(base_url=url, headers=dict(headers), timeout=READ_S, trust_env=False) as client:
        try:
            cluster = client.get(f"{path}/cluster")
            if cluster.is_error:
                raise NoSnapshotError(f"the server does not name its shards ({cluster.status_code})")
            result = cluster.json()["result"]
            if result["shard_count"] != 1 or len(result["local_shards"]) != 1:
                raise NoSnapshotError("the collection has several shards, or another node of the cluster has it")
            shard = int(result["local_shards"][0]["shard_id"])
            with client.stream("GET", f"{path}/shards/{shard}/snapshot", timeout=MAKING_S) as response:
                if response.is_error:
                    raise NoSnapshotError(f"the server refused a snapshot ({response.status_code})")
                with file.open("wb") as target, progress_bar("Downloading", None) as advance:
                    for block in response.iter_bytes():
                        target.write(block)
                        advance(len(block))
        except httpx.HTTPError as error:
            raise VectorStoreUnavailableError(host_of(url), f"the snapshot failed: {type(error).__name__}") from None
        except (ValueError, LookupError, TypeError):
            raise NoSnapshotError("the server's response is not that of a snapshot") from None


PULL_EXAMPLES = """\b
Examples:
  chunkproof pull handbook
  chunkproof pull handbook --as production --data ./copy
  chunkproof pull handbook --replace --by scroll
\b
Then, without the server:
  QDRANT_URL= chunkproof search "rotate a key" --collection handbook
"""


@click.command(epilog=PULL_EXAMPLES)
@click.argument("collection")
@option("--as name NAME", "Name of the copy; the collection's own by default.")
@data_option("")
@option("--replace", "Replace a collection of that name once the copy is verified.")
@option(
    "--by how",
    "Copy a snapshot of the server, which has the vector index too, or read point by point. With auto, points "
    "are read where there is no snapshot that fits.",
    "auto",
    type=click.Choice(["auto", "snapshot", "scroll"]),
)
@json_option
@reject_api("the copy is made from the collection itself; set QDRANT_URL")
def pull(collection: str, name: str | None, replace: bool, how: str, **common: Any) -> None:
    """Copy COLLECTION from the server at QDRANT_URL into the embedded store, and verify the copy.

    All payloads and vectors, named and sparse ones too, are compared point by point. The copy appears only if they
    are equal; otherwise the exit code is 1. A pull that was interrupted is continued by the same command.
    """
    given = parse_options(name or collection, **common)
    made = pull_collection(collection, name or collection, given.data, how, replace_old=replace)
    made.show(as_json=given.json)
    if not made.is_equal:
        sys.exit(FAILED)


PUSH_EXAMPLES = """\b
Examples:
  chunkproof push handbook
  chunkproof push handbook --as handbook-v2 --data ./copy
  chunkproof push handbook --resume
"""


@click.command(epilog=PUSH_EXAMPLES)
@click.argument("collection")
@option("--as name NAME", "Name on the server; the collection's own by default.")
@data_option("")
@option("--resume", "Continue in a collection that an interrupted push left.")
@json_option
@reject_api("the API is read-only; push writes to QDRANT_URL")
def push(collection: str, name: str | None, data: Path | None, resume: bool, as_json: bool) -> None:
    """Copy COLLECTION from the embedded store to the server at QDRANT_URL, and verify the copy.

    The collection is created with the same vectors, sparse ones too, and the same indexes. All payloads and vectors
    are then compared point by point; if one differs, the exit code is 1. Nothing on the server is ever deleted.
    """
    given = parse_options(name or collection, data, as_json)
    made = push_collection(collection, name or collection, given.data, resume=resume)
    made.show(as_json=as_json)
    if not made.is_equal:
        sys.exit(FAILED)
