"""API Gateway's HTTP APIs for tests, in front of functions: signatures and tokens are checked, CORS is answered.

Names such as `a1b2.execute-api.us-east-1.amazonaws.com` are reached through a proxy (`HTTPS_PROXY`), which ends the
tunnel itself, with a certificate that `SSL_CERT_FILE` vouches for; a browser reaches `NAME.localhost` without TLS.
Of a token, issuer, audience and expiry are checked, not the signature.
"""

import base64
import hmac
import json
import re
import ssl
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from email.message import Message
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import unquote, urlsplit

import trustme
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from chunkproof_cli.local.gateway import build_event

from support.recording_server import listening
from support.resources import ACCOUNT, REGION
from support.template import open_routes

SIGNED = re.compile(
    r"AWS4-HMAC-SHA256 Credential=(?P<key>[^/]+)/(?P<day>\d{8})/(?P<region>[^/]+)/(?P<service>[^/]+)/aws4_request, ?"
    r"SignedHeaders=(?P<headers>[^,]+), ?Signature=(?P<signature>[0-9a-f]{64})"
)
Caller = dict[str, dict[str, Any]]  # as `requestContext.authorizer` has it


class Functions(Protocol):
    """Where definitions and functions are."""

    def api(self, id_: str) -> dict[str, Any] | None: ...

    def invoke(self, arn: str, event: dict[str, Any]) -> dict[str, Any]: ...


@dataclass(frozen=True)
class HttpApis:
    """How a command reaches them."""

    proxy: str
    certificate: Path

    @property
    def variables(self) -> dict[str, str]:
        vouching = str(self.certificate)
        return {"HTTPS_PROXY": self.proxy, "SSL_CERT_FILE": vouching, "CURL_CA_BUNDLE": vouching}


@contextmanager
def http_apis(functions: Functions, credentials: Mapping[str, str], folder: Path) -> Iterator[HttpApis]:
    """All APIs of the account, until the block ends."""
    authority = trustme.CA()
    certificate = folder / "authority.pem"
    authority.cert_pem.write_to_path(certificate)
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert(f"*.execute-api.{REGION}.amazonaws.com").configure_cert(tls)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_CONNECT(self) -> None:
            self.send_response(200)
            self.end_headers()
            try:
                self.connection = tls.wrap_socket(self.connection, server_side=True)
            except ssl.SSLError:  # a client that does not trust this authority
                self.close_connection = True
                return
            self.rfile, self.wfile = self.connection.makefile("rb"), self.connection.makefile("wb", 0)
            self.close_connection = False

        def finish(self) -> None:
            super().finish()
            self.connection.close()

        def _answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length") or 0))
            answer = _respond(functions, credentials, self.command, self.path, self.headers, body)
            content = answer["body"].encode()
            if answer.get("isBase64Encoded"):
                content = base64.b64decode(content)
            self.send_response(answer["statusCode"])
            for name, value in {**answer["headers"], "content-length": len(content)}.items():
                self.send_header(name, str(value))
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_POST = do_PUT = do_DELETE = do_OPTIONS = _answer  # noqa: N815 - names of the base class

        def log_message(self, *_: object) -> None:
            """Quiet."""

    with listening(Handler) as proxy:
        yield HttpApis(proxy, certificate)


def _respond(
    functions: Functions,
    credentials: Mapping[str, str],
    method: str,
    target: str,
    headers: Message,
    body: bytes,
) -> dict[str, Any]:
    """Answer a request; with CORS, the gateway drops the headers of the function and adds its own, to errors too."""
    definition = functions.api(str(headers["host"]).partition(".")[0])
    if definition is None:
        return _message(404, "Not Found")
    cors = definition.get("x-amazon-apigateway-cors")
    if cors is None:
        return _call(functions, definition, credentials, method, target, headers, body)
    is_preflight = method == "OPTIONS"
    answer = (
        {"statusCode": 204, "headers": {}, "body": ""}
        if is_preflight
        else _call(functions, definition, credentials, method, target, headers, body)
    )
    sent = {name: value for name, value in answer["headers"].items() if not name.startswith("access-control-")}
    if headers.get("origin") in cors["allowOrigins"]:
        sent["access-control-allow-origin"] = headers["origin"]
        sent["access-control-expose-headers"] = ",".join(cors["exposeHeaders"])
        if is_preflight:
            sent["access-control-allow-methods"] = ",".join(cors["allowMethods"])
            sent["access-control-allow-headers"] = ",".join(cors["allowHeaders"])
            sent["access-control-max-age"] = str(cors["maxAge"])
    return {**answer, "headers": sent}


