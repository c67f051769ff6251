"""`chunkproof key`, `seal`, `search --receipt`, `verify` and `--sign`, as a user types them."""

import json
from pathlib import Path
from typing import Any

import pytest

from chunkproof_cli.exits import COULD_NOT_JUDGE, FAILED

from support.commands import Command, Run

CHUNKS = [
    {"chunk_id": f"c{n}", "text": f"Robot {n} makes backups at {n} o'clock.", "url": "https://a.example", "part": n % 2}
    for n in range(30)
]


@pytest.fixture
def typed(chunkproof: Command) -> Any:
    """Runs a command, and checks its exit code."""

    def run(*arguments: str, code: int = 0) -> Run:
        done = chunkproof(*arguments)
        assert done.code == code, done.err + done.out
        return done

    return run


@pytest.fixture
def sealed(typed: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a key, a sealed collection and the response of a search with its receipt."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CHUNKPROOF_SEALS", str(tmp_path / "seals"))
    (tmp_path / "chunks.jsonl").write_text("".join(json.dumps(chunk) + "\n" for chunk in CHUNKS))
    typed("load", "chunks.jsonl", "--collection", "docs")
    typed("key", "example.com/docs")
    printed = typed("seal", "docs", "--key", "seal.key")
    assert "30 chunks of docs are sealed" in printed.out
    typed("search", "when are backups made", "-k", "5", "--collection", "docs", "--receipt", "answer.json")
    return tmp_path


def test_a_receipt_is_verified_and_the_search_repeated(typed: Any, sealed: Path) -> None:
    printed = typed("verify", "answer.json", "--key", "seal.key.pub")
    for claim in ("seal", "membership", "texts", "order", "request"):
        assert f"proved      {claim}: " in printed.out
    assert "not proved  embedding" in printed.out
    again = typed("verify", "answer.json", "--key", "seal.key.pub", "--collection", "docs", "--json")
    verdicts = {claim["name"]: claim["verdict"] for claim in json.loads(again.out)["claims"]}
    assert (verdicts["scores"], verdicts["complete"]) == ("proved", "proved")
    printed = typed("verify", "answer.json", "--key", "seal.key.pub", "--collection", "docs")
    assert "proved      complete: none of 25 other chunks scores higher" in printed.out


def test_a_file_may_have_the_keys_of_several_signers(typed: Any, sealed: Path) -> None:
    typed("key", "example.com/docs", "-o", "other.key")
    keys = [(sealed / name).read_text() for name in ("other.key.pub", "seal.key.pub")]
    (sealed / "keys.txt").write_text("\r\n".join(keys))
    assert "proved      seal: " in typed("verify", "answer.json", "--key", "keys.txt").out
    (sealed / "keys.txt").write_text(keys[0] + "nonsense")
    assert "'nonsense' is not a public key" in typed("verify", "answer.json", "--key", "keys.txt", code=2).err
    (sealed / "keys.txt").write_text("\n")
    assert "is not a public key" in typed("verify", "answer.json", "--key", "keys.txt", code=2).err


def test_a_query_in_another_unicode_form_is_another_query(typed: Any, sealed: Path) -> None:
    typed("search", "caf\u00e9", "--collection", "docs", "--receipt", "cafe.json")
    receipt = json.loads((sealed / "cafe.json").read_text())["receipt"]
    del receipt["query_text"]
    (sealed / "cafe.json").write_text(json.dumps(receipt))
    same = typed("verify", "cafe.json", "--key", "seal.key.pub", "--query", "caf\u00e9", code=COULD_NOT_JUDGE)
    assert "proved      request: " in same.out
    other = typed("verify", "cafe.json", "--key", "seal.key.pub", "--query", "cafe\u0301", code=FAILED)
    assert "refuted     request: the receipt is that of another query text" in other.out


@pytest.mark.parametrize(
    "change", [lambda text: "\ufeff" + text, lambda text: text.replace('"rank"', '"x":1e999,"rank"', 1)]
)
def test_what_readers_of_json_differ_in_is_wrong_input(typed: Any, sealed: Path, change: Any) -> None:
    (sealed / "odd.json").write_text(change((sealed / "answer.json").read_text()))
    typed("verify", "odd.json", "--key", "seal.key.pub", code=2)
    (sealed / "odd.json").write_text((sealed / "answer.json").read_text(), "utf-16")
    assert "is not UTF-8" in typed("verify", "odd.json", "--key", "seal.key.pub", code=2).err


