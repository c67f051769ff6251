"""Headless Chromium, driven over its DevTools protocol through a pipe: nothing to install but the browser."""

import base64
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

import pytest

from chunkproof_cli.local.sandbox_services import CACHE, NotFetchedError, npm_file

AXE = "axe-core@4.14.0"
AXE_SHA256 = "20c09fe157a8a34a30e241aaa1fcdade657734f08ab379ecfbeb7d45cc46e878"
NAMES = ("chromium", "chromium-browser", "google-chrome")


class NoBrowserError(Exception):
    """No browser is installed; the message names those that were looked for."""


class Page:
    """An open page; `console` and `requests` have everything that it logged and requested."""

    def __init__(self, browser: "Chromium", session: str) -> None:
        self._browser = browser
        self._session = session
        self.console: list[str] = []
        self.requests: list[str] = []

    def send(self, method: str, **params: Any) -> Any:
        return self._browser.send(method, self._session, **params)

    def run(self, script: str) -> Any:
        """Evaluate an expression in the page; a promise is awaited."""
        found = self.send("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in found:
            raise AssertionError(found["exceptionDetails"])
        return found["result"].get("value")

    def press(self, key: str, text: str = "") -> None:
        code = {"Tab": 9, "Enter": 13}.get(key, 0)
        for kind in ("keyDown", "keyUp"):
            typed = {"text": text} if text and kind == "keyDown" else {}
            self.send("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code, **typed)

    def look(self, *, width: int = 1200, height: int = 900, scheme: str = "light", media: str = "screen") -> None:
        """Set the width, the colour scheme, and screen or print."""
        phone = width < 600
        self.send(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=phone,
        )
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.send("Emulation.setEmulatedMedia", media=media, features=features)

    def axe_violations(self) -> list[tuple[str, str, list[str]]]:
        """Check accessibility with axe: the rules that are violated, how serious that is, and where."""
        try:
            axe = npm_file(AXE, "axe.min.js", AXE_SHA256, CACHE / "axe-core-4.14.0.js")
        except NotFetchedError as reason:
            skip_without_browser(reason)
        if self.run("typeof axe === 'undefined'"):
            self.run(axe.read_text("utf-8") + "; 0")
        script = "axe.run().then(done => JSON.stringify([done.violations, done.passes.length]))"
        violations, passes = json.loads(self.run(script))
        assert passes > 15, "axe checked next to nothing"
        return [(one["id"], one["impact"], [node["html"][:200] for node in one["nodes"]]) for one in violations]

    def picture(self) -> bytes:
        shot = self.send("Page.captureScreenshot", format="png", captureBeyondViewport=True)
        return base64.b64decode(shot["data"])

    def record_event(self, method: str, params: dict[str, Any]) -> None:
        if method == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])
        elif method == "Runtime.consoleAPICalled":
            self.console.append(str([one.get("value") for one in params["args"]]))
        elif method == "Runtime.exceptionThrown":
            self.console.append(str(params["exceptionDetails"]))
        elif method == "Log.entryAdded":
            self.console.append(params["entry"]["text"])


class Chromium:
    """A browser process; each message is JSON and ends with a NUL."""

    def __init__(self, program: str, home: Path) -> None:
        to_browser, self._write = os.pipe()
        self._read, from_browser = os.pipe()
        options = ["--headless", "--remote-debugging-pipe", f"--user-data-dir={home}", "--no-first-run"]
        options += [
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--disable-background-networking",
            "--no-sandbox",
        ]
        # The protocol uses descriptors 3 and 4; a shell moves ours there.
        moved = f'exec "$0" "$@" 3<&{to_browser} 4>&{from_browser}'
        self._process = subprocess.Popen(
            ["/bin/bash", "-c", moved, program, *options, "about:blank"],
            pass_fds=(to_browser, from_browser),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_browser)
        os.close(from_browser)
        self._left = b""
        self._number = 0
        self._pages: dict[str, Page] = {}

    def send(self, method: str, session: str | None = None, **params: Any) -> Any:
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": params}
        if session:
            message["sessionId"] = session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._number:
                if "error" in answer:
                    raise AssertionError(f"{method}: {answer['error']}")
                return answer["result"]
            if page := self._pages.get(answer.get("sessionId", "")):
                page.record_event(answer["method"], answer["params"])

    def open(self, place: Path | str) -> Page:
        """Open a file or an address in a page of its own, and wait until it is loaded."""
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = self._pages[session] = Page(self, session)
        for domain in ("Network", "Runtime", "Log", "Page"):
            page.send(f"{domain}.enable")
        page.send("Page.navigate", url=place if isinstance(place, str) else place.resolve().as_uri())
        page.run("new Promise(done => document.readyState === 'complete' ? done() : addEventListener('load', done))")
        return page

    def close(self) -> None:
        self._process.terminate()
        self._process.wait(10)
        os.close(self._write)
        os.close(self._read)

    def _next(self) -> Any:
        while b"\0" not in self._left:
            part = os.read(self._read, 1 << 20)
            if not part:
                raise NoBrowserError("the browser ended")
            self._left += part
        message, _, self._left = self._left.partition(b"\0")
        return json.loads(message)


@contextmanager
def chromium() -> Iterator[Chromium]:
    """Run a browser with a profile of its own."""
    program = next((found for name in NAMES if (found := shutil.which(name))), None)
    if program is None:
        raise NoBrowserError(f"none of {', '.join(NAMES)} is installed")
    home = tempfile.mkdtemp(prefix="chunkproof-chromium-")
    browser = Chromium(program, Path(home))
    try:
        yield browser
    finally:
        browser.close()
        shutil.rmtree(home, ignore_errors=True)


def skip_without_browser(reason: Exception) -> NoReturn:
    """Skip the test, or fail it where a browser is required."""
    if os.environ.get("CHUNKPROOF_REQUIRE_BROWSER"):
        pytest.fail(f"a browser is required here: {reason}")
    pytest.skip(f"no browser: {reason}")
