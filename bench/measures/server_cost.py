"""The server's processor time per save, against a bare gRPC echo of the same message."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import grpc.aio

from bench.report import Table, number, ratio
from bench.requests import chain
from bench.servers import Server, counts_cpu, running_echo, running_tuskpoint
from bench.setting import Setting
from tuskpoint.v1.checkpoint_service_pb2 import SaveCheckpointRequest
from tuskpoint.v1.checkpoint_service_pb2_grpc import CheckpointServiceStub

if TYPE_CHECKING:
    from tuskpoint.v1.checkpoint_service_pb2_grpc import CheckpointServiceAsyncStub

TITLE = "Server's processor time per save (SaveCheckpoint)"
_AGENTS = 32
_HEADER = ("server", "µs per save", "of the echo")


async def measure(setting: Setting) -> Table:
    """Send both servers the same saves, in turn."""
    if not counts_cpu():
        reason = "Left out: this system does not show the processor time of other processes."
        return Table(TITLE, _HEADER, [], [reason])
    rounds, saves = (2, 10) if setting.quick else (3, 40)
    folder = setting.place("cost")
    with running_tuskpoint(folder) as tuskpoint, running_echo(folder) as echo:
        cost = {server.target: 0.0 for server in (tuskpoint, echo)}
        for turn in range(rounds + 1):
            for server in (tuskpoint, echo):
                spent = await _spent(server, f"turn-{turn}", saves)
                if turn:  # the first turn warms up
                    cost[server.target] += spent
    calls = rounds * saves * _AGENTS
    ours, floor = (cost[server.target] / calls * 1e6 for server in (tuskpoint, echo))
    rows = [
        ["bare echo", number(floor), ""],
        ["TuskPoint", number(ours), ratio(ours, floor)],
    ]
    notes = [
        f"{calls:,} saves of {_AGENTS} agents at once to each, in {rounds} alternating rounds. The "
        "echo parses the request and answers it, on the same runtime and event loop; TuskPoint's "
        "time includes its journal and its archive."
    ]
    return Table(TITLE, _HEADER, rows, notes)


async def _spent(server: Server, name: str, saves: int) -> float:
    """Return the processor seconds that the server used for so many saves of each agent."""
    threads = [chain(f"{name}-{agent}", saves) for agent in range(_AGENTS)]
    async with grpc.aio.insecure_channel(server.target) as channel:
        stub = CheckpointServiceStub(channel)
        before = server.cpu_seconds()
        await asyncio.gather(*(_save_all(stub, requests) for requests in threads))
        return server.cpu_seconds() - before


async def _save_all(
    stub: CheckpointServiceAsyncStub, requests: list[SaveCheckpointRequest]
) -> None:
    for request in requests:
        await stub.SaveCheckpoint(request)
