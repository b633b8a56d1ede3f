"""Copies: checkpoints of one thread, prepared for another thread, or for a hand-off.

Threads of a family share their values, so values are not copied. A copy of a certified checkpoint
uses the segments of its original and is not stored again; its values may be evicted. A copy that
must be stored is whole: evicted values are restored. A closure needs no ancestors: it includes the
values that rebuild its delta channels.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet

from sqlalchemy import Connection, select

from ...archive.formats.bundles import Closure, check_bytes
from ...archive.formats.segments import Segment, SegmentValue, SegmentWrite
from ...archive.rows import gaps
from ...archive.rows.stored import (
    StoredCheckpoint,
    all_numbers,
    live_thread,
    named_place,
    numbers_of,
    of_stored,
    read,
    stored_value,
)
from ...core.delta_bases import decode_delta_base, encode_delta_base
from ...core.model import (
    EVICTED,
    BlobLocation,
    CheckpointKey,
    DamagedValue,
    Value,
    write_order,
)
from ...core.state import decode_channels
from ...core.values import Encoding
from ...journal.database.pending_writes import StoredWrite
from ...journal.database.thread_rows import Place, ThreadRef, ThreadRow
from ...journal.removal.delta_bases import NO_NAMES, rebuilt_from
from ...journal.sql.schema import checkpoints, writes
from ...journal.sql.statements import LISTED, Statement, in_lists, same_checkpoint
from ...journal.values import contents, segment_refs
from ...journal.values.contents import referred_digests
from ...journal.values.delta_history import follow
from ...journal.values.integrity import check_rows
from ...journal.values.segment_refs import decode_held
from ..checkpoints.missing_values import SuppliedValues, ValuesDamagedError, ValuesEvictedError
from .subgraphs import tied_subgraphs

_VALUES = Statement(
    select(writes.c.digest, writes.c.type, writes.c.size, writes.c.encoding, writes.c.data).where(
        writes.c.number.in_(LISTED), writes.c.data.is_not(None)
    )
)
_HELD = Statement(
    select(checkpoints.c.held, writes.c.seq)
    .join(checkpoints, same_checkpoint(checkpoints, writes))
    .where(writes.c.number.in_(LISTED), writes.c.data.is_(None))
)


def prepare(
    connection: Connection,
    sources: Iterable[tuple[ThreadRow, Sequence[int]]],
    supplied: SuppliedValues,
    *,
    with_ancestors: bool = False,
) -> list[list[StoredCheckpoint]]:
    """Return copies of checkpoints for threads of the same family, with all their parts.

    Args:
        connection: A connection in a write transaction.
        sources: Threads, and the numbers of the rows of checkpoints in them.
        supplied: Evicted values from segments.
        with_ancestors: Whether the copies include all ancestors that rebuild delta channels.
            Otherwise each copy has a `delta_base`.

    Raises:
        ValuesEvictedError: Values are neither in the journal nor supplied.
        ValuesDamagedError: Values to store again are damaged.
    """
    prepared: list[list[StoredCheckpoint]] = []
    missing: set[bytes] = set()
    places: list[BlobLocation] = []
    for origin, numbers in sources:
        stored_checkpoints = read(connection, numbers)
        _find_segments(connection, origin, stored_checkpoints)
        written = {} if with_ancestors else _give_bases(connection, origin.ref, stored_checkpoints)
        try:
            bring_values(connection, origin.family, origin, stored_checkpoints, supplied, written)
        except ValuesEvictedError as lack:
            missing |= lack.digests
            places += lack.places
        prepared.append(stored_checkpoints)
    if missing:
        raise ValuesEvictedError(missing, places)
    return prepared


def closure(
    connection: Connection, tenant: str, key: CheckpointKey, supplied: SuppliedValues
) -> Closure | None:
    """Return a checkpoint with everything that its next run needs; see `LineageRows.closure`."""
    thread = live_thread(connection, tenant, key.thread_id)
    place = named_place(connection, thread, key) if thread is not None else None
    if thread is None or place is None:
        return None
    check_rows(connection, thread)
    stored_checkpoints = read(connection, closure_numbers(connection, thread.number, place))
    written = _give_bases(connection, thread.ref, stored_checkpoints)
    full_key = CheckpointKey(key.thread_id, *place)
    check_bytes(full_key, sum(map(_whole_bytes, stored_checkpoints)))
    digests = frozenset[bytes]().union(
        *(
            referred_digests(checkpoint.known.state, checkpoint.delta_base)
            for checkpoint in stored_checkpoints
        )
    )
    values = gather(connection, thread, stored_checkpoints, digests, supplied, written)
    segment = Segment(
        *(key.thread_id, 0, 0, 0, 0),
        checkpoints=tuple(map(of_stored, stored_checkpoints)),
        writes=tuple(
            write
            for checkpoint in stored_checkpoints
            for write in _segment_writes(thread, checkpoint)
        ),
        values=tuple(
            SegmentValue(digest, value.type, len(value.data), Encoding.PLAIN, value.data)
            for digest, value in sorted(values.items())
        ),
        handoff=place,
    )
    return Closure(full_key, segment, thread.seq)


def closure_numbers(connection: Connection, number: int, place: Place) -> list[int]:
    """Return the numbers of the rows of a closure's checkpoints, its own checkpoint first."""
    return numbers_of(
        connection, number, [place, *sorted(tied_subgraphs(connection, number, place))]
    )


