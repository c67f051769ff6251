"""Faults that make a search lose a chunk, planted in a collection of a thousand.

Nothing here uses the code that looks for causes. A `World` is a plain list of points and a request; a fault is a
function of it. Whether a chunk is lost is decided by brute force, and for faults of the index by a real server.
"""

import inspect
import pkgutil
import random
import re
from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from hashlib import sha256
from importlib import import_module
from pathlib import Path
from typing import Any
from uuid import UUID, uuid5

import numpy as np
from numpy.typing import NDArray

from chunkproof.base.request import Deadline
from chunkproof.embedders.embedder_port import Embedder, InputType

Array = NDArray[np.float64]
NAMESPACE = UUID("8d3f2f0e-8a43-5f0a-9a3e-2f1f2c1d9b10")
BATCH = 32
TOP_K = 10
# Modules whose documentation fills the collection up: real English that no question of the handbook asks for.
FILLERS = (
    *("argparse", "ast", "asyncio", "collections", "configparser", "csv", "ctypes", "datetime", "decimal", "difflib"),
    *("dis", "doctest", "email", "fractions", "ftplib", "http", "imaplib", "inspect", "json", "logging", "mailbox"),
    *("multiprocessing", "optparse", "pathlib", "pickle", "random", "shutil", "smtplib", "socket", "sqlite3", "ssl"),
    *("statistics", "string", "subprocess", "tarfile", "tempfile", "threading", "tkinter", "turtle", "unittest"),
    *("urllib", "uuid", "wave", "weakref", "xml", "zipfile"),
)


@dataclass
class Stored:
    """A stored point."""

    vector: Array
    payload: dict[str, Any]


@dataclass
class World:
    """A collection, a question, and what it should find."""

    points: dict[str, Stored]
    question: str
    target: str
    text: str
    filters: dict[str, Any] = field(default_factory=dict)
    threshold: float = 0.0
    is_badly_indexed: bool = False
    is_turned: bool = False
    knows_other_model: bool = False
    planted: tuple[str, ...] = ()
    # What the chunk is expected by, where that is not its id.
    expected: str = ""
    mode: str | None = None
    # Texts that BM25 vectors are made of, by point, where they are not the stored ones.
    indexed_texts: dict[str, str] = field(default_factory=dict)
    has_words: bool = False
    needs_index: bool = True
    is_quantized: bool = False
    # The model takes this many words.
    most_words: int | None = None
    # Other fields of the request, such as the groups of its results.
    options: dict[str, Any] = field(default_factory=dict)
    # Other tokens in place of the words of a BM25 vector.
    has_other_tokens: bool = False


class Embedding:
    """Embeds texts once."""

    def __init__(self, embedder: Embedder) -> None:
        self.embedder = embedder
        self._known: dict[str, Array] = {}

    def __call__(self, text: str) -> Array:
        return self.all([text])[0]

    def load(self, file: Path) -> None:
        """Read embeddings of an earlier run."""
        if file.exists():
            with np.load(file) as kept:
                self._known = dict(zip(kept["texts"].tolist(), kept["vectors"], strict=True))

    def save(self, file: Path) -> None:
        """Keep the embeddings for another run."""
        np.savez(file, texts=np.array(list(self._known)), vectors=np.array(list(self._known.values())))

    def all(self, texts: Sequence[str]) -> list[Array]:
        new = [text for text in dict.fromkeys(texts) if text not in self._known]
        for first in range(0, len(new), BATCH):
            some = new[first : first + BATCH]
            vectors = self.embedder.embed(some, InputType.DOCUMENT, Deadline(600_000))
            self._known |= {text: _unit(np.array(vector)) for text, vector in zip(some, vectors, strict=True)}
        return [self._known[text] for text in texts]


@dataclass
class Remembering:
    """An embedder that keeps what it has embedded, so that only new texts cost time."""

    inner: Embedding
    turn: Array | None = None
    model: str = "all-MiniLM-L6-v2"
    most_words: int | None = None

    @property
    def dimension(self) -> int | None:
        return self.inner.embedder.dimension

    @property
    def max_batch(self) -> int:
        return BATCH

    def excess(self, text: str) -> str | None:
        if self.most_words and len(text.split()) > self.most_words:
            return f"{len(text.split())} words, the model reads {self.most_words}"
        return self.inner.embedder.excess(text)

    def embed(self, texts: Sequence[str], _input_type: InputType, _deadline: Deadline) -> list[list[float]]:
        vectors = self.inner.all(texts)
        return [(vector if self.turn is None else self.turn @ vector).tolist() for vector in vectors]


