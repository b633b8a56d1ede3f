"""A reader who follows a whole page, on a machine without accounts and clusters."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Self

import httpx

from tests.kit.servers.processes import own_environment
from tests.pages import checked_options, configuration, forks
from tests.pages.compiled import NODE_RUNS_TYPESCRIPT, Compiled, link_modules
from tests.pages.every_page import program_name
from tests.pages.reader import WORDS, Reader
from tools.pages import markdown
from tools.stubs import ROOT

START_SECONDS = 60.0
WIDTH = 120
"""Columns of the reader's terminal: times of checkpoints take more or fewer of them."""
ABSENT = (
    *("aws", "buf", "cargo", "claude", "codex", "docker", "git", "go", "helm"),
    *(
        "journalctl",
        "kubectl",
        "mvn",
        "npm",
        "protoc",
        "psql",
        "sqlite3",
        "sudo",
        "systemctl",
        "vault",
    ),
)
"""Programs that a machine may lack, or that change more than a folder."""
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
# Knows the targets, and makes nothing but what a shell activates.
for word in "$@"; do
    case $word in *=*|-*) continue ;; esac
    grep -q "^$word:" "@CHECKOUT@/Makefile" || { echo "make has no target $word" >&2; exit 2; }
    [ "$word" = env ] && mkdir -p .venv/bin && : >> .venv/bin/activate
done
:
"""
PIP = """\
#!{python} -IS
import sys
sys.path.insert(0, {checkout!r})
from tools.packages.installs import main
sys.exit(main(sys.argv[1:]))
"""
VENV = """\
#!/bin/sh
# Makes environments that have the programs of this one.
if [ "$1 $2" = "-m venv" ]; then
    mkdir -p "$3/bin"
    cp -R "{programs}"/* "$3/bin/"
    touch "$3/bin/activate"
    exit
fi
exec "{python}" "$@"
"""
SCRIPTED_CLAUDE = """\
#!/bin/sh
exec "{python}" "{checkout}/examples/frameworks/claude_agent_sdk/scripted_claude.py" "$@"
"""
CHECKOUT = re.compile(
    r"(?<![\w/$}])(?:\./)?(clients|deploy|emulators|examples|proto|requirements)/"
)
_RUN = {"go", "js", "python", "sh", "ts"}
_CALLS = re.compile(
    r"127\.0\.0\.1:739[01]|\b(?:node|npx|python3?|tuskpoint) |tuskpoint-server health|\bimport\b"
)
_BACKGROUND = re.compile(rf"(?m)\b(tuskpoint(?:-\w+)?)(?= {WORDS}&(?: |$))")
_STARTS_SERVER = re.compile(rf"(?m)\btuskpoint-server\b{WORDS}&(?: |$)")


@contextmanager
def forking(folder: Path, python: Path | str = sys.executable, *modules: str) -> Iterator[Path]:
    """Run the process that forks programs; yield its address.

    Args:
        folder: Folder of the address.
        python: Interpreter of the programs.
        *modules: Modules that the process imports in place of `forks.IMPORTED`.
    """
    address = folder / "forks"
    with subprocess.Popen(
        [python, "-m", "tests.pages.forks", str(address), *modules],
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
    """Follows a page, with stand-ins for programs that need an account or a cluster.

    Args:
        page: The page.
        folder: The working folder of the reader.
        programs: Address of the process that forks programs.
        compiled: The programs of all pages in the other languages of this page.
        python: Interpreter of the environment that the page needs, if it is another one.
        python_forks: Address of the process that forks programs of `python`.
    """

    def __init__(
        self,
        page: str,
        folder: Path,
        programs: Path,
        compiled: Mapping[str, Compiled],
        python: Path | None = None,
        python_forks: Path | None = None,
    ) -> None:
        super().__init__(page, folder)
        self._compiled, self._python = compiled, python
        stand_in = partial(forks.STAND_IN.format, python=sys.executable)
        self._forked = stand_in(socket=str(programs))
        self._forked_python = stand_in(socket=str(python_forks or programs))

    def __enter__(self) -> Self:
        try:
            self._prepare()
        except BaseException as error:
            self.__exit__(type(error), error, None)
            raise
        return self

    def _prepare(self) -> None:
        """Prepare the machine that the page assumes."""
        self._put_programs()
        if {"js", "ts"} & {block.language for block in self._blocks}:
            link_modules(self.folder)
        run = [block for block in self._blocks if block.language in _RUN and not block.file]
        text = "\n".join(block.text for block in run)
        for name in {*CHECKOUT.findall(text)}:
            shutil.copytree(ROOT / name, self.folder / name, symlinks=True, ignore=_built)
        if self._python:
            self.has_program("claude", SCRIPTED_CLAUDE.format(python=self._python, checkout=ROOT))
            self._send(f'PATH="$PATH:{self._python.parent}"\n')
        address = self.address("7390")
        settings = f"TUSKPOINT_TARGET={address} TUSKPOINT_LISTEN={address} COLUMNS={WIDTH}"
        self._send(f"export {settings}\n")
        calls, starts = _CALLS.search(text), _STARTS_SERVER.search(text)
        if calls and (starts is None or calls.start() < starts.start()):
            self._start_server()

    def _put_programs(self) -> None:
        for name in ABSENT:
            self.has_program(name)
        for name in checked_options.names():
            self.has_program(name, self._forked)
        self.has_program("make", MAKE.replace("@CHECKOUT@", str(ROOT)))
        self.has_program("npx", NODE_RUNS_TYPESCRIPT)
        for name in ("pip", "pip3"):
            self.has_program(name, PIP.format(python=sys.executable, checkout=str(ROOT)))
        for name in ("curl", "wget"):
            program = shutil.which(name) or "false"
            self.has_program(name, ONLY_LOCAL.format(program=program))
        hidden = self._programs / "forked"
        hidden.mkdir()
        for name in PYTHONS:
            (hidden / name).write_text(self._forked_python)
            (hidden / name).chmod(0o755)
            venv = VENV.format(programs=self._programs, python=hidden / name)
            self.has_program(name, venv)

    def _start_server(self) -> None:
        """Start the server that a page assumes: `tuskpoint-server dev`, in the reader's folder."""
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

    def follow(self, *headings: str) -> str:
        printed = super().follow(*headings)
        for block in self._blocks:
            others = "".join(other.text for other in self._blocks if other is not block)
            name = Path(block.file).name
            if block.file and block.language == "python" and Path(name).stem not in others:
                test = "-m pytest -q -p no:cacheprovider " if name.startswith("test_") else ""
                printed += self._run(f"python {test}{self._localized(block.file)}\n")
        return printed

    def _take(self, block: markdown.Block) -> str:
        if block.file and block.language in configuration.CHECKS:
            configuration.check(block.language, self._localized(block.text), self.folder)
        return super()._take(block)

    def _take_other(self, block: markdown.Block, text: str) -> str:
        name = program_name(self._page, self._blocks.index(block))
        program = self.folder / f".{name}"
        match block.language:
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
