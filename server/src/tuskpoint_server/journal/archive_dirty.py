"""Dirty checkpoints: which of them a flush takes, and what of them has to be stored."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from sqlalchemy import Connection, bindparam, func, select

from ..domain.manifest import SEGMENT_RECORDS
from ..domain.model import (
    BlobLocation,
    Channel,
    CheckpointKey,
    Lineage,
    State,
    Value,
    Write,
    write_order,
)
from ..domain.state import decode_channels, decode_state
from .pending import COLUMNS, write_from
from .schema import checkpoints, contents, envelopes, placements, writes
from .statements import Statement, in_lists, of_checkpoint

_RECORD_BYTES = 480
"""Bytes of a record besides what callers choose."""

_DirtyRow = Any  # a row of `_ROW`

MAX_THREADS = 3000
"""Threads of whose checkpoints one flush tells: keeps the catalog's changes below a
member's bound."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """What one flush may hold; the first checkpoint always fits.

    Attributes:
        max_checkpoints: Number of checkpoints; also bounds retractions and tombstones.
        max_bytes: Bytes of values and writes.
        max_members: Envelopes and segments of a pack that holds all of the flush; `None`
            if a pack has no bound. What has more has to store its envelopes before.
        max_member_bytes: Content of a checkpoint beyond which its envelope has to be
            stored before; `None` for no bound.
        max_records: Records of one thread, whose new segments go into one pack; `None`
            for no bound.
        max_record_bytes: Bytes of those; `None` for no bound.
        passed_over: Number of checkpoints that have to be stored before and that are
            passed over, to tell of others that are stored. One that is saved again and
            again must not hold them up.
    """

    max_checkpoints: int
    max_bytes: int
    max_members: int | None = None
    max_member_bytes: int | None = None
    max_records: int | None = None
    max_record_bytes: int | None = None
    passed_over: int = 0


@dataclass(frozen=True, slots=True)
class Unbuildable:
    """A revision of a checkpoint that cannot be stored, and why."""

    key: CheckpointKey
    revision: int
    problem: str


Aside = Mapping[CheckpointKey, Unbuildable]
"""Checkpoints that are left alone until they change."""

NOTHING: Aside = MappingProxyType({})
"""Nothing is set aside."""


@dataclass(frozen=True, slots=True)
class DirtyCheckpoint:
    """A checkpoint with a revision that is not certified.

    Attributes:
        key: The checkpoint.
        incarnation: Incarnation of its thread.
        parent_id: Parent, or empty.
        revision: The revision that is told of: its own, or that of the stored envelopes if
            it goes on changing before the rest can be stored.
        packed_revision: Revision in a pack that was spooled last; 0: none. Manifests know it
            only if that pack was certified.
        certified_revision: Revision that manifests know; 0: none.
        created_us: Time of its first save.
        hidden: Readers shall not see it.
        dirty_bytes: Bytes that wait.
        metadata: The metadata's exact bytes.
        label: Name, or empty.
        relabelled: The label changed since `certified_revision`.
        summary: One sentence, or empty.
        lineage: Lineage beyond the parent.
        stored: Envelopes that hold its current state already, the full one first; empty
            if the state has to be stored.
        stored_revisions: Revisions held by those envelopes.
        state: The state; without channels if it is stored already.
        writes: Writes that the stored envelopes lack, in order; none if they are left.
        left_us: Time of the oldest change that is left for another flush; 0: none is.
    """

    key: CheckpointKey
    incarnation: int
    parent_id: str
    revision: int
    packed_revision: int
    certified_revision: int
    created_us: int
    hidden: bool
    dirty_bytes: int
    metadata: bytes
    label: str
    relabelled: bool
    summary: str
    lineage: Lineage
    stored: tuple[BlobLocation, ...]
    stored_revisions: tuple[int, ...]
    state: State
    writes: tuple[Write, ...]
    left_us: int = 0


_ROW = (
    checkpoints.c.thread_id,
    checkpoints.c.checkpoint_ns,
    checkpoints.c.checkpoint_id,
    checkpoints.c.incarnation,
    checkpoints.c.parent_id,
    checkpoints.c.state,
    checkpoints.c.metadata,
    checkpoints.c.label,
    checkpoints.c.summary,
    checkpoints.c.forked_from,
    checkpoints.c.rolled_back_from,
    checkpoints.c.adopted_from,
    checkpoints.c.revision,
    checkpoints.c.content_revision,
    checkpoints.c.label_revision,
    checkpoints.c.packed_revision,
    checkpoints.c.certified_revision,
    checkpoints.c.created_us,
    checkpoints.c.hidden,
    checkpoints.c.dirty_bytes,
)
_ENVELOPES = Statement(
    select(
        envelopes.c.revision,
        placements.c.sha256,
        placements.c.size,
        placements.c.blob_id,
        placements.c.identifier,
    )
    .join(
        placements,
        (placements.c.tenant == envelopes.c.tenant) & (placements.c.sha256 == envelopes.c.sha256),
    )
    .where(of_checkpoint(envelopes))
    .order_by(envelopes.c.ordinal)
)
_EXTENT_ABOVE = Statement(
    select(
        func.count(),
        func.coalesce(func.sum(writes.c.size), 0),
        func.coalesce(func.min(writes.c.created_us), 0),
    ).where(of_checkpoint(writes), writes.c.revision > bindparam("above"))
)
_WRITES_ABOVE = Statement(
    select(*COLUMNS).where(of_checkpoint(writes), writes.c.revision > bindparam("above"))
)


def collect_envelopes(
    connection: Connection, tenant: str, bounds: Bounds, aside: Aside = NOTHING
) -> Filled:
    """Read the dirty checkpoints that need an envelope, oldest change first."""
    found: list[Found] = []
    size = 0
    for candidate in _dirty(connection, tenant):
        if candidate.held or candidate.is_among(aside):
            continue
        size += candidate.size
        if found and (size > bounds.max_bytes or len(found) == bounds.max_checkpoints):
            break
        found.append(candidate)
    return fill(connection, tenant, found)


@dataclass(frozen=True, slots=True)
class Found:
    """A dirty row with what decides how it is stored.

    Attributes:
        row: The row.
        stored: Envelopes that hold its state.
        revisions: The revisions they hold.
        channels: Channels whose content has to be stored.
        held: The envelopes hold all that is told of it.
        size: Bytes of content that have to be stored, if perhaps not by this flush.
        revision: The revision that is told of.
        since_us: Time of the oldest write that the envelopes lack.
    """

    row: _DirtyRow
    stored: tuple[BlobLocation, ...]
    revisions: tuple[int, ...]
    channels: tuple[Channel, ...]
    held: bool
    size: int
    revision: int
    since_us: int

    @property
    def key(self) -> CheckpointKey:
        """The checkpoint."""
        row = self.row
        return CheckpointKey(row.thread_id, row.checkpoint_ns, row.checkpoint_id)

    @property
    def records(self) -> int:
        """Number of records that its thread's manifest is told, about."""
        row = self.row
        fresh = sum(1 for held in self.revisions if held > row.certified_revision)
        said = [not self.held, row.hidden, row.label_revision > row.certified_revision > 0]
        return max(1, fresh + sum(map(bool, said)))

    @property
    def record_bytes(self) -> int:
        """Bound on the bytes of those records."""
        row = self.row
        named = (row.checkpoint_ns, row.checkpoint_id)
        said = (row.parent_id, row.label, row.summary,
                row.forked_from, row.rolled_back_from, row.adopted_from)  # fmt: skip
        once = sum(len(text.encode()) for text in said)
        return once + self.records * (_RECORD_BYTES + sum(len(text.encode()) for text in named))

    def is_among(self, aside: Aside) -> bool:
        """Tell whether it was set aside as it stands."""
        known = aside.get(self.key) if aside else None
        return known is not None and known.revision == self.row.revision

    def as_stored(self) -> Found | None:
        """Return what the stored envelopes hold of it; `None` if that is told already."""
        revision = max(self.revisions, default=0)
        if revision <= self.row.certified_revision:
            return None
        return replace(self, held=True, revision=revision)


