"""A plain handler on the official SDKs."""

import os

import cohere
from qdrant_client import QdrantClient
from search_handler import search_handler

COLLECTION = os.environ["COLLECTION"]
if "SECRET_ARN" in os.environ:
    from aws_lambda_powertools.utilities import parameters

    key = parameters.get_secret(os.environ["SECRET_ARN"], transform="json")["COHERE_API_KEY"]
else:
    key = os.environ["COHERE_API_KEY"]
embedder = cohere.ClientV2(key, base_url=os.environ["COHERE_BASE_URL"])
store = QdrantClient(url=os.environ["QDRANT_URL"], check_compatibility=False)


@search_handler
def lambda_handler(query, top_k):
    embedded = embedder.embed(
        model="embed-english-v3.0", texts=[query], input_type="search_query", embedding_types=["float"]
    )
    found = store.query_points(COLLECTION, query=embedded.embeddings.float_[0], limit=top_k)
    return [(point.payload.pop("text"), point.score, point.payload) for point in found.points]
