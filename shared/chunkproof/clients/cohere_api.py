"""Call Cohere's HTTP API through the HTTP client of Cohere's SDK, and translate its failures.

`cohere.ClientV2` is not used: building one imports a model for every chat event and a tokenizer (0.4 s and 25 MB,
docs/guides/performance.md), and its `embed` handles each number of a vector in Python. `SyncClientWrapper`, on which
`ClientV2` is built, adds the SDK's headers and builds its URLs; that is all that these calls need. The layer pins
the SDK, and tests/integration/test_light_sdk_imports.py fails when a release no longer fits.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import httpx
from cohere.core.api_error import ApiError
from cohere.core.client_wrapper import SyncClientWrapper
from pydantic_core import from_json

from chunkproof.clients.resilience import CircuitOpenError
from chunkproof.clients.transport import DirectClient, UpstreamResponseTooLargeError, host_of, retry_after
from chunkproof.deadline import Deadline
from chunkproof.errors import ChunkproofError, RateLimitedError, UnavailableError

DEFAULT_URL = "https://api.cohere.com"
# The SDK requires a key; the transport replaces this one by the real key.
PLACEHOLDER_KEY = "unset"
HEADERS = {"content-type": "application/json"}
# What code raises that reads a response which is not one of Cohere's API.
MALFORMED = (httpx.HTTPError, ValueError, AttributeError, KeyError, TypeError, RecursionError)

Result = TypeVar("Result")
Refusal = Callable[[int, str], ChunkproofError | None]


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One route of the API: its path, what it returns, and the errors that its failures become.

    `wrong_request` is what a message about a refused request (4xx) advises to check.
    """

    path: str
    returns: str
    failed: type[UnavailableError]
    timed_out: type[UnavailableError]
    disconnected: type[UnavailableError]
    wrong_request: str


class CohereApi:
    """Sends requests to Cohere, or to another address that speaks its API; the transport adds the key."""

    def __init__(self, transport: httpx.BaseTransport, base_url: str | None) -> None:
        url = base_url or DEFAULT_URL
        self.host = host_of(url)
        self._http = DirectClient(transport)
        sdk = SyncClientWrapper(token=PLACEHOLDER_KEY, base_url=url, max_retries=0, httpx_client=self._http)
        self._request = sdk.httpx_client.request

    def post(
        self,
        endpoint: Endpoint,
        body: dict[str, Any],
        deadline: Deadline,
        read: Callable[[Any], Result],
        *,
        refusal: Refusal = lambda _status, _text: None,
    ) -> Result:
        """Send a request and return what `read` takes from the response; a failure is one of Chunkproof's errors.

        `refusal` may return the error for a status and the text of its response; None leaves it to the usual ones.
        """
        try:
            with deadline.enforced():
                response = self._request(endpoint.path, method="POST", json=body, headers=HEADERS)
                if not response.is_success:
                    raise ApiError(status_code=response.status_code, headers=dict(response.headers), body=response.text)
                return read(from_json(response.content))
        except ApiError as error:
            raise refusal(error.status_code or 0, str(error.body)) or self._status_error(
                endpoint, error, str(body.get("model"))
            ) from None
        except CircuitOpenError as error:
            raise endpoint.failed(
                f"{self.host} failed repeatedly; calls to it are paused for a moment",
                retry_after=error.retry_after,
            ) from None
        except UpstreamResponseTooLargeError:
            raise endpoint.failed(f"{self.host} sent more bytes than any {endpoint.returns} has") from None
        except httpx.TimeoutException:
            raise endpoint.timed_out(f"{self.host} did not answer in time") from None
        except httpx.ConnectError:
            raise endpoint.disconnected(
                f"{self.host} could not be reached; check the network and COHERE_BASE_URL"
            ) from None
        except httpx.TransportError:
            raise endpoint.disconnected(f"{self.host} closed the connection before the response was complete") from None
        except ChunkproofError:  # the key could not be read
            raise
        except MALFORMED:
            article = "an" if endpoint.returns[0] in "aeiou" else "a"
            raise endpoint.failed(f"{self.host} sent a response that is not {article} {endpoint.returns}") from None

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def _status_error(self, endpoint: Endpoint, error: ApiError, model: str) -> ChunkproofError:
        status = error.status_code or 0
        wait = retry_after(error.headers)
        if status in (401, 403):
            return endpoint.failed(f"{self.host} refused the key; check COHERE_API_KEY")
        if status == 404:
            setting = endpoint.wrong_request.partition(" ")[0]
            return endpoint.failed(f"{self.host} does not know the model {model}; check {setting}")
        if status == 429:
            limited = f"{self.host} limits the rate of {endpoint.returns}s; try again later"
            return RateLimitedError(limited, retry_after=wait)
        if status in (408, 504):
            return endpoint.timed_out(f"{self.host} timed out ({status})", retry_after=wait)
        hint = f"; check {endpoint.wrong_request}" if 400 <= status < 500 else ""
        return endpoint.failed(f"{self.host} answered {status}{hint}", retry_after=wait)
