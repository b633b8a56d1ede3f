"""Checkpoints that were saved last, without reading all others."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .._messages.records import CheckpointRecord
    from .._messages.reports import ThreadRecord
    from ..client import Client


def newest(checkpoints: Iterable[CheckpointRecord], most: int | None) -> list[CheckpointRecord]:
    """Return at most a number of checkpoints, sorted by the time of their save, newest first."""
    if most is None:
        return sorted(checkpoints, key=_saved, reverse=True)
    return heapq.nlargest(most, checkpoints, key=_saved)


def saved_last(
    client: Client, threads: Sequence[ThreadRecord], most: int
) -> list[CheckpointRecord]:
    """Return the checkpoints of some threads that were saved last, newest first.

    No checkpoint is newer than the last change of its thread. So the function reads threads in the
    order of their last changes, until it has enough checkpoints that are newer than all other
    threads. It reads only the `most` greatest IDs of a thread: IDs from the service or LangGraph
    rise with time.

    Args:
        client: Client of the service.
        threads: The threads.
        most: Most checkpoints to return.
    """
    checkpoints: list[CheckpointRecord] = []
    for thread in sorted(threads, key=lambda thread: thread.updated, reverse=True):
        if len(checkpoints) == most and _saved(checkpoints[-1])[0] > thread.updated.timestamp():
            break
        checkpoints = newest(chain(checkpoints, client.list(thread.thread_id, limit=most)), most)
    return checkpoints


def _saved(checkpoint: CheckpointRecord) -> tuple[float, str]:
    return (
        0.0 if checkpoint.created is None else checkpoint.created.timestamp(),
        checkpoint.checkpoint_id,
    )
