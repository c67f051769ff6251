"""Read the documents of a folder: text, Markdown, HTML and PDF."""

import os
from codecs import BOM_UTF8, BOM_UTF16_BE, BOM_UTF16_LE
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser
from importlib.util import find_spec
from pathlib import Path

from chunkproof.errors import InvalidParameterError

MAX_BYTES = 200_000_000
_SKIPPED = {"script", "style", "template", "noscript", "svg", "head"}
_BLOCKS = {
    *("address", "article", "aside", "blockquote", "br", "dd", "div", "dl", "dt", "fieldset", "figcaption", "figure"),
    *("footer", "form", "h1", "h2", "h3", "h4", "h5", "h6", "header", "hr", "li", "main", "nav", "ol", "p", "pre"),
    *("section", "table", "td", "th", "tr", "ul"),
}
_VOID = {"br", "hr", "img", "input", "link", "meta", "col", "source", "track", "wbr", "area", "base", "embed"}


class UnreadableError(Exception):
    """A document that cannot be read, and why."""


@dataclass
class Folder:
    """The documents of a folder; `unread` collects files that could not be read, with the reason."""

    path: Path
    unread: list[tuple[str, str]] = field(default_factory=list)
    other_files: int = 0

    def files(self) -> list[Path]:
        """Return the files that can be read, sorted; hidden ones and those outside of the folder are left out."""
        found: list[Path] = []
        self.other_files = 0
        for folder, folders, names in os.walk(self.path):
            folders[:] = sorted(name for name in folders if not name.startswith("."))
            for name in sorted(names):
                file = Path(folder, name)
                if name.startswith(".") or not file.is_file():
                    continue
                if file.suffix.lower() in READERS:
                    found.append(file)
                else:
                    self.other_files += 1
        if not found:
            known = ", ".join(READERS)
            raise InvalidParameterError(f"{self.path} has no document to read: {known}")
        if pdf := next((file for file in found if file.suffix.lower() == ".pdf"), None):
            _check_pypdf(pdf)
        return found

    def read(self) -> Iterator[tuple[str, str]]:
        """Yield the name and the text of each document."""
        self.unread.clear()
        for file in self.files():
            name = file.relative_to(self.path).as_posix()
            try:
                yield name, read_document(file)
            except UnreadableError as error:
                self.unread.append((name, str(error)))
            except OSError as error:
                self.unread.append((name, error.strerror or "cannot be read"))


def read_document(file: Path) -> str:
    """Return the text of a document; raise `UnreadableError` when it has none that can be read."""
    if file.stat().st_size > MAX_BYTES:
        raise UnreadableError(f"larger than {MAX_BYTES // 1_000_000} MB")
    return READERS[file.suffix.lower()](file)


def read_text(file: Path) -> str:
    """Read a text file: UTF-8, UTF-16 with a byte order mark, else Windows-1252."""
    content = file.read_bytes()
    if content.startswith((BOM_UTF16_LE, BOM_UTF16_BE)):
        return content.decode("utf-16", "replace")
    if b"\0" in content:
        raise UnreadableError("not a text")
    try:
        return content.removeprefix(BOM_UTF8).decode()
    except UnicodeDecodeError:
        return content.decode("cp1252", "replace")


def read_html(file: Path) -> str:
    """Read the visible text of a page."""
    return extract_text(read_text(file))


def extract_text(markup: str) -> str:
    """Return the visible text of HTML; a block starts on a new line."""
    parser = _VisibleText()
    parser.feed(markup)
    parser.close()
    return "".join(parser.parts)


class _VisibleText(HTMLParser):
    """Collects text outside of scripts, styles and the head."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.parts: list[str] = []
        self._skipped: list[str] = []

    def handle_starttag(self, tag: str, _attrs: object) -> None:
        if tag == "body":
            self._skipped.clear()  # a head may be left open
        elif tag in _SKIPPED:
            self._skipped.append(tag)
        elif tag in _BLOCKS:
            self.parts.append("\n")

    def handle_startendtag(self, tag: str, _attrs: object) -> None:
        if tag in _BLOCKS:
            self.parts.append("\n")

    def handle_endtag(self, tag: str) -> None:
        if tag in self._skipped:
            del self._skipped[self._skipped.index(tag) :]
        elif tag in _BLOCKS and tag not in _VOID:
            self.parts.append("\n")

    def handle_data(self, data: str) -> None:
        if not self._skipped:
            self.parts.append(data)


def _check_pypdf(file: Path) -> None:
    if find_spec("pypdf") is None:
        raise InvalidParameterError(f"{file}: reading PDF takes pypdf: pip install 'chunkproof[pdf]'")


def read_pdf(file: Path) -> str:
    """Read the text of a PDF, page by page."""
    from pypdf import PdfReader
    from pypdf.errors import PyPdfError

    try:
        pages = [page.extract_text() for page in PdfReader(file).pages]
    except PyPdfError as error:
        raise UnreadableError(f"not a readable PDF: {error}") from None
    except Exception as error:  # noqa: BLE001 - pypdf raises anything on a damaged file
        raise UnreadableError(f"not a readable PDF ({type(error).__name__})") from None
    text = "\n".join(pages)
    if not text.strip():
        raise UnreadableError("no text: scanned pages need OCR first")
    return text


READERS: dict[str, Callable[[Path], str]] = {
    ".txt": read_text,
    ".text": read_text,
    ".md": read_text,
    ".markdown": read_text,
    ".mdx": read_text,
    ".rst": read_text,
    ".html": read_html,
    ".htm": read_html,
    ".xhtml": read_html,
    ".pdf": read_pdf,
}
