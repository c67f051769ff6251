"""The sample handbook: Markdown documents, one chunk per section, and a suite of cases for them."""

import re
from collections.abc import Iterator
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any

WRITTEN = "2026-01-15T09:00:00Z"
SITE = "https://handbook.example.com"


def sample_chunks() -> Iterator[dict[str, Any]]:
    """Yield every chunk of the handbook, in the format of `chunks.jsonl`."""
    folder = files(__package__) / "corpus"
    for document in sorted(folder.iterdir(), key=lambda file: file.name):
        if document.name.endswith(".md"):
            # Read as bytes, because text mode would convert line ends.
            yield from _split_document(document.name.removesuffix(".md"), document.read_bytes().decode("utf-8"))


def sample_suite() -> Traversable:
    """Return the suite file for the handbook."""
    return files(__package__) / "suite.yaml"


def _split_document(document_id: str, markdown: str) -> Iterator[dict[str, Any]]:
    head, *sections = re.split(r"^(?=## )", markdown, flags=re.M)
    title = head.strip().removeprefix("# ")
    for position, section in enumerate(sections):
        text = section.strip("\n")
        heading = text.partition("\n")[0].removeprefix("## ")
        yield {
            "chunk_id": f"{document_id}-{position:02d}",
            "text": text,
            "url": f"{SITE}/{document_id}#s{position:02d}",
            "document_id": document_id,
            "document_title": title,
            "section_heading": heading,
            "section_headers": [title, heading],
            "breadcrumb": f"Handbook > {title} > {heading}",
            "position": position,
            "total_chunks": len(sections),
            "content_type": "mixed" if "```" in text else "text",
            "has_code": "```" in text,
            "timestamp": WRITTEN,
        }
