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
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path

from bench.conformance import conformance_table
from bench.registry import MEASURES
from bench.report import Table
from bench.setting import prepared
from bench.suites import TestsFailedError, kill_loop_table, test_count_table

_ROOT = Path(__file__).resolve().parent.parent
_TARGET = _ROOT / "docs" / "evidence.md"
_KILLS = 20
_DISTRIBUTIONS = (
    "tuskpoint-server",
    "tuskpoint",
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
    parts += _correctness(failures)
    parts.append("## Speed")
    with prepared(quick=options.quick, postgres=options.postgres, wants_postgres=True) as setting:
        for name, measure in MEASURES.items():
            _say(f"measuring {name}")
            parts.append(asyncio.run(measure.run(setting)).as_markdown())
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


def _correctness(failures: list[str]) -> list[str]:
    """Return the sections on what holds; add what does not to `failures`."""
    parts = []
    _say("running the conformance suite of langgraph-checkpoint")
    with tempfile.TemporaryDirectory(prefix="tuskpoint-evidence-") as folder:
        table, failed = asyncio.run(conformance_table(Path(folder)))
    parts.append(table.as_markdown())
    failures += failed
    _say("counting the tests")
    parts.append(test_count_table(_ROOT).as_markdown())
    _say(f"killing the server {_KILLS} times")
    try:
        parts.append(kill_loop_table(_ROOT, _KILLS).as_markdown())
    except TestsFailedError as failed_run:
        failures.append(str(failed_run))
        parts.append(f"### Kills survived\n\nThe kill loop **failed** in this run: {failed_run}")
    return parts


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
