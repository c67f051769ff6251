"""The composition root: settings, store and embedders of this process, built once; SDKs are imported when needed."""

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import cache
from threading import RLock
from typing import TYPE_CHECKING, Any

from chunkproof import CONTRACT_VERSION
from chunkproof.base.embedder_config import EmbedderConfig
from chunkproof.base.errors import ChunkproofError, NotConfiguredError
from chunkproof.base.request import Deadline, Stopwatch, tracing
from chunkproof.base.settings import Settings
from chunkproof.collection.embedding import check_embeddings
from chunkproof.collection.services import Services
from chunkproof.contract.response import DependencyHealth, Health
from chunkproof.embedders.embedder_port import Embedder, InputType
from chunkproof.net.secrets import Keys, clear_secret_cache
from chunkproof.stores.store_port import VersionedStore

if TYPE_CHECKING:
    import httpx

    from chunkproof.embedders.cohere import CohereReranker
    from chunkproof.net.resilience import CircuitBreaker
    from chunkproof.stores.published_store import PublishedStore
    from chunkproof.stores.server import ServerStore

LOCAL_IN_LAMBDA = "{place} is local, which only a terminal has: set it to cohere, bedrock or openai"


class EmbedderBuilder:
    """Builds each embedder once, with one circuit breaker for each address; `close` closes their connections.

    On a terminal there are no circuit breakers, and a function of one's own may come from the current folder.
    """

    def __init__(self, settings: Settings, circuits: "dict[str, CircuitBreaker] | None" = None) -> None:
        self._settings = settings
        self._circuits = circuits
        self._is_terminal = circuits is None
        self._named: dict[tuple[str, str | None], str] = {}
        self._keys = Keys(settings)
        self._built: dict[str, Embedder] = {}
        self._opened = ExitStack()
        self._lock = RLock()

    def default(self, provider: str) -> Embedder:
        """Return the embedder of collections that have none of their own."""
        return self.build(self._settings.default_embedder(provider))

    def build(self, config: EmbedderConfig) -> Embedder:
        """Return the embedder of this config; opens no connection. `NotConfiguredError` for a missing key."""
        with self._lock:
            known = config.model_dump_json()
            if known not in self._built:
                make = _MAKERS.get(config.provider, EmbedderBuilder._make_python)
                made = make(self, config)
                self._built[known] = made if tracing.tracer is None else tracing.tracer.embedder(made)
            return self._built[known]

    def close(self) -> None:
        """Close the connections."""
        self._opened.close()

    def _make_cohere(self, config: EmbedderConfig) -> Embedder:
        from chunkproof.embedders.cohere import CohereEmbedder

        name = config.key or "COHERE_API_KEY"
        self._check_key(name, config)
        made = CohereEmbedder(self._transport(config, lambda: self._keys.bearer(name, required=True)), config)
        self._opened.callback(made.close)
        return made

    def _make_openai(self, config: EmbedderConfig) -> Embedder:
        from chunkproof.embedders.openai_api import OpenAiEmbedder

        # The key of OpenAI, or of OPENAI_BASE_URL, is not sent to the address of a collection's own embedder.
        is_elsewhere = config.is_own and config.base_url not in (None, self._settings.openai_base_url)
        name = config.key or (None if is_elsewhere else "OPENAI_API_KEY")
        required = config.key is not None or config.base_url is None
        if name and required:
            self._check_key(name, config)

        def headers() -> Mapping[str, str]:
            return self._keys.bearer(name, required=required) if name else {}

        made = OpenAiEmbedder(self._transport(config, headers), config)
        self._opened.callback(made.close)
        return made

    def _make_bedrock(self, config: EmbedderConfig) -> Embedder:
        from chunkproof.embedders.bedrock import BedrockEmbedder

        made = BedrockEmbedder(self._transport(config, dict), config)
        self._opened.callback(made.close)
        if not self._is_terminal:
            made.prepare()
        return made

    def _make_local(self, config: EmbedderConfig) -> Embedder:
        if not self._is_terminal:
            raise NotConfiguredError(LOCAL_IN_LAMBDA.format(place=config.place))
        from chunkproof.embedders.local_model import local_model

        return local_model()

    def _make_python(self, config: EmbedderConfig) -> Embedder:
        from chunkproof.embedders.python_embedder import open_python_embedder

        return open_python_embedder(config, from_here=self._is_terminal)

    def _transport(self, config: EmbedderConfig, headers: Callable[[], Mapping[str, str]]) -> "httpx.BaseTransport":
        from chunkproof.net.transport import DeadlineTransport

        breaker = self._breaker(config.provider, config.base_url)
        keep = self._settings.secret_arn is None
        return DeadlineTransport(headers, expire_key=self._keys.expire, breaker=breaker, keep_headers=keep)

    def _breaker(self, provider: str, address: str | None) -> "CircuitBreaker | None":
        """Return the breaker of an address: named as the provider, with the host from its second address on."""
        if self._circuits is None:
            return None
        from chunkproof.net.resilience import CircuitBreaker
        from chunkproof.net.transport import host_of

        key = (provider, address)
        if key not in self._named:
            name = provider if provider not in self._named.values() else f"{provider} {host_of(address or '')}"
            self._named[key] = name
            self._circuits.setdefault(name, CircuitBreaker(name))
        return self._circuits[self._named[key]]

    def _check_key(self, name: str, config: EmbedderConfig) -> None:
        """On a terminal, report a missing key before anything else happens."""
        if self._is_terminal and self._settings.secret_arn is None and not self._keys.has(name):
            raise NotConfiguredError(f"{config.place} is {config.provider}, but {name} is not set")


