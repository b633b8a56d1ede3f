"""Values of channels: stored once per family of threads, and rebuilt when they are read.

A value is kept whole or as a patch on a keyframe of the same family, which is never a patch
itself. One that was evicted keeps its row without the data: it is known, and is not here. Every
value that is read here is compared with its digest; one that differs is a `DamagedValue`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import NamedTuple

from sqlalchemy import Connection, bindparam, select

from tuskpoint.v1 import checkpoint_pb2, segment_pb2

from ...core.limits import LIMITS, MIB
from ...core.model import EVICTED, Damage, DamagedValue, Value
from ...core.values import DamagedValueError, Encoding, Unopened, digest_of, unpack
from ..sql.schema import contents
from ..sql.statements import LISTED, Statement

_PLAIN = int(Encoding.PLAIN)  # to compare with the member takes four times as long
_CHECKED_BYTES, _CHECKED_AT_ONCE = MIB, 16  # a larger value is checked before others are read


class StoredValue(NamedTuple):
    """A value as it is stored; without `data` it was evicted."""

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


def present(connection: Connection, family: int, digests: Collection[bytes]) -> set[bytes]:
    """Return the digests of values whose data is here."""
    return {row[0] for row in _PRESENT.run_listed(connection, digests, of_family=family)}


def read(connection: Connection, family: int, digests: Collection[bytes]) -> dict[bytes, Value]:
    """Return values by digest, each compared with it; an unknown one is left out.

    An evicted one is `EVICTED`, one that is not what was saved a `DamagedValue`.
    """
    return ask(connection, family, digests)()


def ask(
    connection: Connection, family: int, digests: Collection[bytes]
) -> Callable[[], dict[bytes, Value]]:
    """Ask for values; the returned function does as `read`."""
    rows = _VALUES.run_listed(connection, digests, of_family=family)

    def read() -> dict[bytes, Value]:
        values: dict[bytes, Value] = {}
        others: dict[bytes, StoredValue] = {}
        for row in rows:
            digest, kind, size, encoding, data, _ = row
            is_plain = encoding == _PLAIN and type(data) is bytes and len(data) == size
            if is_plain and digest_of(kind, data) == digest:
                values[digest] = Value(kind, data)
            else:
                others[digest] = StoredValue(*row)
        if others:
            values |= _read(connection, family, others, values)
        return values

    return read


def _read(
    connection: Connection,
    family: int,
    stored: dict[bytes, StoredValue],
    plain: Mapping[bytes, Value],
) -> dict[bytes, Value]:
    """Return values that are packed, evicted or damaged; `plain`: others that were read."""
    named = {one.keyframe for one in stored.values() if one.keyframe and one.data is not None}
    missing = named - stored.keys() - plain.keys()
    rows = _VALUES.run_listed(connection, missing, of_family=family) if missing else ()
    known = {**stored, **{row[0]: StoredValue(*row) for row in rows}}
    keyframes = {digest: _keyframe(known[digest]) for digest in named if digest in known}
    keyframes |= {digest: plain[digest].data for digest in named if digest in plain}
    return {
        digest: _value(family, one, keyframes.get(one.keyframe or b""))
        for digest, one in stored.items()
    }


def stored_value(
    thread: int, digest: bytes, kind: str, size: int, encoding: int, data: bytes | None
) -> Value:
    """Return the value of a write of a thread, as `read` does."""
    value = _value(thread, StoredValue(digest, kind, size, encoding, data, None), None)
    if isinstance(value, DamagedValue):
        return DamagedValue(value.damage._replace(is_write=True))
    return value


def missing(family: int, digest: bytes) -> DamagedValue:
    """Return what takes the place of a value that has no row."""
    return DamagedValue(Damage(digest, b"", "it is not stored", family))


def damaged(
    connection: Connection, family: int, digests: Collection[bytes]
) -> Iterator[tuple[bytes, Damage]]:
    """Yield what is damaged of these values, or is not stored; an evicted one is sound."""
    sizes: dict[bytes, int] = dict(_SIZES.run_listed(connection, digests, of_family=family))
    yield from ((one, missing(family, one).damage) for one in digests if one not in sizes)
    some: list[bytes] = []
    for digest, size in sizes.items():
        some.append(digest)
        if size > _CHECKED_BYTES or len(some) == _CHECKED_AT_ONCE:
            yield from _damaged(connection, family, some)
            some = []
    yield from _damaged(connection, family, some)


def compared(
    connection: Connection, family: int, stored: Mapping[bytes, StoredValue]
) -> Iterator[tuple[bytes, Value]]:
    """Yield values that were read as they are stored, each as `read` returns it, by digest.

    Keyframes that are not among them are read. No more than two values are unpacked at once.
    """
    held: tuple[bytes | None, bytes | None] = (None, None)  # a keyframe, by its digest
    for one in sorted(stored.values(), key=lambda one: one.keyframe or b""):
        if one.keyframe and one.keyframe != held[0]:
            based = stored.get(one.keyframe)
            if based is None or based.data is None:
                rows = _VALUES.run_listed(connection, [one.keyframe], of_family=family)
                based = next((StoredValue(*row) for row in rows), None)
            held = (one.keyframe, None if based is None else _keyframe(based))
        yield one.digest, _value(family, one, held[1] if one.keyframe else None)


def _damaged(
    connection: Connection, family: int, some: Collection[bytes]
) -> Iterator[tuple[bytes, Damage]]:
    for digest, value in read(connection, family, some).items():
        if isinstance(value, DamagedValue):
            yield digest, value.damage


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


def _value(owner: int, one: StoredValue, keyframe: bytes | None) -> Value:
    data, size = one.data, one.size
    if data is None:
        return EVICTED
    is_plain = one.encoding == _PLAIN and len(data) == size and type(data) is bytes
    if is_plain and digest_of(one.type, data) == one.digest:
        return Value(one.type, data)
    return _unpacked(owner, one, data, keyframe)


def _unpacked(owner: int, one: StoredValue, data: bytes, keyframe: bytes | None) -> Value:
    """Return a value that is packed, or what is wrong with one."""
    actual = b""
    if isinstance(data, Unopened):
        problem = data.problem
    else:
        try:
            plain = unpack(one.encoding, data, one.size, keyframe, LIMITS.max_value)
        except DamagedValueError as error:
            problem = str(error)
        else:
            actual = digest_of(one.type, plain)
            if actual == one.digest:
                return Value(one.type, plain)
            problem = f"the stored bytes have the digest {actual.hex()}"
    return DamagedValue(Damage(one.digest, actual, problem, owner, keyframe=one.keyframe))


def _keyframe(one: StoredValue) -> bytes | None:
    """Return the bytes of a keyframe; a value that is a patch on it shows if they are damaged."""
    if one.data is None or one.encoding == Encoding.PATCH or isinstance(one.data, Unopened):
        return None
    try:
        return unpack(one.encoding, one.data, one.size, None, LIMITS.max_value)
    except DamagedValueError:
        return None
