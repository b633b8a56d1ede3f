"""Checkpoints certified per second on the directory store."""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import json
import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc.aio

from bench.report import Table, at_least, number, ratio
from bench.requests import chain
from bench.running.servers import running_tuskpoint
from bench.setting import Setting
from tuskpoint.v1.admin_service_pb2 import FlushRequest
from tuskpoint.v1.admin_service_pb2_grpc import AdminServiceStub
from tuskpoint.v1.checkpoint_service_pb2 import SaveCheckpointRequest
from tuskpoint.v1.checkpoint_service_pb2_grpc import (
    CheckpointServiceStub,
)

TITLE = "Checkpoints certified per second (directory store)"
# A round stays below the number of changes at which the archive flushes by itself.
_THREADS = 18
_CHECKPOINTS_PER_THREAD = 50
_PLAIN_THREADS = 4
_VALUE_BYTES = 2048
_FLUSH_SECONDS = 120.0
_WORKERS = 8


async def measure(setting: Setting) -> Table:
    """Fill the journal and time the flush, several rounds; and the plain client beside each."""
    rounds = 1 if setting.quick else 4
    folder = setting.place("flush")
    certified, flushing, storing = 0, 0.0, 0.0
    with running_tuskpoint(folder, {"TUSKPOINT_FLUSH_INTERVAL": "3600"}) as server:
        async with grpc.aio.insecure_channel(server.target) as channel:
            began = time.perf_counter()
            for turn in range(rounds):
                await fill(channel, turn)
                count, seconds = await flush(channel)
                certified += count
                flushing += seconds
                storing += await asyncio.to_thread(_store_plainly, folder / f"plain-{turn}")
            whole = time.perf_counter() - began - storing
    ours = certified / flushing
    plain = rounds * _PLAIN_THREADS * _CHECKPOINTS_PER_THREAD / storing
    rows = [
        ["TuskPoint, flush alone", number(ours), ratio(ours, plain)],
        [
            "TuskPoint, saved and certified",
            number(certified / whole),
            ratio(certified / whole, plain),
        ],
        ["plain client: a file and a manifest per checkpoint", number(plain), ""],
    ]
    notes = [
        f"{certified:,} checkpoints of {rounds * _THREADS} threads, with 4 KiB of new values in "
        "each: packed, spooled, stored, read back and recorded. The plain client writes each "
        "checkpoint to a file and rewrites the manifest of the thread, both compressed and "
        f"fsynced, {_WORKERS} at a time, and reads nothing back. Both store checkpoints whole."
    ]
    goals = [at_least("checkpoints certified per second, directory", ours, 1500, "")]
    return Table(
        TITLE, ("method", "checkpoints/s", "compared with the plain client"), rows, notes, goals
    )


async def fill(channel: grpc.aio.Channel, turn: int) -> int:
    """Save the checkpoints of a round; return their number."""
    stub = CheckpointServiceStub(channel)

    async def save_thread(name: str) -> None:
        for request in chain(name, _CHECKPOINTS_PER_THREAD, _VALUE_BYTES):
            await stub.SaveCheckpoint(request)

    await asyncio.gather(*(save_thread(f"flushed-{turn}-{index}") for index in range(_THREADS)))
    return _THREADS * _CHECKPOINTS_PER_THREAD


async def flush(channel: grpc.aio.Channel) -> tuple[int, float]:
    """Return the checkpoints that one flush certified, and its seconds."""
    stub = AdminServiceStub(channel)
    start = time.perf_counter()
    done = await stub.Flush(FlushRequest(), timeout=_FLUSH_SECONDS)
    return done.certified_checkpoints, time.perf_counter() - start


def _store_plainly(folder: Path) -> float:
    """Store checkpoints one by one; return the seconds."""
    folder.mkdir()
    threads = [
        chain(f"plain-{index}", _CHECKPOINTS_PER_THREAD, _VALUE_BYTES, inherits=False)
        for index in range(_PLAIN_THREADS)
    ]
    start = time.perf_counter()
    with ThreadPoolExecutor(_WORKERS) as pool:
        list(pool.map(lambda saves: _store_thread(folder, saves), threads))
    return time.perf_counter() - start


def _store_thread(folder: Path, saves: list[SaveCheckpointRequest]) -> None:
    manifest: dict[str, str] = {}
    for save in saves:
        data = gzip.compress(save.SerializeToString(), compresslevel=6)
        name = hashlib.sha256(data).hexdigest()
        _write(folder / name, data)
        manifest[save.checkpoint.ref.checkpoint_id] = name
        listing = gzip.compress(json.dumps(manifest).encode())
        _write(folder / f"{save.checkpoint.ref.thread_id}.manifest", listing)


def _write(path: Path, data: bytes) -> None:
    fresh = path.with_name(path.name + ".new")
    with fresh.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(path)
