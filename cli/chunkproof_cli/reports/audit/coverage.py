"""The coverage of source documents in every format of an audit report."""

from collections.abc import Iterator
from math import floor

from chunkproof.audit.source_coverage import DocumentCoverage, SourceCoverage
from chunkproof_cli.output import shorten
from chunkproof_cli.reports import html_kit as kit
from chunkproof_cli.reports.wording import and_more, plural

DOCUMENT_HEAD = ("document", "coverage", "letters", "in no chunk", "passages", "chunks")
CHUNK_HEAD = ("chunk", "kind", "what is wrong", "source", "text")
SHOWN = 50


def coverage_line(found: SourceCoverage) -> str:
    """Say in a sentence what the chunks cover of the sources."""
    parts = [
        f"{percent(found.share)} of {plural(found.documents_total, 'document')} "
        f"({found.covered:,} of {found.characters:,} letters and digits) is in chunks"
    ]
    if found.without_chunks:
        parts.append(f"{plural(found.without_chunks, 'document')} without a chunk")
    if found.stale:
        parts.append(f"{plural(found.stale, 'chunk')} in no source")
    if changed := sum(found.not_verbatim.values()):
        kinds = ", ".join(f"{count:,} {kind}" for kind, count in found.not_verbatim.items())
        parts.append(f"{plural(changed, 'chunk')} not verbatim ({kinds})")
    if found.unread:
        parts.append(f"{plural(len(found.unread), 'file')} not read")
    return "; ".join(parts)


def percent(share: float) -> str:
    """Round down: 100 % is all of it."""
    return f"{floor(share * 1e4) / 1e2:.2f}%"


def document_rows(found: SourceCoverage, listed: int = SHOWN) -> Iterator[tuple[str, ...]]:
    """List the documents with the least coverage."""
    for one in found.documents[:listed]:
        missing = one.characters - one.covered
        yield (
            one.name,
            percent(one.share),
            f"{one.characters:,}",
            f"{missing:,}",
            f"{one.passages_total:,}",
            f"{one.chunks:,}",
        )


def passage_rows(found: SourceCoverage, listed: int = SHOWN) -> Iterator[tuple[str, str, str]]:
    """List passages that are in no chunk, with document and line."""
    rows = (
        (f"{document.name}:{passage.line}", f"{passage.length:,}", shorten(passage.excerpt, 160))
        for document in found.documents
        for passage in document.passages
    )
    yield from (row for _, row in zip(range(listed), rows, strict=False))


def chunk_rows(found: SourceCoverage, listed: int = SHOWN) -> Iterator[tuple[str, ...]]:
    """List stale chunks, and those that are not verbatim."""
    for one in found.listed[:listed]:
        yield one.chunk_id, one.kind, one.details, one.source or "", shorten(one.excerpt, 160)


def coverage_sections(found: SourceCoverage) -> Iterator[kit.Html]:
    """Render the documents, each with its text where passages are missing, and the chunks."""
    rows = document_rows(found, len(found.documents))
    more = and_more(found.documents_total, len(found.documents))
    yield kit.section(
        "Coverage of the sources",
        kit.verdict(f"{coverage_line(found)}.", "passed" if found.is_enough else "failed"),
        kit.scrolling("Documents", kit.table(DOCUMENT_HEAD, rows)),
        kit.element("p", more) if more else None,
        *(_view(document) for document in found.documents if document.segments),
    )
    if found.listed:
        chunks = kit.table(CHUNK_HEAD, chunk_rows(found, len(found.listed)), classes="stacked")
        yield kit.section("Chunks that are stale or not verbatim", chunks)
    if found.unread:
        unread = kit.table(("file", "reason"), ((one.name, one.reason) for one in found.unread))
        yield kit.section("Files that were not read", unread)


def _view(document: DocumentCoverage) -> kit.Html:
    """Show a document with its uncovered passages marked."""
    text = (kit.element("span" if each.covered else "mark", each.text) for each in document.segments)
    summary = f"{document.name}: {percent(document.share)}, {plural(document.passages_total, 'passage')} in no chunk"
    shown = kit.element("pre", *text, class_="document")
    return kit.element("details", kit.element("summary", summary), shown)
