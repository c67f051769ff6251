"""What of a Qdrant server's answers is read, in its API's own names; the SDK checks an answer against these."""

from typing import Any, Generic, NotRequired, TypeVar

from typing_extensions import TypedDict  # pydantic wants this one before Python 3.12

PointId = int | str
Payload = dict[str, Any]
Result = TypeVar("Result")


class Named(TypedDict):
    """One of the server's collections."""

    name: str


class Names(TypedDict):
    """All of the server's collections."""

    collections: list[Named]


class Vector(TypedDict):
    """A dense vector of a collection; with a `multivector_config`, one vector per token."""

    size: int
    distance: str
    multivector_config: NotRequired[Any]


class Params(TypedDict):
    """The vectors: one without a name, or several by name; absent when all are sparse."""

    vectors: NotRequired[Vector | dict[str, Vector] | None]


class StrictMode(TypedDict):
    """What the server refuses."""

    enabled: NotRequired[bool | None]
    unindexed_filtering_retrieve: NotRequired[bool | None]


class Config(TypedDict):
    """How a collection was made."""

    params: Params
    strict_mode_config: NotRequired[StrictMode | None]


class Index(TypedDict):
    """An index of a payload field."""

    data_type: str


class Info(TypedDict):
    """A collection."""

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
    """A point that a search found."""

    score: float


class Found(TypedDict):
    """The points that a search found."""

    points: list[ScoredPoint]


class Scrolled(TypedDict):
    """A page of points."""

    points: list[Record]
    next_page_offset: NotRequired[PointId | None]


class Counted(TypedDict):
    """A number of points."""

    count: int


class Written(TypedDict):
    """What became of a write."""

    status: str


class Answer(TypedDict, Generic[Result]):
    """The envelope of every answer."""

    result: Result


# Made once: a generic type is slow to make.
NAMES = Answer[Names]
INFO = Answer[Info]
FOUND = Answer[Found]
RECORDS = Answer[list[Record]]
SCROLLED = Answer[Scrolled]
COUNTED = Answer[Counted]
MADE = Answer[bool]
WRITTEN = Answer[Written]
