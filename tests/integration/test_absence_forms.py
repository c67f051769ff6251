"""`absent` finds a text, a number and an address in forms that pipelines, mailers and databases write."""

import base64
import bz2
import gzip
import json
import lzma
from typing import Any

import pytest

from chunkproof.audit.absence import Search, Subject
from chunkproof.collection.reader import Reader
from chunkproof.proof.integrity import digest
from chunkproof.stores.store_port import Point, WritableStore

from support.chunks import make_services

TEXT = "Jürgen Müller, 12 Elm Street"
BYTES = TEXT.encode()
URL = "https://docs.example.com/people/jane-doe"
DOCUMENT = "7f3e2c1a-doc"


def is_found(store: WritableStore, subject: Subject, value: Any) -> bool:
    search = Search([subject])
    search._compare(Point(5, {"text": "Redacted.", "raw": value}), Reader(make_services(store, "docs"), "docs"))
    return bool(search.hits_total)


def pack(data: bytes) -> str:
    return base64.b64encode(data).decode()


VALUES: dict[str, Any] = {
    "Base32": base64.b32encode(BYTES).decode(),
    "UTF-16 without a mark": pack(TEXT.encode("utf-16-le")),
    "UTF-16 of the other order": TEXT.encode("utf-16-be").hex(),
    "Latin-1": pack(TEXT.encode("latin-1")),
    "gzip": pack(gzip.compress(BYTES)),
    "bzip2": pack(bz2.compress(BYTES)),
    "xz": pack(lzma.compress(BYTES)),
    "hexadecimal with signs": " ".join(f"0x{byte:02x}" for byte in BYTES),
    "hexadecimal with commas": ",".join(f"{byte:02X}" for byte in BYTES),
    "binary": " ".join(f"{byte:08b}" for byte in BYTES),
    "decimal": str(list(BYTES)),
    "code points": " ".join(str(ord(char)) for char in TEXT),
    "names of code points": " ".join(f"U+{ord(char):04X}" for char in TEXT),
    "escapes with names of code points": "".join(f"\\N{{U+{ord(char):04X}}}" for char in TEXT),
    "bytes with a sign": [byte - 256 if byte > 127 else byte for byte in BYTES],
    "buffer": {"type": "Buffer", "data": list(BYTES)},
    "bytes by their number": {str(number): byte for number, byte in enumerate(BYTES)},
    "floats": [float(byte) for byte in BYTES],
    "packed bytes": list(gzip.compress(BYTES)),
    "list of hexadecimal digits": [f"{byte:02x}" for byte in BYTES],
    "Base64 in pieces": [pack(BYTES[:12]), pack(BYTES[12:])],
    "name of a field, packed twice": {pack(pack(BYTES).encode()): 1},
    "fields in JSON": json.dumps({"a": "Jürgen", "b": "Müller", "c": 12, "d": {"e": "Elm Street"}}),
    "bytes in JSON": json.dumps(list(BYTES)),
    "blocks": [{"type": "text", "text": "Jürgen "}, {"type": "bold", "text": "Müller, 12 Elm Street"}],
    "blocks in JSON": json.dumps([{"text": "Jürgen ", "type": "t"}, {"text": "Müller, 12 Elm Street", "type": "t"}]),
    "last part first": {"address": "Müller, 12 Elm Street", "name": "Jürgen"},
    "circles": "Jürgen Müller, 12 \u24ba\u24db\u24dc Street",
    "tags": "Hello" + "".join(chr(0xE0000 + ord(char)) for char in "Jurgen Muller, 12 Elm Street"),
    "accents that are lost": "JURGEN MULLER 12 ELM STREET",
}


@pytest.mark.parametrize("value", VALUES.values(), ids=VALUES)
def test_a_text_is_found(memory_store: WritableStore, value: Any) -> None:
    assert is_found(memory_store, Subject("secret", "text", TEXT, digest(TEXT)), value)


@pytest.mark.parametrize("value", [1701234567, "+49 170 1234567", 1701234567.0, "٠١٧٠١٢٣٤٥٦٧", [0, 170, 1234567]])
def test_a_telephone_number_is_found(memory_store: WritableStore, value: Any) -> None:
    assert is_found(memory_store, Subject("secret", "text", "0170 1234567", None), value)


@pytest.mark.parametrize(
    "value",
    [
        "hxxps://docs[.]example[.]com/people/jane-doe",
        "docs.example.com \u203a people \u203a jane-doe",
        ["docs.example.com", "people", "jane-doe"],
        json.dumps({"u": {"host": "docs.example.com", "path": "/people/jane-doe"}}),
        {"path": "/people/jane-doe", "site": "docs.example.com"},
        "https://docs.example.com/people/\njane-doe",
        "https://docs.example.com/people/jane-doe/index.php",
        "https://docs.example.com/people/jane\u2011doe",
    ],
)
def test_an_address_is_found(memory_store: WritableStore, value: Any) -> None:
    assert is_found(memory_store, Subject(URL, "url"), value)


@pytest.mark.parametrize(
    "value",
    [
        json.dumps({"relationships": {"1": {"node_id": DOCUMENT}}}),
        f"a,{DOCUMENT},b",
        {DOCUMENT: 1},
        f"urn:doc:{DOCUMENT.upper()}",
        f"['{DOCUMENT}', 'x']",
    ],
)
def test_the_id_of_a_document_is_found_inside_of_values(memory_store: WritableStore, value: Any) -> None:
    assert is_found(memory_store, Subject(DOCUMENT, "url"), value)


@pytest.mark.parametrize(
    "value", [f"{URL}-2", f"{URL}/letters", "docs.example.com lists people. jane-doe", DOCUMENT * 2]
)
def test_what_is_another_document_is_not_found(memory_store: WritableStore, value: Any) -> None:
    assert not is_found(memory_store, Subject(URL, "url"), value)
    assert not is_found(memory_store, Subject(DOCUMENT, "url"), value)
