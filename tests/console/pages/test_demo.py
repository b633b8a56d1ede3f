"""`make console-demo` shows its address before all else, and leaves nothing when it is ended.

`test_pictures.py` ends the demo when all its threads are there.
"""

from __future__ import annotations

import subprocess
from urllib.parse import urlsplit

from tests.console.demo_run import ENVIRONMENT, console_demo
from tests.kit.servers.processes import ROOT


def test_sigterm_ends_the_first_server_and_removes_its_folder() -> None:
    with console_demo() as demo:
        first = demo.until(r"http://\S+")[0]
        assert not demo.places  # the address comes before all else
        demo.ends_without_a_trace({urlsplit(first).netloc})


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
