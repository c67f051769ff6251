"""A grammar of the forms in which a payload can hold a text or an address: presentation, encodings, containers.

`hide_text` and `hide_address` choose from it with a seed, and say what they chose.
"""

import base64
import binascii
import bz2
import codecs
import csv
import gzip
import html
import io
import json
import lzma
import quopri
import re
import unicodedata
import zlib
from collections.abc import Callable, Mapping
from random import Random
from textwrap import fill
from typing import Any
from urllib.parse import quote, quote_plus, urlsplit
from xml.sax.saxutils import escape

TEXTS = {
    "name": "Jürgen Müllerstein",
    "street": "Jane Doevale, 12 Elmwood Street",
    "mail": "jane.doevale@example.com",
    "phone": "+49 170 1234567",
    "bank account": "DE89 3704 0044 0532 0130 00",
    "quote": "He said: “don’t call O'Neillson & Co. <again>”, OK?",
    "paragraph": "Jane Doevale of 12 Elmwood Street ordered a gripper on 3 May and returned it two weeks later. She "
    "asked for a refund by phone, and the agent noted that her sister would collect the parcel at the harbour office.",
    "french": "L’élève Zoé Quillère a été hospitalisée à Besançon le 7 février à cause d’une fièvre aiguë.",
    "russian": "Её паспорт выдан в Москве двенадцатого марта, серия и номер указаны ниже.",
    "russian name": "Екатерина Щербакова",
    "chinese": "田中花子は東京都渋谷区に住んでいる",
    "chinese name": "王小明先生的电话",
    "arabic": "تعيش ليلى الحسن في شارع النخيل بالقاهرة",
    "hindi": "प्रिया शर्मा दिल्ली में रहती हैं और पढ़ाती हैं",
    "emoji": "Zoë 🦊 Quillfeather 🎻 likes naïve café crêpes",
}
Write = Callable[[Random, str], Any]


