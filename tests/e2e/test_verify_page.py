"""docs/verify.html in a real browser: receipts are dropped onto it, and it makes no request."""

import json
import random
import time
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from chunkproof.seals.notes import P256, PublicKey, Signer
from chunkproof.stores.store_port import Point

from support.chromium import Chromium, Page
from support.chunks import ask, fill, make_services
from support.seals import new_signer, seal
from support.stores import MemoryStore

PAGE = Path(__file__).resolve().parents[2] / "docs" / "verify.html"


def p256_signer() -> Signer:
    """A key as AWS KMS has them."""
    key = ec.generate_private_key(ec.SECP256R1())
    der = key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return Signer(PublicKey("kms-key", P256, der), lambda content: key.sign(content, ec.ECDSA(SHA256())))


def answer_of(folder: Path, signer: Signer, **request: Any) -> Any:
    """The response to a search of a sealed collection, with its receipt."""
    rng, store = random.Random(31), MemoryStore()
    points = [
        Point(
            n,
            {"text": f"text {n} – é", "url": "https://a", "large": 2**53 + n, "f": 1e16},
            vector=tuple(rng.gauss(1, 1) for _ in range(4)),
        )
        for n in range(1, 301)
    ]
    fill(store, "docs", *points, size=4)
    services = make_services(store, "docs", SEALS=str(folder / "seals"))
    seal(services, folder / "seals", signer)
    return json.loads(ask(services, query_vector=[1.0, 0, 0, 0], top_k=5, receipt=True, **request).to_json())


def drop(page: Page, keys: str, content: str) -> dict[str, tuple[str, str]]:
    """Drop a file of this content onto the page, and return verdict and detail of each claim that it shows."""
    page.run(
        f"""(() => {{
        document.getElementById("keys").value = {json.dumps(keys)};
        document.getElementById("claims").replaceChildren();
        const files = new DataTransfer();
        files.items.add(new File([{json.dumps(content)}], "answer.json"));
        document.getElementById("drop").dispatchEvent(new DragEvent("drop", {{ dataTransfer: files, bubbles: true }}));
        }})()"""
    )
    last = time.monotonic() + 10
    while not (rows := json.loads(page.run(ROWS))):
        assert time.monotonic() < last, "the page shows nothing"
    return {name: (verdict, detail) for verdict, name, detail in rows}


ROWS = 'JSON.stringify([...document.querySelectorAll("#claims tr")].map(row => [...row.cells].map(c => c.textContent)))'


@pytest.mark.parametrize("kind", ["Ed25519", "P-256"])
def test_a_dropped_receipt_is_judged_without_a_request(browser: Chromium, tmp_path: Path, kind: str) -> None:
    signer = p256_signer() if kind == "P-256" else new_signer(tmp_path)
    answer, page = answer_of(tmp_path, signer, with_payload=kind == "Ed25519"), browser.open(PAGE)
    key, content = str(signer.public), json.dumps(answer, ensure_ascii=False)
    honest = drop(page, key, content)
    proved = [name for name, (verdict, _) in honest.items() if verdict == "proved"]
    assert proved == ["seal", "membership", "texts", "order", "request"]
    assert honest["complete"][0] == honest["embedding"][0] == honest["service"][0] == "not proved"
    second = answer["results"][1]
    edited = drop(page, key, content.replace(f'"{second["text"]}"', '"another text"', 1))
    chunk = second["metadata"]["chunk_id"]
    assert edited["texts"] == ("refuted", f"the text of {chunk} at rank 2 is not the sealed one")
    other = drop(page, str(new_signer(tmp_path, signer.public.name).public), content)
    assert other["seal"] == ("refuted", "the checkpoint is not signed by any of the given keys")
    damaged = json.loads(content)
    damaged["receipt"]["checkpoint"] = damaged["receipt"]["checkpoint"].replace("\n300\n", "\n301\n")
    assert drop(page, key, json.dumps(damaged))["seal"][0] == "refuted"
    assert drop(page, key, "no JSON")["file"][0] == "refuted"
    assert drop(page, key, "\ufeff" + content)["file"][0] == "refuted"  # as the command says
    assert drop(page, key, content.replace('"rank"', '"x": 1e999, "rank"', 1))["file"][1] == "A number is too large"
    assert drop(page, key, content.replace('"rank"', '"x": {"toString": 1}, "rank"', 1)) == honest
    private = drop(page, "PRIVATE+KEY+a+12345678+AQ==", content)
    assert private["file"] == ("refuted", "This is a private key: keep it secret, and paste the public one")
    twice = drop(page, key, content.replace('"text":', '"text": "another", "t\\u0065xt":', 1))
    assert twice["file"] == ("refuted", "text is there twice")
    assert drop(page, "nonsense", content)["file"][0] == "refuted"
    assert page.requests == [PAGE.as_uri()]
    assert page.console == []


@pytest.mark.parametrize(("width", "scheme"), [(390, "light"), (1440, "dark")])
def test_everyone_can_use_the_page(browser: Chromium, tmp_path: Path, width: int, scheme: str) -> None:
    signer = new_signer(tmp_path)
    page = browser.open(PAGE)
    page.look(width=width, scheme=scheme)
    drop(page, str(signer.public), json.dumps(answer_of(tmp_path, signer)))
    assert page.axe_violations() == []
    assert page.run("document.documentElement.scrollWidth <= innerWidth")
    (tmp_path / "page.png").write_bytes(page.picture())
