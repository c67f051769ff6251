"""The services of a process, and `Collection`: what a use case works with."""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from threading import Lock
from time import sleep
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from chunkproof.base import errors
from chunkproof.base.embedder_config import place_of
from chunkproof.base.request import Deadline, RequestTrace, tracing
from chunkproof.base.settings import Settings
from chunkproof.collection.embedding import EmbeddedQuery, QueryEmbedder, check_embeddings
from chunkproof.collection.facts import Facts, Sample, choose_vector, has_cosine_scores
from chunkproof.collection.payload_map import PayloadMap
from chunkproof.contract.conditions import AnyOf, Condition, Either
from chunkproof.embedders.embedder_port import Embedder, InputType, Reranker, call_in_batches
from chunkproof.stores.store_port import (
    Description,
    Page,
    Point,
    PointId,
    StoreQuery,
    TextLeg,
    Vector,
    VectorConfig,
    VectorStore,
    VersionedStore,
)

if TYPE_CHECKING:
    from chunkproof.collection.lookup import Lookup
    from chunkproof.collection.payload_map import Chunk, Hashes
    from chunkproof.net.resilience import CircuitBreaker

SAMPLE_POINTS = 100
# A page of this size costs a fraction of a second to send, to parse and to map.
PAGE_BYTES = 8 * 1024 * 1024
PAGE_POINTS = 256
# What is found for one request, without vectors: three times what Lambda can return, for text that compresses well.
FOUND_BYTES = 20_000_000
# A number of a vector as a server writes it.
NUMBER_BYTES = 20
# More points than a usual request asks for.
HEAVY = 100
# So many points show how large the others may be.
PROBED_POINTS = 5
# To read which version is in force, at the start of a run.
PIN_MS = 10_000
MAX_COLLECTIONS = 1_000
# Services are kept for this many tenants, the latest ones.
MAX_TENANTS = 64
# Of a long run: seconds between attempts, long enough for a restart or a rate limit.
PAUSES = (0.5, 1.0, 2.0, 4.0, 8.0)
MAX_PAUSE = 60.0

Result = TypeVar("Result")


@dataclass
class Services:
    """Settings, store and embedders of a process; hands out collections, and keeps what is known of them."""

    settings: Settings
    store: VectorStore
    embedder: Embedder | None
    circuits: Mapping[str, "CircuitBreaker"] = field(default_factory=dict)
    # Embedders of collections that do not use the default.
    embedders: Mapping[str, Embedder] = field(default_factory=dict)
    reranker: Reranker | None = None
    # Of published collections, when these services read certain versions of them.
    versions: Mapping[str, str] = field(default_factory=dict)
    payloads: PayloadMap = field(init=False)
    queries: QueryEmbedder | None = field(init=False)
    _facts: dict[str, Facts] = field(init=False, default_factory=dict)
    # Those that restrict these services to a tenant share its vector configs.
    _unrestricted: "Services | None" = field(init=False, default=None)
    _tenants: OrderedDict[str, "Services"] = field(init=False, default_factory=OrderedDict)
    _lock: Lock = field(init=False, default_factory=Lock)

    def __post_init__(self) -> None:
        if tracing.tracer is not None:
            tracing.tracer.instrument(self)
        self.queries = QueryEmbedder(self.embedder, self.settings.cache_entries) if self.embedder else None
        self.payloads = PayloadMap(self.settings.payload_map)

    def collection(
        self, name: str | None, deadline: Deadline | None = None, trace: RequestTrace | None = None
    ) -> "Collection":
        """Return the collection that a request means; `CollectionNotFoundError` when the deployment forbids it."""
        trace = trace or RequestTrace()
        trace.collection = resolved = name or self.settings.collection
        allowed = self.settings.allowed_collections
        if allowed and resolved not in {*allowed, self.settings.collection}:
            raise errors.CollectionNotFoundError(resolved)
        return Collection(self, resolved, deadline or Deadline(self.settings.deadline_ms or PIN_MS), trace)

    def facts_of(self, collection: str) -> Facts:
        """Return what is known of a collection, to be completed by those who find out more."""
        facts = self._facts.get(collection)
        if facts is None:
            if len(self._facts) >= MAX_COLLECTIONS:  # callers may name collections that do not exist
                self._facts.clear()
            # The vector config is shared across tenants.
            vector = self._unrestricted.facts_of(collection).vector if self._unrestricted else None
            facts = self._facts.setdefault(collection, Facts(vector=vector))
        return facts

    def forget(self, collection: str) -> None:
        """Drop what is known of a collection, which may have been deleted or recreated."""
        self._facts.pop(collection, None)
        if self._unrestricted:
            self._unrestricted.forget(collection)

    def for_tenant(self, tenant: str) -> "Services":
        """Return the same services restricted to this tenant's points."""
        if self.settings.tenant_field is None:
            raise errors.NotConfiguredError("CHUNKPROOF_TENANT_FIELD is not set")
        with self._lock:
            own = self._tenants.pop(tenant, None)
            if own is None:
                own = replace(self, store=self.store.for_tenant(self.settings.tenant_field, tenant))
                own.queries = self.queries.for_tenant(tenant) if self.queries else None
                own._unrestricted = self
            self._tenants[tenant] = own
            while len(self._tenants) > MAX_TENANTS:
                self._tenants.popitem(last=False)
        return own

    def pin(self, collections: Iterable[str]) -> dict[str, str]:
        """Return the version in force of each collection; nothing where the store has no versions."""
        if not isinstance(self.store, VersionedStore):
            return {}
        return {name: self.store.version(name, Deadline(PIN_MS)) for name in collections}

    def at(self, versions: Mapping[str, str]) -> "Services":
        """Return the same services with exactly these versions, so that all steps of a run read the same chunks."""
        if isinstance(self.store, VersionedStore):
            return replace(self, store=self.store.at(versions), versions=versions)
        if versions:
            raise errors.InvalidParameterError(
                "The run began with Store=edge, and this function has a server: start it again"
            )
        return self


