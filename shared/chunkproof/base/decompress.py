"""Decompress gzip up to a size limit: a few compressed bytes can hold gigabytes."""

import zlib


class DecompressedTooLargeError(Exception):
    """The decompressed content is larger than the limit; decompression stopped there."""


# Real content has one member or a few, and each member costs a copy of the rest.
MAX_MEMBERS = 100
GZIP = zlib.MAX_WBITS | 16
GZIP_OR_DEFLATE = zlib.MAX_WBITS | 32


def decompress(content: bytes, limit: int, wbits: int = GZIP) -> bytes:
    """Decompress all members, together at most `limit` bytes.

    Raises `zlib.error` or `EOFError` when the content is not valid gzip, or ends too early.
    """
    parts, room = [], limit
    for _ in range(MAX_MEMBERS):
        decompressor = zlib.decompressobj(wbits)
        part = decompressor.decompress(content, room + 1)  # one byte more shows that there is more
        if len(part) > room:
            raise DecompressedTooLargeError
        if not decompressor.eof:
            raise EOFError
        parts.append(part)
        room -= len(part)
        content = decompressor.unused_data
        if not content:
            return b"".join(parts)
    raise zlib.error(f"more than {MAX_MEMBERS} members")
