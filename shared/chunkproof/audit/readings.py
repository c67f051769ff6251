"""All readings of a stored value: as it is stored, and decoded, several times over.

A decoder is tried only where a value has one of its signs, so that prose is read as it is. A value that has too many
forms, or is too large, is reported as not read to its end.
"""

import ast
import binascii
import bz2
import html
import json
import lzma
import re
import sys
import unicodedata
import zlib
from base64 import a85decode, b32decode, b32hexdecode, b64decode, b85decode
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache, partial
from heapq import heappop, heappush
from itertools import pairwise
from typing import Any, NamedTuple, TypeVar

from chunkproof.collection.payload_map import PayloadMap, parse_json
from chunkproof.stores.store_port import Point

Value = TypeVar("Value", str, bytes)
Reading = TypeVar("Reading")
# A value may be encoded several times over. Each form is decoded in the first way that applies, which is the surest, as
# often as it can be; further ways are detours. All forms of a value together may have so many characters.
MAX_ROUNDS, MAX_DETOURS, MAX_FORMS, MAX_READ, CACHED_CHARS = 12, 2, 300, 3_000_000, 200
LONG = 400
SEVERAL_FIELDS, SEVERAL = "several fields", "decoded from several encodings"
# A letter that texts do not have is between readings of a value; a space that they do not have is between fields.
BETWEEN, PART = " \ua66e ", "\x1d"
# Bytes from so many on may be characters of two or four bytes each.
LEAST_WIDE, UNPACKING_MEMORY, MAX_JSON, MAX_PYTHON, LOOK, MANY = 8, 32_000_000, 50, 100_000, 200, 500
# What is packed has at most so many times its size; what is cut off there is marked.
UNPACKED_FLOOR, UNPACKED_RATIO, CUT = 20_000, 20, "\ufdd0\ufdd1\ufdd2"
# UTF-8 may have been read in these encodings, and bytes may be in those.
MISREAD = "cp1252", "cp437", "mac_roman", "cp1251", "cp850", "koi8-r", "cp866", "iso8859-15"
LEGACY = "cp1252", "cp1251", "koi8-r", "shift_jis", "gb18030", "cp500"
_ESCAPE = re.compile(
    r"(?:\\|`(?=u\{))(?:[xu]\{([0-9a-fA-F]{1,6})\}|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|[x']([0-9a-fA-F]{2})"
    r"|(?P<octal>[0-3]?[0-7]{1,2})|(?P<sign>[bfnrt\n!-/:-@\[-`{-~]))"
    r"|(?:\\N\{)?U\+([0-9a-fA-F]{4,6})\}? ?"
)
_LONG_REFERENCE, _PADDED_REFERENCE = re.compile(r"&#0*([0-9]{8,});?"), re.compile(r"&#([xX]?)0+(?=[0-9a-fA-F])")
# Tags, colours of a terminal, overstriking, numbers of footnotes, commands of LaTeX and RTF.
MARKUP = re.compile(
    r"<[a-zA-Z/!?](?:=\s*+(?:\"[^\"]{0,4000}\"|'[^']{0,4000}')|[^<>])*+>|\x1b\[[\d;]*[A-Za-z]|.\x08|\[/?[a-z]{1,9}\]"
    r"|\[\^?\d{1,3}\]"
)
_COMMAND = re.compile(r"\\[a-zA-Z]+-?\d* ?")
# At the start of lines: numbers; times and who speaks; the numbers and times of subtitles.
_NUMBERED = re.compile(r"(?:\A|\n)[ \t>|#*+/;-]*\d{1,6}(?:[.:)\]|][ \t]*|[ \t]+)")
_QUOTED = re.compile(r"\r?\n[ \t]*(?:>[> \t]*|[|#;*+-]+[ \t]*|//+[ \t]*)")
_TIMED = re.compile(
    r"(?:\A|\n)[^\w\n]*(?:\d{4}-\d\d-\d\d[T ])?\d{1,2}:\d\d[\d:.,Z]*\]?[ \t]*"
    r"(?:<[^>\n]{1,40}>|[\w.]{1,20}(?: \d{1,3})?:)?[ \t]*"
)
_SUBTITLE = re.compile(r"(?m)^(?:\d+[ \t]*\r?\n)?[\d:.,]+ --> [\d:.,]+.*$")
_BASE64_WHOLE = re.compile(r"[A-Za-z0-9+/_-]{8,}={0,6}")
_BASE64_RUN = re.compile(
    r"(?<![A-Za-z0-9+/_-])(?=[a-z/_-]{0,400}[A-Z0-9+=])(?:[A-Za-z0-9+/_-]{12,}={0,6}|[A-Za-z0-9+/_-]{6,}={1,6})"
)
_BASE64 = re.compile(rf"{_BASE64_RUN.pattern}|\A[A-Za-z0-9+/_\r\n-]{{8,400}}={{0,6}}\s*\Z")
_BASE64_PART = re.compile(r"[A-Za-z0-9+_-]{16,}={0,2}")
_WRAPPED = re.compile(r"(?<=[A-Za-z0-9+/]{16})\r?\n[ \t>]*(?=[A-Za-z0-9+/]{2})")
_BASE85 = re.compile(r"<~([!-uz\s]{4,})~>|(?<!\S)(?=\w{0,40}[!#-&(-+;-@^`{-~])([!-+\--~]{10,})(?!\S)")
_BASE85_PART = re.compile(r"[!#-&;-@^`{-~][!-~]{4}")
_HEX_PAIR = re.compile(r"\d[0-9a-fA-F]{2,5}[\s,;]{1,2}(?:0[xX])?[0-9a-fA-F]{4}")
_HEX = re.compile(r"\d[0-9a-fA-F]?(?:[\s:,-]{0,2}(?:0x)?[0-9a-fA-F]{2}){3}")
_HEX_RUN = re.compile(r"(?:0x)?[0-9a-fA-F]{2}(?:[\s:,-]{0,2}(?:0x)?[0-9a-fA-F]{2}){5,}+")
_HEX_NUMBERS = re.compile(r"(?:(?:0[xX])?[0-9a-fA-F]{4,6}[\s,;]{1,2}){2,}(?:0[xX])?[0-9a-fA-F]{4,6}")
_DUMP_LINE = re.compile(r"\A\w+:?\s+((?:[0-9a-fA-F]{2} ){1,8} ?(?:[0-9a-fA-F]{2} ){0,8}|(?:[0-9a-fA-F]{4} ){0,8}\w*)")
_DUMP = re.compile(r"(?:(?:\A|\n)[0-9a-fA-F]{6,8}:?\s+(?:[0-9a-fA-F]{2}|[0-9a-fA-F]{4}) .*)+")
_UUENCODED = re.compile(r"begin \d{3,4} .*\n((?:[ -`]{1,61}\r?\n)+)\s*end")
_DIGITS = re.compile(r"(?:[01]{8}\s?){3,}|(?:-?\d{1,7}(?:\.0)?[\s,;]{1,3}){2,50000}-?\d{1,7}(?:\.0)?(?![\d.])")
_NUMBERS = re.compile(r"\d(?:[\s,;]|\.0|[01]{7})")
_CONTROLS = "".join(map(chr, (*range(8), *range(14, 27), *range(127, 160))))
_AT, _AT_WORD = re.compile(r"[\[({]\s*(?:@|[aA][tT])\s*[\])}]"), re.compile(r" at (?=[\w.-]+ dot \w)")
_DOT, _DOT_WORD = re.compile(r"[\[({]\s*(?:\.|[dD][oO][tT])\s*[\])}]"), re.compile(r" dot (?=\w)")
_SCHEME = re.compile(r"[\[({](:/*|/+)[\])}]")
# A line that quoted-printable broke; a word of a mail header, and the space between two of them.
_BROKEN_LINE = re.compile(r"=[ \t]*\r?\n")
_MAIL_WORD = re.compile(r"=\?([\w-]+)\?([bBqQ])\?([^?\s]*)\?=(?:\s+(?==\?))?")
_MAIL_UTF7 = re.compile("&([A-Za-z0-9+,]{2,})-")
_REQUEST = re.compile(r"(?m)^[A-Z]{3,7} (/\S*) HTTP/[\d.]+\r?\n(?:.+\n){0,20}?[Hh]ost: *(\S+)")
WORD = re.compile(r"[^\W_]+")
_PUNYCODE = re.compile(r"(?i)(?<![a-z0-9-])xn--[a-z0-9-]{1,59}+(?![a-z0-9-])")
_STRINGS = re.compile(rb"(?:[\t\n\r\x1b -~]|[\xc2-\xf4][\x80-\xbf]{1,3}){8,}")
_BINARY = re.compile(rb"[\x00-\x08\x0e-\x1a\x1c-\x1f]")
_QUOTES, _STRING = re.compile(r"[=:(,\[+]\s*[\"']"), re.compile(r"'([^'\n]*)'|\"([^\"\n]*)\"")
_OPENING, _JSON = re.compile(r"[{\[]\s*[\"'{\[\d]"), json.JSONDecoder(strict=False)
# Letters in circles and squares, and the invisible letters of tags.
_DISGUISING = "".join(map(chr, (*range(0x2460, 0x2500), *range(0x1F110, 0x1F200), *range(0xE0020, 0xE007F))))
_ANY, _HIGH = re.compile(""), "".join(map(chr, range(0xA0, 0x100)))
_PLAIN_LETTERS = {code: code - 0xE0000 for code in range(0xE0020, 0xE007F)} | {
    start + at: 65 + at for start in (0x1F150, 0x1F170, 0x1F1E6) for at in range(26)
}
# Greek and Cyrillic letters beside Latin ones that they look like.
_ALIKE_SCRIPTS = "".join(map(chr, range(0x370, 0x530)))
_MIXED = re.compile("[A-Za-z.:/][\u0370-\u052f]|[\u0370-\u052f][A-Za-z.:/]")
_ALIKE = str.maketrans(
    "\u0391\u0392\u0395\u0396\u0397\u0399\u039a\u039c\u039d\u039f\u03a1\u03a4\u03a5\u03a7\u03bf\u03bd\u0410\u0412\u0415"
    "\u041a\u041c\u041d\u041e\u0420\u0421\u0422\u0423\u0425\u0430\u0435\u043e\u0440\u0441\u0443\u0445\u0456\u0458\u0455",
    "ABEZHIKMNOPTYXovABEKMHOPCTYXaeopcyxijs",
)
# Inside of an address: characters that a reader does not see, and those that look alike.
_UNSEEN = re.compile(
    "[\0\u00ad\u0300-\u036f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f"
    "\u20d0-\u20f0\ufe00-\ufe0f\ufeff\ufff9-\ufffb]"
)
# An address may be broken over lines, also of a comment or of a mail that quotes it.
LINE_BREAKS = re.compile(r"(?<![ \t])[ \t]*+\r?\n[\s>|#*]*"), re.compile(r"[ \t]*+\r?\n[\s>|#*/;-]*")
_SIMILAR = str.maketrans("\u2010\u2011\u2012\u2013\u2014\u2015\u2212\u2044\u2215\u29f8\\", "-------////")