def test_an_edited_text_exits_1_and_another_key_too(typed: Any, sealed: Path) -> None:
    whole = (sealed / "answer.json").read_text()
    (sealed / "edited.json").write_text(whole.replace("makes backups", "loses backups", 1))
    printed = typed("verify", "edited.json", "--key", "seal.key.pub", code=FAILED)
    assert "is not the sealed one" in printed.out
    typed("key", "example.com/docs", "-o", "other.key")
    printed = typed("verify", "answer.json", "--key", "other.key.pub", code=FAILED)
    assert "refuted     seal: the checkpoint is not signed by any of the given keys" in printed.out


def test_a_receipt_alone_cannot_prove_texts(typed: Any, sealed: Path) -> None:
    receipt = json.loads((sealed / "answer.json").read_text())["receipt"]
    (sealed / "receipt.json").write_text(json.dumps(receipt))
    typed("verify", "receipt.json", "--key", "seal.key.pub", code=COULD_NOT_JUDGE)


@pytest.mark.parametrize("content", ["{}", "[]", '{"format": "chunkproof-receipt/1"}', "no JSON"])
def test_what_is_no_receipt_is_wrong_input(typed: Any, sealed: Path, content: str) -> None:
    (sealed / "wrong.json").write_text(content)
    typed("verify", "wrong.json", "--key", "seal.key.pub", code=2)


def test_a_name_that_is_there_twice_is_wrong_input(typed: Any, sealed: Path) -> None:
    """Readers of JSON differ in which of the two they take."""
    whole = (sealed / "answer.json").read_text()
    (sealed / "twice.json").write_text(whole.replace('"text":', '"text": "another", "text":', 1))
    assert "text" in typed("verify", "twice.json", "--key", "seal.key.pub", code=2).err


def test_keys_are_not_overwritten_and_need_a_place_for_seals(typed: Any, sealed: Path) -> None:
    assert "exists" in typed("key", "example.com/docs", code=2).err
    printed = typed("verify", "answer.json", "--key", "nonsense", code=2)
    assert "is not a public key" in printed.err


def test_no_part_of_a_private_key_is_printed_or_logged(
    typed: Any, sealed: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = (sealed / "seal.key").read_text().strip().split("+", 4)[4]  # Base64, which may have a "+" itself
    monkeypatch.setenv("CHUNKPROOF_RECEIPT_KEY", "seal.key")
    with caplog.at_level("DEBUG"):
        runs = [typed("search", "backups", "--collection", "docs", "--receipt", "signed.json")]
        runs += [typed("verify", "signed.json", "--key", "seal.key.pub")]
        runs += [typed("verify", "signed.json", "--key", "seal.key", code=2)]
        (sealed / "broken.key").write_text((sealed / "seal.key").read_text().replace("PRIVATE+KEY", "PRIVATE+KEX"))
        runs += [typed("seal", "docs", "--key", "broken.key", code=2)]
    assert "proved      service: " in runs[1].out
    shown = caplog.text + (sealed / "signed.json").read_text() + "".join(run.out + run.err for run in runs)
    assert secret not in shown
    assert secret[:20] not in shown


def test_a_signed_report_is_verified(typed: Any, sealed: Path) -> None:
    lines = [{"chunk_id": chunk["chunk_id"], "original_text": chunk["text"]} for chunk in CHUNKS]
    (sealed / "manifest.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    arguments = ("audit", "manifest.jsonl", "--collection", "docs", "-o", "audit.json", "--sign", "seal.key")
    typed(*arguments)
    assert (
        "proved      report: signed by example.com/docs" in typed("verify", "audit.json", "--key", "seal.key.pub").out
    )
    (sealed / "audit.json").write_text((sealed / "audit.json").read_text() + " ")
    printed = typed("verify", "audit.json", "--key", "seal.key.pub", code=FAILED)
    assert "the report is not the one that was signed" in printed.out
    assert "name one" in typed("audit", "manifest.jsonl", "--sign", "seal.key", code=2).err
