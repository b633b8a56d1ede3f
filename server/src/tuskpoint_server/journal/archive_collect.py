"""What the archive has to store next, read in one snapshot."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, TypeVar

from sqlalchemy import Connection, bindparam, select

from ..domain.catalog import Runs, begin_merges
from ..domain.model import BlobLocation, CheckpointKey, Lineage, State, Value, Write, write_order
from ..domain.state import decode_channels, decode_state
from . import archive_status
from .archive_merges import MergeStep, merge_steps
from .archive_status import KnownCatalog
from .pending import COLUMNS, write_from
from .schema import (
    checkpoints,
    contents,
    envelopes,
    manifests,
    placements,
    retractions,
    threads,
    tombstones,
    writes,
)
from .statements import Statement, of_checkpoint

_T = TypeVar("_T")

_DirtyRow = Any  # a row of `_ROW`

_IN_LIST = 500


@dataclass(frozen=True, slots=True)
class Bounds:
    """What one pack may hold; the first checkpoint always fits.

    Attributes:
        max_checkpoints: Number of checkpoints; also bounds retractions and tombstones.
        max_bytes: Bytes of values and writes.
    """

    max_checkpoints: int
    max_bytes: int


@dataclass(frozen=True, slots=True)
class DirtyCheckpoint:
    """A checkpoint with a revision that is not certified.

    Attributes:
        key: The checkpoint.
        incarnation: Incarnation of its thread.
        parent_id: Parent, or empty.
        revision: Its revision.
        packed_revision: Revision in a pack that was spooled last; 0: none. Manifests know it
            only if that pack was certified.
        certified_revision: Revision that manifests know; 0: none.
        created_us: Time of its first save.
        dirty_bytes: Bytes that wait.
        metadata: The metadata's exact bytes.
        label: Name, or empty.
        relabelled: The label changed since `certified_revision`.
        summary: One sentence, or empty.
        lineage: Lineage beyond the parent.
        stored: Envelopes that hold its current state already, the full one first; empty
            if the state has to be stored.
        state: The state; without channels if it is stored already.
        writes: Writes that the stored envelopes lack, in order.
    """

    key: CheckpointKey
    incarnation: int
    parent_id: str
    revision: int
    packed_revision: int
    certified_revision: int
    created_us: int
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


@dataclass(frozen=True, slots=True)
class KnownManifest:
    """The certified head of a thread's manifest.

    `location` is `None` if nothing of the incarnation was ever stored.
    """

    thread_id: str
    incarnation: int
    generation: int
    segment: int
    records: int
    open_segment: bytes
    location: BlobLocation | None
    ended: bool


@dataclass(frozen=True, slots=True)
class Retraction:
    """A deletion that a manifest has yet to tell."""

    number: int
    key: CheckpointKey
    incarnation: int


@dataclass(frozen=True, slots=True)
class Collected:
    """All that goes into one pack.

    Attributes:
        tenant: The tenant.
        checkpoints: Dirty checkpoints, oldest change first.
        retractions: Deletions, oldest first for each checkpoint.
        tombstones: Ended incarnations: (thread, incarnation).
        manifests: Heads of all incarnations of the threads touched, by (thread,
            incarnation).
        deleted_through: Of threads touched that were ever deleted.
        catalog: The newest certified catalog, or `None`.
        runs: Its runs, with merges begun.
        merges: What goes into merged runs.
        complete: Nothing was left for another pack.
    """

    tenant: str
    checkpoints: tuple[DirtyCheckpoint, ...]
    retractions: tuple[Retraction, ...]
    tombstones: tuple[tuple[str, int], ...]
    manifests: Mapping[tuple[str, int], KnownManifest]
    deleted_through: Mapping[str, str]
    catalog: KnownCatalog | None
    runs: Runs
    merges: tuple[MergeStep, ...]
    complete: bool

    @property
    def empty(self) -> bool:
        """Tell whether there is nothing to store."""
        return not (self.checkpoints or self.retractions or self.tombstones)


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
_WRITES_ABOVE = Statement(
    select(*COLUMNS).where(of_checkpoint(writes), writes.c.revision > bindparam("above"))
)


def collect(connection: Connection, tenant: str, bounds: Bounds) -> Collected:
    """Read what the next pack of a tenant holds."""
    dirty, all_checkpoints = _dirty(connection, tenant, bounds)
    retracted, all_retractions = _retractions(connection, tenant, bounds.max_checkpoints, dirty)
    ended, all_tombstones = _tombstones(connection, tenant, bounds.max_checkpoints)
    touched = {(checkpoint.key.thread_id, checkpoint.incarnation) for checkpoint in dirty}
    touched |= {(retraction.key.thread_id, retraction.incarnation) for retraction in retracted}
    touched |= set(ended)
    names = sorted({thread_id for thread_id, _ in touched})
    catalog = archive_status.catalog(connection, tenant)
    runs = begin_merges(catalog.runs if catalog else Runs())
    return Collected(
        tenant=tenant,
        checkpoints=tuple(dirty),
        retractions=tuple(retracted),
        tombstones=tuple(ended),
        manifests=_manifests(connection, tenant, names),
        deleted_through=_deleted_through(connection, tenant, names),
        catalog=catalog,
        runs=runs,
        merges=tuple(merge_steps(connection, tenant, runs, len(touched))) if touched else (),
        complete=all_checkpoints and all_retractions and all_tombstones,
    )


@dataclass(frozen=True, slots=True)
class _Found:
    """A dirty row with what decides how it is stored."""

    row: _DirtyRow
    stored: tuple[BlobLocation, ...]
    revisions: tuple[int, ...]


def _dirty(
    connection: Connection, tenant: str, bounds: Bounds
) -> tuple[list[DirtyCheckpoint], bool]:
    rows = connection.execute(
        select(*_ROW)
        .where(
            checkpoints.c.tenant == tenant,
            checkpoints.c.dirty_us.is_not(None),
            checkpoints.c.hidden.is_(False),
        )
        .order_by(checkpoints.c.dirty_us, checkpoints.c.seq)
        .limit(bounds.max_checkpoints + 1)
        .execution_options(yield_per=100)
    )
    found: list[_Found] = []
    needed: dict[bytes, None] = {}
    size = 0
    complete = True
    for row in rows:
        stored, revisions = _stored(connection, tenant, row)
        channels = () if stored else decode_channels(row.state)
        size += max(row.dirty_bytes, sum(channel.size for channel in channels))
        if found and (size > bounds.max_bytes or len(found) == bounds.max_checkpoints):
            complete = False
            break
        needed.update((channel.digest, None) for channel in channels if channel.digest)
        found.append(_Found(row, stored, revisions))
    rows.close()
    values = _values(connection, tenant, needed)
    return [_checkpoint(connection, tenant, item, values) for item in found], complete


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
    connection: Connection, tenant: str, found: _Found, values: Mapping[bytes, Value]
) -> DirtyCheckpoint:
    row = found.row
    key = CheckpointKey(row.thread_id, row.checkpoint_ns, row.checkpoint_id)
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
        raise LookupError(f"the journal lacks the content of {missing} of checkpoint {key}")
    return DirtyCheckpoint(
        key=key,
        incarnation=row.incarnation,
        parent_id=row.parent_id,
        revision=row.revision,
        packed_revision=row.packed_revision,
        certified_revision=row.certified_revision,
        created_us=row.created_us,
        dirty_bytes=row.dirty_bytes,
        metadata=row.metadata,
        label=row.label,
        relabelled=row.label_revision > row.certified_revision,
        summary=row.summary,
        lineage=Lineage(row.forked_from, row.rolled_back_from, row.adopted_from),
        stored=found.stored,
        stored_revisions=found.revisions,
        state=state,
        writes=tuple(sorted(map(write_from, lacking), key=write_order)),
    )


def _values(connection: Connection, tenant: str, digests: Iterable[bytes]) -> dict[bytes, Value]:
    found: dict[bytes, Value] = {}
    for some in _chunks(digests, _IN_LIST):
        rows = connection.execute(
            select(contents.c.digest, contents.c.type, contents.c.data).where(
                contents.c.tenant == tenant, contents.c.digest.in_(some)
            )
        )
        found.update((bytes(digest), Value(kind, data)) for digest, kind, data in rows)
    return found


def _retractions(
    connection: Connection, tenant: str, limit: int, dirty: Sequence[DirtyCheckpoint]
) -> tuple[list[Retraction], bool]:
    """Return the oldest, and those of checkpoints that were saved anew and are told of now.

    Told after the checkpoint's new `PUT`, a retraction would take that back.
    """
    statement = (
        select(
            retractions.c.number,
            retractions.c.thread_id,
            retractions.c.checkpoint_ns,
            retractions.c.checkpoint_id,
            retractions.c.incarnation,
        )
        .where(retractions.c.tenant == tenant)
        .order_by(retractions.c.number)
    )
    rows = connection.execute(statement.limit(limit + 1)).all()
    found = [_retraction(row) for row in rows[:limit]]
    if len(rows) <= limit:
        return found, True
    later = statement.where(retractions.c.number > found[-1].number)
    saved_anew = {checkpoint.key for checkpoint in dirty}
    for some in _chunks(sorted({key.thread_id for key in saved_anew}), _IN_LIST):
        candidates = connection.execute(later.where(retractions.c.thread_id.in_(some)))
        found.extend(
            retraction
            for retraction in map(_retraction, candidates)
            if retraction.key in saved_anew
        )
    return found, False


def _retraction(row: Sequence[Any]) -> Retraction:
    number, *key, incarnation = row
    return Retraction(number, CheckpointKey(*key), incarnation)


def _tombstones(
    connection: Connection, tenant: str, limit: int
) -> tuple[list[tuple[str, int]], bool]:
    rows = connection.execute(
        select(tombstones.c.thread_id, tombstones.c.incarnation)
        .where(tombstones.c.tenant == tenant)
        .order_by(tombstones.c.thread_id, tombstones.c.incarnation)
        .limit(limit + 1)
    ).all()
    return [(row.thread_id, row.incarnation) for row in rows[:limit]], len(rows) <= limit


def _manifests(
    connection: Connection, tenant: str, names: Sequence[str]
) -> dict[tuple[str, int], KnownManifest]:
    found: dict[tuple[str, int], KnownManifest] = {}
    for some in _chunks(names, _IN_LIST):
        rows = connection.execute(
            select(manifests, placements.c.size, placements.c.blob_id, placements.c.identifier)
            .join(
                placements,
                (placements.c.tenant == manifests.c.tenant)
                & (placements.c.sha256 == manifests.c.sha256),
                isouter=True,
            )
            .where(manifests.c.tenant == tenant, manifests.c.thread_id.in_(some))
        )
        for row in rows:
            found[row.thread_id, row.incarnation] = KnownManifest(
                thread_id=row.thread_id,
                incarnation=row.incarnation,
                generation=row.generation,
                segment=row.segment,
                records=row.records,
                open_segment=row.open_segment,
                location=BlobLocation(row.sha256, row.size, row.blob_id, row.identifier)
                if row.sha256
                else None,
                ended=row.ended,
            )
    return found


def _deleted_through(connection: Connection, tenant: str, names: Sequence[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for some in _chunks(names, _IN_LIST):
        rows = connection.execute(
            select(threads.c.thread_id, threads.c.deleted_through).where(
                threads.c.tenant == tenant, threads.c.thread_id.in_(some)
            )
        )
        found.update((row.thread_id, row.deleted_through) for row in rows)
    return found


def _chunks(items: Iterable[_T], size: int) -> Iterator[tuple[_T, ...]]:
    iterator = iter(items)
    while some := tuple(islice(iterator, size)):
        yield some