class _Decoder(NamedTuple):
    """A way to decode: signs and a pattern without which nothing is encoded, and whether what fits is likely meant."""

    name: str
    signs: str
    pattern: re.Pattern[str]
    decode: Callable[[str], str]
    is_sure: bool = True


def _replace(name: str, signs: str, pattern: re.Pattern[str], new: Any, *, is_sure: bool = True) -> _Decoder:
    return _Decoder(name, signs, pattern, partial(pattern.sub, new), is_sure)


def _remember_short(read: Callable[[Value], Reading]) -> Callable[[Value], Reading]:
    """Keep what was read from short values: several forms of one value have the same bytes in them."""
    remembered = lru_cache(maxsize=2_000)(read)
    return lambda value: remembered(value) if len(value) < CACHED_CHARS else read(value)


def _unescape(text: str) -> str:
    """Decode the escapes of JSON, programming languages and patterns, wherever they are."""

    def decode(escape: re.Match[str]) -> str:
        if sign := escape["sign"]:
            return {"n": "\n", "r": "\n", "t": "\t"}.get(sign, sign.strip("bf\n"))
        octal = escape["octal"]
        code = int(octal, 8) if octal else int(next(digits for digits in escape.groups() if digits), 16)
        return chr(code) if code <= sys.maxunicode else "\ufffd"

    return _ESCAPE.sub(decode, text)


