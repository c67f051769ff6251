"""Options and output of `chunkproof search` for reranking, highlights, neighbours and explanations."""

from collections.abc import Callable, Iterator
from typing import Any

import click
from rich.text import Text

from chunkproof.models import RetrievalResponse, SearchResult
from chunkproof.models.extras import Confidence, Highlight, LegScore, Neighbour, QueryExplanation
from chunkproof_cli.commands.search_ranking import format_score
from chunkproof_cli.output import escape_controls, print_line, print_title, safe_text, shorten

# What --rerank alone stands for.
DEFAULT_MODEL = ""
FLAGS = {
    "rerank.model": "--rerank",
    "rerank.candidates": "--candidates",
    "rerank": "--rerank",
    "neighbours": "--neighbours",
    "highlight": "--highlight",
}
Command = Callable[..., Any]


def addition_options(command: Command) -> Command:
    """Add the options; `read_additions` turns them into fields of a request."""
    decorated: Any = command
    for option in (
        click.option(
            "--explain", is_flag=True, help="Show how each result got its rank, and what random chunks score."
        ),
        click.option("--neighbours", type=int, metavar="N", help="Show N chunks before and after each result, 1 to 5."),
        click.option("--highlight", is_flag=True, help="Show the sentence nearest to TEXT, with the words that match."),
        click.option("--candidates", type=int, metavar="N", help="With --rerank: how many results are reranked."),
        click.option(
            "--rerank",
            is_flag=False,
            flag_value=DEFAULT_MODEL,
            metavar="[MODEL]",
            help="Order the results by a reranking model, which needs COHERE_API_KEY; CHUNKPROOF_RERANK_MODEL by "
            "default. Write it behind TEXT, or as --rerank=MODEL.",
        ),
    ):
        decorated = option(decorated)
    return decorated  # type: ignore[no-any-return]


def read_additions(
    rerank: str | None, candidates: int | None, highlight: bool, neighbours: int | None, explain: bool
) -> dict[str, Any]:
    """Return the fields of a request that the options ask for."""
    if candidates is not None and rerank is None:
        raise click.UsageError("--candidates needs --rerank")
    fields: dict[str, Any] = {}
    if rerank is not None:
        given = {"model": rerank or None, "candidates": candidates}
        fields["rerank"] = {name: value for name, value in given.items() if value is not None}
    if neighbours is not None:
        fields["neighbours"] = neighbours
    flags = {"highlight": highlight, "explain": explain}
    return fields | {name: True for name, value in flags.items() if value}


def format_scores(result: SearchResult) -> Text:
    """Return the score of a result, and below it the reranker's."""
    text = Text(format_score(result))
    if result.scores is not None and result.scores.rerank is not None:
        text.append(f"\nrerank\n{result.scores.rerank:.3f}", "bold")
    if result.explain is not None and result.explain.confidence is not None:
        text.append(f"\n{_format_percentile(result.explain.confidence)}", "dim")
    return text


def _format_percentile(confidence: Confidence) -> str:
    return f"above {confidence.percentile:.0f} %\nof {confidence.sample_size}"


def format_text(result: SearchResult) -> Text:
    """Return a result's text in short, or its highlight, between its neighbours."""
    parts: list[Text] = []
    around = result.neighbours
    if around is not None:
        parts += [_format_neighbour("before", one) for one in around.before]
    parts.append(
        _format_highlight(result.highlight, result.text) if result.highlight else safe_text(shorten(result.text))
    )
    if around is not None:
        parts += [_format_neighbour("after", one) for one in around.after]
    return Text("\n").join(parts)


def _format_neighbour(where: str, neighbour: Neighbour) -> Text:
    return safe_text(f"{where} ({neighbour.position}): {shorten(neighbour.text, 100)}", "dim")


def _format_highlight(highlight: Highlight, text: str) -> Text:
    """Return the sentence with the matching words in bold, or the text in short if there is none."""
    sentence = highlight.sentence
    if sentence is None:
        return safe_text(shorten(text))
    formatted, at = Text("… " if sentence.start else ""), sentence.start
    for match in highlight.terms:
        if match.start < at or match.end > sentence.end:
            continue
        formatted.append(_in_a_line(text[at : match.start]))
        formatted.append(_in_a_line(text[match.start : match.end]), "bold yellow")
        at = match.end
    formatted.append(_in_a_line(text[at : sentence.end]))
    formatted.append(" …" if sentence.end < len(text.rstrip()) else "")
    return formatted


def _in_a_line(text: str) -> str:
    return escape_controls(text.replace("\n", " "))


def print_additions(response: RetrievalResponse) -> None:
    """Print below the results what was reranked, what is missing, and the explanation."""
    rerank = response.execution.rerank
    if rerank is not None and rerank.status == "skipped":
        print_line(f"Not reranked: {rerank.message}. The order is that of the search.", "yellow")
    elif rerank is not None:
        cut = f"; {rerank.maybe_cut} may be longer than the model reads" if rerank.maybe_cut else ""
        print_line(f"Reranked {rerank.candidates} candidates by {rerank.model} in {rerank.time_ms:.0f} ms{cut}", "dim")
    if response.explain is not None:
        _print_explanation(response, response.explain)


def _print_explanation(response: RetrievalResponse, explained: QueryExplanation) -> None:
    print_title("Explanation")
    for result in response.results:
        print_line(f"{result.rank:3}  {'; '.join(_describe_result(result))}")
    for line in _describe_query(explained):
        print_line(f"     {line}", "dim")


def _describe_result(result: SearchResult) -> Iterator[str]:
    explained = result.explain
    if explained is None:
        return
    for name, leg in (("meaning", explained.dense), ("words", explained.text)):
        if leg is not None:
            yield f"{name}: {_describe_leg(leg)}"
    if explained.fusion is not None:
        shares = [
            f"{name} {share:.4f}"
            for name, share in (("meaning", explained.fusion.dense), ("words", explained.fusion.text))
            if share is not None
        ]
        yield f"fused {explained.fusion.score:.4f}" + (f" ({' + '.join(shares)})" if shares else "")
    if explained.rerank is not None:
        yield f"reranked {explained.rerank.score:.3f}, was {explained.rerank.rank_before}"
    if explained.confidence is not None:
        confidence = explained.confidence
        yield f"scores above {confidence.percentile:g} % of {confidence.sample_size} random chunks"


def _describe_leg(leg: LegScore) -> str:
    rank = "not among its candidates" if leg.rank is None else f"rank {leg.rank}"
    return rank if leg.score is None else f"{rank}, score {leg.score:.3f}"


def _describe_query(explained: QueryExplanation) -> Iterator[str]:
    if explained.search is not None:
        how = "every point was compared" if explained.search == "exact" else "the index chose the points to compare"
        yield f"{explained.points} points, {explained.indexed_vectors} vectors indexed: {how}"
    if explained.filter is not None:
        yield f"The filter leaves {explained.filter.matching} of {explained.filter.points} points"
    if explained.random_scores is not None:
        scores = explained.random_scores
        yield (
            f"{scores.sample_size} random chunks score {scores.median:.3f} (median), {scores.p95:.3f} (95 %), "
            f"{scores.highest:.3f} (highest)"
        )
    yield "Times: " + ", ".join(f"{name} {ms:.0f} ms" for name, ms in explained.times_ms.items())
    yield from explained.notes
