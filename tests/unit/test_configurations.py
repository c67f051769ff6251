"""`suite run --compare` and `suite tune`: configurations are read, run in turns, compared and chosen among."""

import json
from pathlib import Path
from typing import Any

import pytest

from chunkproof.base.errors import InvalidParameterError, VectorStoreUnavailableError
from chunkproof.contract import RetrievalResponse
from chunkproof.contract.query_options import RerankExecution
from chunkproof_cli.commands.suite_tune import candidates, choose_metric, split_cases, tune_weights
from chunkproof_cli.reports.outputs import CONFIGURATIONS
from chunkproof_cli.reports.suite_blocks import describe_change
from chunkproof_cli.suites.configurations import (
    Configuration,
    ConfigurationReport,
    Prices,
    Usage,
    _choose,
    compare_runs,
    cost_per_thousand,
    read_configurations,
    run_configurations,
)

from support.suites import answer, chunk, suite

FOUND, SECOND, LOST = (
    answer(chunk("a", 0.8)),
    answer(chunk("x", 0.8), chunk("a", 0.6)),
    answer(chunk("x", 0.6)),
)


def cases(count: int) -> Any:
    return suite(
        *({"name": f"c{n}", "query_text": f"q{n}", "expected_doc_ids": ["a"]} for n in range(count)),
        defaults={"collection_name": "docs"},
    ).cases


def configuration(name: str, **search: Any) -> Configuration:
    return Configuration(name=name, search=search)


def by_top_k(answers: dict[int, RetrievalResponse]) -> Any:
    """A search whose answer depends on the configuration's top_k."""
    return lambda request: answers[request["top_k"]]


def compared(answers: dict[int, RetrievalResponse], count: int = 20, **how: Any) -> ConfigurationReport:
    configurations = [configuration(f"k {k}", top_k=k) for k in answers]
    runs = run_configurations(configurations, cases(count), by_top_k(answers))
    return compare_runs(runs, Prices(), suite="sample", source="suite.yaml", **how)


def write(folder: Path, text: str) -> Path:
    file = folder / "configs.yaml"
    file.write_text(text, "utf-8")
    return file


def test_configurations_are_read_with_prices_and_search_fields(tmp_path: Path) -> None:
    found = read_configurations(
        write(
            tmp_path,
            "configurations:\n  - name: dense\n  - name: deep\n    search: {top_k: 50, filters: {lang: en}}\n"
            "prices:\n  embedding: {my-model: 0.5}\n",
        )
    )
    assert [one.name for one in found.configurations] == ["dense", "deep"]
    request = found.configurations[1].request({"query_text": "q", "top_k": 5, "filters": {"year": 2026}})
    assert request == {"query_text": "q", "top_k": 50, "filters": {"year": 2026, "lang": "en"}}
    assert found.prices.embedding == {"my-model": 0.5}


@pytest.mark.parametrize(
    ("text", "messages"),
    [
        ("configurations:\n  - name: one\n", ["configs.yaml:1: a comparison takes 2 to 20 configurations"]),
        (
            "configurations:\n  - name: one\n  - name: one\n",
            ["configs.yaml:3: name one is used by an earlier configuration"],
        ),
        (
            "configurations:\n  - name: one\n  - name: two\n    search: {query_text: x}\n",
            ["configs.yaml:4: search.query_text cannot be set: it belongs to a case"],
        ),
        (
            "configurations:\n  - name: one\n  - name: two\n    search: {top_k: 0}\n",
            ["configs.yaml:4: two: top_k must be between 1 and 1000"],
        ),
        ("- name: one\n", ["configs.yaml: it must have a list `configurations`, each with a name and `search`"]),
    ],
)
def test_every_problem_of_the_file_has_its_line(tmp_path: Path, text: str, messages: list[str]) -> None:
    with pytest.raises(InvalidParameterError) as caught:
        read_configurations(write(tmp_path, text))
    assert [message.removeprefix(f"{tmp_path}/") for message in caught.value.messages] == messages


def test_an_unknown_field_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidParameterError, match=r"serch.*search"):
        read_configurations(write(tmp_path, "configurations:\n  - {name: one, serch: {}}\n  - name: two\n"))


def test_configurations_take_turns_at_each_case_in_a_rotating_order() -> None:
    asked: list[tuple[str, int]] = []

    def search(request: dict[str, Any]) -> RetrievalResponse:
        asked.append((request["query_text"], request["top_k"]))
        return FOUND

    run_configurations([configuration("a", top_k=1), configuration("b", top_k=2)], cases(3), search)
    assert asked == [("q0", 1), ("q0", 2), ("q1", 2), ("q1", 1), ("q2", 1), ("q2", 2)]


