"""How search stands, as messages."""

from __future__ import annotations

from tuskpoint.v1 import admin_service_pb2 as pb

from ..recall.recall import MemWalStanding, RecallStanding
from . import convert


def search_status(standing: RecallStanding) -> pb.SearchStatus:
    """Return the message that tells how search stands."""
    index = standing.index
    message = pb.SearchStatus(
        unindexed_checkpoints=index.unindexed,
        indexed_checkpoints=index.indexed,
        vectors=index.vectors,
        last_error=standing.last_error,
        truncated_checkpoints=index.truncated,
    )
    if index.oldest_unindexed_us is not None:
        message.oldest_unindexed_time.CopyFrom(convert.timestamp(index.oldest_unindexed_us))
    if standing.memwal is not None:
        message.memwal.CopyFrom(_memwal_status(standing.memwal))
    return message


def _memwal_status(standing: MemWalStanding) -> pb.MemWalStatus:
    memories = standing.memories
    message = pb.MemWalStatus(
        healthy=standing.healthy,
        waiting=memories.waiting,
        underway=memories.underway,
        delivered=memories.delivered,
        last_error=standing.last_error,
    )
    for field, microseconds in (
        ("oldest_waiting_time", memories.oldest_waiting_us),
        ("last_error_time", standing.last_error_us),
        ("last_recall_time", standing.last_recall_us),
    ):
        if microseconds is not None:
            getattr(message, field).CopyFrom(convert.timestamp(microseconds))
    return message
