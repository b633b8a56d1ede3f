"""Rows of checkpoints, and the stored segments that contain the checkpoints.

A segment contains the changes of a range of its thread's log. A copy is in segments of its original
thread. A checkpoint that could not be stored with its range, or is a blob of its own, is in a
segment without a range. In these cases the column `held` names the segments.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Mapping, Sequence
from operator import itemgetter
from typing import NamedTuple

from sqlalchemy import Connection, bindparam, exists, func, select

from ...core.errors import journal_damaged
from ...core.model import BlobLocation
from ...core.values import DIGEST_BYTES
from ..database.binding import Binder, equal
from ..sql.schema import catalogs, checkpoints, contents, gaps, members, threads
from ..sql.statements import LISTED, SqlRow, Statement, same_checkpoint

_SEQ_BYTES = 8
_STATE_ONLY = b"\1"  # mark after the hashes


class ForeignSegments(NamedTuple):
    """The segments with the changes of a checkpoint whose numbers are at most `seq`."""

    seq: int
    segments: tuple[bytes, ...]  # hashes, first the hash of the state's segment
    state_only: bool = False  # whether the first segment has none of the checkpoint's writes

    @property
    def writes(self) -> tuple[bytes, ...]:
        """Hashes of the segments with the checkpoint's writes."""
        return self.segments[1:] if self.state_only else self.segments


NOWHERE = ForeignSegments(0, ())


def encode_held(held: ForeignSegments) -> bytes:
    """Return the stored form; `seq` of a copy is the change that created the copy."""
    mark = _STATE_ONLY if held.state_only else b""
    return held.seq.to_bytes(_SEQ_BYTES, "big") + b"".join(held.segments) + mark


def decode_held(stored: bytes | None) -> ForeignSegments:
    """Decode a column `held`; `None`: no segment has the checkpoint."""
    if stored is None:
        return NOWHERE
    count, marked = divmod(len(stored) - _SEQ_BYTES, DIGEST_BYTES)
    starts = range(_SEQ_BYTES, _SEQ_BYTES + count * DIGEST_BYTES, DIGEST_BYTES)
    segments = tuple(stored[start : start + DIGEST_BYTES] for start in starts)
    return ForeignSegments(int.from_bytes(stored[:_SEQ_BYTES], "big"), segments, bool(marked))


class Row(NamedTuple):
    """A checkpoint's row, with the columns of its thread that reads need."""

    tenant: str
    thread_id: str
    thread: int
    family: int
    incarnation: int
    certified_seq: int
    agent_id: str
    checkpoint_ns: str
    checkpoint_id: str
    seq: int
    parent_id: str
    state: bytes
    metadata: bytes
    run_id: str
    root_id: str
    delta_channels: bytes
    delta_base: bytes | None
    label: str
    summary: str
    forked_from: str
    rolled_back_from: str
    adopted_from: str
    created_us: int
    mac: bytes | None
    held: bytes | None
    gap: bool  # the state cannot be stored, even if the watermark is above it
    written_bytes: int | None = None  # bytes of the writes in memory; `None`: no writes

    @property
    def place(self) -> tuple[int, str, str]:
        """Number of the thread, namespace and ID."""
        return self.thread, self.checkpoint_ns, self.checkpoint_id

    def is_bound(self, binder: Binder) -> bool:
        """Return whether the row is as the server wrote it, if all rows are bound."""
        if not binder.is_complete:
            return True
        # The columns from `checkpoint_ns` to `created_us`, in the order of the MAC.
        mac = binder.checkpoint(self.tenant, self.thread, *self[7:23])
        return self.mac is not None and equal(self.mac, mac)

    def check(self, binder: Binder) -> Row:
        """Return the row, if it is as the server wrote it.

        Raises:
            Refusal: `JOURNAL_DAMAGED`.
        """
        if not self.is_bound(binder):
            raise journal_damaged(self.thread_id, self.checkpoint_ns, self.checkpoint_id)
        return self


