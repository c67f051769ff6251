"""Qdrant collections as further pipelines write them, saved as JSON next to this script.

The sources of generate_frameworks.py, two chunks each, go through the Qdrant writer of every pipeline. The pipelines
are not dependencies of the project: tests read only the JSON files. Vectors come from a file, so that no pipeline
needs a model. To make the files again, start a Qdrant 1.16.3 server and, with the project's own environment:

    python generate_pipelines.py vectors --file vectors.json

Then, with one virtual environment (CPython 3.13, with httpx and numpy) or one folder of node modules for each:

    mcp_server_qdrant  pip install mcp-server-qdrant==0.8.0
    mem0               pip install mem0ai==2.2.1
    agno               pip install agno==3.1.10 qdrant-client==1.20.0
    lightrag           pip install lightrag-hku==1.5.7 qdrant-client==1.20.0
    crewai             pip install crewai==1.15.30 "qdrant-client<1.15"
    semantic_kernel    pip install "semantic-kernel[qdrant]==1.45.0"; for semantic_kernel_memory also
                       "qdrant-client<1.15", as the older memory store calls a method that was removed
    unstructured       pip install "unstructured-ingest[qdrant]==1.11.23"
    langchainjs        npm install @langchain/qdrant@1.0.3 @langchain/core@1.2.13 @langchain/textsplitters@1.0.2
    llamaindexts       npm install @llamaindex/qdrant@0.1.32 llamaindex@0.12.1
    mastra             npm install @mastra/qdrant@0.11.19

    python generate_pipelines.py write mem0 --file vectors.json --qdrant-url http://127.0.0.1:PORT
    node generate_pipelines.mjs langchainjs vectors.json http://127.0.0.1:PORT NODE_MODULES

The second form writes a collection, which `python generate_pipelines.py export langchainjs …` saves. Ids are fixed
where the pipeline asks for one or makes a random one; times are those of the run.
"""

import argparse
import asyncio
import json
import os
import tempfile
import uuid
from collections.abc import Callable
from importlib.metadata import version
from itertools import count
from pathlib import Path
from platform import python_version
from typing import Any

import httpx
from generate_frameworks import DIMENSION, HERE, SOURCES, export, scratch, to_json

Embed = Callable[[str], list[float]]
CHUNKS = [(source, number, text) for source in SOURCES for number, text in enumerate(source.chunks)]


def write_mcp_server_qdrant(url: str, collection: str, embed: Embed) -> None:
    """Store entries as the tool `qdrant-store` does."""
    from mcp_server_qdrant.embeddings.base import EmbeddingProvider
    from mcp_server_qdrant.qdrant import Entry, QdrantConnector

    class Provider(EmbeddingProvider):
        async def embed_documents(self, documents: list[str]) -> list[list[float]]:
            return [embed(document) for document in documents]

        async def embed_query(self, query: str) -> list[float]:
            return embed(query)

        def get_vector_name(self) -> str:
            return "fast-all-minilm-l6-v2"

        def get_vector_size(self) -> int:
            return DIMENSION

    async def store() -> None:
        connector = QdrantConnector(url, None, collection, Provider())
        for source, number, text in CHUNKS:
            metadata = {"source": source.url, "title": source.title, "part": number}
            await connector.store(Entry(content=text, metadata=metadata if number == 0 else None))

    asyncio.run(store())


def write_mem0(url: str, collection: str, embed: Embed) -> None:
    """Add memories without inference, which needs no language model."""
    os.environ |= {"MEM0_TELEMETRY": "False", "OPENAI_API_KEY": "unused", "MEM0_DIR": tempfile.mkdtemp()}
    from mem0 import Memory
    from mem0.embeddings.base import EmbeddingBase

    class Embedder(EmbeddingBase):
        def embed(self, text: str, memory_action: str | None = None) -> list[float]:
            return embed(text)

    store = {"collection_name": collection, "embedding_model_dims": DIMENSION, "url": url}
    memory = Memory.from_config({"vector_store": {"provider": "qdrant", "config": store}})
    memory.embedding_model = Embedder()
    for source, _, text in CHUNKS:
        memory.add(text, user_id="renee", infer=False, metadata={"topic": source.title})


