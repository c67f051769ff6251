"""What the handlers in this folder share: a checked request, a log line, metrics, an answer for API Gateway.

Powertools and pydantic as their documentation has them for a function with one route, without the resolver, which
would only be slower.
"""

import json
from collections.abc import Callable, Iterable
from time import perf_counter
from typing import Any

from aws_lambda_powertools import Logger, Metrics
from aws_lambda_powertools.metrics import MetricUnit
from pydantic import BaseModel, ConfigDict, Field, ValidationError

Hit = tuple[str, float, dict[str, Any]]  # text, score, metadata
logger, metrics = Logger(), Metrics()


class Query(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    query_text: str = Field(min_length=1, max_length=10_000)
    top_k: int = Field(5, ge=1, le=1000)


def search_handler(
    find: Callable[[str, int], Iterable[Hit]],
) -> Callable[[dict[str, Any], Any], dict[str, Any]]:
    """A Lambda handler around a search."""

    @metrics.log_metrics
    @logger.inject_lambda_context
    def lambda_handler(event: dict[str, Any], _context: Any) -> dict[str, Any]:
        started = perf_counter()
        try:
            query = Query.model_validate_json(event["body"])
        except ValidationError as error:
            return answer(400, {"errors": [detail["msg"] for detail in error.errors()]})
        results = results_of(find(query.query_text, query.top_k))
        latency = (perf_counter() - started) * 1000
        logger.info(
            "search",
            extra={"query_chars": len(query.query_text), "results": len(results), "latency_ms": latency},
        )
        metrics.add_metric("Latency", MetricUnit.Milliseconds, latency)
        metrics.add_metric("Results", MetricUnit.Count, len(results))
        return answer(200, {"query": query.query_text, "results": results})

    return lambda_handler


def results_of(hits: Iterable[Hit]) -> list[dict[str, Any]]:
    return [
        {"rank": rank, "text": text, "similarity_score": score, "metadata": metadata}
        for rank, (text, score, metadata) in enumerate(hits, start=1)
    ]


def answer(status: int, body: dict[str, Any]) -> dict[str, Any]:
    return {
        "statusCode": status,
        "headers": {"content-type": "application/json"},
        "body": json.dumps(body, ensure_ascii=False),
        "isBase64Encoded": False,
    }
