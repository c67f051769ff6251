"""Find texts that are nearly the same: fingerprints, sketches and similarity.

Two texts with one fingerprint differ only in whitespace, case, Unicode form, HTML entities or invisible characters.
Two texts that share a key of their sketches are candidates: a quarter of the words in common, in the same order, is
usually enough. `similarity` then compares the whole texts.
"""

import unicodedata
import zlib
from collections.abc import Iterable, Iterator, Sequence
from hashlib import sha256
from heapq import nsmallest

from pydantic import Field

from chunkproof.contract import Model
from chunkproof.proof.integrity import remove_invisible, shorten_runs, unescape_html


class RepeatedResults(Model):
    """Results whose text a higher-ranked result of the same query has already."""

    queries: int
    results: int = Field(description="Results of all queries")
    repeated: int = Field(description="Results with the text of a higher-ranked one")
    share: float = Field(description="Repeated results among all; between 0 and 1")
    queries_affected: int
    worst: float = Field(description="The largest share among the results of one query")


def count_repeated(results: Iterable[Sequence[str]]) -> RepeatedResults:
    """Count repeated texts; each item has the texts (or their hashes) of one query's results."""
    queries = total = repeated = affected = 0
    worst = 0.0
    for texts in results:
        extra = len(texts) - len(set(texts))
        queries += 1
        total += len(texts)
        repeated += extra
        affected += extra > 0
        worst = max(worst, extra / len(texts) if texts else 0.0)
    return RepeatedResults(
        queries=queries,
        results=total,
        repeated=repeated,
        share=repeated / total if total else 0.0,
        queries_affected=affected,
        worst=worst,
    )


# Words, or characters where words are not separated, of one shingle.
SHINGLE_WORDS = 4
SHINGLE_CHARS = 8
# A text whose words are longer than this on average is compared by characters: Chinese, Japanese, encoded data.
LONG_WORDS = 20
# Of a longer text, the beginning is compared.
MAX_CHARS = 200_000
# Texts with half of their shingles in common share one of eight in 99.6 % of cases, with a third in 96 %.
SKETCH_SIZE = 8
# The ends of a text are keys too: of a text that was cut, little more than its beginning may be left.
END_CHARS = 32


def normalize_text(text: str) -> str:
    """Return the text without differences of form: NFKC, one case, entities decoded, nothing invisible."""
    plain = remove_invisible(unescape_html(shorten_runs(text[:MAX_CHARS])))
    return unicodedata.normalize("NFKC", shorten_runs(plain)).casefold()


def fingerprint(text: str) -> str:
    """Return a hash that texts share when they differ in form alone."""
    return sha256("".join(normalize_text(text).split()).encode("utf-8", "surrogatepass")).hexdigest()


def shingles(text: str) -> set[int]:
    """Return the hashes of every few words (or characters) of a text in a row; none for a blank text."""
    plain = normalize_text(text)
    words = plain.split()
    if not words:
        return set()
    if len(plain) > LONG_WORDS * len(words):
        joined = "".join(words)
        parts = (joined[at : at + SHINGLE_CHARS] for at in range(max(1, len(joined) - SHINGLE_CHARS + 1)))
    else:
        parts = (" ".join(words[at : at + SHINGLE_WORDS]) for at in range(max(1, len(words) - SHINGLE_WORDS + 1)))
    return {zlib.crc32(part.encode("utf-8", "surrogatepass")) for part in parts}


def sketch_keys(text: str) -> Iterator[str]:
    """Yield the keys of a text; two texts that are nearly the same have one in common."""
    plain = "".join(normalize_text(text).split())
    if not plain:
        return
    yield f"f{sha256(plain.encode('utf-8', 'surrogatepass')).hexdigest()[:32]}"
    if len(plain) >= END_CHARS:
        yield f"b{zlib.crc32(plain[:END_CHARS].encode('utf-8', 'surrogatepass')):08x}"
        yield f"e{zlib.crc32(plain[-END_CHARS:].encode('utf-8', 'surrogatepass')):08x}"
    yield from (f"s{each:08x}" for each in nsmallest(SKETCH_SIZE, shingles(text)))


def similarity(left: set[int], right: set[int]) -> float:
    """Return the share of all shingles that both texts have (Jaccard); 0 for a blank text."""
    common = len(left & right)
    return common / (len(left) + len(right) - common) if common else 0.0


def containment(part: set[int], whole: set[int]) -> float:
    """Return the share of the first text's shingles that the second one has."""
    return len(part & whole) / len(part) if part else 0.0
