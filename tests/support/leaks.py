"""A pytest plugin: no test's output may show a secret. Every secret that the tests use has this mark in it."""

from typing import Any

import pytest

MARK = "s3cr3t"
_leaks: list[str] = []


@pytest.fixture(autouse=True)
def _nothing_read_shows_a_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    """Check captured output when a test reads it: it is then no longer in the test's report."""
    read = pytest.CaptureFixture.readouterr

    def checked(capture: pytest.CaptureFixture[Any]) -> Any:
        captured = read(capture)
        for text in captured:
            assert MARK not in str(text), "a secret was printed"
        return captured

    monkeypatch.setattr(pytest.CaptureFixture, "readouterr", checked)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.passed:  # a failure shows the values that it compared
        _leaks.extend(f"{report.nodeid}: {title}" for title, text in report.sections if MARK in text)


def pytest_sessionfinish(session: pytest.Session) -> None:
    if _leaks and not hasattr(session.config, "workerinput"):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: Any) -> None:
    for leak in _leaks:
        terminalreporter.write_line(f"LEAKED a secret into its output: {leak}", red=True)
