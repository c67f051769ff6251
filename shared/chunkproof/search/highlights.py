"""Highlights: the sentence of each result that is nearest to the query, and the words that match."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from chunkproof.base.errors import ChunkproofError
from chunkproof.base.words import Match, find_terms, read_terms, split_sentences
from chunkproof.contract.query_options import Highlight, Sentence, TermMatch
from chunkproof.proof.vector_judge import cosine
from chunkproof.stores.store_port import Vector

# Processor time is about 0.1 s for each of these at worst, and a tenth of that for usual texts.
MAX_CHARS_PER_TEXT = 100_000
MAX_CHARS = 500_000
# A highlight lists so many matches and counts the others.
MAX_MATCHES = 100

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SentenceEmbedder:
    """Embeds sentences for comparison with the query's vector, at most `max_batch` in one call.

    `fits` says whether the model can read a sentence.
    """

    query_vector: Vector
    embed: Callable[[Sequence[str]], Sequence[Vector]]
    max_batch: int
    fits: Callable[[str], bool] = lambda _sentence: True


@dataclass(slots=True)
class _Candidate:
    """A sentence of a text, and which of the query's terms it has."""

    start: int
    end: int
    terms: int = 0
    matches: int = 0
    cosine: float | None = None


def highlight_texts(
    texts: Sequence[str], question: str, embedder: SentenceEmbedder | None = None, *, max_chars: int = MAX_CHARS
) -> tuple[Highlight, ...]:
    """Return a highlight for each text, of which at most `max_chars` characters are looked at in all.

    With an embedder, the sentence is the one with the highest cosine, found in one call: where the texts have more
    sentences than fit into it, those with the most terms of the question are compared. Without one, or if it fails,
    the sentence is the one with the most terms.
    """
    terms = read_terms(question)
    left = max_chars
    looked_at: list[str] = []
    for text in texts:
        looked_at.append(text[: min(left, MAX_CHARS_PER_TEXT)])
        left -= len(looked_at[-1])
    matches = [list(find_terms(text, terms)) for text in looked_at]
    candidates = [_list_sentences(text, found) for text, found in zip(looked_at, matches, strict=True)]
    if embedder is not None:
        _compare(looked_at, candidates, embedder)
    return tuple(
        Highlight(
            sentence=_choose(text, sentences),
            terms=tuple(TermMatch(term=m.term, start=m.start, end=m.end) for m in found[:MAX_MATCHES]),
            terms_found=len(found),
            partial=len(part) < len(text),
        )
        for text, part, found, sentences in zip(texts, looked_at, matches, candidates, strict=True)
    )


def _list_sentences(text: str, matches: Sequence[Match]) -> list[_Candidate]:
    """List the sentences with the number of different terms, and of matches, in each."""
    listed = []
    following = iter(matches)
    match = next(following, None)
    for start, end in split_sentences(text):
        candidate = _Candidate(start, end)
        found: set[str] = set()
        while match is not None and match.start < end:
            if match.start >= start:
                found.add(match.term)
                candidate.matches += 1
            match = next(following, None)
        candidate.terms = len(found)
        listed.append(candidate)
    return listed


def _compare(texts: Sequence[str], candidates: Sequence[list[_Candidate]], embedder: SentenceEmbedder) -> None:
    """Set the cosines of the sentences that fit into one call; none if the call fails."""
    having = sum(bool(sentences) for sentences in candidates)
    if not having:
        return
    each = max(1, embedder.max_batch // having)
    chosen: list[tuple[str, _Candidate]] = []
    for text, sentences in zip(texts, candidates, strict=True):
        best = sorted(sentences, key=lambda s: (-s.terms, -s.matches, s.start))[:each]
        written = [(text[sentence.start : sentence.end], sentence) for sentence in best]
        chosen += [(sentence, candidate) for sentence, candidate in written if embedder.fits(sentence)]
    del chosen[embedder.max_batch :]
    if not chosen:
        return
    try:
        vectors = embedder.embed([sentence for sentence, _ in chosen])
    except ChunkproofError as error:
        log.warning("Sentences could not be embedded: highlights are chosen by terms", extra={"code": error.code})
        return
    for (_, candidate), vector in zip(chosen, vectors, strict=True):
        candidate.cosine = cosine(vector, embedder.query_vector)


def _choose(text: str, sentences: Sequence[_Candidate]) -> Sentence | None:
    """Return the best sentence: by cosine, else by terms; None if nothing distinguishes one."""
    compared = [sentence for sentence in sentences if sentence.cosine is not None]
    if compared:
        best = max(compared, key=lambda s: (s.cosine or 0.0, -s.start))
        return _write(text, best, "embedding", round(best.cosine or 0.0, 6))
    matching = [sentence for sentence in sentences if sentence.terms]
    if not matching:
        return None
    # Of two with the same terms, the shorter one is more about them.
    best = min(matching, key=lambda s: (-s.terms, s.end - s.start, s.start))
    return _write(text, best, "terms", float(best.terms))


def _write(text: str, best: _Candidate, by: str, score: float) -> Sentence:
    return Sentence.model_validate(
        {"text": text[best.start : best.end], "start": best.start, "end": best.end, "by": by, "score": score}
    )
