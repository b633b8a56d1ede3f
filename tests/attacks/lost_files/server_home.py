"""A server whose journal, blobs and pointer file are in three directories that tests delete."""

from __future__ import annotations

import shutil
import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path

from tests.integration.moving.commands import run
from tests.kit.servers.processes import ServerProcess
from tuskpoint import Client

KEEPING = {"TUSKPOINT_FLUSH_INTERVAL": "0.2"}  # The journal keeps the values.
SECONDS = 60.0
SAID = "tuskpoint-server: "


class Home:
    """A server whose journal, blobs and pointer file are in three directories.

    Attributes:
        blobs: The blob directory.
        pointer: The pointer file.
    """

    def __init__(self, folder: Path, settings: Mapping[str, str] | None = None) -> None:
        self.folder = folder
        self.blobs = folder / "blobs"
        self.pointer = folder / "elsewhere" / "catalog"
        self.data = folder / "data"
        self._settings = {
            **KEEPING,
            "TUSKPOINT_BLOB_DIR": str(self.blobs),
            "TUSKPOINT_CATALOG_POINTER": str(self.pointer),
            **(settings or {}),
        }

    @property
    def named(self) -> str:
        """The catalog that the pointer file names."""
        return self.pointer.read_text("utf-8").strip()

    def server(self, **changed: object) -> ServerProcess:
        """Return the server, not yet started; `changed` overrides settings by name."""
        variables = {f"TUSKPOINT_{name.upper()}": str(value) for name, value in changed.items()}
        return ServerProcess(self.folder, self._settings | variables)

    @contextmanager
    def serving(self, **changed: object) -> Iterator[Client]:
        """Run the server, and connect to it."""
        with self.server(**changed) as server:
            server.start()
            with Client(server.target) as client:
                yield client
            assert server.stop() == 0, server.last_words()

    def refused(self, code: int, **changed: object) -> str:
        """Start the server, which must exit with this code; return its one line of output."""
        with self.server(**changed) as server:
            server.log.unlink(missing_ok=True)
            server.launch()
            assert server.ended(SECONDS) == code, server.last_words()
            lines = server.log.read_text("utf-8").splitlines()
        [line] = [line for line in lines if line.startswith(SAID)]
        assert lines[-1] == line
        return line.removeprefix(SAID)

    def roll_back(self, kept: Path) -> None:
        """Replace the data directory with an older copy."""
        shutil.rmtree(self.data)
        shutil.copytree(kept, self.data)

    def recovered(self, catalog: str, folder: Path) -> list[str]:
        """Recover from a catalog; return the checkpoints of thread "t"."""
        arguments = ["--data-dir", str(folder / "data"), "--blob-dir", str(self.blobs)]
        folder.mkdir()
        ended = run(folder / "log", "recover", *arguments, f"--catalog={catalog}")
        assert ended.code == 0, ended.errors
        database = sqlite3.connect(folder / "data" / "journal.db")
        with closing(database):
            return [name for (name,) in database.execute("SELECT checkpoint_id FROM checkpoints")]


def health_of(client: Client) -> str:
    """Return the last error in the server's status."""
    return client.status().last_error


def eventually(reached: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + SECONDS
    while not reached():
        assert time.monotonic() < deadline, what
        time.sleep(0.1)


def catalog_in(data: Path) -> dict[str, object]:
    """Return the position of the newest catalog in a SQLite journal, and the journal's ID."""
    with closing(sqlite3.connect(data / "journal.db")) as database:
        row = database.execute(
            "SELECT generation, number FROM catalogs WHERE tenant = 'default'"
        ).fetchone()
        [identity] = database.execute(
            "SELECT value FROM journal_info WHERE name = 'journal_id'"
        ).fetchone()
    return {"place": tuple(row), "journal_id": identity}
