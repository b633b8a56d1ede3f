"""The processes of a crash test: the server that is killed and the writer that is not."""

from __future__ import annotations

import os
import random
import select
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from types import TracebackType
from typing import Self

import httpx

ROOT = Path(__file__).resolve().parents[2]
START_SECONDS = 30.0
STOP_SECONDS = 30.0
LISTENING = "tuskpoint-server listening on "
WALRUS_LISTENING = "tuskpoint-walrus listening on "
SQLITE_HEADER = b"SQLite format 3\0"

# So short that the archive is at work whenever a kill comes; what it certified leaves the
# journal soon after.
FLUSH_OFTEN = {
    "TUSKPOINT_FLUSH_INTERVAL": "0.2",
    "TUSKPOINT_JOURNAL_BYTES": "0",
    "TUSKPOINT_EVICTION_INTERVAL": "0.1",
    "TUSKPOINT_EVICTION_GRACE": "0",
}


class ServerEndedError(Exception):
    """The server ended before it listened; the message is the end of its log."""


def unused_port() -> int:
    """Return a free port below the ephemeral range.

    A client that keeps dialling a free ephemeral port on the loopback interface can be given
    that very port as its own, and so take it from the server that comes back.
    """
    for port in random.sample(range(20_000, 32_000), 100):
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
        self.data_dir = folder / "data"
        self.log = folder / "server.log"
        self.target = f"127.0.0.1:{unused_port()}"
        self._settings = FLUSH_OFTEN if settings is None else settings
        self._process: subprocess.Popen[bytes] | None = None

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

    @property
    def process(self) -> subprocess.Popen[bytes]:
        """The process that runs now."""
        assert self._process is not None
        return self._process

    def launch(self, failpoint: str = "") -> None:
        """Start the process and return at once."""
        assert self._process is None
        environment = {**own_environment(), **self._settings}
        if failpoint:
            environment["TUSKPOINT_FAILPOINT"] = failpoint
        command = [sys.executable, "-m", "tuskpoint_server", "--listen", self.target]
        with self.log.open("ab") as errors:
            self._process = subprocess.Popen(
                [*command, "--data-dir", str(self.data_dir)],
                stdout=subprocess.PIPE,
                stderr=errors,
                env=environment,
            )

    def start(self, failpoint: str = "") -> None:
        """Start the process and wait until it listens.

        Raises:
            ServerEndedError: It ended instead.
        """
        self.launch(failpoint)
        if await_line(self.process, LISTENING) is None:
            raise ServerEndedError(self.last_words())

    def kill(self) -> None:
        """SIGKILL, unless it has ended already."""
        self.process.kill()
        self.ended(STOP_SECONDS)

    def stop(self) -> int:
        """SIGTERM; return the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.ended(STOP_SECONDS)

    def ended(self, seconds: float) -> int:
        """Wait until it ends; return the exit code."""
        process = self.process
        code = process.wait(seconds)
        assert process.stdout is not None
        process.stdout.close()
        self._process = None
        return code

    def last_words(self) -> str:
        """Return the end of its log."""
        return self.log.read_text(encoding="utf-8", errors="replace")[-3000:]


class WalrusProcess:
    """The emulator of a Walrus publisher and aggregator, which nothing kills."""

    def __init__(self, *options: str) -> None:
        command = [sys.executable, "-m", "tuskpoint_emulators.walrus.program"]
        self._process = subprocess.Popen(
            [*command, "--listen", "127.0.0.1:0", *options], stdout=subprocess.PIPE
        )
        address = await_line(self._process, WALRUS_LISTENING)
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
        assert self._process.stdout is not None
        self._process.stdout.close()

    @property
    def settings(self) -> dict[str, str]:
        """Variables with which a server stores there."""
        return {"WALRUS_PUBLISHER_URL": self.url, "WALRUS_AGGREGATOR_URL": self.url}

    def strike(self, operation: str, probability: float, **fault: object) -> None:
        """Let requests of an operation meet a fault by chance."""
        answer = httpx.post(
            f"{self.url}/emulator/faults",
            json={"operation": operation, "probability": probability, "fault": fault},
            trust_env=False,
        )
        assert answer.is_success, answer.text

    def advance(self, epochs: int) -> None:
        """Let epochs pass."""
        answer = httpx.post(
            f"{self.url}/emulator/epochs", json={"advance": epochs}, trust_env=False
        )
        assert answer.is_success, answer.text

    def calm(self) -> None:
        """Let nothing go wrong any more."""
        answer = httpx.delete(f"{self.url}/emulator/faults", trust_env=False)
        assert answer.is_success, answer.text


class WriterProcess:
    """The process of `tests.crash.writer`."""

    def __init__(self, folder: Path, target: str, seed: str, *options: str) -> None:
        self.ledger = folder / f"ledger-{seed}.jsonl"
        self._log = folder / f"writer-{seed}.log"
        arguments = ["--target", target, "--ledger", str(self.ledger), "--seed", seed, *options]
        with self._log.open("ab") as errors:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.crash.writer", *arguments], cwd=ROOT, stderr=errors
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.process.kill()
        self.process.wait()

    def check_alive(self) -> None:
        """Fail if it ended by itself."""
        code = self.process.poll()
        assert code is None, f"the writer ended with {code}: {self.last_words()}"

    def stop(self) -> None:
        """Let it finish the requests under way, and end."""
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(STOP_SECONDS)
        assert code == 0, f"the writer ended with {code}: {self.last_words()}"

    def last_words(self) -> str:
        """Return the end of its log."""
        return self._log.read_text(encoding="utf-8", errors="replace")[-3000:]


def own_environment() -> dict[str, str]:
    """Return the environment without settings of a server."""
    return {
        name: text
        for name, text in os.environ.items()
        if not name.startswith(("TUSKPOINT_", "WALRUS_", "MEMWAL_"))
    }


def await_line(process: subprocess.Popen[bytes], beginning: str) -> str | None:
    """Return what follows this beginning of a line of output; `None` if it never comes."""
    output = process.stdout
    assert output is not None
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


def broken_databases(data_dir: Path) -> list[str]:
    """Return what SQLite finds wrong with a copy of the files that a killed server left.

    A copy, because opening the files themselves would do part of the next server's recovery.
    """
    problems = []
    for path in sorted(data_dir.rglob("*")):
        if not path.is_file() or not is_database(path):
            continue
        with tempfile.TemporaryDirectory() as folder:
            copy = Path(folder) / path.name
            shutil.copy(path, copy)
            log = path.with_name(path.name + "-wal")
            if log.exists():
                shutil.copy(log, copy.with_name(log.name))
            with closing(sqlite3.connect(copy)) as database:
                found = [row[0] for row in database.execute("PRAGMA integrity_check")]
        if found != ["ok"]:
            problems.append(f"{path.name}: {found}")
    return problems


def is_database(path: Path) -> bool:
    """Tell whether a file is an SQLite database."""
    with path.open("rb") as file:
        return file.read(len(SQLITE_HEADER)) == SQLITE_HEADER
