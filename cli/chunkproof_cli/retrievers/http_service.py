"""A retriever behind HTTP: any service that takes a query and returns JSON."""

from collections.abc import Mapping
from typing import Any

import httpx

from chunkproof.clients.transport import tls_context
from chunkproof.errors import InvalidParameterError, RateLimitedError
from chunkproof.urls import is_http_url
from chunkproof_cli.output import escape_controls, shorten
from chunkproof_cli.retrievers.errors import RetrieverError, RetrieverUnavailableError
from chunkproof_cli.retrievers.mapping import Mapper, fill_url

LONGEST_REASON = 120


class HttpRetriever:
    """Sends each query to a URL, as the mapping says: JSON in the body, or parameters with GET."""

    jobs = 4
    is_live = True
    is_served = True

    def __init__(self, url: str, mapper: Mapper) -> None:
        if not is_http_url(fill_url(url, {})):
            raise InvalidParameterError(f"--retriever {url}: not an http or https URL")
        self._url, self._mapper = url, mapper
        in_url = "{query_text}" in url and mapper.request is None
        self._has_default_body = mapper.request is None and not in_url
        self._method = mapper.method or ("GET" if in_url else "POST")
        headers = {"user-agent": "chunkproof", **mapper.fill_headers()}
        self._http = httpx.Client(timeout=mapper.timeout_s, verify=tls_context(), headers=headers)

    def retrieve(self, request: Mapping[str, Any]) -> Any:
        """Send the query, and return the JSON of the response."""
        self._mapper.check_filters(request, taken=self._has_default_body or "{filters}" in self._url)
        return read_json(self.send(fill_url(self._url, request), self._fill(request)))

    def _fill(self, request: Mapping[str, Any]) -> dict[str, Any]:
        if self._mapper.request is not None:
            content = self._mapper.fill(request)
        elif "{query_text}" in self._url:
            return {}
        else:
            content = {"query": request["query_text"], "top_k": request["top_k"]}
            content |= {"filters": request["filters"]} if request.get("filters") else {}
        return {"params" if self._method == "GET" else "json": content}

    def send(self, url: str, content: dict[str, Any], headers: Mapping[str, str] | None = None) -> httpx.Response:
        """Send a request; a status other than 2xx is an error."""
        try:
            response = self._http.request(self._method, url, headers=headers, **content)
        except httpx.TimeoutException:
            raise RetrieverUnavailableError(
                f"The retriever did not respond within {self._mapper.timeout_s:g} s (timeout_s of --retriever-map)"
            ) from None
        except httpx.HTTPError as error:
            reason = escape_controls(str(error)) or type(error).__name__
            raise RetrieverUnavailableError(f"The retriever could not be reached: {reason}") from None
        if not response.is_success:
            raise _refusal(response)
        return response

    def close(self) -> None:
        """Close the connections."""
        self._http.close()


def read_json(response: httpx.Response) -> Any:
    """Return the JSON of a response; `RetrieverError` when it is none."""
    try:
        return response.json()
    except ValueError:
        kind = response.headers.get("content-type", "no content type")
        raise RetrieverError(f"The retriever's response is not JSON ({shorten(kind, LONGEST_REASON)})") from None


def _refusal(response: httpx.Response) -> RetrieverError | RetrieverUnavailableError | RateLimitedError:
    """Return the error of a status. The body may quote what a report must not, so it is left out."""
    status = f"The retriever answered {response.status_code} {response.reason_phrase}".rstrip()
    if response.status_code == httpx.codes.TOO_MANY_REQUESTS:
        return RateLimitedError(status, retry_after=_read_seconds(response.headers.get("retry-after")))
    if response.status_code in (502, 503, 504):
        return RetrieverUnavailableError(status)
    advice = "" if response.is_server_error else "; check the URL, and request and headers in --retriever-map"
    return RetrieverError(f"{status}{advice}")


def _read_seconds(value: str | None) -> float | None:
    try:
        return float(value) if value is not None else None
    except ValueError:
        return None
