"""`python -m bench [NAME...]`: measure and print."""

from __future__ import annotations

import argparse
import asyncio
import sys
import time

from bench.registry import MEASURES
from bench.report import Goal, goals_table
from bench.setting import prepared


def main() -> int:
    """Run the measures that are asked for, all of them by default."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="measures to run; default: all")
    parser.add_argument("--list", action="store_true", help="list the measures and end")
    parser.add_argument("--quick", action="store_true", help="smaller counts, under a minute")
    parser.add_argument("--postgres", default="", metavar="DSN", help="PostgreSQL to compare with")
    options = parser.parse_args()
    if options.list:
        for name, about in MEASURES.items():
            print(f"{name:15} {about.about}")
        return 0
    unknown = [name for name in options.names if name not in MEASURES]
    if unknown:
        parser.error(f"no measure {', '.join(unknown)}; --list names them")
    names = options.names or list(MEASURES)
    wants = any(MEASURES[name].compares_postgres for name in names)
    with prepared(quick=options.quick, postgres=options.postgres, wants_postgres=wants) as setting:
        goals: list[Goal] = []
        for name in names:
            began = time.perf_counter()
            table = asyncio.run(MEASURES[name].run(setting))
            print(f"{table.as_text()}\n  ({time.perf_counter() - began:.0f} s)\n", flush=True)
            goals += table.goals
        if len(names) > 1:
            print(goals_table(goals).as_text())
    return 0


if __name__ == "__main__":
    sys.exit(main())
