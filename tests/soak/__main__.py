"""The long form: `python -m tests.soak --agents 1000 --minutes 20`."""

from __future__ import annotations

import argparse
import json
import secrets
import shutil
import sys
import tempfile
from pathlib import Path

from tests.soak.soak import Outcome, Plan, run


def main() -> int:
    """Run a soak, print its outcome, and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--agents", type=int, default=1000)
    parser.add_argument("--minutes", type=float, default=20.0)
    parser.add_argument("--pause", type=float, default=10.0, help="seconds between two steps")
    parser.add_argument("--seed", default=secrets.token_hex(4))
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    plan = Plan(
        agents=options.agents,
        seconds=options.minutes * 60,
        pause_s=options.pause,
        pace=min(1.0, options.minutes / 10),
        seed=options.seed,
        from_blobs=5_000,
    )
    folder = Path(tempfile.mkdtemp(prefix="soak-"))
    outcome = run(folder, plan)
    tell(outcome)
    if outcome.problems:
        print(f"the ledger and the logs are left in {folder}")
        return 1
    shutil.rmtree(folder)
    return 0


def tell(outcome: Outcome) -> None:
    """Print the outcome of a soak."""
    print("\n".join(outcome.faults))
    print(json.dumps(outcome.figures, indent=2))
    for line in outcome.left_out:
        print(f"left out: {line}")
    for problem in outcome.problems[:50]:
        print(f"PROBLEM: {problem}")
    print(f"{len(outcome.problems)} problems")


if __name__ == "__main__":
    sys.exit(main())
