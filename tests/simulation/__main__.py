"""Runs schedules: `python -m tests.simulation [--seed N] [--schedules N] [--processes N]
[--plain]`.

Prints the first violation, the seed and the command that replays it, and exits with 1.
A seed means the same schedule in every process, so the order of sets must not vary:
the command runs itself again with `PYTHONHASHSEED=0` unless that is set.
"""

from __future__ import annotations

import argparse
import os
import sys

from tests.simulation.batches import BATCH, run_all


def replay_command(seed: int) -> str:
    """Return the command that runs one schedule again."""
    return f"make simulate SEED={seed} SCHEDULES=1"


def main() -> int:
    """Run, print, and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation")
    parser.add_argument("--seed", type=int, default=1, help="seed of the first schedule")
    parser.add_argument("--schedules", type=int, default=2000, help="how many, by rising seed")
    parser.add_argument("--processes", type=int, default=min(2, os.cpu_count() or 1))
    parser.add_argument("--plain", action="store_true", help="leave lineage and snapshots alone")
    chosen = parser.parse_args()
    seeds = list(range(chosen.seed, chosen.seed + chosen.schedules))
    tally = run_all(seeds, chosen.processes, chosen.plain)
    if tally.violation is not None:
        seed, text = tally.violation
        print(f"seed {seed}: {text}\nreplay: {replay_command(seed)}")
        return 1
    places = ", ".join(f"{name} {count}" for name, count in sorted(tally.points.items()))
    print(
        f"{tally.schedules} schedules from seed {chosen.seed}: {tally.lives} lives, "
        f"{tally.catalogs} catalogs, no violation"
    )
    if tally.schedules <= BATCH:
        print(f"fingerprint {tally.fingerprint}")
    print(f"schedules with a crash at: {places or 'no place'}")
    return 0


if __name__ == "__main__":
    if os.environ.get("PYTHONHASHSEED") != "0":
        os.environ["PYTHONHASHSEED"] = "0"
        os.execv(sys.executable, [sys.executable, "-m", "tests.simulation", *sys.argv[1:]])  # noqa: S606 - itself
    sys.exit(main())