def test_a_better_configuration_beyond_chance_is_chosen() -> None:
    report = compared({10: LOST, 20: FOUND})
    change = report.results[1].change_of("ndcg@10")
    assert change is not None
    assert (change.difference, change.low > 0) == (1.0, True)
    assert (report.metric, report.choice.name) == ("ndcg@10", "k 20")
    assert "better than every other by more than chance" in report.choice.reason
    assert "better" in describe_change(change), "as the table has it"


def test_what_chance_explains_does_not_decide_and_the_cheaper_one_is_chosen() -> None:
    """One case of twenty differs: no reason to pay more for."""
    answers = {10: FOUND, 20: FOUND}
    configurations = [
        Configuration(name="dear", search={"top_k": 10}, cost_per_thousand=2.0),
        Configuration(name="cheap", search={"top_k": 20}, cost_per_thousand=0.1),
    ]

    def search(request: dict[str, Any]) -> RetrievalResponse:
        return SECOND if (request["query_text"], request["top_k"]) == ("q3", 20) else answers[request["top_k"]]

    runs = run_configurations(configurations, cases(20), search)
    report = compare_runs(runs, Prices(), suite="sample", source="suite.yaml")
    assert report.results[0].metrics["ndcg@10"] > report.results[1].metrics["ndcg@10"]
    assert report.choice.name == "cheap"
    assert "dear has 1.000, which chance explains over 20 cases, and costs more" in report.choice.reason


@pytest.mark.parametrize("cost", [0.0003, 0.95, 0.9999])
def test_a_lead_within_chance_is_not_given_up_for_a_small_saving(cost: float) -> None:
    configurations = [
        Configuration(name="better", search={"top_k": 10}, cost_per_thousand=cost),
        Configuration(name="worse", search={"top_k": 20}, cost_per_thousand=cost * 0.95),
    ]

    def search(request: dict[str, Any]) -> RetrievalResponse:
        return SECOND if (request["query_text"], request["top_k"]) == ("q3", 20) else FOUND

    runs = run_configurations(configurations, cases(20), search)
    choice = compare_runs(runs, Prices(), suite="sample", source="suite.yaml").choice
    assert choice.name == "better"
    assert "its lead over worse is within chance, and none of them saves enough" in choice.reason


def test_a_configuration_that_could_not_be_judged_does_not_change_the_metric() -> None:
    def search(request: dict[str, Any]) -> RetrievalResponse:
        if request["top_k"] == 30:
            raise InvalidParameterError("no such collection")
        return FOUND if request["top_k"] == 20 else LOST

    configurations = [configuration(f"k {k}", top_k=k) for k in (10, 20, 30)]
    runs = run_configurations(configurations, cases(20), search)
    report = compare_runs(runs, Prices(), suite="sample", source="suite.yaml")
    assert (report.metric, report.choice.name, report.results[2].errors) == ("ndcg@10", "k 20", 20)
    assert "better than k 10 by more than chance; not compared: k 30: 20 of 20 cases could not" in report.choice.reason


def test_what_has_no_such_metric_or_is_too_slow_is_named_and_never_beaten() -> None:
    """With a metric of which nothing is known, nothing is chosen."""
    report = compared({10: LOST, 20: FOUND}, metric="recall@7")
    assert report.choice.name is None
    assert "(k 10: it has no recall@7; k 20: it has no recall@7)" in report.choice.reason

    slow = [result.model_copy(update={"metrics": {}}) for result in compared({10: LOST, 20: FOUND}).results]
    assert [result.find_gap("ndcg@10") for result in slow] == ["it has no ndcg@10"] * 2
    fast = compared({10: LOST, 20: FOUND}).results[1]
    assert fast.find_gap("ndcg@10", 0.0) == f"95th percentile {fast.p95_ms:.1f} ms"


def test_the_table_and_the_sentence_use_the_same_margin_of_chance() -> None:
    """Five cases that all change for the better are as many as chance explains: not better, not worse."""
    for count in range(1, 9):
        better, worse = compared({10: LOST, 20: FOUND}, count=count), compared({10: FOUND, 20: LOST}, count=count)
        up, down = better.results[1].change_of("ndcg@10"), worse.results[1].change_of("ndcg@10")
        assert up is not None
        assert down is not None
        assert (up.low > 0) == down.is_regression == ("better than every other" in better.choice.reason)
        assert (up.low > 0) == ("better than every other" in worse.choice.reason) == (count >= 6)


