"""The measured processes: TuskPoint's server, a bare echo, and an emulated Walrus."""

from __future__ import annotations

import os
import secrets
import select
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.running.walrus import Walrus
from bench.usage.threads import Times, times_of

_LISTENING = " listening on "
_START_SECONDS = 30.0
_STOP_SECONDS = 30.0
_TIMED = "bench.running.timed_server"
# Variables that would change a measured process.
_FOREIGN = ("TUSKPOINT_", "WALRUS_", "MEMWAL_", "OTEL_")


@dataclass(frozen=True, slots=True)
class Server:
    """A server process that listens on the loopback interface.

    Attributes:
        target: Its HOST:PORT.
        pid: Its process ID.
        data_dir: The data directory.
        process: The process, if it reports the times of its threads.
    """

    target: str
    pid: int
    data_dir: Path
    process: subprocess.Popen[bytes] | None = None

    def cpu_seconds(self) -> float:
        """Return the processor time that the process has used, all threads together.

        From fields 14 and 15 of `/proc/PID/stat`, proc(5); the resolution is a clock
        tick, commonly 10 ms.
        """
        fields = Path(f"/proc/{self.pid}/stat").read_text(encoding="ascii").rpartition(")")[2]
        user, system = fields.split()[11:13]
        return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")

    def thread_times(self) -> Times:
        """Return the processor time of each thread of a server that was started `timed`."""
        assert self.process is not None
        return times_of(self.process)


def counts_cpu() -> bool:
    """Return whether this system shows the processor time of other processes."""
    return Path("/proc/self/stat").exists()


@contextmanager
def running_tuskpoint(
    folder: Path, settings: Mapping[str, str] | None = None, *, timed: bool = False
) -> Iterator[Server]:
    """Run TuskPoint's server on an empty data directory below `folder`.

    Args:
        folder: Where its files and its log go.
        settings: Environment variables to set besides the defaults of the server.
        timed: Whether the server reports the times of its threads.
    """
    data_dir = folder / "data"
    command = ["tuskpoint_server", "--listen", "127.0.0.1:0", "--data-dir", str(data_dir)]
    log = folder / "server.log"
    with _running(command, log, data_dir, settings or {}, timed=timed) as server:
        yield server


@contextmanager
def running_walrus(folder: Path, put_seconds: float = 0.0) -> Iterator[Walrus]:
    """Run the Walrus emulator with a publisher that accepts 8 PUTs at once, like a real one.

    Args:
        folder: Where its log goes.
        put_seconds: Added seconds of each PUT.
    """
    command = ["tuskpoint_emulators.walrus.program", "--listen", "127.0.0.1:0"]
    command += ["--latency", str(put_seconds)]
    with (
        _running(command, folder / "walrus.log", folder, {}) as process,
        Walrus.reached(f"http://{process.target}") as walrus,
    ):
        yield walrus


@contextmanager
def running_echo(folder: Path, *, timed: bool = False) -> Iterator[Server]:
    """Run the bare echo of `bench.running.echo_server`."""
    command = ["bench.running.echo_server"]
    with _running(command, folder / "echo.log", folder, {}, timed=timed) as server:
        yield server


@contextmanager
def running_relay(folder: Path, address: str, seconds: float) -> Iterator[str]:
    """Run a relay to an address that delays each direction; yields its own HOST:PORT."""
    command = ["bench.running.relay", address, str(seconds)]
    log = folder / f"relay-{secrets.token_hex(4)}.log"
    with _running(command, log, folder, {}) as server:
        yield server.target


@contextmanager
def _running(
    command: list[str],
    log: Path,
    data_dir: Path,
    settings: Mapping[str, str],
    *,
    timed: bool = False,
) -> Iterator[Server]:
    """Run a module with arguments inside the context."""
    launcher = [_TIMED] if timed else []
    variables = {name: text for name, text in os.environ.items() if not name.startswith(_FOREIGN)}
    with (
        log.open("wb") as errors,
        subprocess.Popen(
            [sys.executable, "-m", *launcher, *command],
            stdin=subprocess.PIPE if timed else None,
            stdout=subprocess.PIPE,
            stderr=errors,
            env={**variables, **settings},
        ) as process,
    ):
        try:
            yield Server(_target(process, log), process.pid, data_dir, process if timed else None)
        finally:
            _stop(process)


def _target(process: subprocess.Popen[bytes], log: Path) -> str:
    """Return the HOST:PORT from the first line that the process prints."""
    assert process.stdout is not None
    deadline = time.monotonic() + _START_SECONDS
    printed = b""
    while not printed.endswith(b"\n"):
        seconds_left = deadline - time.monotonic()
        ready, _, _ = select.select([process.stdout], [], [], max(seconds_left, 0))
        piece = os.read(process.stdout.fileno(), 4096) if ready else b""
        if not piece:
            words = log.read_text(encoding="utf-8", errors="replace")[-2000:]
            raise RuntimeError(f"the server did not start: {words}")
        printed += piece
    return printed.decode().rpartition(_LISTENING)[2].strip()


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(_STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
