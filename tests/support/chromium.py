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
from typing import Any

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome")


class NoBrowserError(Exception):
    """No browser on this machine; the message says what was looked for."""


class Page:
    """An open page; `console` and `requests` have everything that it said and asked for."""

    def __init__(self, browser: "Chromium", session: str) -> None:
        self._browser = browser
        self._session = session
        self.console: list[str] = []
        self.requests: list[str] = []

    def send(self, method: str, **params: Any) -> Any:
        return self._browser.send(method, self._session, **params)

    def run(self, script: str) -> Any:
        """The value of an expression in the page; a promise is waited for."""
        found = self.send("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in found:
            raise AssertionError(found["exceptionDetails"])
        return found["result"].get("value")

    def press(self, key: str, text: str = "") -> None:
        code = {"Tab": 9, "Enter": 13}.get(key, 0)
        for kind in ("keyDown", "keyUp"):
            typed = {"text": text} if text and kind == "keyDown" else {}
            self.send(
                "Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code, **typed
            )

    def look(
        self, *, width: int = 1200, height: int = 900, scheme: str = "light", media: str = "screen"
    ) -> None:
        """See it as wide as this, in this colour scheme, on screen or paper."""
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

    def picture(self) -> bytes:
        shot = self.send("Page.captureScreenshot", format="png", captureBeyondViewport=True)
        return base64.b64decode(shot["data"])

    def noted(self, method: str, params: dict[str, Any]) -> None:
        if method == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])
        elif method == "Runtime.consoleAPICalled":
            self.console.append(str([one.get("value") for one in params["args"]]))
        elif method == "Runtime.exceptionThrown":
            self.console.append(str(params["exceptionDetails"]))
        elif method == "Log.entryAdded":
            self.console.append(params["entry"]["text"])


class Chromium:
    """A browser process; messages are JSON that end with a NUL."""

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
        # The protocol wants descriptors 3 and 4; a shell moves ours there.
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
                page.noted(answer["method"], answer["params"])

    def open(self, place: Path | str) -> Page:
        """Open a file or an address in a page of its own, and wait until it is loaded."""
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = self._pages[session] = Page(self, session)
        for domain in ("Network", "Runtime", "Log", "Page"):
            page.send(f"{domain}.enable")
        page.send("Page.navigate", url=place if isinstance(place, str) else place.resolve().as_uri())
        page.run(
            "new Promise(done => document.readyState === 'complete' ? done() : addEventListener('load', done))"
        )
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
    """A running browser with a profile of its own."""
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


def unusable(reason: Exception) -> None:
    """Skip, unless this is where the page must be tested."""
    if os.environ.get("CHUNKPROOF_REQUIRE_BROWSER"):
        pytest.fail(f"a browser is required here: {reason}")
    pytest.skip(f"no browser: {reason}")
