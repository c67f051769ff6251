"""A retriever that is a service: a query is sent to a URL."""

from collections.abc import Mapping
from typing import Any

import httpx

from chunkproof.base.embedder_config import is_http_url
from chunkproof.base.errors import ChunkproofError, InvalidParameterError, RateLimitedError
from chunkproof.net.resilience import retry_after
from chunkproof_cli.api_client import describe_failure, open_http
from chunkproof_cli.retrievers.mapping import (
    Mapper,
    Retriever,
    RetrieverError,
    RetrieverUnavailableError,
    fill_template,
    fill_url,
)

# Content types that a message names; a service can write anything there.
TYPES = ("text/html", "text/plain", "application/json", "application/xml", "text/xml", "application/octet-stream")


class HttpRetriever(Retriever):
    """Sends each query to a URL, as the mapping says: JSON in the body, or parameters with GET."""

    jobs = 4
    is_served = True

    def __init__(self, url: str, mapper: Mapper) -> None:
        if not is_http_url(fill_url(url, {})):
            raise InvalidParameterError(f"--retriever {url}: not an http or https URL")
        self._url, self._mapper = url, mapper
        in_url = "{query_text}" in url and mapper.request is None
        self._has_default_body = mapper.request is None and not in_url
        self._method = mapper.method or ("GET" if in_url else "POST")
        self._http = open_http(mapper.timeout_s, {"user-agent": "chunkproof", **mapper.fill_headers()})

    def retrieve(self, request: Mapping[str, Any]) -> Any:
        """Send the query, and return the JSON of the response."""
        self._mapper.check_filters(request, taken=self._has_default_body or "{filters}" in self._url)
        try:
            response = self._http.request(self._method, fill_url(self._url, request), **self._fill(request))
        except httpx.TimeoutException:
            raise timeout_error("The retriever", self._mapper.timeout_s) from None
        except httpx.HTTPError as error:
            raise unreachable_error(error) from None
        if not response.is_success:
            raise status_error(response.status_code, response.headers)
        try:
            return response.json()
        except ValueError:
            kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
            shown = kind if kind in TYPES else "another content type" if kind else "no content type"
            raise RetrieverError(f"The retriever's response is not JSON ({shown})") from None

    def _fill(self, request: Mapping[str, Any]) -> dict[str, Any]:
        if self._mapper.request is not None:
            content = fill_template(self._mapper.request, request)
        elif "{query_text}" in self._url:
            return {}
        else:
            content = {"query": request["query_text"], "top_k": request["top_k"]}
            content |= {"filters": request["filters"]} if request.get("filters") else {}
        return {"params" if self._method == "GET" else "json": content}

    def close(self) -> None:
        """Close the connections."""
        self._http.close()


def timeout_error(what: str, timeout_s: float) -> RetrieverUnavailableError:
    """Return the error of a call without a response in time."""
    return RetrieverUnavailableError(f"{what} did not respond within {timeout_s:g} s (timeout_s of --retriever-map)")


def unreachable_error(error: Exception) -> RetrieverUnavailableError:
    """Return the error of a failed connection."""
    return RetrieverUnavailableError(f"The retriever could not be reached: {describe_failure(error)}")


def status_error(code: int, headers: Mapping[str, str]) -> ChunkproofError:
    """Return the error of a status. Body and reason may quote what a report must not, so they are left out."""
    status = f"The retriever answered {code} {httpx.codes.get_reason_phrase(code)}".rstrip()
    if code == httpx.codes.TOO_MANY_REQUESTS:
        return RateLimitedError(status, retry_after=retry_after(headers))
    if code in (502, 503, 504):
        return RetrieverUnavailableError(status)
    advice = "" if code >= 500 else "; check the URL, and request and headers in --retriever-map"
    return RetrieverError(f"{status}{advice}")
