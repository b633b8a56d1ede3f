"""Rolling back: appending a checkpoint that has the state of an earlier one."""

from __future__ import annotations

from dataclasses import replace

from sqlalchemy import Connection

from ...domain.errors import checkpoint_not_found
from ...domain.formats.segments import SegmentCheckpoint
from ...domain.lineage import (
    empty_rollback_frame,
    empty_rollback_metadata,
    mint_next_checkpoint_id,
    rollback_frame,
    rollback_metadata,
    rollback_summary,
)
from ...domain.model import CheckpointKey, Lineage, Saved
from ...domain.state import decode_channels, decode_state, encode_state
from ..checkpoints.save import check_head
from ..database.logs import Log, Place, ThreadRow
from ..database.overlay import Batch
from .copies import Supplied, bring_values
from .stored import Stored, insert_checkpoint, latest, numbers_of, of_segment, read
from .subgraphs import RootPath, stateful_namespaces


def rollback_to(
    batch: Batch,
    tenant: str,
    key: CheckpointKey,
    expected_head: str | None,
    supplied: Supplied,
    entropy: int,
) -> Saved:
    """Append the state of an earlier checkpoint to its thread; see `Lineage.rollback`."""
    log = batch.find(tenant, key.thread_id)
    place = (key.checkpoint_ns, key.checkpoint_id)
    if log is None or log.row.deleted or not numbers_of(batch.connection, log.row.number, [place]):
        raise checkpoint_not_found(key.thread_id, key.checkpoint_ns, key.checkpoint_id)
    if expected_head is not None:
        check_head(batch, log, key.checkpoint_ns, expected_head)
    return roll_back(batch, log, log.row, place, supplied, entropy)


def roll_back(
    batch: Batch, log: Log, at: ThreadRow, place: Place, supplied: Supplied, entropy: int
) -> Saved:
    """Append to a thread a checkpoint with the state of an earlier one of it.

    A root checkpoint takes along the subgraphs that keep a state of their own: each gets a
    checkpoint with the state in which the runs before the earlier one left it. Those come
    first, so that "the latest before the root's" finds them. All of them become the latest
    of their namespaces, whose values are always here: evicted ones come back.

    The earlier ones stand in the thread `at`: the same, or one that holds them as they were
    captured.

    Raises:
        Refusal: `INVALID_FIELD` if no ID can be minted.
        ValuesEvicted: It needs values that are not here.
    """
    batch.write_out()
    connection = batch.connection
    [target] = read(connection, numbers_of(connection, at.number, [place]))
    earlier: dict[str, Stored | None] = {}
    if not place[0]:
        earlier = _followers(connection, log.row.number, at.number, target)
    earlier[place[0]] = target
    stored = [one for one in earlier.values() if one is not None]
    for one in stored:
        one.writes = []
    bring_values(connection, log.row.family, at, stored, supplied, {})
    # An ID above the greatest of its namespace, and the root's above all others.
    last = ""
    ids: dict[str, str] = {}
    for namespace in earlier:
        above = max(batch.greatest(log, namespace), last)
        last = mint_next_checkpoint_id(batch.now_us, entropy, above, field="ref.checkpoint_id")
        ids[namespace] = last
    size = 0
    for namespace, before in earlier.items():
        root_id = "" if namespace == place[0] else last
        new = _again(batch, log, (namespace, ids[namespace]), before, root_id)
        insert_checkpoint(batch, log, new)
        size += new.new_bytes
    log.forget_checkpoints()
    key = CheckpointKey(log.row.thread_id, place[0], last)
    return Saved(key, log.row.seq, log.row.incarnation, size)


def _followers(
    connection: Connection, number: int, at: int, target: Stored
) -> dict[str, Stored | None]:
    """Return the stateful subgraphs that have gone on since a root checkpoint began.

    Each with what it goes back to; `None`: to before its first run. What it stood at was
    captured with the root checkpoint, whatever the thread has lost since.
    """
    namespaces = {one for held in {number, at} for one in stateful_namespaces(connection, held)}
    path = RootPath(connection, at, target.known.parent_id)
    found: dict[str, Stored | None] = {}
    for namespace in sorted(namespaces):
        left = path.left_at(namespace) if target.known.parent_id else ""
        if left == latest(connection, number, namespace):
            continue
        numbers = numbers_of(connection, at, [(namespace, left)])
        found[namespace] = read(connection, numbers)[0] if numbers else None
    return found


def _again(batch: Batch, log: Log, place: Place, earlier: Stored | None, root_id: str) -> Stored:
    """Return a checkpoint with the state of an earlier one; `None`: of before the first run.

    `root_id` is for the metadata of a subgraph.
    """
    if earlier is None:
        newest = batch.checkpoint(log, (place[0], batch.greatest(log, place[0])))
        frame = decode_state(newest.state, {}).frame if newest is not None else b""
        row = SegmentCheckpoint(
            *(*place, 0, ""),
            state=empty_rollback_frame(frame, batch.now_us),
            metadata=empty_rollback_metadata(root_id).raw,
            created_us=batch.now_us,
            summary="Rolled back to before its first run.",
        )
        return of_segment(row)
    reference = str(CheckpointKey(log.row.thread_id, *earlier.place))
    before = earlier.known
    frame = rollback_frame(decode_state(before.state, {}).frame, batch.now_us)
    row = SegmentCheckpoint(
        *(*place, 0, before.parent_id),
        state=encode_state(frame, decode_channels(before.state)),
        metadata=rollback_metadata(before.metadata, place[0], root_id).raw,
        created_us=batch.now_us,
        summary=rollback_summary(reference, before.summary),
        delta_base=earlier.delta_base or b"",
        lineage=Lineage(rolled_back_from=reference),
    )
    return replace(of_segment(row), values=earlier.values)
