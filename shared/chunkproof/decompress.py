"""Gzip undone within bounds: a few bytes of it can hold gigabytes."""

import zlib


class DecompressedTooLargeError(Exception):
    """What comes out is more than was allowed; no more than that was unpacked."""


# Nobody splits a body so much, and each member costs a copy of what is left.
MAX_MEMBERS = 100
GZIP = zlib.MAX_WBITS | 16
GZIP_OR_DEFLATE = zlib.MAX_WBITS | 32


def decompress(content: bytes, limit: int, wbits: int = GZIP) -> bytes:
    """All members of the content, together at most `limit` bytes; `zlib.error` or `EOFError` where it is no gzip."""
    parts, room = [], limit
    for _ in range(MAX_MEMBERS):
        unpacker = zlib.decompressobj(wbits)
        part = unpacker.decompress(content, room + 1)  # a byte more tells whether there is more
        if len(part) > room:
            raise DecompressedTooLargeError
        if not unpacker.eof:
            raise EOFError
        parts.append(part)
        room -= len(part)
        content = unpacker.unused_data
        if not content:
            return b"".join(parts)
    raise zlib.error(f"more than {MAX_MEMBERS} members")
