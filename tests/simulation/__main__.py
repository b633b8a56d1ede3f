"""Runs schedules: `python -m tests.simulation [--seed N] [--schedules N] [--processes N]`.

Prints the first violation, its seed and the command that replays it, and exits with 1. The order of
sets must not vary: the command runs itself again with `PYTHONHASHSEED=0` unless the variable is
set.
"""

from __future__ import annotations

import argparse
import os
import sys
import time

from tests.simulation.batches import run_all


def main() -> int:
    """Run the schedules, print the outcome, and return the exit code."""
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
