"""`chunkproof suite lint` as a person runs it."""

import re
from pathlib import Path

from support.commands import Command

BROKEN = """\
name: docs
collection: handbook
cases:
  - name: accents
    query_text: two ways to write an accented letter
    expected_doc_ids: [vectordb-text-hygiene, vectordb-text-hygien]
    relevance_threshold: 0.99
  - name: accents
    query_text: the same name, and nothing expected
  - name: french
    query_text: the origin of the word robot
    expected_doc_id: [languages-00]
  - name: long
    query_text: robot {many}
    expected_doc_ids: [languages-00]
"""


def test_every_kind_of_problem_is_found_at_once(handbook: Command, tmp_path: Path) -> None:
    file = tmp_path / "suite.yaml"
    file.write_text(BROKEN.replace("{many}", "robot " * 300), "utf-8")
    run = handbook("suite", "lint", file)
    assert run.code == 1
    assert re.sub(r"scores 0\.\d+", "scores little", run.out).splitlines() == [
        "suite.yaml:6: vectordb-text-hygien is not a chunk id, document id or URL in handbook",
        "suite.yaml:7: no result can reach relevance_threshold 0.99: the best scores little",
        "suite.yaml:8: name accents is used by an earlier case",
        "suite.yaml:8: the case expects nothing: give expected_doc_ids, expected_keywords, relevance_threshold, "
        "max_latency_ms, expect_integrity or expect_no_results",
        "suite.yaml:12: expected_doc_id is not a known field; did you mean expected_doc_ids?",
        "suite.yaml:14: query_text is too long: 303 tokens, all-MiniLM-L6-v2 reads 256",
    ]
    offline = handbook("suite", "lint", file, "--offline", "--json")
    assert [finding["line"] for finding in offline.json["findings"]] == [8, 8, 12]


def test_one_problem_of_a_case_does_not_hide_another(handbook: Command, tmp_path: Path) -> None:
    file = tmp_path / "suite.yaml"
    cases = """\
name: docs
collection: handbook
cases:
  - {name: a, query_text: robot, expected_doc_ids: [gone-1], expect_al: any}
  - {name: a, query_text: robot, expected_doc_ids: [gone-2], top_k: 5000}
  - {name: b, query_text: robot, expected_doc_ids: [gone-3], collection_name: 5}
"""
    file.write_text(cases, "utf-8")
    assert handbook("suite", "lint", file).out.splitlines() == [
        "suite.yaml:4: expect_al is not a known field; did you mean expect?",
        "suite.yaml:4: gone-1 is not a chunk id, document id or URL in handbook",
        "suite.yaml:5: name a is used by an earlier case",
        "suite.yaml:5: top_k must be between 1 and 1000",
        "suite.yaml:5: gone-2 is not a chunk id, document id or URL in handbook",
        "suite.yaml:6: collection_name must be a string",  # so that gone-3 cannot be looked up
    ]


def test_a_good_suite_has_no_problems(handbook: Command, tmp_path: Path) -> None:
    file = tmp_path / "suite.yaml"
    file.write_text(BROKEN.partition("    relevance")[0].replace(", vectordb-text-hygien]", "]"), "utf-8")
    run = handbook("suite", "lint", file)
    assert (run.code, run.out) == (0, f"{file}: 1 cases, no problems\n")


def test_judgments_of_documents_that_were_not_loaded_are_found_by_line(handbook: Command, tmp_path: Path) -> None:
    (tmp_path / "qrels").mkdir()
    (tmp_path / "queries.jsonl").write_text('{"_id": "1", "text": "robot"}\n{"_id": "2", "text": "unjudged"}\n')
    (tmp_path / "qrels" / "test.tsv").write_text(
        "query-id\tcorpus-id\tscore\n1\tlanguages-00\t1\n1\tgone\t1\n1\tgone\t1\n"
    )
    run = handbook("suite", "lint", tmp_path, "--collection", "handbook")
    assert run.out.splitlines() == [
        "queries.jsonl:2: query 2 has no judgments",
        "test.tsv:3: gone is not a chunk id, document id or URL in handbook",
        "test.tsv:4: judges gone for query 1 again, as line 3 did",
    ]


def test_a_file_that_is_no_suite_at_all_is_wrong_input_to_lint(handbook: Command, tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_text("name: [")
    run = handbook("suite", "lint", tmp_path / "s.yaml")
    assert run.code == 2
    assert "s.yaml:1: not valid YAML" in run.err
