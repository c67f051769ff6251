"""`chunkproof suite run` and `chunkproof suite publish`."""

import sys
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from chunkproof.base.settings import Settings
from chunkproof.suite.cases import LATENCY_IDS, CriteriaLimits, assign_collection
from chunkproof.suite.criteria import judge_errors
from chunkproof.suite.runner import SERVER_JOBS, inspect_collections
from chunkproof.suite.suite_file import SuiteFile, read_source
from chunkproof_cli.aws.jobs import publish_suite, run_suite_in_cloud
from chunkproof_cli.connections import open_backend
from chunkproof_cli.exits import COULD_NOT_JUDGE, FAILED, WRONG_INPUT, Interrupts, handle_interrupts
from chunkproof_cli.options import (
    Options,
    api_option,
    common_options,
    embedder_option,
    json_option,
    option,
    output_option,
    parse_options,
    reject_api,
    reject_embedder,
    sign_option,
    source_name,
    tolerate_option,
)
from chunkproof_cli.output import print_json, print_line, print_note, progress_bar, show_warnings_once
from chunkproof_cli.reports.outputs import CONFIGURATIONS, SUITE
from chunkproof_cli.retrievers.opening import retriever_options
from chunkproof_cli.suites.baseline import check_baseline, compare, load_report
from chunkproof_cli.suites.configurations import compare_runs, read_configurations, run_configurations
from chunkproof_cli.suites.suite_runs import (
    NothingFailingError,
    Selection,
    add_blame,
    choose_collection,
    parse_measure,
    pop_source,
    run_here,
    source_options,
)

SHOWN_FINDINGS = 5
# Options that only a run in this process supports.
HERE_ONLY = {
    **{"names": "--filter", "tags": "--tag"},
    **{name: f"--{name}" for name in ("failing", "resume", "repeat", "exact", "jobs", "blame", "snapshot")},
    **{"retrievers": "--retriever", "mappings": "--retriever-map"},
}
COMPARING = ("configurations", "metric", "max_latency")

EXAMPLES = """\b
Examples:
  chunkproof suite run suite.yaml --collection handbook -o report.json -o report.md -o junit.xml
  chunkproof suite run suite.yaml --tag smoke --repeat 2
  chunkproof suite run suite.yaml --failing report.json
  chunkproof suite run suite.yaml --baseline main.json -o report.md
  chunkproof suite run suite.yaml --baseline main.json --tolerate 2
  chunkproof suite run suite.yaml --baseline main.json --blame --snapshot before.snapshot -o report.md
  chunkproof suite run suite.yaml --limit SC-001=250 --limit SC-004=90
  chunkproof suite run beir/scifact --collection scifact --exact
  chunkproof suite run topics.txt --qrels qrels.txt -k 100
  chunkproof suite run suite.yaml --stack chunkproof-prod -o report.html
  chunkproof suite run suite.yaml --compare configs.yaml --max-latency 200 -o compared.html
  chunkproof suite run suite.yaml --retriever my_rag:search --collection handbook
  chunkproof suite run suite.yaml --retriever http://localhost:8080/query --retriever-map mapping.yaml
  chunkproof suite run suite.yaml --retriever old.run --retriever my_rag:search -o report.html
"""


def _parse_limit(value: str) -> tuple[str, float]:
    key, _, figure = value.partition("=")
    if key not in CriteriaLimits.ids():
        raise click.BadParameter(f"{key} is not a criterion: name one of {', '.join(CriteriaLimits.ids())}")
    try:
        CriteriaLimits().replace({key: float(figure)})
    except ValueError:
        unit = "milliseconds above 0, such as 250" if key in LATENCY_IDS else "a percentage, such as 90"
        raise click.BadParameter(f"{value} is not a limit: {key} takes {unit}") from None
    return key, float(figure)


