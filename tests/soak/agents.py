"""The program with many agents; each works step by step on threads of its own.

The agents share a few of the Python client's objects. One ledger has their requests and the
acknowledgements, in the format of `tests.crash.writers.agents`, and every unexpected answer.
SIGTERM ends the program after the requests under way.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import signal
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Sequence
from contextlib import AsyncExitStack, aclosing
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import grpc

from tests.crash.writers.agents import capture, delete, fork, request_id, roll_back
from tests.crash.writers.content import (
    LABEL,
    Line,
    checkpoint_fingerprint,
    content_fingerprint,
    slot,
    task_writes,
    write_fingerprint,
)
from tests.crash.writers.ledger import Ledger
from tests.crash.writers.recorded_calls import Writer, key_of, save, save_writes
from tests.crash.writers.transports import FAILURES, status_of, through_client
from tuskpoint._async.calls import AsyncCalls
from tuskpoint._messages.checkpoints.ids import new_checkpoint_id
from tuskpoint._transport.retry import RetryPolicy
from tuskpoint._transport.settings.options import Options
from tuskpoint.v1.checkpoint_pb2 import (
    DURABILITY_CERTIFIED,
    DURABILITY_JOURNALED,
    VIEW_ENTRY,
    Checkpoint,
)
from tuskpoint.v1.checkpoint_service_pb2 import (
    ListCheckpointsRequest,
    SetLabelRequest,
)
from tuskpoint.v1.handoff_service_pb2 import AdoptHandoffRequest, CreateHandoffRequest
from tuskpoint.v1.history_service_pb2 import EVENT_KIND_CHECKPOINT_SAVED, WatchThreadRequest
from tuskpoint.v1.search_service_pb2 import SearchCheckpointsRequest
from tuskpoint.v1.value_pb2 import PendingWrite

T = TypeVar("T")

CLIENTS = 4
PATIENT = RetryPolicy()
# Few attempts, so that refusals reach the agents, and their ledger.
HASTY = RetryPolicy(max_attempts=4)
GROWS_BYTES = 400
LARGE_BYTES = 100 * 1024
WATCH_SECONDS = 240.0
STEPS = (5, 25)  # least and most steps of a thread, before its agent starts another thread

PASSING = (
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
    grpc.StatusCode.DEADLINE_EXCEEDED,
)
"""Statuses that calls may end with while a fault lasts."""


class Agent:
    """An agent.

    Args:
        writer: The state that the agents of a client share.
        name: Prefix of the names of its threads.
        pause_s: Seconds between two steps, on average.
        counted: Counts of the actions of all agents.
    """

    def __init__(self, writer: Writer, name: str, pause_s: float, counted: Counter[str]) -> None:
        self._writer = writer
        self._calls = writer.calls
        self._name = name
        self._pause_s = pause_s
        self._source = random.Random(name)
        self._counted = counted

    async def live(self) -> None:
        """Work on one thread after another until the end."""
        await self._rest()
        lives = 0
        while not self._writer.stopped.is_set():
            lives += 1
            await self._live(Thread(Line(f"{self._name}-{lives}", "", self._source)))

    async def _live(self, thread: Thread) -> None:
        for _ in range(self._source.randint(*STEPS)):
            if not await self._step(thread):
                # The outcome of the last request is unknown, so the agent leaves the thread.
                return
            await self._rest()
            if self._writer.stopped.is_set():
                return
        # A thread with a snapshot, or with checkpoints created from others, is checked at the end.
        if not thread.is_kept and self._source.random() < 0.4:
            await delete(self._writer, self._source, thread.name)
            self._counted["deletions"] += 1

    async def _rest(self) -> None:
        try:
            async with asyncio.timeout(self._source.uniform(0, 2 * self._pause_s)):
                await self._writer.stopped.wait()
        except TimeoutError:
            pass

    async def _step(self, thread: Thread) -> bool:
        """Save a checkpoint and its writes, load them, and now and then do something else."""
        source, line = self._source, thread.line
        checkpoint = thread.next_checkpoint()
        early: list[PendingWrite] = []
        if source.random() < 0.2:
            early = task_writes(source, "early", 1)
            if not await save_writes(self._writer, line, checkpoint.ref, early):
                return False
        durability = DURABILITY_CERTIFIED if source.random() < 0.01 else DURABILITY_JOURNALED
        writes = task_writes(source, "inline", source.randint(0, 2))
        if not await save(self._writer, line, checkpoint, writes, durability, patient=True):
            return False
        thread.saved(checkpoint)
        writes = [*early, *writes]
        if source.random() < 0.5:
            late = task_writes(source, "late", 1)
            if not await save_writes(self._writer, line, checkpoint.ref, late):
                return False
            writes += late
        self._counted["steps"] += 1
        await self._compare(checkpoint, writes)
        return await self._do_more(thread, checkpoint, writes)

    async def _do_more(
        self, thread: Thread, checkpoint: Checkpoint, writes: list[PendingWrite]
    ) -> bool:
        source = self._source
        match source.choices(
            ("nothing", "list", "search", "watch", "label", "fork", "roll", "hand", "capture"),
            (60, 8, 6, 6, 6, 5, 4, 3, 1),
        )[0]:
            case "list":
                await self._list(thread)
            case "search":
                await self._search(thread)
            case "watch":
                await self._watch(thread)
            case "label":
                return await self._label(checkpoint)
            case "fork":
                await fork(self._writer, source, checkpoint, writes, f"-fork-{len(thread.ids)}")
            case "roll":
                return await self._roll_back(thread)
            case "hand":
                await self._hand_off(checkpoint, writes, f"-adopted-{len(thread.ids)}")
            case "capture" if not thread.is_kept:
                thread.is_kept = True
                await capture(self._writer, source, thread.name, [content_fingerprint(checkpoint)])
        return True

    async def _read(self, what: str, answer: Awaitable[T]) -> T | None:
        """Return an answer; if the call failed, return `None`, and record the failure unless a
        fault explains it."""
        try:
            result = await answer
        except FAILURES as error:
            status = status_of(error)
            if status in PASSING:
                self._counted[f"{what} failed"] += 1
            else:
                self._writer.ledger.fail(status.name, f"{what}: {error}")
            return None
        self._counted[what] += 1
        return result

    def _must(self, holds: bool, what: str) -> None:
        if not holds:
            self._writer.ledger.differ(what)

    async def _compare(self, checkpoint: Checkpoint, writes: list[PendingWrite]) -> None:
        """Load the acknowledged checkpoint, and compare it with the saved one."""
        answer = self._calls.get_checkpoint(checkpoint.ref)
        missing = Checkpoint()  # Stands for a missing answer.
        loaded = await self._read("loads", _or(answer, missing))
        if loaded is None:
            return
        shown = {slot(write): write_fingerprint(write) for write in loaded.writes}
        sent = {slot(write): write_fingerprint(write) for write in writes}
        same = checkpoint_fingerprint(loaded) == checkpoint_fingerprint(checkpoint)
        self._must(same and shown == sent, f"{key_of(checkpoint.ref)} is not loaded as saved")

    async def _list(self, thread: Thread) -> None:
        request = ListCheckpointsRequest(thread_id=thread.name, view=VIEW_ENTRY)
        checkpoint_ids = await self._read("lists", _ids(self._calls.list_checkpoints(request)))
        if checkpoint_ids is not None:
            self._must(
                checkpoint_ids == thread.ids[::-1],
                f"{thread.name} lists {checkpoint_ids}: {thread.ids}",
            )

    async def _search(self, thread: Thread) -> None:
        request = SearchCheckpointsRequest(text="counted step", thread_id=thread.name, limit=20)
        answer = await self._read("searches", self._calls.search_checkpoints(request))
        if answer is not None:
            own = {(thread.name, checkpoint_id) for checkpoint_id in thread.ids}
            hits = {(result.ref.thread_id, result.ref.checkpoint_id) for result in answer.results}
            self._must(hits <= own, f"a search in {thread.name} finds {hits - own}")

    async def _watch(self, thread: Thread) -> None:
        """Watch the thread from its first event until every saved checkpoint has come."""
        request = WatchThreadRequest(
            thread_id=thread.name, kinds=[EVENT_KIND_CHECKPOINT_SAVED], view=VIEW_ENTRY
        )
        seen: list[str] = []

        async def watch() -> None:
            async with aclosing(self._calls.watch_thread(request)) as events:
                async for event in events:
                    if event.kind == EVENT_KIND_CHECKPOINT_SAVED:
                        seen.append(event.checkpoint.ref.checkpoint_id)
                    if len(seen) >= len(thread.ids):
                        return

        try:
            async with asyncio.timeout(WATCH_SECONDS):
                await self._read("watches", watch())
        except TimeoutError:
            self._must(False, f"a watch of {thread.name} is silent after {seen}: {thread.ids}")
        known = thread.ids[: len(seen)]
        self._must(seen == known, f"a watch of {thread.name} delivers {seen}: {thread.ids}")

    async def _label(self, checkpoint: Checkpoint) -> bool:
        label = f"label-{self._source.randint(1, 99)}"
        request = SetLabelRequest(ref=checkpoint.ref, label=label)

        async def attempt() -> int:
            answer = await through_client(self._calls).SetLabel(request)
            return int(answer.durability)

        self._counted["labels"] += 1
        number = self._writer.ledger.intend(key_of(checkpoint.ref), None, {LABEL: label})
        return await self._writer.ask(self._source, number, attempt)

    async def _roll_back(self, thread: Thread) -> bool:
        """Roll the thread back to a checkpoint, at most once to each."""
        if not thread.checkpoints:
            return True
        earlier = thread.checkpoints.pop(self._source.randrange(len(thread.checkpoints)))
        thread.is_kept = True
        made = await roll_back(self._writer, self._source, earlier)
        if not made:
            return False
        self._counted["rollbacks"] += 1
        head = Checkpoint()
        head.CopyFrom(earlier)
        head.ref.checkpoint_id = made[0][2]
        thread.stands_at(head)
        return True

    async def _hand_off(
        self, checkpoint: Checkpoint, writes: list[PendingWrite], suffix: str
    ) -> None:
        """Hand a checkpoint off and adopt it; the ledger records a save of the copy."""
        offering = CreateHandoffRequest(ref=checkpoint.ref, request_id=request_id(self._source))
        stubs = through_client(self._calls)
        answer = await self._read("hand-offs", stubs.CreateHandoff(offering))
        if answer is None:
            return
        copied = Checkpoint()
        copied.CopyFrom(checkpoint)
        copied.ref.thread_id += suffix
        request = AdoptHandoffRequest(
            descriptor=answer.descriptor,
            new_thread_id=copied.ref.thread_id,
            request_id=request_id(self._source),
            durability=DURABILITY_JOURNALED,
        )

        async def attempt() -> int:
            durability = 0
            async with aclosing(self._calls.adopt_handoff(request)) as stages:
                async for stage in stages:
                    durability = stage.durability
            return durability

        self._counted["adoptions"] += 1
        number = self._writer.intend(copied.ref, copied, writes)
        await self._writer.ask(self._source, number, attempt)


class Thread:
    """A thread, with its checkpoints so far.

    Attributes:
        line: Creates the thread's checkpoints.
        ids: IDs of the thread's checkpoints, in order.
        checkpoints: The saved checkpoints that the thread was not rolled back to.
        is_kept: Whether the thread must not be deleted.
    """

    def __init__(self, line: Line) -> None:
        self.line = line
        self.ids: list[str] = []
        self.checkpoints: list[Checkpoint] = []
        self.is_kept = False

    @property
    def name(self) -> str:
        """ID of the thread."""
        return self.line.thread_id

    def next_checkpoint(self) -> Checkpoint:
        """Return the next checkpoint: a list that grows, small values, now and then a large one."""
        line, source = self.line, self.line.source
        line.steps += 1
        sizes = {"messages": GROWS_BYTES, source.choice(("plan", "question")): 700}
        if source.random() < 0.03:
            sizes["documents"] = LARGE_BYTES
        checkpoint = line.checkpoint(new_checkpoint_id(line.parent), sizes)
        checkpoint.summary = f"counted step {line.steps} of {line.thread_id}"
        before = line.contents.get("messages")
        messages = next(
            channel for channel in checkpoint.state.channels if channel.name == "messages"
        )
        if before is not None:
            messages.value.data = before.value.data + messages.value.data
        return checkpoint

    def saved(self, checkpoint: Checkpoint) -> None:
        """Continue from a saved checkpoint."""
        self.checkpoints.append(checkpoint)
        self.stands_at(checkpoint)

    def stands_at(self, checkpoint: Checkpoint) -> None:
        """Continue from the thread's new latest checkpoint."""
        self.ids.append(checkpoint.ref.checkpoint_id)
        self.line.acknowledged(checkpoint)


