"""No save under an old fence is ever accepted, whichever servers the drivers call.

Drivers in processes of their own are stopped for longer than the time of their lease, and taken
over; servers are killed meanwhile. `TUSKPOINT_KILLS=n` sets the number of kills (1),
`TUSKPOINT_KILL_SEED=text` repeats the choices of an earlier run.
"""

from __future__ import annotations

import json
import os
import random
import secrets
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

import grpc
import pytest

from tests.kit.servers.processes import ROOT
from tests.many.driver import TTL_SECONDS
from tests.many.fleet import Fleet, running_fleet
from tests.many.lease_history import Call, StoredSave, problems
from tests.many.trouble import Trouble
from tuskpoint.v1.checkpoint_pb2 import VIEW_ENTRY
from tuskpoint.v1.checkpoint_service_pb2 import ListCheckpointsRequest
from tuskpoint.v1.checkpoint_service_pb2_grpc import CheckpointServiceStub

DRIVERS = 4
THREADS = ("one", "two")
KILLS = int(os.environ.get("TUSKPOINT_KILLS", "1"))
STOPS = 2 * KILLS
STOPPED_SECONDS = 1.5 * TTL_SECONDS
SEED = os.environ.get("TUSKPOINT_KILL_SEED") or secrets.token_hex(4)
LIST_SECONDS = 60.0
END_SECONDS = 30.0


class Drivers:
    """Driver processes, each with a file of its calls."""

    def __init__(self, folder: Path) -> None:
        self.processes: list[subprocess.Popen[bytes]] = []
        self._folder = folder

    def start(self, fleet: Fleet, name: str) -> None:
        """Start a driver."""
        arguments = (",".join(fleet.targets), ",".join(THREADS), name, SEED)
        with open(self._folder / f"{name}.jsonl", "wb") as output:
            self.processes.append(
                subprocess.Popen(
                    (sys.executable, "-m", "tests.many.driver", *arguments), cwd=ROOT, stdout=output
                )
            )

    def wait_for(self, count: int) -> None:
        """Wait until each driver has made this many more calls."""
        wanted = [len(lines) + count for lines in self._lines()]
        ends_at = time.monotonic() + END_SECONDS
        while any(len(lines) < most for lines, most in zip(self._lines(), wanted, strict=True)):
            assert all(process.poll() is None for process in self.processes), "a driver has ended"
            assert time.monotonic() < ends_at, "the drivers make no progress"
            time.sleep(0.05)

    def end(self) -> list[Call]:
        """End the drivers; return all their calls."""
        for process in self.processes:
            process.terminate()
        for process in self.processes:
            assert process.wait(END_SECONDS) == 0
        return [Call(**json.loads(line)) for lines in self._lines() for line in lines]

    def kill(self) -> None:
        """Kill the drivers that still run."""
        for process in self.processes:
            process.kill()
            process.wait()

    def _lines(self) -> list[list[str]]:
        return [
            path.read_text("utf-8").splitlines() for path in sorted(self._folder.glob("*.jsonl"))
        ]


@contextmanager
def running_drivers(folder: Path, fleet: Fleet) -> Iterator[Drivers]:
    drivers = Drivers(folder)
    with ExitStack() as stack:
        stack.callback(drivers.kill)
        for number in range(DRIVERS):
            drivers.start(fleet, f"driver-{number}")
        yield drivers


def stored(target: str, thread: str) -> list[StoredSave]:
    """Return the saves that a thread has."""
    with grpc.insecure_channel(target) as channel:
        request = ListCheckpointsRequest(thread_id=thread, view=VIEW_ENTRY)
        answers = CheckpointServiceStub(channel).ListCheckpoints(
            request, timeout=LIST_SECONDS, wait_for_ready=True
        )
        checkpoints = [answer.checkpoint for answer in answers]
    return [
        StoredSave(checkpoint.seq, **json.loads(checkpoint.metadata_json))
        for checkpoint in checkpoints
    ]


@pytest.mark.crash
@pytest.mark.timeout(120 + 20 * KILLS)
def test_no_save_under_an_old_fence_is_accepted(tmp_path: Path) -> None:
    print(f"TUSKPOINT_KILL_SEED={SEED}")
    moments = random.Random(SEED)
    with running_fleet(tmp_path) as fleet, running_drivers(tmp_path, fleet) as drivers:
        trouble = Trouble(fleet, moments)
        drivers.wait_for(10)
        for number in range(STOPS):
            victim = moments.choice(drivers.processes)
            time.sleep(moments.uniform(0, 0.1))
            victim.send_signal(signal.SIGSTOP)
            time.sleep(STOPPED_SECONDS)
            victim.send_signal(signal.SIGCONT)
            if number % 2:
                trouble.strike()
            drivers.wait_for(5)
        calls = drivers.end()
        there = {thread: stored(fleet.targets[0], thread) for thread in THREADS}
        assert fleet.incidents() == []
    for thread in THREADS:
        assert problems([call for call in calls if call.thread == thread], there[thread]) == []
    counted = Counter(f"{call.kind} {call.outcome}" for call in calls)
    print(f"{dict(trouble.happened)} {dict(counted)}")
    for kind in ("acquire ok", "save ok", "save LEASE_LOST", "acquire THREAD_BUSY"):
        assert counted[kind] > 0, counted


FIRST, SECOND = 1 << 40 | 1, 1 << 40 | 4


def acquired(fence: int, at: float, **more: object) -> Call:
    call = Call("acquire", "t", "a", at, at + 0.1, "ok", fence, acquired_us=int(at * 1e6))
    return replace(call, until_us=int(at * 1e6) + 1_000_000, **more)  # type: ignore[arg-type]


def save(seq: int, fence: int, outcome: str = "ok") -> Call:
    return Call("save", "t", "a", 0.0, 9.0, outcome, fence, token=f"{seq}", seq=seq)


TURNS = [acquired(FIRST, 1.0), acquired(SECOND, 3.0)]
"""Two leases, the second after the end of the first."""


@pytest.mark.parametrize(
    ("calls", "there", "problem"),
    [
        ([*TURNS, save(2, FIRST), save(5, SECOND)], [(2, FIRST), (5, SECOND)], None),
        ([*TURNS, save(5, FIRST)], [(5, FIRST)], "the lease of change 5 was"),
        ([TURNS[0], save(2, 0), save(3, FIRST)], [(2, 0), (3, FIRST)], "was none"),
        ([*TURNS, save(5, SECOND, "LEASE_LOST")], [(5, SECOND)], "it was refused, and is there"),
        ([*TURNS, save(5, SECOND)], [], "is there instead"),
        ([*TURNS, save(5, SECOND, "lost")], [], None),
        ([TURNS[0], acquired(SECOND, 1.5)], [], "held until"),
        ([TURNS[0], acquired(SECOND, 1.5, took_over=True)], [], None),
        ([acquired(FIRST, 5.0), acquired(SECOND, 3.0, took_over=True)], [], "answered before"),
    ],
)
def test_the_check_finds_what_a_lease_forbids(
    calls: list[Call], there: list[tuple[int, int]], problem: str | None
) -> None:
    found = problems(calls, [StoredSave(seq, fence, f"{seq}") for seq, fence in there])
    assert len(found) == (problem is not None)
    assert problem is None or problem in found[0]
