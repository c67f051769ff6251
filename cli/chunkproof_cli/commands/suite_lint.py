"""`chunkproof suite lint`: what a suite expects, checked against what its collection can return."""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path as File
from typing import Any, Literal

import click

from chunkproof.base.errors import CollectionNotFoundError, CorruptChunkError, IndexRequiredError, InvalidParameterError
from chunkproof.base.files import write_file
from chunkproof.base.request import Deadline
from chunkproof.collection.lookup import ID_FIELDS, ids_of, parse_point_id, stored_forms
from chunkproof.collection.payload_map import PayloadMap
from chunkproof.collection.reader import in_batches
from chunkproof.collection.services import Collection, LongRun, Services
from chunkproof.contract import RetrievalResponse
from chunkproof.contract.conditions import AnyOf, Scalar
from chunkproof.contract.model import Path, display_name
from chunkproof.search.filters import map_filters
from chunkproof.service.terminal import local_backend, new_deadline
from chunkproof.stores.store_port import Point
from chunkproof.suite.cases import Problem, TestCase, assign_collection
from chunkproof.suite.suite_file import BrokenSuiteFileError, SuiteFile, read_source
from chunkproof_cli.connections import open_services
from chunkproof_cli.exits import FAILED
from chunkproof_cli.options import common_options, embedder_option, option, output_option, parse_options, reject_api
from chunkproof_cli.output import escape_line, mask_secrets, print_json, show_warnings_once
from chunkproof_cli.reports.outputs import check_outputs
from chunkproof_cli.suites.suite_runs import choose_collection, pop_source, source_options

EXAMPLES = """\b
Examples:
  chunkproof suite lint suite.yaml --collection handbook
  chunkproof suite lint beir/scifact --offline
  chunkproof suite lint suite.yaml --offline -o lint.sarif
"""


@click.command(epilog=EXAMPLES)
@source_options
@option("--offline", "Check only the file, not the collection.")
@output_option("Write the problems as .sarif, which code hosts show beside the lines.")
@common_options
@embedder_option
@reject_api("it reads the store itself")
def lint(offline: bool, outputs: tuple[File, ...], **options: Any) -> None:
    """List all problems of SUITE, each with its line.

    Problems are unknown fields, names used twice, cases that expect nothing, ids that are not in the collection,
    judgments that repeat or contradict each other, queries without judgments, and thresholds that no result reaches.
    Exit 1 if there are any.
    """
    source = pop_source(options)
    given = parse_options(**options)
    check_outputs(outputs, (".sarif",))
    try:
        found: SuiteFile | None = read_source(source)
        findings = list(found.findings) if found else []
    except BrokenSuiteFileError as error:
        found, findings = error.rest, list(error.findings)
    if found is not None and not offline:
        with open_services(given) as services:
            local = local_backend(services)
            linter = Linter(services, local.search, lambda: new_deadline(services.settings))
            cases = assign_collection(found.suite.cases, choose_collection(found, given))
            with show_warnings_once():
                findings += [found.locate(problem) for problem in linter.find_problems(cases)]
    findings.sort(key=lambda finding: (finding.file, finding.line))
    for output in outputs:
        from chunkproof_cli.reports.to_junit import SarifResult, render_sarif  # only this needs it

        levels: tuple[Literal["warning", "error"], ...] = ("warning", "error")
        rows = [SarifResult("suite", levels[each.fatal], each.message, each.file, each.line) for each in findings]
        write_file(output, render_sarif(rows))
    if given.json:
        print_json({"findings": [asdict(finding) for finding in findings]})
    else:
        for finding in findings:
            click.echo(escape_line(str(finding)))
        if not findings and found is not None:
            click.echo(mask_secrets(f"{source.path}: {len(found.suite.cases)} cases, no problems"))
    sys.exit(FAILED if findings else 0)


PAGE = 200