def test_a_configuration_whose_reranking_was_skipped_is_not_chosen() -> None:
    skipped = RerankExecution(model="rerank-v3.5", candidates=10, status="skipped", reason="RERANK_TIMEOUT")
    plain = FOUND.model_copy(update={"execution": FOUND.execution.model_copy(update={"rerank": skipped})})
    report = compared({10: LOST, 20: plain})
    assert (report.choice.name, report.results[1].not_reranked) == ("k 10", 20)
    assert "k 20: 20 of 20 searches were not reranked (RERANK_TIMEOUT)" in CONFIGURATIONS.render(report, ".html")


def searched(search: Any, count: int = 20, names: str = "AB", **how: Any) -> ConfigurationReport:
    """Configurations of these names, told apart by their top_k: 10, 20, 30."""
    configurations = [configuration(name, top_k=10 * n) for n, name in enumerate(names, start=1)]
    runs = run_configurations(configurations, how.pop("cases", cases(count)), search)
    return compare_runs(runs, how.pop("prices", Prices()), suite="sample", source="suite.yaml", **how)


def embedded_by(model: str, response: RetrievalResponse) -> RetrievalResponse:
    return response.model_copy(update={"execution": response.execution.model_copy(update={"embedding_model": model})})


def row_of(report: ConfigurationReport, name: str) -> str:
    lines = CONFIGURATIONS.render(report, ".md").splitlines()
    return next(line for line in lines if line.startswith((f"| {name} |", f"| {name} (chosen) |")))


