"""`POST /search`, `GET /collections/{name}`, `GET /health`."""

from http import HTTPStatus

from aws_lambda_powertools.event_handler import Response

from chunkproof.http.resolver import JSON, Api, responses
from chunkproof.models import CollectionInfo, RetrievalResponse, SearchQuery
from chunkproof.models.health import Health
from chunkproof.retrieval.collection import collection_info
from chunkproof.retrieval.health import check_health
from chunkproof.retrieval.search import search
from chunkproof.runtime.container import services

app = Api()


@app.post("/search", summary="Find the stored chunks nearest to a query", responses=responses(RetrievalResponse))
def post_search(query: SearchQuery) -> RetrievalResponse:
    """Embed the query, find the nearest chunks and return them ranked, with score, source and timing."""
    return search(query, services=app.services, deadline=app.deadline, trace=app.trace)


@app.get("/collections/<name>", summary="Describe a collection", responses=responses(CollectionInfo))
def get_collection(name: str) -> CollectionInfo:
    """Vectors, counts, payload fields and the payload mapping in force."""
    return collection_info(name, services=app.services, deadline=app.deadline, trace=app.trace)


@app.get(
    "/health",
    summary="Check that the service responds",
    responses=responses(Health, unavailable=Health | RetrievalResponse),
)
def get_health(deep: bool = False) -> Response[Health]:
    """With `deep=true`, check Qdrant and the embedder as well: 503 when one of them is down."""
    health = check_health(services=services() if deep else None, deadline=app.deadline)
    status = HTTPStatus.OK if health.status == "ok" else HTTPStatus.SERVICE_UNAVAILABLE
    return Response(status.value, JSON, health)


lambda_handler = app.prime().handler