_MAKERS: Mapping[str, Callable[[EmbedderBuilder, EmbedderConfig], Embedder]] = {
    "cohere": EmbedderBuilder._make_cohere,
    "openai": EmbedderBuilder._make_openai,
    "bedrock": EmbedderBuilder._make_bedrock,
    "local": EmbedderBuilder._make_local,
}


class CollectionEmbedders(Mapping[str, Embedder]):
    """The embedders of `CHUNKPROOF_MODELS` by collection, each built when it is first used."""

    def __init__(self, configs: Mapping[str, EmbedderConfig], builder: EmbedderBuilder) -> None:
        self._configs = configs
        self._builder = builder

    def __getitem__(self, collection: str) -> Embedder:
        return self._builder.build(self._configs[collection])

    def __contains__(self, collection: object) -> bool:
        return collection in self._configs

    def __iter__(self) -> Iterator[str]:
        return iter(self._configs)

    def __len__(self) -> int:
        return len(self._configs)


LAMBDA_DEADLINE_MS = 2_000
# Kept back for turning a failure into a response before Lambda stops the function.
RESERVE_MS = 100
# Lambda gives the start of a function 10 seconds; what is not fetched by then goes on during requests.
INIT_WAIT_S = 8.0
# For sending the spans of a step of a job.
FLUSH_MS = 5_000

# How Lambda starts a function for a request that waits, and not for a snapshot or ahead of requests.
ON_DEMAND = "on-demand"

_overrides: list[Services] = []


def services() -> Services:
    """Return the services of this process. Building them opens no connection and reads no secret (SnapStart)."""
    return _overrides[-1] if _overrides else _build_services()


def prepare() -> None:
    """Build the services, and fetch the default collection if it is a published one: callers wait for neither.

    Where a request follows at once, connections are opened and the secret is read in the meantime. Nothing of that is
    waited for, and nothing of it is in a SnapStart snapshot.
    """
    found = services()
    if isinstance(found.store, VersionedStore):
        found.store.prepare(found.settings.collection, INIT_WAIT_S)
    is_awaited = os.environ.get("AWS_LAMBDA_INITIALIZATION_TYPE") == ON_DEMAND
    if is_awaited:
        Keys(found.settings).read_early()
    clients: tuple[Any, ...] = (found.store, found.embedder)
    for client in clients:
        if hasattr(client, "transport"):
            client.transport.prepare(client.url, opens=is_awaited)


def settings() -> Settings:
    """Return the settings of this process."""
    return _overrides[-1].settings if _overrides else _read_settings()


def lambda_deadline(context: Any) -> Deadline:
    """Return the deadline of a Lambda invocation, which is never later than Lambda's own less a reserve."""
    budget = settings().deadline_ms or LAMBDA_DEADLINE_MS
    left = context.get_remaining_time_in_millis() - RESERVE_MS
    return Deadline(max(0, min(budget, left)))


def start_tracing() -> None:
    """Let this process make spans, if a variable or its own code has set up OpenTelemetry."""
    is_configured = any(name.startswith("OTEL_") for name in os.environ) or "opentelemetry.sdk.trace" in sys.modules
    if tracing.tracer is None and is_configured:
        from chunkproof.service.tracing import configure

        tracing.tracer = configure()


Handler = Callable[[Mapping[str, Any], Any], dict[str, Any]]


def flush_after(handler: Handler) -> Handler:
    """Let a step of a job send its spans and metrics before it ends."""

    def handle(event: Mapping[str, Any], context: Any) -> dict[str, Any]:
        try:
            return handler(event, context)
        finally:
            if tracing.tracer is not None:
                tracing.tracer.flush(min(FLUSH_MS, context.get_remaining_time_in_millis() - RESERVE_MS) / 1000)

    return handle


@contextmanager
def override(given: Services) -> Iterator[None]:
    """Let handlers use these services instead, such as a local store and model."""
    _overrides.append(given)
    try:
        yield
    finally:
        _overrides.pop()


