"""Interrupts: what a checkpoint waits for, and what answers it.

`answer_steps` is a generator that does no I/O: it yields what is to be asked of the service and
is sent the answers. The sync and the async client drive the same steps.

An interrupt is a pending write of a task on the channel `__interrupt__`, and its answer one on
`__resume__`: of no task if it is the only one that waits, else of the task that asks. This is how
LangGraph itself keeps both (`langgraph/pregel/_task_status.py` and `_algo.py`).
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

from ._records import CheckpointRecord, Write, checkpoint_record
from ._requests import not_found, ref
from ._saving import encode_json, invalid_field
from .errors import PreconditionFailed
from .v1.checkpoint_pb2 import Checkpoint, CheckpointRef
from .v1.checkpoint_service_pb2 import SaveWritesRequest, SaveWritesResponse
from .v1.thread_pb2 import Thread
from .v1.thread_service_pb2 import GetThreadRequest
from .v1.value_pb2 import PendingWrite, Value

NO_TASK = "00000000-0000-0000-0000-000000000000"
INTERRUPT, RESUME = "__interrupt__", "__resume__"
# Channels that tell what happened to a task. Any other write says that it ended.
_OF_CONTROL = frozenset({INTERRUPT, RESUME, "__error__", "__error_source_node__"})
_NAMED = 5  # most interrupts that a message names

AnswerSteps = Generator[
    CheckpointRef | GetThreadRequest | SaveWritesRequest,
    Checkpoint | Thread | SaveWritesResponse | None,
    str,
]


@dataclass(frozen=True, slots=True)
class OpenInterrupt:
    """A question that waits for an answer.

    Attributes:
        interrupt_id: Its ID; empty if the framework gave it none that can be read.
        value: What is asked, as in the view "json".
        task_id: The task that asks.
        checkpoint_id: The checkpoint that waits.
    """

    interrupt_id: str
    value: Any
    task_id: str
    checkpoint_id: str


def open_interrupts(checkpoint: CheckpointRecord) -> tuple[OpenInterrupt, ...]:
    """Return what a checkpoint, read with the view "json", waits for.

    A task waits until it has written something else, or its checkpoint is followed by another:
    one that is answered waits until its graph has gone on.
    """
    ended = {write.task_id for write in checkpoint.writes if write.channel not in _OF_CONTROL}
    found: dict[str, OpenInterrupt] = {}
    # A task and the one that called it, whose path is a part of its own, tell of the same
    # interrupt; it is the called one that asks.
    for write in sorted(checkpoint.writes, key=lambda one: -len(one.task_path)):
        if write.channel == INTERRUPT and write.task_id not in ended | {NO_TASK}:
            for one in _asked(write, checkpoint.checkpoint_id):
                found.setdefault(one.interrupt_id or f"{one.task_id}/{len(found)}", one)
    return tuple(found.values())


def _asked(write: Write, checkpoint_id: str) -> list[OpenInterrupt]:
    shown = write.value
    return [
        OpenInterrupt(*_id_and_value(one), write.task_id, checkpoint_id)
        for one in (shown if isinstance(shown, list) else [shown])
    ]


def _id_and_value(shown: Any) -> tuple[str, Any]:
    """Return ID and value of an interrupt: LangGraph's in Python and JavaScript alike."""
    if not isinstance(shown, dict) or not shown.keys() & {"id", "value"}:
        return "", shown
    named = shown.get("id")
    return (named if isinstance(named, str) else ""), shown.get("value")


