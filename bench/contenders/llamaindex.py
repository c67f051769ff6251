"""LlamaIndex's retriever on Cohere and Qdrant."""

import os

from llama_index.core import VectorStoreIndex
from llama_index.embeddings.cohere import CohereEmbedding
from llama_index.vector_stores.qdrant import QdrantVectorStore
from qdrant_client import QdrantClient
from search_handler import search_handler

index = VectorStoreIndex.from_vector_store(
    QdrantVectorStore(
        os.environ["COLLECTION"],
        client=QdrantClient(url=os.environ["QDRANT_URL"], check_compatibility=False),
    ),
    embed_model=CohereEmbedding(
        api_key=os.environ["COHERE_API_KEY"],
        model_name="embed-english-v3.0",
        input_type="search_query",
        base_url=os.environ["COHERE_BASE_URL"],
    ),
)


@search_handler
def lambda_handler(query, top_k):
    found = index.as_retriever(similarity_top_k=top_k).retrieve(query)
    return [(node.text, node.score, node.metadata) for node in found]
