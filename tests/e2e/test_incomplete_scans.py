"""No verdict and no file is made of a scan that does not return every point that Qdrant counts."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from qdrant_client import QdrantClient, models

from chunkproof.collection import reader

from support.commands import Command
from support.lying_server import LEFT_OUT, LIES, Lie, empty_payloads, end_early, leave_out_payloads, lying_server
from support.qdrant_server import QdrantServer

POINTS = 40
COMMANDS: dict[str, tuple[str, ...]] = {
    "absent": ("absent", "--text", "nowhere to be found in here", "--collection", "{name}"),
    "audit": ("audit", "{folder}/manifest.jsonl", "--collection", "{name}"),
    "diff": ("diff", "{name}", "{name}-copy"),
    "manifest": ("manifest", "--collection", "{name}", "-o", "{folder}/made"),
    "snapshot": ("snapshot", "--collection", "{name}", "--vectors", "-o", "{folder}/made"),
    "pull": ("pull", "{name}", "--by", "scroll", "--data", "{folder}/data"),
}


@pytest.fixture
def stored(served_qdrant: QdrantServer, collection: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Two equal collections of 40 points, of which the manifest has the first ten."""
    monkeypatch.setattr(reader, "PAGE_SIZE", 10)
    monkeypatch.setattr(reader, "PAUSES", (0.0,))
    monkeypatch.setattr("chunkproof_cli.commands.copying.BATCH", 10)
    texts = {number: f"The text of chunk {number} is about wheels." for number in range(1, POINTS + 1)}
    points = [
        models.PointStruct(id=number, vector=[1.0, float(number)], payload=_payload(number, text))
        for number, text in texts.items()
    ]
    client = QdrantClient(url=served_qdrant.url, check_compatibility=False)
    for name in (collection, f"{collection}-copy"):
        client.create_collection(name, models.VectorParams(size=2, distance=models.Distance.COSINE))
        client.upsert(name, points, wait=True)
    lines = [{"chunk_id": f"c{number}", "original_text": texts[number], "point_id": number} for number in range(1, 11)]
    (tmp_path / "manifest.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return collection


def _payload(number: int, text: str) -> dict[str, Any]:
    return {"chunk_id": f"c{number}", "text": text, "metadata": {"author": "a"}}


@pytest.mark.server
@pytest.mark.parametrize("lie", LIES)
@pytest.mark.parametrize("command", COMMANDS)
def test_a_scan_that_is_not_the_whole_collection_ends_in_an_error(
    command: str,
    lie: str,
    chunkproof: Command,
    served_qdrant: QdrantServer,
    stored: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with lying_server(served_qdrant.url, LIES[lie]) as url:
        monkeypatch.setenv("QDRANT_URL", url)
        run = chunkproof(*(word.format(name=stored, folder=tmp_path) for word in COMMANDS[command]))
    assert run.code == 3, run.out + run.err
    assert "could not be read whole" in run.out + run.err
    assert not (tmp_path / "made").exists()


@pytest.mark.server
@pytest.mark.parametrize("command", COMMANDS)
def test_a_count_that_fits_the_pages_does_not_hide_the_points_behind_the_last(
    command: str,
    chunkproof: Command,
    served_qdrant: QdrantServer,
    stored: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with lying_server(served_qdrant.url, LIES["end_early"], counts=[10] * 100) as url:
        monkeypatch.setenv("QDRANT_URL", url)
        run = chunkproof(*(word.format(name=stored, folder=tmp_path) for word in COMMANDS[command]))
    assert run.code == 3, run.out + run.err
    assert "but it has more" in run.out + run.err
    assert not (tmp_path / "made").exists()


@pytest.mark.server
@pytest.mark.parametrize("lie", [leave_out_payloads, empty_payloads])
@pytest.mark.parametrize("command", COMMANDS)
def test_points_without_the_payloads_that_were_asked_for_are_not_taken_for_empty_ones(
    command: str,
    lie: Lie,
    chunkproof: Command,
    served_qdrant: QdrantServer,
    stored: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with lying_server(served_qdrant.url, lie) as url:
        monkeypatch.setenv("QDRANT_URL", url)
        run = chunkproof(*(word.format(name=stored, folder=tmp_path) for word in COMMANDS[command]))
    assert run.code == 3, run.out + run.err
    assert not (tmp_path / "made").exists()


@pytest.mark.server
@pytest.mark.parametrize("part", LEFT_OUT)
@pytest.mark.parametrize("command", [*COMMANDS, "seal", "partial", "sample"])
def test_what_a_server_leaves_out_of_some_points_is_not_taken_for_missing(
    command: str,
    part: str,
    chunkproof: Command,
    served_qdrant: QdrantServer,
    stored: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert chunkproof("key", "example.com/docs").code == 0
    by_id = ("audit", "manifest.jsonl", "--collection", stored)
    words = {
        **COMMANDS,
        "seal": ("seal", "{name}", "--key", "seal.key", "--to", "seals"),
        "partial": (*by_id, "--partial"),
        "sample": (*by_id, "--sample", "6"),
    }[command]
    with lying_server(served_qdrant.url, LEFT_OUT[part], by_id=True) as url:
        monkeypatch.setenv("QDRANT_URL", url)
        run = chunkproof(*(word.format(name=stored, folder=tmp_path) for word in words))
    if part == "vectors" and command in ("absent", "audit", "manifest", "partial", "sample"):  # which read none
        assert "could not be read whole" not in run.out + run.err
        return
    assert run.code == 3, run.out + run.err
    assert "leaves out payloads or vectors" in " ".join((run.out + run.err).split())
    assert not (tmp_path / "made").exists()
    assert not list(tmp_path.glob("seals/*/latest"))


@pytest.mark.server
@pytest.mark.parametrize("field", ["chunk_id", "point id"])
@pytest.mark.parametrize("option", [("--partial",), ("--sample", "8")])
def test_a_point_that_the_server_does_not_answer_is_not_reported_as_missing(
    option: tuple[str, ...],
    field: str,
    chunkproof: Command,
    served_qdrant: QdrantServer,
    stored: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def drop(_request: dict[str, Any], result: Any) -> None:
        points = result["points"] if isinstance(result, dict) else result
        points[:] = [point for point in points if point["id"] > 4]

    line = {"chunk_id": "c3", "original_text": "The text of chunk 3 is about wheels."}
    lines = [line | ({"point_id": 3} if field == "point id" else {}), {"chunk_id": "99", "original_text": "gone"}]
    (tmp_path / "two.jsonl").write_text("".join(json.dumps(each) + "\n" for each in lines))
    audit = ("audit", tmp_path / "two.jsonl", "--collection", stored, *option)
    with lying_server(served_qdrant.url, drop, by_id=True) as url:
        monkeypatch.setenv("QDRANT_URL", url)
        run = chunkproof(*audit)
    assert run.code == 3, run.out + run.err
    assert re.search(r"Qdrant counts \d points for a look-up", run.out + run.err)
    monkeypatch.setenv("QDRANT_URL", served_qdrant.url)
    assert "1 chunk is missing" in chunkproof(*audit, "--restart").out


@pytest.mark.server
def test_points_without_any_payload_are_what_they_are(
    chunkproof: Command, served_qdrant: QdrantServer, stored: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = QdrantClient(url=served_qdrant.url, check_compatibility=False)
    client.overwrite_payload(stored, {}, points=[3, 4, 30], wait=True)
    monkeypatch.setenv("QDRANT_URL", served_qdrant.url)
    for command in ("manifest", "snapshot", "pull"):
        run = chunkproof(*(word.format(name=stored, folder=tmp_path) for word in COMMANDS[command]))
        assert run.code == 0, run.out + run.err


@pytest.mark.server
def test_a_collection_that_was_rewritten_while_it_was_read_is_not_sealed(
    chunkproof: Command, served_qdrant: QdrantServer, stored: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = QdrantClient(url=served_qdrant.url, check_compatibility=False)

    def rewrite(request: dict[str, Any], _result: dict[str, Any]) -> None:
        if request.get("offset") == 21:
            client.set_payload(stored, {"text": "written meanwhile"}, points=[2], wait=True)

    monkeypatch.chdir(tmp_path)
    assert chunkproof("key", "example.com/docs").code == 0
    with lying_server(served_qdrant.url, rewrite) as url:
        monkeypatch.setenv("QDRANT_URL", url)
        run = chunkproof("seal", stored, "--key", "seal.key", "--to", "seals")
        client.set_payload(stored, {"text": "as before"}, points=[2], wait=True)
        noted = chunkproof("manifest", "--collection", stored, "-o", tmp_path / "made")
    assert run.code == 3, run.out + run.err
    assert "1 of 40 points" in " ".join((run.out + run.err).split())
    assert not list(tmp_path.glob("seals/*/latest"))
    assert "were rewritten while it was read" in noted.err


@pytest.mark.server
@pytest.mark.parametrize("command", ["absent", "diff", "pull"])
def test_what_changes_while_it_is_read_is_not_proved_equal_or_gone(
    command: str,
    chunkproof: Command,
    served_qdrant: QdrantServer,
    stored: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def hide(request: dict[str, Any], result: dict[str, Any]) -> None:
        result["points"] = [point for point in result["points"] if point["id"] <= 20]
        if request.get("offset") == 20 or (result["next_page_offset"] or 0) > 20:
            end_early(request, result)

    with lying_server(served_qdrant.url, hide, counts=[20, 40] * 50) as url:
        monkeypatch.setenv("QDRANT_URL", url)
        run = chunkproof(*(word.format(name=stored, folder=tmp_path) for word in COMMANDS[command]))
    assert run.code == 3, run.out + run.err
    assert re.search("changed from 20 to 40|it has 40", run.out + run.err)


@pytest.mark.server
def test_a_scan_goes_on_behind_its_end_while_points_are_added(
    chunkproof: Command,
    served_qdrant: QdrantServer,
    stored: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with lying_server(served_qdrant.url, LIES["end_early"], [10]) as url:
        monkeypatch.setenv("QDRANT_URL", url)
        run = chunkproof("manifest", "--collection", stored, "-o", tmp_path / "made")
    assert run.code == 0, run.out + run.err
    assert run.out.startswith("40 chunks are in ")


@pytest.mark.server
def test_points_that_are_added_during_a_scan_are_noted(
    chunkproof: Command, served_qdrant: QdrantServer, stored: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = QdrantClient(url=served_qdrant.url, check_compatibility=False)

    def add_a_point(request: dict[str, object], _result: dict[str, object]) -> None:
        if request.get("offset") == 21:
            payload = {"chunk_id": "new", "text": "A new chunk is written meanwhile."}
            client.upsert(stored, [models.PointStruct(id=0, vector=[1.0, 1.0], payload=payload)], wait=True)

    with lying_server(served_qdrant.url, add_a_point) as url:
        monkeypatch.setenv("QDRANT_URL", url)
        run = chunkproof("manifest", "--collection", stored, "-o", tmp_path / "made")
    assert run.code == 0, run.out + run.err
    assert "changed from 40 to 41 points while it was read" in run.err


@pytest.mark.server
def test_a_seal_begins_again_after_a_scan_that_was_incomplete(
    chunkproof: Command, served_qdrant: QdrantServer, stored: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lies: list[Lie] = [LIES["leave_out_points"]]
    monkeypatch.chdir(tmp_path)
    assert chunkproof("key", "example.com/docs").code == 0
    with lying_server(served_qdrant.url, lambda *page: [lie(*page) for lie in lies] and None) as url:
        monkeypatch.setenv("QDRANT_URL", url)
        seal = ("seal", stored, "--key", "seal.key", "--to", "seals")
        assert chunkproof(*seal).code == 3
        lies.clear()
        run = chunkproof(*seal)
    assert run.code == 0, run.err
    assert "40 chunks" in run.out


@pytest.mark.server
@pytest.mark.parametrize("wrong", [None, 1.5, ["a"]])
def test_points_whose_ids_are_no_ids_are_an_error_of_a_copy(
    chunkproof: Command,
    served_qdrant: QdrantServer,
    stored: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    wrong: Any,
) -> None:
    def change(request: dict[str, Any], result: dict[str, Any]) -> None:
        for point in result["points"] if request.get("offset") else ():
            point["id"] = wrong

    with lying_server(served_qdrant.url, change) as url:
        monkeypatch.setenv("QDRANT_URL", url)
        run = chunkproof("pull", stored, "--by", "scroll", "--data", tmp_path / "data")
    assert run.code == 3, run.err
