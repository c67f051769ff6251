"""Collections whose texts are not where Chunkproof looks for them, and points without a text."""

import json
from pathlib import Path
from typing import Any

import pytest

from chunkproof.base.request import Deadline
from chunkproof.stores.edge import EdgeStore
from chunkproof.stores.store_port import Point

from support.commands import Command

TEXTS = [f"The pump number {number} moves water uphill." for number in range(60)]


def store_payloads(tmp_path: Path, payloads: list[dict[str, Any]], name: str = "docs") -> None:
    store = EdgeStore(tmp_path / "data-home" / "chunkproof")
    store.create(name, 2, Deadline(10_000))
    points = [Point(number, payload, vector=(1.0, 0.0)) for number, payload in enumerate(payloads, start=1)]
    store.upsert(name, points, "", Deadline(10_000))
    store.close()


@pytest.mark.parametrize(
    ("payload_of", "path"),
    [
        (lambda text: {"corps": text, "lang": "fr"}, "corps"),
        (lambda text: {"absatz": {"inhalt": text}, "id": "a b"}, "absatz.inhalt"),
        (lambda text: {"blocks": [{"t": text}, {"t": text}]}, "blocks[].t"),
        (lambda text: {"lines": [text, text]}, "lines[]"),
    ],
)
@pytest.mark.parametrize("more", [(), ("--partial",)])
def test_an_audit_that_cannot_read_the_texts_names_the_setting_that_helps(
    chunkproof: Command, tmp_path: Path, payload_of: Any, path: str, more: tuple[str, ...]
) -> None:
    store_payloads(tmp_path, [payload_of(text) for text in TEXTS])
    manifest = tmp_path / "m.jsonl"
    lines = [{"chunk_id": f"c{number}", "original_text": text} for number, text in enumerate(TEXTS)]
    manifest.write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")
    run = chunkproof("audit", manifest, "--collection", "docs", *more)
    assert run.code == 3
    assert "No point of docs has a text that Chunkproof can read" in run.err
    assert f'CHUNKPROOF_PAYLOAD_MAP=\'{{"text": "{path}"}}\'' in run.err
    assert "--resume" not in run.err
    assert list(tmp_path.glob("*.audit")) == []
    made = chunkproof("manifest", "--collection", "docs", "-o", tmp_path / "own.jsonl")
    assert (made.code, path in made.err) == (3, True)


@pytest.mark.parametrize(
    ("payload", "advice"),
    [
        ({"l'eau": "Water moves uphill."}, """CHUNKPROOF_PAYLOAD_MAP='{"text": "l'"'"'eau"}' (chunkproof doctor"""),
        (
            {"key": "a1b2", "n": 3},
            "have key, n. chunkproof doctor --collection docs says what it can find",
        ),
    ],
)
def test_the_setting_can_be_pasted_and_is_no_guess(
    chunkproof: Command, tmp_path: Path, payload: dict[str, Any], advice: str
) -> None:
    store_payloads(tmp_path, [payload])
    run = chunkproof("manifest", "--collection", "docs", "-o", tmp_path / "own.jsonl")
    assert run.code == 3
    assert advice in run.err
    assert "FIELD" not in run.err


def test_a_collections_own_manifest_audits_clean_with_points_that_have_no_text(
    chunkproof: Command, tmp_path: Path
) -> None:
    without = [{"image": "a.png"}, {"text": None}, {"text": ["a", "b"]}, {"text": ""}, {"text": {"a": "b"}}]
    store_payloads(tmp_path, [*({"text": text} for text in TEXTS), *without])
    for words in ((), ("--hash",)):
        manifest = tmp_path / f"m{len(words)}.jsonl"
        made = chunkproof("manifest", "--collection", "docs", "-o", manifest, *words, "--json")
        assert (made.code, made.json["chunks"]) == (0, 65)
        assert made.json["unreadable"] == ["61", "62", "63", "65"]
        run = chunkproof("audit", manifest, "--collection", "docs")
        assert (run.code, "All 65 chunks are stored as they should be, byte for byte" in run.out) == (0, True)
    snapshot = tmp_path / "now.snapshot"
    assert chunkproof("snapshot", "--collection", "docs", "-o", snapshot).code == 0
    assert chunkproof("audit", snapshot, "--collection", "docs").code == 0


def test_a_text_that_disappeared_or_appeared_is_still_found(chunkproof: Command, tmp_path: Path) -> None:
    store_payloads(tmp_path, [{"text": TEXTS[0]}, {"image": "a.png"}, {"text": TEXTS[1]}])
    manifest = tmp_path / "m.jsonl"
    assert chunkproof("manifest", "--collection", "docs", "-o", manifest).code == 0
    store = EdgeStore(tmp_path / "data-home" / "chunkproof")
    changed = [Point(1, {}, vector=(1.0, 0.0)), Point(2, {"text": "new"}, vector=(1.0, 0.0))]
    store.upsert("docs", changed, "", Deadline(10_000))
    store.close()
    run = chunkproof("audit", manifest, "--collection", "docs", "--json")
    assert run.code == 1
    found = {(finding["chunk_id"], finding["kind"]) for finding in run.json["findings"]}
    assert found == {("1", "unverifiable"), ("2", "mismatch")}