ROW = (
    threads.c.tenant,
    threads.c.thread_id,
    threads.c.number,
    threads.c.family,
    threads.c.incarnation,
    threads.c.certified_seq,
    threads.c.agent_id,
    *(checkpoints.c[name] for name in Row._fields[7:25]),
    exists().where(same_checkpoint(gaps, checkpoints), gaps.c.segment.is_(None)).label("gap"),
)
"""Columns of `Row` up to `gap`, of checkpoints joined with their threads."""

_last = members.alias("last")
# Stops the walk along the index at the range with the highest number.
_END = (
    select(func.min(_last.c.last_seq))
    .where(_last.c.thread == bindparam("of_thread"), _last.c.last_seq >= bindparam("highest"))
    .scalar_subquery()
)
PLACE = ("sha256", "size", "blob_id", "identifier", "key")
"""Columns of `members` that form a `BlobLocation` (`location_of`)."""

_LOCATION = tuple(members.c[name] for name in PLACE)
_BETWEEN = Statement(
    select(members.c.first_seq, members.c.last_seq, *_LOCATION)
    .where(
        members.c.thread == bindparam("of_thread"),
        members.c.last_seq >= bindparam("lowest"),
        members.c.last_seq <= func.coalesce(_END, bindparam("highest")),
    )
    .order_by(members.c.last_seq)
)
_BY_HASH = Statement(
    select(*_LOCATION).where(
        members.c.tenant == bindparam("of_tenant"), members.c.sha256.in_(LISTED)
    )
)
_LOGS = Statement(
    select(members.c.thread, members.c.incarnation)
    .where(members.c.tenant == bindparam("of_tenant"), members.c.sha256.in_(LISTED))
    .distinct()
)
_SEGMENTS_OF = Statement(
    select(contents.c.segment).where(
        contents.c.family == bindparam("of_family"),
        contents.c.digest.in_(LISTED),
        contents.c.segment.is_not(None),
    )
)
_TENANTS = Statement(select(catalogs.c.tenant))


class CheckpointSegments(NamedTuple):
    """The segments with a checkpoint."""

    segments: list[BlobLocation]  # first the segment with the state
    writes: list[BlobLocation]  # the segments with the writes

    @property
    def state_only(self) -> bool:
        """Whether the writes are in other segments than the state."""
        return bool(self.writes) and self.segments[0] not in self.writes


def of_rows(
    connection: Connection, tenant: str, rows: Sequence[Row], numbers: Sequence[Sequence[int]]
) -> list[CheckpointSegments]:
    """Return the segments with each checkpoint.

    The list is empty if no segment has the state yet, or if the checkpoint is a gap. The segments
    in `held` have the checkpoint in its state at that time; segments of its own thread have later
    changes.

    `numbers`: for each row its own number in the log, then the numbers of its writes.
    """
    helds = [decode_held(row.held) for row in rows]
    stored = [row.seq <= row.certified_seq and not row.gap for row in rows]
    since: list[list[int]] = []
    seqs_by_thread: dict[int, list[int]] = {}
    for row, seqs, held, is_stored in zip(rows, numbers, helds, stored, strict=True):
        since.append([seq for seq in seqs if held.seq < seq <= row.certified_seq])
        if is_stored and since[-1]:
            seqs_by_thread.setdefault(row.thread, []).extend(since[-1])
    segments = _segments(connection, seqs_by_thread)
    elsewhere = by_hash(connection, tenant, {sha256 for held in helds for sha256 in held.segments})
    locations: list[CheckpointSegments] = []
    for index, row in enumerate(rows):
        ranges, held, written = segments.get(row.thread, ()), helds[index], numbers[index][1:]
        hashes = held.writes if any(seq <= held.seq for seq in written) else ()
        writes = [elsewhere[sha256] for sha256 in hashes if sha256 in elsewhere]
        at_first = [elsewhere[sha256] for sha256 in held.segments if sha256 in elsewhere]
        changed = _with_numbers(ranges, since[index])
        rewritten = _with_numbers(ranges, [seq for seq in written if seq > held.seq])
        if not stored[index]:
            locations.append(CheckpointSegments([], []))
        elif row.seq <= held.seq:
            at = CheckpointSegments([*at_first, *changed], [*writes, *rewritten])
            locations.append(at if at_first else CheckpointSegments([], []))
        elif any(first <= row.seq <= last for first, last, _ in ranges):
            locations.append(CheckpointSegments([*changed, *writes], [*rewritten, *writes]))
        else:
            locations.append(CheckpointSegments([], []))
    return locations