@pytest.mark.parametrize("broken", ["A", "B"])
def test_the_table_compares_no_configuration_that_the_choice_does_not(broken: str) -> None:
    """A third of its cases are in error, and on the others it looks best."""

    def search(request: dict[str, Any]) -> RetrievalResponse:
        name, number = "AB"[request["top_k"] // 10 - 1], int(request["query_text"][1:])
        if name == broken and number % 3 == 0:
            raise VectorStoreUnavailableError("db", "gone")
        return FOUND if name == broken else LOST

    report = searched(search, 9)
    other = "BA"["AB".index(broken)]
    assert report.choice.name == other
    assert f"no other could be compared with it; not compared: {broken}: 3 of 9 cases" in report.choice.reason
    assert not any(result.changes for result in report.results)
    assert "better" not in row_of(report, broken) + row_of(report, other)
    assert "1.000 (6 cases)" in row_of(report, broken)
    assert f"{other} has the highest ndcg@10 (0.000)" in CONFIGURATIONS.render(report, ".html")


def test_configurations_are_compared_over_the_same_cases() -> None:
    """B searches every case to rank 10, A only six of them: by ndcg@10 they would be means of other cases."""
    made = [case.model_copy(update={"top_k": 10 if n < 6 else 3}) for n, case in enumerate(cases(20))]
    configurations = [configuration("A"), configuration("B", top_k=10, similarity_threshold=0.0)]

    def search(request: dict[str, Any]) -> RetrievalResponse:
        return SECOND if "similarity_threshold" in request and int(request["query_text"][1:]) >= 6 else FOUND

    runs = run_configurations(configurations, made, search)
    report = compare_runs(runs, Prices(), suite="sample", source="suite.yaml")
    assert (report.metric, report.choice.name) == ("ndcg@3", "A")
    assert "better than every other by more than chance" in report.choice.reason
    assert "worse" in row_of(report, "B")
    assert "1.000 (6 cases)" in row_of(report, "A"), "its mrr@10"
    wanted = compare_runs(runs, Prices(), suite="sample", source="suite.yaml", metric="ndcg@10")
    assert wanted.choice.name == "B"
    assert wanted.choice.reason.endswith(
        "no other could be compared with it; not compared: A: it has ndcg@10 in 6 cases, others in 20"
    )
    assert "better" not in row_of(wanted, "B")


@pytest.mark.parametrize("unpriced", ["best", "worse", "both"])
def test_a_cost_that_is_not_known_is_neither_more_nor_less(unpriced: str) -> None:
    def search(request: dict[str, Any]) -> RetrievalResponse:
        is_best = request["top_k"] == 10
        found = FOUND if is_best or request["query_text"] != "q3" else SECOND
        return embedded_by("new" if unpriced in ("both", "best" if is_best else "worse") else "embed-v4.0", found)

    choice = searched(search).choice
    assert choice.name == "A"
    assert "its lead over B is within chance, and none of them is known to save enough" in choice.reason


def test_prices_are_not_negative(tmp_path: Path) -> None:
    with pytest.raises(InvalidParameterError, match=r"prices\.embedding\.m must be at least 0"):
        read_configurations(
            write(tmp_path, "configurations:\n  - name: a\n  - name: b\nprices: {embedding: {m: -5}}\n")
        )


def test_equal_configurations_have_no_lead() -> None:
    for found in (FOUND, LOST):
        report = searched(lambda _, found=found: found)
        other = "BA"["AB".index(str(report.choice.name))]  # the faster one is chosen
        assert f"equal to {other}, and none of them saves enough" in report.choice.reason
        assert "+0.000, within chance" in row_of(report, "B").replace("\\", "")


def test_what_is_too_slow_was_compared_and_is_said_to_be_slow() -> None:
    report = searched(by_top_k({10: LOST, 20: FOUND, 30: FOUND}), names="ABC")
    late = [
        r.model_copy(update={"latency": r.latency and r.latency.model_copy(update={"p95_ms": 900.0})})
        for r in report.results
    ]
    results = [report.results[0], *late[1:]]
    choice = _choose(results, [[], [], []], "ndcg@10", 100.0)
    assert choice.name == "A"
    assert choice.reason.endswith(
        "no other is fast enough; too slow: B: 95th percentile 900.0 ms; C: 95th percentile 900.0 ms"
    )


def test_that_none_is_fast_enough_is_said_of_those_that_were_compared() -> None:
    def search(request: dict[str, Any]) -> RetrievalResponse:
        if request["top_k"] == 10:
            raise VectorStoreUnavailableError("db", "gone")
        return FOUND

    reason = searched(search, 8, max_latency_ms=1e-9).choice.reason
    assert reason.startswith("no configuration of those compared is within 1e-09 ms at the 95th percentile")
    assert reason.endswith("; not compared: A: 8 of 8 cases could not be judged")


def test_no_configuration_within_the_latency_limit_is_no_choice() -> None:
    report = compared({10: FOUND, 20: FOUND}, max_latency_ms=1e-9)
    assert report.choice.name is None
    assert "no configuration is within 1e-09 ms" in report.choice.reason


def test_a_configuration_that_could_not_be_judged_is_never_chosen() -> None:
    def search(request: dict[str, Any]) -> RetrievalResponse:
        if request["top_k"] == 20:
            raise VectorStoreUnavailableError("db", "gone")
        return LOST

    runs = run_configurations([configuration("a", top_k=10), configuration("b", top_k=20)], cases(8), search)
    report = compare_runs(runs, Prices(), suite="sample", source="suite.yaml")
    assert (report.choice.name, report.results[1].errors) == ("a", 8)
    assert "gone" in str(report.results[1].error)


def test_every_format_names_the_choice_and_escapes_names() -> None:
    report = compared({10: LOST, 20: FOUND}).model_copy(update={"suite": "<b>*x*</b>"})
    for extension in CONFIGURATIONS.extensions:
        text = CONFIGURATIONS.render(report, extension)
        assert "k 20" in text, extension
        assert extension == ".json" or "<b>" not in text
    read = ConfigurationReport.model_validate_json(report.canonical_json())
    assert read == report
    assert json.loads(report.canonical_json())["choice"]["name"] == "k 20"


def test_costs_are_list_prices_of_what_the_searches_used() -> None:
    usage = Usage(query_chars=40, embedding_model="embed-v4.0", rerank_model="rerank-v3.5", candidates=150)
    cost, details = cost_per_thousand([usage], 100.0, Prices())
    # 10 tokens × 0.12 / million × 1,000; two units of 100 documents × 2 / 1,000 × 1,000; Lambda for 0.1 s × 1,000
    assert cost == pytest.approx(0.0012 + 4.0 + 0.00133334 + 0.0002)
    assert details == "embedding 0.0012, rerank 4.0000, Lambda 0.0015"
    unknown, reason = cost_per_thousand([Usage(40, "new-model", None, 0)], 100.0, Prices())
    assert (unknown, reason) == (None, "no price is known for new-model: set it under prices")
    known, _ = cost_per_thousand([Usage(40, "new-model", None, 0)], 0.0, Prices(embedding={"new-model": 1.0}))
    assert known == pytest.approx(0.01 + 0.0002)


def test_tuning_chooses_by_one_half_and_measures_on_the_other() -> None:
    """Only a text weight of 0.7 finds the documents."""
    seen: dict[str, set[str]] = {}

    def search(request: dict[str, Any]) -> RetrievalResponse:
        weight = request.get("fusion", {}).get("weights", {}).get("text")
        seen.setdefault(str(weight), set()).add(request["query_text"])
        return FOUND if weight == 0.7 else LOST

    halves = split_cases(cases(20), "ndcg@10")
    report = tune_weights(halves, search, suite="sample", metric="ndcg@10")
    assert report.best.configuration.search["fusion"] == {
        "method": "rrf",
        "weights": {"dense": 0.3, "text": 0.7},
        "k": 2,
    }
    assert (report.best.chosen_on, report.best.measured_on) == (1.0, 1.0)
    assert set(report.against) == {"dense", "text", "hybrid"}
    assert report.is_proved
    measuring = {case.query_text for case in halves[1]}
    assert not seen["0.2"] & measuring  # no other weight was tried on the half that measures
    assert seen["0.7"] >= measuring


def test_of_equal_weights_the_default_is_chosen() -> None:
    report = tune_weights(split_cases(cases(12), "mrr@10"), lambda _: FOUND, suite="sample", metric="mrr@10")
    assert report.best.configuration.search == {"mode": "hybrid"}
    assert not report.is_proved


def test_halves_do_not_depend_on_the_order_of_the_cases() -> None:
    halves, again = split_cases(cases(15), "mrr@10"), split_cases(cases(15)[::-1], "mrr@10")
    assert halves == again
    assert {case.name for case in halves[0]}.isdisjoint(case.name for case in halves[1])
    with pytest.raises(InvalidParameterError, match="at least 10 cases"):
        split_cases(cases(9), "mrr@10")


def test_tuning_uses_only_cases_that_have_the_metric() -> None:
    """Nine of thirty cases are searched to rank 10; the pass rate is of all."""
    made = [case.model_copy(update={"top_k": 10 if n < 9 else 3}) for n, case in enumerate(cases(30))]
    with pytest.raises(
        InvalidParameterError, match="at least 10 cases with expected_doc_ids and top_k 10 or more; the"
    ):
        split_cases(made, "ndcg@10")
    halves = split_cases(made, "ndcg@3")
    assert [len(half) for half in halves] == [15, 15]
    by_passes = tune_weights(split_cases(made, "pass rate"), lambda _: FOUND, suite="sample", metric="pass rate")
    assert (by_passes.best.chosen_on, by_passes.best.measured_on, by_passes.is_proved) == (1.0, 1.0, False)
    assert set(by_passes.against) == {"dense", "text"}


def test_a_service_that_is_down_ends_tuning_with_its_own_error() -> None:
    def search(_: dict[str, Any]) -> RetrievalResponse:
        raise VectorStoreUnavailableError("db", "gone")

    with pytest.raises(VectorStoreUnavailableError, match=r"hybrid: case c.* could not be judged: .*gone"):
        tune_weights(split_cases(cases(12), "mrr@10"), search, suite="sample", metric="mrr@10")


def test_nothing_is_proved_against_nothing() -> None:
    report = tune_weights(split_cases(cases(12), "mrr@10"), lambda _: FOUND, suite="sample", metric="mrr@10")
    assert not report.model_copy(update={"against": {}}).is_proved


def test_a_leg_that_the_collection_lacks_ends_tuning_with_the_reason() -> None:
    def search(request: dict[str, Any]) -> RetrievalResponse:
        if request["mode"] != "dense":
            raise InvalidParameterError("Collection docs has no text leg")
        return FOUND

    with pytest.raises(InvalidParameterError, match="could not be judged: Collection docs has no text leg"):
        tune_weights(split_cases(cases(12), "mrr@10"), search, suite="sample", metric="mrr@10")


def test_every_candidate_is_tried_once() -> None:
    names = [one.name for one in candidates()]
    assert len(names) == len(set(names)) == 30


@pytest.mark.parametrize(("top_k", "metric"), [(100, "ndcg@10"), (10, "ndcg@10"), (7, "ndcg@5"), (1, "ndcg@1")])
def test_tuning_chooses_by_what_every_case_asks_for(top_k: int, metric: str) -> None:
    first, *others = cases(12)
    assert choose_metric([first.model_copy(update={"top_k": top_k}), *others]) == metric
