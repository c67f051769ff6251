"""Long runs of combining marks, drawn from the whole character database, as stored and as original text."""

import sys
import time
import unicodedata

from chunkproof.proof.integrity import compare, compare_with_hash, digest

from tools.checks.attack.attack import Attack

MAX_SECONDS = 3.0
LENGTH = 300_000


def run(attack: Attack) -> None:
    """Compare texts of nothing but marks."""
    rng = attack.rng
    marks = [char for char in map(chr, range(sys.maxunicode + 1)) if _is_mark(char)]
    while attack.goes_on():
        few = "".join(rng.choices(marks, k=rng.choice((1, 2, 2, 3, 10, 500))))
        starter = rng.choice(("", "a", "e", "\u0f40"))
        text = (starter + few * (1 + LENGTH // len(few)))[:LENGTH]
        started = time.thread_time()
        compare(text, text[::-1] + "x")
        compare("x" + text, text)
        compare_with_hash(text, digest("x"))
        spent = time.thread_time() - started
        attack.note(spent, f"{spent:.1f} s for runs of {few[:10]!a}" if spent > MAX_SECONDS else None)


def _is_mark(char: str) -> bool:
    """Whether the character, or what it decomposes to, is sorted by its combining class."""
    return any(map(unicodedata.combining, unicodedata.normalize("NFKD", char))) if not char.isascii() else False