def _call(
    functions: Functions,
    definition: dict[str, Any],
    credentials: Mapping[str, str],
    method: str,
    target: str,
    headers: Message,
    body: bytes,
) -> dict[str, Any]:
    path = urlsplit(target).path
    found = _operation(definition, method, unquote(path))
    if found is None:
        return _message(404, "Not Found")
    route, operation = found
    scheme = definition["components"]["securitySchemes"]["caller"]
    if accepted := scheme.get("x-amazon-apigateway-authorizer"):
        caller = _bearer(accepted["jwtConfiguration"], headers)
    else:
        caller = _signer(credentials, method, f"https://{headers['host']}{target}", headers, body)
    if caller is None and route not in open_routes(definition):
        return _message(401, "Unauthorized") if accepted else _message(403, "Forbidden")
    scope = {
        "method": method,
        "path": unquote(path),
        "raw_path": path.encode(),
        "query_string": urlsplit(target).query.encode(),
        "headers": [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()],
        "http_version": "1.1",
    }
    event = build_event(scope, body)
    event["requestContext"].pop("authorizer")
    if caller:
        event["requestContext"]["authorizer"] = caller
    uri = operation["x-amazon-apigateway-integration"]["uri"]
    return functions.invoke(uri.split("/functions/")[1].removesuffix("/invocations"), event)


def _operation(definition: dict[str, Any], method: str, path: str) -> tuple[str, dict[str, Any]] | None:
    for pattern, item in definition["paths"].items():
        if re.fullmatch(re.sub(r"{\w+}", "[^/]+", pattern), path) and method.lower() in item:
            return f"{method} {pattern}", item[method.lower()]
    return None


def unsigned_token(**claims: Any) -> str:
    """A token with these claims and no signature."""
    parts = (base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in ({}, claims))
    return ".".join([*parts, "none"])


def _bearer(wanted: Mapping[str, Any], headers: Message) -> Caller | None:
    """The claims of a token for this API; else None."""
    token = headers.get("authorization", "").removeprefix("Bearer ").split(".")
    if len(token) != 3:
        return None
    claims = json.loads(base64.urlsafe_b64decode(token[1] + "=="))
    audiences = claims.get("aud") if isinstance(claims.get("aud"), list) else [claims.get("aud")]
    good = claims.get("iss") == wanted["issuer"] and set(audiences) & set(wanted["audience"])
    return {"jwt": {"claims": claims, "scopes": None}} if good and claims["exp"] > time.time() else None


def _signer(credentials: Mapping[str, str], method: str, url: str, headers: Message, body: bytes) -> Caller | None:
    """The caller of a request whose signature is right, as botocore computes it; else None."""
    signed = SIGNED.fullmatch(headers.get("authorization", ""))
    if signed is None or (signed["region"], signed["service"]) != (REGION, "execute-api"):
        return None
    names = signed["headers"].split(";")
    said = (signed["key"], headers.get("x-amz-security-token"))
    if said != (credentials["AWS_ACCESS_KEY_ID"], credentials["AWS_SESSION_TOKEN"]):
        return None
    if not {"host", "x-amz-security-token"} <= set(names):
        return None
    request = AWSRequest(method, url, {name: headers[name] for name in names}, body)
    request.context["timestamp"] = headers["x-amz-date"]
    key = Credentials(credentials["AWS_ACCESS_KEY_ID"], credentials["AWS_SECRET_ACCESS_KEY"])
    auth = SigV4Auth(key, signed["service"], signed["region"])
    wanted = auth.signature(auth.string_to_sign(request, auth.canonical_request(request)), request)
    caller = {"iam": {"accessKey": signed["key"], "accountId": ACCOUNT}}
    return caller if hmac.compare_digest(wanted, signed["signature"]) else None


def _message(status: int, message: str) -> dict[str, Any]:
    """An error response of the gateway itself."""
    body = json.dumps({"message": message})
    return {"statusCode": status, "headers": {"content-type": "application/json"}, "body": body}
