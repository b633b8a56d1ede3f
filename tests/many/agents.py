"""Agents that call a random server each time, give up soon, and record every call with its
times."""

from __future__ import annotations

import asyncio
import itertools
import random
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import TYPE_CHECKING

import grpc
import grpc.aio

from tests.crash.writers.transports import CHANNEL_OPTIONS, anywhere, status_of
from tests.many.history import Operation, Stored
from tuskpoint.v1.checkpoint_pb2 import VIEW_FULL, Checkpoint, CheckpointRef
from tuskpoint.v1.checkpoint_service_pb2 import (
    GetCheckpointRequest,
    ListCheckpointsRequest,
    SaveCheckpointRequest,
)
from tuskpoint.v1.checkpoint_service_pb2_grpc import CheckpointServiceStub

if TYPE_CHECKING:
    from tuskpoint.v1.checkpoint_service_pb2_grpc import CheckpointServiceAsyncStub

CALL_SECONDS = 1.0
PAUSE_SECONDS = 0.05
LIST_SECONDS = 60.0
_LOST = {
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.DEADLINE_EXCEEDED,
    grpc.StatusCode.CANCELLED,
}


class Agents:
    """Agents that work on the same threads.

    Args:
        targets: The servers.
        threads: The threads.
        seed: Decides the calls of each agent.

    Attributes:
        history: The calls of the agents so far, in the order of their ends.
        lost: Number of calls without an answer.
    """

    def __init__(self, targets: Sequence[str], threads: Sequence[str], seed: str) -> None:
        self.history: list[Operation] = []
        self.lost = 0
        self._targets = targets
        self._threads = threads
        self._seed = seed
        self._stopping = asyncio.Event()
        self._acknowledged = asyncio.Semaphore(0)

    def stop(self) -> None:
        """Let the agents end after the calls under way."""
        self._stopping.set()

    async def acknowledged(self, count: int) -> None:
        """Wait until `count` more calls were answered."""
        for _ in range(count):
            await self._acknowledged.acquire()

    async def work(self, name: str) -> None:
        """Load and save until the agents must stop."""
        source = random.Random(f"{self._seed} {name}")
        async with AsyncExitStack() as channels:
            each = [
                CheckpointServiceStub(await channels.enter_async_context(_channel(target)))
                for target in self._targets
            ]
            stub = anywhere(source, each)
            for count in itertools.count():
                if self._stopping.is_set():
                    return
                thread, token = source.choice(self._threads), f"{name} {count}"
                head = await self._load(stub, thread)
                if head is None or source.random() < 0.3:
                    continue
                expected = head.checkpoint_id if source.random() < 0.7 else None
                await self._save(stub, thread, token, head.checkpoint_id, expected)

    async def _load(self, stub: CheckpointServiceAsyncStub, thread: str) -> Operation | None:
        """Load the checkpoint on top; return `None` if there is no answer."""
        operation = Operation(thread, "load", time.monotonic())
        request = GetCheckpointRequest(ref=CheckpointRef(thread_id=thread), view=VIEW_FULL)
        try:
            checkpoint = (await stub.GetCheckpoint(request, timeout=CALL_SECONDS)).checkpoint
        except grpc.aio.AioRpcError as error:
            if status_of(error) is grpc.StatusCode.NOT_FOUND:
                return self._answered(operation)
            await self._failed(error)
            return None
        there = stored(checkpoint)
        return self._answered(
            replace(operation, seq=there.seq, checkpoint_id=there.checkpoint_id, token=there.token)
        )

    async def _save(
        self,
        stub: CheckpointServiceAsyncStub,
        thread: str,
        token: str,
        parent: str,
        expected: str | None,
    ) -> None:
        operation = Operation(thread, "save", time.monotonic(), token=token, expected=expected)
        checkpoint = Checkpoint(
            ref=CheckpointRef(thread_id=thread),
            parent_checkpoint_id=parent,
            metadata_json=b"{}",
        )
        channel = checkpoint.state.channels.add(name="token")
        channel.version.integer = 1
        channel.value.type, channel.value.data = "text", token.encode()
        request = SaveCheckpointRequest(checkpoint=checkpoint, expected_head=expected)
        try:
            answer = await stub.SaveCheckpoint(request, timeout=CALL_SECONDS)
        except grpc.aio.AioRpcError as error:
            if status_of(error) is grpc.StatusCode.ABORTED:
                self._answered(replace(operation, refused=True))
                return
            self.history.append(operation)
            await self._failed(error)
            return
        self._answered(replace(operation, seq=answer.seq, checkpoint_id=answer.ref.checkpoint_id))

    def _answered(self, operation: Operation) -> Operation:
        operation = replace(operation, answered=time.monotonic())
        self.history.append(operation)
        self._acknowledged.release()
        return operation

    async def _failed(self, error: grpc.aio.AioRpcError) -> None:
        """Count a call whose outcome is unknown, and wait a little; raise any other error."""
        if status_of(error) not in _LOST:
            raise error
        self.lost += 1
        await asyncio.sleep(PAUSE_SECONDS)


async def listed(target: str, thread: str) -> list[Stored]:
    """Return all checkpoints of a thread."""
    async with _channel(target) as channel:
        request = ListCheckpointsRequest(thread_id=thread, view=VIEW_FULL)
        stub = CheckpointServiceStub(channel)
        call = stub.ListCheckpoints(request, timeout=LIST_SECONDS, wait_for_ready=True)
        return [stored(answer.checkpoint) async for answer in call]


def stored(checkpoint: Checkpoint) -> Stored:
    """Return a checkpoint in the form of a history."""
    token = checkpoint.state.channels[0].value.data.decode()
    return Stored(checkpoint.seq, checkpoint.ref.checkpoint_id, token)


def _channel(target: str) -> grpc.aio.Channel:
    return grpc.aio.insecure_channel(target, options=CHANNEL_OPTIONS)
