"""The program that saves while servers are killed.

Several agents work at once, each in its own way, and record their requests and the
acknowledgements. Most agents share one Python client, whose streams resend unanswered frames after
a break; some call the server directly. SIGTERM ends the program after the requests under way.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import signal
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import grpc.aio

from tests.crash.writers.content import (
    Line,
    content_fingerprint,
    task_writes,
)
from tests.crash.writers.ledger import Key, Ledger
from tests.crash.writers.recorded_calls import Writer, check_load, key_of, save, save_writes
from tests.crash.writers.transports import (
    CHANNEL_OPTIONS,
    CHUNK_BYTES,
    FAILURES,
    CountingLane,
    client,
    status_of,
    stream_one,
)
from tuskpoint.v1.checkpoint_pb2 import (
    DURABILITY_CERTIFIED,
    DURABILITY_JOURNALED,
    Checkpoint,
    CheckpointRef,
)
from tuskpoint.v1.checkpoint_service_pb2 import SaveCheckpointRequest
from tuskpoint.v1.snapshot_service_pb2 import (
    RESTORE_MODE_NEW_THREADS,
    CreateSnapshotRequest,
    RestoreSnapshotRequest,
)
from tuskpoint.v1.thread_service_pb2 import (
    DeleteThreadRequest,
    ForkThreadRequest,
    RollbackThreadRequest,
)
from tuskpoint.v1.value_pb2 import PendingWrite

LARGE_BYTES = 300_000  # large enough for the client's second stream


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
        sizes = {"documents": LARGE_BYTES, "plan": 40} if source.random() < 0.05 else None
        checkpoint = line.checkpoint(ref.checkpoint_id, sizes)
        inline = task_writes(source, "inline", source.randint(0, 2))
        if not await save(writer, line, checkpoint, inline):
            continue
        line.acknowledged(checkpoint)
        if source.random() < 0.2:
            await check_load(writer, checkpoint)
        late = task_writes(source, "late", source.randint(1, 3), ["__interrupt__"])
        await save_writes(writer, line, ref, late)
        if source.random() < 0.3:
            await save_writes(writer, line, ref, task_writes(source, "late", 0, ["__interrupt__"]))
        if source.random() < 0.15:
            await save_again(writer, line, checkpoint)


async def save_again(writer: Writer, line: Line, checkpoint: Checkpoint) -> None:
    """Replace the state of the last saved checkpoint."""
    changed = Checkpoint()
    changed.CopyFrom(checkpoint)
    channel = line.source.choice(changed.state.channels)
    channel.value.data = line.source.randbytes(500)
    if channel.version.HasField("text"):
        channel.version.text += "again"
    else:
        channel.version.integer += 1
    # Nothing is inherited: the parent's versions differ from the versions in the replaced
    # checkpoint.
    fresh = Line(line.thread_id, line.checkpoint_ns, line.source)
    if await save(writer, fresh, changed, []):
        line.acknowledged(changed)


async def certified_agent(writer: Writer, line: Line) -> None:
    """Save checkpoints that are acknowledged once certified, and never change later."""
    while not writer.stopped.is_set():
        checkpoint = line.checkpoint(line.next_id())
        writes = task_writes(line.source, "inline", 2)
        if await save(writer, line, checkpoint, writes, DURABILITY_CERTIFIED, patient=True):
            line.acknowledged(checkpoint)


async def minting_agent(writer: Writer, line: Line) -> None:
    """Save checkpoints without an ID, each in a thread of its own, and each only once."""
    lives = 0
    while not writer.stopped.is_set():
        lives += 1
        thread = Line(f"{line.thread_id}-{lives}", "", line.source)
        checkpoint = thread.checkpoint("")
        request = SaveCheckpointRequest(checkpoint=checkpoint, durability=DURABILITY_JOURNALED)
        made: list[Key] = []

        async def attempt(request: SaveCheckpointRequest = request, made: list[Key] = made) -> int:
            answer = await writer.calls.save_checkpoint(request)
            made[:] = [key_of(answer.ref)]
            return answer.durability

        contents = [content_fingerprint(checkpoint)]
        number = writer.ledger.intend_making("minting", thread.thread_id, contents)
        await writer.ask(line.source, number, attempt, made.copy, once=True)


async def deleting_agent(writer: Writer, line: Line) -> None:
    """Save a few checkpoints, delete the thread, and continue with another thread."""
    name = line.thread_id
    lives = 0
    while not writer.stopped.is_set():
        lives += 1
        thread = Line(f"{name}-{lives}", "", line.source)
        for _ in range(line.source.randint(1, 4)):
            checkpoint = thread.checkpoint(thread.next_id())
            if await save(writer, thread, checkpoint, task_writes(line.source, "inline", 1)):
                thread.acknowledged(checkpoint)
        await delete(writer, line.source, thread.thread_id)


async def delete(writer: Writer, source: random.Random, thread_id: str) -> bool:
    """Delete a thread."""
    request = DeleteThreadRequest(thread_id=thread_id)

    async def attempt() -> int:
        answer = await writer.threads.DeleteThread(request, wait_for_ready=True)
        return answer.durability

    number = writer.ledger.intend((thread_id, "", ""), None, {}, deletes=True)
    return await writer.ask(source, number, attempt)


async def descending_agent(writer: Writer, line: Line) -> None:
    """Fork a thread, roll it back, take a snapshot and restore the snapshot."""
    name, source = line.thread_id, line.source
    lives = 0
    while not writer.stopped.is_set():
        lives += 1
        thread = Line(f"{name}-{lives}", "", source)
        saved: list[tuple[Checkpoint, list[PendingWrite]]] = []
        for _ in range(3):
            checkpoint, writes = thread.checkpoint(thread.next_id()), task_writes(source, "in", 1)
            if await save(writer, thread, checkpoint, writes, patient=True):
                thread.acknowledged(checkpoint)
                saved.append((checkpoint, writes))
        if len(saved) == 3:
            await fork(writer, source, *saved[-1])
            earlier, latest = saved[0][0], saved[-1][0]
            head = [content_fingerprint(earlier)]
            # The rollback may have happened or not.
            if not await roll_back(writer, source, earlier):
                head.append(content_fingerprint(latest))
            await capture(writer, source, thread.thread_id, head)


async def fork(
    writer: Writer,
    source: random.Random,
    checkpoint: Checkpoint,
    writes: list[PendingWrite],
    suffix: str = "-fork",
) -> None:
    """Fork a checkpoint into a thread named with a suffix; the ledger records a save of the
    copy."""
    copied = Checkpoint()
    copied.CopyFrom(checkpoint)
    copied.ref.thread_id += suffix
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
        await once_more(writer, attempt)


async def roll_back(writer: Writer, source: random.Random, earlier: Checkpoint) -> list[Key]:
    """Roll a thread back to a checkpoint; return its new head, or nothing if the agent gave up."""
    request = RollbackThreadRequest(ref=earlier.ref, request_id=request_id(source))
    contents = [content_fingerprint(earlier)]

    async def call() -> tuple[int, list[Key]]:
        answer = await writer.threads.RollbackThread(request, wait_for_ready=True)
        return answer.durability, [key_of(answer.ref)]

    return await make(writer, source, "rollback", origin_of(earlier.ref), contents, call)


async def capture(
    writer: Writer, source: random.Random, thread_id: str, contents: list[str]
) -> None:
    """Take a snapshot of a thread, and restore the snapshot as a new thread."""
    request = CreateSnapshotRequest(
        thread_ids=[thread_id], session_id=thread_id, request_id=request_id(source)
    )
    restoring = RestoreSnapshotRequest(mode=RESTORE_MODE_NEW_THREADS, request_id=request_id(source))

    async def take() -> tuple[int, list[Key]]:
        answer = await writer.snapshots.CreateSnapshot(request, wait_for_ready=True)
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
    """Create checkpoints from other checkpoints; return the new ones, or nothing if the agent gave
    up."""
    made: list[Key] = []

    async def attempt() -> int:
        durability, keys = await call()
        if made and made != keys:
            raise RuntimeError(f"a retry made {keys} besides {made}")
        made[:] = keys
        return durability

    number = writer.ledger.intend_making(how, origin, contents)
    if not await writer.ask(source, number, attempt, lambda: made):
        return []
    await once_more(writer, attempt)
    return made


async def once_more(writer: Writer, attempt: Callable[[], Awaitable[int]]) -> None:
    """Send an acknowledged request again, as if its answer had been lost."""
    try:
        await attempt()
    except FAILURES as error:
        if status_of(error) not in writer.passing:
            raise


def request_id(source: random.Random) -> str:
    """Return an ID for a request that may be sent again."""
    return source.randbytes(16).hex()


def origin_of(ref: CheckpointRef) -> str:
    """Return a reference in the spelling of lineage."""
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
            return await stream_one(writer.raw, checkpoint, writes)

        number = writer.intend(checkpoint.ref, checkpoint, writes)
        if await writer.ask(line.source, number, attempt):
            line.acknowledged(checkpoint)


@dataclass(frozen=True, slots=True)
class Role:
    """The behaviour of one agent."""

    agent: Callable[[Writer, Line], Coroutine[Any, Any, None]]
    checkpoint_ns: str = ""
    integers: bool = False
    unary: bool = False


ROLES = {
    "plain": Role(plain_agent),
    "nested": Role(plain_agent, checkpoint_ns="writer:1b2c"),
    "integers": Role(plain_agent, integers=True),
    "certified": Role(certified_agent),
    "minting": Role(minting_agent),
    "deleting": Role(deleting_agent, unary=True),
    "streaming": Role(streaming_agent),
    "descending": Role(descending_agent),
}


async def work(options: argparse.Namespace) -> None:
    """Run one agent of each role until SIGTERM."""
    ledger = Ledger(options.ledger)
    through = options.through or options.target
    with client(through, retries=not options.stops_when_refused) as calls:
        async with AsyncExitStack() as channels:
            dialled = [
                grpc.aio.insecure_channel(target, options=CHANNEL_OPTIONS)
                for target in options.target.split(",")
            ]
            writer = Writer(
                [await channels.enter_async_context(channel) for channel in dialled],
                calls,
                random.Random(f"{options.seed} servers"),
                ledger,
                gives_up=options.gives_up,
                stops_when_refused=options.stops_when_refused,
                pause_s=options.pause,
            )
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, writer.stopped.set)
            async with asyncio.TaskGroup() as agents:
                for name in options.roles.split(","):
                    role = ROLES[name]
                    thread_id = f"{options.seed}-{name}"
                    source = random.Random(thread_id)
                    line = Line(thread_id, role.checkpoint_ns, source, integers=role.integers)
                    role_writer = writer.unary() if role.unary else writer
                    agents.create_task(role.agent(role_writer, line))
        await calls.aclose()
    ledger.count(streams=CountingLane.streams, resent=CountingLane.resent)


def main(arguments: Sequence[str]) -> int:
    """Read the arguments and run the agents."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--target", required=True, help="the servers, separated by commas")
    parser.add_argument("--through", help="where the client finds the server, if elsewhere")
    parser.add_argument("--ledger", type=Path, required=True)
    parser.add_argument("--seed", required=True)
    parser.add_argument("--roles", default=",".join(ROLES), help="agents to run")
    parser.add_argument("--gives-up", action="store_true", help="leave half of what failed")
    parser.add_argument("--stops-when-refused", action="store_true", help="end at a failure")
    parser.add_argument("--pause", type=float, default=0.0, help="seconds before each request")
    options = parser.parse_args(arguments)
    asyncio.run(work(options))
    return 0
