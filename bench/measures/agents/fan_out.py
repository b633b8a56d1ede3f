"""Costs of early and late writes of a checkpoint, and of a fan-out."""

from __future__ import annotations

import asyncio
import operator
import statistics
import time
import uuid
from collections.abc import Awaitable, Iterator
from contextlib import AsyncExitStack, contextmanager
from typing import TYPE_CHECKING, Annotated, Any, TypedDict

import grpc.aio
from langchain_core.runnables import RunnableConfig
from langgraph.graph import END, START, StateGraph
from langgraph.types import Send

from bench.agents import Saver
from bench.report import Goal, Table, at_most, number, ratio
from bench.requests import chain, store
from bench.running.contenders import MEMORY, POSTGRES, SQLITE, TUSKPOINT, Contender, contenders
from bench.running.servers import Server, running_tuskpoint
from bench.running.shared_journal import sharing_servers
from bench.setting import Setting
from bench.settling import settle
from bench.usage.threads import counts_threads, spent
from tuskpoint.v1.checkpoint_pb2 import CheckpointRef
from tuskpoint.v1.checkpoint_service_pb2 import GetCheckpointRequest, SaveWritesRequest
from tuskpoint.v1.checkpoint_service_pb2_grpc import CheckpointServiceStub
from tuskpoint.v1.value_pb2 import PendingWrite, Value

if TYPE_CHECKING:
    from tuskpoint.v1.checkpoint_service_pb2_grpc import CheckpointServiceAsyncStub

TITLE = "Fan-out: a late write of a checkpoint, compared with write 100, and a step of many tasks"
_HEADER = ("what", "ms", "ratio")
_EARLY, _SPAN = 100, 160
_AFTERWARDS_S = 0.004
"""Seconds after an answer for the server's background work."""

_THREADS = ("MainThread", "journal-")
"""Prefixes of the names of the server's threads that work on calls."""

_JOURNALS = (SQLITE, POSTGRES)
_BOUND = 1.1
_LOADS, _LOAD_BOUND = 9, 1.25


class State(TypedDict):
    """The messages of the step's tasks."""

    said: Annotated[list[str], operator.add]


async def measure(setting: Setting) -> Table:
    """Write to a short and a long checkpoint in turn, then run a step of many tasks."""
    late, tasks, rounds = (2_000, 500, 1) if setting.quick else (10_000, 5_000, 3)
    rows, goals = [], list[Goal]()
    for journal in _JOURNALS[: 1 + bool(setting.postgres)] if counts_threads() else ():
        with _running(setting, journal) as server:
            early_ms, late_ms, few_ms, many_ms = await _late_writes(server, late)
        rows += [
            [f"{journal} journal, write {_EARLY}: processor time", number(early_ms), ""],
            [
                f"{journal} journal, write {late:,}: processor time",
                number(late_ms),
                ratio(late_ms, early_ms),
            ],
            [
                f"{journal} journal, load of {late // 10:,} writes: processor time",
                number(few_ms),
                "",
            ],
            [f"{journal} journal, load of {late:,} writes: processor time", number(many_ms), ""],
        ]
        named = f"{journal} journal: processor time of write {late:,} of a checkpoint"
        goals.append(at_most(f"{named}, compared with write {_EARLY}", late_ms / early_ms, _BOUND))
        named = f"{journal} journal: processor time of a load for each of {late:,} writes"
        goals.append(
            at_most(
                f"{named}, compared with {late // 10:,} writes", many_ms / few_ms / 10, _LOAD_BOUND
            )
        )
    step_seconds, load_seconds = await _fan_out(setting, tasks, rounds)
    for name, seconds in step_seconds.items():
        relation = "" if name == TUSKPOINT else ratio(step_seconds[TUSKPOINT], seconds)
        rows.append([f"step of {tasks:,} tasks, {name}", number(seconds * 1e3), relation])
    for name, seconds in load_seconds.items():
        relation = "" if name == TUSKPOINT else ratio(load_seconds[TUSKPOINT], seconds)
        rows.append([f"load of the {tasks:,} writes, {name}", number(seconds * 1e3), relation])
    goals += [
        at_most(
            f"step of {tasks:,} tasks, compared with {name}", step_seconds[TUSKPOINT] / seconds, 1.0
        )
        for name, seconds in step_seconds.items()
        if name not in (TUSKPOINT, MEMORY)
    ]
    notes = [
        f"Upper rows: medians of {_SPAN} SaveWrites around write {_EARLY} of one checkpoint and "
        f"of the last {_SPAN} of another checkpoint, in turn. Processor time includes the "
        "server's event loop and the journal's threads. Loads are GetCheckpoint, medians of "
        f"{_LOADS}. The ratio is the late write's time divided by the early write's time. Lower "
        f"rows: medians of {rounds} rounds; in each round the checkpointers run in turn. A round "
        f"is one LangGraph run with a step of {tasks:,} tasks (`Send`), durability async, and an "
        "`aget_tuple` of the checkpoint with the writes of these tasks. The ratio is TuskPoint's "
        "time divided by the other checkpointer's time."
    ]
    return Table(TITLE, _HEADER, rows, [*notes, *filter(None, [setting.left_out])], goals)


@contextmanager
def _running(setting: Setting, journal: str) -> Iterator[Server]:
    if journal == SQLITE:
        with running_tuskpoint(setting.place("fan-out"), timed=True) as server:
            yield server
    else:
        with sharing_servers(setting, 1, setting.place("blobs"), timed=True) as [server]:
            yield server


