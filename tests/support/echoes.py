"""Keys as other processes write them, and how to see them again."""

import base64
import html
import json
import re
from collections.abc import Callable, Iterator
from random import Random
from string import ascii_letters, digits
from urllib.parse import quote, unquote

ECHOES: dict[str, Callable[[str], str]] = {
    "plain": lambda key: key,
    "upper": str.upper,
    "lower": str.lower,
    "percent": lambda key: quote(key, safe=""),
    "percent all": lambda key: "".join(f"%{ord(char):02x}" for char in key),
    "base64": lambda key: base64.b64encode(key.encode()).decode(),
    "base64 of a header": lambda key: _base64(f"Bearer {key}"),
    "base64 of a login": lambda key: _base64(f"me:{key}"),
    "base64 for URLs": lambda key: base64.urlsafe_b64encode(f"x{key}?".encode()).decode().rstrip("="),
    "hex": lambda key: key.encode().hex(),
    "JSON": lambda key: "".join(f"\\u{ord(char):04x}" for char in key),
    "JSON with slashes": lambda key: json.dumps(key)[1:-1].replace("/", "\\/"),
    "repr": lambda key: repr(key.encode()),
    "octets": lambda key: "".join(f"\\x{ord(char):02x}" for char in key),
    "HTML": lambda key: "".join(f"&#{ord(char)};" for char in key),
    "HTML names": html.escape,
    "two lines": lambda key: f"{key[:9]}\n{key[9:]}",
    "two lines, escaped": lambda key: f"{key[:9]}\\r\\n {key[9:]}",
    "beginning": lambda key: f"{key[:14]}…",
    "end": lambda key: f"…{key[-14:]}",
    "both ends": lambda key: f"{key[:12]}...{key[-6:]}",
    "middle": lambda key: f"…{key[3:-3]}…",
    "JSON in JSON": lambda key: json.dumps("".join(f"\\u{ord(char):04x}" for char in key)),
    "percent twice": lambda key: quote("".join(f"%{ord(char):02x}" for char in key), safe=""),
    "octal": lambda key: "".join(f"\\{ord(char):03o}" for char in key),
    "braces": lambda key: "".join(f"\\u{{{ord(char):x}}}" for char in key),
    "soft hyphens": "\u00ad".join,
    "hex with colons": lambda key: key.encode().hex(":"),
    "base64 twice": lambda key: _base64(_base64(f"me:{key}")),
    "base64 in hex": lambda key: _base64(key).encode().hex(),
    "hex in base64": lambda key: _base64(key.encode().hex()),
    "base32": lambda key: base64.b32encode(key.encode()).decode(),
    "hex with 0x": lambda key: key.encode().hex(" ").replace(" ", ", 0x"),
    "backwards": lambda key: key[::-1],
    "backwards in JSON": lambda key: "".join(f"\\u{ord(char):04x}" for char in key[::-1]),
    "bullets": lambda key: f"{key[:7]}•••••{key[-7:]}",
    "late": lambda key: f"{'x' * 200} {key}",
}


def make_key(rng: Random) -> str:
    """Make a key of at least 20 characters, often with some that are written otherwise elsewhere."""
    key = rng.choices(ascii_letters + digits, k=rng.choice((20, 40)))
    for char in rng.choice(("", "-_", "+/=", "!%&")):
        key.insert(rng.randrange(8, 12), char)
    return "".join(key)


def shows(key: str, text: str) -> bool:
    """Whether a text shows the key or half of it."""
    key, half = key.lower(), max(10, len(key) // 2)
    return any(part in view for view in _list_views(text) for part in (key, key[:half], key[-half:]))


def _list_views(text: str) -> Iterator[str]:
    plain = text.replace("\u00ad", "")
    views = {plain, html.unescape(plain), unquote(plain), unquote(unquote(plain))}
    views |= {re.sub(r"(?<=[0-9a-f]{2}):(?=[0-9a-f]{2})", "", plain)}
    for pattern, base in ((r"\\+u00([0-9a-f]{2})", 16), (r"\\+[xu]\{?([0-9a-f]{2})\}?", 16), (r"\\+([01][0-7]{2})", 8)):
        views |= {re.sub(pattern, lambda found, base=base: chr(int(found[1], base)), view) for view in tuple(views)}
    views |= {re.sub(r"\\+[rn]|\\+(?=[/\"])", "", view) for view in tuple(views)}
    for view in {re.sub(r"\s", "", view) for view in views}:
        yield view.lower()
        for word in re.findall(r"[\w+/-]{16,}", view, re.ASCII):
            for at in range(4):
                part = word[at:].replace("-", "+").replace("_", "/")
                yield base64.b64decode(part[: len(part) // 4 * 4]).decode("latin-1").lower()
        for word in re.findall("(?:[0-9a-f]{2}){16,}", view):
            yield bytes.fromhex(word).decode("latin-1").lower()


def _base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()