def write_agno(url: str, collection: str, embed: Embed) -> None:
    """Insert files into a `Knowledge` with a Qdrant vector database."""
    from agno.knowledge.chunking.document import DocumentChunking
    from agno.knowledge.embedder.base import Embedder
    from agno.knowledge.knowledge import Knowledge
    from agno.knowledge.reader.text_reader import TextReader
    from agno.vectordb.qdrant import Qdrant

    class Stub(Embedder):
        def get_embedding(self, text: str) -> list[float]:
            return embed(text)

        def get_embedding_and_usage(self, text: str) -> tuple[list[float], dict[str, Any] | None]:
            return embed(text), None

    knowledge = Knowledge(vector_db=Qdrant(collection=collection, url=url, embedder=Stub(dimensions=DIMENSION)))
    for source in SOURCES:
        file = Path(tempfile.mkdtemp()) / f"{source.title}.txt"
        file.write_bytes(source.text.encode())
        reader = TextReader(chunking_strategy=DocumentChunking(chunk_size=420, overlap=0))
        knowledge.insert(name=source.title, path=str(file), metadata={"url": source.url}, reader=reader)


def write_lightrag(url: str, collection: str, embed: Embed) -> None:
    """Insert documents into LightRAG; a language model that finds no entities leaves the chunks."""
    os.environ |= {"QDRANT_URL": url}
    import numpy as np
    from lightrag import LightRAG
    from lightrag.utils import EmbeddingFunc, Tokenizer

    class Characters:
        def encode(self, content: str) -> list[int]:
            return [ord(character) for character in content]

        def decode(self, tokens: list[int]) -> str:
            return "".join(map(chr, tokens))

    async def embed_all(texts: list[str], **_: Any) -> Any:
        return np.array([embed(text) for text in texts])

    async def answer(*_: Any, **__: Any) -> str:
        return "<|COMPLETE|>"

    async def insert() -> None:
        rag = LightRAG(
            working_dir=tempfile.mkdtemp(),
            workspace="manuals",
            vector_storage="QdrantVectorDBStorage",
            llm_model_func=answer,
            embedding_func=EmbeddingFunc(DIMENSION, embed_all, model_name="minilm"),
            tokenizer=Tokenizer("characters", Characters()),
            chunk_token_size=420,
            chunk_overlap_token_size=0,
        )
        await rag.initialize_storages()
        for source in SOURCES:
            await rag.ainsert(source.text, split_by_character="\n\n", file_paths=source.url)
        await rag.finalize_storages()

    asyncio.run(insert())
    with httpx.Client(base_url=url) as http:
        names = [one["name"] for one in http.get("/collections").raise_for_status().json()["result"]["collections"]]
        (chunks,) = (name for name in names if name.startswith("lightrag_vdb_chunks"))
        # The collection has a name of LightRAG's own: an alias gives it the fixture's.
        alias = {"create_alias": {"collection_name": chunks, "alias_name": collection}}
        http.post("/collections/aliases", json={"actions": [alias]}).raise_for_status()


def write_crewai(url: str, collection: str, embed: Embed) -> None:
    """Add documents with the Qdrant client of `crewai.rag`, as knowledge sources do."""
    os.environ |= {"CREWAI_DISABLE_TELEMETRY": "true", "OTEL_SDK_DISABLED": "true"}
    from crewai.rag.qdrant.client import QdrantClient
    from qdrant_client import QdrantClient as Client
    from qdrant_client.models import Distance, VectorParams

    crew = QdrantClient(client=Client(url=url), embedding_function=embed)
    crew.create_collection(
        collection_name=collection, vectors_config=VectorParams(size=DIMENSION, distance=Distance.COSINE)
    )
    crew.add_documents(
        collection_name=collection,
        documents=[
            {"doc_id": source.chunk_id(n), "content": text, "metadata": {"source": source.url, "chunk": n}}
            for source, n, text in CHUNKS
        ],
    )


