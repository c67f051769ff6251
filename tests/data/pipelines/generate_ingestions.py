"""What LangChain and LlamaIndex keep beside a collection, and a collection that LangChain wrote twice.

The chunks of langchain_dense.json go through the frameworks' own code once more:

    langchain_twice.json        two runs of `QdrantVectorStore.add_texts` without ids, so with random ones
    record_manager.sql          the database of LangChain's `SQLRecordManager`, after `index` with `cleanup="full"`,
                                and langchain_indexed.json the collection that this run wrote
    docstore.json               a LlamaIndex `SimpleDocumentStore` of two documents and their nodes

The frameworks are not dependencies of the project: tests read only these files. To make them again, start a Qdrant
1.16.3 server, and with CPython 3.11 or later make two virtual environments:

    langchain:   pip install langchain-qdrant==1.1.0 langchain-core==1.7.2 langchain-classic==1.0.8 greenlet
    llamaindex:  pip install llama-index-core==0.14.25

    python generate_ingestions.py langchain --qdrant-url http://127.0.0.1:PORT
    python generate_ingestions.py llamaindex
"""

import argparse
import json
import sqlite3
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
LANGCHAIN: dict[str, Any] = json.loads((HERE / "langchain_dense.json").read_text("utf-8"))
VECTORS = {point["payload"]["page_content"]: point["vector"] for point in LANGCHAIN["points"]}


def write_langchain(url: str) -> None:
    """Write the chunks twice without ids, and once through the indexing API with its record manager."""
    from langchain_classic.indexes import SQLRecordManager, index
    from langchain_core.documents import Document
    from langchain_core.embeddings import Embeddings
    from langchain_qdrant import QdrantVectorStore
    from qdrant_client import QdrantClient

    class Recorded(Embeddings):
        def embed_documents(self, texts: list[str]) -> list[list[float]]:
            return [self.embed_query(text) for text in texts]

        def embed_query(self, text: str) -> list[float]:
            # The store embeds a text of its own to learn the size.
            return _dense(VECTORS.get(text, next(iter(VECTORS.values()))))

    chunks = [
        Document(page_content=point["payload"]["page_content"], metadata=point["payload"]["metadata"])
        for point in LANGCHAIN["points"]
    ]
    client = QdrantClient(url)

    def create(name: str) -> Any:
        return QdrantVectorStore.construct_instance(
            embedding=Recorded(), client_options={"url": url}, collection_name=name, force_recreate=True
        )

    for _ in range(2):
        store = create("twice") if _ == 0 else QdrantVectorStore(client, "twice", Recorded())
        store.add_documents(chunks)
    _save(client, "twice", "langchain_twice.json")

    database = Path(tempfile.mkdtemp()) / "records.sqlite"
    records = SQLRecordManager("qdrant/indexed", db_url=f"sqlite:///{database}")
    records.create_schema()
    index(chunks, records, create("indexed"), cleanup="full", source_id_key="source")
    _save(client, "indexed", "langchain_indexed.json")
    with sqlite3.connect(database) as connection:
        (HERE / "record_manager.sql").write_text("\n".join(connection.iterdump()) + "\n", "utf-8")
    client.delete_collection("twice")
    client.delete_collection("indexed")


def _dense(vector: Any) -> list[float]:
    return vector if isinstance(vector, list) else next(each for each in vector.values() if isinstance(each, list))


def _save(client: Any, collection: str, name: str) -> None:
    points, _ = client.scroll(collection, limit=1_000, with_vectors=True)
    saved = {
        **{key: value for key, value in LANGCHAIN.items() if key != "points"},
        "points": [
            # Rounded: tests compare texts and ids, and a nearest vector stays the nearest.
            {"id": point.id, "vector": [round(value, 4) for value in point.vector], "payload": point.payload}
            for point in points
        ],
    }
    (HERE / name).write_text(json.dumps(saved, ensure_ascii=False, indent=1) + "\n", "utf-8")


def write_llamaindex() -> None:
    """Keep documents and their nodes as an ingestion pipeline does."""
    from llama_index.core.node_parser import SentenceSplitter
    from llama_index.core.schema import Document
    from llama_index.core.storage.docstore import SimpleDocumentStore

    sources: dict[str, list[str]] = {}
    for point in LANGCHAIN["points"]:
        sources.setdefault(point["payload"]["metadata"]["source"], []).append(point["payload"]["page_content"])
    documents = [
        Document(text="\n\n".join(texts), id_=f"doc-{number}", metadata={"url": source})
        for number, (source, texts) in enumerate(sources.items())
    ]
    docstore = SimpleDocumentStore()
    docstore.add_documents(documents)
    nodes = SentenceSplitter(
        chunk_size=150, chunk_overlap=0, id_func=lambda number, document: f"{document.id_}-node-{number}"
    ).get_nodes_from_documents(documents)
    docstore.add_documents(nodes)
    docstore.persist(str(HERE / "docstore.json"))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("framework", choices=["langchain", "llamaindex"])
    parser.add_argument("--qdrant-url")
    given = parser.parse_args()
    write_langchain(given.qdrant_url) if given.framework == "langchain" else write_llamaindex()
