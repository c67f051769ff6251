"""`absent` finds a text, a number and an address in forms that pipelines, mailers and databases write."""

import base64
import bz2
import gzip
import json
import lzma
import re
import zlib
from random import Random
from time import process_time
from typing import Any
from urllib.parse import quote

import pytest

from chunkproof.audit.absence import Search, Subject
from chunkproof.collection.reader import Reader
from chunkproof.proof.integrity import digest
from chunkproof.stores.store_port import Point, WritableStore

from support import forms
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


def deflate(data: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-15)
    return packer.compress(data) + packer.flush()


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
    "URL encoding, three times": quote(quote(quote(TEXT, safe=""), safe=""), safe=""),
    "URL encoding in JSON in JSON": json.dumps(json.dumps(quote(quote(TEXT, safe=""), safe=""))),
    "raw deflate": pack(deflate(BYTES)),
    "Base64 over lines of a file": f"key: !!binary |\n  {pack(BYTES)[:16]}\n  {pack(BYTES)[16:]}",
    "bytes among others": pack(b"\x80\x04\x95\x8c" + BYTES + b"\x94\x00\xff"),
    "UTF-16 as characters": TEXT.encode("utf-16-le").decode("latin-1"),
    "UTF-32": list(TEXT.encode("utf-32-le")),
    "a mail header in two words": f"=?utf-8?b?{pack(TEXT[:15].encode())}?=\r\n =?utf-8?b?{pack(TEXT[15:].encode())}?=",
    "RTF": "".join(char if char.isascii() else f"\\u{ord(char)}?" for char in TEXT),
    "CSS": "".join(f"\\{ord(char):06x}" for char in TEXT),
    "SQL": "U&'" + "".join(char if char.isascii() else f"\\{ord(char):04x}" for char in TEXT),
    "Perl": "".join(f"\\x{{{ord(char):x}}}" for char in TEXT),
    "PowerShell": "".join(f"`u{{{ord(char):x}}}" for char in TEXT),
    "Lua": "".join(f"\\{byte:03d}" for byte in BYTES),
    "octal digits": "".join(f"\\{byte:o}" for byte in BYTES),
    "calls of CHR": "||".join(f"CHR({ord(char)})" for char in TEXT),
    "a pattern": re.escape(TEXT).replace(r"\ ", r"\s+"),
    "LaTeX": " ".join(f"\\emph{{{word}}}" for word in TEXT.split()),
    "colours": " ".join(f"\x1b[1;3{number}m{word}\x1b[0m" for number, word in enumerate(TEXT.split())),
    "overstriking": "".join(f"{char}\b{char}" if char.isalnum() else char for char in TEXT),
    "subtitles": "\n\n".join(f"00:0{n}.000 --> 00:0{n + 1}.000\n{word}" for n, word in enumerate(TEXT.split())),
    "tags in brackets": "".join(f"[b]{char}[/b]" for char in TEXT),
    "squares": "".join(
        chr(0x1F170 + ord(char) - 65) if char.isalpha() else char for char in "JURGEN MULLER 12 ELM STREET"
    ),
    "letters that look alike": TEXT.translate(str.maketrans("aeopcSE", "\u0430\u0435\u043e\u0440\u0441\u0405\u0415")),
    "invisible letters": "\u3164".join(TEXT),
    **{f"mojibake of {codec}": BYTES.decode(codec) for codec in ("cp1252", "latin-1", "cp437", "mac_roman", "cp1251")},
}


@pytest.mark.parametrize("value", VALUES.values(), ids=VALUES)
def test_a_text_is_found(memory_store: WritableStore, value: Any) -> None:
    assert is_found(memory_store, Subject("secret", "text", TEXT, digest(TEXT)), value)


@pytest.mark.parametrize("codec", ["utf-16-le", "utf-16-be", "utf-32-le"])
@pytest.mark.parametrize("text", ["Её паспорт выдан в Москве", "田中花子は東京都渋谷区に住んでいる"])
def test_a_text_in_characters_of_several_bytes_is_found(memory_store: WritableStore, text: str, codec: str) -> None:
    subject = Subject("secret", "text", text, digest(text))
    assert is_found(memory_store, subject, pack(text.encode(codec)))
    assert is_found(memory_store, subject, text.encode(codec).hex())


@pytest.mark.parametrize("value", ["Müller, Jürgen", "MULLER Jurgen", {"last": "Müller", "first": "Jürgen"}])
def test_a_name_is_found_with_its_last_word_first(memory_store: WritableStore, value: Any) -> None:
    assert is_found(memory_store, Subject("secret", "text", "Jürgen Müller", None), value)


