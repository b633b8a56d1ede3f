"""Writers and watchers that record every answer, whatever happens to the server."""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import random
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any, TypeVar

import grpc
import grpc.aio
from google.protobuf.duration_pb2 import Duration

from tests.crash.watches.guarantees import Change, Record, Seen, Session
from tests.crash.writers.transports import CHANNEL_OPTIONS, status_of
from tuskpoint.v1 import checkpoint_pb2, value_pb2
from tuskpoint.v1 import history_service_pb2 as history
from tuskpoint.v1.checkpoint_service_pb2 import (
    SaveCheckpointRequest,
    SaveWritesRequest,
    SetLabelRequest,
)
from tuskpoint.v1.checkpoint_service_pb2_grpc import CheckpointServiceStub
from tuskpoint.v1.history_service_pb2_grpc import HistoryServiceStub
from tuskpoint.v1.thread_service_pb2 import (
    PRUNE_STRATEGY_KEEP_LATEST,
    DeleteThreadRequest,
    PruneThreadsRequest,
)
from tuskpoint.v1.thread_service_pb2_grpc import ThreadServiceStub

T = TypeVar("T")
LARGE_BYTES = 300 * 1024  # large enough to be sent in chunks
RETRY_SECONDS = 0.05
WRITERS = 4
DELETED_MEANWHILE = (grpc.StatusCode.FAILED_PRECONDITION, grpc.StatusCode.NOT_FOUND)


class Agents:
    """The state that all writers and watchers of a run share.

    Args:
        *targets: The servers, which share a journal.

    Attributes:
        record: The answers that the writers and watchers received.
        ends: Number of the last change of each thread, once writing has ended.
        stopping: Tells the writers to end.
        again: Statuses after which a writer retries a change.
    """

    def __init__(self, *targets: str) -> None:
        self.record = Record()
        self.ends: dict[str, int] = {}
        self.stopping = asyncio.Event()
        self.again = {grpc.StatusCode.UNAVAILABLE}
        self._targets = itertools.cycle(targets)
        self._noted = asyncio.Semaphore(0)

    def note(self, change: Change) -> None:
        """Record an acknowledged change."""
        self.record.changes.append(change)
        self._noted.release()

    async def acknowledged(self, count: int) -> None:
        """Wait until `count` more changes are acknowledged."""
        for _ in range(count):
            await self._noted.acquire()

    def channel(self) -> grpc.aio.Channel:
        """Dial the next server."""
        size = ("grpc.max_receive_message_length", 16 * 1024 * 1024)
        return grpc.aio.insecure_channel(next(self._targets), options=[*CHANNEL_OPTIONS, size])


