"""A server of the Model Context Protocol: search, validation and collection info as tools for agents."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated, Any, Literal, TypeVar

from mcp.server import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.types import ToolAnnotations
from pydantic import Field, ValidationError

from chunkproof import __version__
from chunkproof.errors import ChunkproofError
from chunkproof.models import CollectionInfo, RetrievalResponse, ValidationResult
from chunkproof.retrieval.backend import Backend, LocalBackend
from chunkproof.suite.case_runner import run_case
from chunkproof.suite.cases import TestCase
from chunkproof.suite.diagnosis import Diagnoser
from chunkproof.suite.outcome import TestStatus
from chunkproof.suite.store_evidence import collect_evidence
from chunkproof.why.explain import Explainer, Question
from chunkproof.why.report import WhyReport

INSTRUCTIONS = (
    "Search a collection of text chunks by meaning, check that a stored chunk equals its original byte for byte, "
    "and find out why an expected chunk is not among the results. All tools only read."
)
Result = TypeVar("Result")
Tool = Callable[..., Any]

Collection = Annotated[str | None, Field(description="Collection to use; leave it out for the default one.")]
Filters = Annotated[
    dict[str, Any] | None,
    Field(
        description='Conditions on payload fields, all of which must hold: {"field": value}, {"field": [any, of]}, '
        '{"field": {"gte": 1}}, {"not": {...}}.'
    ),
]
Mode = Annotated[
    Literal["dense", "text", "hybrid"] | None,
    Field(
        description="What to compare: meanings (dense, the default), words (text), or both (hybrid), which also finds "
        "exact names and codes."
    ),
]
GroupBy = Annotated[
    str | None,
    Field(description="A field, such as document_id, of which each value has at most group_size results, or one."),
]


def build_server(backend: Backend, list_collections: Callable[[], list[str]]) -> MCPServer[Any]:
    """Make a server whose tools run against this backend, with its limits, errors and deadline."""
    server: MCPServer[Any] = MCPServer(
        "chunkproof", version=__version__, instructions=INSTRUCTIONS, log_level="WARNING"
    )
    read_only = ToolAnnotations(read_only_hint=True, idempotent_hint=True, open_world_hint=False)

    @server.tool(annotations=read_only)
    def search(  # noqa: PLR0913, PLR0917 - an agent sees the parameters
        query: Annotated[str, Field(description="The question, as a user would ask it.")],
        top_k: Annotated[int, Field(description="At most this many results.")] = 5,
        similarity_threshold: Annotated[float, Field(description="Least score of a result, 0 to 1.")] = 0.0,
        filters: Filters = None,
        collection: Collection = None,
        rerank: Annotated[bool, Field(description="Order the results by a reranking model, if there is one.")] = False,
        highlight: Annotated[
            bool, Field(description="Add the sentence of each result that is nearest to the query.")
        ] = False,
        neighbours: Annotated[
            int, Field(description="Add so many chunks before and after each result in its document, 0 to 5.")
        ] = 0,
        explain: Annotated[
            bool, Field(description="Add how each result got its rank, and how its score compares with random chunks.")
        ] = False,
        mode: Mode = None,
        group_by: GroupBy = None,
        cursor: Annotated[
            str | None, Field(description='For pages of results: "start", then the next_cursor of the page before.')
        ] = None,
        group_size: Annotated[int | None, Field(description="With group_by: results of each value, 1 to 100.")] = None,
        diversity: Annotated[
            float | None, Field(description="Prefer results that differ from each other, 0 to 1.")
        ] = None,
        fusion: Annotated[
            dict[str, Any] | None,
            Field(
                description='With mode hybrid: {"method": "dbsf"}, or {"k": 60, "weights": {"dense": 1, "text": 2}}.'
            ),
        ] = None,
    ) -> RetrievalResponse:
        """Find the stored chunks nearest in meaning to a query, best first, with score, source and the stored text."""
        added = {"rerank": rerank, "highlight": highlight, "neighbours": neighbours, "explain": explain}
        ranking = {"mode": mode, "group_by": group_by, "cursor": cursor}
        tuning = {"group_size": group_size, "diversity": diversity, "fusion": fusion}
        request = {
            "query_text": query,
            "top_k": top_k,
            "similarity_threshold": similarity_threshold,
            "filters": filters or {},
            # Only what is asked for: an older stack knows no other fields.
            **{name: value for name, value in {**added, **ranking}.items() if value},
            **{name: value for name, value in tuning.items() if value is not None},
        }
        with _tool_errors():
            return backend.search(_in_collection(request, collection))

    @server.tool(annotations=read_only)
    def search_many(  # noqa: PLR0917 - an agent sees the parameters
        queries: Annotated[list[str], Field(description="Up to 32 questions, which are searched for at once.")],
        top_k: Annotated[int, Field(description="At most this many results for each of them.")] = 5,
        filters: Filters = None,
        collection: Collection = None,
        mode: Mode = None,
        group_by: GroupBy = None,
    ) -> RetrievalResponse:
        """Answer several queries at once: `responses` has a result or an error for each, in their order."""
        ranking = {"mode": mode, "group_by": group_by}
        request = {
            "queries": queries,
            "top_k": top_k,
            "filters": filters or {},
            **{name: value for name, value in ranking.items() if value is not None},
        }
        with _tool_errors():
            return backend.search(_in_collection(request, collection))

    @server.tool(annotations=read_only)
    def validate_chunk(
        chunk_id: Annotated[str, Field(description="chunk_id or point id of a search result.")],
        original_text: Annotated[str | None, Field(description="What the text should be, exactly.")] = None,
        original_sha256: Annotated[str | None, Field(description="SHA-256 of what the text should be.")] = None,
        collection: Collection = None,
    ) -> ValidationResult:
        """Check that a stored chunk equals its original byte for byte; if not, say what differs and why.

        Without an original, the hash in the chunk's own payload is checked.
        """
        given = {"chunk_id": chunk_id, "original_text": original_text, "original_sha256": original_sha256}
        request = {name: value for name, value in given.items() if value is not None}
        with _tool_errors():
            return backend.validate(_in_collection(request, collection))

    @server.tool(annotations=read_only)
    def describe_collection(collection: Collection = None) -> CollectionInfo:
        """Describe a collection: vector size, number of points, payload fields and how they are read."""
        with _tool_errors():
            return backend.collection(collection)

    @server.tool(name="list_collections", annotations=read_only)
    def list_names() -> list[str]:
        """List the collections that can be searched."""
        with _tool_errors():
            return list_collections()

    @server.tool(annotations=read_only)
    def explain_missing_chunk(
        query: Annotated[str, Field(description="The question that should find the chunk.")],
        expected: Annotated[str, Field(description="Id of the chunk or document that should be found, or its URL.")],
        top_k: Annotated[int, Field(description="Among how many results it should be.")] = 10,
        filters: Filters = None,
        collection: Collection = None,
    ) -> str:
        """Explain why an expected chunk is not among the results: deleted, changed, filtered out, ranked too low, …"""
        with _tool_errors():
            case = TestCase(
                name="explain",
                query_text=query,
                expected_doc_ids=(expected,),
                top_k=top_k,
                filters=filters or {},
                collection_name=collection,
            )
            result = run_case(case, backend.search)
            if result.status is TestStatus.ERROR:
                raise ToolError(f"{result.error_code}: {result.error_message}")
            if result.status is TestStatus.PASSED:
                return f"{expected} is among the first {top_k} results."
            causes = Diagnoser(collect_evidence(backend)).find_causes(result)
        return "\n".join(f"{cause.cause.value}: {cause.message}" for cause in causes)

    if isinstance(backend, LocalBackend):
        explainer = Explainer(backend.services, backend.new_deadline)

        @server.tool(annotations=read_only)
        def why(
            query: Annotated[str, Field(description="The question that should find the chunk.")],
            expected: Annotated[str, Field(description="Id of the chunk or document, its URL, or a text that it has.")],
            *,
            top_k: Annotated[int, Field(description="Among how many results it should be.")] = 5,
            similarity_threshold: Annotated[float, Field(description="Least score of a result, 0 to 1.")] = 0.0,
            filters: Filters = None,
            collection: Collection = None,
        ) -> WhyReport:
            """Find the smallest change that brings an expected chunk into the results, with all that was tried.

            The search is repeated without each filter, without the threshold, without the index, with the chunk's text
            embedded anew and with near-duplicates collapsed, one by one and in pairs. Nothing is written.
            """
            request = {
                "query_text": query,
                "top_k": top_k,
                "similarity_threshold": similarity_threshold,
                "filters": filters or {},
            }
            with _tool_errors():
                return explainer.explain(Question(_in_collection(request, collection), expected)).report

    return server


def _in_collection(request: dict[str, Any], collection: str | None) -> dict[str, Any]:
    return {**request, "collection": collection} if collection else request


@contextmanager
def _tool_errors() -> Iterator[None]:
    """Report an error of the contract to the agent with its code and messages."""
    try:
        yield
    except ChunkproofError as error:
        raise ToolError(f"{error.code}: {error}") from None
    except ValidationError as error:  # of a test case, which is built from the tool's arguments
        reasons = "; ".join(str(detail["msg"]) for detail in error.errors(include_input=False, include_url=False))
        raise ToolError(f"INVALID_REQUEST: {reasons}") from None
