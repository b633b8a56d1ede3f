"""A TuskPoint server for tests and notebooks, in a separate process."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

__all__ = ["RunningServer", "server"]

_START_S = 60.0
_LISTENING = b"tuskpoint-server listening on "
_LAST_LINES = 20
_SETTINGS = ("TUSKPOINT_", "WALRUS_", "MEMWAL_", "OTEL_")

# The end of its standard input tells the server that its parent has ended, in any way.
_PROGRAM = """
import os, sys, threading

def end_with_the_parent():
    os.read(0, 1)
    os._exit(1)

threading.Thread(target=end_with_the_parent, daemon=True).start()
from tuskpoint_server.__main__ import main
sys.exit(main())
"""


@dataclass(frozen=True, slots=True)
class RunningServer:
    """A running server.

    Attributes:
        target: Address of the server, `host:port`.
        folder: Temporary folder with the server's data, and its log in `server.log`.
    """

    target: str
    folder: Path


@contextmanager
def server() -> Iterator[RunningServer]:
    """Run a server on a free port of this machine until the end of the block.

    The server uses only default settings: it ignores the `TUSKPOINT_` variables of this process.
    The server is killed, and its folder removed, at the end of the block or of this process. An
    event loop may be running: the block starts a program and uses no loop.

    Yields:
        The server, ready for calls.

    Raises:
        ImportError: The package tuskpoint-server is not installed.
        RuntimeError: The server did not start; the message has the end of its log.
    """
    if importlib.util.find_spec("tuskpoint_server") is None:
        raise ImportError(
            "tuskpoint.testing needs the package tuskpoint-server, which is not installed: "
            "pip install tuskpoint-server",
            name="tuskpoint_server",
        )
    with tempfile.TemporaryDirectory(prefix="tuskpoint-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        with (folder / "server.log").open("wb") as log, _start(folder, log) as process:
            try:
                yield RunningServer(_address(process, folder), folder)
            finally:
                process.kill()


def _start(folder: Path, log: IO[bytes]) -> subprocess.Popen[bytes]:
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(_SETTINGS)
    }
    arguments = ["--listen", "127.0.0.1:0", "--data-dir", str(folder / "data")]
    return subprocess.Popen(  # noqa: S603 - this interpreter, with the program above
        [sys.executable, "-c", _PROGRAM, *arguments],
        cwd=folder,
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=log,
    )


def _address(process: subprocess.Popen[bytes], folder: Path) -> str:
    """Wait until a server listens, and return its address."""
    late = threading.Timer(_START_S, process.kill)
    late.start()
    try:
        for line in process.stdout or ():
            if line.startswith(_LISTENING):
                return line.removeprefix(_LISTENING).split()[0].decode()
    finally:
        late.cancel()
    log = (folder / "server.log").read_text("utf-8", "replace").splitlines()[-_LAST_LINES:]
    raise RuntimeError("\n".join(["tuskpoint-server did not start:", *log]))
