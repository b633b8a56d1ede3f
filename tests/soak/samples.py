"""Resources of a running server: memory, descriptors, threads, and its backlog."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import grpc

from tests.crash.checks.token_channels import showing
from tests.soak.background import Background
from tests.soak.machine import SoakServer
from tuskpoint.v1.admin_service_pb2 import GetArchiveStatusRequest
from tuskpoint.v1.admin_service_pb2_grpc import AdminServiceStub

MORE_BYTES = 64 << 20
MORE_SHARE = 0.2
# Page caches of SQLite's connections; they fill as the journal grows.
PAGE_CACHE_BYTES = 4 * (32 << 20)
# 40 connections to the blob store, which the server keeps for the next requests, and some files.
MORE_DESCRIPTORS = 40 + 16
POLL_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class Sample:
    """Resources of a server at one moment.

    Attributes:
        pid: The process.
        rss_bytes: Resident memory of the process.
        descriptors: Number of open file descriptors.
        threads: Number of threads.
        spool_bytes: Bytes of packs that are built and not certified.
        backlog: Checkpoints that are not certified; `None` if the server does not answer.
    """

    pid: int
    rss_bytes: int
    descriptors: int
    threads: int
    spool_bytes: int
    backlog: int | None


class Sampler(Background):
    """Takes samples of a server until it is closed.

    Args:
        server: The server.
        token: The token for its calls.
        period_s: Seconds between two samples.
    """

    def __init__(self, server: SoakServer, token: str, period_s: float) -> None:
        super().__init__()
        self.add(self._run)
        self._server = server
        self._token = token
        self._period_s = period_s
        self.samples: list[Sample] = []

    def _run(self) -> None:
        with grpc.insecure_channel(self._server.target) as channel:
            stub = AdminServiceStub(showing(self._token, channel))
            while not self.over.wait(self._period_s):
                pid = self._server.pid
                if pid is None:
                    continue
                try:
                    self.samples.append(self._sample(stub, pid))
                except (FileNotFoundError, ProcessLookupError, KeyError):
                    continue  # The process was killed meanwhile; a dead process has no memory.

    def _sample(self, stub: AdminServiceStub, pid: int) -> Sample:
        process = Path("/proc", str(pid))
        facts = dict(
            line.split(":", 1) for line in (process / "status").read_text("utf-8").splitlines()
        )
        descriptors = open_descriptors(pid)
        spool_bytes = 0
        for path in (self._server.data_dir / "spool").glob("**/*"):
            try:
                spool_bytes += path.stat().st_size if path.is_file() else 0
            except FileNotFoundError:
                pass  # The file was certified and removed meanwhile.
        try:
            status = stub.GetArchiveStatus(GetArchiveStatusRequest(), timeout=self._period_s)
            backlog = int(status.backlog_checkpoints)
        except grpc.RpcError:
            backlog = None
        rss_bytes = int(facts["VmRSS"].split()[0]) * 1024
        return Sample(pid, rss_bytes, descriptors, int(facts["Threads"]), spool_bytes, backlog)


@dataclass(frozen=True, slots=True)
class Course:
    """A number's change over the life of the last process.

    The life of the last process starts with the second quarter of a soak, after the last kill, so
    its thirds are quarters of the soak.

    Attributes:
        early: Median in the first third.
        middle: Median in the second third.
        late: Median in the last third.
        peak: Greatest value, in all processes.
    """

    early: float
    middle: float
    late: float
    peak: float


def course(samples: Sequence[Sample], number: Callable[[Sample], int]) -> Course:
    """Return the course of a number."""
    numbers = [number(sample) for sample in samples if sample.pid == samples[-1].pid]
    third = len(numbers) // 3
    assert third, "there are too few samples"
    return Course(
        statistics.median(numbers[:third]),
        statistics.median(numbers[third:-third]),
        statistics.median(numbers[-third:]),
        max(map(number, samples)),
    )


def growth(rss: Course) -> list[str]:
    """Return the resources that have grown too much."""
    allowed = max(MORE_BYTES, MORE_SHARE * rss.middle)
    first_allowed = PAGE_CACHE_BYTES + max(MORE_BYTES, MORE_SHARE * rss.early)
    if rss.late - rss.middle > allowed or rss.late - rss.early > first_allowed:
        return [f"the server's memory grew: {rss}"]
    return []


def open_descriptors(pid: int) -> int:
    """Count the open file descriptors of a process."""
    return len(list(Path("/proc", str(pid), "fd").iterdir()))


def left_open(pid: int, least: int, patience_s: float) -> list[str]:
    """Wait until a server without clients has closed their descriptors; return the number it kept.

    Args:
        pid: The server's process.
        least: The fewest descriptors that the process had while it served.
        patience_s: Seconds after which a descriptor counts as kept.
    """
    deadline = time.monotonic() + patience_s
    while (count := open_descriptors(pid)) > least + MORE_DESCRIPTORS:
        if time.monotonic() > deadline:
            return [f"the server keeps {count} descriptors open; it had {least} while it served"]
        time.sleep(POLL_SECONDS)
    return []
