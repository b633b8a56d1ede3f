"""Interrupts that a checkpoint waits for, and their answers.

An interrupt is a pending write of a task on the channel `__interrupt__`. Its answer is a pending
write on `__resume__`: of no task if only one interrupt waits, else of the task that asks. LangGraph
itself stores interrupts and answers in this form (`langgraph/pregel/_task_status.py` and
`_algo.py`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...errors import PreconditionFailed
from ...v1.checkpoint_pb2 import Checkpoint, CheckpointRef
from ...v1.checkpoint_service_pb2 import SaveWritesRequest
from ...v1.thread_pb2 import Thread
from ...v1.value_pb2 import PendingWrite, Value
from ..records import CheckpointRecord, Write, checkpoint_record

NO_TASK = "00000000-0000-0000-0000-000000000000"
INTERRUPT, RESUME = "__interrupt__", "__resume__"
# Channels with the state of a task. A write on any other channel means that the task ended.
_OF_CONTROL = frozenset({INTERRUPT, RESUME, "__error__", "__error_source_node__"})
_NAMED = 5  # most interrupts that a message names


@dataclass(frozen=True, slots=True)
class OpenInterrupt:
    """A question that waits for an answer.

    Attributes:
        interrupt_id: ID of the interrupt; empty if the framework gave it no readable ID.
        value: The question, as in the view "json".
        task_id: The task that asks.
        checkpoint_id: The checkpoint that waits.
    """

    interrupt_id: str
    value: Any
    task_id: str
    checkpoint_id: str


def open_interrupts(checkpoint: CheckpointRecord) -> tuple[OpenInterrupt, ...]:
    """Return the interrupts that wait in a checkpoint that was read with the view "json".

    A task waits until the task has written on another channel or its checkpoint has a successor. So
    an answered task waits until its graph has continued.
    """
    ended = {write.task_id for write in checkpoint.writes if write.channel not in _OF_CONTROL}
    interrupts: dict[str, OpenInterrupt] = {}
    # A task and its caller both have the interrupt. The caller's path is a prefix of the task's
    # path; the called task asks.
    for write in sorted(checkpoint.writes, key=lambda write: -len(write.task_path)):
        if write.channel == INTERRUPT and write.task_id not in ended | {NO_TASK}:
            for interrupt in _asked(write, checkpoint.checkpoint_id):
                interrupts.setdefault(
                    interrupt.interrupt_id or f"{interrupt.task_id}/{len(interrupts)}", interrupt
                )
    return tuple(interrupts.values())


def answered_interrupts(
    checkpoint: CheckpointRecord, waiting: tuple[OpenInterrupt, ...], *, is_asked_again: bool
) -> tuple[OpenInterrupt, ...]:
    """Return the open interrupts that have an answer which the graph has not used yet.

    Args:
        checkpoint: The checkpoint.
        waiting: The interrupts that `open_interrupts` returned for the checkpoint.
        is_asked_again: Whether the thread still waits at this checkpoint according to the server.
            Then the answer to a single interrupt belongs to an earlier question of the task.
    """
    answered = {write.task_id for write in checkpoint.writes if write.channel == RESUME}
    if len(waiting) == 1:
        return waiting if answered & {waiting[0].task_id, NO_TASK} and not is_asked_again else ()
    return tuple(interrupt for interrupt in waiting if interrupt.task_id in answered)


def _asked(write: Write, checkpoint_id: str) -> list[OpenInterrupt]:
    value = write.value
    return [
        OpenInterrupt(*_id_and_value(interrupt), write.task_id, checkpoint_id)
        for interrupt in (value if isinstance(value, list) else [value])
    ]


def _id_and_value(interrupt: Any) -> tuple[str, Any]:
    """Return the ID and the value of an interrupt of LangGraph, in Python or JavaScript."""
    if not isinstance(interrupt, dict) or not interrupt.keys() & {"id", "value"}:
        return "", interrupt
    interrupt_id = interrupt.get("id")
    return (interrupt_id if isinstance(interrupt_id, str) else ""), interrupt.get("value")


def choose(
    waiting: tuple[OpenInterrupt, ...], place: CheckpointRef, interrupt_id: str | None
) -> OpenInterrupt:
    """Return the interrupt to answer.

    Raises:
        PreconditionFailed: The checkpoint waits for no interrupt, does not wait for the named
            interrupt, or waits for several and no interrupt is named.
    """
    if not waiting:
        raise _refusal(
            place,
            "waits for no answer: list_threads(state='interrupted') lists the threads that do",
        )
    names = ", ".join(f"'{interrupt.interrupt_id}'" for interrupt in waiting[:_NAMED])
    if interrupt_id is None:
        if len(waiting) == 1:
            return waiting[0]
        raise _refusal(
            place,
            f"waits for {len(waiting)} answers: choose one with interrupt_id: {names}",
        )
    for interrupt in waiting:
        if interrupt.interrupt_id == interrupt_id:
            return interrupt
    raise _refusal(place, f"does not wait for an answer to '{interrupt_id}', but to {names}")


def same_interrupt(checkpoint: Checkpoint, interrupt: OpenInterrupt) -> OpenInterrupt | None:
    """Return the interrupt with the same ID in a subgraph's checkpoint, if it waits there."""
    for candidate in open_interrupts(checkpoint_record(checkpoint)):
        if candidate.interrupt_id == interrupt.interrupt_id:
            return candidate
    return None


