"""From what was collected to manifests and the catalog, and the plan that goes with them.

Pure and synchronous; runs in a worker thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from ..blobs.api import Member
from ..domain.catalog import (
    PAGE_HEADS,
    Catalog,
    Runs,
    ThreadHead,
    add_page,
    encode_catalog,
    encode_page,
    finish_merge,
)
from ..domain.digests import blob_digest
from ..domain.manifest import (
    SEGMENT_RECORDS,
    ManifestHead,
    Record,
    RecordType,
    Segment,
    append,
    decode_segment,
    encode_segment,
)
from ..domain.model import BlobLocation, CheckpointKey
from ..journal.archive_collect import Collected, KnownManifest, ThreadFacts
from ..journal.archive_dirty import DirtyCheckpoint
from ..journal.archive_plan import (
    PackPlan,
    PlannedCatalog,
    PlannedCheckpoint,
    PlannedEnvelope,
    PlannedFacts,
    PlannedManifest,
)
from .encoding import EncodedCheckpoint

Predict = Callable[[bytes, int], BlobLocation]

FIRST_GENERATION = 1
ENVELOPE, PART, SEGMENT = "envelope", "part", "segment"
CATALOG, CATALOG_PAGE = "catalog", "catalog-page"
"""Kinds of members."""


@dataclass(frozen=True, slots=True)
class BuiltPack:
    """The bytes of a pack, in order (the catalog last), and what they will change."""

    members: tuple[Member, ...]
    plan: PackPlan


@dataclass(frozen=True, slots=True)
class BuiltManifest:
    """The head that a manifest moves to, and the segments that this takes, the head last."""

    planned: PlannedManifest
    head: ManifestHead | None
    members: tuple[Member, ...] = ()


class Members:
    """Collects members; the same bytes become one member.

    Args:
        predict: Hash and size to the location that these bytes will have.
    """

    def __init__(self, predict: Predict) -> None:
        self._predict = predict
        self._found: dict[bytes, Member] = {}

    def add(self, data: bytes, kind: str) -> BlobLocation:
        """Take bytes and return the location that they will have."""
        sha256 = blob_digest(data)
        self._found.setdefault(sha256, Member(sha256, data, kind))
        return self._predict(sha256, len(data))

    def all(self) -> tuple[Member, ...]:
        """Return the members, in the order they came."""
        return tuple(self._found.values())


def build(
    collected: Collected,
    encoded: Sequence[EncodedCheckpoint],
    predict: Predict,
    collected_us: int,
) -> BuiltPack:
    """Build a final pack that holds everything: envelopes, manifests, the catalog.

    Args:
        collected: What goes into it.
        encoded: Its checkpoints with the envelopes that they lack, in the same order.
        predict: Hash and size to the location that these bytes will have.
        collected_us: Time at which it was collected.
    """
    envelopes = Members(predict)
    placed = {
        item.checkpoint.key: tuple(envelopes.add(data, ENVELOPE) for data in item.envelopes)
        for item in encoded
    }
    manifests = build_manifests(collected, placed, predict)
    members = [*envelopes.all(), *(one for built in manifests for one in built.members)]
    built = build_catalog(collected, manifests, placed, predict, collected_us)
    return BuiltPack((*members, *built.members), built.plan)


# --- checkpoints -----------------------------------------------------------------------

Placed = Mapping[CheckpointKey, Sequence[BlobLocation]]
"""Locations of the new envelopes of checkpoints, by key, oldest first."""


def planned_checkpoint(
    checkpoint: DirtyCheckpoint, envelopes: Iterable[PlannedEnvelope]
) -> PlannedCheckpoint:
    """Return what the journal records of a checkpoint and its new envelopes."""
    return PlannedCheckpoint(
        key=checkpoint.key,
        incarnation=checkpoint.incarnation,
        created_us=checkpoint.created_us,
        packed_revision=checkpoint.packed_revision,
        revision=checkpoint.revision,
        dirty_bytes=checkpoint.dirty_bytes,
        replaces=not checkpoint.stored,
        envelopes=tuple(envelopes),
        left_us=checkpoint.left_us,
    )


def _told(checkpoint: DirtyCheckpoint, new: Sequence[BlobLocation]) -> list[Record]:
    """Return what the manifest is told of a checkpoint.

    Args:
        checkpoint: The checkpoint.
        new: Locations of the envelopes that are stored with it now.
    """
    # Of a copy, only the manifest of the thread that it comes from knows the envelopes.
    untold = checkpoint.certified_revision == 0
    stored = list(zip(checkpoint.stored, checkpoint.stored_revisions, strict=True))
    stored.extend((location, checkpoint.revision) for location in new)
    told: list[Record] = []
    for ordinal, (envelope, held) in enumerate(stored):
        if not untold and held <= checkpoint.certified_revision:
            continue
        if ordinal == 0:
            told.append(_put(checkpoint, envelope, held))
        else:
            told.append(_record(RecordType.WRITES, checkpoint, held, envelope))
    if checkpoint.relabelled and not untold:
        told.append(_record(RecordType.LABEL, checkpoint, checkpoint.revision))
    if checkpoint.hidden:
        told.append(_record(RecordType.HIDE, checkpoint, checkpoint.revision))
    elif not told or told[-1].revision < checkpoint.revision:
        told.append(_record(RecordType.SUMMARY, checkpoint, checkpoint.revision))
    return told


def _put(checkpoint: DirtyCheckpoint, envelope: BlobLocation, revision: int) -> Record:
    return replace(
        _record(RecordType.PUT, checkpoint, revision, envelope),
        parent_id=checkpoint.parent_id,
        label=checkpoint.label,
        summary=checkpoint.summary,
        lineage=checkpoint.lineage,
        created_us=checkpoint.created_us,
    )


def _record(
    kind: RecordType,
    checkpoint: DirtyCheckpoint,
    revision: int,
    envelope: BlobLocation | None = None,
) -> Record:
    return Record(
        type=kind,
        checkpoint_ns=checkpoint.key.checkpoint_ns,
        checkpoint_id=checkpoint.key.checkpoint_id,
        revision=revision,
        envelope=envelope,
        label=checkpoint.label if kind is RecordType.LABEL else "",
        summary=checkpoint.summary if kind is RecordType.SUMMARY else "",
    )


# --- manifests -------------------------------------------------------------------------


def build_manifests(collected: Collected, placed: Placed, predict: Predict) -> list[BuiltManifest]:
    """Return the head that each touched thread moves to.

    It is that of the newest incarnation of which there is something to tell: one whose
    checkpoints were all removed before any was stored must not hide that the one before
    it ended.

    Args:
        collected: What is told.
        placed: Where new envelopes lie, or will lie in the same pack.
        predict: Hash and size to the location that segments will have.
    """
    records: dict[tuple[str, int], list[Record]] = {}
    for retraction in collected.retractions:
        records.setdefault((retraction.key.thread_id, retraction.incarnation), []).append(
            Record(RecordType.RETRACT, retraction.key.checkpoint_ns, retraction.key.checkpoint_id)
        )
    for checkpoint in collected.checkpoints:
        records.setdefault((checkpoint.key.thread_id, checkpoint.incarnation), []).extend(
            _told(checkpoint, placed.get(checkpoint.key, ()))
        )
    return list(_manifests(collected, records, predict))


def _manifests(
    collected: Collected, records: dict[tuple[str, int], list[Record]], predict: Predict
) -> Iterator[BuiltManifest]:
    told = {key: found for key in records if (found := _tellable(collected, key, records[key]))}
    newest: dict[str, int] = {}
    for thread_id, incarnation in (*told, *collected.tombstones, *collected.manifests):
        newest[thread_id] = max(incarnation, newest.get(thread_id, 0))
    ended = set(collected.tombstones)
    for thread_id, incarnation in sorted(newest.items()):
        key = (thread_id, incarnation)
        known = collected.manifests.get(key)
        if key in ended or (known is not None and known.ended):
            if key in ended:
                yield _ended(key, known)
            continue
        if key in told:
            yield _appended(key, known, told[key], predict)


def _tellable(collected: Collected, key: tuple[str, int], records: list[Record]) -> list[Record]:
    """Return the records without retractions from a manifest that does not exist."""
    known = collected.manifests.get(key)
    if known is not None and known.location is not None:
        return records
    return [record for record in records if record.type is not RecordType.RETRACT]


def _ended(key: tuple[str, int], known: KnownManifest | None) -> BuiltManifest:
    location = known.location if known else None
    planned = PlannedManifest(
        thread_id=key[0],
        incarnation=key[1],
        generation=known.generation if known else FIRST_GENERATION,
        segment=known.segment if known else 0,
        records=known.records if known else 0,
        sha256=location.sha256 if location else b"",
        rewritten=False,
        superseded=b"",
        ended=True,
    )
    return BuiltManifest(planned, _head(planned, location) if location else None)


def _appended(
    key: tuple[str, int], known: KnownManifest | None, told: list[Record], predict: Predict
) -> BuiltManifest:
    stored = known.location if known else None
    next_generation = known.next_generation if known else FIRST_GENERATION
    if known is not None and stored is not None:
        segment = decode_segment(known.open_segment, stored.blob_id)
        rewrites = len(segment.records) < SEGMENT_RECORDS and next_generation <= segment.generation
    else:
        segment = Segment(key[0], key[1], max(FIRST_GENERATION, next_generation), 0)
        rewrites = False
    full, segment = append(segment, stored, told, predict, next_generation)
    members = Members(predict)
    for complete in full:
        members.add(encode_segment(complete), SEGMENT)
    location = members.add(encode_segment(segment), SEGMENT)
    planned = PlannedManifest(
        thread_id=key[0],
        incarnation=key[1],
        generation=segment.generation,
        segment=segment.segment,
        records=(known.records if known else 0) + len(told),
        sha256=location.sha256,
        rewritten=True,
        superseded=stored.sha256 if stored and rewrites else b"",
        ended=False,
        segments=tuple(member.sha256 for member in members.all()),
    )
    return BuiltManifest(planned, _head(planned, location), members.all())


def _head(planned: PlannedManifest, location: BlobLocation) -> ManifestHead:
    return ManifestHead(location, planned.segment, planned.generation, planned.records)


# --- the catalog -----------------------------------------------------------------------


def build_catalog(
    collected: Collected,
    manifests: Sequence[BuiltManifest],
    placed: Placed,
    predict: Predict,
    collected_us: int,
) -> BuiltPack:
    """Build the catalog that leads to manifests, and the plan of the whole flush.

    Args:
        collected: What the flush certifies.
        manifests: The heads that move, with the locations that the catalog shall name.
        placed: Where new envelopes of this pack lie.
        predict: Hash and size to the location that these bytes will have.
        collected_us: Time at which it was collected.
    """
    changes, unmoved = _changes(collected, manifests)
    members = _CatalogMembers(predict)
    runs, moved = _merge(collected, {change.thread_id for change in changes}, members)
    known = collected.catalog
    catalog = Catalog(
        generation=known.generation if known else FIRST_GENERATION,
        seq=(known.seq if known else 0) + 1,
        previous=known.location if known else None,
        settings={},
        runs=runs.levels,
        changes=changes,
    )
    location = members.add(encode_catalog(catalog), CATALOG, runs.next_run)
    planned = PlannedCatalog(
        generation=catalog.generation,
        previous_seq=catalog.seq - 1,
        sha256=location.sha256,
        run=runs.next_run,
        runs=replace(runs, next_run=runs.next_run + 1),
        moved=(*moved, *((runs.next_run, *head) for head in unmoved)),
        members=members.runs(),
    )
    plan = PackPlan(
        collected_us=collected_us,
        checkpoints=tuple(
            planned_checkpoint(
                checkpoint,
                (
                    PlannedEnvelope(location.sha256, checkpoint.revision)
                    for location in placed.get(checkpoint.key, ())
                ),
            )
            for checkpoint in collected.checkpoints
        ),
        manifests=tuple(built.planned for built in manifests),
        catalog=planned,
        retractions=tuple(retraction.number for retraction in collected.retractions),
        tombstones=collected.tombstones,
        facts=_told_facts(collected, changes),
    )
    return BuiltPack(members.all(), plan)


class _CatalogMembers:
    """Collects members of the catalog with the runs that they belong to."""

    def __init__(self, predict: Predict) -> None:
        self._members = Members(predict)
        self._runs: dict[bytes, int] = {}

    def add(self, data: bytes, kind: str, run: int) -> BlobLocation:
        location = self._members.add(data, kind)
        self._runs[location.sha256] = run
        return location

    def runs(self) -> tuple[tuple[bytes, int], ...]:
        return tuple(self._runs.items())

    def all(self) -> tuple[Member, ...]:
        return self._members.all()


def _changes(
    collected: Collected, manifests: Sequence[BuiltManifest]
) -> tuple[tuple[ThreadHead, ...], tuple[tuple[str, int], ...]]:
    """Return the heads that the catalog tells, and those of them that do not move."""
    changes = [
        _thread_head(collected, built.planned.thread_id, built.planned, built.head)
        for built in manifests
    ]
    told = {change.thread_id for change in changes}
    unmoved: list[tuple[str, int]] = []
    for thread_id, facts in sorted(collected.facts.items()):
        known = collected.manifests.get((thread_id, facts.incarnation))
        if thread_id in told or not facts.untold or known is None or known.ended:
            continue
        location = known.location
        head = (
            ManifestHead(location, known.segment, known.generation, known.records)
            if location is not None
            else None
        )
        changes.append(_thread_head(collected, thread_id, known, head))
        unmoved.append((thread_id, known.incarnation))
    return tuple(changes), tuple(unmoved)


def _thread_head(
    collected: Collected,
    thread_id: str,
    of: PlannedManifest | KnownManifest,
    head: ManifestHead | None,
) -> ThreadHead:
    facts = collected.facts.get(thread_id, _NO_FACTS)
    current = facts.incarnation == of.incarnation and not of.ended
    return ThreadHead(
        thread_id=thread_id,
        incarnation=of.incarnation,
        ended=of.ended,
        deleted_through=facts.deleted_through,
        manifest=head,
        agent_id=facts.agent_id if current else "",
        retention_s=facts.retention_s if current else 0,
        unsearchable=current and facts.unsearchable,
    )


_NO_FACTS = ThreadFacts(0, "", "", 0, unsearchable=False, untold=False)


def _told_facts(collected: Collected, changes: Iterable[ThreadHead]) -> tuple[PlannedFacts, ...]:
    """Return the facts that a catalog with these changes tells for the first time."""
    told: list[PlannedFacts] = []
    for change in changes:
        facts = collected.facts.get(change.thread_id, _NO_FACTS)
        if facts.untold and facts.incarnation == change.incarnation and not change.ended:
            told.append(
                PlannedFacts(
                    change.thread_id,
                    change.incarnation,
                    facts.agent_id,
                    facts.retention_s,
                    facts.unsearchable,
                )
            )
    return tuple(told)


def _merge(
    collected: Collected, changed: set[str], members: _CatalogMembers
) -> tuple[Runs, tuple[tuple[int, str, int], ...]]:
    """Write the pages of unfinished merges, less what this very pack supersedes."""
    runs = collected.runs
    moved: list[tuple[int, str, int]] = []
    for step in collected.merges:
        heads = [head for head in step.heads if head.thread_id not in changed]
        run = runs.merges[step.level].run

        def store(data: bytes, run: int = run) -> BlobLocation:
            return members.add(data, CATALOG_PAGE, run)

        for start in range(0, len(heads), PAGE_HEADS):
            page = heads[start : start + PAGE_HEADS]
            runs = add_page(runs, step.level, store(encode_page(page)), store)
            moved.extend((run, head.thread_id, head.incarnation) for head in page)
        if step.done:
            runs = finish_merge(runs, step.level, store)
    return runs, tuple(moved)
