"""Runs schedules: `python -m tests.simulation [--seed N] [--schedules N] [--processes N]`.

Prints the first violation, its seed and the command that replays it, and exits with 1. The
order of sets must not vary: the command runs itself again with `PYTHONHASHSEED=0` unless that
is set.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import gc
import logging
import multiprocessing
import os
import sys
import time
from collections import Counter
from dataclasses import dataclass, field

from tests.simulation.schedule import Violation, run_schedule

BATCH = 20
"""Schedules that a process runs at a time."""


@dataclass
class Tally:
    """What schedules did, summed up; `violation` is the first one, after its seed."""

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
    """Run the schedules of all seeds, a batch at a time in each process."""
    batches = [seeds[start : start + BATCH] for start in range(0, len(seeds), BATCH)]
    total = Tally()
    spawn = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(processes, mp_context=spawn) as pool:
        running = [pool.submit(run_batch, batch) for batch in batches]
        for one in concurrent.futures.as_completed(running):
            tally = one.result()
            total.counts += tally.counts
            total.steps += tally.steps
            total.fingerprint = tally.fingerprint
            if tally.violation is not None:
                total.violation = min(total.violation or tally.violation, tally.violation)
                pool.shutdown(cancel_futures=True)
                break
    return total


def main() -> int:
    """Run, print, and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation")
    parser.add_argument("--seed", type=int, default=1, help="seed of the first schedule")
    parser.add_argument("--schedules", type=int, default=2000, help="how many, by rising seed")
    parser.add_argument("--processes", type=int, default=min(2, os.cpu_count() or 1))
    chosen = parser.parse_args()
    begun = time.monotonic()
    seeds = list(range(chosen.seed, chosen.seed + chosen.schedules))
    tally = run_all(seeds, chosen.processes)
    if tally.violation is not None:
        seed, text = tally.violation
        print(f"seed {seed}: {text}\nreplay: make simulate SEED={seed} SCHEDULES=1")
        return 1
    counts = ", ".join(f"{count} {name}" for name, count in tally.counts.items())
    steps = ", ".join(f"{name} {count}" for name, count in sorted(tally.steps.items()))
    print(f"{counts} from seed {chosen.seed} in {time.monotonic() - begun:.0f} s, no violation")
    print(f"steps: {steps}")
    if tally.counts["schedules"] == 1:
        print(f"fingerprint {tally.fingerprint}")
    return 0


if __name__ == "__main__":
    if os.environ.get("PYTHONHASHSEED") != "0":
        os.environ["PYTHONHASHSEED"] = "0"
        os.execv(sys.executable, [sys.executable, "-m", "tests.simulation", *sys.argv[1:]])  # noqa: S606 - itself
    sys.exit(main())


__all__ = ["Tally", "Violation", "main", "run_all", "run_batch"]