def bring_values(
    connection: Connection,
    family: int,
    at: ThreadRow,
    found: Sequence[StoredCheckpoint],
    supplied: SuppliedValues,
    written: Mapping[bytes, int],
) -> None:
    """Add the values that a family lacks to checkpoints that must be stored.

    The checkpoints are in the thread `at`; `written` maps digests to numbers of its writes.

    Raises:
        ValuesEvictedError: Values are neither in the journal nor supplied.
    """
    new_checkpoints = [checkpoint for checkpoint in found if not checkpoint.segments]
    digest_sets = [
        referred_digests(checkpoint.known.state, checkpoint.delta_base)
        for checkpoint in new_checkpoints
    ]
    all_digests = frozenset[bytes]().union(*digest_sets)
    missing = all_digests - contents.present_digests(connection, family, all_digests)
    values = gather(connection, at, new_checkpoints, missing, supplied, written)
    packed = {digest: stored_value(digest, value) for digest, value in values.items()}
    for checkpoint, digests in zip(new_checkpoints, digest_sets, strict=True):
        checkpoint.values = [packed[digest] for digest in sorted(digests & packed.keys())]


def gather(
    connection: Connection,
    thread: ThreadRow,
    stored_checkpoints: Sequence[StoredCheckpoint],
    digests: AbstractSet[bytes],
    supplied: SuppliedValues,
    written: Mapping[bytes, int],
) -> dict[bytes, Value]:
    """Return values that checkpoints of a thread need, by digest, and make their writes whole."""
    values = {digest: supplied[digest] for digest in digests if digest in supplied}
    stored_values = contents.read(connection, thread.family, digests - values.keys())
    values |= {digest: value for digest, value in stored_values.items() if value is not EVICTED}
    rows = {written[digest] for digest in digests - values.keys() if digest in written}
    for digest, *value in _VALUES.run_listed(connection, rows):
        values[digest] = contents.stored_value(thread.number, digest, *value)
    missing = {*digests} - values.keys()
    unknown = [
        contents.missing_value(thread.family, digest)
        for digest in missing - stored_values.keys() - {*written}
    ]
    if stored_checkpoints:
        key = CheckpointKey(thread.thread_id, *stored_checkpoints[0].place)
        refuse_damaged(key, (*values.values(), *unknown))
    seqs: dict[bytes | None, list[int]] = defaultdict(list)  # of evicted writes, by column `held`
    for checkpoint in stored_checkpoints:
        for index, write in enumerate(checkpoint.writes):
            if write.data is None and write.digest in supplied:
                packed = stored_value(write.digest, supplied[write.digest])
                checkpoint.writes[index] = write._replace(
                    encoding=packed.encoding, data=packed.data
                )
            elif write.data is None:
                missing.add(write.digest)
                seqs[checkpoint.held].append(write.seq)
    if missing:
        rows = {written[digest] for digest in missing & written.keys()}
        for held, seq in _HELD.run_listed(connection, rows):
            seqs[held].append(seq)
        places = segment_refs.of_values(connection, thread.tenant, thread.family, sorted(missing))
        for held, numbers in seqs.items():
            places += segment_refs.of_writes(
                connection, thread.tenant, thread.number, held, numbers
            )
        raise ValuesEvictedError(missing, places)
    return values


def _give_bases(
    connection: Connection, thread: ThreadRef, stored_checkpoints: Sequence[StoredCheckpoint]
) -> dict[bytes, int]:
    """Give checkpoints of a thread all that their delta channels are rebuilt from.

    Return the values of it that pending writes hold: digest to number of the row.
    """
    written: dict[bytes, int] = {}
    for checkpoint in stored_checkpoints:
        base = None
        if checkpoint.known.delta_channels != NO_NAMES:
            channels = decode_channels(checkpoint.known.state)
            names = set(json.loads(checkpoint.known.delta_channels))
            names -= {channel.name for channel in channels if channel.digest is not None}
            paths = follow(connection, thread, checkpoint.place, sorted(names))
            base = encode_delta_base(rebuilt_from(paths)) or None
            for write in (write for path in paths.values() for write in path.newest_first):
                if write.number is not None:
                    written[write.write.digest] = write.number
        if base != checkpoint.delta_base:
            # A segment has the base that its checkpoint had there.
            checkpoint.delta_base, checkpoint.segments = base, ()
    return written


