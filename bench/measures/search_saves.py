"""What indexing adds to the time of a save."""

from __future__ import annotations

import json
import random
import statistics
import time
from typing import TYPE_CHECKING

import grpc.aio

from bench.report import Table, number, ratio
from bench.requests import chain
from bench.servers import running_tuskpoint
from bench.setting import Setting
from tuskpoint.v1.checkpoint_service_pb2 import SaveCheckpointRequest
from tuskpoint.v1.checkpoint_service_pb2_grpc import CheckpointServiceStub

if TYPE_CHECKING:
    from tuskpoint.v1.checkpoint_service_pb2_grpc import CheckpointServiceAsyncStub

TITLE = "What indexing adds to a save (SaveCheckpoint)"
_WORDS = 120
"""Words in a value: about a KiB."""


async def measure(setting: Setting) -> Table:
    """Save on a server that indexes and on one that does not, in turn."""
    stretches, saves = (6, 40) if setting.quick else (30, 100)
    with (
        running_tuskpoint(setting.place("indexing")) as indexing,
        running_tuskpoint(setting.place("plain"), {"TUSKPOINT_SEARCH": "false"}) as plain,
    ):
        async with (
            grpc.aio.insecure_channel(indexing.target) as one,
            grpc.aio.insecure_channel(plain.target) as other,
        ):
            stubs = [CheckpointServiceStub(one), CheckpointServiceStub(other)]
            chains = [_requests(name, stretches * saves) for name in ("indexing", "plain")]
            times: list[list[float]] = [[], []]
            for stretch in range(stretches):
                for stub, requests, taken in zip(stubs, chains, times, strict=True):
                    batch = requests[stretch * saves : (stretch + 1) * saves]
                    measured = [await _timed_save(stub, request) for request in batch]
                    if stretch:  # the first stretch warms up
                        taken += measured
    cuts = [statistics.quantiles(taken, n=100) for taken in times]
    rows = [
        ["with the index", number(cuts[0][49] * 1e3), number(cuts[0][98] * 1e3),
         ratio(cuts[0][49], cuts[1][49])],
        ["--no-search", number(cuts[1][49] * 1e3), number(cuts[1][98] * 1e3), ""],
    ]  # fmt: skip
    notes = [
        f"{(stretches - 1) * saves} saves each, one after the other by one caller, in alternating "
        f"stretches of {saves}, every checkpoint with a summary. Indexing goes on meanwhile."
    ]
    return Table(TITLE, ("server", "p50 ms", "p99 ms", "with / without"), rows, notes)


def _requests(name: str, count: int) -> list[SaveCheckpointRequest]:
    """Return saves with text in them: it is text that is indexed."""
    chance = random.Random(name)
    requests = chain(name, count)
    for place, request in enumerate(requests):
        request.checkpoint.summary = f"The agent finished step {place} of its plan and went on"
        for channel in request.checkpoint.state.channels:
            if channel.HasField("value"):
                words = " ".join(f"word{chance.randrange(5_000)}" for _ in range(_WORDS))
                channel.value.data = json.dumps(words).encode()
    return requests


async def _timed_save(stub: CheckpointServiceAsyncStub, save: SaveCheckpointRequest) -> float:
    began = time.perf_counter()
    await stub.SaveCheckpoint(save)
    return time.perf_counter() - began
