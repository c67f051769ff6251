import gzip
import io
import random
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from uuid import UUID, uuid5

import pytest

from chunkproof.audit import manifest_file
from chunkproof.audit.audit_report import upper_bound
from chunkproof.audit.ledger import LEDGER_FILES, SortedRows, point_key, prepare
from chunkproof.audit.manifest_file import STDIN, Entry, import_zstd, open_manifest, parse_entry
from chunkproof.base.errors import InvalidParameterError
from chunkproof.collection.lookup import NAMESPACE, point_id_for

HASH = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"  # of "test"


@pytest.mark.parametrize(
    "entry",
    [
        Entry("a", original_text="b"),
        Entry("a", original_text=""),
        Entry("a", original_sha256=HASH),
        Entry("a\tb\n«ü»", original_text='"original_text" \u2028 \x00 😀'),
        Entry("a", original_text="b", point_id=2**64 - 1),
        Entry("a", original_text="b", metadata={"url": "x", "tags": [1, None, {"y": 2.5}]}),
        Entry("original_sha256", original_text="metadata"),
    ],
)
def test_an_entry_survives_writing_and_reading(entry: Entry) -> None:
    assert parse_entry(entry.to_line()) == entry


@pytest.mark.parametrize("chunk_id", ["a", "doc 1/ü", "", "x" * 1000, "550e8400-e29b"])
def test_a_chunk_id_that_is_no_point_id_gets_a_uuid5_as_its_point(chunk_id: str) -> None:
    assert point_id_for(chunk_id) == str(uuid5(NAMESPACE, chunk_id))


def test_point_ids_and_hashes_are_normalized() -> None:
    line = b'{"chunk_id":"a","point_id":"550E8400E29B41D4A716446655440000","original_sha256":"%s"}'
    entry = parse_entry(line % HASH.upper().encode())
    assert entry.point_id == "550e8400-e29b-41d4-a716-446655440000"
    assert entry.original_sha256 == HASH


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"nonsense", "The line is not valid JSON"),
        (b"[]", "The line must be a JSON object"),
        (b'{"original_text":"x"}', "chunk_id is required"),
        (b'{"chunk_id":" ","original_text":"x"}', "chunk_id must have 1 to 1000 characters"),
        (b'{"chunk_id":"a"}', "Give original_text or original_sha256, one of them"),
        (b'{"chunk_id":"a","original_text":null}', "Give original_text or original_sha256, one of them"),
        (b'{"chunk_id":"a","original_text":"x","original_sha256":"' + HASH.encode() + b'"}', "one of them"),
        (b'{"chunk_id":"a","original_sha256":"abc"}', "original_sha256 must be 64 hexadecimal digits"),
        (b'{"chunk_id":"a","original_text":"x","original_text":"y"}', "original_text is given twice"),
        (b'{"chunk_id":"a","original_text":"\\ud800"}', "original_text has a lone surrogate"),
        (
            b'{"chunk_id":"a","original_text":"x","point_id":-1}',
            "point_id must be an unsigned integer or a UUID",
        ),
        (b'{"chunk_id":"a","original_text":"x","metadata":{"x":NaN}}', "metadata.x must be a finite number"),
        (
            b'{"chunk_id":"a","original_text":"x","metadata":{"x":1e400}}',
            "metadata.x must be a finite number",
        ),
        (b'{"chunk_id":"a","original_text":"x","metadata":{"x":1,"x":2}}', "metadata.x is given twice"),
        (b'{"chunk_id":"a","chunk\\u005fid":"b","original_text":"x"}', "chunk_id is given twice"),
        (b'{"chunk_id":"a","original_text":"x","txt":1}', "txt is not a known field"),
        (b'{"chunk_id":"a","original_text":"\xff"}', "The line is not UTF-8"),
    ],
)
def test_a_wrong_line_is_refused_with_the_reason(line: bytes, message: str) -> None:
    with pytest.raises(InvalidParameterError) as raised:
        parse_entry(line)
    assert any(message in each for each in raised.value.messages), raised.value.messages


