"""`chunkproof search`."""

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click
from rich.text import Text

from chunkproof.base.errors import InvalidParameterError, NotConfiguredError
from chunkproof.base.files import read_text, write_file
from chunkproof.contract import RetrievalResponse, SearchResult, read_json
from chunkproof.contract.model import cut_middle
from chunkproof.contract.query_options import Highlight, Neighbour, QueryExplanation
from chunkproof_cli.connections import open_backend
from chunkproof_cli.exits import exit_code, rebuild_error
from chunkproof_cli.options import (
    api_option,
    common_options,
    embedder_option,
    name_collection,
    name_flags,
    option,
    parse_options,
)
from chunkproof_cli.output import (
    escape_controls,
    print_line,
    print_note,
    print_result,
    print_table,
    print_title,
    safe_text,
    shorten,
    show_warnings_once,
)
from chunkproof_cli.request_options import SEARCH_FLAGS, SEARCH_OPTIONS, pop_search, search_options

MARKS = {
    "verified": (Text("verified", "green"),),
    "changed": (Text("CHANGED: not the text that was hashed", "bold red"),),
}
EXAMPLES = """\b
Examples:
  chunkproof search "how do I tune a PID loop"
  chunkproof search "backups" -k 3 --threshold 0.4 --filter document_id=vectordb-operations
  chunkproof search "backups" --filter 'position={"lt": 5}' --json
  chunkproof search "backups" --highlight --neighbours 1 --explain
  chunkproof search "backups" --rerank rerank-v3.5 --candidates 100
  chunkproof search "ERR-4711-X" --mode hybrid --group-by document_id
  chunkproof search "how do I take a backup" "how do I rotate the key" -k 3
"""


@click.command(epilog=EXAMPLES)
@click.argument("texts", nargs=-1, metavar="TEXT…")
@search_options(*SEARCH_OPTIONS)
@option(
    "--queries file",
    "Several queries, a line each: a text, or a JSON object with fields of the API. - reads them from standard input.",
    type=click.Path(path_type=Path, exists=True, dir_okay=False, allow_dash=True),
)
@common_options
@embedder_option
@api_option
def search(texts: tuple[str, ...], file: Path | None, **given: Any) -> None:
    """Find the stored chunks nearest to TEXT, or to each of several texts."""
    receipt_file: Path | None = given.pop("receipt")
    request = read_queries(texts, file, given["rerank"]) | pop_search(given)
    if receipt_file is not None:
        if "queries" in request:
            raise click.UsageError("--receipt takes one query at a time.")
        request["receipt"] = "full"
    options = parse_options(**given)
    with open_backend(options) as backend, name_flags(SEARCH_FLAGS), show_warnings_once():
        response = backend.search(name_collection(request, options))
    print_result(response, print_response, as_json=options.json)
    if receipt_file is not None:
        if response.receipt is None:
            raise NotConfiguredError("There is no receipt to write: the notes above say why")
        write_file(receipt_file, response.to_json() + "\n")
        print_note(f"The receipt is in {receipt_file}: chunkproof verify {receipt_file} --key PUB")
    failed = [rebuild_error(each.error.code, list(each.errors)) for each in response.responses or () if each.error]
    sys.exit(max(map(exit_code, failed), default=0))


def read_queries(texts: Sequence[str], file: Path | None, rerank: str | None) -> dict[str, Any]:
    """Return the query, or several of them, as fields of a request.

    Without any, an error says if `--rerank` has taken the text for a model.
    """
    if file is None:
        if not texts:
            hint = f": --rerank took {rerank!r} for a model; write --rerank after TEXT" if rerank else ""
            raise click.UsageError(f"Missing argument 'TEXT'{hint}.")
        return {"query_text": texts[0]} if len(texts) == 1 else {"queries": list(texts)}
    if texts:
        raise click.UsageError("Give TEXT or --queries FILE, not both")
    queries = [_read_line(line) for line in read_text(file, "--queries").splitlines() if line.strip()]
    if not queries:
        raise click.BadParameter(f"{file} has no query", param_hint="--queries")
    return {"queries": queries}


def _read_line(line: str) -> Any:
    if not line.lstrip().startswith("{"):
        return line
    try:
        return read_json(line)
    except InvalidParameterError:
        raise click.BadParameter(f"a line is not a JSON object: {line[:80]!r}", param_hint="--queries") from None


def print_response(response: RetrievalResponse) -> None:
    """Print the results, or those of each query below its number and text."""
    if response.responses is None:
        print_results(response)
    for number, each in enumerate(response.responses or (), 1):
        print_line(f"{number}. {each.query or each.query_id}", "bold")
        if each.status == "success":
            print_results(each)
        for message in each.errors:
            print_line(message, "red")


