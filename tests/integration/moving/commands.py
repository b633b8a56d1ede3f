"""The commands for whole journals in separate processes, and servers on their results."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from tests.kit.servers.forking import Forked
from tests.kit.servers.processes import FLUSH_OFTEN, ServerProcess, own_environment
from tuskpoint import Client
from tuskpoint_server.__main__ import main as tuskpoint_server

SECONDS = 60.0


class Ended(NamedTuple):
    """The end of a program."""

    code: int
    out: str
    errors: str

    @property
    def line(self) -> str:
        """Only line on stderr."""
        [line] = self.errors.splitlines()
        return line.removeprefix("tuskpoint-server: ")


def run(log: Path, *arguments: str, failpoint: str = "") -> Ended:
    """Run a command to its end; with a failpoint, until the failpoint kills it."""
    log.unlink(missing_ok=True)
    environment = own_environment() | ({"TUSKPOINT_FAILPOINT": failpoint} if failpoint else {})
    process = Forked(tuskpoint_server, arguments, environment, log)
    out = b""
    while piece := os.read(process.output.fileno(), 65536):
        out += piece
    return Ended(process.wait(SECONDS), out.decode(), log.read_text("utf-8"))


@contextmanager
def serving(
    folder: Path, blobs: Path, settings: Mapping[str, str] | None = None
) -> Iterator[tuple[ServerProcess, Client]]:
    """Run a server on `folder/data` that evicts certified values; stop it at the end."""
    chosen = {**FLUSH_OFTEN, "TUSKPOINT_BLOB_DIR": str(blobs), **(settings or {})}
    with ServerProcess(folder, chosen) as server:
        server.start()
        with Client(server.target) as client:
            yield server, client
        assert server.stop() == 0, server.last_words()
