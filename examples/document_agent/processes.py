"""Start, watch and kill the processes of the demo. Every wait has a limit."""

import json
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from multiprocessing import forkserver
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")

HERE = Path(__file__).resolve().parent
_LISTENING = " listening on "
_CONSOLE = "console and JSON over HTTP on "
_FOREIGN = ("TUSKPOINT_", "WALRUS_", "MEMWAL_", "OTEL_", "LANGSMITH_", "LANGCHAIN_")


class DemoError(Exception):
    """A step of the demo failed; the message names the step."""


@dataclass(frozen=True)
class Deadline:
    """Deadline of the whole demo."""

    at: float

    @classmethod
    def within(cls, seconds: float) -> "Deadline":
        """Return a deadline some seconds from now."""
        return cls(time.monotonic() + seconds)

    @property
    def left(self) -> float:
        """The seconds that remain."""
        return max(self.at - time.monotonic(), 0.0)


class Process:
    """A child process whose output goes to files, so that a full pipe never holds it up."""

    def __init__(self, name: str, command: list[str], folder: Path, deadline: Deadline) -> None:
        self.name = name
        self.deadline = deadline
        self.stdout, self.stderr = folder / f"{name}.out", folder / f"{name}.err"
        with self.stdout.open("wb") as out, self.stderr.open("wb") as err:
            self.child = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=out, stderr=err, env=environment()
            )

    @property
    def pid(self) -> int:
        """The process id."""
        return self.child.pid

    def until(self, what: str, look: Callable[[], T | None], every: float = 0.005) -> T:
        """Poll until a result exists; fail if the process ends first."""
        while True:
            ended = self.child.poll() is not None
            result = look()
            if result is not None:
                return result
            if ended:
                raise DemoError(f"{self.name} ended before {what}{self.last_words()}")
            if not self.deadline.left:
                raise DemoError(f"the time was over before {what}{self.last_words()}")
            time.sleep(every)

    def kill(self) -> None:
        """Send SIGKILL: no handler runs, and no buffer is flushed."""
        self.child.kill()
        self.child.wait()

    def wait(self) -> int:
        """Wait for the process to end by itself and return its exit code."""
        try:
            return self.child.wait(self.deadline.left)
        except subprocess.TimeoutExpired:
            raise DemoError(f"{self.name} did not end in time{self.last_words()}") from None

    def stop(self) -> int:
        """SIGTERM, and wait for an orderly end."""
        self.child.terminate()
        return self.wait()

    def address(self) -> str:
        """Wait until the process prints its address, and return HOST:PORT."""
        return self.until("it was ready", self._listening)

    def _listening(self) -> str | None:
        return self._after(_LISTENING)

    def _after(self, words: str) -> str | None:
        """Return what a whole line says after these words."""
        for line in self.stdout.read_text("utf-8", "replace").splitlines(keepends=True):
            if words in line and line.endswith("\n"):
                return line.rpartition(words)[2].strip()
        return None

    def last_words(self, count: int = 12) -> str:
        """The end of what the process wrote to standard error."""
        lines = self.stderr.read_text("utf-8", "replace").strip().splitlines()[-count:]
        return "".join(f"\n    {line}" for line in lines)


class Server(Process):
    """A TuskPoint server on the loopback interface."""

    def __init__(
        self,
        name: str,
        data: Path,
        port: int,
        folder: Path,
        deadline: Deadline,
        options: Sequence[str] = (),
    ) -> None:
        command = [sys.executable, "-m", "tuskpoint_server", *options]
        command += ["--listen", f"127.0.0.1:{port}", "--data-dir", str(data)]
        super().__init__(name, command, folder, deadline)

    @cached_property
    def target(self) -> str:
        """The address that it listens on; waits until it listens."""
        return self.address()

    def console(self) -> str:
        """Wait until the server serves the console, and return the URL."""
        return self.until("it served the console", lambda: self._after(_CONSOLE))

    @property
    def port(self) -> int:
        """The port it listens on."""
        return int(self.target.rpartition(":")[2])


class Agent(Process):
    """The document agent at work on one thread."""

    def __init__(
        self, name: str, options: Mapping[str, object], folder: Path, deadline: Deadline
    ) -> None:
        command = [sys.executable, str(HERE / "run_agent.py")]
        for option, value in options.items():
            command += [f"--{option}", str(value)]
        super().__init__(name, command, folder, deadline)

    def report(self) -> dict[str, Any]:
        """The line of JSON it printed at the end."""
        lines = self.stdout.read_text("utf-8").splitlines()
        if not lines:
            raise DemoError(f"{self.name} ended without a report{self.last_words()}")
        report: dict[str, Any] = json.loads(lines[-1])
        return report


class Forks:
    """Processes forked off a process that has imported LangGraph, so that they start at once."""

    def __init__(self, deadline: Deadline) -> None:
        self.deadline = deadline
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(["langgraph.prebuilt", "tuskpoint"])
        forkserver.ensure_running()
        self._processes: list[BaseProcess] = []

    def start(self, work: Callable[..., object], *arguments: object) -> BaseProcess:
        """Start a process that calls a function."""
        process = self._context.Process(target=_without_interrupts, args=(work, *arguments))
        process.start()
        self._processes.append(process)
        return process

    def until(self, process: BaseProcess, what: str, is_reached: Callable[[], bool]) -> None:
        """Poll until something has happened; fail if the process ends first."""
        while not is_reached():
            if process.exitcode is not None or not self.deadline.left:
                raise DemoError(f"an agent ended, or the time was over, before {what}")
            time.sleep(0.005)

    def finish(self, process: BaseProcess) -> None:
        """Wait until a process has done its work."""
        process.join(self.deadline.left)
        if process.exitcode != 0:
            raise DemoError(f"an agent did not do its work (exit code {process.exitcode})")

    def close(self) -> None:
        """Kill the processes that still run."""
        for process in self._processes:
            process.kill()
            process.join()


def _without_interrupts(work: Callable[..., object], *arguments: object) -> None:
    """Do some work; Ctrl-C ends only the process that started this one."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    work(*arguments)


def environment() -> dict[str, str]:
    """The shell's environment without variables that would change the demo."""
    variables = {name: value for name, value in os.environ.items() if not name.startswith(_FOREIGN)}
    return {**variables, "PYTHONUNBUFFERED": "1", "LANGSMITH_TRACING": "false"}