@dataclass(frozen=True)
class Linter:
    """Checks a suite's cases against their collections; the problems are warnings, the suite can still be run."""

    services: Services
    search: Callable[[dict[str, Any]], RetrievalResponse]
    deadline: Callable[[], Deadline]

    def find_problems(self, cases: Sequence[TestCase]) -> Iterator[Problem]:
        """Yield every problem, by collection and case."""
        for index, case in enumerate(cases):
            if case.expect == "all" and len(case.expected_doc_ids) > case.top_k:
                message = f"{len(case.expected_doc_ids)} ids cannot all be in the top {case.top_k}"
                yield _warning(("cases", index, "top_k"), message)
        for name in dict.fromkeys(case.collection_name for case in cases):
            chosen = [(n, case) for n, case in enumerate(cases) if case.collection_name == name]
            try:
                resolved = self.services.collection(name, self.deadline()).name
                collection = LongRun(self.services, resolved, self.deadline)
                _ = collection.vector
            except CollectionNotFoundError as error:
                yield _warning(("cases", chosen[0][0], "collection_name"), error.message)
                continue
            yield from _find_unknown_ids(chosen, collection)
            for index, case in chosen:
                yield from self._check_search(index, case, collection)

    def _check_search(self, index: int, case: TestCase, collection: Collection) -> Iterator[Problem]:
        excess = collection.embedder.excess(case.query_text) if collection.embedder else None
        if excess:
            yield _warning(("cases", index, "query_text"), f"query_text is too long: {excess}")
            return
        if case.expect_no_results or not case.relevance_threshold:
            return
        try:
            results = self.search({**case.request(), "top_k": 1}).results
        except InvalidParameterError as error:
            yield _warning(("cases", index), f"the search is refused: {error}")
            return
        best = results[0].similarity_score if results else 0.0
        if best < case.relevance_threshold:
            yield _warning(
                ("cases", index, "relevance_threshold"),
                f"no result can reach relevance_threshold {case.relevance_threshold:g}: the best scores {best:.3f}",
            )


def _find_unknown_ids(cases: Sequence[tuple[int, TestCase]], collection: Collection) -> Iterator[Problem]:
    missing = {key for _, case in cases for key in case.expected_doc_ids}
    points = [point for key in sorted(missing) if (point := parse_point_id(key)) is not None]
    for page in in_batches(points, PAGE):  # points without a chunk id in their payloads
        missing -= set(map(collection.payloads.id_of, collection.fetch(page)))
    for field in ID_FIELDS:
        try:
            missing -= _find_by_field(field, sorted(missing), collection)
        except InvalidParameterError as error:
            if missing:
                yield _warning(("cases", cases[0][0]), f"ids cannot be looked up by {field}: {error.message}")
    for index, case in cases:
        for position, key in enumerate(case.expected_doc_ids):
            if key in missing:
                field, place = ("judgments", key) if key in case.judgments else ("expected_doc_ids", position)
                message = f"{display_name(key)} is not a chunk id, document id or URL in {collection.name}"
                yield _warning(("cases", index, field, place), message)


def _find_by_field(field: str, ids: Sequence[str], collection: Collection) -> set[str]:
    stored: set[str] = set()
    for batch in in_batches(ids, PAGE):
        stored |= _find_values(field, batch, collection)
        numbers = [number for key in batch if key not in stored for number in stored_forms(key) if number != key]
        with suppress(IndexRequiredError):  # the texts were looked up
            stored |= _find_values(field, numbers, collection)
    return stored


def _find_values(field: str, values: Sequence[Scalar], collection: Collection) -> set[str]:
    """Return the values that at least one point has.

    Each page removes the values that it shows, so that a document of many chunks fills one page at most.
    """
    left = {str(value): value for value in values}
    while left:
        where = map_filters((AnyOf(field, tuple(left.values())),), collection)
        points = collection.page(PAGE, where=where).points
        shown = {key for point in points for key in _read_ids(point, collection.payloads)} & left.keys()
        if not shown:
            break
        left = {key: value for key, value in left.items() if key not in shown}
    return {str(value) for value in values} - left.keys()


def _read_ids(point: Point, payloads: PayloadMap) -> tuple[str, ...]:
    with suppress(CorruptChunkError):
        return ids_of(payloads.chunk_of(point).metadata)
    return ()


def _warning(path: Path, message: str) -> Problem:
    return Problem(path, message, fatal=False)
