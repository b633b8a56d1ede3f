"""Time of a search on the server's own index."""

from __future__ import annotations

import random
import statistics
import struct
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import grpc.aio

from bench.report import Table, number
from bench.requests import store
from bench.running.servers import Server, running_tuskpoint
from bench.setting import Setting
from tuskpoint.v1 import search_service_pb2 as pb
from tuskpoint.v1.checkpoint_service_pb2 import SaveCheckpointRequest
from tuskpoint.v1.checkpoint_service_pb2_grpc import CheckpointServiceStub
from tuskpoint.v1.search_service_pb2_grpc import SearchServiceStub

if TYPE_CHECKING:
    from tuskpoint.v1.search_service_pb2_grpc import SearchServiceAsyncStub

TITLE = "Time of a search (SearchCheckpoints, the server's own index)"
_DIMENSION = 384
_THREADS = 100
_WORDS = 2_000
_SEED = 5


async def measure(setting: Setting) -> Table:
    """Fill an index and search it, at two sizes."""
    sizes = (500, 2_000) if setting.quick else (2_000, 10_000)
    times = {size: await _at(setting, size) for size in sizes}
    rows = [[name, *(number(times[size][name] * 1e3) for size in sizes)] for name in _QUERIES]
    notes = [
        f"Median of {_searches(setting)} searches by one caller over gRPC, with 5 results each. "
        f"Summaries have 12 words out of {_WORDS:,}, in {_THREADS} threads; vectors have "
        f"{_DIMENSION} components. A vector search scores every vector; the server holds vectors "
        "of this size in memory."
    ]
    return Table(TITLE, ("search", *(f"ms at {size:,}" for size in sizes)), rows, notes)


async def _at(setting: Setting, size: int) -> dict[str, float]:
    with running_tuskpoint(setting.place("search")) as server:
        return await _filled(setting, server, size)


async def _filled(setting: Setting, server: Server, size: int) -> dict[str, float]:
    async with grpc.aio.insecure_channel(server.target) as channel:
        chance = random.Random(_SEED)
        saving = (_save(chance, number_of_save) for number_of_save in range(1, size + 1))
        await store(CheckpointServiceStub(channel), saving)
        search = SearchServiceStub(channel)
        while (await search.SearchCheckpoints(_words(random.Random(_SEED)))).unindexed_checkpoints:
            pass  # the search itself waits
        return {
            name: await _median(search, query, _searches(setting))
            for name, query in _QUERIES.items()
        }


async def _median(
    search: SearchServiceAsyncStub, query: Callable[[random.Random], Any], searches: int
) -> float:
    chance = random.Random(_SEED)
    await search.SearchCheckpoints(query(chance))  # warms up
    times = []
    for _ in range(searches):
        request = query(chance)
        began = time.perf_counter()
        await search.SearchCheckpoints(request)
        times.append(time.perf_counter() - began)
    return statistics.median(times)


def _searches(setting: Setting) -> int:
    return 20 if setting.quick else 50


# --- stored texts ------------------------------------------------------------------------


def _save(chance: random.Random, number_of_save: int) -> SaveCheckpointRequest:
    request = SaveCheckpointRequest()
    checkpoint = request.checkpoint
    checkpoint.ref.thread_id = f"thread-{number_of_save % _THREADS}"
    checkpoint.ref.checkpoint_id = f"1f000000-0000-6000-8000-{number_of_save:012d}"
    checkpoint.summary = _sentence(chance, 12)
    checkpoint.metadata_json = b'{"step": %d, "outcome": "%s"}' % (
        number_of_save,
        b"success" if number_of_save % 2 else b"failure",
    )
    checkpoint.state.schema_version = 4
    checkpoint.state.ts = "2026-01-01T00:00:00+00:00"
    request.vector.extend(_components(chance))
    return request


def _sentence(chance: random.Random, length: int) -> str:
    """Return words: a few are common, most are rare."""
    return " ".join(f"word{int(_WORDS * chance.random() ** 3)}" for _ in range(length))


def _components(chance: random.Random) -> list[float]:
    raw = chance.randbytes(2 * _DIMENSION)
    return [component / 32768 for component in struct.unpack(f"<{_DIMENSION}h", raw)]


# --- queries -----------------------------------------------------------------------------


def _words(chance: random.Random, **scope: Any) -> pb.SearchCheckpointsRequest:
    return pb.SearchCheckpointsRequest(
        text=_sentence(chance, 4), mode=pb.SEARCH_MODE_LEXICAL, **scope
    )


def _vector(chance: random.Random, **scope: Any) -> pb.SearchCheckpointsRequest:
    return pb.SearchCheckpointsRequest(vector=pb.QueryVector(values=_components(chance)), **scope)


_FILTER = b'{"outcome": "success"}'
_QUERIES: dict[str, Callable[[random.Random], pb.SearchCheckpointsRequest]] = {
    "4 words": _words,
    "4 words, one thread": lambda chance: _words(chance, thread_id="thread-7"),
    "4 words, half of the metadata": lambda chance: _words(chance, filter_json=_FILTER),
    "a vector": _vector,
    "a vector, one thread": lambda chance: _vector(chance, thread_id="thread-7"),
    "a vector, half of the metadata": lambda chance: _vector(chance, filter_json=_FILTER),
}
