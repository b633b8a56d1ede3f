"""`make console-demo` shows its address before all else, and leaves nothing when it is ended."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import urlsplit

import pytest

from tests.console.demo_run import ENVIRONMENT, READY, SECONDS, DemoRun, console_demo
from tests.kit.servers.processes import ROOT


@pytest.fixture
def temporary() -> Iterator[Path]:
    """The folder for the demo's temporary files: a short path, because it has sockets."""
    with TemporaryDirectory(prefix="demo-") as folder:
        yield Path(folder)


@pytest.fixture
def demo(temporary: Path) -> Iterator[DemoRun]:
    with console_demo(temporary) as demo:
        yield demo


def answers(console: str) -> bool:
    """Return whether something serves the console at the address."""
    connection = HTTPConnection(console, timeout=5)
    try:
        connection.request("GET", "/")
        return b"TuskPoint" in connection.getresponse().read()
    except (HTTPException, ConnectionError):
        return False
    finally:
        connection.close()


@pytest.mark.parametrize(("ready", "servers"), [(r"http://\S+", 1), (READY, 2)])
def test_sigterm_ends_the_servers_and_removes_their_folder(
    demo: DemoRun, temporary: Path, ready: str, servers: int
) -> None:
    first = demo.until(r"http://\S+")[0]
    assert not demo.places  # the address comes before all else
    if ready == READY:
        demo.until(ready)
    consoles = {urlsplit(place).netloc for place in (first, *demo.places.values())}
    assert len(consoles) == servers
    assert all(answers(console) for console in consoles)
    assert [*temporary.iterdir()]
    demo.stop()
    deadline = time.monotonic() + SECONDS
    while any(answers(console) for console in consoles) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not [console for console in consoles if answers(console)]
    assert not [*temporary.iterdir()]


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
