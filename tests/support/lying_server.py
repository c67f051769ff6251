"""A loopback server that passes requests on to a real Qdrant, and lies about pages of points."""

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any
from urllib.request import Request, urlopen

Lie = Callable[[dict[str, Any], dict[str, Any]], None]


def end_early(_request: dict[str, Any], result: dict[str, Any]) -> None:
    result["next_page_offset"] = None


def leave_out_points(_request: dict[str, Any], result: dict[str, Any]) -> None:
    del result["points"][1::3]


def repeat_the_page(request: dict[str, Any], result: dict[str, Any]) -> None:
    if result["points"]:
        result["next_page_offset"] = request.get("offset") or result["points"][0]["id"]


def turn_around(_request: dict[str, Any], result: dict[str, Any]) -> None:
    result["points"].reverse()


def repeat_points(_request: dict[str, Any], result: dict[str, Any]) -> None:
    result["points"] += result["points"][-1:]


def stand_still(request: dict[str, Any], result: dict[str, Any]) -> None:
    """Return no point and an offset that goes on, forever."""
    if start := request.get("offset"):
        result.update(points=[], next_page_offset=start + 1)


def go_back(request: dict[str, Any], result: dict[str, Any]) -> None:
    if request.get("offset") and result["next_page_offset"]:
        result["next_page_offset"] = 1


def leave_out_payloads(request: dict[str, Any], result: dict[str, Any]) -> None:
    for point in result["points"] if request["with_payload"] else ():
        del point["payload"]


def empty_payloads(request: dict[str, Any], result: dict[str, Any]) -> None:
    for point in result["points"] if request.get("offset") else ():
        point["payload"] = None


def skip_ahead(_request: dict[str, Any], result: dict[str, Any]) -> None:
    if result["next_page_offset"]:
        result["next_page_offset"] += 3


def repeat_across_pages(request: dict[str, Any], result: dict[str, Any]) -> None:
    if request.get("offset") and result["points"]:
        result["points"][0] = {**result["points"][0], "id": request["offset"] - 1}


def write_ids_as_texts(_request: dict[str, Any], result: dict[str, Any]) -> None:
    for point in result["points"]:
        point["id"] = str(point["id"])


def _change_every_third(change: Callable[[dict[str, Any]], object]) -> Lie:
    """Return a lie about some points, on pages and when they are asked for by their ids."""

    def lie(_request: dict[str, Any], result: Any) -> None:
        for point in result["points"] if isinstance(result, dict) else result:
            if point["id"] % 3 == 0 and point.get("payload"):
                change(point)

    return lie


LEFT_OUT: dict[str, Lie] = {
    "payloads": _change_every_third(lambda point: point.update(payload={})),
    "texts": _change_every_third(lambda point: point["payload"].pop("text")),
    "ids": _change_every_third(lambda point: point["payload"].pop("chunk_id")),
    "inner fields": _change_every_third(lambda point: point["payload"]["metadata"].pop("author")),
    "vectors": _change_every_third(lambda point: point.pop("vector", None)),
}
LIES: dict[str, Lie] = {
    lie.__name__: lie
    for lie in (
        *(end_early, leave_out_points, repeat_the_page, turn_around, repeat_points, stand_still, go_back),
        *(skip_ahead, repeat_across_pages, write_ids_as_texts),
    )
}


@contextmanager
def lying_server(url: str, lie: Lie, counts: Sequence[int] = (), *, by_id: bool = False) -> Iterator[str]:
    """Serve what the Qdrant at `url` answers, but for pages of points, and for counts while `counts` has some.

    With `by_id`, it lies about points that are asked for by their ids, too.
    """
    numbers = iter(counts)

    class Handler(BaseHTTPRequestHandler):
        def respond(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length") or 0))
            headers = {"content-type": "application/json"}
            request = Request(url + self.path, body or None, headers, method=self.command)
            with urlopen(request) as response:
                content, status = response.read(), response.status
            path, is_read = self.path.partition("?")[0], by_id and self.command == "POST"
            if path.endswith("/points/scroll") or (is_read and path.endswith("/points")):
                answer = json.loads(content)
                lie(json.loads(body), answer["result"])
                content = json.dumps(answer).encode()
            elif self.path.partition("?")[0].endswith("/points/count") and (number := next(numbers, None)) is not None:
                content = json.dumps({"result": {"count": number}, "status": "ok", "time": 0.0}).encode()
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_POST = do_PUT = respond  # noqa: N815

        def log_message(self, *_words: object) -> None:
            """Write nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
