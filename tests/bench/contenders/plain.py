"""A plain handler on the official SDKs."""

import os

import cohere
from door import door
from qdrant_client import QdrantClient

COLLECTION = os.environ["COLLECTION"]
embedder = cohere.ClientV2(os.environ["COHERE_API_KEY"], base_url=os.environ["COHERE_BASE_URL"])
store = QdrantClient(url=os.environ["QDRANT_URL"], check_compatibility=False)


@door
def lambda_handler(query, top_k):
    embedded = embedder.embed(
        model="embed-english-v3.0", texts=[query], input_type="search_query", embedding_types=["float"]
    )
    found = store.query_points(COLLECTION, query=embedded.embeddings.float_[0], limit=top_k)
    return [(point.payload.pop("text"), point.score, point.payload) for point in found.points]
