"""Bytes of HTTP/2, for clients that no library would be: deaf ones, and ones cut off anywhere."""

from __future__ import annotations

import asyncio
import struct

DATA, HEADERS, SETTINGS = 0, 1, 4
END_STREAM, END_HEADERS = 1, 4
_INITIAL_WINDOW_SIZE = 4
_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"


def frame(kind: int, flags: int, stream: int, content: bytes) -> bytes:
    """Return a frame of HTTP/2 (RFC 9113, section 4.1)."""
    return struct.pack(">I", len(content))[1:] + struct.pack(">BBI", kind, flags, stream) + content


def header(name: bytes, value: bytes) -> bytes:
    """Return a header as a literal that is not indexed (RFC 7541, section 6.2.2)."""
    return b"\0" + bytes([len(name)]) + name + bytes([len(value)]) + value


def opening(path: str, *, window: int = 65_535) -> bytes:
    """Return what begins a connection and a call on it.

    `window`: bytes of answers that the client lets through; with 0 not one.
    """
    headers = (
        (b":method", b"POST"),
        (b":scheme", b"http"),
        (b":path", path.encode()),
        (b":authority", b"localhost"),
        (b"content-type", b"application/grpc"),
        (b"te", b"trailers"),
    )
    return (
        _PREFACE
        + frame(SETTINGS, 0, 0, struct.pack(">HI", _INITIAL_WINDOW_SIZE, window))
        + frame(HEADERS, END_HEADERS, 1, b"".join(header(*one) for one in headers))
    )


def message(content: bytes) -> bytes:
    """Return a message of gRPC, uncompressed."""
    return struct.pack(">BI", 0, len(content)) + content


def data(content: bytes, *, last: bool = False) -> bytes:
    """Return content of the call, cut into frames of HTTP/2."""
    pieces = [content[start : start + 16_384] for start in range(0, len(content), 16_384)] or [b""]
    return b"".join(
        frame(DATA, END_STREAM if last and number == len(pieces) else 0, 1, piece)
        for number, piece in enumerate(pieces, 1)
    )


async def until_answered(reader: asyncio.StreamReader) -> None:
    """Read up to the headers of an answer."""
    kind = None
    while kind != HEADERS:
        start = await reader.readexactly(9)
        kind = start[3]
        await reader.readexactly(int.from_bytes(start[:3], "big"))
