"""The floor: the same two calls with the standard library alone, and nothing else done."""

import json
import os
from http.client import HTTPConnection
from urllib.parse import urlsplit

COLLECTION = os.environ["COLLECTION"]
COHERE = {"content-type": "application/json", "authorization": f"Bearer {os.environ['COHERE_API_KEY']}"}
QDRANT = {"content-type": "application/json"}
cohere = HTTPConnection(urlsplit(os.environ["COHERE_BASE_URL"]).netloc)
qdrant = HTTPConnection(urlsplit(os.environ["QDRANT_URL"]).netloc)


def post(connection, path, headers, body):
    try:
        connection.request("POST", path, json.dumps(body), headers)
        answer = connection.getresponse()
    except ConnectionError:  # it was kept alive for longer than the server does
        connection.close()
        connection.request("POST", path, json.dumps(body), headers)
        answer = connection.getresponse()
    return json.loads(answer.read())


def lambda_handler(event, _context):
    query = json.loads(event["body"])
    asked = {
        "model": "embed-english-v3.0",
        "texts": [query["query_text"]],
        "input_type": "search_query",
        "embedding_types": ["float"],
    }
    vector = post(cohere, "/v2/embed", COHERE, asked)["embeddings"]["float"][0]
    wanted = {"query": vector, "limit": query["top_k"], "with_payload": True}
    found = post(qdrant, f"/collections/{COLLECTION}/points/query", QDRANT, wanted)
    results = [
        {"text": point["payload"].pop("text"), "score": point["score"], "metadata": point["payload"]}
        for point in found["result"]["points"]
    ]
    return {"statusCode": 200, "body": json.dumps({"results": results}, ensure_ascii=False)}
