"""What a thread waits for, as the writes that are known of its latest root checkpoint say."""

from __future__ import annotations

from collections.abc import Mapping

from ...domain import thread_state
from ...domain.model import ThreadState
from ..database.overlay import KnownWrite


def judge(pending: Mapping[tuple[str, int], KnownWrite]) -> ThreadState:
    """Say what a thread waits for.

    Args:
        pending: Writes of the latest root checkpoint, by task and slot.
    """
    if not pending:
        return ThreadState.IDLE
    return thread_state.judge(
        (task_id, write.channel, write.seq) for (task_id, _), write in pending.items()
    )
