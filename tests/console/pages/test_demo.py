"""`make console-demo` shows its address before all else, and leaves nothing when it is ended."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from http.client import HTTPConnection, HTTPException
from pathlib import Path

import pytest

from tests.kit.servers.processes import ROOT

PATIENCE_S = 60.0
# A make that runs these tests passes its own flags and jobs on.
ENVIRONMENT = {name: text for name, text in os.environ.items() if not name.startswith("MAKE")}


@pytest.fixture
def demo(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """The demo, with a folder of its own for temporary files."""
    (tmp_path / "temporary").mkdir()
    with subprocess.Popen(
        ["make", "console-demo", "ARGS=--listen 127.0.0.1:0"],
        cwd=ROOT,
        env={**ENVIRONMENT, "TMPDIR": str(tmp_path / "temporary"), "DISPLAY": ""},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            yield process
        finally:
            with suppress(ProcessLookupError):  # ended by the test
                os.killpg(process.pid, signal.SIGKILL)


def until(process: subprocess.Popen[str], pattern: str) -> tuple[re.Match[str], list[str]]:
    """Read what the demo prints until a line matches; return the match and the lines before."""
    assert process.stdout is not None
    before: list[str] = []
    for line in process.stdout:
        if found := re.search(pattern, line):
            return found, before
        before.append(line)
    raise AssertionError(f"the demo ended before {pattern!r}:\n{''.join(before)}")


def answers(address: str) -> bool:
    """Return whether something serves the console at the address."""
    connection = HTTPConnection(address.removeprefix("http://"), timeout=5)
    try:
        connection.request("GET", "/")
        return b"TuskPoint" in connection.getresponse().read()
    except (HTTPException, ConnectionError):
        return False
    finally:
        connection.close()


@pytest.mark.parametrize("ready", [r"http://", r"forked, and handed off"])
def test_sigterm_ends_the_server_and_removes_its_folder(
    demo: subprocess.Popen[str], tmp_path: Path, ready: str
) -> None:
    found, before = until(demo, r"(http://\S+)")
    assert not [line for line in before if "thread '" in line]
    address = found[1]
    if ready not in found[0]:
        until(demo, ready)
    assert answers(address)
    assert [*(tmp_path / "temporary").iterdir()]
    demo.send_signal(signal.SIGTERM)
    demo.wait(PATIENCE_S)
    deadline = time.monotonic() + PATIENCE_S
    while answers(address) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not answers(address)
    assert not [*(tmp_path / "temporary").iterdir()]


def test_the_demo_builds_what_changed_and_checks_nothing() -> None:
    plan = subprocess.run(
        ["make", "--dry-run", "--what-if=console/src/main.tsx", "console-demo"],
        cwd=ROOT,
        env=ENVIRONMENT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    assert "npm run --silent build" in plan
    assert "npm run --silent check" not in plan
    assert "npm run --silent test" not in plan
