"""The parts of a Qdrant server's responses that are read. The SDK validates a response against these types."""

from typing import Annotated, Any, Generic, NotRequired, TypeVar

from pydantic import ConfigDict, FailFast
from typing_extensions import TypedDict  # pydantic wants this one before Python 3.12

PointId = int | str
Payload = dict[str, Any]
Result = TypeVar("Result")
Item = TypeVar("Item")


class _FailFast(FailFast):
    """The SDK keeps what it builds for a type in a dictionary."""

    __hash__ = object.__hash__


# One wrong item shows that the response is not Qdrant's; describing millions of them would take seconds.
Items = Annotated[list[Item], _FailFast()]


class CollectionName(TypedDict):
    """The entry of one collection in the list of collections."""

    name: str


class CollectionList(TypedDict):
    """All collections of the server."""

    collections: Items[CollectionName]


class Alias(TypedDict):
    """Another name of a collection."""

    alias_name: str
    collection_name: str


class AliasList(TypedDict):
    """All aliases of the server."""

    aliases: Items[Alias]


class Vector(TypedDict):
    """Configuration of a dense vector; with a `multivector_config` there is one vector per token."""

    size: int
    distance: str
    multivector_config: NotRequired[Any]


class Params(TypedDict):
    """The dense vectors: one without a name, or several by name; absent when all vectors are sparse."""

    vectors: NotRequired[Vector | dict[str, Vector] | None]
    sparse_vectors: NotRequired[dict[str, Any] | None]


class StrictMode(TypedDict):
    """Limits that the server enforces."""

    enabled: NotRequired[bool | None]
    unindexed_filtering_retrieve: NotRequired[bool | None]


class Config(TypedDict):
    """Configuration of a collection."""

    params: Params
    strict_mode_config: NotRequired[StrictMode | None]
    quantization_config: NotRequired[dict[str, Any] | None]


class Index(TypedDict):
    """The index of a payload field."""

    data_type: str
    params: NotRequired[dict[str, Any] | None]


class CollectionInfo(TypedDict):
    """Configuration, indexes and counts of a collection."""

    status: str
    points_count: NotRequired[int | None]
    indexed_vectors_count: NotRequired[int | None]
    config: Config
    payload_schema: dict[str, Index]


class Record(TypedDict):
    """A stored point."""

    id: PointId
    payload: NotRequired[Payload | None]
    vector: NotRequired[Any]


class ScoredPoint(Record):
    """A search result."""

    score: float


class QueryResult(TypedDict):
    """The results of a search."""

    points: Items[ScoredPoint]


class Group(TypedDict):
    """The results that have one value of a payload field in common."""

    id: PointId
    hits: Items[ScoredPoint]


class GroupResult(TypedDict):
    """The results of a search with grouping."""

    groups: Items[Group]


class Greeting(TypedDict):
    """What a server says of itself, without the envelope."""

    version: str


class ScrollPage(TypedDict):
    """A page of points."""

    points: Items[Record]
    next_page_offset: NotRequired[PointId | None]


class Count(TypedDict):
    """The number of points that meet a filter."""

    count: int


class FacetHit(TypedDict):
    """A value of a payload field, and how many points have it."""

    value: str | int | bool
    count: int


class Facet(TypedDict):
    """The most frequent values of a payload field."""

    hits: list[FacetHit]


class WriteResult(TypedDict):
    """The outcome of a write."""

    status: str


class Response(TypedDict, Generic[Result]):
    """The envelope of every response."""

    __pydantic_config__ = ConfigDict(hide_input_in_errors=True)  # type: ignore[misc]

    result: Result


# Built once: parametrizing a generic type is slow.
COLLECTION_LIST = Response[CollectionList]
ALIAS_LIST = Response[AliasList]
COLLECTION_INFO = Response[CollectionInfo]
QUERY_RESULT = Response[QueryResult]
QUERY_RESULTS = Response[Items[QueryResult]]
GROUP_RESULT = Response[GroupResult]
RECORDS = Response[Items[Record]]
SCROLL_PAGE = Response[ScrollPage]
COUNT = Response[Count]
FACET = Response[Facet]
RAW = Response[dict[str, Any]]
CREATED = Response[bool]
WRITE_RESULT = Response[WriteResult]
