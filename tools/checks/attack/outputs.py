"""Control characters in text for every medium: terminal, text, Markdown, HTML and JSON."""

import json
import re
import time

from chunkproof_cli.output import escape_controls, escape_json, escape_line
from chunkproof_cli.reports.to_html import element
from chunkproof_cli.reports.to_text import escape_markdown

from tools.checks.attack.attack import Attack

ACTIVE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
PARTS = (
    "a", "\x1b[2J", "\x07", "\x00", "\x9b", "\x85", "\u202e", "\u2066", "\u2028", "\n", "\r", "\t", "<b>", "|", "`",
    "é",
)  # fmt: skip


def run(attack: Attack) -> None:
    """Write texts of such characters for every medium."""
    while attack.goes_on():
        text = "".join(attack.rng.choices(PARTS, k=attack.rng.randrange(1, 30)))
        started = time.thread_time()
        shown = {
            "terminal": escape_line(text),
            "text": escape_controls(text),
            "markdown": escape_markdown(text),
            "html": str(element("p", text)),
            "json": escape_json(json.dumps(text, ensure_ascii=False)),
        }
        spent = time.thread_time() - started
        wrong = [medium for medium, safe in shown.items() if _acts(medium, safe)]
        if json.loads(shown["json"]) != text:
            wrong.append("changed json")
        attack.note(spent, f"{', '.join(wrong)}: {text!r}" if wrong else None)


def _acts(medium: str, safe: str) -> bool:
    has_lines = medium in ("terminal", "markdown", "json") and len(safe.splitlines()) > 1
    return bool(ACTIVE.search(safe)) or has_lines or (medium == "html" and "<b>" in safe)
