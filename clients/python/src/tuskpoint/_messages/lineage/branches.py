"""Forks, rollbacks and the ancestry of threads: records and requests. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from ...v1 import thread_service_pb2 as threads
from ..records import DurabilityName, Reference, moment, reference_of
from ..requests import durability, ref

DescentName = Literal["fork", "adoption", "rollback"]
_DESCENTS: dict[int, DescentName] = {
    threads.LINEAGE_KIND_FORK: "fork",
    threads.LINEAGE_KIND_ADOPTION: "adoption",
    threads.LINEAGE_KIND_ROLLBACK: "rollback",
}


@dataclass(frozen=True, slots=True)
class Fork:
    """The outcome of a fork.

    Attributes:
        new_thread_id: The new thread.
        checkpoint_id: Its first checkpoint, which has the ID of the forked one.
        forked_from: What was forked, "thread:checkpoint".
    """

    new_thread_id: str
    checkpoint_id: str
    forked_from: str


@dataclass(frozen=True, slots=True)
class Rollback:
    """The outcome of a rollback.

    Attributes:
        thread_id: The thread.
        checkpoint_id: The appended checkpoint.
        rolled_back_from: What was rolled back to, "thread:checkpoint".
    """

    thread_id: str
    checkpoint_id: str
    rolled_back_from: str


@dataclass(frozen=True, slots=True)
class LineageStep:
    """The origin of one checkpoint in another.

    Attributes:
        kind: "fork", "adoption" or "rollback".
        origin: What was forked, adopted or rolled back to. Of an adoption it may be on another
            server.
        result: The checkpoint that came from it.
        created: Time at which that was made.
    """

    kind: DescentName
    origin: Reference
    result: Reference
    created: datetime


@dataclass(frozen=True, slots=True)
class ThreadLineage:
    """The ancestors and the descendants of a thread.

    Attributes:
        ancestors: The steps from the oldest known ancestor to the thread, oldest first.
        descendants: The steps that begin in the thread or in one that descends from it,
            nearest first.
        truncated: Whether there are more descendants than were returned.
    """

    ancestors: tuple[LineageStep, ...]
    descendants: tuple[LineageStep, ...]
    truncated: bool


def forking(
    thread_id: str,
    checkpoint_id: str | None,
    new_thread_id: str | None,
    checkpoint_ns: str,
    safe: DurabilityName,
) -> threads.ForkThreadRequest:
    """Return the request that forks a checkpoint."""
    return threads.ForkThreadRequest(
        ref=ref(thread_id, checkpoint_ns, checkpoint_id),
        new_thread_id=new_thread_id or "",
        durability=durability(safe),
    )


def fork_of(message: threads.ForkThreadResponse) -> Fork:
    """Return the outcome of a fork as a record."""
    return Fork(message.ref.thread_id, message.ref.checkpoint_id, message.forked_from)


def rolling_back(
    thread_id: str,
    checkpoint_id: str,
    expected_head: str | None,
    checkpoint_ns: str,
    safe: DurabilityName,
) -> threads.RollbackThreadRequest:
    """Return the request that rolls a thread back."""
    return threads.RollbackThreadRequest(
        ref=ref(thread_id, checkpoint_ns, checkpoint_id),
        expected_head=expected_head,
        durability=durability(safe),
    )


def rollback_of(message: threads.RollbackThreadResponse) -> Rollback:
    """Return the outcome of a rollback as a record."""
    return Rollback(message.ref.thread_id, message.ref.checkpoint_id, message.rolled_back_from)


def lineage_tree(message: threads.GetLineageResponse) -> ThreadLineage:
    """Return a lineage as a record; steps of a kind that is not known are left out."""
    return ThreadLineage(
        tuple(_step(ancestor) for ancestor in message.ancestors if ancestor.kind in _DESCENTS),
        tuple(
            _step(descendant) for descendant in message.descendants if descendant.kind in _DESCENTS
        ),
        message.truncated,
    )


def _step(message: threads.LineageStep) -> LineageStep:
    # "from" is a keyword of Python, so the field has no attribute.
    origin = getattr(message, "from")
    return LineageStep(
        _DESCENTS[message.kind],
        reference_of(origin),
        reference_of(message.to),
        moment(message.create_time),
    )