class Collection:
    """One collection, as the caller of a request sees it, with the deadline and the trace of that request.

    What it says of itself is asked of the store once, and remembered in `facts` until the collection is forgotten.
    """

    __slots__ = ("deadline", "facts", "name", "services", "settings", "store", "trace")
    # After these errors, fewer points are asked for.
    TOO_MUCH: ClassVar[tuple[type[Exception], ...]] = (errors.ResponseTooLargeError,)

    def __init__(self, services: Services, name: str, deadline: Deadline, trace: RequestTrace | None = None) -> None:
        self.services = services
        self.name = name
        self.deadline = deadline
        self.trace = trace or RequestTrace()
        self.settings = services.settings
        self.store = services.store
        self.facts = services.facts_of(name)

    def within(self, deadline: Deadline) -> "Collection":
        """Return the same collection for calls with another deadline."""
        return Collection(self.services, self.name, deadline, self.trace)

    # What it is

    @property
    def vector(self) -> VectorConfig:
        """The dense vector to search by."""
        config = self.facts.vector
        if config is None:
            config = choose_vector(self.describe().vectors, self.settings.vector_name, self.name)
            if has_cosine_scores(config, self):
                self.facts.vector = config
                if self.services._unrestricted:
                    self.services._unrestricted.facts_of(self.name).vector = config
        return config

    @property
    def sample(self) -> Sample:
        """The first points' payloads, fewer where they are large."""
        sample = self.facts.sample
        if sample is None:
            page = self.first_points(SAMPLE_POINTS)
            sample = Sample(tuple(dict(point.payload) for point in page.points), is_complete=page.next_id is None)
            if sample.payloads:  # an empty collection may be filled any moment
                self.facts.sample = sample
        return sample

    @property
    def payloads(self) -> PayloadMap:
        """How to read this collection: an id in a payload is the chunk's only if no other point has it."""
        payloads = self.services.payloads
        if payloads.are_ids_configured:
            return payloads
        if self.facts.payloads is not None:
            return self.facts.payloads
        from chunkproof.collection.lookup import read_ids

        payloads = read_ids(payloads, self)
        if self.sample.payloads:
            self.facts.payloads = payloads
        return payloads

    @property
    def hashes(self) -> "Hashes":
        """What the hashes in this collection's payloads are made from."""
        hashes = self.facts.hashes
        if hashes is None:
            from chunkproof.collection.payload_map import recognise_hashes

            sample = self.sample
            hashes = recognise_hashes(self.payloads, sample.payloads, are_all=sample.is_complete)
            if sample.payloads:
                self.facts.hashes = hashes
        return hashes

    def check_sources(self, chunks: Iterable["Chunk"]) -> "Hashes":
        """Return `hashes`, after looking whether those that do not fit these chunks are hashes of whole sources.

        Then other chunks have the same hash. If the store cannot say so, they are not taken for hashes of chunks.
        """
        hashes, payloads = self.hashes, self.payloads
        if hashes.content_hash is None or hashes.content_hash.is_per_chunk:
            return hashes
        doubtful = {c.hashes[0] or "": c.metadata.content_hash for c in chunks if hashes.integrity_of(c) == "changed"}
        if not doubtful:
            return hashes
        paths, values = payloads.paths_in("content_hash", self.sample.payloads), tuple(map(str, doubtful.values()))
        texts: dict[Any, dict[str, str]] = {}
        try:
            where = (Either(tuple(AnyOf(path, values) for path in paths)),)
            quick = self.within(self.deadline.less(self.deadline.remaining_ms() / 2))
            for point in quick.page(PAGE_POINTS, where=where).points:
                chunk = payloads.chunk_of(point)
                texts.setdefault(chunk.hashes[0], {})[chunk.text] = hashes.integrity_of(chunk)
        except errors.ChunkproofError:
            return replace(hashes, sources=hashes.sources | doubtful.keys())
        found = {digits for digits, seen in texts.items() if len(seen) > 1 and "verified" not in seen.values()}
        self.facts.hashes = replace(hashes, sources=hashes.sources | found)
        return self.facts.hashes

    @property
    def text_leg(self) -> TextLeg:
        """How it is searched by words: a leg without a text yet; `TextIndexRequiredError` says what is missing."""
        leg = self.facts.text_leg
        if leg is None:
            from chunkproof.collection.facts import find_text_leg

            leg = find_text_leg(self)
            if self.sample.payloads:
                self.facts.text_leg = leg
        return leg

    @property
    def tenant(self) -> str:
        """The tenant whose points these are; empty without tenants."""
        return getattr(self.store, "tenant", "")

    def describe(self) -> Description:
        """Return its vectors, indexes and counts, as the store has them now."""
        return self.ask(lambda deadline: self.store.describe(self.name, deadline))

    def look_ahead(self) -> None:
        """Find out what reading results will need, while something else is waited for.

        That takes at most half of the time left. Errors are left to the results.
        """
        with suppress(errors.ChunkproofError):
            _ = self.within(self.deadline.less(self.deadline.remaining_ms() / 2)).hashes

    def forget(self) -> None:
        """Drop what is remembered: the collection may have been deleted or recreated."""
        self.services.forget(self.name)
        self.facts = self.services.facts_of(self.name)

    def has_changed(self) -> bool:
        """Ask the store again; return whether the vector config has changed."""
        before = self.facts.vector
        self.forget()
        return before is not None and self.vector != before

    # Its embedder

    @property
    def embedder(self) -> Embedder | None:
        """The embedder of this collection, or the common one of collections without their own."""
        queries = self.facts.queries
        return queries.embedder if queries else self.services.embedders.get(self.name, self.services.embedder)

    def require_embedder(self) -> Embedder:
        """Return its embedder; `NotConfiguredError` says how to get one."""
        embedder = self.embedder
        if embedder is None:
            raise errors.NotConfiguredError("No embedder is configured: set COHERE_API_KEY")
        return embedder

    @property
    def queries(self) -> QueryEmbedder:
        """The embedder of its queries, with their cache; `NotConfiguredError` says how to get one."""
        queries = self.facts.queries
        if queries is None:
            embedder = self.require_embedder()
            shared = self.services.queries or QueryEmbedder(embedder, self.settings.cache_entries)
            queries = self.facts.queries = shared.for_embedder(embedder, self.model_setting)
        return queries

    @property
    def model_setting(self) -> str:
        """The setting that names its model."""
        if self.name in self.services.embedders:
            return place_of(self.name)
        # The local model has no other: its service is chosen first.
        has_service = hasattr(self.services.embedder, "service")
        return "CHUNKPROOF_MODEL" if has_service else "CHUNKPROOF_EMBEDDER and CHUNKPROOF_MODEL"

    def embed_query(self, text: str, embedding: EmbeddedQuery | None = None) -> EmbeddedQuery:
        """Return the query's vector, or check the one given; `EmbeddingSizeError` when the collection stores others."""
        embedding = embedding or self.queries.embed(text, self.deadline)
        if len(embedding.vector) != self.vector.size:
            raise self.queries.wrong_size(text, embedding, self.name, self.vector.size)
        return embedding

    def embed(
        self, texts: Sequence[str], input_type: InputType = InputType.DOCUMENT, embedder: Embedder | None = None
    ) -> list[Vector | None]:
        """Embed texts in as few calls as possible; None for a text that is too long for the model."""
        model = embedder or self.require_embedder()

        def embed(batch: Sequence[str]) -> Sequence[Vector]:
            return self.ask(lambda deadline: check_embeddings(model.embed(batch, input_type, deadline), len(batch)))

        too_long = (errors.QueryTooLongError, errors.InvalidParameterError)
        return list(call_in_batches(embed, texts, model.max_batch, too_long, lambda _text: [None]))

    # Its points

    def search(self, queries: Sequence[StoreQuery]) -> list[list[Point]]:
        """Return the results of each query, best first; `ResponseTooLargeError` if no response has room for them."""
        most = FOUND_BYTES
        for query in queries:
            if query.with_vector is not None:
                most += NUMBER_BYTES * self.vector.size * max(query.limit, query.candidates)
        is_heavy = len(queries) > 1 or max(queries[0].limit, queries[0].candidates) > HEAVY
        return self.store.search(queries, self.deadline.limit_responses(most, is_heavy=is_heavy))

    def fetch(self, ids: Sequence[PointId], *, with_vector: str | None = None) -> list[Point]:
        """Return the points with these ids that exist, in no particular order."""

        def fetch(deadline: Deadline) -> list[Point]:
            limited = deadline.limit_responses(FOUND_BYTES) if len(ids) > 1 else deadline
            return self.store.fetch(self.name, ids, limited, with_vector=with_vector)

        return self.ask(fetch)

    def count(self, where: tuple[Condition, ...] = ()) -> int:
        """Return exactly how many points meet the conditions."""
        return self.ask(lambda deadline: self.store.count(self.name, where, deadline))

    def find(self, chunk_ids: Iterable[str]) -> "Lookup":
        """Find the points of many chunk ids at once."""
        from chunkproof.collection.lookup import find_points

        return find_points(chunk_ids, self)

    def find_one(self, chunk_id: str) -> Point:
        """Find the point with this point id or payload id; `AmbiguousIdError` for two different points."""
        return self.find([chunk_id]).one(chunk_id)

    def page(
        self,
        limit: int,
        *,
        where: tuple[Condition, ...] = (),
        start: PointId | None = None,
        with_vector: str | None = None,
    ) -> Page:
        """Return a page of at most `limit` points: fewer where they are large, and at least one if there is one."""
        options: dict[str, Any] = {"where": where, "start": start, "with_vector": with_vector}

        def scroll(deadline: Deadline) -> Page:
            size = limit
            while True:
                limited = deadline.limit_responses(PAGE_BYTES, is_heavy=size > HEAVY) if size > 1 else deadline
                try:
                    return self.store.scroll(self.name, limited, limit=size, **options)
                except self.TOO_MUCH:
                    if size == 1:
                        raise
                    size, deadline = max(1, size // 5), self.deadline

        page = self.ask(scroll)
        if page.next_id is not None and not page.points:
            found = f"a page of {self.name} had no points, and was not the last"
            raise errors.IncompleteScanError(self.store.host, found)
        return page

    def first_points(self, limit: int, *, with_vector: str | None = None) -> Page:
        """Return the first points as `page` does; a few of them are read first, to ask for no more than fits.

        A server reads and writes a page that is refused all the same: a hundred megabytes take it half a second.
        """
        page = self.page(min(limit, PROBED_POINTS), with_vector=with_vector)
        size = sum(map(_size, page.points))
        fitting = PAGE_BYTES * len(page.points) // max(size, 1) - len(page.points)
        more = min(limit - len(page.points), fitting)
        if page.next_id is None or more < 1:
            return page
        rest = self.page(more, start=page.next_id, with_vector=with_vector)
        return Page(page.points + rest.points, rest.next_id)

    def scan(
        self, *, page_points: int = PAGE_POINTS, where: tuple[Condition, ...] = (), with_vector: str | None = None
    ) -> Iterator[Page]:
        """Yield its points page by page, as `check_scan` does."""

        def read(start: PointId | None) -> Page:
            nonlocal page_points
            page = self.page(page_points, where=where, start=start, with_vector=with_vector)
            page_points = next_size(page_points, page)
            return page

        return self.check_scan(read, where, with_vector)

    def check_scan(
        self,
        read: Callable[[PointId | None], Page],
        where: tuple[Condition, ...] = (),
        with_vector: str | None = None,
        on_change: Callable[[str, int, int], None] = lambda _note, _added, _rewritten: None,
    ) -> Iterator[Page]:
        """Yield the pages that `read` returns, in the order of their ids.

        Raise `IncompleteScanError` if points come twice, are not as many as Qdrant counts, follow the last page, or
        lack what Qdrant says they have. If points were added, removed or rewritten meanwhile, `on_change` gets a
        sentence about it, and how many were added or removed, and rewritten, at least.
        """
        from chunkproof.collection.reader import READ_AGAIN, ScanCheck

        def count(also: tuple[Condition, ...] = ()) -> int:
            return self.ask(lambda deadline: self.store.count(self.name, (*where, *also), deadline))

        def look(last: PointId) -> list[PointId]:
            return [point.id for point in self.page(2, where=where, start=last).points]

        def read_again(ids: Sequence[PointId]) -> Iterator[Point]:
            return call_in_batches(partial(self.fetch, with_vector=with_vector), ids, READ_AGAIN, self.TOO_MUCH)

        check = ScanCheck(
            self.name, self.store.host, count=count, look=look, read_again=read_again, on_change=on_change
        )
        start: PointId | None = None
        while True:
            page = read(start)
            vectors = {} if with_vector is None else {with_vector: sum(bool(p.vector) for p in page.points)}
            following = check.add(page.points, start, page.next_id, vectors)
            yield replace(page, next_id=following)
            if following is None:
                return
            start = following

    def ask(self, call: Callable[[Deadline], Result]) -> Result:
        """Call with the deadline of the request."""
        return call(self.deadline)


class LongRun(Collection):
    """A collection for work that takes longer than a request: an audit, a comparison, a search for causes.

    Every call has a deadline of its own, and is repeated after a pause if it fails for a reason that may pass.
    """

    __slots__ = ("_new_deadline", "_pauses", "_wait")
    TOO_MUCH = (errors.ResponseTooLargeError, errors.VectorStoreTimeoutError)

    def __init__(
        self,
        services: Services,
        name: str,
        new_deadline: Callable[[], Deadline],
        pauses: Sequence[float] = (),
        wait: Callable[[float], object] = sleep,
    ) -> None:
        self._new_deadline = new_deadline
        self._pauses = pauses
        self._wait = wait
        super().__init__(services, name, new_deadline())

    @property
    def deadline(self) -> Deadline:
        """A new deadline, for the next call."""
        return self._new_deadline()

    @deadline.setter
    def deadline(self, _deadline: Deadline) -> None:
        """Ignore the first one, which `Collection` sets."""

    def search(self, queries: Sequence[StoreQuery]) -> list[list[Point]]:
        """Return the results of each query, best first."""
        return self.ask(lambda deadline: self.store.search(queries, deadline))

    def ask(self, call: Callable[[Deadline], Result]) -> Result:
        """Call with a new deadline, again after a pause if it fails for a reason that may pass."""
        for pause in self._pauses:
            try:
                return call(self.deadline)
            except (errors.UnavailableError, errors.RateLimitedError) as error:
                final = errors.NotConfiguredError | errors.VectorStoreRefusedError | errors.IncompleteScanError
                if isinstance(error, final):
                    raise
                self._wait(min(MAX_PAUSE, max(pause, error.retry_after or 0.0)))
        return call(self.deadline)


def next_size(size: int, page: Page) -> int:
    """Return how many points to ask for after this page of at most `size`: as many as fitted, or a few more."""
    return max(1, min(size, 2 * len(page.points)))


def _size(point: Point) -> int:
    try:
        return len(repr((point.payload, point.vector)))
    except RecursionError:
        return PAGE_BYTES
