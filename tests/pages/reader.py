"""A reader who pastes the blocks of a page into one shell, in an empty folder."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from collections import defaultdict
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.kit.servers.processes import own_environment, unused_port
from tools.pages import markdown
from tools.stubs import ROOT

BLOCK_SECONDS = 240
PAGE_SECONDS = 900
"""A page starts up to ten programs; a loaded machine takes half a minute for each."""
ADDRESS = re.compile(r"127\.0\.0\.1:(739\d)")
_DONE = "\x1e"
_STARTED_SERVER = re.compile(r"(?m)^(.*tuskpoint-server (?:.*--(?:listen|port) (\S+))?.*&)(?= |$)")
_PREPARATION = """\
trap 'echo "$BASH_COMMAND ($?)" >> .failed' ERR
await_server() { until (: < "/dev/tcp/127.0.0.1/$1") 2> /dev/null; do sleep 0.1; done; }
"""


class Reader:
    """Writes the files of a page, runs its commands, and compares what they print with the page.

    A block in `sh` is run. A block in `text` after it is what the commands print: each of its lines
    comes in that order, and "…" stands for any text. A block without a language is not for pasting.

    Attributes:
        folder: Where the reader works.
    """

    def __init__(self, page: str, folder: Path) -> None:
        self.folder = folder
        self._ports: dict[str, int] = defaultdict(unused_port)
        self._programs = folder / ".programs"
        self._programs.mkdir(parents=True)
        self._page, self._blocks = page, markdown.blocks((ROOT / page).read_text("utf-8"))
        path = (self._programs, Path(sys.executable).parent, os.environ["PATH"])
        self._shell = subprocess.Popen(
            ["bash", "--noprofile", "--norc"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd=folder,
            env={
                **own_environment(),
                "CHECKOUT": str(ROOT),
                "PATH": ":".join(map(str, path)),
                "NO_PROXY": "*",
            },
            start_new_session=True,
            text=True,
        )
        self._send(_PREPARATION)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        os.killpg(self._shell.pid, signal.SIGKILL)
        self._shell.communicate()

    @property
    def failed(self) -> list[str]:
        """The commands that failed, each with its exit status."""
        record = self.folder / ".failed"
        return record.read_text().splitlines() if record.exists() else []

    def has_program(self, name: str, script: str = "#!/bin/sh\n") -> None:
        """Put a program before all others of its name; without a script it does nothing."""
        program = self._programs / name
        program.write_text(script)
        program.chmod(0o755)

    def follow(self, *headings: str) -> str:
        """Do what the sections with these headings say; return what their commands printed.

        An empty heading means what the page has before its first section. No heading at all means
        the whole page.
        """
        headings = headings or tuple(dict.fromkeys(block.heading for block in self._blocks))
        known = {block.heading for block in self._blocks}
        assert set(headings) <= known, f"{self._page} has no code below {set(headings) - known}"
        printed, everything = "", ""
        for block in self._blocks:
            if block.heading not in headings:
                continue
            text = self._with_own_addresses(block.text)
            if block.file:
                (self.folder / block.file).parent.mkdir(parents=True, exist_ok=True)
                (self.folder / block.file).write_text(text)
            elif block.language == "sh":
                printed = self._run(text)
                everything += printed
            elif block.language == "text":
                assert prints(text, printed), f"{self._page} shows\n{text}\nbut this was\n{printed}"
            elif block.language:
                raise AssertionError(f"{self._page}: a block in {block.language} has no file name")
        return everything

    def address(self, port: str) -> str:
        """Return the address that takes the place of 127.0.0.1 with this port of the page."""
        return f"127.0.0.1:{self._ports[port]}"

    def _with_own_addresses(self, text: str) -> str:
        ports = f"--port {self._ports['7390']} --http-port {self._ports['7391']}"
        text = text.replace("tuskpoint-server dev", f"tuskpoint-server dev {ports}")
        return ADDRESS.sub(lambda found: self.address(found[1]), text)

    def _run(self, commands: str) -> str:
        block = self.folder / ".block.sh"
        # A block that fails at its end fails once. A person sees that a server listens.
        block.write_text(f"{_STARTED_SERVER.sub(self._then_await, commands)}:\n")
        self._send(f". ./{block.name} < /dev/null\nprintf '{_DONE}\\n'\n")
        watchdog = threading.Timer(BLOCK_SECONDS, os.killpg, (self._shell.pid, signal.SIGKILL))
        watchdog.start()
        lines: list[str] = []
        assert self._shell.stdout is not None
        for line in self._shell.stdout:
            if line.endswith(f"{_DONE}\n"):
                watchdog.cancel()
                return "".join(lines) + line.removesuffix(f"{_DONE}\n")
            lines.append(line)
        raise AssertionError(f"{self._page}: the shell ended in\n{commands}\n{''.join(lines)}")

    def _then_await(self, started: re.Match[str]) -> str:
        address = started[2] or self.address("7390")
        return f"{started[1]} await_server {address.rpartition(':')[2]};"

    def _send(self, commands: str) -> None:
        assert self._shell.stdin is not None
        self._shell.stdin.write(commands)
        self._shell.stdin.flush()


def prints(shown: str, printed: str) -> bool:
    """Whether each line that a page shows was printed, in that order."""
    rest = iter(printed.splitlines())
    return all(
        any(re.fullmatch(".*".join(map(re.escape, line.split("…"))), other) for other in rest)
        for line in shown.splitlines()
    )
