"""Threads of a source, as messages of the contract, and the errors of one thread."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol

from ..v1.checkpoint_pb2 import Checkpoint

Key = tuple[str, str]
"""Namespace and ID of a checkpoint."""


@dataclass(frozen=True, slots=True)
class ThreadSettings:
    """Settings of a thread that belong to no checkpoint.

    Attributes:
        agent_id: The agent that drives the thread; empty for no agent.
        searchable: Whether search finds the thread.
        retention: Time after the last change at which the thread is deleted; `None` keeps the
            thread.
    """

    agent_id: str = ""
    searchable: bool = True
    retention: timedelta | None = None


class Problem(Exception):
    """A thread that cannot be moved.

    Attributes:
        message: Text for people: what happened, and to which thing.
        hint: Advice for people; may be empty.
        is_damage: Whether the source is damaged. Otherwise the source is intact, and the thread is
            refused.
    """

    def __init__(self, message: str, hint: str = "", *, is_damage: bool = False) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.is_damage = is_damage


class Source(Protocol):
    """A source of threads."""

    name: str
    """Name of the source in messages. Contains no password."""

    def threads(self) -> Iterator[str]:
        """Yield the IDs of all threads."""
        ...

    def size(self, thread_ids: Collection[str] | None) -> int:
        """Return the number of checkpoints of these threads, or of all threads."""
        ...

    def settings(self, thread_id: str) -> ThreadSettings:
        """Return the settings of a thread."""
        ...

    def checkpoints(self, thread_id: str) -> Iterator[Checkpoint]:
        """Yield the checkpoints of a thread, smallest ID first, with values and writes.

        Between two calls of `release`, all reads of a thread yield the same checkpoints.

        Raises:
            Problem: The thread is damaged, or has a value that cannot be moved.
        """
        ...

    def release(self) -> None:
        """Release the state that keeps the reads of a thread equal."""
        ...

    def close(self) -> None:
        """Close the files and connections."""
        ...


def key_of(message: Checkpoint) -> Key:
    """Return the place of a checkpoint within its thread."""
    return message.ref.checkpoint_ns, message.ref.checkpoint_id


def called(checkpoint: Key) -> str:
    """Return the name of a checkpoint in messages."""
    where = f" in namespace '{checkpoint[0]}'" if checkpoint[0] else ""
    return f"checkpoint '{checkpoint[1]}'{where}"