@click.command(epilog=EXAMPLES)
@source_options
@output_option("Write the report: .json (canonical), .html, .txt, .md, .xml (JUnit) or .ctrf.json (CTRF).")
@sign_option
@option("--filter names TEXT*", "Only cases with this text in their name; * and ? are wildcards.")
@option("--tag tags TAG*", "Only cases with this tag, or another --tag.")
@option("--failing REPORT", "Only cases that did not pass in this report.")
@option("--resume REPORT", "Continue this interrupted run; its verdicts are kept.")
@option(
    "--baseline REPORT",
    "Compare with this report: exit 1 if a case newly fails; what failed there already does not count.",
)
@tolerate_option
@option("--blame", "With --baseline: for each newly failing case, find the smallest change that brings its chunk back.")
@option(
    "--snapshot FILE",
    "With --blame: a snapshot from before (chunkproof snapshot), so that former texts and vectors are tried.",
    exists=True,
)
@option("--repeat", "Number of runs, to compare verdicts.", 1, type=click.IntRange(1))
@option("--exact", "Also search exactly, and report what the index misses.")
@option("--ignore-latency", "Do not fail on latency criteria that are not met: for shared machines.")
@option(
    "--judge-latency", "Judge latency criteria on the embedded store too; by default only on a served or deployed one."
)
@option(
    "--limit limits ID=VALUE*",
    "Limit of a criterion in ms or percent, such as SC-001=250 or SC-004=90, instead of the suite's.",
    type=_parse_limit,
)
@option("--jobs", f"Searches at a time; {SERVER_JOBS} by default, 1 with the embedded store.", type=click.IntRange(1))
@option("--stack NAME", "Run it in AWS, with the state machine of a deployed stack, and fetch the report.")
@retriever_options
@option(
    "--compare configurations FILE",
    "Run the cases under each configuration of this .yaml or .json file: quality, latency and cost.",
)
@option(
    "--max-latency MS",
    "With --compare: choose only among configurations whose 95th percentile is within this.",
    type=click.FloatRange(0, min_open=True),
)
@option(
    "--metric METRIC",
    "With --compare: what to compare by; ndcg@10 by default, the pass rate if no case names documents.",
    type=parse_measure,
)
@common_options
@embedder_option
@api_option
def run(
    *,
    outputs: tuple[Path, ...],
    ignore_latency: bool,
    judge_latency: bool,
    limits: tuple[tuple[str, float], ...],
    stack: str | None,
    **options: Any,
) -> None:
    """Run the cases of SUITE and judge the success criteria.

    SUITE is a .yaml or .json file (also s3://BUCKET/KEY), a BEIR folder, or TREC topics with --qrels. Exit 1 if a case
    fails or a criterion is not met, 3 if a case could not be judged because a service was unavailable. With --baseline,
    the comparison decides instead: exit 1 if a case newly fails, a criterion is newly not met or a metric fell by more
    than chance. The last line names what decided.
    """
    names = (*HERE_ONLY, *COMPARING, "baseline", "tolerate")
    how = {name: options.pop(name) for name in names} | {"stack": stack, "limits": limits}
    source, given = pop_source(options), parse_options(**options)
    file: Path | None = how["baseline"]
    _check_options(how, given, contradict_latency=ignore_latency and judge_latency)
    if how["configurations"]:
        _compare_configurations(read_source(source), source_name(source.path), given, how, outputs)
        return
    SUITE.check(outputs)
    baseline = load_report(file) if file else None
    found = read_source(source)
    found = replace(found, suite=found.suite.model_copy(update={"limits": found.suite.limits.replace(dict(limits))}))
    how["tolerate"] = how["tolerate"] or 0
    how["judge_latency"] = judge_latency or any(key in LATENCY_IDS for key, _ in limits)
    _print_findings(found)
    if file and baseline:
        selected = Selection(how["names"], how["tags"]).select(found.suite)
        check_baseline(found.suite.name, selected, baseline, file)
    with nullcontext(Interrupts()) if stack else handle_interrupts() as interrupts:
        try:
            if stack:
                collection = choose_collection(found, given)
                report = run_suite_in_cloud(stack, found.suite, source_name(source.path), collection)
            else:
                report = run_here(found, source_name(source.path), given, how, outputs, interrupts=interrupts)
        except NothingFailingError as nothing:
            print_json({"message": nothing.message}) if given.json else print_line(nothing.message)
            return
        if ignore_latency:
            report = report.without_latency()
        if file and baseline:
            report = compare(report, baseline, file, how["tolerate"])
        if how["blame"]:
            report = add_blame(report, given, how["snapshot"])
        SUITE.write(report, outputs, (), baseline)
    print_json(report) if given.json else SUITE.print(report)
    sys.exit(report.verdict.exit_code)


