"""The server's processor time per agent step and per load, against a bare gRPC echo."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import grpc.aio

from bench.report import Goal, Table, at_most, number, ratio
from bench.requests import chain, writes_of
from bench.running.servers import Server, counts_cpu, running_echo, running_tuskpoint
from bench.setting import Setting
from bench.settling import settle
from tuskpoint.v1.checkpoint_service_pb2 import GetCheckpointRequest, SaveCheckpointRequest
from tuskpoint.v1.checkpoint_service_pb2_grpc import CheckpointServiceStub

if TYPE_CHECKING:
    from tuskpoint.v1.checkpoint_service_pb2_grpc import CheckpointServiceAsyncStub

TITLE = "Server's processor time, compared with a bare echo of the same bytes"
_AGENTS = 32
_HEADER = ("what", "µs", "compared with the echo")


async def measure(setting: Setting) -> Table:
    """Send both servers the same steps, in turn, and then the same loads."""
    if not counts_cpu():
        reason = "Left out: this system does not show the processor time of other processes."
        return Table(TITLE, _HEADER, [], [reason])
    rounds, steps = (2, 10) if setting.quick else (3, 40)
    folder = setting.place("cost")
    with running_tuskpoint(folder) as tuskpoint, running_echo(folder) as echo:
        servers = (tuskpoint, echo)
        stepped = dict.fromkeys(servers, 0.0)
        loaded = dict.fromkeys(servers, 0.0)
        for turn in range(rounds + 1):
            for server in servers:
                spent = await _spent(server, f"turn-{turn}", steps, settles=server is tuskpoint)
                if turn:  # the first turn warms up
                    stepped[server] += spent[0]
                    loaded[server] += spent[1]
    calls = rounds * steps * _AGENTS
    rows, goals = [], list[Goal]()
    for name, spent_on, bound in (("a step", stepped, 4.0), ("a load", loaded, 2.0)):
        ours, floor = (spent_on[server] / calls * 1e6 for server in servers)
        rows.append([f"{name}: bare echo", number(floor), ""])
        rows.append([f"{name}: TuskPoint", number(ours), ratio(ours, floor)])
        what = f"server's processor time of {name}, compared with a bare echo"
        goals.append(at_most(what, ours / floor, bound))
    notes = [
        f"{calls:,} steps of {_AGENTS} concurrent agents on each server, in {rounds} alternating "
        "rounds. A step is a SaveCheckpoint and a SaveWrites; TuskPoint's time includes the "
        "certification and indexing of all steps. A load is a GetCheckpoint of a latest "
        "checkpoint. The echo parses each request and answers it, a load with as many bytes, on "
        "the same runtime and event loop, and stores nothing."
    ]
    return Table(TITLE, _HEADER, rows, notes, goals)


async def _spent(server: Server, name: str, steps: int, *, settles: bool) -> tuple[float, float]:
    """Return the server's processor seconds for steps, and for the same number of loads."""
    threads = [chain(f"{name}-{agent}", steps) for agent in range(_AGENTS)]
    async with grpc.aio.insecure_channel(server.target) as channel:
        stub = CheckpointServiceStub(channel)
        before = server.cpu_seconds()
        await asyncio.gather(*(_step(stub, requests) for requests in threads))
        if settles:
            await settle(channel)
        between = server.cpu_seconds()
        await asyncio.gather(*(_load(stub, requests) for requests in threads))
        return between - before, server.cpu_seconds() - between


async def _step(stub: CheckpointServiceAsyncStub, requests: list[SaveCheckpointRequest]) -> None:
    for request in requests:
        await stub.SaveCheckpoint(request)
        await stub.SaveWrites(writes_of(request))


async def _load(stub: CheckpointServiceAsyncStub, requests: list[SaveCheckpointRequest]) -> None:
    latest = GetCheckpointRequest(ref=requests[-1].checkpoint.ref)
    for _ in requests:
        await stub.GetCheckpoint(latest)
