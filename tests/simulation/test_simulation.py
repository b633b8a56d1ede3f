"""Random schedules of faults and crashes break no promise, and the checks find broken servers."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from tests.simulation.at_rest.faults import with_kind
from tests.simulation.at_rest.sabotage import SABOTAGES_AT_REST
from tests.simulation.coordination.calls import mostly_coordinated, uncoordinated
from tests.simulation.coordination.sabotage import COORDINATION_SABOTAGES
from tests.simulation.plan import Plan
from tests.simulation.sabotage import SABOTAGES
from tests.simulation.schedule import Violation, run_schedule

ROOT = Path(__file__).parents[2]
FIRST_SEED = int(os.environ.get("TUSKPOINT_SIMULATION_SEED", "1"))
SCHEDULES = int(os.environ.get("TUSKPOINT_SIMULATION_SCHEDULES", "30"))
TRIES = 40
"""Schedules within which the checks must find a broken server: a change of the server changes the
schedules of all seeds."""


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_no_schedule_breaks_a_promise() -> None:
    finished = simulate("--seed", str(FIRST_SEED), "--schedules", str(SCHEDULES))
    assert finished.returncode == 0, finished.stdout + finished.stderr
    counts = re.search(r"(\d+) schedules, (\d+) lives, (\d+) catalogs", finished.stdout)
    assert counts is not None, finished.stdout
    assert int(counts[1]) == SCHEDULES
    assert int(counts[2]) > SCHEDULES
    assert int(counts[3]) > SCHEDULES


def test_a_seed_is_one_schedule_in_every_process() -> None:
    prints = [simulate("--seed", "7", "--schedules", "1").stdout for _ in range(2)]
    matches = [re.search(r"^fingerprint (\w+)$", output, re.MULTILINE) for output in prints]
    assert matches[0] is not None
    assert matches[1] is not None
    assert matches[0][1] == matches[1][1]


@pytest.mark.parametrize("sabotage", SABOTAGES, ids=lambda broken: str(broken.__name__))
def test_a_broken_server_is_found(
    sabotage: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    said, first_seed = SABOTAGES[sabotage]
    sabotage(monkeypatch)
    with pytest.raises(Violation, match=said):
        run_schedules(range(first_seed, first_seed + TRIES), uncoordinated)


@pytest.mark.parametrize("sabotage", SABOTAGES_AT_REST, ids=lambda broken: str(broken.__name__))
def test_a_server_that_trusts_what_is_at_rest_is_found(
    sabotage: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    said, kind, first_seed = SABOTAGES_AT_REST[sabotage]
    sabotage(monkeypatch)
    seeds = range(first_seed, first_seed + TRIES)
    with pytest.raises(Violation, match=said):
        run_schedules(seeds, lambda plan: with_kind(uncoordinated(plan), kind, 3.0))


@pytest.mark.parametrize(
    "sabotage", COORDINATION_SABOTAGES, ids=lambda broken: str(broken.__name__)
)
def test_a_server_that_breaks_leases_or_offers_is_found(
    sabotage: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    said, first_seed = COORDINATION_SABOTAGES[sabotage]
    sabotage(monkeypatch)
    with pytest.raises(Violation, match=said):
        run_schedules(range(first_seed, first_seed + TRIES), mostly_coordinated)


def run_schedules(seeds: Iterable[int], change: Callable[[Plan], Plan]) -> None:
    for seed in seeds:
        run_schedule(seed, change)


def simulate(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command in new processes, where nothing but the seed counts."""
    return subprocess.run(
        [sys.executable, "-m", "tests.simulation", *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": "0"},
        capture_output=True,
        text=True,
        check=False,
    )
