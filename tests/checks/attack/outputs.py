"""Control characters in text for every medium: terminal, text, Markdown, HTML and JSON."""

import json
import random
import re
import time

from chunkproof_cli.output import escape_controls, escape_json, escape_line
from chunkproof_cli.reports.html_kit import element
from chunkproof_cli.reports.markdown import escape_text

from checks.attack.result import Result

ACTIVE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
PARTS = (
    "a",
    "\x1b[2J",
    "\x07",
    "\x00",
    "\x9b",
    "\x85",
    "\u202e",
    "\u2066",
    "\u2028",
    "\n",
    "\r",
    "\t",
    "<b>",
    "|",
    "`",
    "é",
)


def run(seed: int, seconds: float) -> Result:
    """Write texts of such characters for every medium until the time is over."""
    rng, end = random.Random(seed), time.monotonic() + seconds
    tried, slowest, slips = 0, 0.0, []
    while time.monotonic() < end or not tried:
        text = "".join(rng.choices(PARTS, k=rng.randrange(1, 30)))
        started = time.thread_time()
        shown = {
            "terminal": escape_line(text),
            "text": escape_controls(text),
            "markdown": escape_text(text),
            "html": str(element("p", text)),
            "json": escape_json(json.dumps(text, ensure_ascii=False)),
        }
        slowest = max(slowest, time.thread_time() - started)
        tried += 1
        for medium, safe in shown.items():
            lines = medium in ("terminal", "markdown", "json") and len(safe.splitlines()) > 1
            if ACTIVE.search(safe) or lines or (medium == "html" and "<b>" in safe):
                slips.append(f"{medium}: {text!r}")
        if json.loads(shown["json"]) != text:
            slips.append(f"json changed: {text!r}")
    return Result("control characters", tried, tried - len(slips), slowest, tuple(slips))
