"""Haystack's components on Cohere and Qdrant, run one after the other: quicker than a pipeline of the two."""

import os

from haystack.utils import Secret
from haystack_integrations.components.embedders.cohere import CohereTextEmbedder
from haystack_integrations.components.retrievers.qdrant import QdrantEmbeddingRetriever
from haystack_integrations.document_stores.qdrant import QdrantDocumentStore
from search_handler import search_handler

embedder = CohereTextEmbedder(
    api_key=Secret.from_env_var("COHERE_API_KEY"),
    model="embed-english-v3.0",
    api_base_url=os.environ["COHERE_BASE_URL"],
)
retriever = QdrantEmbeddingRetriever(
    QdrantDocumentStore(
        url=os.environ["QDRANT_URL"],
        index=os.environ["COLLECTION"],
        embedding_dim=1024,
    )
)


@search_handler
def lambda_handler(query, top_k):
    vector = embedder.run(text=query)["embedding"]
    found = retriever.run(query_embedding=vector, top_k=top_k)["documents"]
    return [(document.content, document.score, document.meta) for document in found]