def _unit(vector: Array) -> Array:
    unit: Array = vector / np.linalg.norm(vector)
    return unit


def other_model(size: int, seed: int = 3) -> Array:
    """Return an orthogonal matrix: the vectors of a model of the same size and quality, with other weights."""
    turned, _ = np.linalg.qr(np.random.default_rng(seed).normal(size=(size, size)))
    return np.asarray(turned)


def filler_texts(most: int, excess: Callable[[str], str | None]) -> list[str]:
    """Return paragraphs of the documentation of Python's own modules, always the same ones."""
    found: dict[str, None] = {}
    for name in _modules():
        try:
            module = import_module(name)
        except Exception:  # noqa: BLE001 - not on this system
            continue
        for _, member in sorted(inspect.getmembers(module), key=lambda pair: pair[0]):
            text = " ".join((inspect.getdoc(member) or "").split())[:700]
            if len(text) > 120 and not excess(text):
                found[text] = None
        if len(found) >= most:
            break
    return list(found)[:most]


def _modules() -> Iterator[str]:
    for name in FILLERS:
        yield name
        try:
            package = import_module(name)
        except Exception:  # noqa: BLE001 - not on this system
            continue
        for inner in sorted(pkgutil.iter_modules(getattr(package, "__path__", [])), key=lambda module: module.name):
            if not inner.name.startswith("_") and inner.name != "idle_test":
                yield f"{name}.{inner.name}"


def build_points(chunks: Sequence[dict[str, Any]], embedding: Embedding) -> dict[str, Stored]:
    """Make the points of some chunks, as a pipeline stores them."""
    vectors = embedding.all([chunk["text"] for chunk in chunks])
    return {
        point_id(chunk["chunk_id"]): Stored(vector, {**chunk, "lang": "en", "kind": "guide"})
        for chunk, vector in zip(chunks, vectors, strict=True)
    }


def point_id(chunk_id: str) -> str:
    return str(uuid5(NAMESPACE, chunk_id))


def results(world: World, embedding: Embedding, turn: Array | None = None) -> list[str]:
    """Search by brute force: return the chunk ids of the first results."""
    query = embedding(world.question)
    if turn is not None:
        query = turn @ query
    found: list[tuple[float, str]] = []
    for stored in world.points.values():
        if all(stored.payload.get(name) == value for name, value in world.filters.items()):
            score = float(stored.vector @ query)
            if score >= max(world.threshold, 0.0):
                found.append((-score, stored.payload["chunk_id"]))
    return [chunk_id for _, chunk_id in sorted(found)[:TOP_K]]


def is_found(world: World, embedding: Embedding) -> bool:
    return world.target in results(world, embedding)


Fault = Callable[[World, "Planter"], None]


@dataclass
class Planter:
    """Plants faults; `spare` are texts that are in no collection, `turn` makes vectors of another model."""

    embedding: Embedding
    spare: Sequence[str]
    turn: Array
    rng: random.Random

    def plant(self, world: World, names: Sequence[str], seed: int) -> World:
        """Return the world with these faults. With the same seed, each of them is the same alone and in a pair."""
        faulty = replace(world, points=dict(world.points), filters=dict(world.filters), planted=tuple(names))
        own = point_id(world.target)
        faulty.points[own] = deepcopy(faulty.points[own])
        self.rng = random.Random(seed)
        for_all = self.rng.random() < 0.5
        knows = self.rng.random() < 0.5
        if "other model" in names and (for_all or {"stale vector", "deleted", "split"} & set(names)):
            use_other_model_for_all(faulty, self)
            # Without that model, everything is embedded again, which would put a stale vector right as well.
            faulty.knows_other_model = knows or "stale vector" in names
        for name, fault in FAULTS.items():
            self.rng = random.Random(f"{seed} {name}")
            if name in names and not (name == "other model" and faulty.is_turned):
                fault(faulty, self)
        return faulty

    def vector(self, world: World, text: str) -> Array:
        """Embed a text as the pipeline of this world does."""
        vector = self.embedding(text)
        return self.turn @ vector if world.is_turned else vector

    def draw_text(self) -> str:
        return self.rng.choice(self.spare)


def _own(world: World) -> Stored:
    return world.points[point_id(world.target)]