def print_results(response: RetrievalResponse) -> None:
    """Print the results as a table, and a line with counts and times."""
    execution = response.execution
    if response.results:
        lines = (
            (result.rank, _format_scores(result), _name(result), _format_text(result)) for result in response.results
        )
        print_table(("#", "score", "chunk", "text"), lines)
    else:
        print_line("No chunk matches.")
    for note in response.notes:
        print_line(note, "yellow")
    skipped = f", {execution.skipped} without readable text or changed left out" if execution.skipped else ""
    print_line(
        f"{execution.result_count} of at most {execution.requested_top_k} results from {execution.collection} "
        f"in {execution.latency_ms} ms (embedding {execution.embedding_time_ms:.0f}, "
        f"search {execution.qdrant_query_time_ms}){skipped}",
        "dim",
    )
    print_additions(response)
    if response.next_cursor:
        print_note(f"Next page: --cursor {response.next_cursor}")


def _name(result: SearchResult) -> Text:
    metadata = result.metadata
    names = (getattr(metadata, field, None) for field in ("section_heading", "document_title"))
    title = safe_text(next(filter(None, names), "(no title)"), "bold")
    chunk, url = safe_text(cut_middle(metadata.chunk_id), "cyan"), safe_text(cut_middle(str(metadata.url or "")), "dim")
    return Text("\n").join((title, chunk, url, *MARKS.get(result.integrity, ())))


def _format_scores(result: SearchResult) -> Text:
    """Return the scores of a result, each with its name where there are several, and below them the reranker's."""
    text, scores = Text(f"{result.similarity_score:.3f}"), result.scores
    if scores is not None and (scores.text is not None or scores.fused is not None):
        named = {"dense": scores.dense, "text": scores.text, "fused": scores.fused}
        text = Text("\n".join(f"{name} {score:.3f}" for name, score in named.items() if score is not None))
    if scores is not None and scores.rerank is not None:
        text.append(f"\nrerank\n{scores.rerank:.3f}", "bold")
    if result.explain is not None and (confidence := result.explain.confidence) is not None:
        text.append(f"\nabove {confidence.percentile:.0f} %\nof {confidence.sample_size}", "dim")
    return text


def _format_text(result: SearchResult) -> Text:
    """Return a result's text in short, or its highlight, between its neighbours."""
    around = result.neighbours
    before, after = (around.before, around.after) if around is not None else ((), ())
    parts = [_format_neighbour("before", neighbour) for neighbour in before]
    parts.append(_format_highlight(result.highlight, result.text))
    return Text("\n").join((*parts, *(_format_neighbour("after", neighbour) for neighbour in after)))


def _format_neighbour(where: str, neighbour: Neighbour) -> Text:
    return safe_text(f"{where} ({neighbour.position}): {shorten(neighbour.text, 100)}", "dim")


def _format_highlight(highlight: Highlight | None, text: str) -> Text:
    """Return the sentence with the matching words in bold, or the text in short if there is none."""
    if highlight is None or (sentence := highlight.sentence) is None:
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
        print_title("Explanation")
        for result in response.results:
            print_line(f"{result.rank:3}  {'; '.join(_describe_result(result))}")
        for line in _describe_query(response.explain):
            print_line(f"     {line}", "dim")


def _describe_result(result: SearchResult) -> Iterator[str]:
    explained = result.explain
    if explained is None:
        return
    for name, leg in (("meaning", explained.dense), ("words", explained.text)):
        if leg is not None:
            rank = "not among its candidates" if leg.rank is None else f"rank {leg.rank}"
            yield f"{name}: {rank}" + ("" if leg.score is None else f", score {leg.score:.3f}")
    if (fusion := explained.fusion) is not None:
        named = (("meaning", fusion.dense), ("words", fusion.text))
        shares = [f"{name} {share:.4f}" for name, share in named if share is not None]
        yield f"fused {fusion.score:.4f}" + (f" ({' + '.join(shares)})" if shares else "")
    if explained.rerank is not None:
        yield f"reranked {explained.rerank.score:.3f}, was {explained.rerank.rank_before}"
    if (confidence := explained.confidence) is not None:
        yield f"scores above {confidence.percentile:g} % of {confidence.sample_size} random chunks"


def _describe_query(explained: QueryExplanation) -> Iterator[str]:
    if explained.search is not None:
        how = "every point was compared" if explained.search == "exact" else "the index chose the points to compare"
        yield f"{explained.points} points, {explained.indexed_vectors} vectors indexed: {how}"
    if explained.filter is not None:
        yield f"The filter leaves {explained.filter.matching} of {explained.filter.points} points"
    if (scores := explained.random_scores) is not None:
        yield (
            f"{scores.sample_size} random chunks score {scores.median:.3f} (median), {scores.p95:.3f} (95 %), "
            f"{scores.highest:.3f} (highest)"
        )
    yield "Times: " + ", ".join(f"{name} {ms:.0f} ms" for name, ms in explained.times_ms.items())
    yield from explained.notes