def _whole_bytes(checkpoint: StoredCheckpoint) -> int:
    """Return the bytes of a checkpoint's values; values of delta channels count for each use."""
    sizes = {channel.digest: channel.size for channel in decode_channels(checkpoint.known.state)}
    based = 0
    for channel in decode_delta_base(checkpoint.delta_base or b"", checkpoint.place[1]):
        based += channel.seed.size if channel.seed is not None else 0
        based += sum(write.size for write in channel.writes)
    return sum(sizes.values()) + based + sum(write.size for write in checkpoint.writes)


def check(connection: Connection, tenant: str, key: CheckpointKey, *, whole: bool = False) -> None:
    """Check the parts of a checkpoint that a copy takes over unread.

    These parts are the rows of the thread, which must not be older than the checkpoint's segment,
    and the shared values. `whole`: the values of the whole thread.

    Raises:
        Refusal: `JOURNAL_DAMAGED`: rows of the thread were put back, deleted or added.
        ValuesDamagedError: One or more values differ from their digests.
    """
    thread = live_thread(connection, tenant, key.thread_id)
    if thread is None:
        return
    check_rows(connection, thread)
    if whole:
        numbers = all_numbers(connection, thread.number)
    else:
        place = named_place(connection, thread, key)
        numbers = closure_numbers(connection, thread.number, place) if place is not None else []
    for chunk in in_lists(numbers):
        stored_checkpoints = read(connection, chunk)
        written = {} if whole else _give_bases(connection, thread.ref, stored_checkpoints)
        for checkpoint in stored_checkpoints:
            _check(connection, thread, checkpoint, written)


def _check(
    connection: Connection,
    thread: ThreadRow,
    checkpoint: StoredCheckpoint,
    written: Mapping[bytes, int],
) -> None:
    digests = referred_digests(checkpoint.known.state, checkpoint.delta_base)
    damages = [
        damage
        for digest, damage in contents.find_damaged(connection, thread.family, digests)
        if damage.actual or digest not in written
    ]
    values = [_value_of(thread, write) for write in checkpoint.writes]
    rows = {written[digest] for digest in digests & written.keys()}
    for digest, *value in _VALUES.run_listed(connection, rows):
        values.append(contents.stored_value(thread.number, digest, *value))
    values += map(DamagedValue, damages)
    refuse_damaged(CheckpointKey(thread.thread_id, *checkpoint.place), values)


def _value_of(thread: ThreadRow, write: StoredWrite) -> Value:
    return contents.stored_value(
        thread.number, write.digest, write.type, write.size, write.encoding, write.data
    )


def refuse_damaged(key: CheckpointKey, values: Iterable[Value | None]) -> None:
    """Raise `ValuesDamagedError` if some values that a checkpoint needs are damaged."""
    if damages := [value.damage for value in values if isinstance(value, DamagedValue)]:
        raise ValuesDamagedError(key, damages)


def _segment_writes(thread: ThreadRow, checkpoint: StoredCheckpoint) -> Iterator[SegmentWrite]:
    for write in sorted(checkpoint.writes, key=write_order):
        value = _value_of(thread, write)
        refuse_damaged(CheckpointKey(thread.thread_id, *checkpoint.place), [value])
        fields = (*checkpoint.place, 0, write.task_id, write.idx, write.task_path, write.channel)
        yield SegmentWrite(
            *fields, write.type, write.digest, write.size, Encoding.PLAIN, value.data
        )


def _find_segments(
    connection: Connection, thread: ThreadRow, stored_checkpoints: Sequence[StoredCheckpoint]
) -> None:
    """Add to each checkpoint the segments that have it, the segment of its state first.

    Only a checkpoint that is stored with all its late writes uses its segments. A copy with writes
    of its own does not: only its thread shows that these writes are newer than copied writes.
    """
    numbers = [
        [checkpoint.known.seq, *(write.seq for write in checkpoint.writes)]
        for checkpoint in stored_checkpoints
    ]
    lost_segments = gaps.lost_hashes(connection, thread.tenant)
    rows = [checkpoint.row for checkpoint in stored_checkpoints if checkpoint.row is not None]
    locations = segment_refs.of_rows(connection, thread.tenant, rows, numbers)
    for checkpoint, row, seqs, location in zip(
        stored_checkpoints, rows, numbers, locations, strict=True
    ):
        segments = tuple(place.sha256 for place in location.segments)
        checkpoint.state_only = location.state_only
        is_stored = max(seqs) <= thread.certified_seq and not row.gap
        if checkpoint.held is not None and not is_stored:
            foreign = decode_held(checkpoint.held)
            segments, is_stored = foreign.segments, max(seqs) <= foreign.seq
            checkpoint.state_only = foreign.state_only
        is_stored = is_stored and lost_segments.keys().isdisjoint(segments)
        if is_stored and checkpoint.held is not None and len(segments) > 1:
            write_segments = segments[1:] if checkpoint.state_only else segments
            is_stored = segment_refs.are_of_one_log(connection, thread.tenant, write_segments)
        checkpoint.segments = segments if is_stored else ()
