"""Copy a collection between a server and the embedded store, compare both, and say what was done."""

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from chunkproof.clients.ports import PointId
from chunkproof.clients.qdrant.edge import EdgeStore
from chunkproof.clients.qdrant.server import ServerStore
from chunkproof.clients.qdrant.snapshots import NoSnapshotError, SnapshotClient
from chunkproof.clients.qdrant.transfer import Comparison, Layout, compare_collections, copy_points, last_id
from chunkproof.clients.secrets import Keys
from chunkproof.deadline import Deadline
from chunkproof.errors import InvalidParameterError, NotConfiguredError, VectorStoreUnavailableError
from chunkproof.retrieval.collection import find_text_fields
from chunkproof.retrieval.payload import PayloadMap
from chunkproof.runtime.container import qdrant_store
from chunkproof.runtime.local import open_embedded_store
from chunkproof.settings import Settings
from chunkproof_cli.connections import show_migration
from chunkproof_cli.options import name_flags
from chunkproof_cli.output import print_json, print_line, print_note, progress_bar

CALL_MS = 60_000
SAMPLE = 100
WORDS = {"type": "text", "tokenizer": "word"}


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

    @property
    def is_equal(self) -> bool:
        """Whether the copy has the same points."""
        return not self.differing

    def show(self, *, as_json: bool) -> None:
        """Print the result."""
        if as_json:
            print_json({**asdict(self), "verified": self.is_equal})
            return
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
def open_both(folder: Path) -> Iterator[tuple[ServerStore, EdgeStore, Settings]]:
    """Open the server at QDRANT_URL and the embedded store."""
    settings = Settings.from_env()
    if settings.qdrant_url is None:
        raise NotConfiguredError("QDRANT_URL is not set: it names the server of the copy")
    with ExitStack() as stack:
        served = qdrant_store(settings)
        stack.callback(served.close)
        with name_flags({"data folder": "--data"}):
            embedded = open_embedded_store(folder, settings, show_migration)
        stack.callback(embedded.close)
        if not isinstance(served, ServerStore) or not isinstance(embedded, EdgeStore):
            raise NotConfiguredError("Copies need Qdrant Edge, which is not installed: pip install qdrant-edge-py")
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
        found = pull.compare()
        if found.is_equal:
            with progress_bar("Building indexes", None):
                embedded.optimize(pull.partial)
            embedded.rename(pull.partial, name)
        else:
            embedded.drop(pull.partial)
        return _result(collection, name, (served.host, embedded.host), method, found)


def push_collection(collection: str, name: str, folder: Path, *, resume: bool) -> Copy:
    """Copy a collection of the embedded store to the server, and compare both."""
    with open_both(folder) as (served, embedded, _settings):
        deadline = Deadline(CALL_MS)
        count = embedded.count(collection, (), deadline)
        if name not in served.collections(deadline):
            served.create_like(name, embedded.layout(collection, deadline), deadline)
        elif not resume:
            raise InvalidParameterError(
                f"Collection {name} is at {served.host} already: name another with --as, or continue an interrupted "
                "push with --resume, which replaces points with the same ids"
            )
        with progress_bar("Copying", count) as advance:
            copy_points(embedded, served, (collection, name), advance)
        with progress_bar("Comparing", count) as advance:
            found = compare_collections(embedded, served, (collection, name), advance)
        return _result(collection, name, (embedded.host, served.host), "scroll", found)


@dataclass(frozen=True)
class _Pull:
    """A pull into a collection whose name says that it is incomplete."""

    served: ServerStore
    embedded: EdgeStore
    settings: Settings
    collection: str
    partial: str

    def copy(self, how: str) -> str:
        """Copy all points, and return by which method."""
        deadline = Deadline(CALL_MS)
        fields = self._text_fields()
        if self.partial in self.embedded.collections(deadline):
            print_note("An earlier pull was interrupted; it is continued.")
            self._scroll(last_id(self.embedded, self.partial))
        elif how != "scroll" and self._import_snapshot(fields, is_required=how == "snapshot"):
            return "snapshot"
        else:
            layout = _with_words(self.served.layout(self.collection, deadline), fields)
            self.embedded.create_like(self.partial, layout, deadline)
            self._scroll(None)
        return "scroll"

    def compare(self) -> Comparison:
        """Compare all points."""
        count = self.served.count(self.collection, (), Deadline(CALL_MS))
        with progress_bar("Comparing", count) as advance:
            return compare_collections(self.served, self.embedded, (self.collection, self.partial), advance)

    def _scroll(self, start: PointId | None) -> None:
        count = self.served.count(self.collection, (), Deadline(CALL_MS))
        with progress_bar("Copying", count) as advance:
            advance(self.embedded.count(self.partial, (), Deadline(CALL_MS)))
            copy_points(self.served, self.embedded, (self.collection, self.partial), advance, start)

    def _import_snapshot(self, fields: Sequence[str], *, is_required: bool) -> bool:
        """Make the copy from a snapshot; return False where there is none that fits."""
        client = SnapshotClient(self.served.url, Keys(self.settings).for_qdrant(), self.collection)
        with tempfile.TemporaryDirectory() as folder, ExitStack() as bar:
            file = Path(folder) / "shard.snapshot"
            try:
                client.download(file, lambda size: bar.enter_context(progress_bar("Downloading", size)))
                bar.close()
                self.embedded.import_snapshot(self.partial, file, fields)
            except (NoSnapshotError, VectorStoreUnavailableError) as error:
                if is_required:
                    raise InvalidParameterError(f"--by snapshot: {error}; use --by scroll") from None
                print_note(f"No snapshot ({error}); the points are read instead.")
                return False
        return True

    def _text_fields(self) -> list[str]:
        page = self.served.scroll(self.collection, Deadline(CALL_MS), limit=SAMPLE)
        payloads = [dict(point.payload) for point in page.points]
        return find_text_fields(payloads, PayloadMap(self.settings.payload_map))


def _with_words(layout: Layout, fields: Sequence[str]) -> Layout:
    return replace(layout, indexes={**layout.indexes, **dict.fromkeys(fields, WORDS)})


def _result(collection: str, name: str, hosts: tuple[str, str], method: str, found: Comparison) -> Copy:
    return Copy(collection, name, *hosts, method, found.points, found.differing, found.listed)
