"""`.md`: fits a comment on a pull request, however large the collection."""

import re
from collections.abc import Iterable

from chunkproof.audit.summary import AuditReport
from chunkproof_cli.audit_reports.figures import facts, headline, kind_rows, unshown, why

MOST_CHARS = 65_000  # GitHub takes 65,536 in a comment
SHOWN = 50
LONGEST_CELL = 300
_ACTIVE = re.compile(r"([\\`*_{}\[\]<>()#+!|~@&])")


def markdown(report: AuditReport) -> str:
    """Verdict first, then counts, then what is wrong."""
    parts = [
        f"## {'❌' if report.findings_total else '✅'} Audit of {cell(report.collection)}",
        headline(report),
        table(("kind", "chunks"), ((kind, f"{count:,}") for kind, count in kind_rows(report))),
        table(("audit", ""), facts(report)),
    ]
    if report.findings:
        listed = report.findings[:SHOWN]
        parts.append("### Findings")
        parts.append(
            table(("chunk", "kind", "what is wrong"), ((f.chunk_id, f.kind.value, why(f)) for f in listed))
        )
        if more := unshown(report, len(listed)):
            parts.append(more)
    text = "\n\n".join(parts) + "\n"
    return text if len(text) <= MOST_CHARS else text[: MOST_CHARS - 40].rpartition("\n")[0] + "\n\n…\n"


def cell(value: object) -> str:
    """A text as data: one line, nothing in it acts as Markdown, HTML or a mention."""
    line = " ".join(str(value).split())
    line = line if len(line) <= LONGEST_CELL else line[: LONGEST_CELL - 1] + "…"
    return _ACTIVE.sub(r"\\\1", line).replace("\\@", "@\u200b")


def table(head: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    """A Markdown table of harmless cells."""
    names = list(head)
    lines = [names, ["---"] * len(names), *([cell(value) for value in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
