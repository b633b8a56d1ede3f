"""Batches of schedules, in processes beside one another."""

from __future__ import annotations

import concurrent.futures
import gc
import multiprocessing
from collections import Counter
from dataclasses import dataclass, field

from tests.simulation.schedule import Violation, run_schedule

BATCH = 20
"""Schedules that a process runs at a time."""


@dataclass
class Tally:
    """What schedules did, summed up.

    `fingerprint` is that of the last schedule, `violation` the first one with its seed.
    """

    schedules: int = 0
    lives: int = 0
    catalogs: int = 0
    points: Counter[str] = field(default_factory=Counter)
    fingerprint: str = ""
    violation: tuple[int, str] | None = None

    def add(self, other: Tally) -> None:
        """Add what another batch did."""
        self.schedules += other.schedules
        self.lives += other.lives
        self.catalogs += other.catalogs
        self.points += other.points
        self.fingerprint = other.fingerprint
        if other.violation is not None and (
            self.violation is None or other.violation < self.violation
        ):
            self.violation = other.violation


def run_batch(seeds: list[int], plain: bool = False) -> Tally:
    """Run the schedules of some seeds up to the first violation."""
    tally = Tally()
    gc.freeze()
    for seed in seeds:
        tally.schedules += 1
        try:
            outcome = run_schedule(seed, plain=plain)
        except Violation as violation:
            tally.violation = (seed, str(violation))
            break
        tally.lives += outcome.lives
        tally.catalogs += outcome.catalogs
        tally.points.update(outcome.points)
        tally.fingerprint = outcome.fingerprint
    return tally


def run_all(seeds: list[int], processes: int, plain: bool) -> Tally:
    """Run the schedules of all seeds, a batch at a time in each process."""
    batches = [seeds[start : start + BATCH] for start in range(0, len(seeds), BATCH)]
    total = Tally()
    if processes == 1 or len(batches) == 1:
        for batch in batches:
            total.add(run_batch(batch, plain))
            if total.violation is not None:
                break
        return total
    spawn = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(processes, mp_context=spawn) as pool:
        running = [pool.submit(run_batch, batch, plain) for batch in batches]
        for one in concurrent.futures.as_completed(running):
            total.add(one.result())
            if total.violation is not None:
                pool.shutdown(cancel_futures=True)
                break
    return total