def write_semantic_kernel(url: str, collection: str, embed: Embed) -> None:
    """Upsert records of a data model, with a field name in capitals as the .NET samples have."""
    from dataclasses import dataclass
    from typing import Annotated

    from semantic_kernel.connectors.qdrant import QdrantCollection
    from semantic_kernel.data.vector import VectorStoreField, vectorstoremodel

    @vectorstoremodel(collection_name=collection)
    @dataclass
    class Paragraph:
        Key: Annotated[str, VectorStoreField("key")]
        Text: Annotated[str, VectorStoreField("data", is_full_text_indexed=True)]
        ReferenceLink: Annotated[str, VectorStoreField("data", is_indexed=True)]
        TextEmbedding: Annotated[
            list[float] | None, VectorStoreField("vector", dimensions=DIMENSION, distance_function="cosine_similarity")
        ] = None

    async def store() -> None:
        async with QdrantCollection(record_type=Paragraph, url=url, named_vectors=True) as target:
            await target.ensure_collection_exists()
            await target.upsert(
                [Paragraph(source.chunk_id(n), text, source.url, embed(text)) for source, n, text in CHUNKS]
            )

    asyncio.run(store())


def write_semantic_kernel_memory(url: str, collection: str, embed: Embed) -> None:
    """Save records with the older memory store, whose fields begin with an underscore."""
    import warnings

    import numpy as np
    from semantic_kernel.memory.memory_record import MemoryRecord

    warnings.simplefilter("ignore")
    from semantic_kernel.connectors.memory_stores.qdrant.qdrant_memory_store import QdrantMemoryStore

    async def store() -> None:
        memory = QdrantMemoryStore(vector_size=DIMENSION, url=url)
        await memory.create_collection(collection)
        records = [
            MemoryRecord.local_record(f"{source.title} #{n}", text, source.title, source.url, np.array(embed(text)))
            for source, n, text in CHUNKS
        ]
        await memory.upsert_batch(collection, records)

    asyncio.run(store())


def write_unstructured(url: str, collection: str, embed: Embed) -> None:
    """Stage elements as the partitioner and the chunker leave them, and upload them."""
    from qdrant_client import QdrantClient
    from qdrant_client.models import Distance, VectorParams
    from unstructured_ingest.data_types.file_data import FileData, FileDataSourceMetadata, SourceIdentifiers
    from unstructured_ingest.processes.connectors.qdrant.server import (
        ServerQdrantConnectionConfig,
        ServerQdrantUploader,
        ServerQdrantUploaderConfig,
        ServerQdrantUploadStager,
        ServerQdrantUploadStagerConfig,
    )

    QdrantClient(url=url).create_collection(
        collection, vectors_config=VectorParams(size=DIMENSION, distance=Distance.COSINE)
    )
    stager = ServerQdrantUploadStager(upload_stager_config=ServerQdrantUploadStagerConfig())
    uploader = ServerQdrantUploader(
        connection_config=ServerQdrantConnectionConfig(url=url),
        upload_config=ServerQdrantUploaderConfig(collection_name=collection),
    )
    for source in SOURCES:
        name = source.url.rpartition("/")[2]
        file = FileData(
            identifier=str(uuid.uuid5(uuid.NAMESPACE_URL, source.url)),
            connector_type="s3",
            source_identifiers=SourceIdentifiers(filename=name, fullpath=name),
            metadata=FileDataSourceMetadata(url=source.url, version="1"),
        )
        elements = [
            {
                "type": "CompositeElement",
                "element_id": source.chunk_id(number).replace("-", ""),
                "text": text,
                "metadata": {
                    "filename": name,
                    "filetype": source.content_type,
                    "languages": ["eng"],
                    "data_source": {"url": source.url, "version": "1", "record_locator": {"protocol": "s3"}},
                },
                "embeddings": embed(text),
            }
            for number, text in enumerate(source.chunks)
        ]
        data = [stager.conform_dict(element, file) for element in elements if stager.should_include(element)]
        asyncio.run(uploader.run_data_async(data, file))


