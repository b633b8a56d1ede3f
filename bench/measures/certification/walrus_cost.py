"""Walrus's charges for many checkpoints, compared with a client that stores each separately."""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import itertools
import json
from collections.abc import Iterator
from dataclasses import dataclass

import grpc.aio

from bench.report import Table, at_least, number
from bench.requests import chain
from bench.running.servers import running_tuskpoint, running_walrus
from bench.running.walrus import PUT_SECONDS, Bill, Walrus, encoded_bytes
from bench.setting import Setting
from tuskpoint.v1.admin_service_pb2 import (
    FlushRequest,
    GetArchiveStatusRequest,
    GetArchiveStatusResponse,
)
from tuskpoint.v1.admin_service_pb2_grpc import AdminServiceStub
from tuskpoint.v1.checkpoint_pb2 import Checkpoint
from tuskpoint.v1.checkpoint_service_pb2_grpc import CheckpointServiceStub

TITLE = "Billed by Walrus"
_THREADS = 100
# Six channels of this size make a checkpoint of 4 KiB.
_VALUE_BYTES = 682
_FLUSH_SECONDS = 300.0
_SAMPLED_STEPS = 4
# Lengths in Walrus and LangGraph: a blob ID in base64url, a hash, a summary.
_BLOB_ID = "b" * 43
_SUMMARY = "step 10: loop step finished"


@dataclass(frozen=True, slots=True)
class _Ours:
    bill: Bill
    status: GetArchiveStatusResponse


async def measure(setting: Setting) -> Table:
    """Save through a server on an emulated Walrus; compute the plain client's cost by formula."""
    per_thread = 10 if setting.quick else 100
    folder = setting.place("walrus-cost")
    with (
        running_walrus(folder, PUT_SECONDS) as walrus,
        running_tuskpoint(folder, walrus.settings) as server,
    ):
        ours = await _saved(server.target, walrus, per_thread)
    plain = _plain(per_thread)
    with running_walrus(setting.place("walrus-plain")) as walrus:
        sampled = _check_formula(walrus, per_thread)
    count = _THREADS * per_thread
    if ours.status.certified_checkpoints != count:
        certified = ours.status.certified_checkpoints
        raise RuntimeError(f"{certified} of {count} checkpoints were certified")
    rows = [
        ["plain client: a blob and a manifest per checkpoint", f"{plain.puts:,}", _gb(plain), ""],
        ["TuskPoint", f"{ours.bill.puts:,}", _gb(ours.bill), _share(ours.bill, plain)],
    ]
    notes = [
        f"{count:,} checkpoints of 4 KiB over {_THREADS} threads, saved by {_THREADS} concurrent "
        "agents through a server with its usual settings to an emulated publisher that takes "
        f"{PUT_SECONDS:.0f} s for a PUT. TuskPoint's row is what the publisher reported: "
        "checkpoints, manifests and catalogs.",
        "The plain client sends a PUT for each checkpoint, gzipped, and then a PUT for the whole "
        "manifest of the thread, as tuskpoint-mcp 0.1.2 does. No pending writes are saved; each "
        "pending write would cost the plain client both PUTs again. Its row is computed from "
        "Walrus's formula for each PUT, with manifests of one entry per checkpoint "
        f"({len(_entry('c' * 36, 'c' * 36)):,} bytes). {sampled} of these PUTs were sent, and "
        "billed as computed.",
    ]
    recorded = ours.status.billed_bytes
    if recorded != ours.bill.billed_bytes:
        notes.append(f"The server itself recorded {recorded / 1e9:.2f} GB in `GetArchiveStatus`.")
    header = ("method", "PUTs", "GB billed", "compared with the plain client")
    goals = [
        at_least(
            "plain client's PUTs and bytes billed by Walrus, compared with TuskPoint",
            min(plain.puts / ours.bill.puts, plain.billed_bytes / ours.bill.billed_bytes),
            800,
        )
    ]
    return Table(f"{TITLE}, {count:,} checkpoints of 4 KiB", header, rows, notes, goals)


async def _saved(target: str, walrus: Walrus, per_thread: int) -> _Ours:
    """Save and certify everything, and return the cost."""
    async with grpc.aio.insecure_channel(target) as channel:
        stub = CheckpointServiceStub(channel)

        async def save_thread(name: str) -> None:
            for request in chain(name, per_thread, _VALUE_BYTES):
                await stub.SaveCheckpoint(request)

        await asyncio.gather(*(save_thread(name) for name in _names()))
        admin = AdminServiceStub(channel)
        await admin.Flush(FlushRequest(), timeout=_FLUSH_SECONDS)
        status = await admin.GetArchiveStatus(GetArchiveStatusRequest())
    return _Ours(walrus.bill(), status)


def _names() -> list[str]:
    return [f"agent-{index}" for index in range(_THREADS)]


def _plain(per_thread: int) -> Bill:
    """Return the bill for storing each checkpoint and each manifest separately."""
    threads = (plain_puts(name, per_thread) for name in _names())
    sizes = [len(data) for data in itertools.chain.from_iterable(threads)]
    return Bill(len(sizes), sum(encoded_bytes(size) for size in sizes))


def plain_puts(thread: str, per_thread: int) -> Iterator[bytes]:
    """Yield the plain client's PUTs for one thread."""
    entries: list[bytes] = []
    parent = ""
    for save in chain(thread, per_thread, _VALUE_BYTES, inherits=False):
        checkpoint = save.checkpoint
        yield _payload(checkpoint)
        entries.append(_entry(checkpoint.ref.checkpoint_id, parent))
        parent = checkpoint.ref.checkpoint_id
        yield b'{"entries":{%s},"thread_id":"%s"}' % (b",".join(entries), thread.encode())


def _payload(checkpoint: Checkpoint) -> bytes:
    return gzip.compress(checkpoint.SerializeToString(), compresslevel=1)


def _entry(checkpoint_id: str, parent: str) -> bytes:
    """Return an entry of the plain client's manifest: its fields, with typical content."""
    entry = {
        "adopted_from": None,
        "blob_id": _BLOB_ID,
        "blob_sha256": hashlib.sha256(checkpoint_id.encode()).hexdigest(),
        "checkpoint_ns": "",
        "forked_from": None,
        "parent_checkpoint_id": parent or None,
        "rolled_back_from": None,
        "summary": _SUMMARY,
        "timestamp": "2025-01-01T00:00:00.000000+00:00",
    }
    return f'"{checkpoint_id}":{json.dumps(entry, separators=(",", ":"))}'.encode()


def _check_formula(walrus: Walrus, per_thread: int) -> int:
    """Send the first and the last PUTs of a thread; return their number.

    Raises:
        RuntimeError: A bill differs from the formula.
    """
    puts = list(plain_puts("sampled", per_thread))
    sample = puts[: 2 * _SAMPLED_STEPS] + puts[-2 * _SAMPLED_STEPS :]
    for data in sample:
        billed, computed = walrus.put(data), encoded_bytes(len(data))
        if billed != computed:
            raise RuntimeError(f"{len(data)} bytes: billed {billed}, computed {computed}")
    return len(sample)


def _gb(bill: Bill) -> str:
    return number(bill.billed_bytes / 1e9)


def _share(ours: Bill, theirs: Bill) -> str:
    return f"1/{theirs.billed_bytes / ours.billed_bytes:,.0f}"
