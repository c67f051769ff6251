"""`POST /search`, `GET /collections/{name}`, `GET /health`."""

from http import HTTPStatus
from typing import Annotated
from urllib.parse import unquote

from aws_lambda_powertools.event_handler import Response
from aws_lambda_powertools.event_handler.openapi.params import Path, Query

from chunkproof.http.resolver import JSON, Api, responses
from chunkproof.models import CollectionInfo, RetrievalResponse, SearchQuery
from chunkproof.models.health import Health
from chunkproof.retrieval.collection import collection_info
from chunkproof.retrieval.health import health
from chunkproof.retrieval.search import search
from chunkproof.runtime.container import services

app = Api()


@app.post(
    "/search", summary="Find the stored chunks nearest to a query", responses=responses(RetrievalResponse)
)
def post_search(query: SearchQuery) -> RetrievalResponse:
    """Embed the query, find the nearest chunks and return them ranked, with score, source and timing."""
    return search(query, services=app.services, deadline=app.deadline)


@app.get("/collections/<name>", summary="What a collection holds", responses=responses(CollectionInfo))
def get_collection(name: Annotated[str, Path(description="The collection's name")]) -> CollectionInfo:
    """Shape, counts, payload fields and how they are read."""
    return collection_info(unquote(name), services=app.services, deadline=app.deadline)


@app.get(
    "/health",
    summary="Whether the service answers",
    responses=responses(Health, unavailable=Health | RetrievalResponse),
)
def get_health(
    deep: Annotated[bool, Query(description="Ask Qdrant and the embedder too")] = False,
) -> Response[Health]:
    """200 when all that was asked is well, 503 when a dependency is down."""
    found = health(services=services() if deep else None, deadline=app.deadline)
    status = HTTPStatus.OK if found.status == "ok" else HTTPStatus.SERVICE_UNAVAILABLE
    return Response(status.value, JSON, found)


lambda_handler = app.prime().handler
