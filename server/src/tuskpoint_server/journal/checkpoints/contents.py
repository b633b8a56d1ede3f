"""Values of channels: stored once per family of threads, and rebuilt when they are read.

A value is kept whole or as a patch on a keyframe of the same family, which is never a patch
itself. One that was evicted keeps its row without the data: it is known, and is not here.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import NamedTuple

from sqlalchemy import Connection, bindparam, select

from tuskpoint.v1 import checkpoint_pb2, segment_pb2

from ...domain.limits import LIMITS
from ...domain.model import EVICTED, Value
from ...domain.values import DamagedValueError, Encoding, unpack, value_digest
from ..database.schema import contents
from ..database.statements import LISTED, Statement


class _Stored(NamedTuple):
    digest: bytes
    type: str
    size: int
    encoding: int
    data: bytes | None
    keyframe: bytes | None


_LISTED = (contents.c.family == bindparam("of_family"), contents.c.digest.in_(LISTED))
_VALUES = Statement(select(*(contents.c[name] for name in _Stored._fields)).where(*_LISTED))
_PRESENT = Statement(select(contents.c.digest).where(*_LISTED, contents.c.data.is_not(None)))


def present(connection: Connection, family: int, digests: Collection[bytes]) -> set[bytes]:
    """Return the digests of values whose data is here."""
    return {row[0] for row in _PRESENT.run_listed(connection, digests, of_family=family)}


def read(connection: Connection, family: int, digests: Collection[bytes]) -> dict[bytes, Value]:
    """Return values by digest; an evicted one is `EVICTED`, an unknown one is left out.

    Raises:
        DamagedValueError: The stored bytes are not the saved ones.
    """
    return ask(connection, family, digests)()


def ask(
    connection: Connection, family: int, digests: Collection[bytes]
) -> Callable[[], dict[bytes, Value]]:
    """Ask for values; the returned function does as `read`."""
    rows = _VALUES.run_listed(connection, digests, of_family=family)
    return lambda: _read(connection, family, {row[0]: _Stored(*row) for row in rows})


def _read(connection: Connection, family: int, stored: dict[bytes, _Stored]) -> dict[bytes, Value]:
    named = {one.keyframe for one in stored.values() if one.keyframe and one.data is not None}
    missing = named - stored.keys()
    rows = _VALUES.run_listed(connection, missing, of_family=family) if missing else ()
    known = {**stored, **{row[0]: _Stored(*row) for row in rows}}
    keyframes = {
        digest: _unpacked(known[digest], None)
        for digest in named
        if digest in known and known[digest].data is not None
    }
    return {digest: _value(one, keyframes) for digest, one in stored.items()}


def stored_value(kind: str, size: int, encoding: int, data: bytes | None) -> Value:
    """Return a value that is stored by itself; `EVICTED` if its data is not here.

    Raises:
        DamagedValueError: It cannot be unpacked.
    """
    if data is None:
        return EVICTED
    return Value(kind, unpack(encoding, data, size, None, LIMITS.max_value))


def referred(state: bytes, delta_base: bytes | None) -> set[bytes]:
    """Return the digests of the values that a checkpoint, as stored, needs besides its writes."""
    message = checkpoint_pb2.CheckpointState.FromString(state)
    found = {channel.digest for channel in message.channels}
    if delta_base:
        for channel in segment_pb2.DeltaBase.FromString(delta_base).channels:
            found.add(channel.seed.digest)
            found.update(write.digest for write in channel.writes)
    found.discard(b"")
    return found


def _value(one: _Stored, keyframes: dict[bytes, bytes]) -> Value:
    if one.data is None:
        return EVICTED
    if one.encoding == Encoding.PLAIN and len(one.data) == one.size:
        return Value(one.type, one.data)
    if one.encoding != Encoding.PATCH:
        return Value(one.type, keyframes.get(one.digest) or _unpacked(one, None))
    keyframe = keyframes.get(one.keyframe or b"")
    if keyframe is None:
        raise DamagedValueError(f"value {one.digest.hex()}: its keyframe is not stored")
    value = Value(one.type, _unpacked(one, keyframe))
    if value_digest(value) != one.digest:
        raise DamagedValueError(f"value {one.digest.hex()}: its patch gives another value")
    return value


def _unpacked(one: _Stored, keyframe: bytes | None) -> bytes:
    if keyframe is None and one.encoding == Encoding.PATCH:
        raise DamagedValueError(f"value {one.digest.hex()}: its keyframe is a patch")
    try:
        return unpack(one.encoding, one.data or b"", one.size, keyframe, LIMITS.max_value)
    except DamagedValueError as error:
        raise DamagedValueError(f"value {one.digest.hex()}: {error}") from None
