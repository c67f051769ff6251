"""`chunkproof suite init`: a template, or a question for each of some chunks, which is a sentence of that chunk."""

import json
import re
from collections import Counter, defaultdict
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from importlib.resources import files
from pathlib import Path
from typing import Any
from uuid import UUID

import click

from chunkproof.base.errors import CorruptChunkError, InvalidParameterError
from chunkproof.base.files import write_new_file
from chunkproof.base.words import split_sentences
from chunkproof.collection.lookup import ids_of
from chunkproof.collection.services import Collection, LongRun
from chunkproof.proof.integrity import digest
from chunkproof.service.terminal import new_deadline
from chunkproof.suite.cases import contains
from chunkproof.suite.yaml_document import read_yaml
from chunkproof_cli import suites
from chunkproof_cli.connections import open_services
from chunkproof_cli.options import common_options, embedder_option, option, parse_options, reject_api
from chunkproof_cli.output import print_json, print_note

PAGE, MAX_SCANNED, MAX_COPIES = 250, 20_000, 10
MIN_WORDS, MAX_WORDS = 5, 30
MIN_CHARS, MAX_CHARS = 10, 200
NAME_WORDS, NAME_CHARS = 8, 60
NAMED_UUIDS = (3, 5)  # their versions
_MARKUP = re.compile(r"^[#>*\-+|\s]+|[|*`]+|(?<!\w)_+|_+(?!\w)|</?[a-zA-Z][^<>]*>", re.M)
_NOT_IN_NAMES = re.compile(r'[{}\[\]()<>"|]+')
# A number of hexadecimal digits, a ULID.
_OPAQUE = re.compile(r"[0-9a-f]{24,}|[0-7][0-9A-HJKMNP-TV-Z]{25}")
_HEADING = re.compile(r"^ {0,3}#{1,6}(?: .*)?$|^.*\n {0,3}(?:=+|-+) *$|<([hH][1-6])\b[^<]{,200}</\1>", re.M)
# A short line without punctuation, before a new sentence.
_TITLE = re.compile(r"^[^\n.!?:;,`]{1,50}\n(?=[^\W\d_a-z])", re.M)
_CODE = re.compile(r"```.*?(```|\Z)", re.S)
# Valid in JSON unescaped; YAML reads them as line ends or rejects them, and some reverse the direction of text.
_TO_ESCAPE = re.compile("[\x7f-\x9f\u2028-\u202e\u2066-\u2069\ufeff\ufffe\uffff]")
EXAMPLES = """\b
Examples:
  chunkproof suite init --from-collection -n 50 --collection handbook -o suite.yaml
  chunkproof suite init -o suite.yaml
"""


@click.command(epilog=EXAMPLES)
@option("--from-collection", "Make cases from chunks of the collection.")
@option("-n --count", "How many cases.", 50, type=click.IntRange(1, 10_000))
@option("-o output FILE", "Write the suite here.")
@common_options
@embedder_option
@reject_api("it reads the store itself")
def init(from_collection: bool, count: int, output: Path | None, **common: Any) -> None:
    """Write a starter suite: a template, or cases made from your own collection.

    A case made from a collection asks a sentence of a chunk and expects that chunk; it has the tag `generated`. Where
    ids are random, so that another import gives others, it expects the sentence or the source instead.
    """
    given = parse_options(**common)
    if output and output.exists():
        raise click.BadParameter(f"{output} exists already; name a new file", param_hint="-o")
    text, cases = files(suites).joinpath("template.yaml").read_text("utf-8"), 2
    if from_collection:
        with open_services(given) as services:
            name = services.collection(given.collection).name
            starter = build_starter(LongRun(services, name, lambda: new_deadline(services.settings)), count)
        text, cases = to_yaml(starter), len(starter.items)
        if cases < count:
            print_note(f"{cases} cases: the collection has no more chunks with a unique text")
    if given.json:
        print_json(read_yaml(text, "suite").value)
    elif output is None:
        click.echo(text, nl=False)
    if output is None:
        return
    try:
        write_new_file(output, text)
    except FileExistsError:
        raise click.BadParameter(f"{output} exists already; name a new file", param_hint="-o") from None
    print_note(f"{cases} cases are in {output}; chunkproof suite run {output} runs them")


@dataclass(frozen=True)
class KnownItem:
    """A question and the chunks that it was taken from: several if they have the same text.

    For chunks with random ids, `passage` is a text that a result must contain; without one, the ids are their sources'.
    """

    question: str
    chunk_ids: tuple[str, ...]
    passage: str | None = None


@dataclass(frozen=True)
class Starter:
    """The items for a suite, and how much of the collection they were drawn from."""

    collection: str
    items: tuple[KnownItem, ...]
    scanned: int
    total: int


