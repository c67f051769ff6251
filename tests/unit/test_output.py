"""What commands print: tables as wide as the terminal, and warnings on standard error."""

import logging

import pytest

from chunkproof_cli import output
from chunkproof_cli.output import print_table, show_warnings_once


@pytest.mark.parametrize("width", [60, 80, 100])
def test_a_table_that_is_too_wide_breaks_between_words(
    width: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output, "stdout_console", lambda: output._StdoutConsole(width=width, highlight=False))
    sentence = "A snapshot is a consistent copy of the whole collection, with its indexes and settings"
    fields = ["section_heading", "document_title", "embedding_model"]
    url = "https://handbook.example.com/operations-and-more#section-of-the-page"
    print_table(("field", "description", "notes"), [(field, sentence, f"{sentence} {url}") for field in fields])
    hashes = ["78f515d6e071003a55fb9afe03db4847b6b7c51…", "c8d95ee4c5af4d4cbcf71398800c41a7e8a6697…", sentence[:40]]
    ids = ["vectordb-migrations", "vectordb-text-hygiene", "vectordb-filters"]
    print_table(("field", "read from", *"123"), [(fields[0], fields[0], *row) for row in (hashes, ids)])
    printed = capsys.readouterr().out
    assert all(len(line) <= width for line in printed.splitlines())
    assert {line[-1] for line in printed.splitlines()} == set("┓┃┩│┘")
    shown = {word for line in printed.splitlines() for word in line.replace("│", " ").split()}
    assert {*fields, *sentence.split()} <= shown


def test_a_warning_about_a_search_is_shown_once_whichever_module_it_comes_from(
    caplog: pytest.LogCaptureFixture,
) -> None:
    search, ranking, store = (
        logging.getLogger(f"chunkproof.{name}") for name in ("search.single", "search.steps", "stores.server")
    )
    with show_warnings_once():
        for _ in range(3):
            for log in (search, ranking, store):
                log.warning("from %s", log.name)
    ranking.warning("from %s", ranking.name)
    assert caplog.messages == [
        *["from chunkproof.stores.server"] * 3,
        "from chunkproof.search.single (3 times)",
        "from chunkproof.search.steps (3 times)",
        "from chunkproof.search.steps",
    ]
