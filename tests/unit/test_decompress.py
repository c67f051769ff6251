"""Gzip undone within bounds."""

import gzip
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chunkproof.decompress import GZIP_OR_DEFLATE, MAX_MEMBERS, DecompressedTooLargeError, decompress


@given(st.lists(st.binary(max_size=50), min_size=1, max_size=5))
def test_all_members_come_out_in_order(parts: list[bytes]) -> None:
    content = b"".join(gzip.compress(part) for part in parts)
    assert decompress(content, 1_000) == b"".join(parts)


@given(st.lists(st.binary(min_size=1, max_size=20), min_size=1, max_size=4), st.integers(1, 60))
def test_what_fits_comes_out_whole_and_a_byte_more_is_too_much(parts: list[bytes], short_by: int) -> None:
    content = b"".join(gzip.compress(part) for part in parts)
    size = sum(map(len, parts))
    assert len(decompress(content, size)) == size
    with pytest.raises(DecompressedTooLargeError):
        decompress(content, max(0, size - short_by))


def test_a_body_of_very_many_members_is_left_alone() -> None:
    assert decompress(gzip.compress(b"") * MAX_MEMBERS, 1) == b""
    with pytest.raises(zlib.error, match="more than 100 members"):
        decompress(gzip.compress(b"") * (MAX_MEMBERS + 1), 1)


@pytest.mark.parametrize("content", [b"", b"\x1f", gzip.compress(b"abc", mtime=0)[:-1]])
def test_what_ends_too_early_is_no_whole_member(content: bytes) -> None:
    with pytest.raises(EOFError):
        decompress(content, 100)


def test_a_zlib_stream_is_taken_only_where_that_is_wanted() -> None:
    assert decompress(zlib.compress(b"abc"), 3, GZIP_OR_DEFLATE) == b"abc"
    with pytest.raises(zlib.error):
        decompress(zlib.compress(b"abc"), 3)