WRITERS: dict[str, tuple[Callable[[str, str, Embed], None], tuple[str, ...]]] = {
    "mcp_server_qdrant": (write_mcp_server_qdrant, ("mcp-server-qdrant",)),
    "mem0": (write_mem0, ("mem0ai",)),
    "agno": (write_agno, ("agno",)),
    "lightrag": (write_lightrag, ("lightrag-hku",)),
    "crewai": (write_crewai, ("crewai",)),
    "semantic_kernel": (write_semantic_kernel, ("semantic-kernel",)),
    "semantic_kernel_memory": (write_semantic_kernel_memory, ("semantic-kernel",)),
    "unstructured": (write_unstructured, ("unstructured-ingest",)),
}
EXPORTED = ("langchainjs", "llamaindexts", "mastra")


def write_vectors(file: Path) -> None:
    """Embed every chunk, and every whole source, with the local model; also as LlamaIndexTS embeds them."""
    from generate_frameworks import dense

    texts = [text for source in SOURCES for text in (*source.chunks, source.text)]
    # LlamaIndexTS embeds a node's metadata with its text.
    texts += [
        f"title: Page {number}\nurl: https://docs.example.com/pages/{number}\n\n{text}"
        for number, source in enumerate(SOURCES)
        for text in (*source.chunks, source.text)
    ]
    file.write_text(json.dumps(dict(zip(texts, dense(texts), strict=True))), encoding="utf-8")


def save(http: httpx.Client, name: str, versions: dict[str, str]) -> None:
    """Save a collection as a fixture."""
    config, points = export(http, name)
    server = http.get("/").raise_for_status().json()["version"]
    fixture = {"framework": name, "versions": versions | {"qdrant": server}}
    fixture |= {"collection_config": config, "points": points}
    (HERE / f"{name}.json").write_text(to_json(fixture), encoding="utf-8")
    print(f"{name}.json: {len(points)} points")


def find_vector(text: str, known: dict[str, list[float]]) -> list[float]:
    """Return the text's vector; where a pipeline changed the text, that of the chunk with most of its words."""
    words = set(text.split())
    return known.get(text) or known[max(known, key=lambda chunk: len(words & set(chunk.split())) / len(chunk))]


def fix_random_ids() -> None:
    """Let every random id be the next of a fixed sequence."""
    numbers = count(1)
    uuid.uuid4 = lambda: uuid.uuid5(uuid.NAMESPACE_URL, f"random {next(numbers)}")  # type: ignore[assignment]


def main() -> None:
    """Write the vectors, or one fixture."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("step", choices=("vectors", "write", "export"))
    parser.add_argument("pipeline", nargs="?", choices=(*WRITERS, *EXPORTED))
    parser.add_argument("--file", type=Path, help="the vectors")
    parser.add_argument("--qdrant-url", help="a Qdrant server that may be written to")
    parser.add_argument("--versions", default="{}", help="of npm packages, as JSON")
    arguments = parser.parse_args()
    if arguments.step == "vectors":
        write_vectors(arguments.file)
        return
    with httpx.Client(base_url=arguments.qdrant_url, timeout=60) as http:
        if arguments.step == "export":
            save(http, arguments.pipeline, json.loads(arguments.versions))
            return
        known = json.loads(arguments.file.read_text("utf-8"))
        write, packages = WRITERS[arguments.pipeline]
        fix_random_ids()
        with scratch(http, arguments.pipeline):
            write(arguments.qdrant_url, arguments.pipeline, lambda text: find_vector(text, known))
            versions = {name: version(name) for name in (*packages, "qdrant-client")} | {"python": python_version()}
            save(http, arguments.pipeline, versions)


if __name__ == "__main__":
    main()
