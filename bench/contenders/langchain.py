"""LangChain's retriever on Cohere and Qdrant."""

import os

from langchain_cohere import CohereEmbeddings
from langchain_qdrant import QdrantVectorStore
from qdrant_client import QdrantClient
from search_handler import search_handler

store = QdrantVectorStore(
    client=QdrantClient(url=os.environ["QDRANT_URL"], check_compatibility=False),
    collection_name=os.environ["COLLECTION"],
    embedding=CohereEmbeddings(
        model="embed-english-v3.0",
        cohere_api_key=os.environ["COHERE_API_KEY"],
        base_url=os.environ["COHERE_BASE_URL"],
    ),
    validate_collection_config=False,  # it would embed a text when the store is made
)


@search_handler
def lambda_handler(query, top_k):
    found = store.similarity_search_with_score(query, k=top_k)
    return [(document.page_content, score, document.metadata) for document, score in found]
