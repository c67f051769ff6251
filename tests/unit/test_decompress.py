"""Decompressing gzip up to a limit."""

import gzip
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chunkproof.base.files import GZIP_OR_DEFLATE, MAX_MEMBERS, DecompressedTooLargeError, decompress


@given(st.lists(st.binary(max_size=50), min_size=1, max_size=5))
def test_all_members_are_decompressed_in_order(parts: list[bytes]) -> None:
    content = b"".join(gzip.compress(part) for part in parts)
    assert decompress(content, 1_000) == b"".join(parts)


@given(st.lists(st.binary(min_size=1, max_size=20), min_size=1, max_size=4), st.integers(1, 60))
def test_content_of_the_limit_is_decompressed_and_larger_content_is_refused(parts: list[bytes], short_by: int) -> None:
    content = b"".join(gzip.compress(part) for part in parts)
    size = sum(map(len, parts))
    assert len(decompress(content, size)) == size
    with pytest.raises(DecompressedTooLargeError):
        decompress(content, max(0, size - short_by))


def test_content_with_more_than_a_hundred_members_is_refused() -> None:
    assert decompress(gzip.compress(b"") * MAX_MEMBERS, 1) == b""
    with pytest.raises(zlib.error, match="more than 100 members"):
        decompress(gzip.compress(b"") * (MAX_MEMBERS + 1), 1)


@pytest.mark.parametrize("content", [b"", b"\x1f", gzip.compress(b"abc", mtime=0)[:-1]])
def test_content_that_ends_too_early_raises_eof_error(content: bytes) -> None:
    with pytest.raises(EOFError):
        decompress(content, 100)


def test_a_zlib_stream_is_decompressed_only_if_requested() -> None:
    assert decompress(zlib.compress(b"abc"), 3, GZIP_OR_DEFLATE) == b"abc"
    with pytest.raises(zlib.error):
        decompress(zlib.compress(b"abc"), 3)