async def _late_writes(server: Server, late: int) -> tuple[float, float, float, float]:
    """Return the milliseconds of an early and a late write, and of loads of few and many writes."""
    async with grpc.aio.insecure_channel(server.target) as channel:
        stub = CheckpointServiceStub(channel)
        short, few, long = [await _checkpoint(stub, name) for name in ("short", "few", "long")]
        short_writes, long_writes = _writes(short, _EARLY + _SPAN // 2), _writes(long, late)
        await store(stub, short_writes[:-_SPAN])
        await store(stub, long_writes[:-_SPAN])
        await store(stub, _writes(few, late // 10))
        await settle(channel)
        early_ms, late_ms = [], []
        for early_write, late_write in zip(
            short_writes[-_SPAN:], long_writes[-_SPAN:], strict=True
        ):
            early_ms.append(await _processor_ms(server, stub.SaveWrites(early_write)))
            late_ms.append(await _processor_ms(server, stub.SaveWrites(late_write)))
        return (
            statistics.median(early_ms),
            statistics.median(late_ms),
            await _load_ms(server, stub, few),
            await _load_ms(server, stub, long),
        )


async def _checkpoint(stub: CheckpointServiceAsyncStub, name: str) -> CheckpointRef:
    """Save the checkpoint of a thread, and return it."""
    [save] = chain(name, 1)
    await stub.SaveCheckpoint(save)
    return save.checkpoint.ref


def _writes(ref: CheckpointRef, count: int) -> list[SaveWritesRequest]:
    """Return saves of one write each, as the tasks of a fan-out send them."""
    return [
        SaveWritesRequest(
            ref=ref,
            writes=[
                PendingWrite(
                    task_id=str(uuid.uuid4()),
                    task_path=f"~__pregel_push, {number:010}, False",
                    channel="said",
                    value=Value(type="msgpack", data=b"%d" % number),
                )
            ],
        )
        for number in range(count)
    ]


async def _processor_ms(server: Server, call: Awaitable[object]) -> float:
    """Await a call; return the milliseconds that the server worked on it."""
    before = server.thread_times()
    await call
    await asyncio.sleep(_AFTERWARDS_S)
    used = spent(before, server.thread_times())
    return sum(time for name, time in used.items() if name.startswith(_THREADS)) / 1e6


async def _load_ms(server: Server, stub: CheckpointServiceAsyncStub, ref: CheckpointRef) -> float:
    return statistics.median(
        [
            await _processor_ms(server, stub.GetCheckpoint(GetCheckpointRequest(ref=ref)))
            for _ in range(_LOADS)
        ]
    )


async def _fan_out(
    setting: Setting, tasks: int, rounds: int
) -> tuple[dict[str, float], dict[str, float]]:
    """Return the seconds of a step of many tasks with each checkpointer, and of a load after it."""
    async with contenders(setting) as peers, AsyncExitStack() as stack:
        field = [*peers, Contender(MEMORY, "")]
        savers = {
            contender.name: await stack.enter_async_context(contender.opened())
            for contender in field
        }
        steps: dict[str, list[float]] = {name: [] for name in savers}
        loads: dict[str, list[float]] = {name: [] for name in savers}
        for turn in range(-1, rounds):  # round -1 warms up
            for name, saver in savers.items():
                count = tasks if turn >= 0 else 50
                thread = RunnableConfig(configurable={"thread_id": f"{name}-{turn}"})
                began = time.perf_counter()
                said = await _graph(saver, count).ainvoke({"said": []}, thread, durability="async")
                ended = time.perf_counter()
                if len(said["said"]) != count:
                    raise RuntimeError(f"{len(said['said'])} of {count} tasks were heard")
                loaded_seconds = await _load(saver, thread, count)
                if turn >= 0:
                    steps[name].append(ended - began)
                    loads[name].append(loaded_seconds)
    return _medians(steps), _medians(loads)


def _medians(seconds: dict[str, list[float]]) -> dict[str, float]:
    return {name: statistics.median(values) for name, values in seconds.items()}


def _graph(saver: Saver, tasks: int) -> Any:
    """Return a graph that sends this number of tasks in one step."""

    async def say(task: dict[str, int]) -> dict[str, list[str]]:
        return {"said": [f"task {task['number']}"]}

    def send(_state: State) -> list[Send]:
        return [Send("say", {"number": number}) for number in range(tasks)]

    builder: Any = StateGraph(State)
    builder.add_node("begin", lambda _state: {})
    builder.add_node("say", say)
    builder.add_edge(START, "begin")
    builder.add_conditional_edges("begin", send, ["say"])
    builder.add_edge("say", END)
    return builder.compile(checkpointer=saver)


async def _load(saver: Saver, thread: RunnableConfig, count: int) -> float:
    """Return the seconds of a load of the checkpoint before the last, which has the writes."""
    last = await saver.aget_tuple(thread)
    if last is None or last.parent_config is None:
        raise RuntimeError(f"{type(saver).__name__} did not store the step")
    began = time.perf_counter()
    fanned = await saver.aget_tuple(last.parent_config)
    seconds = time.perf_counter() - began
    if fanned is None or len(fanned.pending_writes or ()) < count:
        raise RuntimeError(f"{type(saver).__name__} did not store the writes of the step")
    return seconds
