"""The two calls of the official SDKs and nothing around them: no checks, no logs, no metrics."""

import json
import os

import cohere
from qdrant_client import QdrantClient

COLLECTION = os.environ["COLLECTION"]
embedder = cohere.ClientV2(os.environ["COHERE_API_KEY"], base_url=os.environ["COHERE_BASE_URL"])
store = QdrantClient(url=os.environ["QDRANT_URL"], check_compatibility=False)


def lambda_handler(event, _context):
    query = json.loads(event["body"])
    embedded = embedder.embed(
        model="embed-english-v3.0",
        texts=[query["query_text"]],
        input_type="search_query",
        embedding_types=["float"],
    )
    found = store.query_points(COLLECTION, query=embedded.embeddings.float_[0], limit=query["top_k"])
    results = [
        {"text": point.payload.pop("text"), "score": point.score, "metadata": point.payload} for point in found.points
    ]
    return {"statusCode": 200, "body": json.dumps({"results": results}, ensure_ascii=False)}


def validate_handler(event, _context):
    asked = json.loads(event["body"])
    (point,) = store.retrieve(COLLECTION, ids=[asked["chunk_id"]])
    text = point.payload["text"]
    body = {"matches": text == asked["original_text"], "stored_text": text}
    return {"statusCode": 200, "body": json.dumps(body, ensure_ascii=False)}
