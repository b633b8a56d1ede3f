"""The command line in this process, and in separate processes at a terminal."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import signal
import subprocess
import termios
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tests.kit.servers.forking import Forked
from tools.command_line_page import run_here
from tuskpoint.cli import main

NOBODY = "127.0.0.1:1"  # no server listens at this port
PATIENCE_S = 30
WITHOUT_OURS = {
    name: None for name in os.environ if name.startswith("TUSKPOINT") or name == "NO_COLOR"
}


@dataclass(frozen=True)
class Outcome:
    """The end of a run."""

    code: int
    out: str
    errors: str

    @property
    def object(self) -> dict[str, Any]:
        """The single printed object."""
        shape = json.loads(self.out)
        assert isinstance(shape, dict)
        return shape

    @property
    def lines(self) -> list[dict[str, Any]]:
        """Printed objects, one per line."""
        return [json.loads(line) for line in self.out.splitlines()]

    @property
    def error(self) -> dict[str, Any]:
        """Error that was printed as JSON."""
        (line,) = self.errors.splitlines()
        reported = json.loads(line)["error"]
        assert isinstance(reported, dict)
        return reported


def run(
    target: str,
    *arguments: str,
    given: str | bytes | None = None,
    env: Mapping[str, str] | None = None,
    columns: int = 100,
) -> Outcome:
    """Run a command line in this process, where nothing is a terminal."""
    ours = {"TUSKPOINT_TARGET": target, "COLUMNS": str(columns), **(env or {})}
    done = run_here(arguments, given, {**WITHOUT_OURS, **ours})
    return Outcome(done.code, done.out, done.errors)


def environment(target: str, **variables: str) -> dict[str, str]:
    """Return the environment of a process."""
    kept = {name: value for name, value in os.environ.items() if name not in WITHOUT_OURS}
    return {**kept, "TUSKPOINT_TARGET": target, "TERM": "xterm-256color", **variables}


def process(
    target: str,
    *arguments: str,
    stdin: int | None = None,
    stdout: int = subprocess.PIPE,
    stderr: int = subprocess.PIPE,
    env: Mapping[str, str] | None = None,
    start_new_session: bool = False,
) -> Forked:
    """Start the program in a separate process."""
    return Forked(
        main,
        arguments,
        environment(target) if env is None else env,
        stdin=stdin,
        stdout=stdout,
        stderr=stderr,
        start_new_session=start_new_session,
    )


class Terminal:
    """The program at a terminal: stdin and stderr, and stdout too unless stdout is a pipe."""

    def __init__(
        self, target: str, *arguments: str, is_piped: bool = False, columns: int = 100, **env: str
    ) -> None:
        self._ours, theirs = pty.openpty()
        termios.tcsetwinsize(theirs, (40, columns))
        self.process = process(
            target,
            *arguments,
            stdin=theirs,
            stdout=subprocess.PIPE if is_piped else theirs,
            stderr=theirs,
            env=environment(target, **env),
            start_new_session=True,
        )
        os.close(theirs)
        self.seen = ""

    def expect(self, text: str) -> None:
        """Read until a text has been printed."""
        while text not in self.plain:
            assert self._read(), f"ended without {text!r}: {self.seen}"

    def type(self, line: str) -> None:
        """Type a line."""
        os.write(self._ours, line.encode() + b"\n")

    def interrupt(self) -> None:
        """Do what Ctrl-C does to a program that reads a line.

        If a signal arrives in the instant before a read, Python handles it when the read ends. So a
        line is typed after the signal.
        """
        self.process.send_signal(signal.SIGINT)
        self.type("")

    def end(self) -> int:
        """Read the rest; return the exit code."""
        while self._read():
            pass
        os.close(self._ours)
        return self.process.wait(PATIENCE_S)

    @property
    def plain(self) -> str:
        """Output without colours and movements of the cursor."""
        return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", self.seen)

    def _read(self) -> bool:
        latest = time.monotonic() + PATIENCE_S
        ready, _, _ = select.select([self._ours], [], [], latest - time.monotonic())
        assert ready, f"nothing more after: {self.seen}"
        try:
            read = os.read(self._ours, 65536)
        except OSError:  # Linux raises this error when the other end is closed
            return False
        self.seen += read.decode(errors="replace")
        return bool(read)
