"""Processor time of a lone agent's calls, by thread."""

from __future__ import annotations

import inspect
import secrets
import statistics
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import grpc.aio

from bench.agents import Agent, Saver
from bench.report import Table, number
from bench.requests import chain
from bench.running.contenders import POSTGRES, TUSKPOINT, Contender, peers
from bench.running.servers import Server, running_echo, running_tuskpoint
from bench.setting import Setting
from bench.settling import settle
from bench.usage.database import DatabaseProcesses
from bench.usage.threads import Times, counts_threads, own_times, spent
from tuskpoint.v1.admin_service_pb2 import GetServerInfoRequest
from tuskpoint.v1.admin_service_pb2_grpc import AdminServiceStub
from tuskpoint.v1.checkpoint_service_pb2_grpc import CheckpointServiceStub

if TYPE_CHECKING:
    from tuskpoint.v1.admin_service_pb2_grpc import AdminServiceAsyncStub
    from tuskpoint.v1.checkpoint_service_pb2_grpc import CheckpointServiceAsyncStub

TITLE = "Processor time of a lone agent's calls, by thread"
_BATCH = 20
_CALLER = "caller"
_CLIENT = "client's threads"
_LOOP = "server's loop"
_WRITER = "writer"
_READERS = "readers"
_GRPC = "gRPC"
_LATER = "flush, index"
_DATABASE = "PostgreSQL"
_COLUMNS = (_CALLER, _CLIENT, _LOOP, _WRITER, _READERS, _GRPC, _LATER, _DATABASE)
_HEADER = ("call", "wall p50 µs", "wall p99 µs", *(f"{name} µs" for name in _COLUMNS), "sum µs")
# The server's threads by prefix; all others flush and index.
_SERVER_THREADS = {
    "bench": "",
    "MainThread": _LOOP,
    "journal-writer": _WRITER,
    "journal-reader": _READERS,
    "journal-past-batches": _READERS,
    "grpc": _GRPC,
    "event_engine": _GRPC,
    "lifeguard": _GRPC,
    "default-execut": _GRPC,
    "resolver-execut": _GRPC,
    "Thread-": _GRPC,  # grpc.aio's poller
}

Call = Callable[[], Awaitable[None] | None]


def server_column(thread: str) -> str:
    """Return the column of a thread of the server; empty for a thread of the benchmark."""
    for start, column in _SERVER_THREADS.items():
        if thread.startswith(start):
            return column
    return _LATER


@dataclass(slots=True)
class _Cost:
    """The cost of the calls of one kind."""

    wall: list[float] = field(default_factory=list)
    nanoseconds: dict[str, int] = field(default_factory=dict)

    def add(self, column: str, nanoseconds: int) -> None:
        if column:
            self.nanoseconds[column] = self.nanoseconds.get(column, 0) + nanoseconds

    def row(self, name: str) -> list[str]:
        calls = len(self.wall)
        wall = sorted(self.wall)
        micros = [self.nanoseconds.get(column, 0) / calls / 1e3 for column in _COLUMNS]
        cells = [number(value) if value else "" for value in micros]
        p50, p99 = statistics.median(wall), wall[int(len(wall) * 0.99)]
        return [name, number(p50 * 1e6), number(p99 * 1e6), *cells, number(sum(micros))]


@dataclass(slots=True)
class _Caller:
    """A target of calls in batches.

    Attributes:
        calls: The calls of a batch, by name.
        server: The server that reports the times of its threads, if there is one.
        database: The database whose processes are counted, if there is one.
    """

    name: str
    calls: dict[str, Sequence[Call]]
    server: Server | None = None
    database: DatabaseProcesses | None = None
    costs: dict[str, _Cost] = field(default_factory=dict)

    async def batch(self) -> None:
        """Make the calls of each kind one after another, and add their costs."""
        for kind, calls in self.calls.items():
            cost = self.costs.setdefault(kind, _Cost())
            before = self._times()
            for call in calls:
                began = time.perf_counter()
                answer = call()
                if inspect.isawaitable(answer):
                    await answer
                cost.wall.append(time.perf_counter() - began)
            _add(cost, before, self._times())

    def _times(self) -> tuple[Times, Times, int]:
        theirs = self.server.thread_times() if self.server is not None else {}
        database = self.database.nanoseconds() if self.database is not None else 0
        return own_times(), theirs, database

    async def finish(self) -> None:
        """Add the server's remaining work for the saves to the first kind of calls."""
        if self.server is None:
            return
        before = self.server.thread_times()
        async with grpc.aio.insecure_channel(self.server.target) as channel:
            await settle(channel)
        puts = next(iter(self.costs.values()))
        for thread, nanoseconds in spent(before, self.server.thread_times()).items():
            if server_column(thread) == _LATER:
                puts.add(_LATER, nanoseconds)


