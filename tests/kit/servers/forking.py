"""Programs in processes of their own that import nothing: they are forked off one that has.

To import the server takes a processor longer than all else that it does at its start, and tests
that kill servers start dozens of them.
"""

from __future__ import annotations

import importlib
import multiprocessing
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from multiprocessing.connection import Connection
from pathlib import Path

from tuskpoint_server.core import failpoints

Main = Callable[[Sequence[str]], int]
"""Takes arguments and returns an exit code; a function of a module."""

_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(
    ["tests.kit.servers.forking", "tests.crash.writers.agents", "tuskpoint_server.commands.serve"]
)


class Forked:
    """A program that runs in a process of its own.

    Args:
        main: The program.
        arguments: What `main` gets.
        environment: All of its environment variables.
        log: File to which its standard error is appended.

    Attributes:
        output: The pipe with its standard output.
    """

    def __init__(
        self, main: Main, arguments: Sequence[str], environment: Mapping[str, str], log: Path
    ) -> None:
        self.output, output = _FORKS.Pipe(duplex=False)
        given = (main, arguments, dict(environment), str(log), output)
        self._process = _FORKS.Process(target=_run, args=given, daemon=True)
        self._process.start()
        output.close()

    def send_signal(self, number: int) -> None:
        """Send a signal, unless it has ended."""
        if self._process.exitcode is None:
            assert self._process.pid is not None
            os.kill(self._process.pid, number)

    def poll(self) -> int | None:
        """Return the exit code, minus the number of a signal that killed it; `None` if it runs."""
        return self._process.exitcode

    def wait(self, seconds: float) -> int:
        """Wait until it ends; return the exit code."""
        self._process.join(seconds)
        code = self._process.exitcode
        assert code is not None, f"it did not end within {seconds} seconds"
        self.output.close()
        return code


def _run(
    main: Main,
    arguments: Sequence[str],
    environment: Mapping[str, str],
    log: str,
    output: Connection,
) -> None:
    os.dup2(output.fileno(), 1)
    output.close()
    with open(log, "ab") as errors:
        os.dup2(errors.fileno(), 2)
    os.environ.clear()
    os.environ.update(environment)
    importlib.reload(failpoints)  # the place to die at is read from the environment
    sys.exit(main(arguments))
