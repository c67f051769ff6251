"""`POST /search`, `POST /mcp`, `GET /collections/{name}`, `GET /health`."""

from http import HTTPStatus

from chunkproof.collection.facts import collection_info
from chunkproof.contract import CollectionInfo, RetrievalResponse, SearchQuery
from chunkproof.contract.response import Health
from chunkproof.search.single import search
from chunkproof.service.api import Api, WithStatus, responses
from chunkproof.service.container import check_health, services

app = Api()


@app.post("/search", summary="Find the stored chunks nearest to a query", responses=responses(RetrievalResponse))
def post_search(query: SearchQuery) -> RetrievalResponse:
    """Embed the query, find the nearest chunks and return them ranked, with score, source and timing."""
    return search(query, app.collection(query.collection))


@app.get("/collections/<name>", summary="Describe a collection", responses=responses(CollectionInfo))
def get_collection(name: str) -> CollectionInfo:
    """Vectors, counts, payload fields and the payload mapping in force."""
    return collection_info(app.collection(name))


@app.get(
    "/health",
    summary="Check that the service responds",
    responses=responses(Health, unavailable=Health | RetrievalResponse),
)
def get_health(deep: bool = False) -> WithStatus:
    """With `deep=true`, check Qdrant and the embedder as well: 503 when one of them is down."""
    if deep:
        app.require_caller("GET /health?deep=true")
    health = check_health(services=services() if deep else None, deadline=app.deadline)
    status = HTTPStatus.OK if health.status == "ok" else HTTPStatus.SERVICE_UNAVAILABLE
    return WithStatus(status, health)


@app.get(
    "/health/deep",
    summary="Check Qdrant and the embedder",
    responses=responses(Health, unavailable=Health | RetrievalResponse),
)
def get_deep_health() -> WithStatus:
    """The same as `/health?deep=true`; this route always needs authorization."""
    return get_health(deep=True)


@app.post("/mcp", include_in_schema=False)
def post_mcp() -> WithStatus:
    """Search, validation and `why` as tools for agents (Model Context Protocol)."""
    return app.answer_agent()


lambda_handler = app.prime().handler
