"""Checkpoints certified per second on a Walrus whose PUTs take seconds."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import grpc.aio

from bench.report import Table, at_least, number, ratio
from bench.running.servers import counts_cpu, running_tuskpoint, running_walrus
from bench.running.walrus import PUT_SECONDS
from bench.setting import Setting
from tuskpoint.v1.admin_service_pb2 import FlushRequest, GetArchiveStatusRequest
from tuskpoint.v1.admin_service_pb2_grpc import AdminServiceStub

if TYPE_CHECKING:
    from tuskpoint.v1.admin_service_pb2_grpc import AdminServiceAsyncStub

TITLE = "Checkpoints certified per second, on Walrus"
_PUTS_AT_ONCE = 8
_THREADS = (2_000,)
_PROCESSES = 2
_PACE = 800.0
_VALUE_BYTES = 682
_SAMPLE_SECONDS = 0.5
_FLUSH_SECONDS = 300.0


@dataclass(frozen=True, slots=True)
class _Outcome:
    """The outcome of a run.

    Attributes:
        threads: Number of threads.
        saved: Saves acknowledged per second.
        certified: Checkpoints certified per second, from the first certification on.
        left: Checkpoints that were not certified when the saves ended.
        drained_s: Seconds until they were certified too.
        cpu_s: Processor seconds that the server used for a checkpoint, from save to
            certificate; `None` if the system does not report it.
    """

    threads: int
    saved: float
    certified: float
    left: int
    drained_s: float
    cpu_s: float | None


async def measure(setting: Setting) -> Table:
    """Save from several processes for a while, and watch the number of certified checkpoints."""
    seconds = 4.0 if setting.quick else 20.0
    outcomes = [await _outcome(setting, threads, seconds) for threads in _THREADS]
    plain = _PUTS_AT_ONCE / PUT_SECONDS / 2
    rows = [
        [
            f"TuskPoint, {outcome.threads:,} threads",
            number(outcome.saved),
            number(outcome.certified),
            ratio(outcome.certified, plain),
            f"{outcome.left:,}",
            number(outcome.drained_s),
            "" if outcome.cpu_s is None else number(outcome.cpu_s * 1e3),
        ]
        for outcome in outcomes
    ]
    rows.append(
        ["plain client: a PUT per checkpoint and per manifest", "", number(plain), "", "", "", ""]
    )
    notes = [
        f"{_PROCESSES} processes save checkpoints of 4 KiB for {seconds:.0f} s, {_PACE:,.0f} per "
        f"second if the server accepts that many. An emulated publisher takes {PUT_SECONDS:.0f} s "
        f"for a PUT and accepts {_PUTS_AT_ONCE} PUTs at a time. Certified per second: checkpoints "
        "certified after the first flush, divided by the time from the end of that flush until "
        "the backlog was empty. Backlog: checkpoints not certified when the saves ended, and the "
        "seconds until all were certified. CPU: the server's processor time for a checkpoint, "
        f"from save to certification. The plain client's figure is {_PUTS_AT_ONCE} PUTs / "
        f"{PUT_SECONDS:.0f} s / 2."
    ]
    header = (
        "method",
        "saved/s",
        "certified/s",
        "compared with the plain client",
        "backlog",
        "seconds to certify it",
        "CPU ms",
    )
    goals = [
        at_least("checkpoints certified per second on Walrus", outcome.certified, 500, "")
        for outcome in outcomes
    ]
    return Table(TITLE, header, rows, notes, goals)


async def _outcome(setting: Setting, threads: int, seconds: float) -> _Outcome:
    folder = setting.place("walrus-certified")
    with (
        running_walrus(folder, PUT_SECONDS) as walrus,
        running_tuskpoint(folder, walrus.settings) as server,
    ):
        async with grpc.aio.insecure_channel(server.target) as channel:
            admin = AdminServiceStub(channel)
            watch = asyncio.create_task(_watch(admin))
            every = await asyncio.gather(
                *(
                    _save(server.target, index, threads // _PROCESSES, seconds)
                    for index in range(_PROCESSES)
                )
            )
            ended = time.monotonic()
            status = await admin.GetArchiveStatus(GetArchiveStatusRequest())
            await admin.Flush(FlushRequest(), timeout=_FLUSH_SECONDS)
            drained = time.monotonic()
            watch.cancel()
            first_s, first_count = await watch or (drained, 0)
            after = await admin.GetArchiveStatus(GetArchiveStatusRequest())
            cpu_s = server.cpu_seconds() if counts_cpu() else None
    saved = sum(result.saves for result in every)
    if after.certified_checkpoints != saved:
        raise RuntimeError(f"{after.certified_checkpoints} of {saved} were certified")
    steady = drained - first_s
    return _Outcome(
        threads=threads,
        saved=sum(result.saves / result.seconds for result in every),
        certified=(saved - first_count) / steady if steady else 0.0,
        left=status.backlog_checkpoints,
        drained_s=drained - ended,
        cpu_s=cpu_s / saved if cpu_s is not None and saved else None,
    )


async def _watch(admin: AdminServiceAsyncStub) -> tuple[float, int] | None:
    """Return the time of the first certification, and the number of certified checkpoints."""
    try:
        while True:
            status = await admin.GetArchiveStatus(GetArchiveStatusRequest())
            if status.certified_checkpoints:
                return time.monotonic(), status.certified_checkpoints
            await asyncio.sleep(_SAMPLE_SECONDS)
    except asyncio.CancelledError:
        return None


@dataclass(frozen=True, slots=True)
class _Saved:
    """A process's acknowledged saves, and its seconds."""

    saves: int
    seconds: float


async def _save(target: str, number_of_process: int, threads: int, seconds: float) -> _Saved:
    """Run one process that saves."""
    command = ["-m", "bench.running.saving", target, "--name", f"agents-{number_of_process}"]
    command += ["--threads", str(threads), "--seconds", str(seconds)]
    command += ["--pace", str(_PACE / _PROCESSES), "--value-bytes", str(_VALUE_BYTES)]
    process = await asyncio.create_subprocess_exec(
        sys.executable, *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    output, errors = await process.communicate()
    if process.returncode:
        raise RuntimeError(f"saving failed: {errors.decode(errors='replace')[-2000:]}")
    return _Saved(**json.loads(output))
