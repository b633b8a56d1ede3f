"""`python -m bench [NAME...]`: measure and print."""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from bench.comparing import (
    LEAST_REPEATS,
    FiguresError,
    comparison,
    figures_of,
    read_figures,
    write_figures,
)
from bench.registry import MEASURES
from bench.report import Table, goals_table
from bench.setting import Setting, prepared


def main() -> int:
    """Run the measures that are asked for, all of them by default."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="measures to run; default: all")
    parser.add_argument("--list", action="store_true", help="list the measures and end")
    parser.add_argument("--quick", action="store_true", help="smaller counts, under a minute")
    parser.add_argument("--postgres", default="", metavar="DSN", help="PostgreSQL to compare with")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures to a file")
    parser.add_argument(
        "--repeat", type=int, metavar="N", help="repetitions; default: 1, and 3 with --json"
    )
    parser.add_argument(
        "--compare",
        nargs=2,
        type=Path,
        metavar=("BEFORE", "AFTER"),
        help="print what became slower between two files of --json; status 1: something did",
    )
    options = parser.parse_args()
    if options.repeat is not None and options.repeat < 1:
        parser.error("--repeat takes a number from 1 on")
    if options.compare:
        return _compare(*options.compare)
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
        repeats = options.repeat or (LEAST_REPEATS if options.json else 1)
        runs = [_run(names, setting) for _ in range(repeats)]
    if options.json:
        write_figures(options.json, figures_of(runs))
    return 0


def _run(names: Sequence[str], setting: Setting) -> list[Table]:
    tables = []
    for name in names:
        began = time.perf_counter()
        table = asyncio.run(MEASURES[name].run(setting))
        print(f"{table.as_text()}\n  ({time.perf_counter() - began:.0f} s)\n", flush=True)
        tables.append(table)
    if len(names) > 1:
        print(goals_table(goal for table in tables for goal in table.goals).as_text())
    return tables


def _compare(before: Path, after: Path) -> int:
    try:
        table, slower = comparison(read_figures(before), read_figures(after))
    except FiguresError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(table.as_text())
    return 1 if slower else 0


if __name__ == "__main__":
    sys.exit(main())
