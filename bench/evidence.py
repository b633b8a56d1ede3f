"""`python -m bench.evidence`: run everything that can be counted and write docs/evidence.md.

Every number in that file comes from the run that wrote it.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import platform
import sqlite3
import sys
import tempfile
import textwrap
import time
from collections.abc import Callable
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path

from bench.conformance import conformance_table
from bench.registry import MEASURES, Measure
from bench.report import Table
from bench.setting import Setting, prepared
from bench.suites import (
    TestsFailedError,
    kill_loop_table,
    kill_points_table,
    simulation_table,
    test_count_table,
)

_ROOT = Path(__file__).resolve().parent.parent
_TARGET = _ROOT / "docs" / "evidence.md"
_BEGAN = time.monotonic()
_KILLS = 20
_SCHEDULES = 300
_DISTRIBUTIONS = (
    "tuskpoint-server",
    "tuskpoint",
    "tuskpoint-emulators",
    "grpcio",
    "protobuf",
    "SQLAlchemy",
    "langgraph",
    "langgraph-checkpoint",
    "langgraph-checkpoint-sqlite",
    "langgraph-checkpoint-postgres",
    "langgraph-checkpoint-conformance",
)


def main() -> int:
    """Run it all and write the file; 1 if anything that was run failed."""
    parser = argparse.ArgumentParser(prog="python -m bench.evidence", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="smaller counts; the file says so")
    parser.add_argument("--postgres", default="", metavar="DSN", help="PostgreSQL to compare with")
    parser.add_argument("--output", type=Path, default=_TARGET, metavar="FILE")
    options = parser.parse_args()
    failures: list[str] = []
    parts = [_preface(quick=options.quick), _versions().as_markdown()]
    parts.append("## Correctness")
    parts += _correctness(failures, quick=options.quick)
    parts.append("## Speed and cost")
    with prepared(quick=options.quick, postgres=options.postgres, wants_postgres=True) as setting:
        for name, measure in MEASURES.items():
            parts.append(_measured(name, measure, setting, failures))
    options.output.parent.mkdir(exist_ok=True)
    options.output.write_text("\n\n".join(parts) + "\n", encoding="utf-8")
    _say(f"wrote {options.output.name}")
    for failure in failures:
        _say(failure)
    return 1 if failures else 0


def _preface(*, quick: bool) -> str:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    command = "python -m bench.evidence" + (" --quick" if quick else "")
    text = (
        f"Written by `{command}` on {datetime.now(UTC):%Y-%m-%d} ({platform.system()}, "
        f"{platform.machine()}, {os.cpu_count()} cores, {memory:.0f} GiB of memory, load average "
        f"{os.getloadavg()[0]:.1f} at the start). Every number comes from that run. Times depend "
        "on the machine; read the ratios, whose two sides were measured in turn on the same one. "
        "Run it again with `make evidence`."
    )
    if quick:
        text += " This was a quick run: counts are small and the figures rough."
    return "# Evidence\n\n" + textwrap.fill(text, 100)


def _versions() -> Table:
    rows = [["Python", platform.python_version()], ["SQLite", sqlite3.sqlite_version]]
    for name in _DISTRIBUTIONS:
        try:
            rows.append([name, metadata.version(name)])
        except metadata.PackageNotFoundError:
            rows.append([name, "not installed"])
    return Table("Versions", ("part", "version"), rows)


def _correctness(failures: list[str], *, quick: bool) -> list[str]:
    """Return the sections on what holds; add what does not to `failures`."""
    _say("running the conformance suite of langgraph-checkpoint")
    with tempfile.TemporaryDirectory(prefix="tuskpoint-evidence-") as folder:
        table, failed = asyncio.run(conformance_table(Path(folder)))
    parts = [table.as_markdown()]
    failures += failed
    _say("counting the tests")
    parts.append(test_count_table(_ROOT).as_markdown())
    kills, schedules = (4, 40) if quick else (_KILLS, _SCHEDULES)
    suites: dict[str, Callable[[], Table]] = {
        f"killing the server {kills} times": lambda: kill_loop_table(_ROOT, kills),
        "killing it at every named place": lambda: kill_points_table(_ROOT),
        f"simulating {schedules} schedules": lambda: simulation_table(_ROOT, schedules),
    }
    for about, run in suites.items():
        _say(about)
        try:
            parts.append(run().as_markdown())
        except TestsFailedError as failed_run:
            failures.append(f"{about}: {failed_run}")
            parts.append(f"### Not proven\n\nThis **failed** in this run: {about}. {failed_run}")
    return parts


def _measured(name: str, measure: Measure, setting: Setting, failures: list[str]) -> str:
    """Return the section of a measure; what keeps it from being measured goes to `failures`."""
    _say(f"measuring {name}")
    try:
        return asyncio.run(measure.run(setting)).as_markdown()
    except Exception as error:  # noqa: BLE001 - one measure that fails must not cost the others
        told = f"measuring {name}: {type(error).__name__}: {error}"
        failures.append(told)
        return f"### {measure.about}\n\nThis was **not measured** in this run; {told}"


def _say(text: str) -> None:
    print(f"{time.monotonic() - _BEGAN:5.0f} s  {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