def build_starter(collection: Collection, count: int) -> Starter:
    """Draw chunks at random, the same ones at every call; the longest sentence of each is its question.

    Questions and ids are distinct, and a text with too many copies is left out.
    """
    total = collection.describe().points_count
    ids: defaultdict[str, dict[str, str | None]] = defaultdict(dict)
    payloads, scanned = collection.payloads, 0
    for page in collection.scan(page_points=PAGE):
        for point in page.points:
            with suppress(CorruptChunkError):
                chunk = payloads.chunk_of(point)
                own_id, *others = ids_of(chunk.metadata)
                ids[chunk.text][own_id] = next(iter(others), None)
        scanned += len(page.points)
        if scanned >= MAX_SCANNED:
            break
    items: dict[str, KnownItem] = {}
    taken: set[str] = set()
    for text in sorted(ids, key=lambda text: sha256(f"starter {digest(text)}".encode()).digest()):
        question, own = pick_question(text), ids[text]
        if len(items) < count and question and question not in items and len(own) <= MAX_COPIES:
            if not taken & own.keys():
                items[question] = _make_item(question, text, own, are_hashes=collection.hashes.chunk_id is not None)
            taken |= own.keys()
    if not items:
        raise InvalidParameterError(f"Collection {collection.name} has no text to make questions from")
    return Starter(collection.name, tuple(items.values()), scanned, total)


def _make_item(question: str, text: str, ids: Mapping[str, str | None], *, are_hashes: bool) -> KnownItem:
    if are_hashes or not all(map(_is_random, ids)):
        return KnownItem(question, tuple(ids))
    lines = sorted((line.strip() for line in text.splitlines() if len(line) <= MAX_CHARS), key=len, reverse=True)
    passage = next((part for part in (question, *lines) if contains(text, part)), None)
    return KnownItem(question, tuple(dict.fromkeys(filter(None, ids.values()))) or tuple(ids), passage)


def _is_random(chunk_id: str) -> bool:
    """Whether another import of the same text may give another id: a random, time-based or opaque one."""
    with suppress(ValueError):
        return UUID(chunk_id).version not in NAMED_UUIDS
    return _OPAQUE.fullmatch(chunk_id) is not None


def pick_question(text: str) -> str | None:
    """Return the longest sentence of a suitable length, else the first words; None without more than headings."""
    text = _TITLE.sub("\n\n", _HEADING.sub("\n\n", text))
    prose = _CODE.sub("\n\n", text)
    sentences = (prose[begin:end] for begin, end in split_sentences(prose))
    fitting = [plain for part in sentences if _fits(plain := " ".join(_MARKUP.sub(" ", part).split()))]
    words = _MARKUP.sub(" ", text).split() or text.split()
    return max(fitting, key=len, default=" ".join(words[:MAX_WORDS])[:MAX_CHARS].strip()) or None


def _fits(sentence: str) -> bool:
    words = len(sentence.split())
    unspaced = words < MIN_WORDS and not sentence.isascii() and len(sentence) >= MIN_CHARS
    return (MIN_WORDS <= words <= MAX_WORDS or unspaced) and len(sentence) <= MAX_CHARS


def to_yaml(starter: Starter) -> str:
    """Write the suite as YAML, marked as generated."""
    source = f"{starter.scanned:,} of {starter.total:,} points" if starter.scanned < starter.total else "all points"
    lines = [
        f"# Generated by `chunkproof suite init` from collection {_quote(starter.collection)[1:-1]} ({source}).",
        "# Each question is a sentence of the chunk that it expects: enough to notice a broken index or a changed",
        "# model, but too easy to tell good retrieval from bad. Rewrite the questions as your users would ask them,",
        "# and remove the tag `generated` from those that you rewrote.",
        f"name: {_quote(f'{starter.collection} (generated)')}",
        f"collection: {_quote(starter.collection)}",
        "defaults: {top_k: 10}",
        "cases:",
    ]
    names: Counter[str] = Counter()
    for item in starter.items:
        words = [word for word in _NOT_IN_NAMES.sub(" ", item.question).split() if any(map(str.isalnum, word))]
        name = " ".join((words or item.question.split())[:NAME_WORDS])[:NAME_CHARS].strip(" .,;:")
        names[name] += 1
        lines += [
            f"  - name: {_quote(name if names[name] == 1 else f'{name} ({names[name]})')}",
            f"    query_text: {_quote(item.question)}",
            f"    expected_keywords: [{_quote(item.passage)}]  # ids are random: this stays the same"
            if item.passage
            else f"    expected_doc_ids: [{', '.join(map(_quote, item.chunk_ids))}]",
        ]
        if item.chunk_ids[1:] and not item.passage:
            lines.append("    expect: any  # the same text is stored under each of these ids")
        lines.append("    tags: [generated]")
    return "\n".join(lines) + "\n"


def _quote(text: str) -> str:
    """Quote the text so that YAML and JSON both read it."""
    return _TO_ESCAPE.sub(lambda found: f"\\u{ord(found[0]):04x}", json.dumps(text, ensure_ascii=False))
