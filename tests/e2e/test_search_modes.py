"""`chunkproof search` by words, by both, for several queries and in pages."""

from pathlib import Path

import pytest

from support.commands import Command

IN = ("--collection", "handbook")


def test_a_hybrid_search_shows_every_score_by_its_name(handbook: Command) -> None:
    run = handbook("search", "hnsw_ef", "--mode", "hybrid", "-k", 3, *IN)
    assert run.code == 0
    for name in ("dense ", "text ", "fused "):
        assert name in run.out
    document = handbook("search", "hnsw_ef", "--mode", "hybrid", "-k", 3, "--json", *IN).json
    assert document["execution"]["mode"] == "hybrid"
    assert document["execution"]["fusion"]["k"] == 2


def test_fusion_is_a_method_or_an_object(handbook: Command) -> None:
    dbsf = handbook("search", "hnsw_ef", "--mode", "hybrid", "--fusion", "dbsf", "--json", *IN).json
    assert dbsf["execution"]["fusion"]["method"] == "dbsf"
    weighed = '{"k": 20, "weights": {"dense": 1, "text": 0}}'
    document = handbook("search", "hnsw_ef", "--mode", "hybrid", "--fusion", weighed, "--json", *IN).json
    assert document["execution"]["fusion"]["weights"] == {"dense": 1.0, "text": 0.0}


def test_text_mode_finds_a_word(handbook: Command) -> None:
    run = handbook("search", "decomposed", "--mode", "text", "-k", 1, "--json", *IN)
    assert "decomposed" in run.json["results"][0]["text"].lower()
    assert run.json["execution"]["embedding_model"] is None


def test_results_are_grouped_by_document(handbook: Command) -> None:
    run = handbook("search", "text", "--group-by", "document_id", "-k", 5, "--json", *IN)
    groups = [result["group"] for result in run.json["results"]]
    assert len(groups) == len(set(groups)) > 1


def test_several_texts_have_a_table_each(handbook: Command) -> None:
    run = handbook("search", "composed and decomposed accents", "graph neighbours", "-k", 1, *IN)
    assert run.code == 0
    assert "1. composed and decomposed accents" in run.out
    assert "2. graph neighbours" in run.out


def test_queries_of_a_file_are_texts_or_objects(handbook: Command, tmp_path: Path) -> None:
    file = tmp_path / "queries.txt"
    file.write_text('composed accents\n\n{"query_text": "graph", "top_k": 2, "query_id": "g"}\n', "utf-8")
    run = handbook("search", "--queries", file, "-k", 1, "--json", *IN)
    assert run.code == 0, run.err
    assert [len(one["results"]) for one in run.json["responses"]] == [1, 2]
    assert run.json["responses"][1]["query_id"] == "g"


def test_a_query_that_fails_decides_the_exit_code_and_the_others_are_shown(handbook: Command, tmp_path: Path) -> None:
    file = tmp_path / "queries.txt"
    file.write_text('{"query_text": ""}\ncomposed accents\n', "utf-8")
    run = handbook("search", "--queries", file, "-k", 1, *IN)
    assert run.code == 2
    assert "query_text cannot be empty" in run.out
    assert "1 of at most 1 results from handbook" in run.out


def test_a_page_names_the_cursor_of_the_next(handbook: Command) -> None:
    first = handbook("search", "text", "-k", 2, "--cursor", "start", *IN)
    cursor = first.err.split("Next page: --cursor ")[1].split()[0]
    one = handbook("search", "text", "-k", 2, "--cursor", "start", "--json", *IN).json
    two = handbook("search", "text", "-k", 2, "--cursor", cursor, "--json", *IN).json
    both = handbook("search", "text", "-k", 4, "--json", *IN).json
    assert [r["point_id"] for r in one["results"] + two["results"]] == [r["point_id"] for r in both["results"]]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("x", "--fusion", "rrf"), "--fusion needs --mode hybrid"),
        (("x", "--mode", "hybrid", "--fusion", "sum"), "'sum' is not rrf, dbsf or a JSON object"),
        (("x", "--params", "5"), "'5' is not a JSON object"),
        (("x", "--mode", "words"), "'words' is not one of"),
        (("x", "--group-size", 3), "--group-size needs --group-by"),
        (("x", "--cursor", "abc"), "--cursor does not belong to this query"),
        ((), "Missing argument 'TEXT'."),
        (("x", "--queries", "-"), "Give TEXT or --queries FILE, not both"),
    ],
)
def test_wrong_use_names_the_flag(handbook: Command, arguments: tuple[str, ...], message: str) -> None:
    run = handbook("search", *arguments, *IN)
    assert run.code == 2
    assert message in run.err
