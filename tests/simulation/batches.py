"""Batches of schedules, in parallel processes."""

from __future__ import annotations

import concurrent.futures
import gc
import logging
import multiprocessing
from collections import Counter
from dataclasses import dataclass, field

from tests.simulation.schedule import run_schedule

BATCH = 20
"""Schedules that a process runs at a time."""


@dataclass
class Tally:
    """The sums of the outcomes of schedules; `violation` is the first violation, after its seed."""

    counts: Counter[str] = field(default_factory=Counter)
    steps: Counter[str] = field(default_factory=Counter)
    fingerprint: str = ""
    violation: tuple[int, str] | None = None


def run_batch(seeds: list[int]) -> Tally:
    """Run the schedules of some seeds up to the first violation."""
    tally = Tally()
    logging.disable(logging.CRITICAL)
    gc.freeze()
    for seed in seeds:
        try:
            outcome = run_schedule(seed)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is found
            tally.violation = (seed, f"{type(error).__name__}: {error}")
            break
        tally.counts += Counter(schedules=1, lives=outcome.lives, catalogs=outcome.catalogs)
        tally.steps += outcome.steps
        tally.fingerprint = outcome.fingerprint
    return tally


def run_all(seeds: list[int], processes: int) -> Tally:
    """Run the schedules of all seeds, a batch at a time in each process; with one process, run them
    here."""
    batches = [seeds[start : start + BATCH] for start in range(0, len(seeds), BATCH)]
    if len(batches) == 1:
        return run_batch(seeds)
    total = Tally()
    forks = multiprocessing.get_context("forkserver")
    forks.set_forkserver_preload(["tests.simulation.schedule"])
    with concurrent.futures.ProcessPoolExecutor(processes, mp_context=forks) as pool:
        running = [pool.submit(run_batch, batch) for batch in batches]
        for future in concurrent.futures.as_completed(running):
            tally = future.result()
            total.counts += tally.counts
            total.steps += tally.steps
            total.fingerprint = tally.fingerprint
            if tally.violation is not None:
                total.violation = min(total.violation or tally.violation, tally.violation)
                pool.shutdown(cancel_futures=True)
                break
    return total
