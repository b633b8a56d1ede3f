"""Filling an empty journal with what manifests and envelopes say.

What is recovered is certified as it stands: nothing of it waits for a flush. Manifests
and catalog go on in a new generation, so that whoever may still write to the old ones
keeps a chain of his own.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sqlalchemy import Connection, Table

from ..domain.catalog import Catalog, RunPart, ThreadHead, encode_runs, runs_of
from ..domain.envelope import Envelope
from ..domain.manifest import ManifestEntry
from ..domain.model import (
    BlobLocation,
    ChannelDraft,
    CheckpointKey,
    Metadata,
    Reference,
    ThreadState,
)
from ..domain.state import delta_channels, encode_state
from . import threads, values
from .saves import encode_names
from .schema import (
    catalogs,
    checkpoints,
    envelope_parts,
    envelopes,
    manifests,
    metadata_members,
    placements,
    writes,
)
from .statements import Insert, InsertInto, Statement, all_columns
from .threads import ThreadRow

UNLISTED = 0
"""Run of a head that no catalog lists; the numbers of runs begin above it."""


@dataclass(frozen=True, slots=True)
class StoredCheckpoint:
    """A checkpoint as blobs hold it.

    Attributes:
        key: The checkpoint, in the thread whose manifest tells of it.
        incarnation: Incarnation of the thread.
        seq: Position of its last record in the manifest, from 1.
        entry: What the manifest says.
        content: Its envelopes, merged.
        metadata: The metadata in them, parsed.
        parts: Of envelopes that are stored in parts: (hash of the list, a part).
    """

    key: CheckpointKey
    incarnation: int
    seq: int
    entry: ManifestEntry
    content: Envelope
    metadata: Metadata
    parts: tuple[tuple[bytes, BlobLocation], ...] = ()

    @property
    def size_bytes(self) -> int:
        """Bytes of its values and writes."""
        channels = sum(channel.size for channel in self.content.state.channels)
        return channels + sum(len(write.value.data) for write in self.content.writes)


@dataclass(frozen=True, slots=True)
class StoredThread:
    """A thread as the catalog and its manifest describe it.

    Attributes:
        head: What the catalog says; its manifest's records are counted.
        run: Run of the catalog that says so, or `UNLISTED`.
        segments: Segments of the manifest, the oldest first; empty if there are none or
            the incarnation ended.
        open_segment: Bytes of the last one.
        seq: Greatest `StoredCheckpoint.seq`.
        created_us: Time of the first save that is known.
        updated_us: Time of the last save that is known.
        lost_generation: Generation of a manifest that cannot be read; 0: it was read.
    """

    head: ThreadHead
    run: int
    segments: tuple[BlobLocation, ...]
    open_segment: bytes
    seq: int
    created_us: int
    updated_us: int
    lost_generation: int = 0


def _insert_or_keep(insert_into: InsertInto, table: Table) -> Insert:
    return insert_into(table).values(all_columns(table)).on_conflict_do_nothing()


_ADD_CHECKPOINT = Statement(
    lambda insert_into: insert_into(checkpoints).values(all_columns(checkpoints))
)
_ADD_WRITE = Statement(lambda insert_into: insert_into(writes).values(all_columns(writes)))
_ADD_ENVELOPE = Statement(lambda insert_into: insert_into(envelopes).values(all_columns(envelopes)))
_ADD_MANIFEST = Statement(lambda insert_into: insert_into(manifests).values(all_columns(manifests)))
_ADD_CATALOG = Statement(lambda insert_into: insert_into(catalogs).values(all_columns(catalogs)))
_PLACE = Statement(lambda insert_into: _insert_or_keep(insert_into, placements))
_ADD_PART = Statement(lambda insert_into: _insert_or_keep(insert_into, envelope_parts))
_ADD_MEMBER = Statement(lambda insert_into: _insert_or_keep(insert_into, metadata_members))


# --- checkpoints -----------------------------------------------------------------------


def add_checkpoints(
    connection: Connection, tenant: str, stored: Sequence[StoredCheckpoint], now_us: int
) -> None:
    """Insert checkpoints with their contents, writes and envelopes.

    Args:
        connection: In a write transaction.
        tenant: The tenant.
        stored: The checkpoints; none of them may be there already.
        now_us: Time of the recovery.
    """
    for checkpoint in stored:
        _add_contents(connection, tenant, checkpoint, now_us)
    _ADD_CHECKPOINT.run_many(connection, [_checkpoint_row(tenant, one) for one in stored])
    _ADD_WRITE.run_many(connection, [row for one in stored for row in _write_rows(tenant, one)])
    _ADD_ENVELOPE.run_many(
        connection, [row for one in stored for row in _envelope_rows(tenant, one)]
    )
    _place(connection, tenant, (at for one in stored for at in one.entry.envelopes))
    _place(connection, tenant, (part for one in stored for _, part in one.parts))
    _ADD_PART.run_many(
        connection,
        [
            {"tenant": tenant, "envelope": envelope, "sha256": part.sha256}
            for one in stored
            for envelope, part in one.parts
        ],
    )


def _add_contents(
    connection: Connection, tenant: str, checkpoint: StoredCheckpoint, now_us: int
) -> None:
    channels = checkpoint.content.state.channels
    drafts = [
        ChannelDraft(
            channel.name, channel.version, channel.value or Reference.EMPTY, channel.digest
        )
        for channel in channels
    ]
    values.store_contents(connection, tenant, drafts, channels, now_us)
    values.replace_references(connection, tenant, checkpoint.key, channels, before=False)


def _checkpoint_row(tenant: str, checkpoint: StoredCheckpoint) -> dict[str, object]:
    entry, state = checkpoint.entry, checkpoint.content.state
    return {
        **_named(tenant, checkpoint.key),
        "incarnation": checkpoint.incarnation,
        "parent_id": entry.parent_id,
        "state": encode_state(state.frame, state.channels),
        "metadata": checkpoint.metadata.raw,
        "run_id": checkpoint.metadata.run_id,
        "root_id": checkpoint.metadata.root_id,
        "delta_channels": encode_names(delta_channels(state.frame)),
        "label": entry.label,
        "summary": entry.summary,
        "forked_from": entry.lineage.forked_from,
        "rolled_back_from": entry.lineage.rolled_back_from,
        "adopted_from": entry.lineage.adopted_from,
        "hidden": entry.hidden,
        "revision": entry.revision,
        "content_revision": entry.held[0],
        "label_revision": entry.revision,
        "packed_revision": entry.revision,
        "certified_revision": entry.revision,
        "evicted_revision": 0,
        "seq": checkpoint.seq,
        "created_us": entry.created_us,
        "dirty_us": None,
        "dirty_bytes": 0,
        "unindexed_us": entry.created_us,
    }


def _write_rows(tenant: str, checkpoint: StoredCheckpoint) -> Iterable[dict[str, object]]:
    for write in checkpoint.content.writes:
        yield {
            **_named(tenant, checkpoint.key),
            "task_id": write.task_id,
            "idx": write.idx,
            "task_path": write.task_path,
            "channel": write.channel,
            "type": write.value.type,
            "data": write.value.data,
            "digest": write.digest,
            "revision": max(checkpoint.entry.held),  # above it: what no envelope holds
            "created_us": checkpoint.entry.created_us,
            "size": len(write.value.data),
        }


def _envelope_rows(tenant: str, checkpoint: StoredCheckpoint) -> Iterable[dict[str, object]]:
    entry = checkpoint.entry
    for ordinal, (at, held) in enumerate(zip(entry.envelopes, entry.held, strict=True)):
        yield {
            **_named(tenant, checkpoint.key),
            "ordinal": ordinal,
            "sha256": at.sha256,
            "revision": held,
        }


# --- threads ---------------------------------------------------------------------------


def add_threads(
    connection: Connection, tenant: str, stored: Sequence[StoredThread], now_us: int
) -> None:
    """Insert live threads whose checkpoints are there already.

    A thread with retention counts as changed now: when it last changed is not stored, and
    it must not go too early.

    Args:
        connection: In a write transaction.
        tenant: The tenant.
        stored: The threads.
        now_us: Time of the recovery.
    """
    for thread in stored:
        head = thread.head
        row = _thread_row(tenant, head, seq=thread.seq, created_us=thread.created_us)
        row.head_id = threads.latest(connection, tenant, head.thread_id, "")
        row.state = threads.judge(connection, tenant, head.thread_id, row.head_id)
        row.untold = thread.run == UNLISTED or thread.lost_generation > 0
        threads.store(connection, row, now_us if head.retention_s else thread.updated_us)
        _add_manifest(
            connection,
            tenant,
            head,
            thread.run,
            now_us,
            open_segment=thread.open_segment,
            lost_generation=thread.lost_generation,
        )
        _place(connection, tenant, thread.segments)
        _ADD_MEMBER.run_many(
            connection,
            [
                {
                    "tenant": tenant,
                    "sha256": segment.sha256,
                    "thread_id": head.thread_id,
                    "incarnation": head.incarnation,
                    "run": 0,
                }
                for segment in thread.segments
            ],
        )


def _add_ended(
    connection: Connection, tenant: str, head: ThreadHead, run: int, now_us: int
) -> None:
    row = _thread_row(tenant, head, seq=1, created_us=now_us)
    row.deleted = True
    threads.store(connection, row, now_us)
    _add_manifest(connection, tenant, head, run, now_us)


def _thread_row(tenant: str, head: ThreadHead, *, seq: int, created_us: int) -> ThreadRow:
    return ThreadRow(
        tenant=tenant,
        thread_id=head.thread_id,
        incarnation=head.incarnation,
        seq=seq,
        deleted=False,
        deleted_through=head.deleted_through,
        agent_id=head.agent_id,
        state=ThreadState.IDLE,
        head_id="",
        created_us=created_us,
        updated_us=created_us,
        retention_s=head.retention_s,
        unsearchable=head.unsearchable,
        compacted_seq=seq,  # of what happened there are no events here
    )


def _add_manifest(
    connection: Connection,
    tenant: str,
    head: ThreadHead,
    run: int,
    now_us: int,
    *,
    open_segment: bytes = b"",
    lost_generation: int = 0,
) -> None:
    manifest = head.manifest
    generation = manifest.generation if manifest else lost_generation or 1
    if manifest is not None:
        _place(connection, tenant, [manifest.location])
    _ADD_MANIFEST.run(
        connection,
        tenant=tenant,
        thread_id=head.thread_id,
        incarnation=head.incarnation,
        generation=generation,
        segment=manifest.segment if manifest else 0,
        records=manifest.records if manifest else 0,
        open_segment=open_segment,
        sha256=manifest.location.sha256 if manifest else b"",
        run=run,
        ended=head.ended,
        certified_us=now_us,
        next_generation=0 if head.ended else generation + 1,
    )


# --- the catalog -----------------------------------------------------------------------


def add_catalog(
    connection: Connection, tenant: str, catalog: Catalog, location: BlobLocation, now_us: int
) -> None:
    """Make a catalog the newest one; the next goes on from it in the next generation."""
    _place(connection, tenant, [location])
    _ADD_CATALOG.run(
        connection,
        tenant=tenant,
        generation=catalog.generation + 1,
        seq=catalog.seq,
        sha256=location.sha256,
        runs=encode_runs(runs_of(catalog, location)),
        certified_us=now_us,
    )


def add_part(connection: Connection, tenant: str, part: RunPart, now_us: int) -> None:
    """Insert a stored piece of the catalog's runs, and the deleted threads it tells of."""
    _place(connection, tenant, [part.location])
    _ADD_MEMBER.run(
        connection,
        tenant=tenant,
        sha256=part.location.sha256,
        thread_id="",
        incarnation=0,
        run=part.run,
    )
    for head in part.heads:
        if head.ended:
            _add_ended(connection, tenant, head, part.run, now_us)


def _named(tenant: str, key: CheckpointKey) -> dict[str, object]:
    return {
        "tenant": tenant,
        "thread_id": key.thread_id,
        "checkpoint_ns": key.checkpoint_ns,
        "checkpoint_id": key.checkpoint_id,
    }


def _place(connection: Connection, tenant: str, locations: Iterable[BlobLocation]) -> None:
    _PLACE.run_many(
        connection,
        [
            {
                "tenant": tenant,
                "sha256": location.sha256,
                "size": location.size,
                "blob_id": location.blob_id,
                "identifier": location.identifier,
            }
            for location in locations
        ],
    )
