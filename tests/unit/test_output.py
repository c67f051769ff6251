"""What commands print on standard error."""

import logging

import pytest

from chunkproof_cli.output import show_warnings_once


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
