"""The threads of a source, as messages of the contract, and the errors of one thread."""

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
    """The settings of a thread that belong to no checkpoint.

    Attributes:
        agent_id: The agent that drives it; empty for none.
        searchable: Whether search finds it.
        retention: Time after its last change at which it is deleted; `None` keeps it.
    """

    agent_id: str = ""
    searchable: bool = True
    retention: timedelta | None = None


class Problem(Exception):
    """A thread that cannot be moved.

    Attributes:
        message: What happened, and to what.
        hint: What to do; may be empty.
        is_damage: Whether the source is damaged, and not only refused.
    """

    def __init__(self, message: str, hint: str = "", *, is_damage: bool = False) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.is_damage = is_damage


class Source(Protocol):
    """Where threads come from."""

    name: str
    """What messages call it. It contains no password."""

    def threads(self) -> Iterator[str]:
        """Yield the IDs of all threads."""
        ...

    def size(self, thread_ids: Collection[str] | None) -> int:
        """Return how many checkpoints these threads have, or all."""
        ...

    def settings(self, thread_id: str) -> ThreadSettings:
        """Return the settings of a thread."""
        ...

    def checkpoints(self, thread_id: str) -> Iterator[Checkpoint]:
        """Yield the checkpoints of a thread, smallest ID first, with values and writes.

        Between two calls of `release`, every reading of a thread yields the same.

        Raises:
            Problem: The thread is damaged, or has a value that cannot be moved.
        """
        ...

    def release(self) -> None:
        """End what keeps the readings of a thread equal."""
        ...

    def close(self) -> None:
        """Close the files and connections."""
        ...


def key_of(message: Checkpoint) -> Key:
    """Return the place of a checkpoint within its thread."""
    return message.ref.checkpoint_ns, message.ref.checkpoint_id


def called(checkpoint: Key) -> str:
    """Return what messages call a checkpoint."""
    where = f" in namespace '{checkpoint[0]}'" if checkpoint[0] else ""
    return f"checkpoint '{checkpoint[1]}'{where}"
