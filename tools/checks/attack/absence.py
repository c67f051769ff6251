"""Texts and addresses hidden somewhere in a payload, in forms chosen at random: `absent` finds each, and no others."""

import base64
import html
import json
import quopri
import re
import zlib
from collections.abc import Callable
from random import Random
from time import process_time
from typing import Any
from urllib.parse import quote

from chunkproof.audit.absence import Search, Subject
from chunkproof.collection.reader import Reader
from chunkproof.proof.integrity import digest
from chunkproof.stores.store_port import Point

from support.chunks import make_services
from support.stores import MemoryStore
from tools.checks.attack.attack import Attack

WORDS = (
    *("amber", "brook", "cedar", "dune", "ember", "flint", "grove", "harbor"),
    *("island", "jasper", "kelp", "lagoon", "meadow", "nickel", "orchard", "pebble"),
)
FORMS: tuple[Callable[[str], str], ...] = (
    str,
    str.upper,
    lambda text: html.escape(text).replace("e", "&#101;"),
    lambda text: "".join(f"&#x{ord(char):04x};" for char in text),
    lambda text: "".join(f"\\u{ord(char):04x}" for char in text),
    lambda text: json.dumps(json.dumps(text)),
    quote,
    lambda text: "".join(f"%{byte:02X}" for byte in text.encode()),
    lambda text: base64.b64encode(text.encode()).decode(),
    lambda text: text.encode().hex(),
    lambda text: quopri.encodestring(text.encode("utf-8"), quotetabs=True).decode(),
    lambda text: text.replace(" ", "\u00ad \u200b"),
    lambda text: f"<!-- {text} -->",
    lambda text: f'<a href="https://example.org/?q={quote(text)}">more</a>',
    lambda text: text.replace(" ", "<b> </b>"),
    lambda text: base64.b64encode(zlib.compress(text.encode())[2:-4]).decode(),
    lambda text: base64.encodebytes(text.encode() * 2).decode().replace("\n", "\n  "),
    lambda text: base64.b32encode(text.encode()).decode().lower(),
    lambda text: text.encode("utf-16-le").hex(" "),
    lambda text: text.encode("utf-16-be").decode("latin-1"),
    lambda text: "".join(f"\\x{{{ord(char):x}}}" for char in text),
    lambda text: "".join(f"\\{ord(char):06x}" for char in text),
    lambda text: "".join(f"\\u{ord(char)}?" for char in text),
    lambda text: " & ".join(f"Chr({ord(char)})" for char in text),
    lambda text: " ".join(f"\\emph{{{word}}}" for word in text.split()),
    lambda text: "\n".join(f"> {word}" for word in text.split()),
)
PLACES: tuple[Callable[[str], dict[str, Any]], ...] = (
    lambda value: {"text": f"Before. {value} After."},
    lambda value: {"text": "Redacted.", "note": value},
    lambda value: {"text": "Redacted.", "tags": ["a", value]},
    lambda value: {"text": "Redacted.", "a": {"b": [{"c": value}]}},
    lambda value: {"text": "Redacted.", value: 1},
    lambda value: {"text": "Redacted.", "raw": json.dumps({"inner": value})},
    lambda value: {"blocks": [{"text": value}, {"text": "Redacted."}]},
)
URL = "https://docs.example.com/people/{}"
ADDRESSES: tuple[Callable[[str], str], ...] = (
    str,
    lambda url: url.replace("https", "http"),
    lambda url: url.upper(),
    lambda url: f"{url}?utm_source=mail#top",
    lambda url: f"See ({url}).",
    lambda url: url.replace("docs.", "user:pw@www.docs."),
    lambda url: quote(url, safe=""),
    lambda url: f"{url[:21]}\n> {url[21:]}",
    lambda url: url.removeprefix("https://").replace("/", "_").replace(".", "_"),
    lambda url: "com.example.docs." + url.partition(".com/")[2].replace("/", "."),
    lambda url: url.replace(".", "(.)").replace("https", "hxxps"),
    lambda url: re.sub(r"(\W)", r"\\\1", url),
)


def run(attack: Attack) -> None:
    """Hide something in each of several points, and look for it and for what is not there."""
    store = MemoryStore()
    reader = Reader(make_services(store, "docs"), "docs")
    while attack.goes_on():
        started = process_time()
        wrong = _try(attack.rng, reader)
        attack.note(process_time() - started, wrong)
    store.close()


def _try(rng: Random, reader: Reader) -> str | None:
    is_url = rng.random() < 0.3
    words = rng.sample(WORDS, 12)
    secret = URL.format(words[0]) if is_url else " ".join(words[:10])
    other = URL.format(words[1]) if is_url else " ".join(rng.sample(WORDS, 12)[::-1])
    hidden = rng.choice(ADDRESSES if is_url else FORMS)(secret)
    if not is_url and rng.random() < 0.3:
        hidden = rng.choice(FORMS[2:11])(hidden)
    point = Point(rng.randrange(10**9), rng.choice(PLACES)(hidden))
    found = _look_for(secret, is_url, point, reader)
    if not found:
        return f"said absent: {secret!r} in {point.payload}"
    if is_url and _look_for(other, is_url, point, reader):
        return f"found what is not there: {other!r} in {point.payload}"
    return None


def _look_for(what: str, is_url: bool, point: Point, reader: Reader) -> bool:
    subject = Subject(what, "url") if is_url else Subject("secret", "text", what, digest(what))
    search = Search([subject])
    search._compare(point, reader)
    return bool(search.hits_total)
