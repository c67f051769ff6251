"""Suites on disk: every problem at once, each with its line."""

import json
from pathlib import Path

import pytest

from chunkproof.base.errors import InvalidParameterError
from chunkproof.suite.cases import Problem
from chunkproof.suite.located_document import BrokenFileError
from chunkproof.suite.suite_file import SuiteSource, read_source

GOOD = """\
name: docs
collection: handbook
defaults: {top_k: 3, tags: [smoke]}
cases:
  - name: pid
    query_text: What do the three terms do?
    expected_doc_ids: [robotics-control, 12]
  - name: "no"
    query_text: no
    top_k: 7
    expect_no_results: true
    relevance_threshold: 0.5
    filters: {timestamp: {gte: 2026-01-01}}
"""


def suite_of(tmp_path: Path, text: str, name: str = "suite.yaml") -> SuiteSource:
    (tmp_path / name).write_text(text, "utf-8")
    return SuiteSource(tmp_path / name)


def problems(source: SuiteSource) -> list[str]:
    with pytest.raises(BrokenFileError) as raised:
        read_source(source)
    return list(raised.value.messages)


def test_a_suite_is_read_with_its_defaults(tmp_path: Path) -> None:
    suite = read_source(suite_of(tmp_path, GOOD)).suite
    first, second = suite.cases
    assert (suite.name, suite.collection) == ("docs", "handbook")
    assert (first.top_k, first.tags, first.expected_doc_ids) == (3, ("smoke",), ("robotics-control", "12"))
    assert (second.top_k, second.query_text) == (7, "no")
    assert second.filters == {"timestamp": {"gte": "2026-01-01"}}


def test_json_and_yaml_give_the_same_suite(tmp_path: Path) -> None:
    suite = read_source(suite_of(tmp_path, GOOD)).suite
    again = read_source(suite_of(tmp_path, suite.model_dump_json(), "suite.json")).suite
    assert again.cases == suite.cases


BROKEN = """\
name: docs
colection: handbook
cases:
  - name: a
    query_text: What?
    expected_doc_ids: [x, x]
    topk: 3
  - name: b
    query_text: " "
    top_k: 0
    relevance_threshold: 1.5
  - name: a
    query_text: Nothing is expected
  - name: c
    query_text: one
    query_text: two
    expect: most
    filters: {tags: null}
  - just text
"""


def test_every_problem_has_its_line(tmp_path: Path) -> None:
    assert problems(suite_of(tmp_path, BROKEN)) == [
        "suite.yaml:2: colection is not a known field; did you mean collection?",
        "suite.yaml:6: expected_doc_ids names x twice",
        "suite.yaml:7: topk is not a known field; did you mean top_k?",
        "suite.yaml:9: query_text cannot be empty",
        "suite.yaml:10: top_k must be between 1 and 1000",
        "suite.yaml:11: relevance_threshold must be between 0.0 and 1.0: no result can reach 1.5",
        "suite.yaml:12: name a is used by an earlier case",
        "suite.yaml:12: the case expects nothing: give expected_doc_ids, expected_keywords, "
        "relevance_threshold, max_latency_ms, expect_integrity or expect_no_results",
        "suite.yaml:16: cases[3].query_text is given twice",
        "suite.yaml:17: expect must be 'all' or 'any'",
        "suite.yaml:18: filters.tags must not be null",
        "suite.yaml:19: cases[4] must be an object",
    ]


def test_a_problem_within_a_list_filter_or_limit_has_the_line_of_the_item(tmp_path: Path) -> None:
    text = """\
name: docs
limits:
  SC-001: 0
  SC-04: 3
cases:
  - name: "a \u2028 b"
    query_text: robot
    expected_doc_ids:
      - x
      - y
      - x
    expected_keywords:
      - fine
      - "..."
    filters:
      url: null
      tags:
        - fine
        - null
      position: {gte: soon}
"""
    with pytest.raises(BrokenFileError) as broken:
        read_source(suite_of(tmp_path, text))
    assert list(broken.value.messages) == [
        "suite.yaml:3: limits.SC-001 must be above 0.0",
        "suite.yaml:4: SC-04 is not a known field; did you mean SC-004?",
        "suite.yaml:11: expected_doc_ids names x twice",
        "suite.yaml:14: expected_keywords: ... has no word in it",
        "suite.yaml:16: filters.url must not be null",
        "suite.yaml:19: filters.tags[1] must not be null",
        "suite.yaml:20: filters.position.gte must be a number or an ISO 8601 date",
    ]


def test_json_that_ends_too_early_is_reported_at_that_line(tmp_path: Path) -> None:
    with pytest.raises(BrokenFileError, match=r"s\.json:3: the file is not valid JSON"):
        read_source(suite_of(tmp_path, '{"name": "x",\n "cases": [\n  {"name" "a"}]}', "s.json"))


