"""Services that send a caller's key back, published parts that are damaged, and disks that are nearly full.

No key reaches an output or a report, publishing again mends every part, and a full disk is an error with a message.
"""

import json
import os
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from random import Random
from shutil import which
from socketserver import StreamRequestHandler, ThreadingTCPServer
from threading import Thread
from time import monotonic
from urllib.parse import quote

import boto3
from moto import mock_aws

from chunkproof.base.errors import VectorStoreUnavailableError
from chunkproof.base.request import Deadline
from chunkproof.net.s3 import Bucket
from chunkproof.stores.edge import EdgeStore
from chunkproof.stores.published import PublishedCollections, list_version
from chunkproof.stores.store_port import Point

from support.echoes import ECHOES, make_key, shows
from tools.checks.attack.attack import Attack
from tools.checks.attack.commands import start

# The first ones have the key in a line of the head, the others in a body.
JSON_FROM = 7
RESPONSES: tuple[Callable[[str], str], ...] = (
    lambda key: f"HTTP/1.1 401 {key}\r\ncontent-length: 0\r\n\r\n",
    lambda key: f"HTTP/1.1 {key} OK\r\n\r\n",
    lambda key: f"{key} 200 OK\r\n\r\n",
    lambda key: f"HTTP/1.1 200 OK\r\n{key} = x\r\n\r\n",
    lambda key: f"HTTP/1.1 302 Found\r\nlocation: http://{key}@127.0.0.1:1/\r\ncontent-length: 0\r\n\r\n",
    lambda key: f"HTTP/1.1 200 OK\r\ncontent-type: text/{key}\r\ncontent-length: 2\r\n\r\nno",
    lambda key: f"HTTP/1.1 200 OK\r\ncontent-encoding: {key}\r\ncontent-length: 2\r\n\r\nno",
    lambda key: _reply(json.dumps({key: True})),
    lambda key: _reply(json.dumps({"error": {"message": f"Bearer {key} is no key"}}), "500 Oh"),
    lambda key: _reply(json.dumps([{"id": key, "text": key, "score": 1}])),
    lambda key: _reply(f"not JSON: {key}"),
)
DAMAGES: tuple[Callable[[bytes, Random], bytes], ...] = (
    lambda _part, _rng: b"",
    lambda part, _rng: part[:-1],
    lambda part, _rng: part + b"x",
    lambda part, rng: bytes([part[0] ^ (1 << rng.randrange(8))]) + part[1:],
    lambda part, rng: rng.randbytes(len(part)),
)


def run(attack: Attack) -> None:
    """Make such attempts; a small disk needs the right to mount one."""
    attempts = [_echo, _damage_parts]
    if os.geteuid() == 0 and which("mount"):
        attempts.append(_fill_disk)
    number = 0
    while attack.goes_on():
        started, attempt = monotonic(), attempts[number % len(attempts)]
        with tempfile.TemporaryDirectory() as folder:
            wrong = attempt(attack.rng, Path(folder))
        attack.note(monotonic() - started, wrong)
        number += 1


def _reply(body: str, status: str = "200 OK") -> str:
    return f"HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n{body}"


def _echo(rng: Random, folder: Path) -> str | None:
    """Run a suite against a service that sends the key back in some way, and read everything that was written."""
    key, (way, write), number = make_key(rng), rng.choice(list(ECHOES.items())), rng.randrange(len(RESPONSES))
    case = {"name": "q", "query_text": "a question", "expected_doc_ids": ["x"]}
    (folder / "suite.json").write_text(json.dumps({"name": "s", "collection": "c", "cases": [case]}))
    place, environment = rng.choice(("login", "parameter", "header", "variable", "token")), {}
    with _send(RESPONSES[number](write(key).replace("\n", " " if number < JSON_FROM else "\n"))) as address:
        url = f"http://{address}/find"
        if place == "login":
            url = f"http://me:{quote(key, safe='')}@{address}/find"
        elif place == "parameter":
            url += f"?X-Amz-Signature={quote(key, safe='')}"
        options = rng.choice((["--api", url], ["--retriever", url], ["--retriever", f"mcp:find@{url}"]))
        if place == "token":
            options, environment = ["--api", url], {"CHUNKPROOF_TOKEN": key}
        elif place in ("header", "variable"):
            headers = {"header": {"x-service": f"v1{key}"}, "variable": {"authorization": "Bearer ${SERVICE}"}}[place]
            options, environment = [*options, "--retriever-map", json.dumps({"headers": headers})], {"SERVICE": key}
            options[0] = "--retriever"
        outputs = [word for ending in ("json", "html", "xml") for word in ("-o", f"report.{ending}")]
        environment["CHUNKPROOF_DEADLINE_MS"] = "1500"
        ended = start(folder, "echo", "suite", "run", "suite.json", *options, *outputs, env=environment).wait()
    written = [file.read_text("utf-8") for file in folder.iterdir() if file.name != "suite.json"]
    if "Traceback" in ended.err or not 0 < ended.code < 4:
        return f"echo {number} by {options[1]}: exit {ended.code} {ended.err[-300:]}"
    shown = [text for text in written if shows(key, text)]
    return f"echo {number} as {way} by {options}: {shown[0][:500]}" if shown else None


