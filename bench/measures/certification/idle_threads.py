"""Cost of a flush of one thread beside many idle threads."""

from __future__ import annotations

import statistics
import time

import grpc.aio

from bench.report import Table, at_most, number, ratio
from bench.requests import chain, store
from bench.running.servers import running_tuskpoint
from bench.setting import Setting
from tuskpoint.v1.admin_service_pb2 import FlushRequest
from tuskpoint.v1.admin_service_pb2_grpc import AdminServiceStub
from tuskpoint.v1.checkpoint_service_pb2_grpc import CheckpointServiceStub

TITLE = "Flush of one thread beside idle threads"
_FEW = 100
_FLUSH_SECONDS = 600.0
_TINY = 16


async def measure(setting: Setting) -> Table:
    """Time flushes of one checkpoint on two servers in turn."""
    crowd_size, settling, rounds = (500, 20, 10) if setting.quick else (10_000, 150, 40)
    slow = {"TUSKPOINT_FLUSH_INTERVAL": "3600", "TUSKPOINT_SEARCH": "false"}
    times: dict[int, list[float]] = {_FEW: [], crowd_size: []}
    with (
        running_tuskpoint(setting.place("few"), slow) as small_server,
        running_tuskpoint(setting.place("many"), slow) as crowd_server,
    ):
        async with (
            grpc.aio.insecure_channel(small_server.target) as few,
            grpc.aio.insecure_channel(crowd_server.target) as crowd,
        ):
            for count, channel in ((_FEW, few), (crowd_size, crowd)):
                idle = (chain(f"idle-{index}", 1, _TINY)[0] for index in range(count))
                await store(CheckpointServiceStub(channel), idle)
                await AdminServiceStub(channel).Flush(FlushRequest(), timeout=_FLUSH_SECONDS)
            for number_of_flush, request in enumerate(chain("busy", settling + rounds)):
                for count, channel in ((_FEW, few), (crowd_size, crowd)):
                    await CheckpointServiceStub(channel).SaveCheckpoint(request)
                    began = time.perf_counter()
                    await AdminServiceStub(channel).Flush(FlushRequest(), timeout=_FLUSH_SECONDS)
                    if number_of_flush >= settling:
                        times[count].append(time.perf_counter() - began)
    before, after = (statistics.median(times[count]) for count in (_FEW, crowd_size))
    rows = [
        [f"beside {_FEW}", number(before * 1e3), ""],
        [f"beside {crowd_size:,}", number(after * 1e3), ratio(after, before)],
    ]
    notes = [
        f"Medians of {rounds} flushes of one checkpoint each, on two servers in turn. The "
        f"{settling} flushes before these were not measured, because they merge the runs of all "
        "threads."
    ]
    what = f"time of a flush beside {crowd_size:,} idle threads, compared with {_FEW} idle threads"
    goals = [at_most(what, after / before, 1.1)]
    return Table(TITLE, ("threads", "median ms", "many / few"), rows, notes, goals)
