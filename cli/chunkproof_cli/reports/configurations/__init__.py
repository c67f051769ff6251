"""Reports of a comparison of configurations, in every format."""

from collections.abc import Callable, Mapping
from pathlib import Path

from chunkproof.files import write_file
from chunkproof_cli.reports.configurations.markdown import render_configurations_markdown
from chunkproof_cli.reports.configurations.page import render_configurations_page
from chunkproof_cli.suites.configuration_report import ConfigurationReport

FORMATS: Mapping[str, Callable[[ConfigurationReport], str]] = {
    ".json": ConfigurationReport.canonical_json,
    ".md": render_configurations_markdown,
    ".html": render_configurations_page,
}


def write_reports(report: ConfigurationReport, files: tuple[Path, ...]) -> None:
    """Write each file in the format of its extension."""
    for file in files:
        write_file(file, FORMATS[file.suffix](report))