class Writer:
    """Changes threads, one change at a time; retries each until it is acknowledged or refused."""

    def __init__(self, agents: Agents, name: str, seed: str) -> None:
        self._agents = agents
        self._name = name
        self._random = random.Random(f"{seed} {name}")
        self._count = 0

    async def write(self, threads: Sequence[str]) -> None:
        """Make changes until the run stops."""
        async with self._agents.channel() as channel:
            saves, whole = CheckpointServiceStub(channel), ThreadServiceStub(channel)
            checkpoint_ids = dict.fromkeys(threads, "")
            while not self._agents.stopping.is_set():
                thread = self._random.choice(threads)
                latest, chance = checkpoint_ids[thread], self._random.random()
                if not latest or chance < 0.4:
                    checkpoint_ids[thread] = await self.save(saves, thread)
                elif chance < 0.7:
                    await self._save_writes(saves, thread, latest)
                elif chance < 0.9:
                    await self._set_label(saves, thread, latest)
                else:
                    await self._delete(whole, thread, everything=chance >= 0.95)

    async def save(self, saves: Any, thread: str) -> str:
        """Save a new root checkpoint with writes, now and then a large one; return its ID."""
        self._count += 1
        checkpoint_id = f"{self._count:06}-{self._name}"
        tasks = [f"{self._name}-{self._count}-{n}" for n in range(self._random.randrange(3))]
        size = LARGE_BYTES if self._random.random() < 0.1 else 10
        content = value_pb2.Value(type="bytes", data=self._random.randbytes(size))
        request = SaveCheckpointRequest(
            checkpoint=checkpoint_pb2.Checkpoint(
                ref=_ref(thread, checkpoint_id),
                metadata_json=b"{}",
                state=checkpoint_pb2.CheckpointState(
                    channels=[
                        value_pb2.Channel(
                            name="x", version=value_pb2.Version(integer=1), value=content
                        )
                    ]
                ),
            ),
            writes=[_write(task) for task in tasks],
        )
        answer = await self._ask(lambda: saves.SaveCheckpoint(request, wait_for_ready=True))
        if answer is not None:
            self._note(thread, "CHECKPOINT_SAVED", answer, checkpoint_id, frozenset(tasks))
        return checkpoint_id

    async def _save_writes(self, saves: Any, thread: str, checkpoint_id: str) -> None:
        self._count += 1
        request = SaveWritesRequest(
            ref=_ref(thread, checkpoint_id), writes=[_write(f"{self._name}-{self._count}")]
        )
        answer = await self._ask(lambda: saves.SaveWrites(request, wait_for_ready=True))
        if answer is not None:
            self._note(thread, "WRITES_SAVED", answer, checkpoint_id)

    async def _set_label(self, saves: Any, thread: str, checkpoint_id: str) -> None:
        self._count += 1
        request = SetLabelRequest(
            ref=_ref(thread, checkpoint_id), label=f"{self._name}-{self._count}"
        )
        await self._ask(lambda: saves.SetLabel(request, wait_for_ready=True))

    async def _delete(self, threads: Any, thread: str, *, everything: bool) -> None:
        if everything:
            request = DeleteThreadRequest(thread_id=thread)
            await self._ask(lambda: threads.DeleteThread(request, wait_for_ready=True))
        else:
            prune = PruneThreadsRequest(thread_ids=[thread], strategy=PRUNE_STRATEGY_KEEP_LATEST)
            await self._ask(lambda: threads.PruneThreads(prune, wait_for_ready=True))

    def _note(
        self,
        thread: str,
        kind: str,
        answer: Any,
        checkpoint_id: str,
        writes: frozenset[str] = frozenset(),
    ) -> None:
        # Early writes get another number when their checkpoint comes.
        if not getattr(answer, "early", False):
            place = f"/{checkpoint_id}"
            self._agents.note(Change(self._name, thread, kind, answer.seq, place, writes))

    async def _ask(self, attempt: Callable[[], Awaitable[T]]) -> T | None:
        """Retry a request until it is answered; return `None` if it is refused."""
        while True:
            try:
                return await attempt()
            except grpc.aio.AioRpcError as error:
                if status_of(error) in DELETED_MEANWHILE:
                    return None
                if status_of(error) not in self._agents.again:
                    raise
            await asyncio.sleep(RETRY_SECONDS)


class Watcher:
    """Watches a thread until its last event, over as many sessions as necessary.

    Args:
        agents: The shared state.
        name: The watcher's name.
        seed: Decides when a session ends, and at which cursor the next one resumes.
        kinds: The kinds of events to watch; empty: all.
        jumps: Whether the watcher, while there are writers, resumes at any cursor that it received,
            not only at the last.
    """

    def __init__(
        self,
        agents: Agents,
        name: str,
        seed: str,
        *,
        kinds: frozenset[str] = frozenset(),
        jumps: bool = False,
    ) -> None:
        self._agents = agents
        self._name = name
        self._random = random.Random(f"{seed} {name}")
        self._kinds = kinds
        self._jumps = jumps
        self._cursors: list[tuple[int, bytes]] = []

    async def watch(self, thread: str, begin: tuple[int, bytes]) -> None:
        """Watch a thread from a number with its cursor to the end, each session on the next
        server."""
        self._cursors = [begin]
        through = 0
        while through < self._agents.ends.get(thread, through + 1):
            async with self._agents.channel() as channel:
                session = await self._session(HistoryServiceStub(channel), thread)
            through = max(through, session.through)

    async def _session(self, stub: Any, thread: str) -> Session:
        """Watch until the server ends the session or the watcher has enough events."""
        after, cursor = self._cursors[-1]
        # After the last write, jumps could need any number of sessions to the end of a long log.
        if self._jumps and thread not in self._agents.ends and self._random.random() < 0.7:
            after, cursor = self._random.choice(self._cursors)
        session = Session(self._name, thread, after, self._kinds)
        request = history.WatchThreadRequest(
            thread_id=thread,
            cursor=cursor,
            kinds=[f"EVENT_KIND_{kind}" for kind in self._kinds],
            progress_interval=Duration(seconds=1),
        )
        call = stub.WatchThread(request, wait_for_ready=True)
        patience = self._random.choice((1, 5, 20, 50))
        try:
            while len(session.seen) < patience and not self._done(session):
                seen = await _next(call)
                session.seen.append(seen)
                self._cursors.append((session.through, seen.cursor))
        except grpc.aio.AioRpcError as error:
            if status_of(error) is not grpc.StatusCode.UNAVAILABLE:
                raise
            await asyncio.sleep(RETRY_SECONDS)
        finally:
            call.cancel()
        self._agents.record.sessions.append(session)
        return session

    def _done(self, session: Session) -> bool:
        return session.through >= self._agents.ends.get(session.thread, session.through + 1)


