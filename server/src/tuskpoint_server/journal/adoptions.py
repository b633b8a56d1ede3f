"""Adopting: a thread made of a closure that came from elsewhere."""

from __future__ import annotations

import json
from dataclasses import replace

from sqlalchemy import Connection

from ..domain.digests import value_digest
from ..domain.lineage import Closure, ClosureMember
from ..domain.metadata import parse_metadata
from ..domain.model import Channel, CheckpointKey, Lineage, Saved
from ..domain.state import delta_channels, encode_state
from . import grafts, threads

METHOD = "AdoptHandoff"


def adopt(
    connection: Connection,
    tenant: str,
    closure: Closure,
    target: str,
    agent_id: str,
    now_us: int,
) -> Saved:
    """Make a thread of a closure; see `lineage_api.LineageJournal.adopt`."""
    thread = grafts.begin(connection, tenant, target, now_us)
    thread.agent_id = agent_id
    # A bundle does not say whether search finds its thread; where that is here too, it counts.
    thread.unsearchable = threads.exists(connection, tenant, closure.key) and (
        threads.is_unsearchable(connection, tenant, closure.key.thread_id)
    )
    # The hidden ones share the number of one that readers see.
    for member in sorted(closure.members, key=lambda member: member.hidden):
        adopted = member.checkpoint.entry.key == closure.key
        lineage = Lineage(adopted_from=str(closure.key)) if adopted else Lineage()
        grafts.insert_checkpoint(connection, thread, _graft(member, target, lineage), now_us)
    threads.review_head(connection, thread)
    threads.store(connection, thread, now_us)
    key = replace(closure.key, thread_id=target)
    alone = len(closure.members) == 1
    return Saved(key, 1, thread.seq, thread.incarnation, size_of(closure), alone)


def _graft(member: ClosureMember, target: str, lineage: Lineage) -> grafts.Graft:
    checkpoint = member.checkpoint
    entry, state = checkpoint.entry, checkpoint.state
    if state is None:
        raise ValueError(f"checkpoint {entry.key} came without its state")
    channels = tuple(map(_digested, state.channels))
    return grafts.Graft(
        key=replace(entry.key, thread_id=target),
        parent_id=entry.parent_id,
        state=encode_state(state.frame, channels),
        channels=channels,
        metadata=parse_metadata(entry.metadata, "metadata_json"),
        delta_channels=delta_channels(state.frame),
        label=entry.label,
        summary=entry.summary,
        lineage=lineage,
        writes=tuple(
            replace(write, digest=value_digest(write.value)) for write in checkpoint.writes
        ),
        hidden=member.hidden,
    )


def _digested(channel: Channel) -> Channel:
    """Return a channel with the digest of its value; what came with it is not believed."""
    if channel.value is None:
        return replace(channel, digest=None, size=0)
    return replace(channel, digest=value_digest(channel.value), size=len(channel.value.data))


def size_of(closure: Closure) -> int:
    """Return the bytes of its values and writes."""
    states = (member.checkpoint.state for member in closure.members)
    channels = sum(channel.size for state in states if state for channel in state.channels)
    writes = (write for member in closure.members for write in member.checkpoint.writes)
    return channels + sum(len(write.value.data) for write in writes)


def encode_saved(saved: Saved) -> bytes:
    """Return the form in which the answer of a request is kept."""
    return json.dumps(
        {
            "thread_id": saved.key.thread_id,
            "checkpoint_ns": saved.key.checkpoint_ns,
            "checkpoint_id": saved.key.checkpoint_id,
            "revision": saved.revision,
            "seq": saved.seq,
            "incarnation": saved.incarnation,
            "alone": saved.alone,
        }
    ).encode()


def decode_saved(answer: bytes) -> Saved:
    """Return what `encode_saved` wrote."""
    kept = json.loads(answer)
    key = CheckpointKey(kept["thread_id"], kept["checkpoint_ns"], kept["checkpoint_id"])
    return Saved(key, kept["revision"], kept["seq"], kept["incarnation"], alone=kept["alone"])
