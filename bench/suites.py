"""Results of the project's own tests, as tables."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

from bench.report import Table, number

_KILL_LOOP = "tests/crash/test_kill_loop.py"
_COLLECT_SECONDS = 120
_KILL_SECONDS = 900
_NODE = re.compile(r"^tests/(\w+)/.*::")

_LABELS = {
    "kills": "times the server was killed with SIGKILL under load",
    "checkpoints": "saves of checkpoints acknowledged",
    "writes": "pending writes acknowledged",
    "certified": "of the saves, acknowledged as certified",
    "loads": "checkpoints loaded and compared byte for byte",
    "blob_loads": "of the loads, from the blob store",
    "lost": "acknowledged and not loaded, or loaded with other bytes",
    "half_visible": "checkpoints visible in part",
}


class TestsFailedError(Exception):
    """A test run failed; the message is the end of what it printed."""


def test_count_table(root: Path) -> Table:
    """Count the tests that pytest collects, by the kind of their directory."""
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "tests"]
    done = subprocess.run(
        command, cwd=root, capture_output=True, text=True, timeout=_COLLECT_SECONDS, check=False
    )
    kinds = Counter(
        match.group(1) for line in done.stdout.splitlines() if (match := _NODE.match(line))
    )
    rows = [[kind, str(count)] for kind, count in sorted(kinds.items())]
    rows.append(["all", str(kinds.total())])
    notes = ["Tests as pytest counts them, cases of one parametrized test singly."]
    if done.returncode:
        notes.append("Some files could not be collected in this run; their tests are not counted.")
    return Table("Tests", ("kind", "tests"), rows, notes)


def kill_loop_table(root: Path, kills: int) -> Table:
    """Run the kill loop and return what it counted.

    Raises:
        TestsFailedError: It did not pass.
    """
    with tempfile.TemporaryDirectory(prefix="tuskpoint-evidence-") as folder:
        report = Path(folder) / "kills.json"
        settings = {"TUSKPOINT_KILLS": str(kills), "TUSKPOINT_KILL_REPORT": str(report)}
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "--timeout", str(_KILL_SECONDS), _KILL_LOOP],
            cwd=root,
            env={**os.environ, **settings},
            capture_output=True,
            text=True,
            timeout=_KILL_SECONDS,
            check=False,
        )
        if done.returncode or not report.exists():
            lines = done.stdout.strip().splitlines()
            raise TestsFailedError(lines[-1] if lines else "it printed nothing")
        counted: dict[str, int] = json.loads(report.read_text(encoding="utf-8"))
    rows = [[label, number(counted[name])] for name, label in _LABELS.items()]
    seed = counted["seed"]
    notes = [f"From `{_KILL_LOOP}`; `TUSKPOINT_KILL_SEED={seed}` chooses the same moments."]
    return Table("Kills survived", ("what", "count"), rows, notes)