@dataclass(slots=True)
class Gathered:
    """Dirty rows that one flush takes, and whether some were left, and why.

    Attributes:
        found: The rows.
        complete: Nothing was left but what was set aside.
        crowded: Something has to be stored before it can be told of.
        aside: What was set aside and stands as it stood.
    """

    found: list[Found]
    complete: bool = True
    crowded: bool = False
    aside: dict[CheckpointKey, Unbuildable] = field(default_factory=dict)


def gather(connection: Connection, tenant: str, bounds: Bounds, aside: Aside = NOTHING) -> Gathered:
    """Take the oldest dirty rows, as many as the bounds let in."""
    gathered = Gathered([])
    records: Counter[tuple[str, int]] = Counter()
    record_bytes: Counter[tuple[str, int]] = Counter()
    size = envelopes_of = passed_over = 0
    for candidate in _dirty(connection, tenant):
        if candidate.is_among(aside):
            gathered.aside[candidate.key] = aside[candidate.key]
            continue
        found = gathered.found
        thread = (candidate.row.thread_id, candidate.row.incarnation)
        if found and (
            size + candidate.size > bounds.max_bytes
            or len(found) == bounds.max_checkpoints
            or len(records) > MAX_THREADS
            or _over(records[thread] + candidate.records, bounds.max_records)
            or _over(record_bytes[thread] + candidate.record_bytes, bounds.max_record_bytes)
        ):
            gathered.complete = False
            break
        if not candidate.held:
            members = envelopes_of + 1 + sum(1 + n // SEGMENT_RECORDS for n in records.values())
            if _over(candidate.size, bounds.max_member_bytes) or _over(members, bounds.max_members):
                gathered.complete, gathered.crowded = False, True
                stored = candidate.as_stored()
                if passed_over == bounds.passed_over:
                    break
                passed_over += 1
                if stored is None:
                    continue
                candidate = stored
            else:
                envelopes_of += 1
        size += candidate.size
        records[thread] += candidate.records
        record_bytes[thread] += candidate.record_bytes
        found.append(candidate)
    return gathered


def _over(size: int, bound: int | None) -> bool:
    return bound is not None and size > bound


def _dirty(connection: Connection, tenant: str) -> Iterator[Found]:
    """Yield the dirty rows, oldest change first."""
    with connection.execute(
        select(*_ROW)
        .where(checkpoints.c.tenant == tenant, checkpoints.c.dirty_us.is_not(None))
        .order_by(checkpoints.c.dirty_us, checkpoints.c.seq)
        .execution_options(yield_per=100)
    ) as rows:
        for row in rows:
            stored, revisions = _stored(connection, tenant, row)
            lacking, size, since_us = _lacking_writes(
                connection, tenant, row, max(revisions, default=0)
            )
            channels: tuple[Channel, ...] = ()
            if not stored:
                channels = decode_channels(row.state)
                size = max(row.dirty_bytes, size + sum(channel.size for channel in channels))
            held = bool(stored) and not lacking
            yield Found(row, stored, revisions, channels, held, size, row.revision, since_us)


def _lacking_writes(
    connection: Connection, tenant: str, row: _DirtyRow, above: int
) -> tuple[int, int, int]:
    """Return number, bytes and oldest time of the writes that came after a revision."""
    if row.revision <= above:
        return 0, 0, 0
    count, size, since_us = _EXTENT_ABOVE.run(
        connection,
        of_tenant=tenant,
        of_thread=row.thread_id,
        of_ns=row.checkpoint_ns,
        of_id=row.checkpoint_id,
        above=above,
    ).fetchone() or (0, 0, 0)
    return int(count), int(size), int(since_us)


@dataclass(frozen=True, slots=True)
class Filled:
    """Dirty checkpoints with their content, and those whose content is not there."""

    checkpoints: tuple[DirtyCheckpoint, ...]
    unbuildable: tuple[Unbuildable, ...]


def fill(connection: Connection, tenant: str, found: Sequence[Found]) -> Filled:
    """Read the content of dirty rows."""
    needed = {channel.digest: None for item in found for channel in item.channels if channel.digest}
    values = _values(connection, tenant, needed)
    checkpoints: list[DirtyCheckpoint] = []
    unbuildable: list[Unbuildable] = []
    for item in found:
        try:
            checkpoints.append(_checkpoint(connection, tenant, item, values))
        except LookupError as error:
            unbuildable.append(Unbuildable(item.key, item.row.revision, str(error)))
    return Filled(tuple(checkpoints), tuple(unbuildable))


def _stored(
    connection: Connection, tenant: str, row: _DirtyRow
) -> tuple[tuple[BlobLocation, ...], tuple[int, ...]]:
    """Return the envelopes of a row if the full one holds its current state."""
    known = _ENVELOPES.run(
        connection,
        of_tenant=tenant,
        of_thread=row.thread_id,
        of_ns=row.checkpoint_ns,
        of_id=row.checkpoint_id,
    ).fetchall()
    if not known or known[0][0] < row.content_revision:
        return (), ()
    locations = tuple(BlobLocation(bytes(item[1]), *item[2:]) for item in known)
    return locations, tuple(item[0] for item in known)


def _checkpoint(
    connection: Connection, tenant: str, found: Found, values: Mapping[bytes, Value]
) -> DirtyCheckpoint:
    row, key = found.row, found.key
    lacking: Sequence[Any] = ()
    if not found.held:
        lacking = _WRITES_ABOVE.run(
            connection,
            of_tenant=tenant,
            of_thread=row.thread_id,
            of_ns=row.checkpoint_ns,
            of_id=row.checkpoint_id,
            above=max(found.revisions, default=0),
        ).fetchall()
    state = decode_state(row.state, values)
    if found.stored:
        state = State(state.frame, ())
    missing = [channel.name for channel in state.channels if channel.digest and not channel.value]
    if missing:
        raise LookupError(f"the journal lacks the content of {', '.join(missing)}")
    return DirtyCheckpoint(
        key=key,
        incarnation=row.incarnation,
        parent_id=row.parent_id,
        revision=found.revision,
        packed_revision=row.packed_revision,
        certified_revision=row.certified_revision,
        created_us=row.created_us,
        hidden=bool(row.hidden),
        dirty_bytes=max(0, row.dirty_bytes - (found.size if found.held else 0)),
        metadata=row.metadata,
        label=row.label,
        relabelled=row.label_revision > row.certified_revision,
        summary=row.summary,
        lineage=Lineage(row.forked_from, row.rolled_back_from, row.adopted_from),
        stored=found.stored,
        stored_revisions=found.revisions,
        state=state,
        writes=tuple(sorted(map(write_from, lacking), key=write_order)),
        left_us=found.since_us if found.revision < row.revision else 0,
    )


def _values(connection: Connection, tenant: str, digests: Iterable[bytes]) -> dict[bytes, Value]:
    found: dict[bytes, Value] = {}
    for some in in_lists(digests):
        rows = connection.execute(
            select(contents.c.digest, contents.c.type, contents.c.data).where(
                contents.c.tenant == tenant, contents.c.digest.in_(some)
            )
        )
        found.update((bytes(digest), Value(kind, data)) for digest, kind, data in rows)
    return found
