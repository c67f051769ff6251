"""`.md`: the table and the choice, for a comment on a pull request."""

from chunkproof_cli.reports.configurations import figures
from chunkproof_cli.reports.markdown import escape_text, join_parts, table
from chunkproof_cli.suites.configuration_report import ConfigurationReport

LONGEST = 5_000


def render_configurations_markdown(report: ConfigurationReport) -> str:
    """Render the choice, the table and the notes."""
    mark = "✅" if report.choice.name else "⚠️"
    notes = "\n".join(f"- {escape_text(note, LONGEST)}" for note in figures.notes(report))
    return join_parts(
        [
            f"## {mark} Configurations for {escape_text(report.suite)}",
            f"**{escape_text(figures.verdict(report), LONGEST)}**",
            table(figures.head(report), figures.rows(report)),
            notes,
        ]
    )
