"""Make manifest entries from a collection as it is, and write them."""

import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Any

from chunkproof.audit.manifest import Entry, parse_checked_line
from chunkproof.audit.manifest_files import create_manifest
from chunkproof.audit.prepare import encode_id, point_key
from chunkproof.audit.reader import Reader
from chunkproof.audit.sort import Sorter
from chunkproof.errors import CorruptChunkError
from chunkproof.retrieval.integrity import digest
from chunkproof.retrieval.lookup import parse_point_id, point_id_for


def write_manifest(entries: Iterable[Entry], output: Path) -> int:
    """Write the entries sorted by point id, and return their number."""
    with tempfile.TemporaryDirectory() as folder:
        by_point = Sorter(Path(folder))
        for entry in entries:
            by_point.add(f"{point_key(entry.expected_point_id)}\t".encode() + entry.to_line())
        with create_manifest(output) as file:
            file.writelines(line.partition(b"\t")[2] for line in by_point)
        return by_point.count


def snapshot(reader: Reader, fields: list[str], hashed: bool, done: Any, unreadable: list[str]) -> Iterator[Entry]:
    """Yield an entry for every point as it is stored now; ids of points without a readable text are collected."""
    yield from separate_ids(_read_entries(reader, fields, hashed, done, unreadable))


def separate_ids(entries: Iterable[Entry]) -> Iterator[Entry]:
    """Give every entry an id of its own: the point's where several points share the one in their payloads."""
    with tempfile.TemporaryDirectory() as folder:
        by_id = Sorter(Path(folder))
        for entry in entries:
            by_id.add(f"{encode_id(entry.chunk_id)}\t".encode() + entry.to_line())
        for _, lines in groupby(by_id, key=lambda line: line.partition(b"\t")[0]):
            first, *others = (parse_checked_line(line.partition(b"\t")[2]) for line in lines)
            if not others and _is_unmistakable(first):
                yield first
                continue
            for entry in (first, *others):
                yield replace(entry, chunk_id=str(entry.expected_point_id), point_id=None)


def _is_unmistakable(entry: Entry) -> bool:
    """Whether the chunk id cannot be the id of another point."""
    return parse_point_id(entry.chunk_id) in (None, entry.expected_point_id)


def _read_entries(reader: Reader, fields: list[str], hashed: bool, done: Any, unreadable: list[str]) -> Iterator[Entry]:
    payloads = reader.payloads
    for page in reader.pages(None):
        for point in page.points:
            chunk_id = payloads.id_of(point)
            try:
                text = payloads.text_of(point)
            except CorruptChunkError:
                unreadable.append(chunk_id)
                continue
            values = {name: payloads.stated(name, point.payload) for name in fields}
            known = {name: value for name, value in values.items() if value is not None}
            point_id = None if point_id_for(chunk_id) == point.id else point.id
            yield build_entry(chunk_id, text, known, hashed, point_id)
        done(len(page.points))


def build_entry(
    chunk_id: str, text: str, metadata: dict[str, Any], hashed: bool, point_id: int | str | None = None
) -> Entry:
    """Make an entry with the text, or its hash."""
    return Entry(
        chunk_id,
        original_text=None if hashed else text,
        original_sha256=digest(text) if hashed else None,
        metadata=metadata or None,
        point_id=point_id,
    )