def test_a_value_that_a_case_inherits_has_the_line_where_it_is_set(tmp_path: Path) -> None:
    text = """\
name: docs
collection: handbook
defaults:
  top_k: 1
cases:
  - name: a
    query_text: robot
    expected_doc_ids: [x]
  - name: b
    query_text: robot
    collection: other
    expected_doc_ids: [x]
"""
    found = read_source(suite_of(tmp_path, text))
    places = (("cases", 0, "top_k"), ("cases", 0, "collection_name"), ("cases", 1, "collection_name"), ("cases", 1))
    assert [str(found.locate(Problem(path, "?"))) for path in places] == [
        "suite.yaml:4: ? (case a)",
        "suite.yaml:2: ?",
        "suite.yaml:11: ?",
        "suite.yaml:9: ?",
    ]


def test_limits_are_read_and_written_by_their_ids(tmp_path: Path) -> None:
    text = GOOD + "limits: {SC-001: 250, SC-004: 90.5, stage-total: 3000}\n"
    suite = read_source(suite_of(tmp_path, text)).suite
    assert (suite.limits.lookup, suite.limits.passed, suite.limits.stage_total) == (250, 90.5, 3000)
    assert suite.limits.search == 500  # the contract's
    again = read_source(suite_of(tmp_path, suite.to_json(), "suite.json")).suite
    assert again == suite


def test_json_problems_have_their_lines_too(tmp_path: Path) -> None:
    text = '{"name": "x",\n\t"cases": [\n {"name": "a", "query_text": "q",\n  "expected_doc_ids": ["\\ud83d\\ude00"],\n'
    text += '  "top_k": 0, "wrong": 1}\n]}'
    assert problems(suite_of(tmp_path, text, "suite.json")) == [
        "suite.json:5: top_k must be between 1 and 1000",
        "suite.json:5: wrong is not a known field",
    ]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"expected_doc_ids": ["a", "a"]}, "expected_doc_ids names a twice"),
        ({"expected_doc_ids": ["a"], "judgments": {"a": 0}}, "a is both expected and judged not relevant"),
        ({"expected_keywords": ["!!"]}, "expected_keywords: !! has no word in it"),
        (
            {"expect_no_results": True, "expected_keywords": ["x"]},
            "expect_no_results contradicts expected ids and keywords: give one or the other",
        ),
        ({"judgments": {"a": 0}}, "the case expects nothing"),
        ({"max_latency_ms": 0}, "max_latency_ms must be above 0.0"),
    ],
)
def test_a_contradictory_case_is_rejected(tmp_path: Path, fields: dict[str, object], message: str) -> None:
    document = {"name": "x", "cases": [{"name": "a", "query_text": "q", **fields}]}
    found = problems(suite_of(tmp_path, json.dumps(document), "suite.json"))
    assert len(found) == 1
    assert message in found[0]


def test_judged_ids_are_expected_when_none_are_named(tmp_path: Path) -> None:
    case = {"name": "a", "query_text": "q", "judgments": {"a": 2, "b": 0, "c": 1}}
    suite = read_source(suite_of(tmp_path, json.dumps({"name": "x", "cases": [case]}), "s.json")).suite
    assert suite.cases[0].expected_doc_ids == ("a", "c")
    assert suite.cases[0].grades == {"a": 2, "b": 0, "c": 1}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name: [a\nb: c", "suite.yaml:2: not valid YAML"),
        ("a: &x [*x]", "nested too deeply"),
        ("\tname: x", "not valid YAML"),
        ("", "A suite is an object with name and cases"),
        ("name: x\ncases: []", "suite.yaml:2: cases is empty: there is nothing to run"),
        ("? [a]\n: b", "a name must be a text"),
    ],
)
def test_what_is_no_suite_is_said_so(tmp_path: Path, text: str, message: str) -> None:
    assert message in problems(suite_of(tmp_path, text))[0]


def test_json_that_is_nested_too_deeply_is_rejected_with_its_line(tmp_path: Path) -> None:
    text = '{"name": "x",\n"cases": ' + "[" * 400 + "]" * 400 + "}"
    assert problems(suite_of(tmp_path, text, "suite.json")) == ["suite.json:2: nested too deeply"]


@pytest.mark.parametrize("opening", ["[", "{a: ", "- ", "? "], ids=["list", "object", "block", "key"])
def test_yaml_that_is_nested_too_deeply_is_refused_with_its_line(tmp_path: Path, opening: str) -> None:
    text = "a:\n " + opening * 50_000  # composed, it would end the process
    assert problems(suite_of(tmp_path, text)) == ["suite.yaml:2: nested deeper than 32 levels"]


