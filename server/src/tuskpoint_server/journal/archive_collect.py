"""What the archive has to store next, read in one snapshot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection, func, select

from ..domain.catalog import Runs, begin_merges
from ..domain.model import BlobLocation, CheckpointKey
from . import archive_status
from .archive_dirty import NOTHING, Aside, Bounds, DirtyCheckpoint, Unbuildable, fill, gather
from .archive_merges import MergeStep, merge_steps
from .archive_status import KnownCatalog
from .schema import UNTOLD, manifests, placements, retractions, threads, tombstones
from .statements import EMPTY, in_lists

_MAX_TOLD = 1500
"""Ended incarnations that one flush tells, and as many threads with untold facts."""

_CATALOG_BYTES = 8 << 20
"""Bytes of a catalog and its pages: what every store takes in one put."""

_HEAD_BYTES = 860
"""Bytes of the word on a thread besides its name."""

_PAGES_BYTES = 256 << 10
"""Bytes of pages that there always is room for."""


@dataclass(frozen=True, slots=True)
class KnownManifest:
    """The certified head of a thread's manifest.

    `location` is `None` if nothing of the incarnation was ever stored. `next_generation`
    is above `generation` if the next segment begins a new one.
    """

    thread_id: str
    incarnation: int
    generation: int
    next_generation: int
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
class ThreadFacts:
    """What the catalog tells of a thread besides its manifest; `untold`: not yet."""

    incarnation: int
    deleted_through: str
    agent_id: str
    retention_s: int
    unsearchable: bool
    untold: bool


@dataclass(frozen=True, slots=True)
class Collected:
    """All that one flush certifies.

    Attributes:
        tenant: The tenant.
        checkpoints: Dirty checkpoints, oldest change first.
        retractions: Deletions, oldest first for each checkpoint.
        tombstones: Ended incarnations: (thread, incarnation).
        manifests: Heads of all incarnations of the threads touched, by (thread,
            incarnation).
        facts: Facts of the threads touched, and of those with untold facts.
        catalog: The newest certified catalog, or `None`.
        runs: Its runs, with merges begun.
        merges: What goes into merged runs.
        complete: Nothing was left for another flush.
        crowded: Something was left because more envelopes wait than one pack can take
            with their manifests.
        aside: Checkpoints that were set aside and stand as they stood.
        unbuildable: Checkpoints whose content is not there.
    """

    tenant: str
    checkpoints: tuple[DirtyCheckpoint, ...]
    retractions: tuple[Retraction, ...]
    tombstones: tuple[tuple[str, int], ...]
    manifests: Mapping[tuple[str, int], KnownManifest]
    facts: Mapping[str, ThreadFacts]
    catalog: KnownCatalog | None
    runs: Runs
    merges: tuple[MergeStep, ...]
    complete: bool
    crowded: bool = False
    aside: Aside = field(default_factory=dict)
    unbuildable: tuple[Unbuildable, ...] = ()

    @property
    def empty(self) -> bool:
        """Tell whether there is nothing to store."""
        changed = self.checkpoints or self.retractions or self.tombstones
        return not changed and not any(facts.untold for facts in self.facts.values())


def collect(
    connection: Connection, tenant: str, bounds: Bounds, aside: Aside = NOTHING
) -> Collected:
    """Read what the next flush of a tenant certifies."""
    gathered = gather(connection, tenant, bounds, aside)
    filled = fill(connection, tenant, gathered.found)
    dirty = filled.checkpoints
    retracted, all_retractions = _retractions(
        connection, tenant, bounds, {checkpoint.key for checkpoint in dirty}
    )
    most = min(bounds.max_checkpoints, _MAX_TOLD)
    ended, all_tombstones = _tombstones(connection, tenant, most)
    touched = {(checkpoint.key.thread_id, checkpoint.incarnation) for checkpoint in dirty}
    touched |= {(retraction.key.thread_id, retraction.incarnation) for retraction in retracted}
    touched |= set(ended)
    untold, all_facts = _untold(connection, tenant, most)
    names = sorted({thread_id for thread_id, _ in touched}.union(untold))
    catalog = archive_status.catalog(connection, tenant)
    runs = begin_merges(catalog.runs if catalog else Runs())
    return Collected(
        tenant=tenant,
        checkpoints=dirty,
        retractions=tuple(retracted),
        tombstones=tuple(ended),
        manifests=_manifests(connection, tenant, names),
        facts=_facts(connection, tenant, names),
        catalog=catalog,
        runs=runs,
        merges=tuple(merge_steps(connection, tenant, runs, len(names), _room(names)))
        if names
        else (),
        complete=gathered.complete and all_retractions and all_tombstones and all_facts,
        crowded=gathered.crowded,
        aside=gathered.aside,
        unbuildable=filled.unbuildable,
    )


def _room(names: Sequence[str]) -> int:
    """Return how many bytes of pages fit beside what the catalog says of threads."""
    said = sum(_HEAD_BYTES + len(name.encode()) for name in names)
    return max(_PAGES_BYTES, _CATALOG_BYTES - said)


def _most_threads(bounds: Bounds) -> int:
    """Return of how many threads a flush tells deletions: each takes a segment at least."""
    if bounds.max_members is None:
        return bounds.max_checkpoints
    return max(1, bounds.max_members // 4)


def _retractions(
    connection: Connection, tenant: str, bounds: Bounds, saved_anew: Set[CheckpointKey]
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
    found: list[Retraction] = []
    told: set[tuple[str, int]] = set()
    most = _most_threads(bounds)
    complete = True
    for row in connection.execute(statement.limit(bounds.max_checkpoints + 1)).all():
        retraction = _retraction(row)
        told.add((retraction.key.thread_id, retraction.incarnation))
        if len(found) == bounds.max_checkpoints or len(told) > most:
            complete = False
            break
        found.append(retraction)
    if complete:
        return found, True
    later = statement.where(retractions.c.number > found[-1].number)
    for some in in_lists(sorted({key.thread_id for key in saved_anew})):
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
    for some in in_lists(names):
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
                next_generation=row.next_generation,
                segment=row.segment,
                records=row.records,
                open_segment=row.open_segment,
                location=BlobLocation(row.sha256, row.size, row.blob_id, row.identifier)
                if row.sha256
                else None,
                ended=row.ended,
            )
    return found


def _untold(connection: Connection, tenant: str, limit: int) -> tuple[list[str], bool]:
    """Return threads that changed without a checkpoint and that manifests know."""
    rows = connection.execute(
        select(threads.c.thread_id)
        .join(
            manifests,
            (manifests.c.tenant == threads.c.tenant)
            & (manifests.c.thread_id == threads.c.thread_id)
            & (manifests.c.incarnation == threads.c.incarnation),
        )
        .where(
            threads.c.tenant == tenant,
            UNTOLD,
            threads.c.deleted.is_(False),
            manifests.c.ended.is_(False),
        )
        # So spelled, SQLite does not go through all threads to have them in order.
        .order_by(func.coalesce(threads.c.thread_id, EMPTY))
        .limit(limit + 1)
    ).scalars()
    found = list(rows)
    return found[:limit], len(found) <= limit


def _facts(connection: Connection, tenant: str, names: Sequence[str]) -> dict[str, ThreadFacts]:
    found: dict[str, ThreadFacts] = {}
    columns = (threads.c[name] for name in ("thread_id", *ThreadFacts.__slots__))
    statement = select(*columns).where(threads.c.tenant == tenant)
    for some in in_lists(names):
        rows = connection.execute(statement.where(threads.c.thread_id.in_(some)))
        found.update((row[0], ThreadFacts(*row[1:])) for row in rows)
    return found
