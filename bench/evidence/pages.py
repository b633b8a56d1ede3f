"""Fills the blocks of pages from one run of all measures and suites."""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import json
import os
import platform
import re
import sqlite3
import sys
import tempfile
import textwrap
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path

import bench.evidence
from bench.evidence.conformance import conformance_table
from bench.evidence.pictures import svg
from bench.evidence.suites import (
    TestsFailedError,
    kill_loop_table,
    kill_points_table,
    simulation_table,
    test_count_table,
)
from bench.evidence.summary import summary
from bench.registry import MEASURES, Measure
from bench.report import Table, goals_table
from bench.setting import Setting, prepared

_ROOT = Path(__file__).resolve().parents[2]
_DOCS = _ROOT / "docs"
BENCHMARKS = (
    "benchmarks.md",
    "benchmarks/agents.md",
    "benchmarks/server.md",
    "benchmarks/storage.md",
    "benchmarks/goals.md",
    "servers/scale.md",
)
"""Pages below `docs/` with the blocks of the measures."""
PAGES = (*BENCHMARKS, "evidence.md")
_PICTURES = "benchmarks"
_BLOCK = re.compile(r"(<!-- measured: ([a-z-]+) -->\n).*?(?=<!-- end -->)", re.DOTALL)
_BEGAN = time.monotonic()
_KILLS = 20
_SCHEDULES = 200
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
    """Run everything and fill the pages; return 1 if a measure or suite failed."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.evidence", description=bench.evidence.__doc__
    )
    parser.add_argument("--quick", action="store_true", help="smaller counts; the pages say so")
    parser.add_argument("--postgres", default="", metavar="DSN", help="PostgreSQL to compare with")
    parser.add_argument(
        "--docs", type=Path, default=_DOCS, metavar="DIR", help="where the pages are"
    )
    options = parser.parse_args()
    failures: list[str] = []
    blocks = {"run": _preface(quick=options.quick), "versions": _versions().as_markdown()}
    with prepared(quick=options.quick, postgres=options.postgres, wants_postgres=True) as setting:
        tables = {
            name: table
            for name, measure in MEASURES.items()
            if (table := _measured(name, measure, setting, failures)) is not None
        }
    blocks["summary"] = summary(tables)
    blocks["goals"] = goals_table(
        goal for table in tables.values() for goal in table.goals
    ).as_markdown()
    blocks |= {name: f"### {measure.about}\n\n{_NOT}" for name, measure in MEASURES.items()}
    blocks |= {name: table.as_markdown() for name, table in tables.items()}
    blocks |= _correctness(failures, quick=options.quick)
    pictures = options.docs / _PICTURES
    pictures.mkdir(exist_ok=True)
    for table in tables.values():
        if table.chart is not None:
            _write(pictures / f"{table.chart.name}.svg", svg(table.chart))
    results = {name: dataclasses.asdict(table) for name, table in tables.items()}
    _write(pictures / "results.json", json.dumps(results, indent=1, ensure_ascii=False) + "\n")
    for page in PAGES:
        path = options.docs / page
        _write(path, filled(path.read_text(encoding="utf-8"), blocks))
    for failure in failures:
        _say(failure)
    return 1 if failures else 0


_NOT = "This was **not measured** in this run: it failed."


def filled(page: str, blocks: Mapping[str, str]) -> str:
    """Return a page with its blocks replaced.

    Raises:
        KeyError: A block has an unknown name.
    """
    return _BLOCK.sub(lambda match: f"{match[1]}{blocks[match[2]]}\n", page)


def _write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")
    _say(f"wrote {path.name}")


def _preface(*, quick: bool) -> str:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    command = "python -m bench.evidence" + (" --quick" if quick else "")
    text = (
        f"Written by `{command}` on {datetime.now(UTC):%Y-%m-%d} ({platform.system()}, "
        f"{platform.machine()}, {os.cpu_count()} cores, {memory:.0f} GiB of memory, load average "
        f"{os.getloadavg()[0]:.1f} at the start)."
    )
    if quick:
        text += " This was a quick run: counts are small and the figures rough."
    return textwrap.fill(text, 100)


def _versions() -> Table:
    rows = [["Python", platform.python_version()], ["SQLite", sqlite3.sqlite_version]]
    for name in _DISTRIBUTIONS:
        try:
            rows.append([name, metadata.version(name)])
        except metadata.PackageNotFoundError:
            rows.append([name, "not installed"])
    return Table("Versions", ("part", "version"), rows)


def _correctness(failures: list[str], *, quick: bool) -> dict[str, str]:
    """Return the blocks about correctness; add failed checks to `failures`."""
    _say("running the conformance suite of langgraph-checkpoint")
    with tempfile.TemporaryDirectory(prefix="tuskpoint-evidence-") as folder:
        table, failed = asyncio.run(conformance_table(Path(folder)))
    failures += failed
    blocks = {"conformance": table.as_markdown()}
    _say("counting the tests")
    blocks["tests"] = test_count_table(_ROOT).as_markdown()
    kills, schedules = (2, 20) if quick else (_KILLS, _SCHEDULES)
    suites: dict[str, tuple[str, Callable[[], Table]]] = {
        "kills": (f"killing the server {kills} times", lambda: kill_loop_table(_ROOT, kills)),
        "kill-points": ("killing it at every named place", lambda: kill_points_table(_ROOT)),
        "simulation": (
            f"simulating {schedules} schedules",
            lambda: simulation_table(_ROOT, schedules),
        ),
    }
    # None of them measures a time, so they run side by side.
    with ThreadPoolExecutor() as pool:
        running = {name: pool.submit(run) for name, (_, run) in suites.items()}
        for name, (about, _) in suites.items():
            _say(about)
            try:
                blocks[name] = running[name].result().as_markdown()
            except TestsFailedError as failure:
                failures.append(f"{about}: {failure}")
                blocks[name] = f"### Not proven\n\nThis **failed** in this run: {about}. {failure}"
    return blocks


def _measured(name: str, measure: Measure, setting: Setting, failures: list[str]) -> Table | None:
    """Return the results of a measure; add errors to `failures`."""
    _say(f"measuring {name}")
    try:
        return asyncio.run(measure.run(setting))
    except Exception as error:  # noqa: BLE001 - one measure that fails must not cost the others
        failures.append(f"measuring {name}: {type(error).__name__}: {error}")
        return None


def _say(text: str) -> None:
    print(f"{time.monotonic() - _BEGAN:5.0f} s  {text}", file=sys.stderr, flush=True)