def change_text(world: World, planter: Planter) -> None:
    """The text is rewritten, wholly or but for its heading, and embedded."""
    own, new = _own(world), planter.draw_text()
    if planter.rng.random() < 0.5:
        new = f"{own.payload['text'].partition(chr(10))[0][:40]}\n{new}"
    own.payload["text"] = new
    own.vector = planter.vector(world, new)


def make_stale(world: World, planter: Planter) -> None:
    """The vector was made from another text: an earlier text, or another chunk's."""
    own = _own(world)
    if planter.rng.random() < 0.5:
        own.vector = planter.vector(world, planter.draw_text())
    else:
        key = planter.rng.choice([key for key in sorted(world.points) if key != point_id(world.target)])
        own.vector = world.points[key].vector.copy()


def use_other_model_for_all(world: World, planter: Planter) -> None:
    """The whole collection is embedded with another model than the question."""
    world.is_turned = True
    world.points = {key: Stored(planter.turn @ one.vector, one.payload) for key, one in world.points.items()}


def add_filter(world: World, planter: Planter) -> None:
    """The request asks for another kind than the chunk is of."""
    world.filters["kind"] = "recipe"
    for key in [key for key in sorted(world.points) if key != point_id(world.target)][
        :: planter.rng.choice([3, 7, 50])
    ]:
        world.points[key] = Stored(world.points[key].vector, {**world.points[key].payload, "kind": "recipe"})


def rename_field(world: World, planter: Planter) -> None:
    """A field that the request filters by has another name now, in this chunk or in all."""
    world.filters["lang"] = "en"
    new = planter.rng.choice(["language", "locale", "doc_lang"])
    renamed = list(world.points) if planter.rng.random() < 0.5 else [point_id(world.target)]
    for key in renamed:
        payload = dict(world.points[key].payload)
        payload[new] = payload.pop("lang")
        world.points[key] = Stored(world.points[key].vector, payload)


def delete(world: World, _planter: Planter) -> None:
    """The chunk is gone."""
    del world.points[point_id(world.target)]