def of_values(
    connection: Connection, tenant: str, family: int, digests: Sequence[bytes]
) -> list[BlobLocation]:
    """Return the segments with evicted values of a family."""
    hashes = {row[0] for row in _SEGMENTS_OF.run_listed(connection, digests, of_family=family)}
    return list(by_hash(connection, tenant, hashes).values())


def of_writes(
    connection: Connection, tenant: str, thread: int, held: bytes | None, seqs: Sequence[int]
) -> list[BlobLocation]:
    """Return the segments with evicted writes of a checkpoint, certified or not.

    `held`: the column of the checkpoint's row; `seqs`: numbers of the writes in the log.
    """
    at_first = decode_held(held)
    later = [seq for seq in seqs if seq > at_first.seq]
    segments = _segments(connection, {thread: later} if later else {})
    places = _with_numbers(segments.get(thread, ()), later)
    if len(later) < len(seqs):
        locations = by_hash(connection, tenant, at_first.segments)
        places += (locations[sha256] for sha256 in at_first.segments if sha256 in locations)
    return places


def by_hash(
    connection: Connection, tenant: str, hashes: Collection[bytes]
) -> dict[bytes, BlobLocation]:
    """Return the locations of stored bytes, by hash; unrecorded hashes are left out."""
    if not hashes:
        return {}
    rows = _BY_HASH.run_listed(connection, sorted(hashes), of_tenant=tenant)
    return {row[0]: location_of(row) for row in rows}


def are_of_one_log(connection: Connection, tenant: str, hashes: Collection[bytes]) -> bool:
    """Return whether all segments have changes of the same incarnation of the same thread."""
    return len({*_LOGS.run_listed(connection, sorted(hashes), of_tenant=tenant)}) <= 1


def location_of(row: SqlRow) -> BlobLocation:
    """Return the location in a row that starts with the columns of `PLACE`."""
    sha256, size, blob_id, identifier, key = row[: len(PLACE)]
    return BlobLocation(sha256, size, blob_id, identifier, b"" if key is None else key)


def locations_anywhere(
    connection: Connection, hashes: Collection[bytes]
) -> dict[bytes, BlobLocation]:
    """Return the locations of stored bytes of any tenant, by hash.

    Equal hashes mean equal bytes; the caller has the hash from content that it may read.
    """
    locations: dict[bytes, BlobLocation] = {}
    for (tenant,) in _TENANTS.run(connection).fetchall():
        locations.update(by_hash(connection, tenant, hashes))
    return locations


_Ranges = Sequence[tuple[int, int, BlobLocation]]


def _segments(
    connection: Connection, seqs_by_thread: Mapping[int, Sequence[int]]
) -> dict[int, _Ranges]:
    """Return the segments of threads, from the least to the greatest of the given numbers."""
    ranges: dict[int, _Ranges] = {}
    for thread, seqs in seqs_by_thread.items():
        between = {"of_thread": thread, "lowest": min(seqs), "highest": max(seqs)}
        rows = _BETWEEN.run(connection, **between).fetchall()
        ranges[thread] = [(row[0], row[1], location_of(row[2:])) for row in rows]
    return ranges


def _with_numbers(segments: _Ranges, seqs: Sequence[int]) -> list[BlobLocation]:
    """Return the segments whose range has one of the numbers, first the first number's segment."""
    ordered = sorted(seqs)
    places = [
        (not first <= seqs[0] <= last, place)
        for first, last, place in segments
        if bisect_left(ordered, first) < bisect_right(ordered, last)
    ]
    return list(dict.fromkeys(place for _, place in sorted(places, key=itemgetter(0))))
