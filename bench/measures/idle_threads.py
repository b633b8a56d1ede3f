"""What a flush of one thread costs beside very many that are idle."""

from __future__ import annotations

import statistics
import time
from collections.abc import AsyncIterator

import grpc.aio

from bench.report import Table, number, ratio
from bench.requests import chain
from bench.servers import running_tuskpoint
from bench.setting import Setting
from tuskpoint.v1.admin_service_pb2 import FlushRequest
from tuskpoint.v1.admin_service_pb2_grpc import AdminServiceStub
from tuskpoint.v1.checkpoint_service_pb2 import SaveCheckpointsRequest
from tuskpoint.v1.checkpoint_service_pb2_grpc import CheckpointServiceStub

TITLE = "A flush of one thread beside idle ones"
_FEW = 100
_ROUNDS = 40
_SETTLING = 200
_FLUSH_SECONDS = 600.0
_TINY = 16


async def measure(setting: Setting) -> Table:
    """Time flushes of one checkpoint on two servers in turn."""
    many = 2_000 if setting.quick else 100_000
    slow = {"TUSKPOINT_FLUSH_INTERVAL": "3600", "TUSKPOINT_SEARCH": "false"}
    times: dict[int, list[float]] = {_FEW: [], many: []}
    with (
        running_tuskpoint(setting.place("few"), slow) as one,
        running_tuskpoint(setting.place("many"), slow) as other,
    ):
        async with (
            grpc.aio.insecure_channel(one.target) as few,
            grpc.aio.insecure_channel(other.target) as crowd,
        ):
            for count, channel in ((_FEW, few), (many, crowd)):
                await _fill(channel, count)
                await AdminServiceStub(channel).Flush(FlushRequest(), timeout=_FLUSH_SECONDS)
            for number_of_flush, request in enumerate(chain("busy", _SETTLING + _ROUNDS)):
                for count, channel in ((_FEW, few), (many, crowd)):
                    await CheckpointServiceStub(channel).SaveCheckpoint(request)
                    began = time.perf_counter()
                    await AdminServiceStub(channel).Flush(FlushRequest(), timeout=_FLUSH_SECONDS)
                    if number_of_flush >= _SETTLING:
                        times[count].append(time.perf_counter() - began)
    before, after = (statistics.median(times[count]) for count in (_FEW, many))
    rows = [
        [f"beside {_FEW}", number(before * 1e3), ""],
        [f"beside {many:,}", number(after * 1e3), ratio(after, before)],
    ]
    notes = [
        f"Medians of {_ROUNDS} flushes of one checkpoint each, on two servers in turn, after "
        f"{_SETTLING} that were not measured: they go on merging the runs of all threads."
    ]
    return Table(TITLE, ("threads", "median ms", "many / few"), rows, notes)


async def _fill(channel: grpc.aio.Channel, count: int) -> None:
    """Save one checkpoint in each of so many threads."""

    async def frames() -> AsyncIterator[SaveCheckpointsRequest]:
        for number_of_save in range(1, count + 1):
            [save] = chain(f"idle-{number_of_save}", 1, _TINY)
            yield SaveCheckpointsRequest(save_id=number_of_save, checkpoint=save)

    async for answer in CheckpointServiceStub(channel).SaveCheckpoints(frames()):
        if not answer.HasField("checkpoint"):
            raise RuntimeError(f"a save was refused: {answer.error.message}")