@pytest.mark.parametrize(
    "value", ["jane.doe [at] example (dot) com", "jane.doe at example dot com", "JANE.DOE(AT)example.com"]
)
def test_an_address_of_mail_is_found_where_its_signs_are_words(memory_store: WritableStore, value: str) -> None:
    assert is_found(memory_store, Subject("secret", "text", "jane.doe@example.com", None), value)


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
        "> https://docs.example.com/peo\n> ple/jane-doe",
        "https://docs(.)example[dot]com/people/jane-doe",
        "com.example.docs.people.jane-doe",
        "com,example,docs)/people/jane-doe",
        "docs_example_com_people_jane_doe.html",
        "https://docs.example.com/people/jane-doe.html",
        "~~https://docs.example.com/people/jane-doe~~",
        r"https\:\/\/docs\.example\.com\/people\/jane\-doe",
        "\u0336".join("https://docs.example.com/people/jane-doe"),
        list("https://docs.example.com/people/jane-doe"),
        "https://docs.example.com/people/jane-doe".encode("utf-16").decode("latin-1"),
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
    "value",
    [
        *(f"{URL}-2", f"{URL}/letters", f"{URL}.pdf", "docs.example.com lists people. jane-doe", DOCUMENT * 2),
        *("https://docs.example.com/people/jane/doe", "docs_example_com_people_jane_doe_2", "com.example.docs"),
    ],
)
def test_what_is_another_document_is_not_found(memory_store: WritableStore, value: Any) -> None:
    assert not is_found(memory_store, Subject(URL, "url"), value)
    assert not is_found(memory_store, Subject(DOCUMENT, "url"), value)


# Forms in which a text is known to be missed, in some languages.
MISSED = {"Punycode", "Greek look-alikes", "chunks of Base64", "xxd"}
SINGLE = {**forms.ENCODINGS, **forms.PRESENTATIONS, **forms.CONTAINERS}


@pytest.mark.parametrize("name", ["name", "paragraph", "russian", "phone", "chinese"])
def test_a_text_is_found_in_every_form_of_the_grammar(memory_store: WritableStore, name: str) -> None:
    text = forms.TEXTS[name]
    subject = Subject("secret", "text", text, digest(text))
    values = {form: forms.write(SINGLE[form], Random(f"{name}{form}"), text) for form in SINGLE.keys() - MISSED}
    assert [form for form, value in values.items() if value and not is_found(memory_store, subject, value)] == []


def test_a_text_is_found_in_most_forms_of_two_steps(memory_store: WritableStore) -> None:
    rng, found, tried = Random(7), 0, 0
    while tried < 150:
        text = rng.choice(list(forms.TEXTS.values()))
        if hidden := forms.hide_text(rng, text, 2):
            tried += 1
            found += is_found(memory_store, Subject("secret", "text", text, digest(text)), hidden[1])
    assert found >= 0.9 * tried


@pytest.mark.parametrize("url", [forms.URLS[0], forms.URLS[4], *forms.STORES])
def test_an_address_is_found_in_every_form_of_the_grammar(memory_store: WritableStore, url: str) -> None:
    subject = Subject(url, "url")
    seeds = range(12) if url in forms.STORES else [1]
    tables = {"another notation": forms.write_store} if url in forms.STORES else forms.ADDRESSES
    hidden = [(name, forms.write(form, Random(seed), url)) for name, form in tables.items() for seed in seeds]
    assert [(name, value) for name, value in hidden if value and not is_found(memory_store, subject, value)] == []


def test_unrelated_values_are_not_found_and_are_read_to_their_end(memory_store: WritableStore) -> None:
    rng = Random(11)
    subjects = [Subject("secret", "text", text, digest(text)) for text in forms.TEXTS.values()]
    search = Search([*subjects, *(Subject(url, "url") for url in (*forms.URLS, *forms.STORES))])
    reader = Reader(make_services(memory_store, "docs"), "docs")
    words = [make_word(rng, rng.randint(2, 9)) for _ in range(500)]
    for number in range(200):
        value = rng.choice(
            [
                pack(rng.randbytes(600)),
                rng.randbytes(200).hex(),
                [rng.gauss(0, 1) for _ in range(100)],
                [rng.randrange(256) for _ in range(100)],
                " ".join(rng.choices(words, k=150)),
                "\n".join(f"2024-05-01 10:0{n}:00 INFO [{rng.randbytes(16).hex()}] GET /x?id={n}" for n in range(9)),
                json.dumps({word: [word, number] for word in rng.sample(words, 9)}),
                quote(" ".join(rng.choices(words, k=30))),
            ]
        )
        search._compare(Point(number, {"text": "Redacted.", "raw": value}), reader)
    assert (search.hits_total, search._unread) == (0, [])


def make_word(rng: Random, size: int) -> str:
    return "".join(rng.choices("etaoinshrdlu", k=size))


@pytest.mark.parametrize(
    "value",
    ["&#65;%41" * 300_000, "x" * 4_000_000, pack(zlib.compress(b"\0" * 20_000_000))],
    ids=["encoded everywhere", "4 MB", "a bomb"],
)
def test_a_value_that_is_not_read_to_its_end_keeps_absence_from_being_proved(
    memory_store: WritableStore, value: str
) -> None:
    search, before = Search([Subject("secret", "text", TEXT, digest(TEXT))]), process_time()
    search._compare(Point(5, {"text": "Redacted.", "raw": value}), Reader(make_services(memory_store, "docs"), "docs"))
    assert search._unread == ["raw of point 5"]
    assert process_time() - before < 3
