"""Rollbacks: a checkpoint with the state of an earlier checkpoint, with its subgraphs."""

from __future__ import annotations

from dataclasses import replace

from sqlalchemy import Connection

from ...archive.formats.segments import SegmentCheckpoint
from ...archive.rows import stored
from ...archive.rows.stored import StoredCheckpoint
from ...core.lineage import (
    empty_rollback_metadata,
    mint_next_checkpoint_id,
    rollback_frame,
    rollback_metadata,
    rollback_summary,
)
from ...core.model import CheckpointKey, Lineage, SaveOutcome
from ...core.state import decode_channels, decode_state, encode_state
from ...journal.database.thread_rows import (
    Place,
    ThreadCacheEntry,
    ThreadRow,
    greatest_id,
)
from ...journal.database.unit_of_work import UnitOfWork
from ..checkpoints.missing_values import SuppliedValues
from . import copies
from .subgraphs import RootPath, stateful_namespaces


def roll_back(
    batch: UnitOfWork,
    log: ThreadCacheEntry,
    at: ThreadRow,
    place: Place,
    supplied: SuppliedValues,
    entropy: int,
) -> SaveOutcome:
    """Append a checkpoint with the state of an earlier checkpoint of the thread.

    A root checkpoint is rolled back with the subgraphs that keep a state of their own: each gets a
    checkpoint with its state after the runs before the earlier checkpoint. These checkpoints come
    first, so that "the latest before the root's" finds them. All new checkpoints are the latest of
    their namespaces, whose values are never evicted, so evicted values are restored.

    The earlier checkpoints are in the thread `at`: the same thread, or a captured copy.

    Raises:
        Refusal: `INVALID_FIELD` if no ID can be minted.
        ValuesEvictedError: The rollback needs evicted values.
    """
    batch.write_out()
    connection = batch.connection
    [target] = stored.read(connection, stored.numbers_of(connection, at.number, [place]))
    earlier: dict[str, StoredCheckpoint | None] = {}
    if not place[0]:
        earlier = _followers(connection, log.row.number, at.number, target)
    earlier[place[0]] = target
    states = [checkpoint for checkpoint in earlier.values() if checkpoint is not None]
    for checkpoint in states:
        checkpoint.writes = []
    copies.bring_values(connection, log.row.family, at, states, supplied, {})
    # IDs above the greatest of their namespaces; the root's ID above all others.
    last_id = ""
    ids: dict[str, str] = {}
    for namespace in earlier:
        floor_id = max(batch.greatest(log, namespace), last_id)
        last_id = mint_next_checkpoint_id(
            batch.now_us, entropy, floor_id, field="ref.checkpoint_id"
        )
        ids[namespace] = last_id
    for namespace, base in earlier.items():
        root_id = "" if namespace == place[0] else last_id
        new_checkpoint = _copy_state(batch, log, (namespace, ids[namespace]), base, root_id)
        stored.insert_checkpoint(batch, log, new_checkpoint)
    log.forget_checkpoints()
    key = CheckpointKey(log.row.thread_id, place[0], last_id)
    return SaveOutcome(key, log.row.seq, log.row.incarnation)


def _followers(
    connection: Connection, number: int, source_number: int, target: StoredCheckpoint
) -> dict[str, StoredCheckpoint | None]:
    """Return the stateful subgraphs that ran since the start of a root checkpoint.

    Each has the checkpoint to roll back to; `None`: before its first run. A capture has that
    checkpoint, even if the thread has lost it since.
    """
    namespaces = {
        namespace
        for thread in {number, source_number}
        for namespace in stateful_namespaces(connection, thread)
    }
    path = RootPath(connection, source_number, target.known.parent_id)
    earlier: dict[str, StoredCheckpoint | None] = {}
    for namespace in sorted(namespaces):
        checkpoint_id = path.left_at(namespace) if target.known.parent_id else ""
        if checkpoint_id == greatest_id(connection, number, namespace):
            continue
        numbers = stored.numbers_of(connection, source_number, [(namespace, checkpoint_id)])
        earlier[namespace] = stored.read(connection, numbers)[0] if numbers else None
    return earlier


def _copy_state(
    batch: UnitOfWork,
    log: ThreadCacheEntry,
    place: Place,
    earlier: StoredCheckpoint | None,
    root_id: str,
) -> StoredCheckpoint:
    """Return a checkpoint with the state of an earlier one; `None`: the state before the first run.

    `root_id` is for the metadata of a subgraph.
    """
    if earlier is None:
        newest = batch.checkpoint(log, (place[0], batch.greatest(log, place[0])))
        frame = decode_state(newest.state, {}).frame if newest is not None else b""
        row = SegmentCheckpoint(
            *(*place, 0, ""),
            state=rollback_frame(frame, batch.now_us, empty=True),
            metadata=empty_rollback_metadata(root_id),
            created_us=batch.now_us,
            summary="Rolled back to before its first run.",
        )
        return stored.of_segment(row)
    origin = CheckpointKey(log.row.thread_id, *earlier.place)
    checkpoint = earlier.known
    frame = rollback_frame(decode_state(checkpoint.state, {}).frame, batch.now_us)
    row = SegmentCheckpoint(
        *(*place, 0, checkpoint.parent_id),
        state=encode_state(frame, decode_channels(checkpoint.state)),
        metadata=rollback_metadata(checkpoint.metadata, place[0], root_id),
        created_us=batch.now_us,
        summary=rollback_summary(origin, checkpoint.summary),
        delta_base=earlier.delta_base or b"",
        lineage=Lineage(rolled_back_from=str(origin)),
    )
    return replace(stored.of_segment(row), values=earlier.values)