def _pack(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _codes(pattern: str, *, only: str = "", units: bool = False) -> Write:
    """Write each character (or those that `only` names) by its number, or by its halves in UTF-16."""

    def write(_: Random, text: str) -> str:
        wide = text.encode("utf-16-be")
        chars = [chr(int.from_bytes(wide[at : at + 2], "big")) for at in range(0, len(wide), 2)] if units else text
        return "".join(
            pattern % ord(char) if not only or (only == "other" and not char.isascii()) else char for char in chars
        )

    return write


def _units(text: str) -> list[int]:
    wide = text.encode("utf-16-be")
    return [int.from_bytes(wide[at : at + 2], "big") for at in range(0, len(wide), 2)]


def _bytes(pattern: str, join: str = "", codec: str = "utf-8", *, only: str = "") -> Write:
    def write(_: Random, text: str) -> str:
        return join.join(
            chr(b) if only and 32 <= b < 127 and chr(b) not in only else pattern % b for b in text.encode(codec)
        )

    return write


def _wide(codec: str, write: Callable[[bytes], str]) -> Write:
    return lambda _, text: write(text.encode(codec))


def _mojibake(codec: str, times: int = 1) -> Write:
    def write(_: Random, text: str) -> str | None:
        for _again in range(times):
            try:
                text = text.encode().decode(codec)
            except UnicodeDecodeError:
                return None
        return text

    return write


def _dump(data: bytes, *, canonical: bool) -> str:
    lines = []
    for at in range(0, len(data), 16):
        row = data[at : at + 16]
        shown = "".join(chr(b) if 32 <= b < 127 else "." for b in row)
        if canonical:
            left, right = (" ".join(f"{b:02x}" for b in half) for half in (row[:8], row[8:]))
            lines.append(f"{at:08x}  {left:<23}  {right:<23}  |{shown}|")
        else:
            pairs = " ".join(row[n : n + 2].hex() for n in range(0, len(row), 2))
            lines.append(f"{at:08x}: {pairs:<39}  {shown}")
    return "\n".join(lines)


def _deflate(data: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-15)
    return packer.compress(data) + packer.flush()


def _uu(_: Random, text: str) -> str:
    data = text.encode()
    rows = "".join(binascii.b2a_uu(data[at : at + 45]).decode() for at in range(0, len(data), 45))
    return f"begin 644 x.txt\n{rows}`\nend"


def _partly(rng: Random, text: str) -> str:
    return "".join(f"%{b:02X}" if b > 127 or rng.random() < 0.3 or b == 37 else chr(b) for b in text.encode())


def _word(text: str, way: str, charset: str = "utf-8") -> str:
    data = text.encode(charset)
    packed = (
        _pack(data)
        if way == "B"
        else "".join(chr(b) if chr(b).isascii() and chr(b).isalnum() else "_" if b == 32 else f"={b:02X}" for b in data)
    )
    return f"=?{charset}?{way}?{packed}?="


def _named(_: Random, text: str) -> str:
    return (
        text.replace("&", "&amp;").encode("ascii", "ignore").decode()
        if text.isascii()
        else "".join(
            f"&{html.entities.codepoint2name[ord(c)]};" if ord(c) in html.entities.codepoint2name else c for c in text
        )
    )


ENCODINGS: Mapping[str, Write] = {
    "JSON escapes": lambda _, text: json.dumps(text),
    "JSON escapes of all": _codes("\\u%04x", units=True),
    "JavaScript escapes": _codes("\\u{%x}"),
    "JavaScript x escapes": _bytes("\\x%02x"),
    "C octal": _bytes("\\%03o"),
    "C octal, partly": _bytes("\\%03o", only='\\"'),
    "Python bytes": lambda _, text: repr(text.encode()),
    "Python ascii": lambda _, text: ascii(text),
    "Python long escapes": _codes("\\U%08x"),
    "SQL escapes": lambda _, text: (
        "U&'"
        + "".join(c if c.isascii() else f"\\{ord(c):04x}" if ord(c) < 65536 else f"\\+{ord(c):06x}" for c in text)
        + "'"
    ),
    "SQL char": lambda _, text: "||".join(f"CHR({ord(c)})" for c in text),
    "SQL Server char": lambda _, text: "+".join(f"NCHAR({ord(c)})" for c in text),
    "SQL bytes": lambda _, text: "0x" + text.encode().hex().upper(),
    "PostgreSQL bytea": lambda _, text: "\\x" + text.encode().hex(),
    "JavaScript fromCharCode": lambda _, text: f"String.fromCharCode({', '.join(map(str, _units(text)))})",
    "CSS escapes": _codes("\\%x "),
    "CSS six digits": _codes("\\%06x"),
    "RTF escapes": lambda _, text: (
        r"{\rtf1\ansi "
        + "".join(
            c
            if c.isascii()
            else "".join(
                f"\\u{n - 65536 if n > 32767 else n}?"
                for n in (
                    int.from_bytes(c.encode("utf-16-be")[k : k + 2], "big")
                    for k in range(0, len(c.encode("utf-16-be")), 2)
                )
            )
            for c in text
        )
        + r"\par}"
    ),
    "percent": lambda _, text: quote(text, safe=""),
    "percent of all": _bytes("%%%02x"),
    "percent partly": _partly,
    "percent twice": lambda _, text: quote(quote(text, safe=""), safe=""),
    "percent with plus": lambda _, text: quote_plus(text),
    "percent u": _codes("%%u%04X", units=True),
    "percent Latin-1": lambda _, text: quote(text.encode("latin-1"), safe=""),
    "entities": lambda _, text: html.escape(text).encode("ascii", "xmlcharrefreplace").decode(),
    "named entities": _named,
    "entities decimal": _codes("&#%d;"),
    "entities hexadecimal": _codes("&#x%x;"),
    "entities padded": _codes("&#%07d;"),
    "entities without semicolon": lambda _, text: " ".join("".join(f"&#{ord(c)}" for c in w) for w in text.split(" ")),
    "entities twice": lambda _, text: "".join(f"&amp;#{ord(c)};" for c in text),
    "entities three times": lambda _, text: "".join(f"&amp;amp;#x{ord(c):x};" for c in text),
    "Base64": lambda _, text: _pack(text.encode()),
    "Base64 twice": lambda _, text: _pack(_pack(text.encode()).encode()),
    "Base64 url": lambda _, text: base64.urlsafe_b64encode(text.encode()).decode().rstrip("="),
    "Base64 wrapped": lambda rng, text: fill(_pack(text.encode()), rng.choice((16, 20, 64, 76))),
    "Base64 MIME": lambda _, text: (
        "Content-Type: text/plain; charset=utf-8\nContent-Transfer-Encoding: base64\n\n"
        + base64.encodebytes(text.encode()).decode()
    ),
    "Base64 escaped newlines": lambda _, text: fill(_pack(text.encode()), 24).replace("\n", "\\r\\n"),
    "data URI": lambda _, text: f"data:text/plain;charset=utf-8;base64,{_pack(text.encode())}",
    "data URI percent": lambda _, text: f"data:text/plain,{quote(text)}",
    "JWT": lambda _, text: ".".join(
        base64.urlsafe_b64encode(part.encode()).decode().rstrip("=")
        for part in ('{"alg":"HS256","typ":"JWT"}', json.dumps({"sub": "7", "note": text}), "signature of it")
    ),
    "Base64 after a word": lambda _, text: f"Authorization: Basic {_pack(f'user:{text}'.encode())}",
    "Base64 of JSON": lambda _, text: _pack(json.dumps({"a": 1, "note": text}).encode()),
    "Base32": lambda _, text: base64.b32encode(text.encode()).decode(),
    "Base32 lower": lambda _, text: base64.b32encode(text.encode()).decode().lower().rstrip("="),
    "Base32 hex alphabet": lambda _, text: base64.b32hexencode(text.encode()).decode(),
    "hex": lambda _, text: text.encode().hex(),
    "hex upper": lambda _, text: text.encode().hex().upper(),
    "hex spaced": _bytes("%02x", " "),
    "hex upper spaced": _bytes("%02X", " "),
    "hex 0x": _bytes("0x%02x", ", "),
    "hex colons": _bytes("%02x", ":"),
    "hex dashes": _bytes("%02X", "-"),
    "hex of lines": lambda _, text: "\n".join(
        text.encode().hex(" ")[at : at + 48] for at in range(0, 3 * len(text.encode()), 48)
    ),
    "hexdump": lambda _, text: _dump(text.encode(), canonical=True),
    "xxd": lambda _, text: _dump(text.encode(), canonical=False),
    "bytes decimal": _bytes("%d", ", "),
    "bytes decimal spaced": _bytes("%d", " "),
    "bytes padded": _bytes("%03d", " "),
    "bytes octal": _bytes("%03o", " "),
    "bytes binary": lambda _, text: " ".join(f"{b:08b}" for b in text.encode()),
    "bytes binary joined": lambda _, text: "".join(f"{b:08b}" for b in text.encode()),
    "code points": lambda _, text: " ".join(str(ord(c)) for c in text),
    "code points U+": lambda _, text: " ".join(f"U+{ord(c):04X}" for c in text),
    "code points hex": lambda _, text: " ".join(f"{ord(c):04x}" for c in text),
    "code points 0x": lambda _, text: ", ".join(f"0x{ord(c):04x}" for c in text),
    "quoted-printable": lambda _, text: quopri.encodestring(text.encode()).decode(),
    "quoted-printable of all": _bytes("=%02X"),
    "quoted-printable Latin-1": lambda _, text: quopri.encodestring(text.encode("latin-1")).decode(),
    "MIME word B": lambda _, text: _word(text, "B"),
    "MIME word Q": lambda _, text: _word(text, "Q"),
    "MIME word Q Latin-1": lambda _, text: _word(text, "Q", "iso-8859-1"),
    "MIME words": lambda _, text: "\r\n ".join(_word(text[at : at + 12], "B") for at in range(0, len(text), 12)),
    "MIME word KOI8-R": lambda _, text: _word(text, "B", "koi8-r"),
    "MIME parameter": lambda _, text: f"attachment; filename*=UTF-8''{quote(text)}",
    "UTF-7": lambda _, text: text.encode("utf-7").decode(),
    "IMAP UTF-7": lambda _, text: re.sub(
        r"[^\x20-\x7e]+",
        lambda m: "&" + _pack(m[0].encode("utf-16-be")).rstrip("=").replace("/", ",") + "-",
        text.replace("&", "&-"),
    ),
    "UTF-16 Base64": _wide("utf-16-le", _pack),
    "UTF-16 BE Base64": _wide("utf-16-be", _pack),
    "UTF-16 BOM Base64": _wide("utf-16", _pack),
    "UTF-16 hex": _wide("utf-16-be", bytes.hex),
    "UTF-32 Base64": _wide("utf-32-le", _pack),
    "UTF-16 as Latin-1": _wide("utf-16-le", lambda data: data.decode("latin-1")),
    "UTF-16 BE as Latin-1": _wide("utf-16-be", lambda data: data.decode("latin-1")),
    "Latin-1 Base64": _wide("latin-1", _pack),
    "cp1251 Base64": _wide("cp1251", _pack),
    "Shift-JIS Base64": _wide("shift_jis", _pack),
    "GB18030 hex": _wide("gbk", bytes.hex),
    "EBCDIC hex": _wide("cp500", bytes.hex),
    **{
        f"mojibake {c}": _mojibake(c)
        for c in ("latin-1", "cp1252", "cp437", "mac_roman", "cp1251", "cp850", "koi8-r", "gbk", "cp866", "iso8859-15")
    },
    **{f"mojibake {c} twice": _mojibake(c, 2) for c in ("latin-1", "cp1252", "cp437")},
    "mojibake and entities": lambda _, text: (
        text.encode().decode("latin-1").encode("ascii", "xmlcharrefreplace").decode()
    ),
    "cp1251 as Latin-1": lambda _, text: text.encode("cp1251").decode("latin-1"),
    "gzip Base64": lambda _, text: _pack(gzip.compress(text.encode(), mtime=0)),
    "zlib Base64": lambda _, text: _pack(zlib.compress(text.encode())),
    "zlib fast Base64 url": lambda _, text: base64.urlsafe_b64encode(zlib.compress(text.encode(), 1)).decode(),
    "deflate Base64": lambda _, text: _pack(_deflate(text.encode())),
    "deflate Base64 percent": lambda _, text: quote(_pack(_deflate(text.encode())), safe=""),
    "bz2 Base64": lambda _, text: _pack(bz2.compress(text.encode())),
    "xz Base64": lambda _, text: _pack(lzma.compress(text.encode())),
    "lzma Base64": lambda _, text: _pack(lzma.compress(text.encode(), lzma.FORMAT_ALONE)),
    "gzip hex": lambda _, text: gzip.compress(text.encode(), mtime=0).hex(),
    "zlib hex": lambda _, text: zlib.compress(text.encode()).hex(),
    "gzip as Latin-1": lambda _, text: gzip.compress(text.encode(), mtime=0).decode("latin-1"),
    "gzip Base32": lambda _, text: base64.b32encode(gzip.compress(text.encode(), mtime=0)).decode(),
    "pickle Base64": lambda _, text: _pack(b"\x80\x04\x95\x8c\x10" + text.encode() + b"\x94\x00\xff."),
    "Punycode": lambda _, text: " ".join(
        "xn--" + w.encode("punycode").decode() if not w.isascii() else w for w in text.lower().split(" ")
    ),
    "uuencode": _uu,
    "Ascii85": lambda _, text: base64.a85encode(text.encode(), adobe=True).decode(),
    "Base85": lambda _, text: base64.b85encode(text.encode()).decode(),
    "ROT13": lambda _, text: codecs.encode(text, "rot13"),
    "reversed": lambda _, text: text[::-1],
    "shell quoting": lambda _, text: (
        "$'" + "".join(chr(b) if 32 <= b < 127 and b not in (39, 92) else f"\\{b:03o}" for b in text.encode()) + "'"
    ),
    "PowerShell": _codes("`u{%x}"),
    "Perl": _codes("\\x{%x}"),
    "regex": lambda _, text: re.escape(text).replace(r"\ ", r"\s+"),
    "properties": lambda _, text: (
        "name = " + "".join(c if c.isascii() else f"\\u{ord(c):04X}" for c in text if ord(c) < 65536)
    ),
    "PHP serialized": lambda _, text: f's:{len(text.encode())}:"{text}";',
    "LaTeX accents": lambda _, text: "".join(
        {"\u0308": '\\"{%s}', "\u0301": "\\'{%s}", "\u0300": "\\`{%s}", "\u0302": "\\^{%s}", "\u0327": "\\c{%s}"}.get(
            unicodedata.normalize("NFD", c)[1:], "%s"
        )
        % unicodedata.normalize("NFD", c)[0]
        for c in text
    ),
}


def _between(*choices: str) -> Write:
    return lambda rng, text: rng.choice(choices).join(text)


def _inside(left: str, right: str) -> Write:
    def write(rng: Random, text: str) -> str:
        return re.sub(r"\w{4,}", lambda w: f"{w[0][:2]}{left}{w[0][2:]}{right}" if rng.random() < 0.7 else w[0], text)

    return write


def _map(lower: int, upper: int, digit: int = 0) -> Write:
    def write(_: Random, text: str) -> str:
        plain = unicodedata.normalize("NFD", text)
        return "".join(
            chr(lower + ord(c) - 97)
            if "a" <= c <= "z"
            else chr(upper + ord(c) - 65)
            if "A" <= c <= "Z"
            else chr(digit + ord(c) - 48)
            if digit and "0" <= c <= "9"
            else c
            for c in plain
        )

    return write


SMALL_CAPS = dict(zip("abcdefghijklmnoprtuvwyz", "ᴀʙᴄᴅᴇꜰɢʜɪᴊᴋʟᴍɴᴏᴘʀᴛᴜᴠᴡʏᴢ", strict=True))
ALIKE = str.maketrans("aceiopxyABCEHKMOPTXS", "асеіорхуАВСЕНКМОРТХЅ")
GREEK = str.maketrans("ovAEZHIKMNOTYX", "ονΑΕΖΗΙΚΜΝΟΤΥΧ")

PRESENTATIONS: Mapping[str, Write] = {
    "upper": lambda _, text: text.upper(),
    "lower": lambda _, text: text.lower(),
    "swapped case": lambda _, text: text.swapcase(),
    "title": lambda _, text: text.title(),
    "full width": lambda _, text: "".join(chr(ord(c) + 0xFEE0) if "!" <= c <= "~" else c for c in text),
    "small capitals": lambda _, text: "".join(SMALL_CAPS.get(c, c) for c in text.lower()),
    "math bold": _map(0x1D41A, 0x1D400, 0x1D7CE),
    "math sans": _map(0x1D5BA, 0x1D5A0, 0x1D7E2),
    "math script": _map(0x1D4EA, 0x1D4D0),
    "math fraktur": _map(0x1D586, 0x1D56C),
    "circled": _map(0x24D0, 0x24B6),
    "negative circled": lambda _, text: "".join(
        chr(0x1F150 + ord(c) - 65) if "A" <= c <= "Z" else c for c in unicodedata.normalize("NFD", text.upper())
    ),
    "squared": lambda _, text: "".join(
        chr(0x1F130 + ord(c) - 65) if "A" <= c <= "Z" else c for c in unicodedata.normalize("NFD", text.upper())
    ),
    "regional": lambda _, text: "\u200b".join(
        chr(0x1F1E6 + ord(c) - 65) if "A" <= c <= "Z" else c for c in unicodedata.normalize("NFD", text.upper())
    ),
    "parenthesized": _map(0x249C, 0x1F110),
    "tags": lambda _, text: (
        "Hi" + "".join(chr(0xE0000 + ord(c)) if c.isascii() else c for c in unicodedata.normalize("NFD", text))
    ),
    "Cyrillic look-alikes": lambda _, text: text.translate(ALIKE),
    "Greek look-alikes": lambda _, text: text.translate(GREEK),
    "superscript": lambda _, text: text.translate(str.maketrans("0123456789hijlnrswxy", "⁰¹²³⁴⁵⁶⁷⁸⁹ʰⁱʲˡⁿʳˢʷˣʸ")),
    "NFD": lambda _, text: unicodedata.normalize("NFD", text),
    "NFKC": lambda _, text: unicodedata.normalize("NFKC", text),
    "without accents": lambda _, text: "".join(
        c for c in unicodedata.normalize("NFD", text) if not unicodedata.combining(c)
    ),
    "struck out": _between("\u0336", "\u0332", "\u0335"),
    "zero width": _between("\u200b", "\u200c", "\u2060", "\ufeff"),
    "soft hyphens": _between("\u00ad"),
    "bidi marks": lambda _, text: f"\u202b{text[:5]}\u200f{text[5:]}\u202c",
    "variation selectors": _between("\ufe0f", "\U000e0101"),
    "invisible": _between("\u3164", "\u115f", "\uffa0"),
    "controls": _between("\x00", "\x7f", "\x1f"),
    "ligatures": lambda _, text: text.replace("fi", "ﬁ").replace("fl", "ﬂ").replace("ff", "ﬀ").replace("st", "ﬆ"),
    "no-break spaces": lambda rng, text: text.replace(" ", rng.choice("\u00a0\u202f\u2009\u3000\u2003")),
    "many spaces": lambda rng, text: text.replace(" ", rng.choice(("   ", "\t", "\n", "\r\n\r\n"))),
    "spaced letters": _between(" "),
    "dotted letters": _between(".", "-", "_", "·", "*", "|", "/"),
    "typography": lambda _, text: text.replace("'", "’").replace("-", "–").replace(", ", " — ").replace(". ", "… "),
    "no punctuation": lambda _, text: re.sub(r"[^\w\s]", "", text),
    "snake": lambda _, text: re.sub(r"\W+", "_", text),
    "kebab": lambda _, text: re.sub(r"\W+", "-", text).lower(),
    "camel": lambda _, text: re.sub(r"\W+", "", text.title()),
    "emphasis inside": _inside("**", "**"),
    "underlines inside": _inside("__", "__"),
    "tags inside": _inside("<b>", "</b>"),
    "tags with attributes inside": _inside("<span class=\"x\" style='a > b'>", "</span>"),
    "wbr inside": _inside("<wbr>", "<wbr/>"),
    "comment inside": _inside("<!-- x -->", ""),
    "shy entities inside": _inside("&shy;", "&#8203;"),
    "BBCode inside": _inside("[b]", "[/b]"),
    "colour codes inside": _inside("\x1b[1;31m", "\x1b[0m"),
    "LaTeX inside": _inside("\\textbf{", "}"),
    "link in it": lambda _, text: re.sub(r"(\w{4,})", r"[\1](https://x.example/a?b=c)", text, count=1),
    "footnote in it": lambda _, text: re.sub(r"(\w{4,})(\s)", r"\1[^3]\2", text, count=1),
    "wiki link in it": lambda _, text: re.sub(r"(\w{4,})", r"[[\1]]", text, count=1),
    "Arabic digits": lambda _, text: text.translate(str.maketrans("0123456789", "٠١٢٣٤٥٦٧٨٩")),
    "tatweel": lambda _, text: text.replace("ي", "يـ"),
}


def _lines(text: str, rng: Random, width: int = 0) -> list[str]:
    width = width or rng.choice((16, 24, 40))
    return (
        [text[at : at + width] for at in range(0, len(text), width)]
        if " " not in text
        else fill(text, width).split("\n")
    )


def _table(rng: Random, text: str) -> str:
    half = text.find(" ") if " " in text else len(text) // 2
    return f"| a | b | c |\n|---|---|---|\n| 1 | {text[:half]} | {text[half:].strip()} |\n| 2 | x | y |"


def _cut(rng: Random, text: str, parts: int = 3) -> list[str]:
    words = text.split(" ")
    if len(words) < 2:
        at = len(text) // 2
        return [text[:at], text[at:]]
    cuts = sorted(rng.sample(range(1, len(words)), min(parts - 1, len(words) - 1)))
    return [" ".join(words[a:b]) for a, b in zip([0, *cuts], [*cuts, len(words)], strict=True)]


def _hyphenate(rng: Random, text: str) -> str:
    return re.sub(r"([^\W\d_]{3})([^\W\d_]{3,})", lambda w: f"{w[1]}-\n{w[2]}" if rng.random() < 0.5 else w[0], text)


def _csv(_: Random, text: str) -> str:
    out = io.StringIO()
    csv.writer(out).writerows([["id", "note", "x"], [7, text, "y"]])
    return out.getvalue()


def _nest(value: Any, levels: int) -> Any:
    for _ in range(levels):
        value = json.dumps({"inner": value})
    return value


def _nodes(rng: Random, text: str) -> Any:
    return {
        "type": "doc",
        "content": [
            {"type": "text", "marks": [{"type": "bold"}], "id": n, "text": part + " "}
            for n, part in enumerate(_cut(rng, text))
        ],
    }


CONTAINERS: Mapping[str, Write] = {
    "value": lambda _, text: text,
    "in a text": lambda _, text: f"It was noted before. {text} After that, nothing.",
    "glued in a text": lambda _, text: f"Note:{text}(end)",
    "nested": lambda _, text: {"a": {"b": [{"c": text}]}},
    "key": lambda _, text: {"a": {text: 1}},
    "list item": lambda _, text: ["x", text, "y"],
    "words": lambda _, text: text.split(" "),
    "characters": lambda _, text: list(text),
    "bytes": lambda _, text: list(text.encode()),
    "bytes in JSON": lambda _, text: json.dumps({"type": "Buffer", "data": list(text.encode())}),
    "signed bytes": lambda _, text: [b - 256 if b > 127 else b for b in text.encode()],
    "code points": lambda _, text: [ord(c) for c in text],
    "byte map": lambda _, text: {str(n): b for n, b in enumerate(text.encode())},
    "character map": lambda _, text: {str(n): c for n, c in enumerate(text)},
    "UTF-16 units": lambda _, text: [
        int.from_bytes(text.encode("utf-16-be")[n : n + 2], "big") for n in range(0, len(text.encode("utf-16-be")), 2)
    ],
    "hex bytes": lambda _, text: [f"{b:02x}" for b in text.encode()],
    "gzip bytes": lambda _, text: list(gzip.compress(text.encode(), mtime=0)),
    "chunks of Base64": lambda rng, text: [_pack(part.encode()) for part in _cut(rng, text)],
    "JSON": lambda _, text: json.dumps({"a": {"note": text}}),
    "JSON deep": lambda rng, text: _nest(text, rng.randint(2, 5)),
    "JSON string deep": lambda _, text: json.dumps(json.dumps(json.dumps({"x": [text]}))),
    "JSON lines": lambda _, text: f'{{"id": 1}}\n{json.dumps({"note": text})}\n{{"id": 2}}',
    "JSON in a text": lambda _, text: (
        f"Tool call: ```json\n{json.dumps({'arguments': json.dumps({'note': text})})}\n```"
    ),
    "several fields": lambda rng, text: {f"part_{n}": part for n, part in enumerate(_cut(rng, text))},
    "fields between others": lambda rng, text: {
        f"k{n}": part if n % 2 else f"other {n}"
        for n, part in enumerate(each for part in _cut(rng, text) for each in ("", part))
    },
    "fields in any order": lambda rng, text: {f"z{n}": part for n, part in reversed([*enumerate(_cut(rng, text))])},
    "list parts": lambda rng, text: [{"t": part, "n": n} for n, part in enumerate(_cut(rng, text))],
    "nodes": _nodes,
    "nodes in JSON": lambda rng, text: json.dumps(_nodes(rng, text)),
    "key-value pairs": lambda _, text: [{"key": "a", "value": 1}, {"key": "note", "value": text}],
    "dotted keys": lambda rng, text: {f"doc.part.{n}": part for n, part in enumerate(_cut(rng, text))},
    "key of objects": lambda _, text: {text: {"x": {"y": 1}}},
    "repr": lambda _, text: repr({"a": [text, 1], "b": None}),
    "CSV": _csv,
    "TSV": lambda _, text: f"id\tnote\tx\n7\t{text}\ty",
    "YAML": lambda _, text: "id: 7\nnote: >-\n" + "\n".join(f"  {line}" for line in _lines(text, Random(3))),
    "YAML quoted": lambda _, text: 'note: "' + json.dumps(text)[1:-1] + '"',
    "XML": lambda _, text: f'<?xml version="1.0"?><doc id="7"><note>{escape(text)}</note></doc>',
    "XML elements": lambda rng, text: (
        "<w:p>"
        + "".join(f'<w:r><w:t xml:space="preserve">{escape(part)} </w:t></w:r>' for part in _cut(rng, text))
        + "</w:p>"
    ),
    "CDATA": lambda _, text: f"<note><![CDATA[{text}]]></note>",
    "HTML attribute": lambda _, text: f'<img alt="{html.escape(text)}" src="x.png">',
    "HTML data attribute": lambda _, text: f"<div data-note='{html.escape(text)}'>See</div>",
    "HTML comment": lambda _, text: f"Hello. <!-- {text} --> Bye.",
    "HTML script": lambda _, text: f"<script>var x = {json.dumps(text)};</script>",
    "HTML meta": lambda _, text: f'<meta name="d" content="{html.escape(text)}"/>',
    "HTML list": lambda rng, text: (
        "<ul>" + "".join(f"<li>{html.escape(part)}</li>" for part in _cut(rng, text)) + "</ul>"
    ),
    "Markdown table": _table,
    "Markdown link": lambda _, text: f"See [here](https://x.example/?q={quote(text)}).",
    "Markdown link title": lambda _, text: f'See [here](https://x.example "{text}").',
    "Markdown image": lambda _, text: f"![{text}](x.png)",
    "Markdown reference": lambda _, text: f"[note]: <x> '{text}'",
    "Markdown comment": lambda _, text: f"[//]: # ({text})",
    "code block": lambda _, text: "```\n" + text + "\n```",
    "e-mail quoting": lambda rng, text: "On Monday, x wrote:\n" + "\n".join(f"> {line}" for line in _lines(text, rng)),
    "e-mail quoting twice": lambda rng, text: "\n".join(f">> > {line}" for line in _lines(text, rng)),
    "line numbers": lambda rng, text: "\n".join(f"{n:>4}  {line}" for n, line in enumerate(_lines(text, rng), 8)),
    "line numbers with signs": lambda rng, text: "\n".join(
        f"{n}: {line}" for n, line in enumerate(_lines(text, rng), 1)
    ),
    "numbered list": lambda rng, text: "\n".join(f"{n}. {line}" for n, line in enumerate(_lines(text, rng), 1)),
    "diff": lambda rng, text: (
        "--- a/x\n+++ b/x\n@@ -1,4 +1,4 @@\n" + "\n".join(f"{rng.choice('+-')}{line}" for line in _lines(text, rng))
    ),
    "subtitles": lambda rng, text: "\n\n".join(
        f"{n}\n00:00:{n:02},000 --> 00:00:{n + 1:02},500\n{line}" for n, line in enumerate(_lines(text, rng), 1)
    ),
    "web subtitles": lambda rng, text: (
        "WEBVTT\n\n"
        + "\n\n".join(
            f"00:{n:02}.000 --> 00:{n + 1:02}.500 align:start\n{line}" for n, line in enumerate(_lines(text, rng), 1)
        )
    ),
    "hyphenation": _hyphenate,
    "hyphenation quoted": lambda rng, text: "\n".join(f"> {line}" for line in _hyphenate(rng, text).split("\n")),
    "transcript": lambda rng, text: "\n".join(
        f"[00:{n:02}:1{n % 10}] Speaker 1: {line}" for n, line in enumerate(_lines(text, rng), 1)
    ),
    "chat": lambda rng, text: "\n".join(
        f"2024-05-0{n % 9 + 1} 10:{n:02} <ann> {line}" for n, line in enumerate(_lines(text, rng), 1)
    ),
    "code comment": lambda rng, text: "\n".join(
        f"{sign} {line}" for sign in [rng.choice(("#", "//", " *", "--", ";"))] for line in _lines(text, rng)
    ),
    "string concatenation": lambda rng, text: " +\n  ".join(json.dumps(part + " ") for part in _cut(rng, text)),
    "C strings": lambda rng, text: "\n".join(json.dumps(part + " ", ensure_ascii=False) for part in _cut(rng, text)),
    "shell continuation": lambda rng, text: " \\\n".join(_cut(rng, text)),
    "word per line": lambda _, text: "\n".join(text.split(" ")),
    "word and tag": lambda _, text: [[word, "B-PER", n] for n, word in enumerate(text.split(" "))],
    "tokens": lambda _, text: re.findall(r"\w+|[^\w\s]", text),
    "word pieces": lambda _, text: [
        piece for word in text.split(" ") for piece in ([word[:3], "##" + word[3:]] if len(word) > 4 else [word])
    ],
    "sentence pieces": lambda _, text: ["▁" + word for word in text.split(" ")],
    "tokens with offsets": lambda _, text: [
        {"token": word, "start": 7 * n, "end": 7 * n + 5, "score": 0.93} for n, word in enumerate(text.split(" "))
    ],
    "column of a table": lambda rng, text: {
        "columns": ["a", "b"],
        "data": [[n, part] for n, part in enumerate(_cut(rng, text))],
    },
    "Quill delta": lambda rng, text: {
        "ops": [{"insert": part + " ", "attributes": {"bold": True}} for part in _cut(rng, text)]
    },
    "protobuf struct": lambda _, text: {"fields": {"note": {"kind": {"stringValue": text}}}},
    "DynamoDB": lambda _, text: {"M": {"note": {"S": text}, "n": {"N": "7"}}},
    "vCard": lambda _, text: (
        "BEGIN:VCARD\r\nVERSION:3.0\r\nNOTE:"
        + "\r\n ".join(text[at : at + 20] for at in range(0, len(text), 20)).replace(",", "\\,")
        + "\r\nEND:VCARD"
    ),
    "INI": lambda _, text: f"[note]\nvalue = {text}\nx=1",
    "SQL": lambda _, text: "INSERT INTO t VALUES (7, '" + text.replace("'", "''") + "');",
    "log line": lambda _, text: f'2024-05-01T10:00:00Z level=info msg="{text}" id=7',
    "query string": lambda _, text: f"https://x.example/s?a=1&q={quote_plus(text)}&b=2",
    "multipart": lambda _, text: (
        '--b\r\nContent-Disposition: form-data; name="n"\r\nContent-Transfer-Encoding: quoted-printable\r\n\r\n'
        + quopri.encodestring(text.encode()).decode()
        + "\r\n--b--"
    ),
}


def hide_text(rng: Random, text: str, depth: int) -> tuple[str, Any] | None:
    """Return the names of what was done, and the value; None where it cannot be written in that way."""
    kinds = {1: ["e", "p", "c"], 2: ["ec", "pe", "pc", "ee", "cc"], 3: ["pec", "eec", "ecc"]}
    steps, value = [], text
    for kind in rng.choice(kinds[depth]):
        table = {"e": ENCODINGS, "p": PRESENTATIONS, "c": CONTAINERS}[kind]
        name = rng.choice(list(table))
        steps.append(name)
        if not isinstance(value, str):
            value = json.dumps(value, ensure_ascii=rng.random() < 0.5)
        value = write(table[name], rng, value)
        if value is None:
            return None
    return " > ".join(steps), value


def write(form: Write, rng: Random, text: str) -> Any:
    """Write the text in a form; None if it has characters that the form does not know."""
    try:
        return form(rng, text)
    except (UnicodeError, LookupError, ValueError):
        return None


# Addresses.
URLS = (
    "https://docs.example.com/people/jane-doevale",
    "https://www.example.org/Über/größe?id=7&lang=de",
    "http://intranet.corp.example/wiki/display/HR/Jane_Doevale.html",
    "https://müller.example/akten/2024/doevale",
    "https://example.net/a/b/c/d/report-2024-final",
)
STORES = (
    "s3://acme-documents/hr/2024/doevale.pdf",
    "gs://acme-documents/hr/2024/doevale.pdf",
    "abfss://records@acmestore.dfs.core.windows.net/hr/2024/doevale.pdf",
    "file:///srv/share/hr/2024/doevale.docx",
    r"\\fileserver\share\hr\doevale.docx",
    r"C:\Users\jane\Documents\doevale.docx",
    "git@github.com:acme/doevale-notes.git",
)
Address = Callable[[Random, str], Any]


def _parts(url: str) -> tuple[str, str, str]:
    found = urlsplit(url)
    return found.netloc, found.path, found.query


def _bare(url: str) -> str:
    return re.sub(r"^\w+://", "", url)


def _with_query(url: str, more: str) -> str:
    return f"{url}{'&' if '?' in url else '?'}{more}"


def _shuffled(rng: Random, url: str) -> str:
    head, _, query = url.partition("?")
    pairs = [*query.split("&"), "utm_source=mail", "fbclid=Iw&gclid=3"] if query else ["utm_campaign=x", "ref=7"]
    rng.shuffle(pairs)
    return f"{head}?{'&'.join(pairs)}"


def _idn(url: str) -> str:
    host, _, _ = _parts(url)
    return url.replace(host, host.encode("idna").decode())


def _ascii(url: str) -> str:
    return quote(_idn(url), safe=":/?=&-._~%")


REDIRECTORS = (
    *("l.facebook.com/l.php?u=", "www.google.com/url?sa=t&url=", "out.reddit.com/?url="),
    "nam02.safelinks.protection.outlook.com/?data=5&url=",
)
ADDRESSES: Mapping[str, Address] = {
    "as it is": lambda _, url: url,
    "other scheme": lambda rng, url: (
        f"{rng.choice(('http', 'HTTPS', 'ftp', 'view-source:https', 'feed'))}://{_bare(url)}"
    ),
    "no scheme": lambda _, url: _bare(url),
    "no scheme but slashes": lambda _, url: f"//{_bare(url)}",
    "user": lambda rng, url: f"https://{rng.choice(('jane', 'user:pa%24s', 'a.b:c-d'))}@{_bare(url)}",
    "port": lambda rng, url: url.replace(_parts(url)[0], f"{_parts(url)[0]}:{rng.choice((80, 443, 8443))}"),
    "www": lambda _, url: f"https://www.{_bare(url).removeprefix('www.')}",
    "no www": lambda _, url: f"https://{_bare(url).removeprefix('www.')}",
    "mobile": lambda rng, url: (
        f"https://{rng.choice(('m', 'mobile', 'amp', 'www2', 'cdn'))}.{_bare(url).removeprefix('www.')}"
    ),
    "trailing slash": lambda _, url: url.replace("?", "/?") if "?" in url else f"{url}/",
    "index file": lambda rng, url: (
        url.partition("?")[0]
        + rng.choice(("/index.html", "/index.php", "/default.aspx", "/index"))
        + ("?" + _parts(url)[2] if "?" in url else "")
    ),
    "host with dot": lambda _, url: url.replace(_parts(url)[0], _parts(url)[0] + "."),
    "query order": _shuffled,
    "tracking": lambda _, url: _with_query(url, "utm_source=mail&gclid=x"),
    "fragment": lambda rng, url: url + rng.choice(("#top", "#:~:text=foo", "#!/x/y", "#")),
    "upper": lambda _, url: url.upper(),
    "title path": lambda _, url: url.title(),
    "percent": lambda _, url: quote(url, safe=""),
    "percent lower": lambda _, url: quote(url, safe="").lower(),
    "percent twice": lambda _, url: quote(quote(url, safe=""), safe=""),
    "percent path": lambda _, url: _ascii(url),
    "percent all of path": lambda _, url: url.replace(
        _parts(url)[1], "".join(c if c == "/" else "".join(f"%{b:02X}" for b in c.encode()) for c in _parts(url)[1])
    ),
    "percent slash": lambda _, url: url.replace(_parts(url)[1][1:], _parts(url)[1][1:].replace("/", "%2F")),
    "dot segments": lambda rng, url: url.replace(
        _parts(url)[1], rng.choice(("/x/..", "/./", "//", "/.//")) + _parts(url)[1]
    ),
    "IDN": lambda _, url: _idn(url),
    "IDN upper": lambda _, url: _idn(url).upper(),
    "NFD": lambda _, url: unicodedata.normalize("NFD", url),
    "Latin-1 percent": lambda _, url: quote(url, safe=":/?=&", encoding="latin-1"),
    "path parameters": lambda _, url: url.replace(_parts(url)[1], f"{_parts(url)[1]};jsessionid=A7F"),
    "hxxp": lambda _, url: "hxxp" + url.removeprefix("http"),
    "hxxp brackets": lambda _, url: "hxxps[:]//" + _bare(url).replace(".", "[.]"),
    "brackets around scheme": lambda _, url: "hxxps[://]" + _bare(url).replace(".", "[.]"),
    "dot in words": lambda rng, url: _bare(url).replace(
        ".", rng.choice(("(dot)", "[dot]", " dot ", "{dot}", "(.)", " [.] ", "\\."))
    ),
    "escaped dots": lambda _, url: _bare(url).replace(".", "\\.").replace("/", "\\/"),
    "host and path": lambda _, url: {"host": _parts(url)[0], "path": _parts(url)[1], "query": _parts(url)[2]},
    "path and host": lambda _, url: {
        "path": _parts(url)[1] + ("?" + _parts(url)[2] if _parts(url)[2] else ""),
        "site": "https://" + _parts(url)[0],
    },
    "host and path apart": lambda _, url: {
        "scheme": "https",
        "host": _parts(url)[0],
        "port": 443,
        "title": "A page",
        "path": _parts(url)[1],
        "query": _parts(url)[2],
    },
    "base and slug": lambda _, url: {
        "slug": _parts(url)[1].rpartition("/")[2] + ("?" + _parts(url)[2] if _parts(url)[2] else ""),
        "n": 3,
        "base": "https://" + _parts(url)[0] + _parts(url)[1].rpartition("/")[0],
    },
    "segments": lambda _, url: {
        "host": _parts(url)[0],
        "segments": [each for each in _parts(url)[1].split("/") if each],
        "q": _parts(url)[2],
    },
    "urlsplit": lambda _, url: repr(urlsplit(url)),
    "Postman": lambda _, url: {
        "raw": "x",
        "protocol": "https",
        "host": _parts(url)[0].split("."),
        "path": _parts(url)[1].strip("/").split("/"),
        "query": [
            dict(zip(("key", "value"), pair.split("="), strict=True)) for pair in _parts(url)[2].split("&") if pair
        ],
    },
    "redirector": lambda rng, url: f"https://{rng.choice(REDIRECTORS)}{quote(url, safe='')}&h=AT0x&usg=7",
    "redirector twice": lambda _, url: (
        f"https://r.example/?u={quote('https://l.example/?to=' + quote(url, safe=''), safe='')}&x=1"
    ),
    "redirector Base64": lambda _, url: (
        f"https://r.example/go/{base64.urlsafe_b64encode(url.encode()).decode().rstrip('=')}"
    ),
    "Proofpoint 2": lambda _, url: (
        "https://urldefense.proofpoint.com/v2/url?u="
        + re.sub(
            r"[^A-Za-z0-9._/-]",
            lambda c: "".join(f"-{b:02X}" for b in c[0].encode()),
            url.replace("-", "-2D").replace("_", "-5F"),
        ).replace("/", "_")
        + "&d=DwMF"
    ),
    "Proofpoint 3": lambda _, url: f"https://urldefense.com/v3/__{_ascii(url)}__;!!Ab1!Xy$",
    "archive": lambda rng, url: (
        f"https://web.archive.org/web/{rng.choice(('2020', '20200102030405', '20200102030405id_', '*'))}/{url}"
    ),
    "archive one slash": lambda _, url: f"https://web.archive.org/web/2020/{url.replace('://', ':/')}",
    "archive.today": lambda _, url: f"https://archive.ph/newest/{url}",
    "Google cache": lambda _, url: f"https://webcache.googleusercontent.com/search?q=cache:Ab3:{url}+&cd=1",
    "AMP cache": lambda _, url: (
        f"https://{_idn(url).split('/')[2].replace('.', '-')}.cdn.ampproject.org/c/s/{_bare(_ascii(url))}"
    ),
    "AMP viewer": lambda _, url: f"https://www.google.com/amp/s/{_bare(url)}",
    "AMP page": lambda rng, url: url.partition("?")[0] + rng.choice(("/amp", "/amp/", "?amp=1")),
    "translated": lambda _, url: (
        "https://"
        + _idn(url).split("/")[2].replace(".", "-")
        + ".translate.goog"
        + _parts(url)[1]
        + "?_x_tr_sl=de"
        + ("&" + _parts(url)[2] if _parts(url)[2] else "")
    ),
    "proxy": lambda _, url: url.replace(_parts(url)[0], _parts(url)[0].replace(".", "-") + ".proxy.uni.example"),
    "reader": lambda _, url: f"https://r.jina.ai/{url}",
    "file name": lambda _, url: re.sub(r"[\W]+", "_", _bare(url)) + ".html",
    "file name with scheme": lambda _, url: re.sub(r"[^\w.-]", "_", url) + ".md",
    "file name dashes": lambda _, url: re.sub(r"[\W_]+", "-", _bare(url)).lower() + ".txt",
    "file name of wget": lambda _, url: f"mirror/{_bare(url)}.html",
    "file name with ! ": lambda _, url: _bare(url).replace("/", "!"),
    "file name with colons": lambda _, url: _bare(url).replace("/", ":"),
    "file name with +": lambda _, url: _bare(url).replace("/", "+"),
    "file name with fullwidth": lambda _, url: url.replace("/", "／").replace(":", "："),
    "file name with slashes alike": lambda rng, url: _bare(url).replace("/", rng.choice("∕⁄⧸")),
    "package": lambda _, url: ".".join(reversed(_parts(url)[0].split("."))) + _parts(url)[1].replace("/", "."),
    "SURT": lambda _, url: (
        ",".join(reversed(_parts(url)[0].removeprefix("www.").split(".")))
        + ")"
        + _parts(url)[1]
        + ("?" + _parts(url)[2] if _parts(url)[2] else "")
    ),
    "SURT scheme": lambda _, url: (
        "https://("
        + ",".join(reversed(_parts(url)[0].split(".")))
        + ",)"
        + _parts(url)[1]
        + ("?" + _parts(url)[2] if _parts(url)[2] else "")
    ),
    "Markdown link": lambda _, url: f"See [her page]({url}).",
    "Markdown link with title": lambda _, url: f'See [her page](<{url}> "Title").',
    "Markdown reference": lambda _, url: f"[1]: {url}\n[2]: https://x.example",
    "autolink": lambda _, url: f"Look at <{url}>, please.",
    "HTML link": lambda _, url: f'<a class="x" href="{html.escape(url)}" target=_blank>Her page</a>',
    "HTML link unquoted": lambda _, url: f"<a href={url}>x</a>",
    "HTML link entities": lambda _, url: '<a href="' + "".join(f"&#{ord(c)};" for c in url) + '">x</a>',
    "HTML meta refresh": lambda _, url: f'<meta http-equiv="refresh" content="0;url={url}">',
    "JSON escaped": lambda _, url: json.dumps({"u": url}).replace("/", "\\/"),
    "JSON-LD": lambda _, url: json.dumps({"@id": url, "@type": "Person"}),
    "JavaScript": lambda _, url: (
        "window.location='" + "".join(f"\\x{ord(c):02x}" if ord(c) < 256 else c for c in url) + "'"
    ),
    "CSS": lambda _, url: f"background: url( '{url}' )",
    "BibTeX": lambda _, url: "@misc{x, howpublished = {\\url{" + re.sub(r"([_%&#])", r"\\\1", url) + "}}, year = 2024}",
    "LaTeX": lambda _, url: "\\href{" + url.replace("_", "\\_") + "}{her page}",
    "wiki link": lambda _, url: f"[{url} Her page]",
    "wiki template": lambda _, url: f"{{{{cite web|url={url}|title=x}}}}",
    "reStructuredText": lambda _, url: f"`Her page <{url}>`_",
    "Org": lambda _, url: f"[[{url}][her page]]",
    "Slack": lambda _, url: f"See <{url}|her page>.",
    "AsciiDoc": lambda _, url: f"link:{url}[her page]",
    "mail": lambda _, url: f"> Please see\n> {url}\n> Thanks",
    "mail broken": lambda _, url: f"> See {url[: len(url) // 2]}\n> {url[len(url) // 2 :]} ok",
    "quoted-printable": lambda _, url: quopri.encodestring(
        f"See {url} for a much longer line of the mail than one that fits".encode()
    ).decode(),
    "format flowed": lambda _, url: f"{url[:20]} \n{url[20:]}",
    "spaces": lambda _, url: url.replace("/", " / ").replace(".", " . "),
    "breadcrumbs": lambda rng, url: (
        _bare(url).partition("?")[0].replace("/", rng.choice((" › ", " > ", " » ", " → ")))
        + ("?" + _parts(url)[2] if "?" in url else "")
    ),
    "sentence": lambda rng, url: (
        f"It was at {url}{rng.choice(('.', ',', ')', '!', ';', '…', '’s', ' -'))} Then it went."
    ),
    "brackets": lambda rng, url: rng.choice(
        ("({})", "[{}]", "{{{}}}", "“{}”", "«{}»", "`{}`", "**{}**", "_{}_", "~~{}~~", "|{}|")
    ).format(url),
    "CJK around": lambda _, url: f"请看{url}。谢谢",
    "zero width": lambda _, url: "\u200b".join(url),
    "soft hyphens": lambda _, url: url.replace("/", "/\u00ad").replace(".", "\u200b."),
    "full width": lambda _, url: "".join(chr(ord(c) + 0xFEE0) if "!" <= c <= "~" else c for c in url),
    "non-breaking hyphens": lambda _, url: url.replace("-", "\u2011"),
    "Cyrillic look-alikes": lambda _, url: url.translate(ALIKE),
    "math letters": _map(0x1D5BA, 0x1D5A0, 0x1D7E2),
    "characters": lambda _, url: list(url),
    "code points": lambda _, url: [ord(c) for c in url],
    "Base64": lambda _, url: _pack(url.encode()),
    "hex": lambda _, url: url.encode().hex(),
    "gzip": lambda _, url: _pack(gzip.compress(url.encode(), mtime=0)),
    "UTF-16": lambda _, url: _pack(url.encode("utf-16-le")),
    "key": lambda _, url: {url: 1},
    "key with dots away": lambda _, url: {url.replace(".", "\uff0e"): 1},
    "Firebase key": lambda _, url: {url.replace(".", "%2E").replace("/", "%2F"): 1},
    "list": lambda _, url: ["https://x.example/", url],
    "CSV": lambda _, url: f"id,url\n7,{url}\n",
    "XML": lambda _, url: f"<loc>{escape(url)}</loc>",
    "warc": lambda _, url: f"WARC-Target-URI: {url}\r\nContent-Length: 7",
    "curl": lambda _, url: f"curl -sL '{url}' | sh",
    "HTTP": lambda _, url: (
        f"GET {_parts(url)[1]}{'?' + _parts(url)[2] if _parts(url)[2] else ''} HTTP/1.1\r\nHost: {_parts(url)[0]}\r\n"
    ),
    "log": lambda _, url: f'10.0.0.1 - - "GET {_ascii(url)} HTTP/1.1" 200 512',
    "backslashes": lambda _, url: url.replace("/", "\\"),
    "ROT13": lambda _, url: codecs.encode(url, "rot13"),
    "extension": lambda rng, url: (
        url.partition("?")[0].removesuffix(".html")
        + rng.choice((".html", ".htm", ".php", ".aspx"))
        + ("?" + _parts(url)[2] if "?" in url else "")
    ),
    "print view": lambda _, url: _with_query(url, "print=1"),
}


def write_store(rng: Random, url: str) -> Any:
    bucket, _, key = _bare(url).partition("/")
    if url.startswith("s3"):
        return rng.choice(
            (
                f"https://{bucket}.s3.amazonaws.com/{key}",
                f"https://{bucket}.s3.eu-west-1.amazonaws.com/{key}?X-Amz-Signature=1",
                f"https://s3.eu-west-1.amazonaws.com/{bucket}/{key}",
                f"arn:aws:s3:::{bucket}/{key}",
                f"s3a://{bucket}/{key}",
                f"https://s3.console.aws.amazon.com/s3/object/{bucket}?prefix={key}",
                {"bucket": {"name": bucket}, "object": {"key": key, "size": 3}},
                {"Bucket": bucket, "Key": quote(key, safe="")},
            )
        )
    if url.startswith("gs"):
        return rng.choice(
            (
                f"https://storage.googleapis.com/{bucket}/{key}",
                f"https://storage.cloud.google.com/{bucket}/{key}",
                f"https://{bucket}.storage.googleapis.com/{key}",
                f"https://storage.googleapis.com/storage/v1/b/{bucket}/o/{quote(key, safe='')}?alt=media",
                {"bucket": bucket, "name": key},
                f"/gcs/{bucket}/{key}",
            )
        )
    if url.startswith("abfs"):
        return rng.choice(
            (
                "https://acmestore.blob.core.windows.net/records/hr/2024/doevale.pdf?sv=2020",
                "wasbs://records@acmestore.blob.core.windows.net/hr/2024/doevale.pdf",
                "https://acmestore.dfs.core.windows.net/records/hr/2024/doevale.pdf",
                {"account": "acmestore", "container": "records", "blob": "hr/2024/doevale.pdf"},
            )
        )
    if url.startswith("git@"):
        return rng.choice(
            (
                "https://github.com/acme/doevale-notes",
                "https://github.com/acme/doevale-notes.git",
                "ssh://git@github.com/acme/doevale-notes.git",
                "git+https://github.com/acme/doevale-notes",
                "git://github.com/acme/doevale-notes.git",
                "https://token@github.com/acme/doevale-notes",
            )
        )
    plain = url.removeprefix("file://").replace("\\", "/")
    if plain.startswith("//"):
        return rng.choice(
            (
                "file://fileserver/share/hr/doevale.docx",
                "file://///fileserver/share/hr/doevale.docx",
                "smb://fileserver/share/hr/doevale.docx",
                r"\\FILESERVER\Share\HR\Doevale.docx",
                "//fileserver/share/hr/doevale.docx",
                json.dumps(url),
                r"\\?\UNC\fileserver\share\hr\doevale.docx",
            )
        )
    if plain.startswith("C:"):
        return rng.choice(
            (
                "file:///C:/Users/jane/Documents/doevale.docx",
                "c:/users/jane/documents/doevale.docx",
                "/mnt/c/Users/jane/Documents/doevale.docx",
                "/c/Users/jane/Documents/doevale.docx",
                json.dumps(url),
                "file:///C|/Users/jane/Documents/doevale.docx",
                r"\\?\C:\Users\jane\Documents\doevale.docx",
                ["C:", "Users", "jane", "Documents", "doevale.docx"],
                {"dir": r"C:\Users\jane\Documents", "file": "doevale.docx"},
            )
        )
    return rng.choice(
        (
            "/srv/share/hr/2024/doevale.docx",
            "file:/srv/share/hr/2024/doevale.docx",
            "file://localhost/srv/share/hr/2024/doevale.docx",
            "srv/share/hr/2024/doevale.docx",
            {"dir": "/srv/share/hr/2024", "name": "doevale.docx"},
            "FILE:///SRV/share/hr/2024/doevale.docx",
        )
    )


def hide_address(rng: Random, url: str, depth: int) -> tuple[str, Any] | None:
    """Return the names of what was done to an address, and the value."""
    if "://" not in url or not url.startswith("http"):
        name, value = "another notation", write(write_store, rng, url)
    else:
        name = rng.choice(list(ADDRESSES))
        value = write(ADDRESSES[name], rng, url)
    for _ in range(depth - 1):
        if value is None:
            break
        if not isinstance(value, str):
            value = json.dumps(value)
        also = rng.choice(WRAPPERS)
        name, value = f"{name} > {also}", write({**ENCODINGS, **CONTAINERS}[also], rng, value)
    return None if value is None else (name, value)


WRAPPERS = (
    *("JSON escapes", "percent", "entities", "Base64", "Base64 url", "hex", "quoted-printable", "gzip Base64", "JWT"),
    *("in a text", "nested", "list item", "JSON", "JSON deep", "repr", "CSV", "XML", "HTML comment", "Markdown link"),
    *("e-mail quoting", "code comment", "log line", "query string", "key-value pairs"),
)