def _add(cost: _Cost, before: tuple[Times, Times, int], after: tuple[Times, Times, int]) -> None:
    for thread, nanoseconds in spent(before[0], after[0]).items():
        cost.add(_CALLER if thread == "MainThread" else _CLIENT, nanoseconds)
    for thread, nanoseconds in spent(before[1], after[1]).items():
        cost.add(server_column(thread), nanoseconds)
    cost.add(_DATABASE, after[2] - before[2])


def _steps(saver: Saver, name: str, *, blocking: bool) -> dict[str, Sequence[Call]]:
    agents = [Agent(saver, f"{name}-{index}") for index in range(_BATCH)]
    if blocking:
        return {
            "put": [agent.blocking_put for agent in agents],
            "put_writes": [agent.blocking_put_writes for agent in agents],
            "get_tuple": [agent.blocking_load for agent in agents],
        }
    return {
        "aput": [agent.put for agent in agents],
        "aput_writes": [agent.put_writes for agent in agents],
        "aget_tuple": [agent.load for agent in agents],
    }


async def measure(setting: Setting) -> Table:
    """Call an echo, the server and its peers in turn, in batches of calls of one kind."""
    if not counts_threads():
        reason = "Left out: this system does not show the processor time of threads."
        return Table(TITLE, _HEADER, [], [reason])
    batches = 10 if setting.quick else 50
    folder = setting.place("calls")
    async with AsyncExitStack() as stack:
        server = stack.enter_context(running_tuskpoint(folder, timed=True))
        echo = stack.enter_context(running_echo(folder, timed=True))
        callers = [await _echo(stack, echo), await _info(stack, server)]
        callers += await _savers(stack, server)
        callers += [_peer(stack, peer) for peer in await peers(setting, folder)]
        for caller in callers:  # warms up
            await caller.batch()
            caller.costs.clear()
        for _ in range(batches):
            for caller in callers:
                await caller.batch()
        for caller in callers[2:]:
            await caller.finish()
    rows = [
        cost.row(f"{kind}, {caller.name}")
        for caller in callers
        for kind, cost in caller.costs.items()
    ]
    notes = [
        f"{batches * _BATCH:,} calls of each kind, one at a time, in {batches} rounds; in each "
        f"round, each kind has a turn of {_BATCH} calls. Processor time is the time of the "
        "threads for a call, as the scheduler counts it. The caller is the client's event loop "
        "or thread that makes the calls. The other columns are the client's other threads, and "
        "the server's event loop, journal writer, journal readers and gRPC. The server's event "
        "loop also runs parts of flushes, and the readers also read for flushes. The time of "
        "other threads that flush and index counts with the saves, until everything is certified "
        "and indexed. The echo and GetServerInfo are called with grpc.aio, the savers as agents "
        "call them. A get_tuple loads a checkpoint that was just saved."
    ]
    return Table(TITLE, _HEADER, rows, [*notes, *filter(None, [setting.left_out])])


async def _echo(stack: AsyncExitStack, server: Server) -> _Caller:
    channel = await stack.enter_async_context(grpc.aio.insecure_channel(server.target))
    stub: CheckpointServiceAsyncStub = CheckpointServiceStub(channel)
    request = chain("echo", 2)[1]

    async def call() -> None:
        await stub.SaveCheckpoint(request)

    return _Caller("by grpc.aio", {"bare echo of 2 KiB": [call] * _BATCH}, server)


async def _info(stack: AsyncExitStack, server: Server) -> _Caller:
    channel = await stack.enter_async_context(grpc.aio.insecure_channel(server.target))
    stub: AdminServiceAsyncStub = AdminServiceStub(channel)

    async def call() -> None:
        await stub.GetServerInfo(GetServerInfoRequest())

    return _Caller("by grpc.aio", {"GetServerInfo": [call] * _BATCH}, server)


async def _savers(stack: AsyncExitStack, server: Server) -> list[_Caller]:
    ours = Contender(TUSKPOINT, server.target)
    saver = await stack.enter_async_context(ours.opened())
    blocking = stack.enter_context(ours.opened_blocking())
    return [
        _Caller(TUSKPOINT, _steps(saver, "calls-a", blocking=False), server),
        _Caller(TUSKPOINT, _steps(blocking, "calls-b", blocking=True), server),
    ]


def _peer(stack: AsyncExitStack, peer: Contender) -> _Caller:
    saver = stack.enter_context(peer.opened_blocking())
    database = DatabaseProcesses(peer.where) if peer.name == POSTGRES else None
    # The measures share one PostgreSQL.
    steps = _steps(saver, f"calls-{secrets.token_hex(4)}", blocking=True)
    return _Caller(peer.name, steps, database=database)
