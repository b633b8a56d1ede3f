"""Adopting: a thread made of a closure that came from elsewhere."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from ...domain.closures import (
    Closure,
    ClosureMember,
    delta_base_of,
    digested_channel,
    digested_history,
    digested_write,
)
from ...domain.formats.delta_base import encode_delta_base
from ...domain.metadata import parse_metadata
from ...domain.model import Channel, CheckpointKey, DeltaHistory, Lineage, Saved
from ...domain.state import delta_channels, encode_state
from ..checkpoints.drafts import encode_names
from ..database.overlay import Batch
from . import closures, forks, insert
from .insert import NO_LINEAGE, NewCheckpoint, StoredValue, stored_value, stored_write


def prepare(closure: Closure) -> list[NewCheckpoint]:
    """Return the checkpoints of a closure as they are inserted; before the queue.

    Digests are taken of the values that came; what came with these is not believed.

    Raises:
        ValueError: A checkpoint came without its state.
    """
    return [_new(closure.key, member) for member in closure.members]


def adopt(
    batch: Batch,
    tenant: str,
    source: CheckpointKey,
    checkpoints: list[NewCheckpoint],
    target: str,
    agent_id: str,
) -> Saved:
    """Make a thread, of a family of its own, of a closure; see `Lineage.adopt`.

    Args:
        batch: In a change of its own.
        tenant: The tenant.
        source: The checkpoint that the closure is of.
        checkpoints: What `prepare` returned.
        target: The new thread.
        agent_id: Agent that drives it, or empty.
    """
    log = insert.begin(batch, tenant, target, None)
    log.row.agent_id = agent_id
    # A bundle does not say whether search finds its thread; where that is here too, it counts.
    origin = closures.live(batch.connection, tenant, source.thread_id)
    if origin is not None and closures.named(batch.connection, origin, source) is not None:
        log.row.unsearchable = origin.unsearchable
    for new in checkpoints:
        new.created_us = batch.now_us
        insert.insert_checkpoint(batch, log, new)
    forks.end(batch, log)
    size = sum(new.new_bytes for new in checkpoints)
    key = replace(source, thread_id=target)
    return Saved(key, log.row.seq, log.row.incarnation, size)


def size_of(checkpoints: Iterable[NewCheckpoint]) -> int:
    """Return the bytes that checkpoints store."""
    return sum(new.new_bytes for new in checkpoints)


def _new(key: CheckpointKey, member: ClosureMember) -> NewCheckpoint:
    entry, state = member.checkpoint.entry, member.checkpoint.state
    if state is None:
        raise ValueError(f"checkpoint {entry.key} came without its state")
    channels = tuple(map(digested_channel, state.channels))
    histories = tuple(map(digested_history, member.histories))
    metadata = parse_metadata(entry.metadata, "metadata_json")
    return NewCheckpoint(
        place=(entry.key.checkpoint_ns, entry.key.checkpoint_id),
        parent_id=entry.parent_id,
        state=encode_state(state.frame, channels),
        metadata=metadata.raw,
        run_id=metadata.run_id,
        root_id=metadata.root_id,
        delta_channels=encode_names(delta_channels(state.frame)),
        created_us=entry.created_us,
        delta_base=encode_delta_base(delta_base_of(histories)) or None,
        label=entry.label,
        summary=entry.summary,
        lineage=Lineage(adopted_from=str(key)) if entry.key == key else NO_LINEAGE,
        writes=[stored_write(digested_write(write)) for write in member.checkpoint.writes],
        values=_values(channels, histories),
    )


def _values(channels: Iterable[Channel], histories: Iterable[DeltaHistory]) -> list[StoredValue]:
    """Return each value of a state and of what its delta channels are rebuilt from once."""
    found: dict[bytes, StoredValue] = {}
    for channel in channels:
        _add(found, channel)
    for history in histories:
        if history.seed is not None:
            _add(found, history.seed)
        for write in history.writes:
            if write.digest not in found:
                found[write.digest] = stored_value(write.digest, write.value)
    return list(found.values())


def _add(found: dict[bytes, StoredValue], channel: Channel) -> None:
    if channel.digest is not None and channel.value is not None and channel.digest not in found:
        found[channel.digest] = stored_value(channel.digest, channel.value)