def test_a_usual_line_is_read_as_the_model_reads_every_line(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(11)
    long, pair, lone = f'"{"x" * 1001}"', r'"\ud83d\ude00"', r'"\udc00"'
    strings = ['"a"', '"b"', '"ü"', f'"{HASH}"', '""', '" "', r'"\u2028"', r'"\\ud800"', pair, lone, long]
    others = ["null", "1", "-0.0", "1e400", "NaN", "true", "[1]", "[]", "{}", '{"a":1,"a":2}', "1" * 64]
    names = ["original_text", "original_sha256", "metadata", "present", "point_id", "x", "chunk_id"]

    def value(name: str) -> str:
        if name == "metadata" and rng.random() < 0.8:
            fields = [f"{rng.choice(strings)}:{rng.choice([*strings, *others])}" for _ in range(rng.randrange(4))]
            return "{" + ",".join(fields) + "}"
        usual = strings[:4] if rng.random() < 0.6 else [*strings, *others]
        return f'"{HASH}"' if name == "original_sha256" and rng.random() < 0.6 else rng.choice(usual)

    def read(line: bytes) -> Entry | tuple[str, ...]:
        try:
            return parse_entry(line)
        except InvalidParameterError as error:
            return tuple(error.messages)

    chosen = (["chunk_id"] * (rng.random() < 0.9) + [n for n in names if rng.random() < 0.3] for _ in range(6_000))
    lines = [("{" + ",".join(f'"{name}":{value(name)}' for name in some) + "}").encode() for some in chosen]
    found = [repr(read(line)) for line in lines]
    assert sum(each.startswith("Entry(") for each in found) > 200
    monkeypatch.setattr(manifest_file, "_is_usual", lambda _fields: False)
    assert found == [repr(read(line)) for line in lines]


def test_all_wrong_lines_are_reported_at_once_and_beyond_twenty_they_are_counted(tmp_path: Path) -> None:
    lines = [b'{"chunk_id":"a","original_text":"x"}\n', *[b"{}\n"] * 30]
    with pytest.raises(InvalidParameterError) as raised:
        prepare(lines, "m.jsonl", tmp_path)
    assert raised.value.messages[0] == "m.jsonl:2: chunk_id is required"
    assert raised.value.messages[-1] == "… and 40 more"
    with pytest.raises(InvalidParameterError, match="the manifest has no chunks"):
        prepare([b"\n"], "m.jsonl", tmp_path)


def test_a_manifest_that_ends_in_the_middle_of_a_line_is_refused_with_the_number_of_that_line(
    tmp_path: Path,
) -> None:
    whole, last = Entry("a", "x").to_line(), Entry("b", "\tü", point_id=7).to_line()
    for end in range(1, len(last) - 1):
        with pytest.raises(InvalidParameterError, match="m:2: The line is not"):
            prepare([whole, last[:end]], "m", tmp_path)


def test_a_byte_order_mark_is_ignored_on_the_first_line_only(tmp_path: Path) -> None:
    lines = [b"\xef\xbb\xbf" + Entry("a", "x").to_line(), b"\xef\xbb\xbf\n"]
    with pytest.raises(InvalidParameterError, match="m:2: "):
        prepare(lines, "m", tmp_path)
    with closing(prepare(lines[:1], "m", tmp_path)) as ledger:
        assert [chunk.entry for chunk in ledger.read()] == [Entry("a", "x")]


def test_a_prepared_manifest_has_each_chunk_once_sorted_by_point_id(tmp_path: Path) -> None:
    lines = [
        Entry("ffffffff-0000-4000-8000-000000000000", "u").to_line(),
        Entry("100", "x").to_line(),
        Entry("9", "x").to_line(),
        Entry("9", "x").to_line(),
        Entry("100", "y").to_line(),
    ]
    with closing(prepare(lines, "m", tmp_path)) as ledger:
        found = [(chunk.entry.chunk_id, bool(chunk.conflict)) for chunk in ledger.read()]
        assert found == [("9", False), ("100", True), ("ffffffff-0000-4000-8000-000000000000", False)]
        assert (ledger.manifest.entries, ledger.manifest.chunks) == (5, 3)
        first = next(ledger.read())
        assert next(chunk.entry.chunk_id for chunk in ledger.read(first.id)) == "100"


def test_the_hash_of_a_text_does_not_conflict_with_the_text(tmp_path: Path) -> None:
    lines = [Entry("a", "test").to_line(), Entry("a", original_sha256=HASH).to_line()]
    with closing(prepare(lines, "m", tmp_path)) as ledger:
        assert [chunk.conflict for chunk in ledger.read()] == [False]


def test_an_id_at_several_points_of_the_manifest_is_one_chunk(tmp_path: Path) -> None:
    lines = [
        Entry("a", "x", point_id=1).to_line(),
        Entry("b", "x").to_line(),
        Entry("a", "y", point_id=2).to_line(),
    ]
    with closing(prepare(lines, "m", tmp_path)) as ledger:
        assert {chunk.entry.chunk_id: chunk.conflict for chunk in ledger.read()} == {"a": True, "b": False}


def test_point_keys_sort_as_qdrant_orders_points() -> None:
    in_order: list[int | str] = [0, 5, 9, 10, 100, 2**63, 2**64 - 1]
    in_order += [str(UUID(int=n)) for n in (0, 1, 2**127, 2**128 - 1)]
    mixed = random.Random(3).sample(in_order, len(in_order))
    assert sorted(mixed, key=point_key) == in_order


def test_more_rows_than_the_cache_holds_are_sorted() -> None:
    rng = random.Random(5)
    rows = [(f"{rng.randrange(20_000):05d}", rng.randbytes(1_000)) for _ in range(20_000)]  # 20 MB
    by_key = SortedRows()
    for row in rows:
        by_key.add(*row)
    assert by_key.count == len(rows)
    assert list(by_key) == sorted(rows)


def test_a_manifest_that_cannot_be_read_leaves_no_file(tmp_path: Path) -> None:
    with pytest.raises(InvalidParameterError):
        prepare([b"{}\n"], "m", tmp_path)
    assert list(tmp_path.iterdir()) == []
    prepare([Entry("a", "x").to_line()], "m", tmp_path).close()
    assert [file.name for file in tmp_path.iterdir()] == [LEDGER_FILES[-1]]


def test_a_sample_is_spread_evenly_and_always_the_same(tmp_path: Path) -> None:
    lines = [Entry(str(n), "x").to_line() for n in range(1_000)]
    with closing(prepare(lines, "m", tmp_path)) as ledger:
        drawn, again, whole = (
            [int(chunk.entry.chunk_id) for chunk in ledger.read(where=ledger.draw(size, name))]
            for size, name in ((100, "sample"), (100, "again"), (1_000, "all"))
        )
    assert len(drawn) == 100
    assert drawn == sorted(drawn)
    assert 400 < sum(drawn) / 100 < 600
    assert drawn == again
    assert len(whole) == 1_000


@pytest.mark.parametrize(
    ("faults", "drawn", "bound"),
    [
        (0, 1, 0.95),
        (0, 59, 0.049508),  # the textbook: 59 items for 95/95
        (0, 1_000, 0.002991),
        (1, 93, 0.049994),  # and 93 with one defect
        (5, 5, 1.0),
    ],
)
def test_the_upper_bound_of_a_sample_is_that_of_the_textbook(faults: int, drawn: int, bound: float) -> None:
    assert upper_bound(faults, drawn) == pytest.approx(bound, abs=1e-6)


@pytest.mark.parametrize("compress", [gzip.compress, import_zstd().compress], ids=["gzip", "zstd"])
@pytest.mark.parametrize("is_pipe", [False, True], ids=["file", "pipe"])
def test_a_manifest_that_becomes_hundreds_of_times_as_large_is_refused(
    compress: Callable[[bytes], bytes], is_pipe: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each line is short enough; a real manifest of this size would have megabytes when it is compressed."""
    bomb = compress((b" " * 999_999 + b"\n") * 70)
    path = tmp_path / "manifest"
    path.write_bytes(bomb)
    pipe = io.BytesIO(bomb)
    pipe.seekable = lambda: False  # type: ignore[method-assign]
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=pipe))
    with (
        open_manifest(STDIN if is_pipe else path) as lines,
        pytest.raises(InvalidParameterError, match="more than 200 times as large and more than 64 MB"),
    ):
        for _ in lines:
            pass


@pytest.mark.parametrize("compress", [bytes, gzip.compress, import_zstd().compress], ids=["plain", "gzip", "zstd"])
def test_a_manifest_is_read_whole_from_a_file_and_from_a_pipe(
    compress: Callable[[bytes], bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = b"".join(b"%d\n" % n for n in range(400_000))
    path = tmp_path / "manifest"
    path.write_bytes(compress(content))
    pipe = io.BytesIO(path.read_bytes())
    pipe.seekable = lambda: False  # type: ignore[method-assign]
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=pipe))
    for source in (path, STDIN):
        with open_manifest(source) as lines:
            assert b"".join(lines) == content


TINY = {"empty": b"\n", "blank": b" \r\n", "valid": b'{"chunk_id":"a","original_sha256":"%s"}\n' % (b"0" * 64)}


@pytest.mark.parametrize(
    ("kind", "compress"),
    [("empty", bytes), ("blank", gzip.compress), ("empty", import_zstd().compress), ("valid", gzip.compress)],
)
def test_any_number_of_tiny_lines_is_refused_while_it_is_read(
    kind: str, compress: Callable[[bytes], bytes], tmp_path: Path
) -> None:
    """A bomb of them took a minute: it is read no further than to the limit of lines."""
    path, seen = tmp_path / "manifest", 0
    path.write_bytes(compress(TINY[kind] * 400_000))
    refused = pytest.raises(InvalidParameterError, match=r"more than 100,000 (blank )?lines")
    with open_manifest(path) as lines, refused:
        for _ in lines:
            seen += 1
    assert 100_000 <= seen < 150_000


def test_as_many_blank_lines_as_others_are_read(tmp_path: Path) -> None:
    path = tmp_path / "manifest"
    path.write_bytes(b"{}\n\n\n" * 100_000)
    with open_manifest(path) as lines:
        assert sum(1 for _ in lines) == 300_000