def split(world: World, planter: Planter) -> None:
    """The text is cut into other chunks, under other ids; the first may keep the id."""
    own = world.points.pop(point_id(world.target))
    sentences = re.split(r"(?<=[.:!?])\s+", own.payload["text"])
    size = -(-len(sentences) // min(len(sentences), planter.rng.randint(2, 4)))
    for number, first in enumerate(range(0, len(sentences), size)):
        text = " ".join(sentences[first : first + size])
        chunk_id = f"{world.target}.{number}"
        payload = {**own.payload, "chunk_id": chunk_id, "text": text}
        world.points[point_id(chunk_id)] = Stored(planter.vector(world, text), payload)


def flood(world: World, planter: Planter) -> None:
    """Near-copies of one text that is closer to the question take all places."""
    sides = ("", " It is asked often.", " See also the index.", " Last changed on Monday.", " Was this of help?")
    question = world.question
    text = f"{question} This page of the forum collects answers to that question. {question} Please search the forum."
    for number in range(TOP_K + planter.rng.randint(2, 15)):
        copy = text + sides[number % len(sides)]
        payload = {"chunk_id": f"forum-{number:03d}", "text": copy, "url": "https://forum.example.com/1"}
        fields = {"lang": "en", "kind": "guide", **world.filters}
        world.points[point_id(f"forum-{number:03d}")] = Stored(planter.vector(world, copy), {**payload, **fields})


def raise_threshold(world: World, planter: Planter) -> None:
    """The threshold is above the chunk's score."""
    own = planter.embedding(world.question) @ planter.embedding(world.text)
    world.threshold = min(0.99, round(float(own) + 0.03 + 0.1 * planter.rng.random(), 3))


def spoil_index(world: World, _planter: Planter) -> None:
    """The index is built with parameters that lose points."""
    world.is_badly_indexed = True


def _put_before(world: World, planter: Planter, words: int = 60) -> str:
    """Begin the chunk's text with as many words on something else, and return these."""
    before = " ".join(" ".join(planter.rng.sample(list(planter.spare), 4)).split()[:words])
    own = _own(world)
    own.payload["text"] = f"{before} {own.payload['text']}"
    return before


def randomize(world: World, planter: Planter) -> None:
    """The vector is made of random numbers."""
    generator = np.random.default_rng(planter.rng.randrange(10**9))
    _own(world).vector = _unit(generator.normal(size=len(_own(world).vector)))


def use_unnamed_model(world: World, planter: Planter) -> None:
    """One chunk is embedded with another model, and nothing names it."""
    own = _own(world)
    own.vector = planter.turn @ own.vector


def use_other_model_for_some(world: World, planter: Planter) -> None:
    """A third or more of the collection, the chunk included, is embedded with another model, which nothing names."""
    share = planter.rng.choice([0.34, 0.5, 0.7])
    for key in list(world.points):
        if key == point_id(world.target) or planter.rng.random() < share:
            world.points[key] = Stored(planter.turn @ world.points[key].vector, world.points[key].payload)


def truncate_one(world: World, planter: Planter) -> None:
    """The chunk is embedded from its first words."""
    _own(world).vector = planter.vector(world, _put_before(world, planter))


def truncate_all(world: World, planter: Planter) -> None:
    """Every chunk is embedded from its first words."""
    _put_before(world, planter)
    for key, stored in list(world.points.items()):
        part = " ".join(stored.payload["text"].split()[:30])
        world.points[key] = Stored(planter.vector(world, part), stored.payload)


def exceed_model(world: World, planter: Planter) -> None:
    """The text is longer than the model reads: a pipeline that does not look embeds its beginning."""
    world.most_words = 60
    _put_before(world, planter)
    for key, stored in list(world.points.items()):
        words = stored.payload["text"].split()
        if len(words) > world.most_words:
            part = " ".join(words[: world.most_words])
            world.points[key] = Stored(planter.vector(world, part), stored.payload)


def add_title(world: World, planter: Planter) -> None:
    """The chunk is embedded with a long title, which is not in its text."""
    own = _own(world)
    own.vector = planter.vector(world, f"{planter.draw_text()[:300]}\n\n{own.payload['text'][:300]}")


def add_prefix_to_all(world: World, planter: Planter) -> None:
    """Every chunk is embedded with a prefix, the chunk with a title on something else too."""
    for key, stored in list(world.points.items()):
        title = planter.draw_text()[:250] if key == point_id(world.target) else "search_document"
        world.points[key] = Stored(planter.vector(world, f"{title}: {stored.payload['text'][:400]}"), stored.payload)


def embed_titles(world: World, planter: Planter) -> None:
    """Every chunk is embedded from a title, which several have in common and none has in its text."""
    titles = [" ".join(text.split()[:6]) for text in planter.spare]
    for number, (key, stored) in enumerate(sorted(world.points.items())):
        world.points[key] = Stored(planter.vector(world, titles[number % len(titles)]), stored.payload)


def copy_vectors(world: World, _planter: Planter) -> None:
    """The chunk and as many others as are returned have the vector of one chunk: their scores are equal."""
    keys = sorted(world.points, key=lambda key: -float(world.points[key].vector @ _own(world).vector))
    for key in (point_id(world.target), *keys[TOP_K : 2 * TOP_K]):
        world.points[key] = Stored(world.points[keys[TOP_K]].vector.copy(), world.points[key].payload)


def remove_vector(world: World, _planter: Planter) -> None:
    """The vector has only zeros, as where an embedding failed."""
    own = _own(world)
    own.vector = np.zeros_like(own.vector)


def index_no_words(world: World, _planter: Planter) -> None:
    """The BM25 vector is missing."""
    world.indexed_texts[point_id(world.target)] = " "


def rename_text(world: World, _planter: Planter) -> None:
    """The text is in a field that Chunkproof does not read, and is expected by a passage of it."""
    own = _own(world)
    own.payload["inhalt"], own.payload["text"] = {"absatz": own.payload["text"]}, None
    world.expected = " ".join(world.text.split()[:12])


def make_unreadable(world: World, planter: Planter) -> None:
    """The text is gone from the payload, or is a list."""
    own = _own(world)
    own.payload["text"] = planter.rng.choice(["", None, ["in", "pieces"], {"de": "Text"}])


def index_other_words(world: World, planter: Planter) -> None:
    """The BM25 vector was made from an earlier text of the chunk."""
    world.indexed_texts[point_id(world.target)] = planter.draw_text()


def use_other_tokens(world: World, _planter: Planter) -> None:
    """Every BM25 vector is made by another tokenizer."""
    world.has_other_tokens = True


def load_again(world: World, _planter: Planter) -> None:
    """Every chunk is there as often as results are returned, and once more, under ids of its own."""
    for key, stored in list(world.points.items()):
        for number in range(TOP_K):
            chunk_id = f"{stored.payload['chunk_id']}.{number}"
            world.points[point_id(chunk_id)] = Stored(stored.vector, {**stored.payload, "chunk_id": chunk_id})
        world.points[key] = stored


def group(world: World, planter: Planter) -> None:
    """The results are grouped by a field that a nearer chunk shares with this one."""
    world.options = {"group_by": "kind"}
    nearest = max(world.points, key=lambda key: float(world.points[key].vector @ planter.embedding(world.question)))
    for number, (key, stored) in enumerate(sorted(world.points.items())):
        kind = "shared" if key in (nearest, point_id(world.target)) else f"kind {number}"
        world.points[key] = Stored(stored.vector, {**stored.payload, "kind": kind})


def check_texts(world: World, _planter: Planter) -> None:
    """The text does not match its hash, and the request leaves such chunks out."""
    world.options = {"require_integrity": True}
    for key, stored in list(world.points.items()):
        hashed = sha256(stored.payload["text"].encode()).hexdigest()
        world.points[key] = Stored(stored.vector, {**stored.payload, "content_hash": hashed})
    own = _own(world)
    own.payload["text"] = f"Draft. {own.payload['text']}"


def quantize(world: World, _planter: Planter) -> None:
    """Vectors are compared by one bit of each value."""
    world.is_quantized = True


# In the order in which they are planted.
FAULTS: dict[str, Fault] = {
    "text changed": change_text,
    "stale vector": make_stale,
    "other model": use_other_model_for_some,
    "field renamed": rename_field,
    "filter": add_filter,
    "split": split,
    "deleted": delete,
    "duplicates": flood,
    "threshold": raise_threshold,
    "index": spoil_index,
}
# Faults that pipelines and stores make without a trace, each with the causes that are right. They are planted alone,
# and no snapshot shows what was before. "unexplained" is always allowed, and counted by itself.
OUTSIDE: dict[str, tuple[Fault, tuple[str, ...]]] = {
    "random vector": (randomize, ("stale vector",)),
    "former text's vector": (make_stale, ("stale vector",)),
    "unnamed model, one": (use_unnamed_model, ("stale vector",)),
    "unnamed model, some": (use_other_model_for_some, ("other model",)),
    "truncated, one": (truncate_one, ("embedded in part", "stale vector")),
    "truncated, all": (truncate_all, ("embedded in part",)),
    "longer than the model reads": (exceed_model, ("embedded in part",)),
    "with a title": (add_title, ("stale vector",)),
    "with a prefix, all": (add_prefix_to_all, ("stale vector", "embedded in part")),
    "embedded from titles, all": (embed_titles, ("stale vector",)),
    "copied vectors": (copy_vectors, ("stale vector",)),
    "a vector of zeros": (remove_vector, ("stale vector",)),
    "no words indexed": (index_no_words, ("stale vector",)),
    "renamed field": (rename_field, ("field renamed",)),
    "text under another name": (rename_text, ("unreadable",)),
    "unreadable": (make_unreadable, ("unreadable",)),
    "other words indexed": (index_other_words, ("stale vector",)),
    "binary quantization": (quantize, ("index",)),
    "filter": (add_filter, ("filter",)),
    "duplicates": (flood, ("duplicates",)),
    "loaded again and again": (load_again, ("duplicates",)),
    "words of another tokenizer": (use_other_tokens, ("stale vector",)),
    "grouped away": (group, ("left out",)),
    "not the text that was hashed": (check_texts, ("text changed",)),
}
# The modes in which each of them is tried; an outside fault counts only where it loses the chunk.
MODES: dict[str, tuple[str | None, ...]] = {
    "other words indexed": ("text", "hybrid"),
    "no words indexed": ("text",),
    "renamed field": ("text", "hybrid"),
    "unreadable": (None, "text", "hybrid"),
    "filter": ("text", "hybrid"),
    "duplicates": ("text", "hybrid"),
    "random vector": (None, "hybrid"),
    "words of another tokenizer": ("text",),
    "grouped away": ("dense",),
    "not the text that was hashed": ("dense", "text", "hybrid"),
}
# What is gone or in pieces has no text, vector or field of its own.
IMPOSSIBLE = {
    *(frozenset(("deleted", other)) for other in ("text changed", "stale vector", "field renamed", "split")),
    *(frozenset(("split", other)) for other in ("text changed", "stale vector", "field renamed")),
}