def reset() -> None:
    """Drop what was built, so that tests can start as a new process would."""
    _build_services.cache_clear()
    _read_settings.cache_clear()
    clear_secret_cache()


@cache
def _read_settings() -> Settings:
    return Settings.from_env()


@cache
def _build_services() -> Services:
    from chunkproof.net.resilience import CircuitBreaker

    start_tracing()
    Keys(_read_settings()).prepare()
    circuits = {"qdrant": CircuitBreaker("qdrant")}
    # Within a region, compressing a response takes longer than transferring it.
    settings, breaker = _read_settings(), circuits["qdrant"]
    store = published_store(settings, breaker) or qdrant_store(settings, breaker, compressed=False)
    builder = EmbedderBuilder(_read_settings(), circuits)
    embedder = builder.default(_read_settings().embedder or "cohere")
    embedders = CollectionEmbedders(_read_settings().models, builder)
    tuple(embedders.values())  # built now, so that what they import is part of a Lambda snapshot
    circuits["rerank"] = CircuitBreaker("rerank")
    reranker = cohere_reranker(_read_settings(), circuits["rerank"])
    return Services(_read_settings(), store, embedder, circuits, embedders, reranker=reranker)


def published_store(settings: Settings, breaker: "CircuitBreaker | None" = None) -> "PublishedStore | None":
    """The collections in `CHUNKPROOF_PUBLISHED_BUCKET`, if it is set."""
    if settings.published_bucket is None:
        return None
    from pathlib import Path
    from tempfile import gettempdir

    from chunkproof.net.s3 import Bucket
    from chunkproof.stores.published import PublishedCollections
    from chunkproof.stores.published_store import PublishedStore

    if settings.qdrant_url is not None:
        raise NotConfiguredError("QDRANT_URL and CHUNKPROOF_PUBLISHED_BUCKET are both set: set one of them")
    published = PublishedCollections(Bucket(settings.published_bucket))
    return PublishedStore(published, Path(gettempdir()) / "chunkproof-published", breaker)


def qdrant_store(
    settings: Settings, breaker: "CircuitBreaker | None" = None, *, compressed: bool = True
) -> "ServerStore":
    """The Qdrant server at `QDRANT_URL`."""
    from chunkproof.net.transport import DeadlineTransport, host_of
    from chunkproof.stores.server import ServerStore

    if settings.qdrant_url is None:
        raise NotConfiguredError("QDRANT_URL is not set: it must be an http or https URL")
    keys = Keys(settings)
    is_near = host_of(settings.qdrant_url).startswith(("localhost", "127.", "[::1]"))
    transport = DeadlineTransport(
        keys.for_qdrant,
        expire_key=keys.expire,
        breaker=breaker,
        compressed=compressed and not is_near,
        keep_headers=settings.secret_arn is None,
    )
    return ServerStore(settings.qdrant_url, transport)


def cohere_reranker(settings: Settings, breaker: "CircuitBreaker | None" = None) -> "CohereReranker":
    """Cohere's reranking models, with the same key; its failures do not stop embeddings."""
    from chunkproof.embedders.cohere import CohereReranker
    from chunkproof.net.transport import DeadlineTransport

    keys = Keys(settings)
    transport = DeadlineTransport(keys.for_cohere, expire_key=keys.expire, breaker=breaker)
    return CohereReranker(transport, base_url=settings.cohere_base_url)


def check_health(*, services: Services | None = None, deadline: Deadline) -> Health:
    """Report that this process responds; with services, also whether Qdrant and the embedder do."""
    if services is None:
        return Health(status="ok", contract_version=CONTRACT_VERSION)
    embedder = services.collection(None, deadline).require_embedder()
    # Half of the time each, so that both are asked even when one does not respond.
    half = Deadline(deadline.remaining_ms() / 2)
    qdrant = _check(lambda: services.store.collections(half), services.circuits.get("qdrant"))
    embedding = _check(
        lambda: check_embeddings(embedder.embed(["ping"], InputType.QUERY, deadline), 1),
        services.circuits.get(getattr(embedder, "service", "")),
    )
    is_ok = qdrant.status == embedding.status == "ok"
    return Health(
        status="ok" if is_ok else "down", contract_version=CONTRACT_VERSION, qdrant=qdrant, embedder=embedding
    )


def _check(call: Callable[[], object], breaker: "CircuitBreaker | None") -> DependencyHealth:
    watch = Stopwatch()
    why: str | None = None
    try:
        call()
    except ChunkproofError as error:
        why = str(error)
    return DependencyHealth(
        status="down" if why else "ok",
        latency_ms=watch.ms(),
        message=why,
        circuit=breaker.state.value if breaker else None,
    )