async def run(
    agents: Agents, threads: Sequence[str], seed: str, meanwhile: Callable[[], Awaitable[None]]
) -> None:
    """Run writers and watchers during `meanwhile`, and then the watchers to the end."""
    begun = {thread: await _begin(agents, thread) for thread in threads}
    async with asyncio.TaskGroup() as watching:
        for thread in threads:
            for watcher in _watchers(agents, f"{seed} {thread}"):
                watching.create_task(watcher.watch(thread, begun[thread]))
        async with asyncio.TaskGroup() as writing:
            for number in range(WRITERS):
                writing.create_task(Writer(agents, f"w{number}", seed).write(threads))
            await meanwhile()
            agents.stopping.set()
        async with agents.channel() as channel:
            for thread in threads:
                await Writer(agents, "last", seed).save(CheckpointServiceStub(channel), thread)
                agents.ends[thread] = agents.record.changes[-1].seq


def _watchers(agents: Agents, seed: str) -> Iterator[Watcher]:
    yield Watcher(agents, "steady", seed)
    yield Watcher(agents, "restless", seed, jumps=True)
    for kinds in (("LABEL_SET", "THREAD_DELETED"), ("WRITES_SAVED",), ("CERTIFIED",)):
        yield Watcher(agents, "+".join(kinds), seed, kinds=frozenset(kinds))


async def _begin(agents: Agents, thread: str) -> tuple[int, bytes]:
    """Create a thread; return the number of its first event, with its cursor."""
    async with agents.channel() as channel:
        await Writer(agents, "first", "").save(CheckpointServiceStub(channel), thread)
        call = HistoryServiceStub(channel).WatchThread(history.WatchThreadRequest(thread_id=thread))
        first = await _next(call)
        call.cancel()
        return first.seq, first.cursor


async def _next(call: Any) -> Seen:
    """Receive the next event with all its chunks."""
    frame = await call.read()
    assert frame is not grpc.aio.EOF, "a watch has no end"
    event = frame.event
    checkpoint = event.checkpoint
    holders = [*checkpoint.state.channels, *checkpoint.writes]
    for index, holder in enumerate(holder for holder in holders if holder.HasField("large")):
        data = bytearray()
        while len(data) < holder.large.size_bytes:
            chunk = (await call.read()).chunk
            assert (chunk.value_index, chunk.offset) == (index, len(data))
            data += chunk.data
        holder.value.CopyFrom(value_pb2.Value(type=holder.large.type, data=bytes(data)))
    kind = history.EventKind.Name(event.kind).removeprefix("EVENT_KIND_")
    named = event.HasField("checkpoint")
    return Seen(
        kind=kind,
        seq=event.seq,
        incarnation=event.incarnation,
        cursor=event.cursor,
        checkpoint=f"{checkpoint.ref.checkpoint_ns}/{checkpoint.ref.checkpoint_id}"
        if named
        else "",
        deleted=event.deleted_checkpoints,
        writes=(
            frozenset(write.task_id for write in checkpoint.writes)
            if checkpoint.HasField("state")
            else None
        ),
        intact=all(_intact(holder) for holder in holders),
    )


def _intact(holder: Any) -> bool:
    content = holder.value.type.encode() + b"\0" + holder.value.data
    return bool(hashlib.sha256(content).digest() == holder.digest)


def _ref(thread: str, checkpoint_id: str) -> checkpoint_pb2.CheckpointRef:
    return checkpoint_pb2.CheckpointRef(thread_id=thread, checkpoint_id=checkpoint_id)


def _write(task: str) -> value_pb2.PendingWrite:
    content = value_pb2.Value(type="bytes", data=task.encode())
    return value_pb2.PendingWrite(task_id=task, channel="x", value=content)
