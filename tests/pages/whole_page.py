"""A reader who does everything that a page says, on a machine without accounts and clusters."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import httpx

from tests.kit.servers.processes import own_environment
from tests.pages import checked_options, configuration, forks
from tests.pages.compiled import NODE_RUNS_TYPESCRIPT, Compiled, link_modules
from tests.pages.every_page import is_of_framework, program_name
from tests.pages.reader import Reader
from tools.pages import markdown
from tools.stubs import ROOT

START_SECONDS = 60.0
ABSENT = (
    *("aws", "buf", "claude", "codex", "docker", "git", "helm", "journalctl", "kubectl"),
    *("npm", "protoc", "psql", "sqlite3", "sudo", "systemctl", "vault"),
)
"""Programs that a machine may lack, or that act on more than a folder."""
PYTHONS = ("python", "python3")
ONLY_LOCAL = """\
#!/bin/sh
# Calls no other machine.
case "$*" in
*//127.0.0.1*|*//localhost*|*--help*) exec "{program}" "$@" ;;
esac
"""
MAKE = """\
#!/bin/sh
# Knows the targets, and makes nothing.
for word in "$@"; do
    case $word in *=*|-*) continue ;; esac
    grep -q "^$word:" "$CHECKOUT/Makefile" || { echo "make has no target $word" >&2; exit 2; }
done
"""
PIP = """\
#!{python} -IS
import os, sys
sys.path.insert(0, os.environ["CHECKOUT"])
from tools.packages.installs import main
sys.exit(main(sys.argv[1:]))
"""
VENV = """\
#!/bin/sh
# Makes environments that have the programs of this one.
if [ "$1 $2" = "-m venv" ]; then
    mkdir -p "$3/bin"
    cp -P "{programs}"/* "$3/bin/"
    touch "$3/bin/activate"
    exit
fi
exec "{python}" "$@"
"""
CHECKOUT = re.compile(
    r"(?<![\w/$}])(?:\./)?(clients|deploy|emulators|examples|proto|requirements)/"
)
_GIVEN_SERVER = re.compile(r"127\.0\.0\.1:739[01]|\btuskpoint [a-z-]|tuskpoint-server health")
_STARTS_SERVER = re.compile(r"(?m)^[^#\n]*tuskpoint-server\b.*&(?: |$)")
_BACKGROUND = re.compile(r"(?m)\b(tuskpoint(?:-\w+)?)(?= .*[^&]&(?:\s|$)| &(?:\s|$))")


@contextmanager
def forking(folder: Path) -> Iterator[Path]:
    """Run the process that programs are forked off; yield its address."""
    address = folder / "forks"
    with subprocess.Popen(
        [sys.executable, "-m", "tests.pages.forks", str(address)],
        cwd=ROOT,
        env=own_environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield address
        process.stdin.close()


class WholePage(Reader):
    """Does what a page says, with stand-ins for programs that need an account or a cluster.

    Args:
        page: The page.
        folder: Where the reader works.
        programs: Address of the process that programs are forked off.
        compiled: The programs of all pages in the other languages that the page has.
    """

    block_seconds = 30.0

    def __init__(
        self, page: str, folder: Path, programs: Path, compiled: Mapping[str, Compiled]
    ) -> None:
        super().__init__(page, folder)
        self._compiled = compiled
        self._forked = forks.STAND_IN.format(python=sys.executable, socket=str(programs))
        self._put_programs()
        if {"js", "ts"} & {block.language for block in self._blocks}:
            link_modules(folder)
        text = "\n".join(block.text for block in self._blocks if block.language)
        for name in {*CHECKOUT.findall(text)}:
            shutil.copytree(ROOT / name, folder / name, symlinks=True, ignore=_built)
        address = self.address("7390")
        self._send(f"export TUSKPOINT_TARGET={address} TUSKPOINT_LISTEN={address}\n")
        if _GIVEN_SERVER.search(text) and not _STARTS_SERVER.search(text):
            self._start_server()

    def _put_programs(self) -> None:
        for name in ABSENT:
            self.has_program(name)
        for name in checked_options.names():
            self.has_program(name, self._forked)
        self.has_program("make", MAKE)
        self.has_program("npx", NODE_RUNS_TYPESCRIPT)
        for name in ("pip", "pip3"):
            self.has_program(name, PIP.format(python=sys.executable))
        for name in ("curl", "wget"):
            program = shutil.which(name) or "false"
            self.has_program(name, ONLY_LOCAL.format(program=program))
        hidden = self._programs / "forked"
        hidden.mkdir()
        for name in PYTHONS:
            (hidden / name).write_text(self._forked)
            (hidden / name).chmod(0o755)
            venv = VENV.format(programs=self._programs, python=hidden / name)
            self.has_program(name, venv)

    def _start_server(self) -> None:
        """Start the server that a page finds: `tuskpoint-server dev`, in the reader's folder."""
        ports = f"--port {self._ports['7390']} --http-port {self._ports['7391']}"
        serve = f"{checked_options.SERVES}=1 tuskpoint-server dev {ports}"
        ended = self.folder / ".server.ended"
        self._send(f"{{ {serve}; touch {ended.name}; }} > .server.log 2>&1 &\n")
        url, deadline = f"http://{self.address('7391')}/healthz", time.monotonic() + START_SECONDS
        while time.monotonic() < deadline and not ended.exists():
            try:
                httpx.get(url, trust_env=False)
                return
            except httpx.TransportError:
                time.sleep(0.05)
        raise AssertionError((self.folder / ".server.log").read_text())

    def _take_other(self, block: markdown.Block, text: str) -> str:
        name = program_name(self._page, self._blocks.index(block))
        program = self.folder / f".{name}"
        match block.language:
            case "python" if is_of_framework(self._page):
                return ""  # its names are checked, and it runs in the framework's environment
            case "python":
                program.write_text(text)
                self._printed = self._run(f"python {program.name}\n")
            case "ts" | "js":
                made = self._compiled["ts"].folder / f"{name}.mjs"
                text = text if block.language == "js" else self._localized(made.read_text("utf-8"))
                (self.folder / f"{name}.mjs").write_text(text)
                self._printed = self._run(f"node {name}.mjs\n")
            case "go":
                self._printed = self._run(f"{self._compiled['go'].folder / name}\n")
            case _:
                configuration.check(block.language, text, self.folder)
                return ""
        return self._printed

    def _run(self, commands: str) -> str:
        return super()._run(_BACKGROUND.sub(rf"{checked_options.SERVES}=1 \1", commands))


def _built(_: str, names: list[str]) -> list[str]:
    return [name for name in names if name in ("build", "dist", "node_modules", "__pycache__")]
