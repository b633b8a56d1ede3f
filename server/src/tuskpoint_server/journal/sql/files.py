"""The files that connections of a SQLite journal opened, compared with the files at their paths.

If a file is removed or replaced while SQLite has it open, SQLite continues, and accepts commits
that no later start finds. In WAL mode SQLite itself does not check this.
"""

from __future__ import annotations

import logging
import os
import threading
from pathlib import Path

from sqlalchemy import Engine, event

RESERVE_BYTES = 64 * 1024
"""Space reserved for a start on a full disk: SQLite's index of the log needs half of it."""

_log = logging.getLogger(__name__)


class Reserve:
    """A file beside the journal whose space is freed for a start on a full disk.

    SQLite needs space to read a journal: it creates the index of the log (`-shm`) at the start, and
    removes the index at a clean stop.
    """

    def __init__(self, journal: Path) -> None:
        self._path = journal.with_name("reserve")

    def use(self) -> bool:
        """Free the reserved space; return whether any was reserved."""
        try:
            self._path.unlink()
        except FileNotFoundError:
            return False
        _log.warning("the space that was kept back for a start on a full disk is used now")
        return True

    def keep(self) -> None:
        """Reserve the space, if it is free."""
        if self._path.exists():
            return
        try:
            with self._path.open("wb") as file:
                file.write(bytes(RESERVE_BYTES))
        except OSError as error:
            self._path.unlink(missing_ok=True)
            _log.warning("no space is kept back for a start on a full disk: %s", error)


class JournalLostError(Exception):
    """The journal was removed or replaced while it was open; the text says which file."""


class OpenFiles:
    """The database file and its write-ahead log, as the connections of an engine opened them.

    Once a file is lost, it stays lost: no further connection is opened.
    """

    def __init__(self, path: Path, engine: Engine) -> None:
        self._database, self._log = str(path), f"{path}-wal"
        self._known: dict[str, tuple[int, int]] = {}
        self._connections = 0
        self._lock = threading.Lock()
        self._lost = ""
        event.listen(engine, "do_connect", self._connecting)
        event.listen(engine, "connect", self._connected)
        event.listen(engine, "close", self._closing)

    def lost(self) -> str:
        """Return the removed or replaced file with advice, for people; empty if no file is lost."""
        with self._lock:
            for path, identity in self._known.items():
                if not self._lost and _identity(path) != identity:
                    self._lost = (
                        f"{path} was removed or replaced while it was open: put the file back or "
                        "restore a backup, and restart the server"
                    )
        return self._lost

    def check(self) -> None:
        """Raise `JournalLostError` if a file was removed or replaced."""
        if problem := self.lost():
            raise JournalLostError(problem)

    def _connecting(self, *_: object) -> None:
        self.check()

    def _connected(self, *_: object) -> None:
        with self._lock:
            self._connections += 1
            for path in (self._database, self._log):
                identity = _identity(path)
                if identity is not None:
                    self._known = {path: identity, **self._known}

    def _closing(self, *_: object) -> None:
        with self._lock:
            self._connections -= 1
            if not self._connections:  # the last connection removes the log
                self._known = {self._database: self._known[self._database]}


def _identity(path: str) -> tuple[int, int] | None:
    try:
        status = os.stat(path)
    except FileNotFoundError:
        return None
    return status.st_dev, status.st_ino