@contextmanager
def _send(text: str) -> Iterator[str]:
    """Send this text to every connection, whatever it asks; yield the address."""

    class Handler(StreamRequestHandler):
        def handle(self) -> None:
            self.request.recv(65_536)
            self.wfile.write(text.encode())

    with ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        yield f"127.0.0.1:{server.server_address[1]}"
        server.shutdown()


def _damage_parts(rng: Random, folder: Path) -> str | None:
    """Damage parts of a published collection, publish it again, and fetch it."""
    source = folder / "docs"
    (source / "segments").mkdir(parents=True)
    for number in range(rng.randrange(1, 4)):
        (source / "segments" / str(number)).write_bytes(rng.randbytes(rng.choice((1, 100, 70_000))))
    with _no_keys(), mock_aws():
        boto3.client("s3", "us-east-1").create_bucket(Bucket="parts")
        published = PublishedCollections(Bucket("parts"))
        version = list_version(source, list(_files(source)), "docs", 3)
        published.publish(source, version, lambda _: None)
        for file in version.files:
            for part in file.parts:
                stored = boto3.client("s3", "us-east-1").get_object(Bucket="parts", Key=f"parts/{part.sha256}")
                damaged = rng.choice(DAMAGES)(stored["Body"].read(), rng)
                published.bucket.write(f"parts/{part.sha256}", damaged)
        published.publish(source, version, lambda _: None)
        try:
            published.fetch(version, folder / "fetched")
        except Exception as error:  # noqa: BLE001 - every error is one that publishing should have mended
            return f"published again, but: {error}"
    wanted, fetched = ({p.name: p.read_bytes() for p in _files(root)} for root in (source, folder / "fetched"))
    return None if fetched == wanted else "the fetched files are others"


@contextmanager
def _no_keys() -> Iterator[None]:
    before = dict(os.environ)
    os.environ |= {"AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "x", "AWS_DEFAULT_REGION": "us-east-1"}
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def _files(folder: Path) -> Iterator[Path]:
    return (path for path in sorted(folder.rglob("*")) if path.is_file() and not path.name.startswith("."))


def _fill_disk(rng: Random, folder: Path) -> str | None:
    """Write to a collection on a small file system in memory until it is full."""
    size = rng.choice((1, 8, 40, 90))
    command = ["mount", "-t", "tmpfs", "-o", f"size={size}m", "tmpfs", str(folder)]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        return None  # not allowed here
    try:
        pid = os.fork()
        if not pid:
            os._exit(_write_until_full(folder, size))
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=False)
    return None if code == 0 else f"{size} MB: exit {code}"


def _write_until_full(folder: Path, size: int) -> int:
    """Return 0 if the store ends with a message."""
    try:
        with closing(EdgeStore(folder / "data")) as store:
            store.create("docs", 4, Deadline(60_000))
            for number in range(2 * size + 8):
                payload = {"text": os.urandom(400_000).hex()}
                store.upsert("docs", [Point(number, payload, vector=(1.0, 0.0, 0.0, 0.0))], "", Deadline(60_000))
    except VectorStoreUnavailableError:
        return 0
    except BaseException:  # noqa: BLE001 - the child must not go on as its parent
        return 71
    return 72
