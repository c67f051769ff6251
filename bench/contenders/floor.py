"""The floor: the same two calls with the standard library alone, and nothing else done.

Behind a distance, the connection to Qdrant is opened while the query is embedded.
"""

import json
import os
from http.client import HTTPConnection, HTTPSConnection
from threading import Thread
from urllib.parse import urlsplit

COLLECTION = os.environ["COLLECTION"]
COHERE = {"content-type": "application/json", "authorization": f"Bearer {os.environ['COHERE_API_KEY']}"}
QDRANT = {"content-type": "application/json"}


def connection_to(url):
    parts = urlsplit(url)
    return (HTTPSConnection if parts.scheme == "https" else HTTPConnection)(parts.netloc)


cohere = connection_to(os.environ["COHERE_BASE_URL"])
qdrant = connection_to(os.environ["QDRANT_URL"])
is_far = isinstance(qdrant, HTTPSConnection)


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
    opening = None
    if is_far and qdrant.sock is None:
        opening = Thread(target=qdrant.connect)
        opening.start()
    vector = post(cohere, "/v2/embed", COHERE, asked)["embeddings"]["float"][0]
    wanted = {"query": vector, "limit": query["top_k"], "with_payload": True}
    if opening:
        opening.join()
    found = post(qdrant, f"/collections/{COLLECTION}/points/query", QDRANT, wanted)
    results = [
        {"text": point["payload"].pop("text"), "score": point["score"], "metadata": point["payload"]}
        for point in found["result"]["points"]
    ]
    return {"statusCode": 200, "body": json.dumps({"results": results}, ensure_ascii=False)}
