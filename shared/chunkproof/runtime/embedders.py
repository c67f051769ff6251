"""Build the embedders that the settings name: one for all collections, and those of single ones."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from threading import RLock
from typing import TYPE_CHECKING

from chunkproof.clients.ports import Embedder
from chunkproof.clients.secrets import Keys
from chunkproof.embedder_config import EmbedderConfig
from chunkproof.errors import NotConfiguredError
from chunkproof.settings import Settings

if TYPE_CHECKING:
    import httpx

    from chunkproof.clients.resilience import CircuitBreaker

LOCAL_IN_LAMBDA = "{place} is local, which only a terminal has: set it to cohere, bedrock or openai"


class EmbedderBuilder:
    """Builds each embedder once, with one circuit breaker for each address; `close` closes their connections.

    On a terminal there are no circuit breakers, and a function of one's own may come from the current folder.
    """

    def __init__(self, settings: Settings, circuits: "dict[str, CircuitBreaker] | None" = None) -> None:
        self._settings = settings
        self._circuits = circuits
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
                self._built[known] = make(self, config)
            return self._built[known]

    def close(self) -> None:
        """Close the connections."""
        self._opened.close()

    @property
    def _is_terminal(self) -> bool:
        return self._circuits is None

    def _make_cohere(self, config: EmbedderConfig) -> Embedder:
        from chunkproof.clients.cohere import CohereEmbedder

        name = config.key or "COHERE_API_KEY"
        self._check_key(name, config)
        made = CohereEmbedder(self._transport(config, lambda: self._keys.bearer(name, required=True)), config)
        self._opened.callback(made.close)
        return made

    def _make_openai(self, config: EmbedderConfig) -> Embedder:
        from chunkproof.clients.openai_api import OpenAiEmbedder

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
        from chunkproof.clients.bedrock import BedrockEmbedder

        made = BedrockEmbedder(self._transport(config, dict), config)
        self._opened.callback(made.close)
        if not self._is_terminal:
            made.prepare()
        return made

    def _make_local(self, config: EmbedderConfig) -> Embedder:
        if not self._is_terminal:
            raise NotConfiguredError(LOCAL_IN_LAMBDA.format(place=config.place))
        from chunkproof.clients.local_model import local_model

        return local_model()

    def _make_python(self, config: EmbedderConfig) -> Embedder:
        from chunkproof.clients.python_embedder import open_python_embedder

        return open_python_embedder(config, from_here=self._is_terminal)

    def _transport(self, config: EmbedderConfig, headers: Callable[[], Mapping[str, str]]) -> "httpx.BaseTransport":
        from chunkproof.clients.transport import DeadlineTransport

        breaker = self._breaker(config.provider, config.base_url)
        return DeadlineTransport(headers, expire_key=self._keys.expire, breaker=breaker)

    def _breaker(self, provider: str, address: str | None) -> "CircuitBreaker | None":
        """Return the breaker of an address: named as the provider, and with the host for a second one of it."""
        if self._circuits is None:
            return None
        from chunkproof.clients.resilience import CircuitBreaker
        from chunkproof.clients.transport import host_of

        key = (provider, address)
        if key not in self._named:
            name = provider if provider not in self._named.values() else f"{provider} {host_of(address or '')}"
            self._named[key] = name
            self._circuits.setdefault(name, CircuitBreaker(name))
        return self._circuits[self._named[key]]

    def _check_key(self, name: str, config: EmbedderConfig) -> None:
        """On a terminal, a missing key is reported before anything else happens."""
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

    def build_all(self) -> None:
        """Build all of them now, so that what they import is part of a Lambda snapshot."""
        for collection in self:
            self[collection]
