"""Times of one tenant's saves while another tenant saves at full speed."""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import AbstractContextManager, asynccontextmanager
from pathlib import Path

import grpc.aio

from bench.report import Table, at_most, number, ratio
from bench.requests import bearer, saves
from bench.running.servers import Server, running_tuskpoint
from bench.setting import Setting
from tuskpoint.v1.checkpoint_service_pb2_grpc import CheckpointServiceStub

TITLE = "Saves of one tenant while another tenant floods the server"
_HEADER = ("the other tenant", "other tenant's saves/s", "median ms", "p99 ms", "p99 / alone")
_CALLS_PER_SECOND = 200
_PAUSE_SECONDS = 0.01
_START_SECONDS = 2.0
_AGENTS = 32


async def measure(setting: Setting) -> Table:
    """Time saves at a steady pace: alone, beside a flood, and beside a flood with a quota."""
    rounds, count = (2, 150) if setting.quick else (5, 600)
    free, bounded = setting.place("free"), setting.place("bounded")
    granted = [_tokens(folder) for folder in (free, bounded)]
    with (bounded / "tokens.toml").open("a", encoding="utf-8") as file:
        file.write(f'\n[[quota]]\ntenant = "loud"\ncalls_per_second = {_CALLS_PER_SECOND}\n')
    with _running(free) as free_server, _running(bounded) as bounded_server:
        cases = {
            "silent": (free_server, granted[0], False),
            f"floods, with a quota of {_CALLS_PER_SECOND} calls/s": (
                bounded_server,
                granted[1],
                True,
            ),
            "floods": (free_server, granted[0], True),
        }
        times_by_case: dict[str, list[float]] = {name: [] for name in cases}
        paces: dict[str, list[float]] = {name: [] for name in cases}
        for turn in range(rounds):
            for name, (server, tokens, floods) in cases.items():
                if not floods:
                    times_by_case[name] += await _times(server, tokens["quiet"], f"{turn}", count)
                    continue
                async with _flood(server, tokens["loud"], f"{turn}", paces[name]):
                    times_by_case[name] += await _times(server, tokens["quiet"], f"{turn}", count)
    rows, p99 = [], {name: _p99(times) for name, times in times_by_case.items()}
    for name, times in times_by_case.items():
        pace = number(statistics.mean(paces[name])) if paces[name] else "0"
        median = number(statistics.median(times) * 1e3)
        rows.append([name, pace, median, number(p99[name] * 1e3), ratio(p99[name], p99["silent"])])
    notes = [
        f"{rounds * count:,} single saves in each row, one every {_PAUSE_SECONDS * 1000.0:.0f} "
        f"ms, in {rounds} alternating rounds. The flood is {_AGENTS} threads over one Exchange "
        "stream, from a process of the lowest priority."
    ]
    what = "p99 of a save beside a flood with a quota, compared with a silent tenant"
    goals = [at_most(what, p99[list(cases)[1]] / p99["silent"], 2)]
    return Table(TITLE, _HEADER, rows, notes, goals)


def _running(folder: Path) -> AbstractContextManager[Server]:
    return running_tuskpoint(folder, {"TUSKPOINT_TOKENS": str(folder / "tokens.toml")})


def _tokens(folder: Path) -> dict[str, str]:
    """Make a token for each of two tenants; return them by tenant."""
    tokens = {}
    for tenant in ("quiet", "loud"):
        command = [sys.executable, "-m", "tuskpoint_server", "token", "--name", tenant]
        command += ["--tenant", tenant, "--scope", "read", "--scope", "write"]
        command += ["--append", str(folder / "tokens.toml")]
        completed = subprocess.run(command, check=True, capture_output=True, text=True)
        tokens[tenant] = completed.stdout.strip()
    return tokens


@asynccontextmanager
async def _flood(server: Server, token: str, name: str, paces: list[float]) -> AsyncIterator[None]:
    """Save as fast as the server answers; add the saves per second to `paces`."""
    command = ["nice", "-n", "19", sys.executable, "-m", "bench.running.saving", server.target]
    command += ["--name", f"flood-{name}", "--threads", str(_AGENTS), "--value-bytes", "512"]
    command += ["--pace", "1e9", "--seconds", "1e9"]
    environment = {**os.environ, "TUSKPOINT_TOKEN": token}
    process = await asyncio.create_subprocess_exec(
        *command, stdout=subprocess.PIPE, env=environment
    )
    await asyncio.sleep(_START_SECONDS)
    try:
        yield
    finally:
        process.terminate()
        said, _ = await process.communicate()
    outcome = json.loads(said)
    paces.append(outcome["saves"] / outcome["seconds"])


async def _times(server: Server, token: str, name: str, count: int) -> list[float]:
    """Return the seconds that each of `count` saves took."""
    times, chain = [], saves(f"quiet-{name}-{time.monotonic()}")
    async with grpc.aio.insecure_channel(server.target) as channel:
        stub = CheckpointServiceStub(channel)
        for number_of_save, request in enumerate(chain):
            await asyncio.sleep(_PAUSE_SECONDS)
            began = time.perf_counter()
            await stub.SaveCheckpoint(request, metadata=bearer(token))
            if number_of_save >= 10:  # the first ones open the connection
                times.append(time.perf_counter() - began)
            if len(times) == count:
                return times
    raise AssertionError("a chain of saves has no end")


def _p99(times: list[float]) -> float:
    return statistics.quantiles(times, n=100)[98]
