"""The server as a separate program, on a disk that can be full and with a clock that can jump."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from tests.kit.servers.forking import Forked
from tests.kit.servers.processes import Program, ServerProcess
from tuskpoint_server.__main__ import main as tuskpoint_server

PROGRAM = Path(sys.executable).with_name("tuskpoint-server")
DISK_BYTES = 4 << 30  # The disk uses memory only as it fills.
Process = Forked | subprocess.Popen[bytes]
ROUND_BYTES = 16 * 1024
CLOCK = Path(__file__).with_name("clock.c")


class LeftOutError(Exception):
    """A fault is not possible on this machine; the message says why."""


class SoakServer(ServerProcess):
    """`tuskpoint-server` with a clock of its own.

    Attributes:
        clock: The file with the offset of the server's clock from the real clock; `None` where that
            is not possible.
    """

    def __init__(self, folder: Path, settings: Mapping[str, str]) -> None:
        super().__init__(folder, settings)
        self.clock: Path | None = None
        self._running: _Spawned | None = None
        self._listening: _Spawned | None = None

    def set_clock(self, seconds: int) -> None:
        """Set the server's clock ahead of the real clock by these seconds; negative: behind."""
        assert self.clock is not None
        # A single write of a few bytes into a page that the server has mapped.
        with self.clock.open("r+b", buffering=0) as file:
            file.write(seconds.to_bytes(8, sys.byteorder, signed=True))

    def prepare_clock(self) -> None:
        """Let the server's clock be set.

        Raises:
            LeftOutError: The machine has no C compiler.
        """
        library = self.log.with_name("clock.so")
        command = ["cc", "-O2", "-shared", "-fPIC", "-o", str(library), str(CLOCK)]
        try:
            subprocess.run(command, check=True, capture_output=True, text=True)
        except (OSError, subprocess.CalledProcessError) as error:
            raise LeftOutError(f"{CLOCK.name} cannot be compiled: {_said(error)}") from error
        self.clock = self.log.with_name("clock")
        self.clock.write_bytes(bytes(8))
        self._settings = {
            **self._settings,
            "LD_PRELOAD": str(library),
            "SOAK_CLOCK": str(self.clock),
        }

    @property
    def pid(self) -> int | None:
        """The process ID of the server; `None` until a process has listened."""
        running = self._listening
        return running.pid if running is not None and running.poll() is None else None

    def start(self, failpoint: str = "") -> None:
        """See `ServerProcess`."""
        super().start(failpoint)
        self._listening = self._running

    def give_up(self) -> int | None:
        """Stop a process that did not listen; return its exit code if it ended by itself."""
        assert self._running is not None
        try:
            return self.ended(1.0)
        except subprocess.TimeoutExpired:
            self.kill()
            return None

    def _run(self, arguments: Sequence[str], environment: Mapping[str, str]) -> Program:
        if self.clock is None:
            process: Process = Forked(tuskpoint_server, arguments, environment)
        else:  # The process loads the library of the clock at its start.
            process = subprocess.Popen(
                [PROGRAM, *arguments],
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
            )
        self._running = _Spawned(process, self.log)
        return self._running

    @contextmanager
    def failing_writes(self) -> Iterator[None]:
        """Let each write to a file fail with EFBIG, as on a broken disk."""
        pid = self.pid
        # The process may be killed meanwhile; the next process has no such limit.
        with suppress(ProcessLookupError):
            if pid is not None:
                _, greatest = resource.prlimit(pid, resource.RLIMIT_FSIZE)
                resource.prlimit(pid, resource.RLIMIT_FSIZE, (0, greatest))
        yield
        with suppress(ProcessLookupError):
            if pid is not None and self.pid == pid:
                resource.prlimit(pid, resource.RLIMIT_FSIZE, (greatest, greatest))


class _Spawned:
    """A process whose log is written by a thread of this process, so that no fault affects the
    log."""

    def __init__(self, process: Process, log: Path) -> None:
        self._process = process
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        self.output = self._process.stdout
        self._logging = threading.Thread(
            target=_copy, args=(self._process.stderr, log), daemon=True
        )
        self._logging.start()

    @property
    def pid(self) -> int:
        return self._process.pid

    def send_signal(self, number: int) -> None:
        self._process.send_signal(number)

    def poll(self) -> int | None:
        return self._process.poll()

    def wait(self, seconds: float) -> int:
        code = self._process.wait(seconds)
        self._logging.join()
        self.output.close()
        return code


def _copy(errors: IO[bytes], log: Path) -> None:
    with errors, log.open("ab") as file:
        for line in errors:
            file.write(line)
            file.flush()


def _said(error: Exception) -> str:
    return str(getattr(error, "stderr", "") or error).strip()


class Disk:
    """A file system in memory for the server's data directory.

    Args:
        path: The mount point.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    @contextmanager
    def mounted(self) -> Iterator[None]:
        """Mount the file system.

        Raises:
            LeftOutError: This process may not mount file systems.
        """
        self._path.mkdir(parents=True)
        try:
            self._mount("-t", "tmpfs", "-o", f"size={DISK_BYTES},mode=700", "soak")
        except (OSError, subprocess.CalledProcessError) as error:
            raise LeftOutError(f"no file system can be mounted: {_said(error)}") from error
        try:
            yield
        finally:
            subprocess.run(["umount", "--lazy", str(self._path)], check=True)

    def _mount(self, *options: str) -> None:
        subprocess.run(
            ["mount", *options, str(self._path)], check=True, capture_output=True, text=True
        )

    @contextmanager
    def full(self) -> Iterator[None]:
        """Limit the disk to its used size, so that no space is free."""
        while True:
            stats = os.statvfs(self._path)
            used = (stats.f_blocks - stats.f_bfree) * stats.f_frsize
            try:
                self._mount("-o", f"remount,size={used + ROUND_BYTES}")
                break
            except subprocess.CalledProcessError:
                continue  # The server has written meanwhile.
        filling = self._path / ".filling"
        with suppress(OSError), filling.open("wb", buffering=0) as file:
            while True:
                file.write(bytes(1024))
        yield
        filling.unlink()
        self._mount("-o", f"remount,size={DISK_BYTES}")