def answer_of_task(
    place: Checkpoint, interrupt: OpenInterrupt, data: bytes, root: CheckpointRef
) -> SaveWritesRequest:
    """Return the request that answers one of several interrupts.

    Args:
        place: The checkpoint with the task that asks.
        interrupt: The interrupt in that checkpoint.
        data: The answer as JSON.
        root: The checkpoint that the caller named, for the error.

    Raises:
        PreconditionFailed: The task already has an answer.
    """
    writes = {write.channel: write for write in place.writes if write.task_id == interrupt.task_id}
    if RESUME in writes:
        raise _refusal(
            root,
            f"has an answer to '{interrupt.interrupt_id}' already and waits for others: invoke the "
            "graph, or answer there with Command(resume={id: value})",
        )
    return answer_request(
        place.ref, interrupt.task_id, writes[INTERRUPT].task_path, b"[" + data + b"]"
    )


def inner_namespaces(thread: Thread, checkpoint_ns: str, task_id: str) -> list[tuple[str, str]]:
    """Return the namespaces in which a task may ask, innermost first, and their latest checkpoints.

    A subgraph's namespace is its parent's, a "|" and the name of the node that runs it. Then come
    ":" and the ID of that node's task, unless the subgraph keeps its state between calls.
    """
    outer = f"{checkpoint_ns}|" if checkpoint_ns else ""
    inner_heads = []
    for head in thread.heads:
        rest = head.checkpoint_ns.removeprefix(outer)
        if not rest or (outer and rest == head.checkpoint_ns):
            continue
        first = rest.split("|")[0]
        if first.endswith(f":{task_id}") or ":" not in first:
            inner_heads.append((head.checkpoint_ns, head.checkpoint_id))
    return sorted(inner_heads, key=lambda head: head[0].count("|"), reverse=True)


def answer_request(
    place: CheckpointRef, task_id: str, task_path: str, data: bytes
) -> SaveWritesRequest:
    """Return the request that saves an answer.

    Args:
        place: The checkpoint that waits.
        task_id: The task that asks; `NO_TASK` if the checkpoint waits for a single answer.
        task_path: Path of the task in its graph.
        data: The answer as JSON; for one of several interrupts, in a list.
    """
    write = PendingWrite(
        task_id=task_id,
        task_path=task_path,
        channel=RESUME,
        value=Value(type="json", data=data),
    )
    return SaveWritesRequest(ref=place, writes=[write])


def _refusal(place: CheckpointRef, problem: str) -> PreconditionFailed:
    where = f" in namespace '{place.checkpoint_ns}'" if place.checkpoint_ns else ""
    return PreconditionFailed(
        f"checkpoint '{place.checkpoint_id}' of thread '{place.thread_id}'{where} {problem}",
        status="FAILED_PRECONDITION",
        metadata={
            "thread_id": place.thread_id,
            "checkpoint_ns": place.checkpoint_ns,
            "checkpoint_id": place.checkpoint_id,
        },
    )
