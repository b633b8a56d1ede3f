"""A reader who pastes the blocks of a page into one shell, in an empty folder."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from collections import defaultdict
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.kit.servers.processes import own_environment, unused_port
from tools.pages import markdown
from tools.stubs import ROOT

BLOCK_SECONDS = 240
PAGE_SECONDS = 900
"""Limit for a page: it starts up to ten programs, and a loaded machine needs half a minute for
each."""
ADDRESS = re.compile(r"127\.0\.0\.1:(739\d|31415|8000)\b")
SYSTEM_PATH = re.compile(r"(?<![\w.~}$/-])/(?:backup|etc|mnt|opt|run|srv|var)/(?=\w)")
"""Start of a path outside of the folder that a page writes to and a test must not."""
_DONE = "\x1e"
WORDS = r"(?:[^\n&]|\\\n|&[&>\d])*?"
"""The rest of a command, which may have several lines, up to the "&" that starts it in the
background."""
_STARTED_SERVER = re.compile(
    rf"(?m)^({WORDS}tuskpoint-server\b(?:{WORDS} --(?:listen|port) (\S+))?{WORDS}&)(?= |$)"
)
_PREPARATION = """\
trap 'echo "$BASH_COMMAND ($?)" >> .failed' ERR
await_server() { until (: < "/dev/tcp/127.0.0.1/$1") 2> /dev/null; do sleep 0.1; done; }
"""


@cache
def ports_of(page: str) -> dict[str, int]:
    """Return free ports by the ports of the page that they replace, chosen at the first use."""
    return defaultdict(unused_port)


def with_own_ports(page: str, text: str) -> str:
    """Return a text of a page with the free ports in place of its ports."""
    return ADDRESS.sub(lambda match: f"127.0.0.1:{ports_of(page)[match[1]]}", text)


class Reader:
    """Writes the files of a page, runs its commands, and compares their output with the page.

    A block in `sh` is run. A block in `text` after it is the output of the commands: each of its
    lines must come in that order, and "…" stands for any text. A block without a language is not
    for pasting.

    Attributes:
        folder: The working folder of the reader.
        block_seconds: Most seconds that a block may take.
    """

    def __init__(self, page: str, folder: Path) -> None:
        self.folder = folder
        self._ports = ports_of(page)
        self._programs = folder / ".programs"
        self._programs.mkdir(parents=True)
        self._printed = ""
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
        """Put a program first in PATH; without a script, the program does nothing."""
        program = self._programs / name
        program.write_text(script)
        program.chmod(0o755)

    def follow(self, *headings: str) -> str:
        """Follow the sections with these headings; return the output of their commands.

        An empty heading means the part of the page before its first section. No heading at all
        means the whole page.
        """
        headings = headings or tuple(dict.fromkeys(block.heading for block in self._blocks))
        known = {block.heading for block in self._blocks}
        assert set(headings) <= known, f"{self._page} has no code below {set(headings) - known}"
        everything = ""
        for block in self._blocks:
            if block.heading in headings:
                everything += self._take(block)
        return everything

    def _take(self, block: markdown.Block) -> str:
        """Follow a block; return its output."""
        text = self._localized(block.text)
        if block.file:
            file = self.folder / self._localized(block.file)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        elif block.language == "sh":
            self._printed = self._run(text)
            return self._printed
        elif block.language == "text":
            shown = f"{self._page} shows\n{text}\nbut this was\n{self._printed}"
            assert prints(text, self._printed), shown
        elif block.language:
            return self._take_other(block, text)
        return ""

    def _take_other(self, block: markdown.Block, text: str) -> str:
        """Follow a block in another language; return its output."""
        raise AssertionError(f"{self._page}: a block in {block.language} has no file name")

    def address(self, port: str) -> str:
        """Return the address that replaces 127.0.0.1 with this port of the page."""
        return f"127.0.0.1:{self._ports[port]}"

    def _localized(self, text: str) -> str:
        """Return a text with free ports, and with system paths moved into the folder."""
        text = SYSTEM_PATH.sub(lambda match: f"{self.folder}/system{match[0]}", text)
        ports = f"--port {self._ports['7390']} --http-port {self._ports['7391']}"
        text = text.replace("tuskpoint-server dev", f"tuskpoint-server dev {ports}")
        return with_own_ports(self._page, text)

    def _run(self, commands: str) -> str:
        block = self.folder / ".block.sh"
        # With the ":" at the end, a failed last command is recorded once, and not again for the
        # sourced file. The wait replaces a person who sees that a server listens.
        block.write_text(f"{_STARTED_SERVER.sub(self._then_await, commands)}\n:\n")
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
    """Return whether each line that a page shows was printed, in that order."""
    rest = iter(printed.splitlines())
    return all(
        any(re.fullmatch(".*".join(map(re.escape, line.split("…"))), other) for other in rest)
        for line in shown.splitlines()
    )
