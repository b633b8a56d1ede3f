"""Records and requests of forks, rollbacks and the ancestry of threads. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from ...v1 import thread_service_pb2 as threads
from ..arguments import check_given_texts, check_texts
from ..records import DurabilityName, Reference, moment, reference_of
from ..requests import choice, durability, ref

DescentName = Literal["fork", "adoption", "rollback"]
EffectsModeName = Literal["copy", "answer"]
_EFFECTS_MODES: dict[str, threads.EffectsMode] = {
    "copy": threads.EFFECTS_MODE_COPY,
    "answer": threads.EFFECTS_MODE_ANSWER,
}
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
        checkpoint_id: First checkpoint of the new thread, with the ID of the forked checkpoint.
        forked_from: The forked checkpoint, "thread:checkpoint".
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
        rolled_back_from: The earlier checkpoint whose state the appended one has,
            "thread:checkpoint".
    """

    thread_id: str
    checkpoint_id: str
    rolled_back_from: str


@dataclass(frozen=True, slots=True)
class LineageStep:
    """The origin of a checkpoint in another checkpoint.

    Attributes:
        kind: "fork", "adoption" or "rollback".
        origin: The checkpoint that was forked, adopted or rolled back to. The origin of an adoption
            may be on another server.
        result: The checkpoint that was created from the origin.
        created: Time of the creation of `result`.
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
        descendants: The steps that start in the thread or in one of its descendants, nearest first.
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
    effects: EffectsModeName = "copy",
) -> threads.ForkThreadRequest:
    """Return the request that forks a checkpoint.

    Raises:
        InvalidRequest: `effects` is unknown, or a text cannot be sent.
    """
    check_given_texts(new_thread_id=new_thread_id)
    return threads.ForkThreadRequest(
        ref=ref(thread_id, checkpoint_ns, checkpoint_id),
        new_thread_id=new_thread_id or "",
        durability=durability(safe),
        effects=choice("effects", effects, _EFFECTS_MODES),
    )


def fork_of(message: threads.ForkThreadResponse) -> Fork:
    """Return the record of a fork."""
    return Fork(message.ref.thread_id, message.ref.checkpoint_id, message.forked_from)


def rolling_back(
    thread_id: str,
    checkpoint_id: str,
    expected_head: str | None,
    checkpoint_ns: str,
    safe: DurabilityName,
) -> threads.RollbackThreadRequest:
    """Return the request that rolls a thread back."""
    check_texts(checkpoint_id=checkpoint_id)
    check_given_texts(expected_head=expected_head)
    return threads.RollbackThreadRequest(
        ref=ref(thread_id, checkpoint_ns, checkpoint_id),
        expected_head=expected_head,
        durability=durability(safe),
    )


def rollback_of(message: threads.RollbackThreadResponse) -> Rollback:
    """Return the record of a rollback."""
    return Rollback(message.ref.thread_id, message.ref.checkpoint_id, message.rolled_back_from)


def lineage_tree(message: threads.GetLineageResponse) -> ThreadLineage:
    """Return the record of a lineage, without steps of unknown kinds."""
    return ThreadLineage(
        tuple(_step(ancestor) for ancestor in message.ancestors if ancestor.kind in _DESCENTS),
        tuple(
            _step(descendant) for descendant in message.descendants if descendant.kind in _DESCENTS
        ),
        message.truncated,
    )


def _step(message: threads.LineageStep) -> LineageStep:
    # "from" is a keyword of Python, so the field is not an attribute.
    origin = getattr(message, "from")
    return LineageStep(
        _DESCENTS[message.kind],
        reference_of(origin),
        reference_of(message.to),
        moment(message.create_time),
    )
