"""`chunkproof search` with reranking, highlights, neighbours and explanations."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.cohere_server import KEY, CohereServer, cohere_server
from support.commands import Command
from support.recording_server import CannedResponse

QUERY = ("search", "composed and decomposed accents", "--collection", "handbook", "-k", "2")


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> Iterator[CohereServer]:
    """A reranker; queries are embedded by the local model."""
    with cohere_server() as server:
        monkeypatch.setenv("COHERE_BASE_URL", server.url)
        monkeypatch.setenv("COHERE_API_KEY", KEY)
        monkeypatch.setenv("CHUNKPROOF_EMBEDDER", "local")
        yield server


def test_results_are_reranked_by_the_named_model(handbook: Command, api: CohereServer) -> None:
    run = handbook(*QUERY, "--rerank", "rerank-v5.0-fast", "--candidates", "7", "--json")
    assert run.code == 0, run.err
    assert (api.requests[0]["model"], len(api.requests[0]["documents"])) == ("rerank-v5.0-fast", 7)
    assert run.json["execution"]["rerank"]["status"] == "applied"
    reranked = [result["scores"]["rerank"] for result in run.json["results"]]
    assert len(reranked) == 2
    assert reranked == sorted(reranked, reverse=True)


def test_the_terminal_shows_both_scores_and_how_long_reranking_took(handbook: Command, api: CohereServer) -> None:
    run = handbook(*QUERY, "--rerank")
    assert run.code == 0, run.err
    assert api.requests[0]["model"] == "rerank-v3.5"
    assert "rerank" in run.out
    assert re.search(r"Reranked \d\d candidates by rerank-v3.5 in \d+ ms", run.out)


def test_a_reranker_that_fails_leaves_the_results_and_says_so(handbook: Command, api: CohereServer) -> None:
    api.rerank_responses += [CannedResponse(500, b"{}", {})] * 2
    run = handbook(*QUERY, "--rerank")
    assert run.code == 0
    assert "Not reranked: Failed to rerank: 127.0.0.1:" in run.out
    assert "The order is that of the search." in run.out
    assert "vectordb-text-hygiene-00" in run.out


def test_without_a_key_the_error_names_it(handbook: Command) -> None:
    run = handbook(*QUERY, "--rerank")
    assert run.code == 2
    assert "--rerank cannot be used: no reranker is configured; set COHERE_API_KEY" in run.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["search", "--rerank", "some words"], "--rerank took 'some words' for a model; write --rerank after TEXT"),
        (["search"], "Missing argument 'TEXT'."),
        (["search", "x", "--candidates", "9"], "--candidates needs --rerank"),
        (["search", "x", "--rerank", "--candidates", "2"], "--candidates must be at least --top-k (5), not 2"),
        (["search", "x", "--rerank=a b"], "--rerank must be 1 to 100 letters"),
        (["search", "x", "--neighbours", "6"], "--neighbours must be between 0 and 5"),
    ],
)
def test_wrong_usage_is_explained_with_the_flag(handbook: Command, arguments: list[str], message: str) -> None:
    run = handbook(*arguments)
    assert run.code == 2
    assert message in run.err


def test_highlights_and_neighbours_are_shown_with_the_text(handbook: Command) -> None:
    run = handbook(*QUERY, "--highlight", "--neighbours", "1", "--json")
    first = run.json["results"][0]
    sentence = first["highlight"]["sentence"]
    assert sentence["by"] == "embedding"
    assert first["text"][sentence["start"] : sentence["end"]] == sentence["text"]
    assert {match["term"] for match in first["highlight"]["terms"]} == {"composed", "decomposed"}
    assert first["neighbours"]["before"] == []
    assert first["neighbours"]["after"][0]["chunk_id"] == "vectordb-text-hygiene-01"
    shown = handbook(*QUERY, "--highlight", "--neighbours", "1")
    assert "after (1): " in shown.out


def test_an_explanation_has_the_confidence_of_each_score(handbook: Command) -> None:
    run = handbook(*QUERY, "--explain", "--filter", "document_id=vectordb-text-hygiene")
    assert run.code == 0
    assert "The filter leaves 11 of 41 points" in run.out
    assert "of 41 random chunks" in run.out
    assert "every point was compared" in run.out
    assert "Times: embed " in run.out


def test_stored_text_cannot_act_on_the_terminal_through_a_highlight(handbook: Command, tmp_path: Path) -> None:
    chunks = tmp_path / "chunks.jsonl"
    line = (
        '{"chunk_id": "a", "text": "Evil \\u001b[31mkeys\\u202e here. Other.", "document_id": "d", "position": %d, '
        '"url": "https://x.y/"}\n'
    )
    chunks.write_text(line % 1 + (line % 2).replace('"a"', '"b"'))
    assert handbook("load", chunks, "--collection", "evil").code == 0
    run = handbook("search", "evil keys", "--collection", "evil", "--highlight", "--neighbours", "1", "--explain")
    assert run.code == 0
    assert "\x1b[31m" not in run.out
    assert "\u202e" not in run.out
    assert "‹1B›" in run.out
