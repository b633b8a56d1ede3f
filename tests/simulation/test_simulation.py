"""Thousands of schedules with faults and crashes break no promise; broken servers are found."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from tests.simulation.faulty_store import DIRECTORY, WALRUS, Shape
from tests.simulation.sabotage import SABOTAGES
from tests.simulation.schedule import Violation, run_schedule

ROOT = Path(__file__).parents[2]
FIRST_SEED = int(os.environ.get("TUSKPOINT_SIMULATION_SEED", "1"))
SCHEDULES = int(os.environ.get("TUSKPOINT_SIMULATION_SCHEDULES", "100"))
TRIES = 60
"""Schedules within which a broken server has to be found."""

REGRESSIONS = {
    57: "a pointer file that could not be written stayed behind until the next change",
    5015: "a flush was answered although a change came while it took its snapshot",
    6166: "facts of a thread without checkpoints were flushed again and again",
    6306: "segments that refer to one another were stored in blobs apart",
}
"""What the schedule of a seed found once; it leaves lineage and snapshots alone."""


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_no_schedule_breaks_a_promise() -> None:
    finished = simulate("--seed", str(FIRST_SEED), "--schedules", str(SCHEDULES))
    assert finished.returncode == 0, finished.stdout + finished.stderr
    crashes = re.search(r"(\d+) schedules from seed \d+: (\d+) lives", finished.stdout)
    assert crashes is not None
    assert int(crashes[1]) == SCHEDULES
    assert int(crashes[2]) > SCHEDULES


@pytest.mark.parametrize("seed", REGRESSIONS)
def test_what_was_found_once_stays_mended(seed: int) -> None:
    finished = simulate("--seed", str(seed), "--schedules", "1", "--plain")
    assert finished.returncode == 0, finished.stdout


@pytest.mark.parametrize("shape", [DIRECTORY, WALRUS], ids=lambda shape: str(shape.name))
def test_a_seed_is_one_schedule(shape: Shape) -> None:
    for seed in (3, 4):
        first, again = run_schedule(seed, shape=shape), run_schedule(seed, shape=shape)
        assert first == again


def test_a_seed_is_one_schedule_in_every_process() -> None:
    alone = simulate("--seed", "7", "--schedules", "1")
    after_another = simulate("--seed", "6", "--schedules", "2")
    assert fingerprint(alone) == fingerprint(after_another)


@pytest.mark.parametrize("sabotage", SABOTAGES, ids=lambda broken: str(broken.__name__))
def test_a_broken_server_is_found(sabotage: Callable[[], AbstractContextManager[None]]) -> None:
    promises, first_seed = SABOTAGES[sabotage]
    with sabotage(), pytest.raises(Violation) as caught:
        run_schedules(range(first_seed, first_seed + TRIES))
    assert re.match(promises, str(caught.value))


def run_schedules(seeds: Iterable[int]) -> None:
    for seed in seeds:
        run_schedule(seed)


def fingerprint(finished: subprocess.CompletedProcess[str]) -> str:
    """Return what tells the last schedule from any other."""
    found = re.search(r"^fingerprint (\w+)$", finished.stdout, re.MULTILINE)
    assert found is not None, finished.stdout + finished.stderr
    return found[1]


def simulate(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command in processes of their own, where nothing but the seed counts."""
    return subprocess.run(
        [sys.executable, "-m", "tests.simulation", *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": "0"},
        capture_output=True,
        text=True,
        check=False,
    )