async def _or(answer: Awaitable[Checkpoint | None], missing: Checkpoint) -> Checkpoint:
    checkpoint = await answer
    return missing if checkpoint is None else checkpoint


async def _ids(checkpoints: AsyncIterator[Checkpoint]) -> list[str]:
    return [checkpoint.ref.checkpoint_id async for checkpoint in checkpoints]


async def work(options: argparse.Namespace) -> None:
    """Run the agents until SIGTERM."""
    ledger, counted, stopped = Ledger(options.ledger), Counter[str](), asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
    targets = options.target.split(",")
    async with AsyncExitStack() as opened:
        writers = []
        for number in range(CLIENTS):
            call_options = Options.of(targets[number % len(targets)], token=options.token)
            policy = PATIENT if number % 4 < 2 else HASTY
            kept_bytes = call_options.value_cache_bytes if number % 2 else 0
            calls = AsyncCalls(replace(call_options, retry=policy, value_cache_bytes=kept_bytes))
            opened.push_async_callback(calls.aclose)
            writer = Writer(
                [],
                calls,
                random.Random(number),
                ledger,
                gives_up=False,
                stops_when_refused=False,
                pause_s=0.0,
                passing=PASSING,
            )
            writer.threads = writer.snapshots = through_client(calls)
            writer.stopped = stopped
            writers.append(writer)
        async with asyncio.TaskGroup() as agents:
            for number in range(options.agents):
                name = f"{options.seed}-{number}"
                agent = Agent(writers[number % CLIENTS], name, options.pause, counted)
                agents.create_task(agent.live())
    ledger.count(**counted)


def main(arguments: Sequence[str]) -> int:
    """Read the arguments and run the agents."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--target", required=True, help="ways to the server, separated by commas")
    parser.add_argument("--ledger", type=Path, required=True)
    parser.add_argument("--seed", required=True)
    parser.add_argument("--token", required=True)
    parser.add_argument("--agents", type=int, required=True)
    parser.add_argument("--pause", type=float, required=True, help="seconds between two steps")
    asyncio.run(work(parser.parse_args(arguments)))
    return 0
