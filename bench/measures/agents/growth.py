"""Costs of early and late saves of a thread."""

from __future__ import annotations

import statistics
import time
from typing import TYPE_CHECKING

import grpc.aio

from bench.report import Table, at_most, number, ratio
from bench.requests import chain, store
from bench.running.servers import running_tuskpoint
from bench.setting import Setting
from tuskpoint.v1.checkpoint_service_pb2 import SaveCheckpointRequest
from tuskpoint.v1.checkpoint_service_pb2_grpc import CheckpointServiceStub

if TYPE_CHECKING:
    from tuskpoint.v1.checkpoint_service_pb2_grpc import CheckpointServiceAsyncStub

TITLE = "Time of a late save of a thread, compared with save 100 (SaveCheckpoint)"
_EARLY = 100
_SPAN = 100


async def measure(setting: Setting) -> Table:
    """Save in a short and a long thread in turn, under the same conditions."""
    late = 2_000 if setting.quick else 10_000
    early_times, late_times = [], []
    with running_tuskpoint(setting.place("growth")) as server:
        async with grpc.aio.insecure_channel(server.target) as channel:
            stub = CheckpointServiceStub(channel)
            short, long = chain("short", _EARLY + _SPAN // 2), chain("long", late)
            await store(stub, short[:-_SPAN])
            await store(stub, long[:-_SPAN])
            for early, grown in zip(short[-_SPAN:], long[-_SPAN:], strict=True):
                early_times.append(await _timed_save(stub, early))
                late_times.append(await _timed_save(stub, grown))
    before, after = statistics.median(early_times), statistics.median(late_times)
    rows = [
        [f"save {_EARLY}", number(before * 1e3), ""],
        [f"save {late:,}", number(after * 1e3), ratio(after, before)],
    ]
    notes = [
        f"Median of {_SPAN} saves around save 100 of one thread and of the last {_SPAN} saves of "
        "another thread, in turn. The state does not grow; only the thread grows."
    ]
    what = f"time of save {late:,} of a thread, compared with save {_EARLY}"
    goals = [at_most(what, after / before, 1.1)]
    return Table(TITLE, ("save", "median ms", "late / early"), rows, notes, goals)


async def _timed_save(stub: CheckpointServiceAsyncStub, save: SaveCheckpointRequest) -> float:
    began = time.perf_counter()
    await stub.SaveCheckpoint(save)
    return time.perf_counter() - began
