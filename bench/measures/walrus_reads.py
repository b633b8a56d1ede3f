"""What it takes to load a checkpoint whose values have left the journal."""

from __future__ import annotations

import asyncio
import random
import statistics
import time
from typing import TYPE_CHECKING

import grpc.aio

from bench.report import Table, number, ratio
from bench.requests import chain
from bench.servers import running_tuskpoint, running_walrus
from bench.setting import Setting
from tuskpoint.v1.admin_service_pb2 import FlushRequest, GetArchiveStatusRequest
from tuskpoint.v1.admin_service_pb2_grpc import AdminServiceStub
from tuskpoint.v1.checkpoint_pb2 import VIEW_FULL, CheckpointRef
from tuskpoint.v1.checkpoint_service_pb2 import GetCheckpointRequest, SaveCheckpointRequest
from tuskpoint.v1.checkpoint_service_pb2_grpc import CheckpointServiceStub

if TYPE_CHECKING:
    from tuskpoint.v1.admin_service_pb2_grpc import AdminServiceAsyncStub
    from tuskpoint.v1.checkpoint_service_pb2_grpc import CheckpointServiceAsyncStub

TITLE = "Time of one load of a checkpoint that was evicted (GetCheckpoint)"
_THREADS = 20
_VALUE_BYTES = 682
_EVICTION_SECONDS = 120.0
_LOOK_SECONDS = 0.2
# Nothing is certified before it is asked for; then it leaves the journal at once.
_SETTINGS = {
    "TUSKPOINT_FLUSH_INTERVAL": "3600",
    "TUSKPOINT_JOURNAL_BYTES": "0",
    "TUSKPOINT_EVICTION_INTERVAL": "0.2",
    "TUSKPOINT_EVICTION_GRACE": "0",
}


async def measure(setting: Setting) -> Table:
    """Load the same checkpoints three times: from the journal, from Walrus, from the cache."""
    per_thread, loads = (10, 50) if setting.quick else (50, 300)
    threads = [chain(f"read-{one}", per_thread, _VALUE_BYTES) for one in range(_THREADS)]
    # The latest of a thread is never evicted.
    earlier = [save.checkpoint.ref for saves in threads for save in saves[:-1]]
    refs = random.Random(_THREADS).sample(earlier, loads)
    folder = setting.place("walrus-reads")
    with (
        running_walrus(folder) as walrus,
        running_tuskpoint(folder, {**walrus.settings, **_SETTINGS}) as server,
    ):
        async with grpc.aio.insecure_channel(server.target) as channel:
            stub = CheckpointServiceStub(channel)
            await asyncio.gather(*(_save_all(stub, saves) for saves in threads))
            journal = await _median_load(stub, refs)
            await _evict(AdminServiceStub(channel))
            before = walrus.reads()
            remote = await _median_load(stub, refs)
            fetched = walrus.reads() - before
            cached = await _median_load(stub, refs)
    if not fetched:
        raise RuntimeError("nothing was read from Walrus, so nothing was evicted")
    rows = [
        ["in the journal", number(journal * 1e3), ""],
        ["evicted, from Walrus", number(remote * 1e3), ratio(remote, journal)],
        ["evicted, loaded before", number(cached * 1e3), ratio(cached, journal)],
    ]
    notes = [
        f"Median of {loads} loads, one after the other, of checkpoints of 4 KiB chosen at random "
        f"from {_THREADS} threads of {per_thread}. The emulated aggregator adds no time; {fetched} "
        "reads went to it. A real one takes from half a second on."
    ]
    return Table(TITLE, ("checkpoint", "p50 ms", "of the journal's"), rows, notes)


async def _save_all(
    stub: CheckpointServiceAsyncStub, requests: list[SaveCheckpointRequest]
) -> None:
    for request in requests:
        await stub.SaveCheckpoint(request)


async def _evict(admin: AdminServiceAsyncStub) -> None:
    """Certify everything and wait until no more leaves the journal.

    Raises:
        RuntimeError: Nothing left it in time.
    """
    await admin.Flush(FlushRequest())
    deadline = time.monotonic() + _EVICTION_SECONDS
    gone = -1
    while True:
        status = await admin.GetArchiveStatus(GetArchiveStatusRequest())
        if status.evicted_bytes == gone > 0:
            return
        gone = status.evicted_bytes
        if time.monotonic() > deadline:
            raise RuntimeError("nothing was evicted in time")
        await asyncio.sleep(_LOOK_SECONDS)


async def _median_load(stub: CheckpointServiceAsyncStub, refs: list[CheckpointRef]) -> float:
    """Return the median seconds of loading each of these."""
    times = []
    for ref in refs:
        began = time.perf_counter()
        await stub.GetCheckpoint(GetCheckpointRequest(ref=ref, view=VIEW_FULL))
        times.append(time.perf_counter() - began)
    return statistics.median(times)
