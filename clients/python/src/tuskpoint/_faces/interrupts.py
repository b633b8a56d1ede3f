"""Interrupts: what threads wait for, and answers."""

from __future__ import annotations

from typing import Any

from .. import _requests as requests
from .._interrupts import AnswerSteps, OpenInterrupt, answer_steps, open_interrupts
from .._records import checkpoint_record
from ..v1.checkpoint_pb2 import VIEW_JSON, Checkpoint, CheckpointRef
from ..v1.checkpoint_service_pb2 import SaveWritesResponse
from ..v1.thread_pb2 import Thread
from ..v1.thread_service_pb2 import GetThreadRequest
from .base import AsyncFace, SyncFace, twin_of

Told = Checkpoint | Thread | SaveWritesResponse | None


class SyncInterrupts(SyncFace):
    """Interrupts: what threads wait for, and answers."""

    def interrupts(
        self, thread_id: str, *, checkpoint_id: str | None = None, checkpoint_ns: str = ""
    ) -> tuple[OpenInterrupt, ...]:
        """Return what a checkpoint waits for: none if it waits for nothing.

        An interrupt that is answered is among them until its graph has gone on.

        Args:
            thread_id: The thread.
            checkpoint_id: The checkpoint. Default: the latest.
            checkpoint_ns: The namespace. The root tells of what waits in subgraphs too.

        Raises:
            NotFound: There is no such checkpoint.
        """
        ref = requests.ref(thread_id, checkpoint_ns, checkpoint_id)
        found = self._calls.get_checkpoint(ref, view=VIEW_JSON)
        if found is None:
            raise requests.not_found(ref)
        return open_interrupts(checkpoint_record(found))

    def answer(
        self,
        thread_id: str,
        value: Any,
        *,
        checkpoint_id: str | None = None,
        checkpoint_ns: str = "",
        interrupt_id: str | None = None,
    ) -> str:
        """Answer an interrupt; return the ID of the checkpoint that waits for it.

        The answer is a pending write. A LangGraph agent takes it up when its graph is invoked
        with `None`, and `interrupt` returns it there. Until then another answer replaces it,
        unless the checkpoint waits for several.

        Args:
            thread_id: The thread.
            value: The answer: anything that JSON can express, but not `None`.
            checkpoint_id: The checkpoint, so that no later question is answered by mistake.
                Default: the latest, from which graphs go on.
            checkpoint_ns: The namespace. Answers to what waits in subgraphs go to the root.
            interrupt_id: The interrupt. Default: the only one that waits.

        Raises:
            InvalidRequest: The value is `None`, or cannot be written as JSON.
            NotFound: There is no such checkpoint.
            PreconditionFailed: It waits for nothing, for no such interrupt, or for several and
                none is named.
        """
        return self._follow(
            answer_steps(thread_id, value, checkpoint_id, checkpoint_ns, interrupt_id)
        )

    def _follow(self, steps: AnswerSteps) -> str:
        step = next(steps)
        told: Told
        while True:
            if isinstance(step, CheckpointRef):
                told = self._calls.get_checkpoint(step, view=VIEW_JSON)
            elif isinstance(step, GetThreadRequest):
                told = self._calls.get_thread(step).thread
            else:
                told = self._calls.save_writes(step)
            try:
                step = steps.send(told)
            except StopIteration as done:
                answered: str = done.value
                return answered


class AsyncInterrupts(AsyncFace):
    """Interrupts: what threads wait for, and answers."""

    @twin_of(SyncInterrupts.interrupts)
    async def interrupts(
        self, thread_id: str, *, checkpoint_id: str | None = None, checkpoint_ns: str = ""
    ) -> tuple[OpenInterrupt, ...]:
        ref = requests.ref(thread_id, checkpoint_ns, checkpoint_id)
        found = await self._calls.get_checkpoint(ref, view=VIEW_JSON)
        if found is None:
            raise requests.not_found(ref)
        return open_interrupts(checkpoint_record(found))

    @twin_of(SyncInterrupts.answer)
    async def answer(
        self,
        thread_id: str,
        value: Any,
        *,
        checkpoint_id: str | None = None,
        checkpoint_ns: str = "",
        interrupt_id: str | None = None,
    ) -> str:
        return await self._follow(
            answer_steps(thread_id, value, checkpoint_id, checkpoint_ns, interrupt_id)
        )

    async def _follow(self, steps: AnswerSteps) -> str:
        step = next(steps)
        told: Told
        while True:
            if isinstance(step, CheckpointRef):
                told = await self._calls.get_checkpoint(step, view=VIEW_JSON)
            elif isinstance(step, GetThreadRequest):
                told = (await self._calls.get_thread(step)).thread
            else:
                told = await self._calls.save_writes(step)
            try:
                step = steps.send(told)
            except StopIteration as done:
                answered: str = done.value
                return answered
