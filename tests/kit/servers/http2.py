"""Bytes of HTTP/2, for clients that no library can be: deaf clients, clients cut off anywhere."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator

DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY, WINDOW_UPDATE = 0, 1, 3, 4, 6, 7, 8
END_STREAM, END_HEADERS = 1, 4
ACK = 1  # flag of a ping and of settings
INITIAL_WINDOW_SIZE = 4
_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"


def frame(kind: int, flags: int, stream: int, content: bytes) -> bytes:
    """Return a frame of HTTP/2 (RFC 9113, section 4.1)."""
    return struct.pack(">I", len(content))[1:] + struct.pack(">BBI", kind, flags, stream) + content


def header(name: bytes, value: bytes) -> bytes:
    """Return a header as a literal that is not indexed (RFC 7541, section 6.2.2)."""
    return b"\0" + bytes([len(name)]) + name + bytes([len(value)]) + value


def connecting(*, window: int = 65_535) -> bytes:
    """Return the bytes that start a connection.

    `window` is the number of bytes of answers that the client accepts; with 0 the client accepts
    none.
    """
    return _PREFACE + frame(SETTINGS, 0, 0, struct.pack(">HI", INITIAL_WINDOW_SIZE, window))


def opening(path: str, *more: tuple[bytes, bytes], window: int = 65_535, stream: int = 1) -> bytes:
    """Return the bytes that start a connection, if `stream` is its first, and a call on the stream.

    `more` has further headers; `window` is as for `connecting`.
    """
    headers = (
        (b":method", b"POST"),
        (b":scheme", b"http"),
        (b":path", path.encode()),
        (b":authority", b"localhost"),
        (b"content-type", b"application/grpc"),
        (b"te", b"trailers"),
        *more,
    )
    begin = connecting(window=window) if stream == 1 else b""
    return begin + frame(HEADERS, END_HEADERS, stream, b"".join(header(*pair) for pair in headers))


def message(content: bytes) -> bytes:
    """Return an uncompressed message of gRPC."""
    return struct.pack(">BI", 0, len(content)) + content


def data(content: bytes, *, last: bool = False, stream: int = 1) -> bytes:
    """Return content of the call, cut into frames of HTTP/2."""
    pieces = [content[start : start + 16_384] for start in range(0, len(content), 16_384)] or [b""]
    return b"".join(
        frame(DATA, END_STREAM if last and number == len(pieces) else 0, stream, piece)
        for number, piece in enumerate(pieces, 1)
    )


async def until_answered(reader: asyncio.StreamReader) -> None:
    """Read until the headers of an answer arrive."""
    kind = None
    while kind != HEADERS:
        start = await reader.readexactly(9)
        kind = start[3]
        await reader.readexactly(int.from_bytes(start[:3], "big"))


async def frames(reader: asyncio.StreamReader) -> AsyncIterator[tuple[int, int, bytes]]:
    """Yield the kind, the flags and the content of each frame, until the connection ends."""
    while start := await reader.read(1):
        start += await reader.readexactly(8)
        yield start[3], start[4], await reader.readexactly(int.from_bytes(start[:3], "big"))
