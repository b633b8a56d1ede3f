"""What a thread waits for, by the writes of its latest root checkpoint."""

from __future__ import annotations

from collections.abc import Mapping

from ...domain.model import ThreadState
from ..database.overlay import KnownWrite

ERROR, INTERRUPT, RESUME = "__error__", "__interrupt__", "__resume__"
"""Channels of LangGraph (`langgraph.checkpoint.serde.types`) that say what a task waits for."""

NO_TASK = "00000000-0000-0000-0000-000000000000"
"""What LangGraph gives as the task of a write that is no task's."""


def judge(pending: Mapping[tuple[str, int], KnownWrite]) -> ThreadState:
    """Say what a thread waits for.

    A task waits if it has interrupted, has not ended with anything else, and has no answer:
    of its own, or the one that is given to no task in particular.

    Args:
        pending: Writes of the latest root checkpoint, by task and slot.
    """
    if not pending:
        return ThreadState.IDLE
    tasks: dict[str, set[str]] = {ERROR: set(), INTERRUPT: set(), RESUME: set()}
    ended: set[str] = set()
    for (task_id, _), write in pending.items():
        tasks.get(write.channel, ended).add(task_id)
    if tasks[ERROR]:
        return ThreadState.FAILED
    waiting = tasks[INTERRUPT] - tasks[RESUME] - ended
    if not waiting or NO_TASK in tasks[RESUME]:
        return ThreadState.IDLE
    return ThreadState.INTERRUPTED
