"""Programs in their own processes, forked off a process that has imported the server.

Importing the server takes more processor time than everything else at its start, and tests start
hundreds of programs.
"""

from __future__ import annotations

import gc
import importlib
import multiprocessing
import os
import resource
import subprocess
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import IO, Self

from tuskpoint_server.journal import failpoints

Main = Callable[[Sequence[str]], int]
"""A function of a module that takes arguments and returns an exit code."""

_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(
    [
        "tests.kit.servers.forking",
        "tests.crash.writers.agents",
        "tuskpoint_server.__main__",
        "tuskpoint_server.commands.serve",
        "tuskpoint_server.api.web.listener",
        "tuskpoint_server.auth.oidc",
        "httpcore",
        "tuskpoint.cli.app",
        "tuskpoint.mcp.server",
        "tuskpoint_emulators.walrus.program",
    ]
)
SECONDS = 60.0


class Forked:
    """A program in its own process, with the methods of `subprocess.Popen` that tests use.

    Args:
        main: The program.
        arguments: Arguments of `main`.
        environment: All environment variables of the program.
        log: File that standard error is appended to, instead of `stderr`.
        stdin: `subprocess.PIPE`, `subprocess.DEVNULL`, or a file descriptor.
        stdout: A value as for `stdin`.
        stderr: A value as for `stdin`.
        start_new_session: Whether the process leads a new session.
        open_files: Most open files of the process; default: the limit of this process.
    """

    def __init__(
        self,
        main: Main,
        arguments: Sequence[str],
        environment: Mapping[str, str],
        log: Path | None = None,
        *,
        stdin: int | None = subprocess.DEVNULL,
        stdout: int = subprocess.PIPE,
        stderr: int = subprocess.PIPE,
        start_new_session: bool = False,
        open_files: int | None = None,
    ) -> None:
        ours: list[IO[bytes] | None] = []
        theirs: list[Connection] = []
        for number, stream in enumerate((stdin, stdout, stderr)):
            end, file = _ends(number, log if number == 2 and log is not None else stream)
            theirs.append(end)
            ours.append(file)
        self.stdin, self.stdout, self.stderr = ours
        self.args = arguments
        process_arguments = (
            *(main, arguments, dict(environment), theirs),
            *(os.getcwd(), start_new_session, open_files),
        )
        self._process = _FORKS.Process(target=_run, args=process_arguments, daemon=True)
        self._process.start()
        for end in theirs:
            end.close()

    def __del__(self) -> None:
        self.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.wait()
        self.close()

    @property
    def pid(self) -> int:
        """ID of the process."""
        assert self._process.pid is not None
        return self._process.pid

    @property
    def output(self) -> IO[bytes]:
        """Pipe with the standard output of the program."""
        assert self.stdout is not None
        return self.stdout

    @property
    def returncode(self) -> int | None:
        """Exit code, or minus the number of the signal that killed it; `None` while it runs."""
        return self._process.exitcode

    def poll(self) -> int | None:
        """Return the exit code; `None` while the process runs."""
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Send a signal, unless the process has ended."""
        if self.returncode is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """Send SIGKILL."""
        self._process.kill()

    def terminate(self) -> None:
        """Send SIGTERM."""
        self._process.terminate()

    def wait(self, timeout: float = SECONDS) -> int:
        """Wait until the process ends; return the exit code."""
        self._process.join(timeout)
        if self.returncode is None:
            raise subprocess.TimeoutExpired(list(self.args), timeout)
        return self.returncode

    def communicate(self, given: bytes = b"", timeout: float = SECONDS) -> tuple[bytes, bytes]:
        """Send data to standard input, and read all output until the process ends."""
        with ThreadPoolExecutor(2) as pool:
            read = [
                pool.submit(file.read if file is not None and not file.closed else bytes)
                for file in (self.stdout, self.stderr)
            ]
            if self.stdin is not None:
                with suppress(BrokenPipeError):  # the program may end before it reads everything
                    self.stdin.write(given)
                self.stdin.close()
            try:
                self.wait(timeout)
            except subprocess.TimeoutExpired:
                self.kill()
                raise
            out, errors = (future.result() for future in read)
        self.close()
        return out, errors

    def close(self) -> None:
        """Close the pipes to the process."""
        for file in (self.stdin, self.stdout, self.stderr):
            if file is not None:
                file.close()


def run_forked(
    main: Main,
    arguments: Sequence[str],
    environment: Mapping[str, str],
    given: str = "",
    *,
    timeout: float = SECONDS,
) -> subprocess.CompletedProcess[str]:
    """Run a program to its end; return what it wrote, as text."""
    process = Forked(main, arguments, environment, stdin=subprocess.PIPE)
    out, errors = process.communicate(given.encode(), timeout)
    code = process.wait()
    return subprocess.CompletedProcess(arguments, code, out.decode(), errors.decode())


def _ends(number: int, stream: int | Path | None) -> tuple[Connection, IO[bytes] | None]:
    """Return the stream's end for the program, and the end for the test."""
    reads = number == 0
    if stream == subprocess.PIPE:
        reader, writer = os.pipe()
        theirs, ours = (reader, writer) if reads else (writer, reader)
        return _end(theirs, reads), open(ours, "wb" if reads else "rb", 0 if reads else -1)
    if isinstance(stream, Path):
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        return _end(os.open(stream, flags, 0o666), reads), None
    if stream is None or stream == subprocess.DEVNULL:
        return _end(os.open(os.devnull, os.O_RDWR), reads), None
    return _end(os.dup(stream), reads), None


def _end(descriptor: int, reads: bool) -> Connection:
    """Wrap a descriptor in an object that can be sent to another process."""
    return Connection(descriptor, readable=reads, writable=not reads)


def _run(
    main: Main,
    arguments: Sequence[str],
    environment: Mapping[str, str],
    ends: Sequence[Connection],
    directory: str,
    start_new_session: bool,
    open_files: int | None,
) -> None:
    os.chdir(directory)
    if start_new_session:
        os.setsid()
    if open_files is not None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (open_files, open_files))
    for number, end in enumerate(ends):
        os.dup2(end.fileno(), number)
        end.close()
    encoding = environment.get("PYTHONIOENCODING", "utf-8")
    sys.stdin = os.fdopen(0, encoding=encoding, closefd=False)
    sys.stdout = os.fdopen(1, "w", encoding=encoding, closefd=False)
    sys.stderr = os.fdopen(2, "w", 1, encoding=encoding, errors="backslashreplace", closefd=False)
    os.environ.clear()
    os.environ.update(environment)
    if "PYTHONWARNINGS" in environment:
        warnings.simplefilter("error")
    gc.freeze()  # garbage collection then skips imported objects, which so stay shared
    importlib.reload(failpoints)  # the failpoint is read from the environment
    sys.exit(main(arguments))
