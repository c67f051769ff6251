"""`chunkproof search`."""

from typing import Any

import click
from rich.text import Text

from chunkproof.errors import InvalidParameterError
from chunkproof.models import RetrievalResponse, read_json
from chunkproof.models.json import cut_middle
from chunkproof_cli.commands.search_additions import FLAGS as ADDITION_FLAGS
from chunkproof_cli.commands.search_additions import (
    addition_options,
    format_scores,
    format_text,
    print_additions,
    read_additions,
)
from chunkproof_cli.commands.search_ranking import FLAGS as RANKING_FLAGS
from chunkproof_cli.commands.search_ranking import (
    RANKING,
    failure_code,
    print_next_page,
    print_several,
    ranking_options,
    read_queries,
    read_ranking,
)
from chunkproof_cli.connections import open_backend
from chunkproof_cli.options import (
    api_option,
    common_options,
    embedder_option,
    explicit_collection,
    name_flags,
    parse_options,
)
from chunkproof_cli.output import print_json, print_line, print_table, safe_text

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


FLAGS = {
    "query_text": "TEXT",
    "top_k": "--top-k",
    "similarity_threshold": "--threshold",
    "filters.": "--filter ",
    "filters": "--filter",
    **ADDITION_FLAGS,
    **RANKING_FLAGS,
}


@click.command(epilog=EXAMPLES)
@click.argument("texts", nargs=-1, metavar="TEXT…")
@click.option("-k", "--top-k", type=int, help="Maximum number of results; 5 by default.")
@click.option("--threshold", type=float, default=0.0, show_default=True, help="Minimum score of a result, 0 to 1.")
@click.option(
    "--filter",
    "filters",
    multiple=True,
    metavar="FIELD=VALUE",
    help='Only chunks with this value; may be repeated. VALUE may be JSON: 3, "3", true, ["a", "b"], {"gte": 1}.',
)
@addition_options
@ranking_options
@common_options
@embedder_option
@api_option
def search(
    texts: tuple[str, ...],
    top_k: int | None,
    threshold: float,
    filters: tuple[str, ...],
    **given: Any,
) -> None:
    """Find the stored chunks nearest to TEXT, or to each of several texts."""
    added = {name: given.pop(name) for name in ("rerank", "candidates", "highlight", "neighbours", "explain")}
    queries = read_queries(texts, given.pop("file"), added["rerank"])
    ranking = read_ranking(**{name: given.pop(name) for name in RANKING})
    options = parse_options(**given)
    request: dict[str, Any] = {
        **queries,
        **ranking,
        **read_additions(**added),
        "similarity_threshold": threshold,
        "filters": parse_filters(filters),
    }
    if top_k is not None:
        request["top_k"] = top_k
    if (collection := explicit_collection(options)) is not None:
        request["collection"] = collection
    with open_backend(options) as backend, name_flags(FLAGS):
        response = backend.search(request)
    if options.json:
        print_json(response)
    elif response.responses is not None:
        print_several(response.responses, print_results)
    else:
        print_results(response)
    if code := failure_code(response.responses or ()):
        raise SystemExit(code)


def parse_filters(options: tuple[str, ...]) -> dict[str, Any]:
    """Build the filter object from `FIELD=VALUE` options; a value that is not JSON is a string."""
    filters: dict[str, Any] = {}
    for option in options:
        field, equals, value = option.partition("=")
        if not equals or not field:
            raise click.BadParameter(f"{option!r} is not FIELD=VALUE", param_hint="--filter")
        if field in filters:
            raise click.BadParameter(
                f"{field} is given twice; to match any of several values, use {field}=[…]",
                param_hint="--filter",
            )
        filters[field] = _parse_value(value)
    return filters


def _parse_value(text: str) -> Any:
    looks_like_json = text[:1] in ("[", "{", '"')
    if not looks_like_json and text not in ("true", "false", "null") and not text.lstrip("-")[:1].isdigit():
        return text
    try:
        return read_json(text)
    except InvalidParameterError:
        if looks_like_json:
            raise click.BadParameter(f"{text!r} is not JSON", param_hint="--filter") from None
        return text  # a date, a version number


def print_results(response: RetrievalResponse) -> None:
    """Print the results as a table, and a line with counts and times."""
    execution = response.execution
    if response.results:
        lines = (
            (
                str(result.rank),
                format_scores(result),
                Text.assemble(
                    safe_text(
                        getattr(result.metadata, "section_heading", None) or _find_title(result.metadata),
                        "bold",
                    ),
                    "\n",
                    safe_text(cut_middle(result.metadata.chunk_id), "cyan"),
                    "\n",
                    safe_text(cut_middle(str(result.metadata.url or "")), "dim"),
                ),
                format_text(result),
            )
            for result in response.results
        )
        print_table(("#", "score", "chunk", "text"), lines)
    else:
        print_line("No chunk matches.")
    for note in response.notes:
        print_line(note, "yellow")
    skipped = f", {execution.skipped} without readable text left out" if execution.skipped else ""
    print_line(
        f"{execution.result_count} of at most {execution.requested_top_k} results from {execution.collection} "
        f"in {execution.latency_ms} ms (embedding {execution.embedding_time_ms:.0f}, "
        f"search {execution.qdrant_query_time_ms}){skipped}",
        "dim",
    )
    print_additions(response)
    print_next_page(response)


def _find_title(metadata: Any) -> str:
    return str(getattr(metadata, "document_title", None) or "(no title)")
