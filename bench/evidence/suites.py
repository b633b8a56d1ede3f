"""Results of the project's own tests, as tables."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from bench.report import Table, number

_KILL_LOOP = "tests/crash/test_kill_loop.py"
_COLLECT_SECONDS = 120
_KILL_SECONDS = 900
_SIMULATION_SECONDS = 900
_FIRST_SEED = 1
# Tests that kill servers at failpoints, and the blob stores of their servers.
_KILLED_AT = {
    "tests/crash/test_failpoints.py": "directory",
    "tests/crash/test_walrus.py": "Walrus",
}
_NODE = re.compile(r"^tests/(\w+)/.*::")

_DEATH = re.compile(r"\[([a-z_.]+)\] PASSED|died at (\S+)")
_SCHEDULES = re.compile(
    r"(\d+) schedules, (\d+) lives, (\d+) catalogs from seed (\d+) .*no violation"
)
_STEPS = re.compile(r"^steps: (.*)$", re.MULTILINE)

_LABELS = {
    "kills": "kills of the server with SIGKILL under load",
    "checkpoints": "acknowledged saves of checkpoints",
    "writes": "acknowledged pending writes",
    "certified": "saves acknowledged as certified",
    "loads": "checkpoints loaded and compared byte for byte",
    "blob_loads": "loads of these from the blob store",
    "lost": "acknowledged checkpoints lost or changed",
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
    notes = ["Tests as pytest counts them; each case of a parametrized test counts as one test."]
    if done.returncode:
        notes.append("Some files could not be collected in this run; their tests are not counted.")
    return Table("Tests", ("kind", "tests"), rows, notes)


def kill_loop_table(root: Path, kills: int) -> Table:
    """Run the kill loop and return its counts.

    Raises:
        TestsFailedError: The kill loop failed.
    """
    with tempfile.TemporaryDirectory(prefix="tuskpoint-evidence-") as folder:
        report = Path(folder) / "kills.json"
        settings = {"TUSKPOINT_KILLS": str(kills), "TUSKPOINT_KILL_REPORT": str(report)}
        command = ["pytest", "-q", "--timeout", str(_KILL_SECONDS), _KILL_LOOP]
        done = _run(root, command, _KILL_SECONDS, settings)
        if done.returncode or not report.exists():
            raise TestsFailedError(_last_line(done.stdout))
        counted: dict[str, int] = json.loads(report.read_text(encoding="utf-8"))
    rows = [[label, number(counted[name])] for name, label in _LABELS.items()]
    seed = counted["seed"]
    notes = [f"From `{_KILL_LOOP}`; `TUSKPOINT_KILL_SEED={seed}` repeats the moments of the kills."]
    return Table("Kills survived", ("what", "count"), rows, notes)


def kill_points_table(root: Path) -> Table:
    """Kill servers at every failpoint; return the failpoints and their counts.

    Raises:
        TestsFailedError: A test did not pass, or none ran.
    """
    with ThreadPoolExecutor() as pool:
        runs = pool.map(partial(_places_died_at, root), _KILLED_AT)
        places = dict(zip(_KILLED_AT.values(), runs, strict=True))
    rows = [[store, str(len(named))] for store, named in places.items()]
    every = sorted({name for named in places.values() for name in named})
    rows.append(["different failpoints", str(len(every))])
    notes = [
        "With the directory, a server was killed twice at each failpoint: on an empty journal, and "
        "on the state after the first kill. With Walrus, one server was killed at one failpoint "
        "after another. No server lost an acknowledged change. The failpoints: "
        f"{', '.join(f'`{name}`' for name in every)}. "
        f"From {' and '.join(f'`{path}`' for path in _KILLED_AT)}; the first test also fails if "
        "no test kills a server at a failpoint of the code."
    ]
    return Table("Failpoints covered", ("blob store", "failpoints"), rows, notes)


def _places_died_at(root: Path, path: str) -> list[str]:
    """Run the tests of a file that die at named places; return the places.

    Raises:
        TestsFailedError: A test did not pass, or none ran.
    """
    command = [
        "pytest",
        "-sv",
        "-k",
        "test_death or test_every",
        "--timeout",
        str(_KILL_SECONDS),
        path,
    ]
    done = _run(root, command, _KILL_SECONDS)
    died = [failpoint or named for failpoint, named in _DEATH.findall(done.stdout)]
    if done.returncode or not died:
        raise TestsFailedError(_last_line(done.stdout))
    return died


def simulation_table(root: Path, schedules: int) -> Table:
    """Run seeded schedules of faults and crashes, and return what they did.

    Raises:
        TestsFailedError: A promise was broken, or nothing ran; the message names the seed.
    """
    command = ["tests.simulation", "--seed", str(_FIRST_SEED), "--schedules", str(schedules)]
    done = _run(root, command, _SIMULATION_SECONDS)
    counted = _SCHEDULES.search(done.stdout)
    if done.returncode or counted is None:
        raise TestsFailedError(_last_line(done.stdout or done.stderr))
    ran, lives, catalogs, first = map(int, counted.groups())
    steps = _STEPS.search(done.stdout)
    rows = [
        ["seeds, each a schedule of faults and crashes", f"{ran:,}"],
        ["starts of a server in these schedules", f"{lives:,}"],
        ["catalogs that recovered everything", f"{catalogs:,}"],
        ["broken promises", "0"],
    ]
    notes = [
        f"Seeds {first} to {first + ran - 1} of `make simulate`: journal, archive and a faulty "
        "blob store on a virtual clock, in one process. A seed replays its schedule."
    ]
    if steps is not None:
        notes.append(f"Steps: {steps[1]}.")
    return Table("Simulation", ("what", "count"), rows, notes)


def _run(
    root: Path, module: list[str], seconds: float, settings: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a module of Python in the repository.

    Raises:
        TestsFailedError: The run took too long.
    """
    try:
        return subprocess.run(
            [sys.executable, "-m", *module],
            cwd=root,
            env={**os.environ, **(settings or {})},
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise TestsFailedError(f"{module[0]} took more than {seconds:.0f} s") from None


def _last_line(printed: str) -> str:
    lines = printed.strip().splitlines()
    return lines[-1] if lines else "it printed nothing"
