"""Requests of the agents, with their outcomes recorded in the ledger."""

from __future__ import annotations

import asyncio
import copy
import random
from collections.abc import Awaitable, Callable, Collection, Sequence

import grpc
import grpc.aio

from tests.crash.writers.content import (
    Line,
    checkpoint_fingerprint,
    slot,
    write_fingerprint,
)
from tests.crash.writers.ledger import Key, Ledger
from tests.crash.writers.transports import FAILURES, Unary, anywhere, status_of
from tuskpoint._async.calls import AsyncCalls
from tuskpoint.errors import TuskPointError
from tuskpoint.v1.checkpoint_pb2 import (
    DURABILITY_JOURNALED,
    Checkpoint,
    CheckpointRef,
    Durability,
)
from tuskpoint.v1.checkpoint_service_pb2 import SaveCheckpointRequest, SaveWritesRequest
from tuskpoint.v1.checkpoint_service_pb2_grpc import CheckpointServiceStub
from tuskpoint.v1.snapshot_service_pb2_grpc import SnapshotServiceStub
from tuskpoint.v1.thread_service_pb2_grpc import ThreadServiceStub
from tuskpoint.v1.value_pb2 import PendingWrite


class Writer:
    """The state that the agents share.

    Args:
        channels: Channels to the servers, for calls without the client.
        calls: The client; all agents share its streams.
        source: Draws a server for each call without the client.
        ledger: The record.
        gives_up: Whether agents abandon half of the failed requests and, with a single server, some
            calls of the client.
        stops_when_refused: Whether the first failure stops all agents.
        pause_s: Seconds that an agent waits before each request.
        passing: Statuses after which an agent retries a request.

    Attributes:
        saves: The client, or its replacement for agents that save without it.
        stopped: Set once the agents must make no more requests.
    """

    def __init__(
        self,
        channels: Sequence[grpc.aio.Channel],
        calls: AsyncCalls,
        source: random.Random,
        ledger: Ledger,
        *,
        gives_up: bool,
        stops_when_refused: bool,
        pause_s: float,
        passing: Collection[grpc.StatusCode] = (grpc.StatusCode.UNAVAILABLE,),
    ) -> None:
        self.raw = anywhere(source, [CheckpointServiceStub(channel) for channel in channels])
        self.threads = anywhere(source, [ThreadServiceStub(channel) for channel in channels])
        self.snapshots = anywhere(source, [SnapshotServiceStub(channel) for channel in channels])
        self.calls = calls
        self.saves: AsyncCalls | Unary = calls
        self.ledger = ledger
        self.gives_up = gives_up
        self.leaves = gives_up and len(channels) == 1
        self.stops_when_refused = stops_when_refused
        self.pause_s = pause_s
        self.passing = passing
        self.stopped = asyncio.Event()

    def unary(self) -> Writer:
        """Return a copy for an agent that saves without the client."""
        unary_writer = copy.copy(self)
        unary_writer.saves = Unary(self.raw)
        return unary_writer

    async def ask(
        self,
        source: random.Random,
        number: int,
        attempt: Callable[[], Awaitable[int]],
        made: Callable[[], list[Key]] = list,
        *,
        once: bool = False,
    ) -> bool:
        """Retry a request until it is acknowledged, or until the agent gives up.

        Args:
            source: Decides whether to retry after a failure.
            number: The request's number in the ledger.
            attempt: Makes the request; returns the durability reached.
            made: Returns the checkpoints that the last attempt created.
            once: Whether the request must not be retried.
        """
        await asyncio.sleep(self.pause_s)
        while True:
            try:
                self.ledger.acknowledge(number, await attempt(), made())
                return True
            except FAILURES as error:
                status, detail = status_of(error), str(error)
            if self.stops_when_refused:
                self.stopped.set()
            again = status in self.passing and not self.stopped.is_set()
            again = again and not once
            if self.gives_up and source.random() < 0.5:
                again = False
            self.ledger.refuse(number, status.name, detail, final=not again)
            if not again:
                return False

    def intend(
        self, ref: CheckpointRef, checkpoint: Checkpoint | None, writes: list[PendingWrite]
    ) -> int:
        """Record a save before it is sent."""
        state = None if checkpoint is None else checkpoint_fingerprint(checkpoint)
        prints = {slot(write): write_fingerprint(write) for write in writes}
        return self.ledger.intend(key_of(ref), state, prints)


def key_of(ref: CheckpointRef) -> Key:
    """Return the identity of a checkpoint as a tuple."""
    return ref.thread_id, ref.checkpoint_ns, ref.checkpoint_id


async def save(
    writer: Writer,
    line: Line,
    checkpoint: Checkpoint,
    writes: list[PendingWrite],
    durability: Durability = DURABILITY_JOURNALED,
    *,
    patient: bool = False,
) -> bool:
    """Save a checkpoint with writes in one call; unchanged values are inherited.

    Args:
        writer: The shared state.
        line: The namespace that the checkpoint continues.
        checkpoint: The checkpoint, every value inline.
        writes: The checkpoint's pending writes.
        durability: The durability to wait for.
        patient: Whether to wait for the answer, however long it takes.
    """
    request = SaveCheckpointRequest(
        checkpoint=line.as_sent(checkpoint), writes=writes, durability=durability
    )
    whole = SaveCheckpointRequest(checkpoint=checkpoint, writes=writes, durability=durability)

    async def attempt() -> int:
        try:
            answer = await writer.saves.save_checkpoint(request)
        except FAILURES as error:
            if status_of(error) is not grpc.StatusCode.FAILED_PRECONDITION:
                raise
            # The server cannot resolve some contents, so send them again.
            answer = await writer.saves.save_checkpoint(whole)
        return answer.durability

    number = writer.intend(checkpoint.ref, checkpoint, writes)
    return await writer.ask(
        line.source, number, attempt if patient else hasty(writer, line.source, attempt)
    )


async def save_writes(
    writer: Writer, line: Line, ref: CheckpointRef, writes: list[PendingWrite]
) -> bool:
    """Save pending writes."""
    request = SaveWritesRequest(ref=ref, writes=writes)

    async def attempt() -> int:
        answer = await writer.saves.save_writes(request)
        return answer.durability

    number = writer.intend(ref, None, writes)
    return await writer.ask(line.source, number, hasty(writer, line.source, attempt))


def hasty(
    writer: Writer, source: random.Random, attempt: Callable[[], Awaitable[int]]
) -> Callable[[], Awaitable[int]]:
    """Return an attempt that some callers of the client abandon before its answer.

    The client does not fail when a server is killed, so only abandoned calls give up there. An
    abandoned call must not take effect after a later call of the same agent; only a single server
    can promise that order.
    """
    if writer.saves is not writer.calls or not writer.leaves or source.random() < 0.8:
        return attempt

    async def left() -> int:
        try:
            return await asyncio.wait_for(attempt(), source.uniform(0.002, 0.3))
        except TimeoutError:
            raise TuskPointError("the agent left", status="CANCELLED") from None

    return left


async def check_load(writer: Writer, checkpoint: Checkpoint) -> None:
    """Load the checkpoint that was just acknowledged.

    Raises:
        RuntimeError: The loaded checkpoint differs from the saved one.
    """
    try:
        loaded = await writer.calls.get_checkpoint(checkpoint.ref)
    except TuskPointError as error:
        if status_of(error) is not grpc.StatusCode.UNAVAILABLE:
            raise
        return
    if loaded is None or checkpoint_fingerprint(loaded) != checkpoint_fingerprint(checkpoint):
        raise RuntimeError(f"{checkpoint.ref} was acknowledged and is not loaded as it was saved")
