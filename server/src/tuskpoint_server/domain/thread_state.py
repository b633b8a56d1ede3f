"""What a thread waits for, by the pending writes of its latest root checkpoint.

LangGraph keeps what it asks in such writes (`langgraph/pregel/_task_status.py`):

- A task that asks writes `__interrupt__`, and one that fails `__error__`. Each has one slot per
  task, so a task's next question replaces its last.
- An answer is written on `__resume__`: of no task in particular if one question is open, else of
  the task that asks.
- A task that was answered and asks again writes its question together with its own `__resume__`,
  which lists the answers that it has used. So an answer that was used stays, and only the order
  tells it from one that was not: a task waits if its question is not older than its answer.
- A task that ends writes something else.
"""

from __future__ import annotations

from collections.abc import Iterable

from .model import ThreadState

ERROR, INTERRUPT, RESUME = "__error__", "__interrupt__", "__resume__"
"""Channels of LangGraph (`langgraph.checkpoint.serde.types`) that say what a task waits for."""

NO_TASK = "00000000-0000-0000-0000-000000000000"
"""What LangGraph gives as the task of a write that is no task's."""

_ERROR_SOURCE = "__error_source_node__"


def judge(pending: Iterable[tuple[str, str, int]]) -> ThreadState:
    """Say what a thread waits for.

    Writes may be of equal order, for instance after a fork. Then an answer of no task counts if
    the task has used none, and one of the task itself counts as used, as it does for LangGraph.

    Args:
        pending: Writes of the latest root checkpoint: task, channel, and a number that grows
            with the change that last wrote it, of any origin.
    """
    asked: dict[str, int] = {}
    answered: dict[str, int] = {}
    ended: set[str] = set()
    failed = False
    for task_id, channel, order in pending:
        if channel == INTERRUPT:
            asked[task_id] = order
        elif channel == RESUME:
            answered[task_id] = order
        elif channel == ERROR:
            failed = True
        elif channel != _ERROR_SOURCE:
            ended.add(task_id)
    if failed:
        return ThreadState.FAILED
    to_all = answered.get(NO_TASK)
    if any(
        task_id not in ended and _waits(order, answered.get(task_id), to_all)
        for task_id, order in asked.items()
    ):
        return ThreadState.INTERRUPTED
    return ThreadState.IDLE


def _waits(asked: int, own: int | None, to_all: int | None) -> bool:
    """Tell whether a question is open, by the order of it and of the answers there are."""
    if own is None:
        return to_all is None or to_all < asked
    if own > asked:
        return False
    return to_all is None or to_all <= asked