def test_a_few_aliases_cannot_fill_the_memory(tmp_path: Path) -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 7)]
    assert "too large" in problems(suite_of(tmp_path, "\n".join(lines)))[0]
    long = f"a: &a {'x' * 100_000}\ncases: [{'*a,' * 100_000}]"  # ten gigabytes
    assert "too large" in problems(suite_of(tmp_path, long))[0]


def test_an_unreadable_or_unknown_file_is_named(tmp_path: Path) -> None:
    for name, message in (("suite.txt", "a suite is a .yaml or .json file"), ("none.yaml", "No such file")):
        with pytest.raises(InvalidParameterError, match=message):
            read_source(SuiteSource(tmp_path / name))


def beir(folder: Path, queries: str, qrels: str, split: str = "test") -> SuiteSource:
    (folder / "qrels").mkdir(exist_ok=True)
    (folder / "queries.jsonl").write_text(queries, "utf-8")
    (folder / "qrels" / f"{split}.tsv").write_text(qrels, "utf-8")
    return SuiteSource(folder)


QUERIES = '{"_id": "q1", "text": "first"}\n{"_id": "q2", "text": "second"}\n{"_id": "q3", "text": "third"}\n'
HEADER = "query-id\tcorpus-id\tscore\n"


def test_a_beir_folder_is_a_suite_of_its_judged_queries(tmp_path: Path) -> None:
    found = read_source(beir(tmp_path, QUERIES, HEADER + "q1\td1\t2\nq1\td2\t0\nq2\td9\t1\n"))
    assert [(c.name, c.query_text, c.expect, c.grades) for c in found.suite.cases] == [
        ("q1", "first", "any", {"d1": 2, "d2": 0}),
        ("q2", "second", "any", {"d9": 1}),
    ]
    assert [str(f) for f in found.findings] == ["queries.jsonl:3: query q3 has no judgments"]
    assert str(found.locate(Problem(("cases", 1, "judgments", "d9"), "?"))) == "test.tsv:4: ?"
    assert str(found.locate(Problem(("cases", 1, "query_text"), "?"))) == "queries.jsonl:2: ?"


def test_a_query_that_another_split_judges_is_not_missing_judgments(tmp_path: Path) -> None:
    beir(tmp_path, QUERIES, HEADER + "q2\td\t1\nq3\td\t1\n", "train")
    found = read_source(beir(tmp_path, QUERIES, HEADER + "q1\td1\t1\n"))
    assert [c.name for c in found.suite.cases] == ["q1"]
    assert found.findings == ()


def test_contradicting_qrels_are_rejected_and_repeated_ones_reported(tmp_path: Path) -> None:
    source = beir(tmp_path, QUERIES, HEADER + "q1\td1\t1\nq1\td1\t1\nq1\td1\t0\nq2\td\tx\nq8\td\t1\n")
    assert problems(source) == [
        "queries.jsonl:2: query q2 has no judgments",
        "queries.jsonl:3: query q3 has no judgments",
        "test.tsv:3: judges d1 for query q1 again, as line 2 did",
        "test.tsv:4: judges d1 for query q1 as 0, line 2 as 1",
        "test.tsv:5: not a judgment: query, document and a whole number",
        "test.tsv:6: judges query q8, which is not in queries.jsonl",
    ]


def test_a_split_is_chosen_by_name(tmp_path: Path) -> None:
    beir(tmp_path, QUERIES, HEADER + "q1\td1\t1\n", "dev")
    source = beir(tmp_path, QUERIES, HEADER + "q2\td1\t1\n", "train")
    assert [c.name for c in read_source(SuiteSource(tmp_path, split="train")).suite.cases] == ["q2"]
    with pytest.raises(InvalidParameterError, match=r"choose one with --split \(dev, train\)"):
        read_source(source)
    with pytest.raises(InvalidParameterError, match=r"has no test\.tsv \(dev, train\)"):
        read_source(SuiteSource(tmp_path, split="test"))


TOPICS = """\
<top>
<num> Number: 301
<title> International Organized Crime
<desc> Description:
Identify organizations.
</top>

<top><num>302</num><title>second
 one</title></top>
"""


@pytest.mark.parametrize("topics", [TOPICS, "301\tInternational Organized Crime\n302\tsecond one\n"])
def test_trec_topics_and_qrels_are_a_suite(tmp_path: Path, topics: str) -> None:
    (tmp_path / "topics.txt").write_text(topics)
    (tmp_path / "qrels.txt").write_text("301 0 FR94-1 2\n301 0 FR94-2 -1\n302 0 d 1\n")
    suite = read_source(SuiteSource(tmp_path / "topics.txt", qrels=tmp_path / "qrels.txt", top_k=20)).suite
    assert [(c.name, c.query_text, c.expected_doc_ids, c.top_k) for c in suite.cases] == [
        ("301", "International Organized Crime", ("FR94-1",), 20),
        ("302", "second one", ("d",), 20),
    ]
