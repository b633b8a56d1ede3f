"""Servers and emulators in their own processes."""

from __future__ import annotations

import base64
import os
import secrets
import select
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import cycle, islice
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

import httpx

from tests.kit.servers.forking import Forked
from tuskpoint_emulators.walrus import program
from tuskpoint_server.__main__ import main as tuskpoint_server

ROOT = Path(__file__).resolve().parents[3]
START_SECONDS = 30.0
STOP_SECONDS = 30.0
CONTROL_SECONDS = 30.0
LISTENING = "tuskpoint-server listening on "
WALRUS_LISTENING = "tuskpoint-walrus listening on "

# Intervals so short that the archive is at work whenever a kill comes, and that certified values
# leave the journal soon.
FLUSH_OFTEN = {
    "TUSKPOINT_FLUSH_INTERVAL": "0.2",
    "TUSKPOINT_JOURNAL_BYTES": "0",
    "TUSKPOINT_EVICTION_GRACE": "0",
}


class Output(Protocol):
    """The standard output of a process."""

    def fileno(self) -> int: ...


class Program(Protocol):
    """A process that tests start and stop."""

    @property
    def output(self) -> Output:
        """Standard output of the process."""

    def send_signal(self, number: int) -> None:
        """Send a signal, unless the process has ended."""

    def poll(self) -> int | None:
        """Return the exit code, or minus the number of a signal; `None` while the process runs."""

    def wait(self, seconds: float) -> int:
        """Wait until the process ends; return the exit code."""


class ServerEndedError(Exception):
    """The server ended before it listened; the message is the end of the server's log."""


def _ports() -> Iterator[int]:
    """Yield the ports of this worker of pytest, in an endless cycle.

    A server listens seconds after its port was chosen: no other test may choose the port meanwhile.
    """
    worker = os.environ.get("PYTEST_XDIST_WORKER", "gw7")
    own = range(20_000, 32_000)[int(worker.removeprefix("gw")) % 8 :: 8]
    first = secrets.randbelow(len(own))
    return cycle([*own[first:], *own[:first]])


_PORTS = _ports()


def unused_port() -> int:
    """Return a free port below the ephemeral range that was not returned recently.

    A client that keeps dialling a free ephemeral port on the loopback interface can get that port
    as its own source port, and so take the port from a server that restarts.
    """
    for port in islice(_PORTS, 100):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise RuntimeError("no free port")


class ServerProcess:
    """A real server on one data directory and one port, started as often as needed."""

    def __init__(self, folder: Path, settings: Mapping[str, str] | None = None) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.data_dir = folder / "data"
        self.log = folder / "server.log"
        self.target = f"127.0.0.1:{unused_port()}"
        self._settings = FLUSH_OFTEN if settings is None else settings
        self._process: Program | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._process is not None:
            self.kill()

    def launch(self, failpoint: str = "") -> None:
        """Start the process and return at once."""
        assert self._process is None
        environment = {**own_environment(), **self._settings}
        if failpoint:
            environment["TUSKPOINT_FAILPOINT"] = failpoint
        arguments = ["--listen", self.target, "--data-dir", str(self.data_dir)]
        self._process = self._run(arguments, environment)

    def _run(self, arguments: Sequence[str], environment: Mapping[str, str]) -> Program:
        return Forked(tuskpoint_server, arguments, environment, self.log)

    def start(self, failpoint: str = "") -> None:
        """Start the process and wait until it listens.

        Raises:
            ServerEndedError: The process ended instead.
        """
        self.launch(failpoint)
        assert self._process is not None
        if await_line(self._process.output, LISTENING) is None:
            raise ServerEndedError(self.last_words())

    @property
    def is_running(self) -> bool:
        """Whether the process was started, and no call has waited for its end."""
        return self._process is not None

    def kill(self) -> None:
        """Send SIGKILL, unless the process has ended already."""
        assert self._process is not None
        self._process.send_signal(signal.SIGKILL)
        self.ended(STOP_SECONDS)

    def freeze(self) -> None:
        """Send SIGSTOP: the process does nothing, and its connections stay open."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Send SIGCONT."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def stop(self) -> int:
        """Send SIGTERM; return the exit code."""
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        return self.ended(STOP_SECONDS)

    def ended(self, seconds: float) -> int:
        """Wait until the process ends; return the exit code."""
        assert self._process is not None
        code = self._process.wait(seconds)
        self._process = None
        return code

    def last_words(self) -> str:
        """Return the end of the log."""
        return self.log.read_text(encoding="utf-8", errors="replace")[-3000:]


class WalrusProcess:
    """The emulator of a Walrus publisher and aggregator, which no test kills."""

    def __init__(self, *options: str) -> None:
        arguments = ["--listen", "127.0.0.1:0", *options]
        self._process = Forked(program.main, arguments, os.environ, stderr=subprocess.DEVNULL)
        address = await_line(self._process.output, WALRUS_LISTENING)
        assert address is not None, "the emulator did not start"
        self.url = f"http://{address}"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.kill()
        self._process.wait()
        self._process.close()

    @property
    def settings(self) -> dict[str, str]:
        """Variables with which a server stores sealed blobs in the emulator."""
        return {
            "WALRUS_PUBLISHER_URL": self.url,
            "WALRUS_AGGREGATOR_URL": self.url,
            "TUSKPOINT_KEYS": base64.b64encode(bytes(range(32))).decode(),
        }

    def strike(self, operation: str, probability: float, **fault: object) -> None:
        """Let requests of an operation fail at random."""
        answer = httpx.post(
            f"{self.url}/emulator/faults",
            json={"operation": operation, "probability": probability, "fault": fault},
            trust_env=False,
            timeout=CONTROL_SECONDS,
        )
        assert answer.is_success, answer.text

    def advance(self, epochs: int) -> None:
        """Let epochs pass."""
        answer = httpx.post(
            f"{self.url}/emulator/epochs",
            json={"advance": epochs},
            trust_env=False,
            timeout=CONTROL_SECONDS,
        )
        assert answer.is_success, answer.text

    def calm(self) -> None:
        """Remove all faults."""
        answer = httpx.delete(
            f"{self.url}/emulator/faults", trust_env=False, timeout=CONTROL_SECONDS
        )
        assert answer.is_success, answer.text


def own_environment() -> dict[str, str]:
    """Return the environment without settings of a server."""
    return {
        name: text
        for name, text in os.environ.items()
        if not name.startswith(("TUSKPOINT_", "WALRUS_", "MEMWAL_", "OTEL_"))
    }


def await_line(output: Output, beginning: str) -> str | None:
    """Return the rest of the output line with a prefix; `None` if there is no such line."""
    deadline = time.monotonic() + START_SECONDS
    printed = b""
    while beginning.encode() not in printed or not printed.endswith(b"\n"):
        left = max(deadline - time.monotonic(), 0)
        ready, _, _ = select.select([output], [], [], left)
        piece = os.read(output.fileno(), 4096) if ready else b""
        if not piece:
            return None
        printed += piece
    return printed.decode().partition(beginning)[2].split()[0]
