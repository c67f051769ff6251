"""Write and read a hybrid collection with a framework's own classes, in that framework's environment.

    python -m support.framework_nodes FRAMEWORK write|read URL COLLECTION < request.json

`write` takes the texts, `read` a question; it prints what the framework's retriever returns.
"""

import json
import sys
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, cast
from uuid import NAMESPACE_URL, uuid5

from chunkproof.base.request import Deadline
from chunkproof.embedders.embedder_port import InputType
from chunkproof.stores.hybrid import make_bm25_vector

from support.words import Words


def embed(texts: Sequence[str]) -> list[list[float]]:
    return Words().embed(texts, InputType.DOCUMENT, Deadline(60_000))


def words_of(text: str, *, is_query: bool = False) -> tuple[list[int], list[float]]:
    made = make_bm25_vector(text, is_query=is_query)
    return list(made["indices"]), list(made["values"])


def metadata_of(number: int) -> dict[str, Any]:
    return {"source": f"https://docs.example.com/{number}", "edition": "second", "tags": ["a", "b"]}


def id_of(number: int) -> str:
    return str(uuid5(NAMESPACE_URL, str(number)))


def langchain(url: str, collection: str, texts: Sequence[str], question: str) -> Any:
    from langchain_core.documents import Document  # type: ignore[import-not-found]
    from langchain_core.embeddings import Embeddings  # type: ignore[import-not-found]
    from langchain_qdrant import QdrantVectorStore, RetrievalMode  # type: ignore[import-not-found]
    from langchain_qdrant.sparse_embeddings import (  # type: ignore[import-not-found]
        SparseEmbeddings,
        SparseVector,
    )

    class Dense(Embeddings):  # type: ignore[misc]
        def embed_documents(self, texts: list[str]) -> list[list[float]]:
            return embed(texts)

        def embed_query(self, text: str) -> list[float]:
            return embed([text])[0]

    class Sparse(SparseEmbeddings):  # type: ignore[misc]
        def embed_documents(self, texts: list[str]) -> list[Any]:
            return [SparseVector(indices=i, values=v) for i, v in map(words_of, texts)]

        def embed_query(self, text: str) -> Any:
            indices, values = words_of(text, is_query=True)
            return SparseVector(indices=indices, values=values)

    how = {"embedding": Dense(), "sparse_embedding": Sparse(), "retrieval_mode": RetrievalMode.HYBRID}
    if texts:
        documents = [Document(page_content=text, metadata=metadata_of(n)) for n, text in enumerate(texts)]
        at = {"url": url, "collection_name": collection, "ids": [id_of(n) for n in range(len(texts))]}
        return (
            QdrantVectorStore.from_documents(documents, **at, **how, sparse_vector_params={"modifier": "idf"}) and None
        )
    store = QdrantVectorStore.from_existing_collection(url=url, collection_name=collection, **how)
    found = store.as_retriever(search_kwargs={"k": 3}).invoke(question)
    return [{"text": document.page_content, "metadata": document.metadata} for document in found]


def llamaindex(url: str, collection: str, texts: Sequence[str], question: str) -> Any:
    from llama_index.core import StorageContext, VectorStoreIndex  # type: ignore[import-not-found]
    from llama_index.core.embeddings import BaseEmbedding  # type: ignore[import-not-found]
    from llama_index.core.schema import NodeRelationship, RelatedNodeInfo, TextNode  # type: ignore[import-not-found]
    from llama_index.vector_stores.qdrant import QdrantVectorStore  # type: ignore[import-not-found]
    from qdrant_client import QdrantClient, models

    class Dense(BaseEmbedding):  # type: ignore[misc]
        def _get_query_embedding(self, query: str) -> list[float]:
            return embed([query])[0]

        async def _aget_query_embedding(self, query: str) -> list[float]:
            return embed([query])[0]

        def _get_text_embedding(self, text: str) -> list[float]:
            return embed([text])[0]

    def sparse(texts: list[str]) -> tuple[list[list[int]], list[list[float]]]:
        return cast(Any, tuple(map(list, zip(*map(words_of, texts), strict=True))))

    store = QdrantVectorStore(
        collection,
        QdrantClient(url=url, check_compatibility=False),
        enable_hybrid=True,
        sparse_doc_fn=sparse,
        sparse_query_fn=sparse,
        sparse_config=models.SparseVectorParams(modifier=models.Modifier.IDF),
    )
    if texts:
        nodes = [TextNode(id_=id_of(n), text=text, metadata=metadata_of(n)) for n, text in enumerate(texts)]
        for before, node in pairwise(nodes):
            node.relationships[NodeRelationship.PREVIOUS] = RelatedNodeInfo(node_id=before.node_id)
        context = StorageContext.from_defaults(vector_store=store)
        return VectorStoreIndex(nodes, storage_context=context, embed_model=Dense()) and None
    index = VectorStoreIndex.from_vector_store(store, embed_model=Dense())
    options = {"similarity_top_k": 3, "sparse_top_k": 6, "vector_store_query_mode": "hybrid"}
    return [json.loads(found.node.to_json()) for found in index.as_retriever(**options).retrieve(question)]


def haystack(url: str, collection: str, texts: Sequence[str], question: str) -> Any:
    from haystack import Document  # type: ignore[import-not-found]
    from haystack.dataclasses import SparseEmbedding  # type: ignore[import-not-found]
    from haystack_integrations.components.retrievers.qdrant import (  # type: ignore[import-not-found]
        QdrantHybridRetriever,
    )
    from haystack_integrations.document_stores.qdrant import QdrantDocumentStore  # type: ignore[import-not-found]

    def sparse(text: str) -> Any:
        indices, values = words_of(text)
        return SparseEmbedding(indices=indices, values=values)

    how = {"embedding_dim": Words.dimension, "use_sparse_embeddings": True, "sparse_idf": True}
    store = QdrantDocumentStore(url=url, index=collection, **how)
    if texts:
        rows = zip(texts, embed(texts), map(sparse, texts), strict=True)
        return (
            store.write_documents(
                [
                    Document(id=f"d{n}", content=text, meta=metadata_of(n), embedding=dense, sparse_embedding=words)
                    for n, (text, dense, words) in enumerate(rows)
                ]
            )
            and None
        )
    by = {"query_embedding": embed([question])[0], "query_sparse_embedding": sparse(question)}
    found = QdrantHybridRetriever(document_store=store, top_k=3).run(**by)["documents"]
    return [{"id": document.id, "text": document.content, "meta": document.meta} for document in found]


if __name__ == "__main__":
    name, what, url, collection = sys.argv[1:]
    given = json.load(sys.stdin)
    run = {"langchain": langchain, "llamaindex": llamaindex, "haystack": haystack}[name]
    print(json.dumps(run(url, collection, *((given, "") if what == "write" else ((), given)))))
