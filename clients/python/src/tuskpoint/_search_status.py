"""How search stands: the records. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from ._records import moment
from .v1 import admin_service_pb2 as admin
from .v1 import search_service_pb2 as search


@dataclass(frozen=True, slots=True)
class MemWalStatus:
    """How the delivery of summaries to MemWal stands. Times are `None` if there is none.

    Attributes:
        healthy: Whether the last call succeeded, a recall included.
        waiting: Summaries that wait to be sent.
        underway: Summaries that were sent and cannot be recalled yet, as far as is known.
        delivered: Summaries that can be recalled.
        oldest_waiting: Time since when the oldest summary waits.
        last_error: The last error; empty since the last success.
        last_error_time: Time of it.
        last_recall: Time of the last recall that MemWal answered.
    """

    healthy: bool
    waiting: int
    underway: int
    delivered: int
    oldest_waiting: datetime | None
    last_error: str
    last_error_time: datetime | None
    last_recall: datetime | None


@dataclass(frozen=True, slots=True)
class SearchStatus:
    """How the search index stands.

    Attributes:
        unindexed_checkpoints: Checkpoints that are journaled and not indexed yet.
        oldest_unindexed: Time since when the oldest of them waits; `None` if none does.
        indexed_checkpoints: Checkpoints that are indexed.
        vectors: Vectors in the index.
        last_error: The indexing's last error; empty since its last success.
        memwal: MemWal's side; `None` if the server has none.
        truncated_checkpoints: Of the indexed checkpoints those of whose state only the latest
            part is indexed.
    """

    unindexed_checkpoints: int
    oldest_unindexed: datetime | None
    indexed_checkpoints: int
    vectors: int
    last_error: str
    memwal: MemWalStatus | None
    truncated_checkpoints: int = 0


def search_status(message: admin.SearchStatus) -> SearchStatus:
    """Return the index's state as a record."""
    return SearchStatus(
        unindexed_checkpoints=message.unindexed_checkpoints,
        oldest_unindexed=_when(message, "oldest_unindexed_time"),
        indexed_checkpoints=message.indexed_checkpoints,
        vectors=message.vectors,
        last_error=message.last_error,
        memwal=_memwal_status(message.memwal) if message.HasField("memwal") else None,
        truncated_checkpoints=message.truncated_checkpoints,
    )


def _memwal_status(message: admin.MemWalStatus) -> MemWalStatus:
    return MemWalStatus(
        healthy=message.healthy,
        waiting=message.waiting,
        underway=message.underway,
        delivered=message.delivered,
        oldest_waiting=_when(message, "oldest_waiting_time"),
        last_error=message.last_error,
        last_error_time=_when(message, "last_error_time"),
        last_recall=_when(message, "last_recall_time"),
    )


def _when(message: Any, name: str) -> datetime | None:
    return moment(getattr(message, name)) if message.HasField(name) else None


def mode_name(mode: int) -> str:
    """Return the name of a mode; one that a newer server has is its number."""
    if mode not in search.SearchMode.values():
        return str(mode)
    return search.SearchMode.Name(search.SearchMode.ValueType(mode))[len("SEARCH_MODE_") :].lower()
