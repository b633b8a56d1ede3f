"""The process that saves while servers are killed: `python -m tests.crash.writer`.

Several agents work at once over one channel, each in its own way, and record what they asked
for and what was acknowledged. SIGTERM ends it after the requests under way.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import grpc.aio

from tests.crash.content import (
    Line,
    checkpoint_fingerprint,
    content_fingerprint,
    slot,
    task_writes,
    write_fingerprint,
)
from tests.crash.ledger import Key, Ledger
from tuskpoint.v1.checkpoint_pb2 import (
    DURABILITY_CERTIFIED,
    DURABILITY_JOURNALED,
    Checkpoint,
    CheckpointRef,
    Durability,
)
from tuskpoint.v1.checkpoint_service_pb2 import (
    SaveCheckpointRequest,
    SaveCheckpointsRequest,
    SaveWritesRequest,
)
from tuskpoint.v1.checkpoint_service_pb2_grpc import CheckpointServiceStub
from tuskpoint.v1.errors_pb2 import CallError
from tuskpoint.v1.snapshot_service_pb2 import (
    RESTORE_MODE_NEW_THREADS,
    CreateSnapshotRequest,
    RestoreSnapshotRequest,
)
from tuskpoint.v1.snapshot_service_pb2_grpc import SnapshotServiceStub
from tuskpoint.v1.thread_service_pb2 import (
    DeleteThreadRequest,
    ForkThreadRequest,
    RollbackThreadRequest,
)
from tuskpoint.v1.thread_service_pb2_grpc import ThreadServiceStub
from tuskpoint.v1.value_pb2 import LargeValue, PendingWrite, ValueChunk

CHUNK_BYTES = 64 * 1024
STATUSES = {status.value[0]: status for status in grpc.StatusCode}
LOST_CONNECTION = {
    (grpc.StatusCode.CANCELLED, "CANCELLED"),
    (grpc.StatusCode.INTERNAL, "Internal error from Core"),
}
# The server comes back within a second; the default back-off would outlast the test.
CHANNEL_OPTIONS = [
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.min_reconnect_backoff_ms", 50),
    ("grpc.max_reconnect_backoff_ms", 200),
    ("grpc.enable_retries", 0),
]


class RefusedError(Exception):
    """A save was refused inside a stream that goes on."""

    def __init__(self, error: CallError) -> None:
        super().__init__(error.message)
        self.status = STATUSES[error.code]


class Writer:
    """What the agents share."""

    def __init__(self, channel: grpc.aio.Channel, ledger: Ledger, *, gives_up: bool) -> None:
        self.saves = CheckpointServiceStub(channel)
        self.threads = ThreadServiceStub(channel)
        self.snapshots = SnapshotServiceStub(channel)
        self.ledger = ledger
        self.gives_up = gives_up
        self.stops_when_refused = False
        self.stopped = asyncio.Event()

    async def ask(
        self,
        source: random.Random,
        number: int,
        attempt: Callable[[], Awaitable[int]],
        made: Callable[[], list[Key]] = list,
    ) -> bool:
        """Make a request until it is acknowledged, or until the agent gives up.

        Args:
            source: Decides whether to try again after a failure.
            number: The request's number in the ledger.
            attempt: Makes the request; returns the durability reached.
            made: Tells what the last attempt made of checkpoints.
        """
        while True:
            try:
                self.ledger.acknowledge(number, await attempt(), made())
                return True
            except grpc.aio.AioRpcError as error:
                status, detail = meaning(error), error.details() or ""
            except RefusedError as error:
                status, detail = error.status, str(error)
            if self.stops_when_refused:
                self.stopped.set()
            again = status is grpc.StatusCode.UNAVAILABLE and not self.stopped.is_set()
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


def meaning(error: grpc.aio.AioRpcError) -> grpc.StatusCode:
    """Return the status of a failed call, `UNAVAILABLE` for what gRPC puts for a lost connection.

    A server that stops cancels calls which arrive after its last word, and grpc.aio reports
    "Internal error from Core" if a stream ends while the client is writing to it.
    """
    if (error.code(), error.details()) in LOST_CONNECTION:
        return grpc.StatusCode.UNAVAILABLE
    return error.code()


def key_of(ref: CheckpointRef) -> Key:
    """Return the identity of a checkpoint as a tuple."""
    return ref.thread_id, ref.checkpoint_ns, ref.checkpoint_id


async def save(
    writer: Writer,
    line: Line,
    checkpoint: Checkpoint,
    writes: list[PendingWrite],
    durability: Durability = DURABILITY_JOURNALED,
) -> bool:
    """Save a checkpoint with writes in one call; values that did not change are inherited."""
    request = SaveCheckpointRequest(
        checkpoint=line.as_sent(checkpoint), writes=writes, durability=durability
    )
    whole = SaveCheckpointRequest(checkpoint=checkpoint, writes=writes, durability=durability)

    async def attempt() -> int:
        try:
            answer = await writer.saves.SaveCheckpoint(request, wait_for_ready=True)
        except grpc.aio.AioRpcError as error:
            if error.code() is not grpc.StatusCode.FAILED_PRECONDITION:
                raise
            # Contents that the server cannot resolve are sent again.
            answer = await writer.saves.SaveCheckpoint(whole, wait_for_ready=True)
        return answer.durability

    number = writer.intend(checkpoint.ref, checkpoint, writes)
    return await writer.ask(line.source, number, attempt)


async def save_writes(
    writer: Writer, line: Line, ref: CheckpointRef, writes: list[PendingWrite]
) -> bool:
    """Save pending writes."""
    request = SaveWritesRequest(ref=ref, writes=writes)

    async def attempt() -> int:
        answer = await writer.saves.SaveWrites(request, wait_for_ready=True)
        return answer.durability

    return await writer.ask(line.source, writer.intend(ref, None, writes), attempt)


async def plain_agent(writer: Writer, line: Line) -> None:
    """Save step by step as LangGraph does, with late, early and repeated saves."""
    source = line.source
    while not writer.stopped.is_set():
        ref = CheckpointRef(
            thread_id=line.thread_id,
            checkpoint_ns=line.checkpoint_ns,
            checkpoint_id=line.next_id(),
        )
        if source.random() < 0.3:
            await save_writes(writer, line, ref, task_writes(source, "early", 2))
        checkpoint = line.checkpoint(ref.checkpoint_id)
        inline = task_writes(source, "inline", source.randint(0, 2))
        if not await save(writer, line, checkpoint, inline):
            continue
        line.acknowledged(checkpoint)
        late = task_writes(source, "late", source.randint(1, 3), ["__interrupt__"])
        await save_writes(writer, line, ref, late)
        if source.random() < 0.3:
            await save_writes(writer, line, ref, task_writes(source, "late", 0, ["__interrupt__"]))
        if source.random() < 0.15:
            await save_again(writer, line, checkpoint)


async def save_again(writer: Writer, line: Line, checkpoint: Checkpoint) -> None:
    """Replace the state of the checkpoint just saved."""
    changed = Checkpoint()
    changed.CopyFrom(checkpoint)
    channel = line.source.choice(changed.state.channels)
    channel.value.data = line.source.randbytes(500)
    if channel.version.HasField("text"):
        channel.version.text += "again"
    else:
        channel.version.integer += 1
    # Nothing is inherited: the parent's versions are not those of the checkpoint replaced.
    fresh = Line(line.thread_id, line.checkpoint_ns, line.source)
    if await save(writer, fresh, changed, []):
        line.acknowledged(changed)


async def certified_agent(writer: Writer, line: Line) -> None:
    """Save checkpoints that are acknowledged when they are certified, and never change later."""
    while not writer.stopped.is_set():
        checkpoint = line.checkpoint(line.next_id())
        writes = task_writes(line.source, "inline", 2)
        if await save(writer, line, checkpoint, writes, DURABILITY_CERTIFIED):
            line.acknowledged(checkpoint)


async def deleting_agent(writer: Writer, line: Line) -> None:
    """Save a few checkpoints, delete the thread, begin another."""
    name = line.thread_id
    lives = 0
    while not writer.stopped.is_set():
        lives += 1
        thread = Line(f"{name}-{lives}", "", line.source)
        for _ in range(line.source.randint(1, 4)):
            checkpoint = thread.checkpoint(thread.next_id())
            if await save(writer, thread, checkpoint, task_writes(line.source, "inline", 1)):
                thread.acknowledged(checkpoint)
        request = DeleteThreadRequest(thread_id=thread.thread_id)

        async def attempt(request: DeleteThreadRequest = request) -> int:
            answer = await writer.threads.DeleteThread(request, wait_for_ready=True)
            return answer.durability

        number = writer.ledger.intend((thread.thread_id, "", ""), None, {}, deletes=True)
        await writer.ask(line.source, number, attempt)


async def descending_agent(writer: Writer, line: Line) -> None:
    """Fork a thread, roll it back, capture it and restore what was captured."""
    name, source = line.thread_id, line.source
    lives = 0
    while not writer.stopped.is_set():
        lives += 1
        thread = Line(f"{name}-{lives}", "", source)
        saved: list[tuple[Checkpoint, list[PendingWrite]]] = []
        for _ in range(3):
            checkpoint, writes = thread.checkpoint(thread.next_id()), task_writes(source, "in", 1)
            if await save(writer, thread, checkpoint, writes):
                thread.acknowledged(checkpoint)
                saved.append((checkpoint, writes))
        if len(saved) == 3:
            await fork(writer, source, *saved[-1])
            head = await roll_back(writer, source, saved[0][0], saved[-1][0])
            await capture(writer, source, thread.thread_id, head)


async def fork(
    writer: Writer, source: random.Random, checkpoint: Checkpoint, writes: list[PendingWrite]
) -> None:
    """Fork a checkpoint; to the ledger that is a save of the copy."""
    copied = Checkpoint()
    copied.CopyFrom(checkpoint)
    copied.ref.thread_id += "-fork"
    request = ForkThreadRequest(
        ref=checkpoint.ref, new_thread_id=copied.ref.thread_id, request_id=request_id(source)
    )

    async def attempt() -> int:
        answer = await writer.threads.ForkThread(request, wait_for_ready=True)
        if answer.ref != copied.ref:
            raise RuntimeError(f"{answer.ref} was made instead of {copied.ref}")
        return answer.durability

    number = writer.intend(copied.ref, copied, writes)
    if await writer.ask(source, number, attempt):
        await once_more(attempt)


async def roll_back(
    writer: Writer, source: random.Random, earlier: Checkpoint, latest: Checkpoint
) -> list[str]:
    """Roll a thread back to its first checkpoint; return what it may stand at then."""
    request = RollbackThreadRequest(ref=earlier.ref, request_id=request_id(source))
    contents = [content_fingerprint(earlier)]

    async def call() -> tuple[int, list[Key]]:
        answer = await writer.threads.RollbackThread(request, wait_for_ready=True)
        return answer.durability, [key_of(answer.ref)]

    rolled = await make(writer, source, "rollback", origin_of(earlier.ref), contents, call)
    return contents if rolled else [*contents, content_fingerprint(latest)]


async def capture(
    writer: Writer, source: random.Random, thread_id: str, contents: list[str]
) -> None:
    """Take a snapshot of a thread, and restore it as a new thread."""
    asked = CreateSnapshotRequest(
        thread_ids=[thread_id], session_id=thread_id, request_id=request_id(source)
    )
    restoring = RestoreSnapshotRequest(mode=RESTORE_MODE_NEW_THREADS, request_id=request_id(source))

    async def take() -> tuple[int, list[Key]]:
        answer = await writer.snapshots.CreateSnapshot(asked, wait_for_ready=True)
        restoring.snapshot_id = answer.snapshot.snapshot_id
        return answer.durability, [key_of(member) for member in answer.snapshot.members]

    async def restore() -> tuple[int, list[Key]]:
        answer = await writer.snapshots.RestoreSnapshot(restoring, wait_for_ready=True)
        return answer.durability, [key_of(restored) for restored in answer.restored]

    for thread, _, checkpoint in await make(writer, source, "snapshot", thread_id, contents, take):
        origin = f"{thread}:{checkpoint}"
        await make(writer, source, "restoration", origin, contents, restore)


async def make(
    writer: Writer,
    source: random.Random,
    how: str,
    origin: str,
    contents: list[str],
    call: Callable[[], Awaitable[tuple[int, list[Key]]]],
) -> list[Key]:
    """Make something of checkpoints; return what was made, nothing if the agent gave up."""
    made: list[Key] = []

    async def attempt() -> int:
        durability, found = await call()
        if made and made != found:
            raise RuntimeError(f"a retry made {found} besides {made}")
        made[:] = found
        return durability

    number = writer.ledger.intend_making(how, origin, contents)
    if not await writer.ask(source, number, attempt, lambda: made):
        return []
    await once_more(attempt)
    return made


async def once_more(attempt: Callable[[], Awaitable[int]]) -> None:
    """Send an acknowledged request again, as if its answer had been lost."""
    try:
        await attempt()
    except grpc.aio.AioRpcError as error:
        if meaning(error) is not grpc.StatusCode.UNAVAILABLE:
            raise


def request_id(source: random.Random) -> str:
    """Return an identity for a request that may be sent again."""
    return source.randbytes(16).hex()


def origin_of(ref: CheckpointRef) -> str:
    """Return a reference as lineage spells it."""
    return f"{ref.thread_id}:{ref.checkpoint_id}"


async def streaming_agent(writer: Writer, line: Line) -> None:
    """Save large values in chunks on streams."""
    while not writer.stopped.is_set():
        large = line.source.randint(2, 6) * CHUNK_BYTES + line.source.randint(0, 99)
        checkpoint = line.checkpoint(line.next_id(), {"documents": large, "plan": 40})
        writes = task_writes(line.source, "inline", 2)

        async def attempt(
            checkpoint: Checkpoint = checkpoint, writes: list[PendingWrite] = writes
        ) -> int:
            return await stream_one(writer, checkpoint, writes)

        number = writer.intend(checkpoint.ref, checkpoint, writes)
        if await writer.ask(line.source, number, attempt):
            line.acknowledged(checkpoint)


async def stream_one(writer: Writer, checkpoint: Checkpoint, writes: list[PendingWrite]) -> int:
    """Save one checkpoint on a stream of its own; return the durability reached."""
    call = writer.saves.SaveCheckpoints(frames(checkpoint, writes), wait_for_ready=True)
    reached = 0
    try:
        async for answer in call:
            if answer.HasField("error"):
                raise RefusedError(answer.error)
            reached = answer.checkpoint.durability
    except grpc.aio.AioRpcError:
        # What ends the stream after the answer does not take the answer back.
        if not reached:
            raise
    if not reached:
        raise RuntimeError("the stream ended without an answer")
    return reached


async def frames(
    checkpoint: Checkpoint, writes: list[PendingWrite]
) -> AsyncIterator[SaveCheckpointsRequest]:
    """Yield the frames of a save whose values above one chunk come in chunks."""
    sent = Checkpoint()
    sent.CopyFrom(checkpoint)
    large = []
    for channel in sent.state.channels:
        if len(channel.value.data) > CHUNK_BYTES:
            data = channel.value.data
            large.append(data)
            announced = LargeValue(type=channel.value.type, size_bytes=len(data))
            channel.large.CopyFrom(announced)
    opening = SaveCheckpointRequest(checkpoint=sent, writes=writes)
    yield SaveCheckpointsRequest(save_id=1, checkpoint=opening)
    for index, data in enumerate(large):
        for offset in range(0, len(data), CHUNK_BYTES):
            piece = data[offset : offset + CHUNK_BYTES]
            chunk = ValueChunk(value_index=index, offset=offset, data=piece)
            yield SaveCheckpointsRequest(save_id=1, chunk=chunk)


@dataclass(frozen=True, slots=True)
class Role:
    """How one agent works."""

    agent: Callable[[Writer, Line], Coroutine[Any, Any, None]]
    checkpoint_ns: str = ""
    integers: bool = False


ROLES = {
    "plain": Role(plain_agent),
    "nested": Role(plain_agent, checkpoint_ns="writer:1b2c"),
    "integers": Role(plain_agent, integers=True),
    "certified": Role(certified_agent),
    "deleting": Role(deleting_agent),
    "streaming": Role(streaming_agent),
    "descending": Role(descending_agent),
}


async def work(options: argparse.Namespace) -> None:
    """Run one agent of each role until SIGTERM."""
    ledger = Ledger(options.ledger)
    async with grpc.aio.insecure_channel(options.target, options=CHANNEL_OPTIONS) as channel:
        writer = Writer(channel, ledger, gives_up=options.gives_up)
        writer.stops_when_refused = options.stops_when_refused
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, writer.stopped.set)
        async with asyncio.TaskGroup() as agents:
            for name in options.roles.split(","):
                role = ROLES[name]
                thread_id = f"{options.seed}-{name}"
                source = random.Random(thread_id)
                line = Line(thread_id, role.checkpoint_ns, source, integers=role.integers)
                agents.create_task(role.agent(writer, line))


def main() -> int:
    """Read the arguments and work."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--target", required=True)
    parser.add_argument("--ledger", type=Path, required=True)
    parser.add_argument("--seed", required=True)
    parser.add_argument("--roles", default=",".join(ROLES), help="agents to run")
    parser.add_argument("--gives-up", action="store_true", help="leave half of what failed")
    parser.add_argument("--stops-when-refused", action="store_true", help="end at a failure")
    options = parser.parse_args()
    asyncio.run(work(options))
    return 0


if __name__ == "__main__":
    sys.exit(main())