def _decode_codes(name: str, signs: str, notation: str, base: int, *, is_sure: bool = False) -> _Decoder:
    """Return what decodes characters, or halves of them, that are written as numbers."""

    def decode(found: re.Match[str]) -> str:
        code = int(found[1], base)
        return chr(code % 0x10000 if code < 0 else code) if code <= sys.maxunicode else "\ufffd"

    return _replace(name, signs, re.compile(notation), decode, is_sure=is_sure)


def _replace_references(text: str) -> str:
    """Replace character references, however many digits they have."""
    return html.unescape(_LONG_REFERENCE.sub("\ufffd", _PADDED_REFERENCE.sub(r"&#\1", text)))


def _decode_bytes(sign: str) -> Callable[[str], str]:
    """Return what decodes bytes in hexadecimal digits behind a sign; they are UTF-8, else Latin-1."""
    run = re.compile(rf"(?:{sign}[0-9a-fA-F]{{2}})+")

    def decode(found: re.Match[str]) -> str:
        data = bytes.fromhex(found[0].replace(sign, ""))
        with suppress(UnicodeDecodeError):
            return data.decode()
        return (_read_bytes(data) if len(data) > LEAST_WIDE else None) or data.decode("latin-1")

    return partial(run.sub, decode)


@_remember_short
def _read_bytes(data: bytes) -> str | None:
    """Return what text these bytes may be, or have in them: in UTF-8, another encoding, or packed; else None."""
    for start, unpacker in _UNPACKERS.items():
        with suppress(ValueError, OSError, EOFError, MemoryError, lzma.LZMAError, zlib.error):
            data = _unpack(unpacker(), data) if data.startswith(start) else data
    with suppress(UnicodeDecodeError):
        if _is_readable(text := data.decode()):
            return text
    found = list(_read_legacy(data)) if not _BINARY.search(data) else []
    with suppress(ValueError, zlib.error):
        if _is_text(text := _unpack(zlib.decompressobj(-15), data).decode()):
            return text
    is_plain = len(data) < LEAST_WIDE or sum(map(data.count, range(0x20, 0x7F))) > 0.9 * len(data)
    encodings = () if is_plain else ("utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be")
    found += [text for encoding in encodings if _is_text(text := data.decode(encoding, "ignore"))]
    strings = (text for part in _STRINGS.findall(data) if _is_text(text := part.decode("utf-8", "ignore")))
    return BETWEEN.join((*found, "\n".join(strings))).removesuffix(BETWEEN) or None


