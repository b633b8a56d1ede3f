"""Values of channels: stored once per family of threads, and rebuilt when they are read.

A value is kept whole or as a patch on a keyframe of the same family, which is never a patch itself.
An evicted value keeps its row without the data. Every value is compared with its digest when it is
read; a value that differs is a `DamagedValue`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import NamedTuple

from sqlalchemy import Connection, bindparam, select

from tuskpoint.storage.v1 import segment_pb2
from tuskpoint.v1 import checkpoint_pb2

from ...core.limits import LIMITS, MIB
from ...core.model import EVICTED, Damage, DamagedValue, Value
from ...core.values import DamagedValueError, Encoding, UnopenedBytes, digest_of, unpack
from ..sql.schema import contents
from ..sql.statements import LISTED, Statement

_PLAIN = int(Encoding.PLAIN)  # comparing with the enum member takes four times as long
_CHECKED_BYTES, _CHECKED_AT_ONCE = MIB, 16  # a larger value ends a chunk of values


class StoredValue(NamedTuple):
    """A value as it is stored; without `data` if it was evicted."""

    digest: bytes
    type: str
    size: int
    encoding: int
    data: bytes | None
    keyframe: bytes | None


_LISTED = (contents.c.family == bindparam("of_family"), contents.c.digest.in_(LISTED))
_VALUES = Statement(select(*(contents.c[name] for name in StoredValue._fields)).where(*_LISTED))
_SIZES = Statement(select(contents.c.digest, contents.c.size).where(*_LISTED))
_PRESENT = Statement(select(contents.c.digest).where(*_LISTED, contents.c.data.is_not(None)))


def present_digests(connection: Connection, family: int, digests: Collection[bytes]) -> set[bytes]:
    """Return the digests of values whose data is in the journal."""
    return {row[0] for row in _PRESENT.run_listed(connection, digests, of_family=family)}


def read(connection: Connection, family: int, digests: Collection[bytes]) -> dict[bytes, Value]:
    """Return values by digest, each compared with its digest; unknown values are left out.

    An evicted value is `EVICTED`, and a value that differs from the saved value is a
    `DamagedValue`.
    """
    return ask(connection, family, digests)()


def ask(
    connection: Connection, family: int, digests: Collection[bytes]
) -> Callable[[], dict[bytes, Value]]:
    """Send the query for values; the returned function returns them as `read` does."""
    rows = _VALUES.run_listed(connection, digests, of_family=family)

    def read() -> dict[bytes, Value]:
        values: dict[bytes, Value] = {}
        stored_values: dict[bytes, StoredValue] = {}
        for row in rows:
            digest, kind, size, encoding, data, _ = row
            is_plain = encoding == _PLAIN and type(data) is bytes and len(data) == size
            if is_plain and digest_of(kind, data) == digest:
                values[digest] = Value(kind, data)
            else:
                stored_values[digest] = StoredValue(*row)
        if stored_values:
            values |= _read(connection, family, stored_values, values)
        return values

    return read


def _read(
    connection: Connection,
    family: int,
    stored: dict[bytes, StoredValue],
    plain: Mapping[bytes, Value],
) -> dict[bytes, Value]:
    """Return values that are packed, evicted or damaged; `plain`: other values that were read."""
    keyframe_digests = {
        value.keyframe for value in stored.values() if value.keyframe and value.data is not None
    }
    absent = keyframe_digests - stored.keys() - plain.keys()
    rows = _VALUES.run_listed(connection, absent, of_family=family) if absent else ()
    stored_values = {**stored, **{row[0]: StoredValue(*row) for row in rows}}
    keyframes = {
        digest: _keyframe(stored_values[digest])
        for digest in keyframe_digests
        if digest in stored_values
    }
    keyframes |= {digest: plain[digest].data for digest in keyframe_digests if digest in plain}
    return {
        digest: _value(family, value, keyframes.get(value.keyframe or b""))
        for digest, value in stored.items()
    }


def stored_value(
    thread: int, digest: bytes, kind: str, size: int, encoding: int, data: bytes | None
) -> Value:
    """Return the value of a write of a thread, as `read` does."""
    value = _value(thread, StoredValue(digest, kind, size, encoding, data, None), None)
    if isinstance(value, DamagedValue):
        return DamagedValue(value.damage._replace(is_write=True))
    return value


def missing_value(family: int, digest: bytes) -> DamagedValue:
    """Return the stand-in for a value that has no row."""
    return DamagedValue(Damage(digest, b"", "it is not stored", family))


def find_damaged(
    connection: Connection, family: int, digests: Collection[bytes]
) -> Iterator[tuple[bytes, Damage]]:
    """Yield the damaged or missing values; an evicted value is sound."""
    sizes: dict[bytes, int] = dict(_SIZES.run_listed(connection, digests, of_family=family))
    yield from (
        (digest, missing_value(family, digest).damage) for digest in digests if digest not in sizes
    )
    chunk: list[bytes] = []
    for digest, size in sizes.items():
        chunk.append(digest)
        if size > _CHECKED_BYTES or len(chunk) == _CHECKED_AT_ONCE:
            yield from _find_damaged(connection, family, chunk)
            chunk = []
    yield from _find_damaged(connection, family, chunk)


def compare_values(
    connection: Connection, family: int, stored: Mapping[bytes, StoredValue]
) -> Iterator[tuple[bytes, Value]]:
    """Yield stored values by digest, each as `read` returns it.

    Keyframes that are not among the values are read. At most two values are unpacked at once.
    """
    # digest and bytes of the current keyframe
    keyframe: tuple[bytes | None, bytes | None] = (None, None)
    for value in sorted(stored.values(), key=lambda value: value.keyframe or b""):
        if value.keyframe and value.keyframe != keyframe[0]:
            based = stored.get(value.keyframe)
            if based is None or based.data is None:
                rows = _VALUES.run_listed(connection, [value.keyframe], of_family=family)
                based = next((StoredValue(*row) for row in rows), None)
            keyframe = (value.keyframe, None if based is None else _keyframe(based))
        yield value.digest, _value(family, value, keyframe[1] if value.keyframe else None)


def _find_damaged(
    connection: Connection, family: int, digests: Collection[bytes]
) -> Iterator[tuple[bytes, Damage]]:
    for digest, value in read(connection, family, digests).items():
        if isinstance(value, DamagedValue):
            yield digest, value.damage


def referred_digests(state: bytes, delta_base: bytes | None) -> set[bytes]:
    """Return the digests of the values that a stored checkpoint needs besides its writes."""
    message = checkpoint_pb2.CheckpointState.FromString(state)
    digests = {channel.digest for channel in message.channels}
    if delta_base:
        for channel in segment_pb2.DeltaBase.FromString(delta_base).channels:
            digests.add(channel.seed.digest)
            digests.update(write.digest for write in channel.writes)
    digests.discard(b"")
    return digests


def _value(owner: int, value: StoredValue, keyframe: bytes | None) -> Value:
    data, size = value.data, value.size
    if data is None:
        return EVICTED
    is_plain = value.encoding == _PLAIN and len(data) == size and type(data) is bytes
    if is_plain and digest_of(value.type, data) == value.digest:
        return Value(value.type, data)
    return _unpack_value(owner, value, data, keyframe)


def _unpack_value(owner: int, value: StoredValue, data: bytes, keyframe: bytes | None) -> Value:
    """Unpack a value, or return its damage."""
    actual = b""
    if isinstance(data, UnopenedBytes):
        problem = data.problem
    else:
        try:
            plain = unpack(value.encoding, data, value.size, keyframe, LIMITS.max_value)
        except DamagedValueError as error:
            problem = str(error)
        else:
            actual = digest_of(value.type, plain)
            if actual == value.digest:
                return Value(value.type, plain)
            problem = f"the stored bytes have the digest {actual.hex()}"
    return DamagedValue(Damage(value.digest, actual, problem, owner, keyframe=value.keyframe))


def _keyframe(value: StoredValue) -> bytes | None:
    """Return the bytes of a keyframe; damage shows in the values that are patches on it."""
    if (
        value.data is None
        or value.encoding == Encoding.PATCH
        or isinstance(value.data, UnopenedBytes)
    ):
        return None
    try:
        return unpack(value.encoding, value.data, value.size, None, LIMITS.max_value)
    except DamagedValueError:
        return None