def _check_options(how: dict[str, Any], given: Options, *, contradict_latency: bool) -> None:
    """Refuse options that do not go together."""
    baseline, retrievers, blame = how["baseline"], how["retrievers"], how["blame"]
    is_set, chooses = {**how, "repeat": how["repeat"] > 1}, how["metric"] or how["max_latency"]
    if how["configurations"]:
        # A comparison runs each case once under each configuration.
        more = {"baseline": "--baseline", "stack": "--stack", "limits": "--limit", "tolerate": "--tolerate"}
        single = (HERE_ONLY | more).items()
        if refused := [flag for name, flag in single if name not in ("names", "tags") and is_set[name]]:
            raise click.UsageError(f"With --compare, {', '.join(refused)} cannot be given.")
        return
    # A run in AWS runs all cases once, by the index.
    refused = [flag for name, flag in HERE_ONLY.items() if is_set[name]] + ["--api"] * bool(given.api)
    for broken, message in (
        (chooses, "--max-latency and --metric need --compare: they choose among configurations."),
        (contradict_latency, "--ignore-latency and --judge-latency contradict each other: give one of them."),
        (blame and baseline is None, "--blame needs --baseline: without one, nothing is newly lost."),
        (blame and given.api, "--blame needs the store itself: set QDRANT_URL instead of --api."),
        (blame and retrievers, "--blame repeats searches of the collection; it cannot repeat those of a --retriever."),
        (how["snapshot"] and not blame, "--snapshot is what --blame compares with: give both."),
        (
            how["tolerate"] is not None and baseline is None and len(retrievers) < 2,
            "--tolerate needs --baseline: without one, there is nothing to be worse than.",
        ),
        (baseline and len(retrievers) > 1, "Two --retriever are compared with each other: leave --baseline out."),
        (
            how["stack"] and refused,
            f"With --stack, {', '.join(refused)} cannot be given: the whole suite is run, once.",
        ),
    ):
        if broken:
            raise click.UsageError(message)
    if how["stack"]:
        reject_embedder(given, "--stack")


def _compare_configurations(
    found: SuiteFile, source: str, given: Options, how: dict[str, Any], outputs: tuple[Path, ...]
) -> None:
    """Compare the configurations of a file on the selected cases, write and print the report, and exit."""
    selected = Selection(how["names"], how["tags"]).select(found.suite)
    CONFIGURATIONS.check(outputs)
    file = read_configurations(how["configurations"])
    # Without a cache of embeddings: otherwise the second search of a query is faster.
    with open_backend(given, Settings.from_env().model_copy(update={"cache_entries": 0})) as backend:
        cases = assign_collection(selected, choose_collection(found, given))
        variants = [configuration.apply(case) for configuration in file.configurations for case in cases]
        if (down := inspect_collections(variants, backend).down) is not None:
            raise down
        with show_warnings_once(), progress_bar("Searching", len(variants)) as done:
            runs = run_configurations(file.configurations, cases, backend.search, lambda _: done(1))
    report = compare_runs(
        runs,
        file.prices,
        suite=found.suite.name,
        source=source,
        metric=how["metric"],
        max_latency_ms=how["max_latency"],
    )
    CONFIGURATIONS.write(report, outputs)
    print_json(report) if given.json else CONFIGURATIONS.print(report)
    if report.choice.name is None:
        errors = judge_errors([case for run in runs for case in run.results])
        skipped = COULD_NOT_JUDGE if any(result.not_reranked for result in report.results) else 0
        unlike = WRONG_INPUT if any(result.not_compared for result in report.results) else 0
        sys.exit(errors or skipped or unlike or FAILED)  # the last where all are too slow


def _print_findings(found: SuiteFile) -> None:
    for finding in found.findings[:SHOWN_FINDINGS]:
        print_note(str(finding))
    if (more := len(found.findings) - SHOWN_FINDINGS) > 0:
        print_note(f"… and {more} more; chunkproof suite lint lists them")


PUBLISH_EXAMPLES = """\b
Examples:
  chunkproof suite publish suite.yaml --stack chunkproof-prod
  chunkproof suite publish beir/scifact --stack chunkproof-prod
"""


@click.command(epilog=PUBLISH_EXAMPLES)
@source_options
@option("--stack NAME", "The deployed stack, with the parameter Suite=true.", required=True)
@json_option
@reject_api("a stack is named with --stack")
def publish(stack: str, as_json: bool, **options: Any) -> None:
    """Set SUITE as the suite that a deployed stack runs on its schedule and after each deployment.

    Any kind of suite is uploaded as JSON; the previous version is kept for KeptDays days.
    """
    suite = read_source(pop_source(options)).suite
    address = publish_suite(stack, suite)
    print_note(f"{suite.name}, {len(suite.cases)} cases, is now the suite that {stack} runs")
    if as_json:
        print_json({"suite": suite.name, "cases": len(suite.cases), "address": address})
