# Written by `make sync` from _async/parts/interrupts.py; do not edit.
"""Methods about interrupts: questions that threads wait for, and their answers."""

from __future__ import annotations

from typing import Any

from ..._messages import requests
from ..._messages.arguments import encode_json, invalid_field
from ..._messages.checkpoints import interrupts
from ..._messages.checkpoints.interrupts import OpenInterrupt
from ..._messages.records import checkpoint_record
from ..._transport import methods
from ...v1.checkpoint_pb2 import VIEW_JSON, Checkpoint
from ...v1.checkpoint_service_pb2 import SaveWritesRequest
from ...v1.thread_service_pb2 import GetThreadRequest
from .part import SyncPart


class SyncInterrupts(SyncPart):
    """Methods about interrupts: questions that threads wait for, and their answers."""

    def interrupts(
        self, thread_id: str, *, checkpoint_id: str | None = None, checkpoint_ns: str = ""
    ) -> tuple[OpenInterrupt, ...]:
        """Return the interrupts that a checkpoint waits for.

        The list contains an answered interrupt until its graph has continued.

        Args:
            thread_id: The thread.
            checkpoint_id: The checkpoint. Default: the latest checkpoint.
            checkpoint_ns: The namespace. The root has the interrupts of subgraphs too.

        Raises:
            NotFound: There is no such checkpoint.
        """
        ref = requests.ref(thread_id, checkpoint_ns, checkpoint_id)
        checkpoint = self._calls.get_checkpoint(ref, view=VIEW_JSON)
        if checkpoint is None:
            raise requests.not_found(ref)
        return interrupts.open_interrupts(checkpoint_record(checkpoint))

    def answer(
        self,
        thread_id: str,
        value: Any,
        *,
        checkpoint_id: str | None = None,
        checkpoint_ns: str = "",
        interrupt_id: str | None = None,
    ) -> str:
        """Answer an interrupt; return the ID of the checkpoint that waits for the answer.

        The answer is stored as a pending write. When a LangGraph agent invokes its graph with
        `None`, `interrupt` returns the answer. Until then another answer replaces the first, unless
        the checkpoint waits for several answers. At a checkpoint that is not the latest, the graph
        uses the answer if it is invoked with `Command(resume={})` and the `checkpoint_id`.

        Args:
            thread_id: The thread.
            value: The answer: any JSON value except `None`.
            checkpoint_id: The checkpoint. Name it so that you cannot answer a later question by
                mistake. Default: the latest checkpoint, from which graphs continue.
            checkpoint_ns: The namespace. Answers to interrupts of subgraphs go to the root.
            interrupt_id: The interrupt. Default: the only waiting interrupt.

        Raises:
            InvalidRequest: The value is `None`, or cannot be written as JSON.
            NotFound: There is no such checkpoint.
            PreconditionFailed: The checkpoint waits for no interrupt, does not wait for the named
                interrupt, or waits for several and no interrupt is named.
        """
        if value is None:
            raise invalid_field("value", "None (null) cannot be the answer of an interrupt")
        data = encode_json("value", value)
        place = requests.ref(thread_id, checkpoint_ns, checkpoint_id)
        checkpoint = self._calls.get_checkpoint(place, view=VIEW_JSON)
        if checkpoint is None:
            raise requests.not_found(place)
        waiting = interrupts.open_interrupts(checkpoint_record(checkpoint))
        interrupt = interrupts.choose(waiting, checkpoint.ref, interrupt_id)
        if len(waiting) == 1:
            request = interrupts.answer_request(checkpoint.ref, interrupts.NO_TASK, "", data)
        else:
            request = self._answer_of_task(checkpoint, interrupt, data)
        self._calls.save_writes(request)
        return checkpoint.ref.checkpoint_id

    def _answer_of_task(
        self, checkpoint: Checkpoint, interrupt: OpenInterrupt, data: bytes
    ) -> SaveWritesRequest:
        """Return the request that answers one of several interrupts.

        The answer goes to the task that asks. If that task is in a subgraph, the task that waits in
        this checkpoint runs the subgraph, and the task that asks is in the subgraph's own
        namespace.
        """
        request = GetThreadRequest(thread_id=checkpoint.ref.thread_id)
        thread = self._calls.unary(methods.GET_THREAD, request).thread
        for checkpoint_ns, checkpoint_id in interrupts.inner_namespaces(
            thread, checkpoint.ref.checkpoint_ns, interrupt.task_id
        ):
            inner = self._calls.get_checkpoint(
                requests.ref(thread.thread_id, checkpoint_ns, checkpoint_id), view=VIEW_JSON
            )
            if inner is None:
                continue
            inner_interrupt = interrupts.same_interrupt(inner, interrupt)
            if inner_interrupt is not None:
                return interrupts.answer_of_task(inner, inner_interrupt, data, checkpoint.ref)
        return interrupts.answer_of_task(checkpoint, interrupt, data, checkpoint.ref)
