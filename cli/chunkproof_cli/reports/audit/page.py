"""`.html`: one file with nothing to fetch; what was stored is shown as text and never acts."""

from collections.abc import Iterable, Sequence
from html import escape

from chunkproof.audit.findings import Finding
from chunkproof.audit.report import AuditReport
from chunkproof_cli.output import escape_controls, shorten
from chunkproof_cli.reports.audit.figures import GOOD, facts, headline, kind_rows, unshown, why

SHOWN_SOURCES = 20
STYLE = """
:root { color-scheme: light dark; --good: #2e7d32; --bad: #c62828; --line: #8884; }
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 72rem; padding: 0 1rem; }
h1 { font-size: 1.4rem; } h2 { font-size: 1.1rem; margin-top: 2rem; }
table { border-collapse: collapse; width: 100%; }
th, td { border-bottom: 1px solid var(--line); padding: .3rem .6rem; text-align: left; vertical-align: top;
  overflow-wrap: anywhere; }
.verdict { font-weight: 600; } .verdict.good { color: var(--good); } .verdict.bad { color: var(--bad); }
.chart th { font-weight: normal; width: 38%; border: 0; } .chart td { border: 0; white-space: nowrap; }
.facts td:first-child { white-space: nowrap; }
.bar { display: inline-block; height: .8em; min-width: 2px; margin-right: .5em; vertical-align: baseline; }
.bar.good { background: var(--good); } .bar.bad { background: var(--bad); }
.findings td:first-child { min-width: 8rem; } .findings td:nth-child(2) { white-space: nowrap; }
@media (max-width: 48rem) {
  .findings tr:first-child { display: none; } .findings :is(tr, td) { display: block; }
  .findings tr { border-bottom: 1px solid var(--line); padding: .5rem 0; }
  .findings td { border: 0; padding: 0; } .findings td:first-child { font-weight: 600; }
  .chart :is(tr, th, td) { display: block; width: auto; padding: 0; }
}
@media print { .bar { print-color-adjust: exact; } }
"""
POLICY = "default-src 'none'; style-src 'unsafe-inline'"


def page(report: AuditReport) -> str:
    """Verdict, charts by kind and by source, every finding of the canonical report."""
    mark = "bad" if report.findings_total else "good"
    kinds = [(kind, count, kind in GOOD) for kind, count in kind_rows(report) if count]
    sources = [(shorten(one.source), one.findings, False) for one in report.sources[:SHOWN_SOURCES]]
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
    return "<h2>Findings</h2>\n" + _table(head, rows, "findings") + (f"<p>{_shown(more)}</p>" if more else "")


def _excerpts(finding: Finding) -> str:
    mismatch = finding.mismatch
    if mismatch is None:
        return ""
    original = "" if mismatch.original_excerpt is None else f" / {mismatch.original_excerpt!a}"
    return f"{mismatch.stored_excerpt!a}{original}"


def _chart(title: str, bars: Sequence[tuple[str, int, bool]]) -> str:
    """A bar for each count, beside a label of any length; one that would vanish beside a million can be seen."""
    if not bars:
        return ""
    most = max(count for _, count, _ in bars)
    rows = "\n".join(
        f'<tr><th scope="row">{_shown(name)}</th>'
        f'<td><span class="bar {"good" if good else "bad"}" '
        f'style="width: calc((100% - 7rem) * {count / most:.4f})"></span>{count:,}</td></tr>'
        for name, count, good in bars
    )
    return f'<h2>{_shown(title)}</h2>\n<table class="chart">\n{rows}\n</table>'


def _table(head: Sequence[str], rows: Iterable[Iterable[object]], kind: str = "facts") -> str:
    top = f"<tr>{''.join(f'<th>{_shown(name)}</th>' for name in head)}</tr>\n" if head else ""
    lines = (f"<tr>{''.join(f'<td>{_shown(cell)}</td>' for cell in row)}</tr>" for row in rows)
    return f'<table class="{kind}">\n{top}' + "\n".join(lines) + "\n</table>"


def _shown(text: object) -> str:
    return escape(escape_controls(str(text)))
