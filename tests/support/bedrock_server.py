"""A loopback HTTP server with Bedrock's InvokeModel for Cohere's and Titan's embeddings; it checks signatures."""

import hmac
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import unquote

from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from support.cohere_server import Embed, hashed
from support.recording_server import CannedResponse, listening

REGION = "us-west-2"
ACCESS_KEY, SECRET_KEY, SESSION_TOKEN = "AKIATESTBEDROCK", "test-bedrock-s3cr3t-55d0", "test-session-t0ken-91"
MAX_TOKENS = 512
PATH = re.compile(r"/model/([^/]+)/invoke")
SIGNED = re.compile(
    r"AWS4-HMAC-SHA256 Credential=(?P<key>[^/]+)/\d{8}/(?P<region>[^/]+)/(?P<service>[^/]+)/aws4_request, "
    r"SignedHeaders=(?P<headers>[^,]+), Signature=(?P<signature>[0-9a-f]{64})"
)
# The settings of a process that may call it.
CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": ACCESS_KEY,
    "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
    "AWS_SESSION_TOKEN": SESSION_TOKEN,
    "AWS_REGION": REGION,
    "AWS_DEFAULT_REGION": REGION,
}


@dataclass
class BedrockServer:
    """The server's URL, the requests so far, and the responses to send next instead of embeddings."""

    url: str
    requests: list[dict[str, Any]] = field(default_factory=list)
    responses: list[CannedResponse] = field(default_factory=list)


@contextmanager
def bedrock_server(embed: Embed | None = None, length: float = 1.0) -> Iterator[BedrockServer]:
    """Run a server that embeds each text in 1024 values by default, and counts words as tokens."""
    vector_of = embed or hashed(1024)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            found = PATH.fullmatch(self.path)
            if found is None:
                return self._send(error(404, "UnknownOperationException", ""))
            model, request = unquote(found[1]), json.loads(body)
            server.requests.append({"model": model, **request})
            if server.responses:
                return self._send(server.responses.pop(0))
            if not self._is_signed(body):
                return self._send(
                    error(403, "InvalidSignatureException", f"The request signature for {ACCESS_KEY} is wrong")
                )
            return self._send(self._respond(model, request))

        def _respond(self, model: str, request: dict[str, Any]) -> CannedResponse:
            if "cohere.embed" in model:
                texts = request["texts"]
                if max(len(text.split()) for text in texts) > MAX_TOKENS and request["truncate"] == "NONE":
                    return error(400, "ValidationException", "too many tokens: max tokens per text is 512")
                vectors = [self._vector(text, request.get("output_dimension")) for text in texts]
                return _ok({"embeddings": {"float": vectors}, "response_type": "embeddings_by_type"})
            if "titan-embed-text" in model:
                text = request["inputText"]
                if len(text.split()) > MAX_TOKENS:
                    return error(
                        400,
                        "ValidationException",
                        "400 Bad Request: Too many input tokens. Max input tokens: 512, request input token count: 600",
                    )
                vector = self._vector(text, request.get("dimensions"))
                return _ok({"embedding": vector, "inputTextTokenCount": len(text.split())})
            return error(400, "ValidationException", "The provided model identifier is invalid.")

        def _vector(self, text: str, size: int | None) -> list[float]:
            return [value * length for value in vector_of(text)[:size]]

        def _is_signed(self, body: bytes) -> bool:
            signed = SIGNED.fullmatch(self.headers.get("authorization", ""))
            if signed is None or (signed["region"], signed["service"]) != (REGION, "bedrock"):
                return False
            names = signed["headers"].split(";")
            if not {"host", "x-amz-security-token"} <= set(names):
                return False
            url = f"http://{self.headers['host']}{self.path}"
            request = AWSRequest("POST", url, {name: self.headers[name] for name in names}, body)
            request.context["timestamp"] = self.headers["x-amz-date"]
            auth = SigV4Auth(Credentials(ACCESS_KEY, SECRET_KEY), "bedrock", REGION)
            wanted = auth.signature(auth.string_to_sign(request, auth.canonical_request(request)), request)
            return hmac.compare_digest(wanted, signed["signature"])

        def _send(self, response: CannedResponse) -> None:
            self.send_response(response.status)
            for name, value in response.headers.items():
                self.send_header(name, value)
            self.send_header("content-length", str(len(response.body)))
            self.end_headers()
            self.wfile.write(response.body)

        def log_message(self, *_: object) -> None:
            """Write no log."""

    with listening(Handler, "127.0.0.1", 0) as url:
        server = BedrockServer(url)
        yield server


def _ok(body: dict[str, Any]) -> CannedResponse:
    return CannedResponse(200, json.dumps(body).encode(), {"content-type": "application/json"})


def error(status: int, code: str, message: str, **headers: str) -> CannedResponse:
    """An error response of AWS."""
    body = json.dumps({"message": message}).encode()
    return CannedResponse(
        status, body, {"content-type": "application/json", "x-amzn-errortype": f"{code}:http://internal/", **headers}
    )
