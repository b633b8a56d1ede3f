"""`make console-demo` as a person runs it: a process that prints addresses until it is ended."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.kit.servers.processes import ROOT

SECONDS = 60.0
READY = "All threads are there"
# A make that runs these tests passes its own flags and jobs on.
ENVIRONMENT = {name: text for name, text in os.environ.items() if not name.startswith("MAKE")}
_PLACE = re.compile(r" {2}(\S.*\S) +(http://\S+)$")
_CONSOLE = re.compile(r" {2}(http://\S+) ")
_TARGET = re.compile(r" {2}Agents save to (\S+)\.$")


@dataclass
class DemoRun:
    """A running demo.

    Attributes:
        process: The process of `make`.
        temporary: The folder for temporary files.
        console: The address of the first console.
        target: The address that agents save to on the first server.
        places: What there is to look at, and the address of its page.
    """

    process: subprocess.Popen[str]
    temporary: Path
    console: str = ""
    target: str = ""
    places: dict[str, str] = field(default_factory=dict)

    def until(self, pattern: str) -> re.Match[str]:
        """Read what the demo prints until a line matches; return the match."""
        assert self.process.stdout is not None
        lines: list[str] = []
        for line in self.process.stdout:
            lines.append(line)
            if place := _PLACE.match(line.rstrip()):
                self.places[place[1]] = place[2]
            elif console := _CONSOLE.match(line):
                self.console = console[1]
            elif target := _TARGET.match(line):
                self.target = target[1]
            if found := re.search(pattern, line):
                return found
        raise AssertionError(f"the demo ended before {pattern!r}:\n{''.join(lines)}")

    def stop(self) -> None:
        """End the demo as a supervisor does, and wait until it has ended."""
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(SECONDS)

    def ends_without_a_trace(self, consoles: Collection[str]) -> None:
        """End the demo; fail if a console still answers, or a file is left."""
        assert all(answers(console) for console in consoles)
        assert [*self.temporary.iterdir()]
        self.stop()
        deadline = time.monotonic() + SECONDS
        while any(answers(console) for console in consoles) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert not [console for console in consoles if answers(console)]
        assert not [*self.temporary.iterdir()]


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


@contextmanager
def console_demo() -> Iterator[DemoRun]:
    """Run the demo with a separate folder for temporary files.

    The folder has a short path, because sockets are in the folder.
    """
    with (
        TemporaryDirectory(prefix="demo-") as temporary,
        subprocess.Popen(
            ["make", "console-demo", "ARGS=--listen 127.0.0.1:0"],
            cwd=ROOT,
            env={**ENVIRONMENT, "TMPDIR": temporary, "DISPLAY": "", "WAYLAND_DISPLAY": ""},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        ) as process,
    ):
        try:
            yield DemoRun(process, Path(temporary))
        finally:
            with suppress(ProcessLookupError):  # ended by the test
                os.killpg(process.pid, signal.SIGKILL)
