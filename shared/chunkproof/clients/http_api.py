"""Call a JSON API within a deadline, and translate its failures into errors that leak no key, path or upstream body."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import httpx
from pydantic_core import from_json

from chunkproof.clients.resilience import CircuitOpenError
from chunkproof.clients.transport import UpstreamResponseTooLargeError, retry_after
from chunkproof.deadline import Deadline
from chunkproof.errors import ChunkproofError, RateLimitedError, UnavailableError

# What code raises that reads a response which is not one of the API.
MALFORMED = (httpx.HTTPError, ValueError, AttributeError, KeyError, TypeError, IndexError, RecursionError)

Result = TypeVar("Result")
Refusal = Callable[[int, str], ChunkproofError | None]


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One route of an API: its path, what it returns, and the errors that its failures become.

    The last three are what messages advise to check: the settings of a refused request (4xx), what a service refuses
    with 401 or 403 together with its setting, and the setting of the address.
    """

    path: str
    returns: str
    failed: type[UnavailableError]
    timed_out: type[UnavailableError]
    disconnected: type[UnavailableError]
    wrong_request: str
    refused: str = "the key; check COHERE_API_KEY"
    address: str = "COHERE_BASE_URL"


@dataclass(frozen=True, slots=True)
class Call:
    """A call of an endpoint of a host, for a model."""

    endpoint: Endpoint
    host: str
    model: str

    def run(
        self,
        send: Callable[[], httpx.Response],
        read: Callable[[Any], Result],
        deadline: Deadline,
        refusal: Refusal = lambda _status, _text: None,
    ) -> Result:
        """Send a request and return what `read` takes from the JSON of the response; a failure is Chunkproof's error.

        `refusal` may return the error for a status and the text of its response; None leaves it to the usual ones.
        """
        error: ChunkproofError
        endpoint, host = self.endpoint, self.host
        try:
            with deadline.enforced():
                response = send()
                if response.is_success:
                    return read(from_json(response.content))
            error = refusal(response.status_code, response.text) or self._status_error(response)
        except CircuitOpenError as opened:
            error = endpoint.failed(
                f"{host} failed repeatedly; calls to it are paused for a moment", retry_after=opened.retry_after
            )
        except UpstreamResponseTooLargeError:
            error = endpoint.failed(f"{host} sent more bytes than any {endpoint.returns} has")
        except httpx.TimeoutException:
            error = endpoint.timed_out(f"{host} did not answer in time")
        except httpx.ConnectError:
            error = endpoint.disconnected(f"{host} could not be reached; check the network and {endpoint.address}")
        except httpx.TransportError:
            error = endpoint.disconnected(f"{host} closed the connection before the response was complete")
        except ChunkproofError:  # such as a key that could not be read
            raise
        except MALFORMED:
            article = "an" if endpoint.returns[0] in "aeiou" else "a"
            error = endpoint.failed(f"{host} sent a response that is not {article} {endpoint.returns}")
        raise error from None

    def _status_error(self, response: httpx.Response) -> ChunkproofError:
        endpoint, status = self.endpoint, response.status_code
        wait = retry_after(response.headers)
        if status in (401, 403):
            return endpoint.failed(f"{self.host} refused {endpoint.refused}")
        if status == 404:
            setting = re.split(r" (?:and|or) ", endpoint.wrong_request)[0]
            return endpoint.failed(f"{self.host} does not know the model {self.model}; check {setting}")
        if status == 429:
            limited = f"{self.host} limits the rate of {endpoint.returns}s; try again later"
            return RateLimitedError(limited, retry_after=wait)
        if status in (408, 504):
            return endpoint.timed_out(f"{self.host} timed out ({status})", retry_after=wait)
        hint = f"; check {endpoint.wrong_request}" if 400 <= status < 500 else ""
        return endpoint.failed(f"{self.host} answered {status}{hint}", retry_after=wait)