def _read_legacy(data: bytes) -> Iterator[str]:
    """Yield what bytes are in encodings before UTF-8, if it looks like a text."""
    for encoding in LEGACY:
        with suppress(UnicodeDecodeError):
            if _is_text(text := data.decode(encoding)) and len(data) >= LEAST_WIDE:
                yield text


def _is_readable(text: str) -> bool:
    return "\ufffd" not in text and "".join(_UNSEEN.sub("", text).split()).rstrip(CUT).isprintable()


def _is_text(text: str) -> bool:
    """Whether most of a text is letters of one script, and hardly a sign is odd: other bytes are no text as these."""
    text = text[:LOOK]
    if text.isascii() and len(text) >= LEAST_WIDE:
        return _is_readable(text)
    kinds = [(ord(char), unicodedata.category(char)) for char in text]
    letters = [code for code, kind in kinds if kind[0] in "LM" and code >= 0x80]
    scripts = Counter(0 if code < 0x250 else 1 if 0x3040 <= code < 0xA000 else code >> 8 for code in letters)
    known = sum(kind[0] in "LMN" or code == 32 for code, kind in kinds)
    others = len(letters) - max(scripts.values(), default=0) + (scripts[0] > known // 4) * scripts[0]
    odd = sum(kind in ("Co", "Cn", "Cc", "So", "Sk", "Sc") and code < 0x1F000 for code, kind in kinds)
    odd += others + sum(map(text.count, "\xa1\xaa\xb2\xb3\xb9\xba\xbc\xbd\xbe\xbf")) - sum(map(text.count, "\t\n\r"))
    odd += sum(left.islower() and right.isupper() for left, right in pairwise(text)) // 2
    if letters and not scripts[0]:
        odd += sum(a.isascii() != b.isascii() and a.isalpha() and b.isalpha() for a, b in pairwise(text))
    return 5 * known > 3 * len(text) and 12 * odd <= len(text) and "\ufffd" not in text


def _unpack(unpacker: Any, data: bytes) -> bytes:
    most = UNPACKED_FLOOR + UNPACKED_RATIO * len(data)
    unpacked: bytes = unpacker.decompress(data, most)
    return unpacked + (CUT.encode() if len(unpacked) >= most else b"")


_UNPACKERS: dict[bytes, Callable[[], Any]] = {
    **dict.fromkeys((b"\x1f\x8b", b"x"), lambda: zlib.decompressobj(47)),
    b"BZh": bz2.BZ2Decompressor,
    **dict.fromkeys((b"\xfd7z", b"]\0\0"), lambda: lzma.LZMADecompressor(memlimit=UNPACKING_MEMORY)),
}


def _decode_base64(text: str) -> str:
    """Decode Base64 in either alphabet, or Base32: the whole value, which may have line breaks, and every long run."""

    def decode(packed: str) -> str:
        plain, found = packed.translate({45: 43, 95: 47}).rstrip("="), []
        for decode_32 in (b32decode, b32hexdecode) if plain.isalnum() else ():
            with suppress(ValueError):
                found.append(_read_bytes(decode_32(plain + "=" * (-len(plain) % 8), casefold=True)))
        plain = plain[: len(plain) - (len(plain) % 4 == 1)]
        return BETWEEN.join(filter(None, (*found, _read_bytes(b64decode(plain + "=" * (-len(plain) % 4))))))

    def decode_run(run: re.Match[str]) -> str:
        return decode(run[0]) or _BASE64_PART.sub(lambda part: decode(part[0]) or part[0], run[0])

    whole = "".join(text.split())
    decoded = decode(whole) if _BASE64_WHOLE.fullmatch(whole) else ""
    runs = _BASE64_RUN.sub(decode_run, _WRAPPED.sub("", text))
    return f"{decoded}{BETWEEN}{runs}" if decoded else runs


def _decode_base85(found: re.Match[str]) -> str:
    texts = []
    for decode in (a85decode, b85decode) if found[2] else (a85decode,):
        with suppress(ValueError):
            text = _read_bytes(decode((found[1] or found[2]).encode()))
            texts += [text] if text and BETWEEN not in text else []
    return BETWEEN.join(texts) or found[0]


def _decode_digits(run: re.Match[str]) -> str:
    """Decode octets of binary digits, or the decimal or octal numbers of bytes or characters."""
    octets = re.findall("[01]{8}", run[0])
    words = re.split(r"[\s,;]+", run[0].replace(".0", ""))
    numbers = [int(octet, 2) for octet in octets] if octets else [int(word) for word in words]
    is_octal = all(re.fullmatch("[0-3]?[0-7]{2}", word) for word in words)
    if is_octal and (octal := _read_bytes(bytes(int(word, 8) for word in words))):
        return octal
    are_bytes = min(numbers) >= -128 and max(numbers) < 256
    if are_bytes and (text := _read_bytes(bytes(number % 256 for number in numbers))):
        return text
    text = "".join(chr(number) if 0 <= number <= sys.maxunicode else " " for number in numbers)
    text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text if _is_text(text) else run[0]


def _read_characters(text: str) -> str:
    with suppress(UnicodeEncodeError):
        return _read_bytes(text.encode("latin-1")) or text
    return text


def _decode_hex(text: str) -> str:
    return _HEX_RUN.sub(lambda run: _read_bytes(bytes.fromhex(re.sub(r"0x|[\s:,-]", "", run[0]))) or run[0], text)


def _decode_hex_numbers(run: re.Match[str]) -> str:
    text = "".join(chr(min(int(word, 16), sys.maxunicode)) for word in re.split(r"[\s,;]+", run[0]))
    return text if _is_text(text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")) else run[0]


def _decode_dump(dump: re.Match[str]) -> str:
    rows = (_DUMP_LINE.match(line) for line in dump[0].strip().splitlines())
    data = re.sub(r"\W", "", "".join(row[1] for row in rows if row))
    return _read_bytes(bytes.fromhex(data[: len(data) // 2 * 2])) or dump[0]


def _decode_uu(lines: re.Match[str]) -> str:
    with suppress(binascii.Error):
        return _read_bytes(b"".join(map(binascii.a2b_uu, lines[1].splitlines()))) or lines[0]
    return lines[0]


def _decode_mail_word(word: re.Match[str]) -> str:
    with suppress(ValueError, LookupError):
        data = b64decode(word[3] + "===") if word[2] in "bB" else binascii.a2b_qp(word[3].encode(), header=True)
        return data.decode(word[1])
    return word[0]


def _decode_mail_utf7(run: re.Match[str]) -> str:
    packed = run[1].replace(",", "/")
    return b64decode(packed[: len(packed) - (len(packed) % 4 == 1)] + "==").decode("utf-16-be", "ignore")


def _repair_mojibake(encoding: str) -> "_Decoder":
    """Return what repairs UTF-8 that was read in this encoding; where it has no character, the reader kept the byte."""
    numbers = {chr(byte): byte for byte in range(0x80, 0xA0)}
    numbers |= {char: byte for byte in range(0x80, 0x100) if (char := bytes([byte]).decode(encoding, "ignore"))}
    later, two, three, four = (
        re.escape("".join(char for char, byte in numbers.items() if byte in each))
        for each in (range(0x80, 0xC0), range(0xC2, 0xE0), range(0xE0, 0xF0), range(0xF0, 0xF5))
    )
    run = re.compile(f"(?:(?:[{two}]|[{three}][{later}]|[{four}][{later}][{later}])[{later}])+")

    def repair(found: re.Match[str]) -> str:
        return bytes(map(numbers.__getitem__, found[0])).decode("utf-8", "ignore") or found[0]

    signs = "".join(char for char, byte in numbers.items() if byte >= 0xC2)
    return _replace("mojibake", signs, run, repair, is_sure=encoding == MISREAD[0])


def _repair_wide_mojibake(run: re.Match[str]) -> str:
    text = run[0].encode("gb18030", "ignore").decode("utf-8", "ignore")
    return text if 3 * len(text) >= len(run[0]) else run[0]


def _read_misread(run: re.Match[str]) -> str:
    return BETWEEN.join(_read_legacy(run[0].encode("latin-1"))) or run[0]


def _decode_punycode(label: re.Match[str]) -> str:
    try:
        return label[0][4:].lower().encode().decode("punycode")
    except (UnicodeError, OverflowError):
        return label[0]


def _read_quotes(text: str) -> str:
    return PART.join(first or second for first, second in _STRING.findall(text)) or text


def _read_structures(text: str) -> str:
    """Read JSON and lists and dicts of Python inside of a text as if they were payloads."""
    found, at, failures = [], 0, 0
    with suppress(ValueError, SyntaxError, MemoryError, RecursionError):
        found += [ast.literal_eval(text.strip())] if len(text) < MAX_PYTHON and "'" in text else []
    while not found and failures < MAX_JSON and (opening := _OPENING.search(text, at)):
        try:
            value, at = _JSON.raw_decode(text, opening.start())
            found.append(value)
        except (ValueError, RecursionError):
            at, failures = opening.start() + 1, failures + 1
    return BETWEEN.join(part for value in found for _, part, _ in _read_tree(value)) or text


_decode_percent, _decode_equals, _decode_dashes = map(_decode_bytes, "%=-")


LINES, ADDRESSES, DISGUISES = "lines with numbers, times and speakers", "addresses in words", "letters in disguise"
DIGITS = "0123456789"
DECODERS = (
    _Decoder("JSON in CSV", '"', re.compile(r'[{\[]""'), lambda text: text.replace('""', '"')),
    _Decoder("JSON and Python inside of texts", "{[", _OPENING, _read_structures),
    _Decoder("JSON escapes and those of programming languages", "\\+`", re.compile(r"\\|U\+|`u\{"), _unescape),
    _Decoder("strings in quotes", "\"'", _QUOTES, _read_quotes, is_sure=False),
    _replace("words of mail headers", "?", _MAIL_WORD, _decode_mail_word),
    # Before entities, which it may break over lines.
    _Decoder("quoted-printable", "=", re.compile("="), lambda text: _decode_equals(_BROKEN_LINE.sub("", text))),
    _Decoder("entities", "&", re.compile("&"), _replace_references),
    _decode_codes("URL encoding", "%", "%u([0-9a-fA-F]{4})", 16, is_sure=True),
    _Decoder("URL encoding", "%", re.compile("%"), lambda text: _decode_percent(text.replace("+", " "))),
    _Decoder("rewritten links", "_", re.compile("-3A__"), lambda text: _decode_dashes(text.replace("_", "/"))),
    _replace("hexadecimal dumps", "\n:|", _DUMP, _decode_dump),
    _replace("uuencode", "\n", _UUENCODED, _decode_uu),
    _Decoder("Base64 and Base32", "", _BASE64, _decode_base64),
    _Decoder("hexadecimal digits", DIGITS, _HEX, _decode_hex),
    _Decoder("numbers of bytes and characters", DIGITS, _NUMBERS, lambda text: _DIGITS.sub(_decode_digits, text)),
    _Decoder("bytes as characters", _CONTROLS, _ANY, _read_characters),
    *map(_repair_mojibake, MISREAD),
    _Decoder(DISGUISES, _DISGUISING, _ANY, lambda text: unicodedata.normalize("NFKC", text.translate(_PLAIN_LETTERS))),
    _replace("Punycode", "-", _PUNYCODE, _decode_punycode),
    _Decoder(ADDRESSES, "[({", _ANY, lambda text: _AT.sub("@", _DOT.sub(".", _SCHEME.sub(r"\1", text)))),
    _Decoder(ADDRESSES, " ", _DOT_WORD, lambda text: _DOT_WORD.sub(".", _AT_WORD.sub("@", text))),
    _replace(ADDRESSES, "/", _REQUEST, r"\2\1"),
    _replace(LINES, ">", _SUBTITLE, ""),
    _replace(LINES, ":", _TIMED, ""),
    _replace(LINES, "\n", _NUMBERED, "", is_sure=False),
    _replace(LINES, "\n", _QUOTED, "", is_sure=False),
    _Decoder("markup", "<\x1b\b[", _ANY, partial(MARKUP.sub, "")),
    # Several of these may seem to fit.
    _replace("markup", "\\", _COMMAND, "", is_sure=False),
    _decode_codes("SQL escapes", "\\", r"\\(\+[0-9a-fA-F]{6}|[0-9a-fA-F]{4})", 16),
    _decode_codes("CSS escapes", "\\", r"\\([0-9a-fA-F]{1,6})\s?", 16),
    _decode_codes("RTF escapes", "\\", r"\\u(-?\d{1,5}) ?\??", 10),
    _decode_codes("decimal escapes", "\\", r"\\(\d{1,3})", 10),
    _decode_codes("calls of CHR", "(", r"(?i)\bn?cha?r\w?\(\s*(\d{1,7})\s*\)[\s|&+.,]*", 10),
    _replace("UTF-7", "&", _MAIL_UTF7, _decode_mail_utf7, is_sure=False),
    _Decoder(
        "UTF-7",
        "+",
        re.compile(r"\+[A-Za-z]"),
        lambda text: text.encode("ascii", "ignore").decode("utf-7", "replace"),
        is_sure=False,
    ),
    _Decoder("hexadecimal digits", DIGITS, _HEX_PAIR, partial(_HEX_NUMBERS.sub, _decode_hex_numbers), is_sure=False),
    _Decoder("Base85", "!#$%&;<=>?@^`{|}~", _BASE85_PART, partial(_BASE85.sub, _decode_base85), is_sure=False),
    _replace("mojibake", "", re.compile("[\u4e00-\u9fff][^\x00-\x7f]*[@-~]?"), _repair_wide_mojibake, is_sure=False),
    _replace("misread bytes", _HIGH, re.compile("[\xa0-\xff]{4}[ -~\xa0-\xff]*"), _read_misread, is_sure=False),
    _Decoder(DISGUISES, _ALIKE_SCRIPTS, _MIXED, lambda text: text.translate(_ALIKE), is_sure=False),
)
# The numbers of the decoders that a character may need, and of those that need none.
_SIGNS: dict[str, list[int]] = defaultdict(list)
for _number, _each in enumerate(DECODERS):
    for _char in _each.signs:
        _SIGNS[_char].append(_number)
_ALWAYS, _ALWAYS_WIDE = (_number for _number, _each in enumerate(DECODERS) if not _each.signs)
FORMS = (
    "as stored: texts, names of fields, ids, numbers, items of lists, comments, link targets, and all values together",
    "in parts: in several fields, columns or items of a list, in order; of up to 1,000 short texts, in any order",
    f"decoded, several times over: {', '.join(dict.fromkeys(each.name for each in DECODERS))}",
    "turned around and in ROT13, from eight letters on, if all texts together have fewer than a million letters",
    "as a reader sees it: without markup, comments, link targets, case, accents, invisible characters and punctuation",
)


def plain_address(text: str) -> str:
    """Write addresses in a text in one way: Unicode hosts, no accents and invisible characters, no empty segments."""
    text = unicodedata.normalize("NFKD", _PUNYCODE.sub(_decode_punycode, text)).casefold()
    text = re.sub(r"(?<!:)/(?:\.?/)+", "/", _UNSEEN.sub("", unicodedata.normalize("NFKD", text)).translate(_SIMILAR))
    return re.sub(r"/(?!\.\./)[^/\s?#]+/\.\.(?=/)", "", text) if "/../" in text else text


@_remember_short
def read_forms(value: str) -> tuple[Sequence[tuple[str, str]], bool]:
    """Return a value as it is stored, each form that it can be decoded to, with how, and whether these are all."""
    forms, left, is_whole = {value: ""}, MAX_READ, len(value) < MAX_READ
    queue = [(0, 0, 0, value)] if is_whole else []
    while queue:
        detours, rounds, _, text = heappop(queue)
        ways = 0
        for decoder, form in _decode_once(text):
            cost, ways = detours + (ways if decoder.is_sure else 1), ways + decoder.is_sure
            if cost > MAX_DETOURS - (len(value) > LONG) or form in forms:
                continue
            left -= len(form) + len(text) // 4
            is_whole = is_whole and CUT not in form
            if left < 0 or len(forms) > MAX_FORMS or rounds > MAX_ROUNDS:
                return [(how, form) for form, how in forms.items()], False
            forms[form] = SEVERAL if rounds > 1 else f"{forms[text] or 'decoded from'} {decoder.name}"
            heappush(queue, (cost, rounds + 1, len(forms), form))
    return [(how, form) for form, how in forms.items()], is_whole


def _decode_once(text: str) -> Iterator[tuple[_Decoder, str]]:
    """Yield the text decoded in each way that may apply; half of a character is replaced."""
    numbers = {number for char in _SIGNS.keys() & set(text) for number in _SIGNS[char]}
    for number in sorted(numbers | ({_ALWAYS} if text.isascii() else {_ALWAYS, _ALWAYS_WIDE})):
        decoder = DECODERS[number]
        if decoder.pattern.search(text):
            form = decoder.decode(text).encode("utf-16", "surrogatepass").decode("utf-16", "replace")
            if form != text:
                yield decoder, form


def read_values(point: Point, payloads: PayloadMap) -> Iterator[tuple[str, str, bool]]:
    """Yield the text of a chunk, its id, and all names and values, with their paths and whether they may be encoded."""
    text = payloads.find_text(point)
    if text is not None:
        yield "text", text, True
    yield "id of the point", str(point.id), False
    yield from (each for each in _read_tree(point.payload) if each[1] != text)


def _read_tree(tree: Any) -> Iterator[tuple[str, str, bool]]:
    """Yield all names and values, with their paths and whether they may be encoded.

    JSON in a string is read like the payload that it is in. The items of a list may be the characters or the bytes of a
    text, and a text may be spread over values: those of fields with one name, of a column, or all of them.
    """
    names: list[str] = []
    together: dict[str, list[str]] = defaultdict(list)
    stack: list[tuple[str, str, Any]] = [("", "", tree)]
    while stack:
        path, name, value = stack.pop()
        if isinstance(value, Mapping):
            names += map(str, value)
            if not all(str(key).isdecimal() for key in value):
                stack += reversed([(f"{path}.{key}".removeprefix("."), str(key), item) for key, item in value.items()])
                continue
            value = [value[key] for key in sorted(value, key=int)]
        if isinstance(value, list | tuple | set | frozenset):
            column = f"{path}[" if path.endswith("]") else ""
            is_vector = any(isinstance(item, float) and not item.is_integer() for item in value)
            # Many numbers or characters are read together alone.
            if is_vector or len(value) >= MANY:
                alone = [item for item in value if not isinstance(item, int | float) and len(item or "") != 1]
            else:
                alone = list(value)
            stack += reversed(
                [(f"{path}[]", f"{column}{at}" if column else name, each) for at, each in enumerate(alone)]
            )
            items = [_write(item) for item in value if isinstance(item, str | int | float | bytes)]
            yield f"{path}[]", ("" if max(map(len, items), default=0) == 1 else " ").join(items), not is_vector
        elif value is not None and not isinstance(value, bool):
            inner = parse_json(value)
            stack += [(path, name, inner)] if inner is not None else []
            yield path, _write(value), inner is None
            if inner is None:
                together[""].append(_write(value))
                together[name].append(_write(value))
    yield "names of fields", PART.join(names), True
    for values in together.values():
        if len(values) > 1:
            yield SEVERAL_FIELDS, PART.join(values), False
            yield SEVERAL_FIELDS, " ".join(reversed(values)), False


def _write(value: str | float | bytes) -> str:
    if isinstance(value, bytes):
        return _read_bytes(value) or ""
    return f"{value:.0f}" if isinstance(value, float) and value.is_integer() else str(value)
