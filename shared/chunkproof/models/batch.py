"""Several queries in one request."""

import json
from collections.abc import Mapping
from copy import copy
from typing import Any

from chunkproof.models.base import BrokenRules, Limits
from chunkproof.models.json import Faulty

MAX_QUERIES = 32
# These belong to the request, not to each of its queries.
_OF_THE_REQUEST = {"queries", "query_id", "created_at"}


def check_queries(value: Any) -> Any:
    """Check the number of queries. What is wrong with one of them is found when it is its turn."""
    if value is None or isinstance(value, Faulty):
        return value
    if not isinstance(value, list | tuple):
        raise BrokenRules("queries must be a list")
    if not 1 <= len(value) <= MAX_QUERIES:
        raise BrokenRules(f"queries must have 1 to {MAX_QUERIES} items, not {len(value):,}")
    return tuple(value)


def query_documents(request: Any, limits: Limits) -> list[Any]:
    """Return each query as a document of its own, with the fields that the request has for all of them.

    `BrokenRules` if they want more results together than one query may have. `request` is a `SearchQuery`.
    """
    shared = request.model_dump_json(include=request.model_fields_set - _OF_THE_REQUEST)
    documents = [_complete(one, json.loads(shared), request.aliases) for one in request.queries]
    total = sum(_wanted(one, request.defaults(limits)["top_k"]) for one in documents)
    if total > limits.max_top_k:
        raise BrokenRules(f"the queries want {total:,} results together; {limits.max_top_k:,} are the most")
    return documents


def _wanted(one: Any, default: int) -> int:
    """Return how many results, or candidates for reranking, a query wants; what is wrong there is found later."""
    fields = one if isinstance(one, dict) else {}
    rerank = fields.get("rerank")
    numbers = (fields.get("top_k", default), rerank.get("candidates") if isinstance(rerank, dict) else 0)
    return max(number if type(number) is int else 0 for number in numbers)


def _complete(one: Any, shared: dict[str, Any], aliases: Mapping[str, str]) -> Any:
    if isinstance(one, str):
        return {**shared, "query_text": one}
    if not isinstance(one, dict):
        return one
    given = {aliases.get(name, name) for name in one}
    whole = copy(one)  # of the same kind: one kind of dict remembers the names that were given twice
    whole.update({name: value for name, value in shared.items() if name not in given})
    return whole
