"""Cohere's embed API, and the secret with its key, on loopback: in a process of its own and quick, not to be measured.

The answers are made beforehand: a text gets one of `QUERY_VECTORS` vectors. Speaks v2, and v1 for SDKs that ask it.
"""

import asyncio
import json
import sys

from bench.corpus import query_vectors, vector_number
from support.cohere_server import KEY

HEAD = b"HTTP/1.1 %d OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%s"
BODY = (
    '{"id":"0d4d1a5e","embeddings":%s,"texts":%s,'
    '"meta":{"api_version":{"version":"2"},"billed_units":{"input_tokens":12}},"response_type":"%s"}'
)

SECRET = json.dumps(
    {"ARN": "arn", "Name": "keys", "VersionId": "1", "SecretString": json.dumps({"COHERE_API_KEY": KEY})}
).encode()


class Cohere(asyncio.Protocol):
    """One connection, kept alive; a request at a time."""

    def __init__(self, vectors: list[str]) -> None:
        self._vectors = vectors
        self._received = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._received += data
        head, separator, body = self._received.partition(b"\r\n\r\n")
        if not separator:
            return
        lines = head.lower().split(b"\r\n")
        length = next((int(line[15:]) for line in lines[1:] if line.startswith(b"content-length:")), 0)
        if len(body) < length:
            return
        self._received = body[length:]
        status, answer = self._answer(head.split(b" ", 2)[1], json.loads(body[:length] or "{}"))
        self._transport.write(HEAD % (status, len(answer), answer))  # type: ignore[attr-defined]

    def _answer(self, path: bytes, asked: dict[str, object]) -> tuple[int, bytes]:
        # Secrets Manager's GetSecretValue, or the extension beside a function.
        if "SecretId" in asked or path.startswith(b"/secretsmanager/get"):
            return 200, SECRET
        if path not in (b"/v2/embed", b"/v1/embed"):
            return 404, b'{"message":"not found"}'
        texts = asked["texts"]
        assert isinstance(texts, list)
        found = ",".join(self._vectors[vector_number(text)] for text in texts)
        if asked.get("embedding_types"):
            embeddings, kind = f'{{"float":[{found}]}}', "embeddings_by_type"
        else:
            embeddings, kind = f"[{found}]", "embeddings_floats"
        return 200, (BODY % (embeddings, json.dumps(texts), kind)).encode()


async def serve(host: str) -> None:
    # Eight digits, as Cohere sends them.
    vectors = [json.dumps([round(float(value), 8) for value in vector]) for vector in query_vectors()]
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Cohere(vectors), host, 0)
    port = server.sockets[0].getsockname()[1]
    beside = await loop.create_server(lambda: Cohere(vectors), "localhost", port)
    print(port, flush=True)
    await asyncio.gather(server.serve_forever(), beside.serve_forever())


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1]))
