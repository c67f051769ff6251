"""Options of `chunkproof search` about how results are ranked, grouped and paged, and about several queries."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

from chunkproof.errors import InvalidParameterError
from chunkproof.models import RetrievalResponse, SearchResult, read_json
from chunkproof_cli.exits import exit_code, rebuild_error
from chunkproof_cli.output import print_line, print_note

Command = TypeVar("Command", bound=Callable[..., Any])

FLAGS = {
    "queries": "TEXT",
    "fusion": "--fusion",
    "params": "--params",
    "group_by": "--group-by",
    "group_size": "--group-size",
    "diversity": "--diversity",
    "cursor": "--cursor",
    "mode": "--mode",
}
RANKING = ("mode", "fusion", "params", "group_by", "group_size", "diversity", "cursor")
METHODS = ("rrf", "dbsf")
MODES = ("dense", "text", "hybrid")


def ranking_options(command: Command) -> Command:
    """Add the options; `read_ranking` makes fields of a request of them."""
    decorated: Any = command
    for option in (
        click.option(
            "--queries",
            "file",
            type=click.Path(path_type=Path, exists=True, dir_okay=False, allow_dash=True),
            help="Several queries, a line each: a text, or a JSON object with fields of the API. - reads them from "
            "standard input.",
        ),
        click.option("--cursor", help="Print results in pages: start, then the cursor that the page before ends with."),
        click.option("--diversity", type=float, help="Prefer results that differ from each other, 0 to 1 (MMR)."),
        click.option("--group-size", type=int, help="With --group-by: results of each value, 1 by default."),
        click.option("--group-by", metavar="FIELD", help="Few results of each value, such as document_id."),
        click.option(
            "--params", metavar="JSON", help='How the index is searched: {"hnsw_ef": 256}, {"exact": true}, …'
        ),
        click.option(
            "--fusion",
            metavar="METHOD|JSON",
            help='With --mode hybrid: rrf (default), dbsf, or {"k": 20, "weights": {"dense": 1, "text": 2}}.',
        ),
        click.option(
            "--mode",
            type=click.Choice(MODES),
            help="Search by meaning (dense, the default), by words (text), or by both (hybrid).",
        ),
    ):
        decorated = option(decorated)
    return decorated  # type: ignore[no-any-return]


def read_ranking(*, fusion: str | None, params: str | None, **plain: str | float | None) -> dict[str, Any]:
    """Return the fields of a request for the options that were given."""
    fields: dict[str, Any] = {name: value for name, value in plain.items() if value is not None}
    if fusion is not None:
        fields["fusion"] = {"method": fusion} if fusion in METHODS else _read_object(fusion, "--fusion")
    if params is not None:
        fields["params"] = _read_object(params, "--params")
    return fields


def read_queries(texts: Sequence[str], file: Path | None, rerank: str | None) -> dict[str, Any]:
    """Return the query, or several of them, as fields of a request.

    Without any, an error says if `--rerank` has taken the text for a model.
    """
    if file is None:
        if not texts:
            hint = f": --rerank took {rerank!r} for a model; write --rerank behind TEXT" if rerank else ""
            raise click.UsageError(f"Missing argument 'TEXT'{hint}.")
        return {"query_text": texts[0]} if len(texts) == 1 else {"queries": list(texts)}
    if texts:
        raise click.UsageError("Give TEXT or --queries FILE, not both")
    with click.open_file(str(file), encoding="utf-8") as lines:
        try:
            content = lines.read()
        except UnicodeDecodeError as error:
            raise click.BadParameter(f"{file} is not UTF-8 at byte {error.start}", param_hint="--queries") from None
    queries = [_read_line(line) for line in content.splitlines() if line.strip()]
    if not queries:
        raise click.BadParameter(f"{file} has no query", param_hint="--queries")
    return {"queries": queries}


def format_score(result: SearchResult) -> str:
    """Return the scores of a result, each with its name where there are several."""
    if result.scores is None or (result.scores.text is None and result.scores.fused is None):
        return f"{result.similarity_score:.3f}"
    named = {"dense": result.scores.dense, "text": result.scores.text, "fused": result.scores.fused}
    return "\n".join(f"{name} {score:.3f}" for name, score in named.items() if score is not None)


def print_several(responses: Sequence[RetrievalResponse], show: Callable[[RetrievalResponse], None]) -> None:
    """Print the response of each query below its number and text."""
    for number, response in enumerate(responses, 1):
        print_line(f"{number}. {response.query or response.query_id}", "bold")
        if response.status == "success":
            show(response)
        for message in response.errors:
            print_line(message, "red")


def print_next_page(response: RetrievalResponse) -> None:
    """Print how to get the next page, if there is one."""
    if response.next_cursor:
        print_note(f"Next page: --cursor {response.next_cursor}")


def failure_code(responses: Sequence[RetrievalResponse]) -> int:
    """Return the exit code for queries of which some failed: the highest of theirs."""
    failed = [rebuild_error(one.error.code, list(one.errors)) for one in responses if one.error]
    return max(map(exit_code, failed), default=0)


def _read_object(text: str, option: str) -> Mapping[str, Any]:
    try:
        value = read_json(text)
    except InvalidParameterError:
        value = None
    if not isinstance(value, dict):
        known = f"{', '.join(METHODS)} or " if option == "--fusion" else ""
        raise click.BadParameter(f"{text!r} is not {known}a JSON object", param_hint=option)
    return value


def _read_line(line: str) -> Any:
    if not line.lstrip().startswith("{"):
        return line
    try:
        return read_json(line)
    except InvalidParameterError:
        raise click.BadParameter(f"a line is not a JSON object: {line[:80]!r}", param_hint="--queries") from None
