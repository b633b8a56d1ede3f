"""Values of channels: stored once per family of threads, and rebuilt when they are read.

A value is kept whole or as a patch on a keyframe of the same family, which is never a patch
itself. One that was evicted keeps its row without the data: it is known, and is not here.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from functools import cache
from typing import Any, NamedTuple

from sqlalchemy import Connection, bindparam, select

from tuskpoint.v1 import checkpoint_pb2, segment_pb2

from ...domain.limits import LIMITS
from ...domain.model import EVICTED, Value
from ...domain.values import DamagedValueError, Encoding, unpack, value_digest
from ..database.schema import contents
from ..database.statements import Statement

_LONGEST_LIST = 512


class _Stored(NamedTuple):
    digest: bytes
    type: str
    size: int
    encoding: int
    data: bytes | None
    keyframe: bytes | None


_VALUE = tuple(contents.c[name] for name in _Stored._fields)
_STANDING = (contents.c.digest, contents.c.data.is_not(None))


@cache
def _of_digests(columns: tuple[Any, ...], count: int) -> tuple[Statement, tuple[str, ...]]:
    """Return the statement that reads columns of so many values, and its parameters."""
    names = tuple(f"digest_{index}" for index in range(count))
    listed = contents.c.digest.in_([bindparam(name) for name in names])
    chosen = select(*columns).where(contents.c.family == bindparam("of_family"), listed)
    return Statement(chosen), names


def _rows(
    connection: Connection, columns: tuple[Any, ...], family: int, digests: Collection[bytes]
) -> Iterator[tuple[Any, ...]]:
    """Yield columns of the values that are known.

    A list of digests is filled up to the next power of two, so that few texts are compiled.
    """
    wanted = list(dict.fromkeys(digests))
    for start in range(0, len(wanted), _LONGEST_LIST):
        some = wanted[start : start + _LONGEST_LIST]
        count = 1 << (len(some) - 1).bit_length()
        some += [some[-1]] * (count - len(some))
        statement, names = _of_digests(columns, count)
        cursor = statement.run(connection, of_family=family, **dict(zip(names, some, strict=True)))
        yield from cursor.fetchall()
        cursor.close()


def present(connection: Connection, family: int, digests: Collection[bytes]) -> set[bytes]:
    """Return the digests of values whose data is here."""
    rows = _rows(connection, _STANDING, family, digests)
    return {digest for digest, is_here in rows if is_here}


def read(connection: Connection, family: int, digests: Collection[bytes]) -> dict[bytes, Value]:
    """Return values by digest; one that was evicted is `EVICTED`, an unknown one is left out.

    Args:
        connection: In a transaction.
        family: Family of the thread.
        digests: The values.

    Raises:
        DamagedValueError: What is stored is not what was saved.
    """
    stored = {row[0]: _Stored(*row) for row in _rows(connection, _VALUE, family, digests)}
    keyframes = _keyframes(connection, family, stored)
    return {digest: _value(one, keyframes) for digest, one in stored.items()}


def stored_value(kind: str, size: int, encoding: int, data: bytes | None) -> Value:
    """Return a value that is stored by itself; `EVICTED` if its data is not here.

    Raises:
        DamagedValueError: It cannot be unpacked.
    """
    if data is None:
        return EVICTED
    return Value(kind, unpack(encoding, data, size, None, LIMITS.max_value))


def _keyframes(
    connection: Connection, family: int, stored: dict[bytes, _Stored]
) -> dict[bytes, bytes]:
    """Return what the patches among stored values are based on."""
    needed = {
        one.keyframe
        for one in stored.values()
        if one.data is not None and one.encoding == Encoding.PATCH and one.keyframe is not None
    }
    missing = needed - stored.keys()
    others = (_Stored(*row) for row in _rows(connection, _VALUE, family, missing))
    found = [*others, *(stored[digest] for digest in needed - missing)]
    return {one.digest: _alone(one, one.data) for one in found if one.data is not None}


def _value(one: _Stored, keyframes: dict[bytes, bytes]) -> Value:
    if one.data is None:
        return EVICTED
    if one.encoding != Encoding.PATCH:
        return Value(one.type, keyframes.get(one.digest) or _alone(one, one.data))
    keyframe = keyframes.get(one.keyframe or b"")
    if keyframe is None:
        raise DamagedValueError(f"value {one.digest.hex()}: its keyframe is not stored")
    data = _unpacked(one, one.data, keyframe)
    value = Value(one.type, data)
    if value_digest(value) != one.digest:
        raise DamagedValueError(f"value {one.digest.hex()}: its patch gives another value")
    return value


def _alone(one: _Stored, data: bytes) -> bytes:
    if one.encoding == Encoding.PATCH:
        raise DamagedValueError(f"value {one.digest.hex()}: a patch stands as a keyframe")
    return _unpacked(one, data, None)


def _unpacked(one: _Stored, data: bytes, keyframe: bytes | None) -> bytes:
    try:
        return unpack(one.encoding, data, one.size, keyframe, LIMITS.max_value)
    except DamagedValueError as error:
        raise DamagedValueError(f"value {one.digest.hex()}: {error}") from None


def referred(state: bytes, delta_base: bytes | None) -> set[bytes]:
    """Return the digests of the values that a checkpoint needs besides its writes.

    Args:
        state: Its `state`, as it is stored.
        delta_base: Its `delta_base`, as it is stored, or `None`.
    """
    message = checkpoint_pb2.CheckpointState.FromString(state)
    found = {channel.digest for channel in message.channels}
    if delta_base:
        base = segment_pb2.DeltaBase.FromString(delta_base)
        for channel in base.channels:
            found.add(channel.seed.digest)
            found.update(write.digest for write in channel.writes)
    found.discard(b"")
    return found
