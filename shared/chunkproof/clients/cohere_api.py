"""Call Cohere's HTTP API through the HTTP client of Cohere's SDK, and translate its failures.

`cohere.ClientV2` is not used: building one imports a model for every chat event and a tokenizer (0.4 s and 25 MB,
docs/guides/performance.md), and its `embed` handles each number of a vector in Python. `SyncClientWrapper`, on which
`ClientV2` is built, adds the SDK's headers and builds its URLs; that is all that these calls need. The layer pins
the SDK, and tests/integration/test_light_sdk_imports.py fails when a release no longer fits.
"""

from collections.abc import Callable
from typing import Any

import httpx
from cohere.core.client_wrapper import SyncClientWrapper

from chunkproof.clients.http_api import Call, Endpoint, Refusal, Result
from chunkproof.clients.transport import DirectClient, host_of
from chunkproof.deadline import Deadline

DEFAULT_URL = "https://api.cohere.com"
# The SDK requires a key; the transport replaces this one by the real key.
PLACEHOLDER_KEY = "unset"
HEADERS = {"content-type": "application/json"}


class CohereApi:
    """Sends requests to Cohere, or to another address that speaks its API; the transport adds the key."""

    def __init__(self, transport: httpx.BaseTransport, base_url: str | None) -> None:
        self.url = base_url or DEFAULT_URL
        self.host = host_of(self.url)
        self._http = DirectClient(transport)
        sdk = SyncClientWrapper(token=PLACEHOLDER_KEY, base_url=self.url, max_retries=0, httpx_client=self._http)
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

        def send() -> httpx.Response:
            return self._request(endpoint.path, method="POST", json=body, headers=HEADERS)

        return Call(endpoint, self.host, str(body.get("model"))).run(send, read, deadline, refusal)

    def close(self) -> None:
        """Close the connections."""
        self._http.close()
