"""Embedding models of Amazon Bedrock, by boto3: Cohere's and Amazon's Titan. There is no key: the role may call them.

boto3 builds, signs and parses; the shared transport sends. botocore lets a handler of its event `before-send` answer
a request, so deadline, retries, circuit breaker and size limits apply as to every other service.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache, cached_property
from io import BytesIO
from threading import Lock
from typing import Any

import httpx

from chunkproof.base.embedder_config import EmbedderConfig, bedrock_family
from chunkproof.base.errors import ChunkproofError, EmbeddingTimeoutError, NotConfiguredError, RateLimitedError
from chunkproof.base.request import Deadline, run_with_timeout
from chunkproof.embedders.embedder_port import InputType
from chunkproof.embedders.embedding_api import ServiceEmbedder, too_long
from chunkproof.net.resilience import Result, ServiceCall
from chunkproof.net.transport import host_of

COHERE = "cohere.embed"
COHERE_BATCH, TITAN_BATCH = 96, 16
# Titan takes one text per call; this many calls run at a time.
TITAN_CALLS = 8
_LIMITED = ("Throttling", "TooManyRequests", "ServiceQuotaExceeded")
_UNKNOWN_MODEL = ("model identifier is invalid", "on-demand throughput isn", "inference profile")


class BedrockEmbedder(ServiceEmbedder):
    """An `Embedder` that calls `InvokeModel` of Amazon Bedrock, and never lets it truncate a text."""

    service = "bedrock"
    PATH, ADDRESS = "invoke", "AWS_ENDPOINT_URL_BEDROCK_RUNTIME and CHUNKPROOF_BEDROCK_REGION"
    REFUSED = "the call; the role needs bedrock:InvokeModel, and the account access to the model"

    def __init__(self, transport: httpx.BaseTransport, config: EmbedderConfig | None = None, **fields: Any) -> None:
        super().__init__(transport, config, **fields)
        families = {bedrock_family(self.model), bedrock_family(self.query_model)}
        self.max_batch = COHERE_BATCH if families == {COHERE} else TITAN_BATCH
        self._lock = Lock()

    def prepare(self) -> None:
        """Import boto3 and load its description of Bedrock, before the first request; opens no socket.

        No credentials are looked up yet: under SnapStart they come from an HTTP endpoint, and not before the restore.
        """
        from botocore.exceptions import BotoCoreError

        with suppress(BotoCoreError):  # such as no region: the first call will report it
            self._make_client(aws_access_key_id="unused", aws_secret_access_key="unused")  # noqa: S106

    def embed(self, texts: Sequence[str], input_type: InputType, deadline: Deadline) -> list[list[float]]:
        """Return one vector per text, of length 1."""
        model, sent, client = self._model_for(input_type), self._add_prefix(texts, input_type), self._connect(deadline)

        def embed_by_titan(text: str) -> list[float]:
            body = {"inputText": text, **self._titan_options(model)}
            return self._invoke(client, model, body, lambda answer: list(answer["embedding"]), deadline)

        if bedrock_family(model) == COHERE:
            body: dict[str, Any] = {"texts": sent, "input_type": input_type.value}
            body |= {"truncate": "NONE", "embedding_types": ["float"]}
            if self.dimension is not None:
                body["output_dimension"] = self.dimension
            vectors = self._invoke(client, model, body, _read_cohere, deadline)
        elif len(sent) == 1:
            vectors = [embed_by_titan(sent[0])]
        else:
            with ThreadPoolExecutor(TITAN_CALLS) as pool:
                vectors = list(pool.map(embed_by_titan, sent))
        return self._to_unit_vectors(vectors, model)

    def _titan_options(self, model: str) -> dict[str, Any]:
        # The first version takes the text alone, and its vectors have any length.
        options: dict[str, Any] = {} if "text-v1" in model else {"normalize": True}
        return options if self.dimension is None else {**options, "dimensions": self.dimension}

    def _invoke(
        self, client: Any, model: str, body: dict[str, Any], read: Callable[[Any], Result], deadline: Deadline
    ) -> Result:
        """Call the model and return what `read` takes from its response."""

        def send() -> httpx.Response:
            from botocore.exceptions import BotoCoreError, ClientError

            try:
                answer = client.invoke_model(
                    modelId=model, body=json.dumps(body), contentType="application/json", accept="application/json"
                )
                return httpx.Response(200, content=answer["body"].read())
            except ClientError as error:
                return _to_response(error.response)
            except BotoCoreError as error:  # such as a session token that cannot be refreshed
                raise NotConfiguredError(f"Amazon Bedrock cannot be called ({type(error).__name__})") from None

        host = host_of(client.meta.endpoint_url)
        return ServiceCall(self._endpoint, host, model).run(
            send, read, deadline, lambda status, text: self._refuse(status, text, model, host)
        )

    def _refuse(self, status: int, text: str, model: str, host: str) -> ChunkproofError | None:
        if text.startswith(_LIMITED):
            return RateLimitedError(f"{host} limits the rate of embeddings; try again later")
        if status == 400 and any(part in text for part in _UNKNOWN_MODEL):
            return self._endpoint.failed(f"{host} does not know the model {model}; check {self._config.model_setting}")
        return too_long(status, text, model)

    def _connect(self, deadline: Deadline) -> Any:
        """Return the client, with credentials that are valid: looking them up takes no timeout, and may call AWS."""
        from botocore.exceptions import BotoCoreError

        try:
            return run_with_timeout(self._client_with_credentials, max(0.05, deadline.remaining_ms() / 1000))
        except TimeoutError:
            raise EmbeddingTimeoutError("the AWS credentials could not be looked up in time") from None
        except BotoCoreError as error:
            names = {"NoRegionError": "no region is set: set CHUNKPROOF_BEDROCK_REGION or AWS_REGION"}
            reason = names.get(type(error).__name__, type(error).__name__)
            raise NotConfiguredError(f"Amazon Bedrock cannot be called: {reason}") from None

    def _client_with_credentials(self) -> Any:
        with self._lock:
            client, credentials = self._client
            if credentials is None:
                del self._client
                raise NotConfiguredError("Amazon Bedrock cannot be called: there are no AWS credentials")
            credentials.get_frozen_credentials()  # refreshes them if that is due
            return client

    @cached_property
    def _session(self) -> Any:
        import boto3
        import botocore.session

        session = botocore.session.Session()
        session.register_component("data_loader", _load_descriptions())
        return boto3.Session(region_name=self._config.region, botocore_session=session)

    @cached_property
    def _client(self) -> tuple[Any, Any]:
        client = self._make_client()
        client.meta.events.register("before-send.bedrock-runtime", self._send)
        return client, self._session.get_credentials()

    def _make_client(self, **credentials: str) -> Any:
        from botocore.config import Config

        config = Config(retries={"total_max_attempts": 1})
        address = self._config.base_url
        return self._session.client("bedrock-runtime", endpoint_url=address, config=config, **credentials)

    def _send(self, request: Any, **_event: Any) -> Any:
        """Send what boto3 has signed through the shared transport."""
        from botocore.awsrequest import AWSResponse

        headers = {
            name: value.decode() if isinstance(value, bytes) else value for name, value in request.headers.items()
        }
        response = self._http.request(request.method, request.url, content=request.body, headers=headers)
        return AWSResponse(request.url, response.status_code, response.headers, _Body(response.content))


class _Body(BytesIO):
    """The body of a response, as botocore reads it."""

    def stream(self, **_options: Any) -> Iterator[bytes]:
        while part := self.read(65_536):
            yield part


def _read_cohere(answer: Any) -> list[list[float]]:
    """Read the vectors by type, as they are requested, or the plain list of older models."""
    vectors = answer["embeddings"]
    return list(vectors["float"] if isinstance(vectors, dict) else vectors)


@cache
def _load_descriptions() -> Any:
    """Return botocore's loader of service descriptions, which reads each file once: that takes longer than a call."""
    from botocore.loaders import create_loader

    return create_loader()


def _to_response(answer: Any) -> httpx.Response:
    """Make a response of the error that boto3 read: code and message, status, and how long to wait."""
    error, meta = answer.get("Error", {}), answer.get("ResponseMetadata", {})
    wait = meta.get("HTTPHeaders", {}).get("retry-after")
    text = f"{error.get('Code', '')}: {error.get('Message', '')}"
    status = meta.get("HTTPStatusCode") or 500
    # A response of 200 whose body is no JSON is an error to boto3 as well.
    return httpx.Response(status if status >= 400 else 502, text=text, headers={"retry-after": wait} if wait else {})
