"""From what was collected to the exact bytes of a pack, and the plan that goes with it.

Pure and synchronous; runs in a worker thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
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
from ..domain.envelope import Envelope, encode_envelope
from ..domain.limits import LIMITS
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
from ..domain.model import BlobLocation, State, Write
from ..journal.archive_collect import Collected, DirtyCheckpoint, KnownManifest
from ..journal.archive_plan import (
    PackPlan,
    PlannedCatalog,
    PlannedCheckpoint,
    PlannedEnvelope,
    PlannedManifest,
)

Predict = Callable[[bytes, int], BlobLocation]

FIRST_GENERATION = 1


@dataclass(frozen=True, slots=True)
class BuiltPack:
    """The bytes of a pack, in order (the catalog last), and what they will change."""

    members: tuple[Member, ...]
    plan: PackPlan


class _Members:
    """Collects members; the same bytes become one member."""

    def __init__(self, predict: Predict) -> None:
        self._predict = predict
        self._found: dict[bytes, Member] = {}

    def add(self, data: bytes) -> BlobLocation:
        """Take bytes and return the location that they will have."""
        sha256 = blob_digest(data)
        self._found.setdefault(sha256, Member(sha256, data))
        return self._predict(sha256, len(data))

    def all(self) -> tuple[Member, ...]:
        return tuple(self._found.values())


def build(collected: Collected, predict: Predict, collected_us: int) -> BuiltPack:
    """Build envelopes, manifests and the catalog of a pack.

    Args:
        collected: What goes into it.
        predict: Hash and size to the location that these bytes will have.
        collected_us: Time at which it was collected.
    """
    members = _Members(predict)
    records: dict[tuple[str, int], list[Record]] = {}
    for retraction in collected.retractions:
        records.setdefault((retraction.key.thread_id, retraction.incarnation), []).append(
            Record(RecordType.RETRACT, retraction.key.checkpoint_ns, retraction.key.checkpoint_id)
        )
    planned = []
    for checkpoint in collected.checkpoints:
        told, plan = _checkpoint(checkpoint, members)
        records.setdefault((checkpoint.key.thread_id, checkpoint.incarnation), []).extend(told)
        planned.append(plan)
    manifests = list(_manifests(collected, records, members, predict))
    catalog = _catalog(collected, manifests, members, predict)
    return BuiltPack(
        members=members.all(),
        plan=PackPlan(
            collected_us=collected_us,
            checkpoints=tuple(planned),
            manifests=tuple(manifest for manifest, _ in manifests),
            catalog=catalog,
            retractions=tuple(retraction.number for retraction in collected.retractions),
            tombstones=collected.tombstones,
        ),
    )


# --- checkpoints -----------------------------------------------------------------------


def _checkpoint(
    checkpoint: DirtyCheckpoint, members: _Members
) -> tuple[list[Record], PlannedCheckpoint]:
    """Return what the manifest is told of a checkpoint, and what certification records."""
    told: list[Record] = []
    new: list[PlannedEnvelope] = []
    groups = list(_bounded(checkpoint.writes))
    full = checkpoint.stored[0] if checkpoint.stored else None
    # Of a copy, only the manifest of the thread that it comes from knows the envelopes.
    untold = checkpoint.certified_revision == 0
    if full is None:
        full = members.add(encode_envelope(_envelope(checkpoint, groups.pop(0) if groups else ())))
        new.append(PlannedEnvelope(full.sha256, checkpoint.revision))
        told.append(_put(checkpoint, full, checkpoint.revision))
    elif untold:
        revisions = checkpoint.stored_revisions
        told.append(_put(checkpoint, full, revisions[0]))
        told.extend(
            _record(RecordType.WRITES, checkpoint, held, addendum)
            for addendum, held in zip(checkpoint.stored[1:], revisions[1:], strict=True)
        )
    for group in groups:
        envelope = replace(
            _envelope(checkpoint, group),
            state=State(checkpoint.state.frame, ()),
            full_sha256=full.sha256,
        )
        addendum = members.add(encode_envelope(envelope))
        new.append(PlannedEnvelope(addendum.sha256, checkpoint.revision))
        told.append(_record(RecordType.WRITES, checkpoint, checkpoint.revision, addendum))
    if checkpoint.stored and checkpoint.relabelled and not untold:
        told.append(_record(RecordType.LABEL, checkpoint, checkpoint.revision))
    if not told or told[-1].revision < checkpoint.revision:
        told.append(_record(RecordType.SUMMARY, checkpoint, checkpoint.revision))
    return told, PlannedCheckpoint(
        key=checkpoint.key,
        incarnation=checkpoint.incarnation,
        created_us=checkpoint.created_us,
        packed_revision=checkpoint.packed_revision,
        revision=checkpoint.revision,
        dirty_bytes=checkpoint.dirty_bytes,
        replaces=not checkpoint.stored,
        envelopes=tuple(new),
    )


def _bounded(writes: Sequence[Write]) -> Iterator[tuple[Write, ...]]:
    """Cut writes into groups that fit an envelope beside the largest state."""
    group: list[Write] = []
    size = 0
    for write in writes:
        size += len(write.value.data)
        if group and size > LIMITS.max_checkpoint:
            yield tuple(group)
            group, size = [], len(write.value.data)
        group.append(write)
    if group:
        yield tuple(group)


def _envelope(checkpoint: DirtyCheckpoint, writes: tuple[Write, ...]) -> Envelope:
    return Envelope(
        key=checkpoint.key,
        parent_id=checkpoint.parent_id,
        revision=checkpoint.revision,
        created_us=checkpoint.created_us,
        metadata=checkpoint.metadata,
        state=checkpoint.state,
        writes=writes,
        label=checkpoint.label,
        summary=checkpoint.summary,
        lineage=checkpoint.lineage,
    )


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


def _manifests(
    collected: Collected,
    records: dict[tuple[str, int], list[Record]],
    members: _Members,
    predict: Predict,
) -> Iterator[tuple[PlannedManifest, ManifestHead | None]]:
    """Yield the head that each touched thread moves to.

    It is that of the newest incarnation of which there is something to tell: one whose
    checkpoints were all removed before any was stored must not hide that the one before
    it ended.
    """
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
            yield _appended(key, known, told[key], members, predict)


def _tellable(collected: Collected, key: tuple[str, int], records: list[Record]) -> list[Record]:
    """Return the records without retractions from a manifest that does not exist."""
    known = collected.manifests.get(key)
    if known is not None and known.location is not None:
        return records
    return [record for record in records if record.type is not RecordType.RETRACT]


def _ended(
    key: tuple[str, int], known: KnownManifest | None
) -> tuple[PlannedManifest, ManifestHead | None]:
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
    return planned, _head(planned, location) if location else None


def _appended(
    key: tuple[str, int],
    known: KnownManifest | None,
    told: list[Record],
    members: _Members,
    predict: Predict,
) -> tuple[PlannedManifest, ManifestHead]:
    stored = known.location if known else None
    if known is not None and stored is not None:
        segment = decode_segment(known.open_segment, stored.blob_id)
        rewrites = len(segment.records) < SEGMENT_RECORDS
    else:
        segment = Segment(key[0], key[1], FIRST_GENERATION, 0)
        rewrites = False
    full, segment = append(segment, stored, told, predict)
    for complete in full:
        members.add(encode_segment(complete))
    location = members.add(encode_segment(segment))
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
    )
    return planned, _head(planned, location)


def _head(planned: PlannedManifest, location: BlobLocation) -> ManifestHead:
    return ManifestHead(location, planned.segment, planned.generation, planned.records)


# --- the catalog -----------------------------------------------------------------------


def _catalog(
    collected: Collected,
    manifests: Sequence[tuple[PlannedManifest, ManifestHead | None]],
    members: _Members,
    predict: Predict,
) -> PlannedCatalog:
    changes = tuple(
        ThreadHead(
            thread_id=planned.thread_id,
            incarnation=planned.incarnation,
            ended=planned.ended,
            deleted_through=collected.deleted_through.get(planned.thread_id, ""),
            manifest=head,
        )
        for planned, head in manifests
    )
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
    return PlannedCatalog(
        generation=catalog.generation,
        previous_seq=catalog.seq - 1,
        sha256=members.add(encode_catalog(catalog)).sha256,
        run=runs.next_run,
        runs=replace(runs, next_run=runs.next_run + 1),
        moved=moved,
    )


def _merge(
    collected: Collected, changed: set[str], members: _Members
) -> tuple[Runs, tuple[tuple[int, str, int], ...]]:
    """Write the pages of unfinished merges, less what this very pack supersedes."""
    runs = collected.runs
    moved: list[tuple[int, str, int]] = []
    for step in collected.merges:
        heads = [head for head in step.heads if head.thread_id not in changed]
        run = runs.merges[step.level].run
        for start in range(0, len(heads), PAGE_HEADS):
            page = heads[start : start + PAGE_HEADS]
            runs = add_page(runs, step.level, members.add(encode_page(page)), members.add)
            moved.extend((run, head.thread_id, head.incarnation) for head in page)
        if step.done:
            runs = finish_merge(runs, step.level, members.add)
    return runs, tuple(moved)