def answer_steps(
    thread_id: str,
    value: Any,
    checkpoint_id: str | None,
    checkpoint_ns: str,
    interrupt_id: str | None,
) -> AnswerSteps:
    """Yield what to ask of the service, in order; return the ID of the answered checkpoint.

    A reference asks for that checkpoint in the view "json" (`None` if there is none).

    Raises:
        InvalidRequest: The value is `None`, or cannot be written as JSON.
        NotFound: There is no such checkpoint.
        PreconditionFailed: It waits for nothing, for no such interrupt, or for several and none
            is named.
    """
    if value is None:
        raise invalid_field("value", "no interrupt takes None (null) as its answer")
    data = encode_json("value", value)
    place = ref(thread_id, checkpoint_ns, checkpoint_id)
    found = yield place
    if not isinstance(found, Checkpoint):
        raise not_found(place)
    waiting = open_interrupts(checkpoint_record(found))
    chosen = _choose(waiting, found.ref, interrupt_id)
    if len(waiting) == 1:
        yield _answer(found.ref, NO_TASK, "", data)
    else:
        yield (yield from _answer_of_task(found, chosen, data))
    return found.ref.checkpoint_id


def _choose(
    waiting: tuple[OpenInterrupt, ...], place: CheckpointRef, interrupt_id: str | None
) -> OpenInterrupt:
    """Return the interrupt that is to be answered.

    Raises:
        PreconditionFailed: See `answer_steps`.
    """
    if not waiting:
        raise _refusal(
            place, "waits for no answer: list_threads(state='interrupted') tells which threads do"
        )
    named = ", ".join(f"'{one.interrupt_id}'" for one in waiting[:_NAMED])
    if interrupt_id is None:
        if len(waiting) == 1:
            return waiting[0]
        raise _refusal(
            place,
            f"waits for {len(waiting)} answers: say which one this is with interrupt_id, one of "
            f"{named}",
        )
    for one in waiting:
        if one.interrupt_id == interrupt_id:
            return one
    raise _refusal(place, f"does not wait for an answer to '{interrupt_id}', but to {named}")


def _answer_of_task(
    found: Checkpoint, chosen: OpenInterrupt, data: bytes
) -> Generator[CheckpointRef | GetThreadRequest, Any, SaveWritesRequest]:
    """Return the request that answers one of several interrupts.

    The answer goes to the task that asks. If that is in a subgraph, what waits here is the task
    that runs the subgraph, and the other is found in the subgraph's own namespace.

    Raises:
        PreconditionFailed: The task has an answer already.
    """
    place, asking = found, chosen
    thread: Thread = yield GetThreadRequest(thread_id=found.ref.thread_id)
    for checkpoint_ns, checkpoint_id in _inner(thread, found.ref.checkpoint_ns, chosen.task_id):
        inner: Checkpoint | None = yield ref(thread.thread_id, checkpoint_ns, checkpoint_id)
        if inner is None:
            continue
        same = [
            one
            for one in open_interrupts(checkpoint_record(inner))
            if one.interrupt_id == chosen.interrupt_id
        ]
        if same:
            place, asking = inner, same[0]
            break
    written = {write.channel: write for write in place.writes if write.task_id == asking.task_id}
    if RESUME in written:
        raise _refusal(
            found.ref,
            f"has an answer of the task that asks '{chosen.interrupt_id}' already, and waits for "
            "others: let the graph go on, or answer there with Command(resume={id: value})",
        )
    return _answer(place.ref, asking.task_id, written[INTERRUPT].task_path, b"[" + data + b"]")


def _inner(thread: Thread, checkpoint_ns: str, task_id: str) -> list[tuple[str, str]]:
    """Return the namespaces that a task may have asked in, innermost first, and their latest.

    A subgraph's namespace is its parent's and, after a "|", the name of the node that runs it,
    with ":" and the ID of that node's task unless the subgraph remembers from call to call.
    """
    outer = f"{checkpoint_ns}|" if checkpoint_ns else ""
    found = []
    for head in thread.heads:
        rest = head.checkpoint_ns.removeprefix(outer)
        if not rest or (outer and rest == head.checkpoint_ns):
            continue
        first = rest.split("|")[0]
        if first.endswith(f":{task_id}") or ":" not in first:
            found.append((head.checkpoint_ns, head.checkpoint_id))
    return sorted(found, key=lambda one: one[0].count("|"), reverse=True)


def _answer(place: CheckpointRef, task_id: str, task_path: str, data: bytes) -> SaveWritesRequest:
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
