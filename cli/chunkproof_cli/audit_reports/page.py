"""`.html`: one file with nothing to fetch; what was stored is shown as text and never acts."""

from collections.abc import Iterable, Sequence
from html import escape

from chunkproof.audit.summary import AuditReport
from chunkproof.audit.verdict import Finding
from chunkproof_cli.audit_reports.figures import GOOD, facts, headline, kind_rows, unshown, why
from chunkproof_cli.output import excerpt, harmless

SHOWN_SOURCES = 20
BAR, ROW, LABEL = 420, 24, 260
STYLE = """
:root { color-scheme: light dark; --good: #2e7d32; --bad: #c62828; --line: #8884; }
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 72rem; padding: 0 1rem; }
h1 { font-size: 1.4rem; } h2 { font-size: 1.1rem; margin-top: 2rem; }
table { border-collapse: collapse; width: 100%; }
th, td { border-bottom: 1px solid var(--line); padding: .3rem .6rem; text-align: left; vertical-align: top;
  overflow-wrap: anywhere; }
.verdict { font-weight: 600; } .good { color: var(--good); fill: var(--good); }
.bad { color: var(--bad); fill: var(--bad); }
svg text { font: 13px system-ui, sans-serif; fill: currentColor; }
code { white-space: pre-wrap; overflow-wrap: anywhere; }
"""
POLICY = "default-src 'none'; style-src 'unsafe-inline'"


def page(report: AuditReport) -> str:
    """Verdict, charts by kind and by source, every finding of the canonical report."""
    mark = "bad" if report.findings_total else "good"
    kinds = [(kind, count, kind in GOOD) for kind, count in kind_rows(report) if count]
    sources = [(excerpt(one.source, 60), one.findings, False) for one in report.sources[:SHOWN_SOURCES]]
    causes = [(kind, count, False) for kind, count in report.mismatch_kinds.items()]
    parts = [
        f"<h1>Audit of {_shown(report.collection)}</h1>",
        f'<p class="verdict {mark}">{_shown(headline(report))}</p>',
        _table((), facts(report)),
        _chart("Chunks by kind", kinds),
        _chart("Mismatches by cause", causes),
        _chart(f"Findings by source ({report.sources_total:,})", sources),
        _findings(report),
    ]
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>Audit of {_shown(report.collection)}</title>\n<style>{STYLE}</style></head>\n<body>\n"
        + "\n".join(part for part in parts if part)
        + "\n</body></html>\n"
    )


def _findings(report: AuditReport) -> str:
    if not report.findings:
        return ""
    rows = (
        (one.chunk_id, one.kind.value, why(one), one.source or "", _excerpts(one)) for one in report.findings
    )
    more = unshown(report, len(report.findings))
    head = ("chunk", "kind", "what is wrong", "source", "stored / original")
    return "<h2>Findings</h2>\n" + _table(head, rows) + (f"<p>{_shown(more)}</p>" if more else "")


def _excerpts(finding: Finding) -> str:
    mismatch = finding.mismatch
    if mismatch is None:
        return ""
    original = "" if mismatch.original_excerpt is None else f" / {mismatch.original_excerpt!a}"
    return f"{mismatch.stored_excerpt!a}{original}"


def _chart(title: str, bars: Sequence[tuple[str, int, bool]]) -> str:
    """Horizontal bars as inline SVG; a bar that would vanish beside a million is two pixels long."""
    if not bars:
        return ""
    most = max(count for _, count, _ in bars)
    rows = "".join(
        f'<text x="0" y="{ROW * i + 16}">{_shown(name)}</text>'
        f'<rect class="{"good" if good else "bad"}" x="{LABEL}" y="{ROW * i + 4}" height="{ROW - 8}" '
        f'width="{max(2, round(BAR * count / most))}"/>'
        f'<text x="{LABEL + max(2, round(BAR * count / most)) + 6}" y="{ROW * i + 16}">{count:,}</text>'
        for i, (name, count, good) in enumerate(bars)
    )
    width, height = LABEL + BAR + 120, ROW * len(bars) + 4
    return (
        f'<h2>{_shown(title)}</h2>\n<svg role="img" aria-label="{_shown(title)}" width="100%" '
        f'viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">{rows}</svg>'
    )


def _table(head: Sequence[str], rows: Iterable[Iterable[object]]) -> str:
    top = f"<tr>{''.join(f'<th>{_shown(name)}</th>' for name in head)}</tr>\n" if head else ""
    lines = (f"<tr>{''.join(f'<td>{_shown(cell)}</td>' for cell in row)}</tr>" for row in rows)
    return f"<table>\n{top}" + "\n".join(lines) + "\n</table>"


def _shown(text: object) -> str:
    return escape(harmless(str(text)))
