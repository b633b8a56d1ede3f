"""Usage of this machine by PostgreSQL's processes."""

from __future__ import annotations

from pathlib import Path

import psycopg


class DatabaseProcesses:
    """The processes of a PostgreSQL server on this machine.

    Args:
        dsn: The connection string.
    """

    def __init__(self, dsn: str) -> None:
        with psycopg.connect(dsn) as connection:
            backend = connection.info.backend_pid
        parent = _parent_of(backend)
        self._postmaster = parent if parent is not None and _is_postgres(parent) else None

    def nanoseconds(self) -> int:
        """Return the processor time of all processes; 0 if they run on another machine."""
        times = (_read(process, "schedstat") for process in self._running())
        return sum(int(text.split()[0]) for text in times if text)

    def resident_bytes(self) -> int:
        """Return the resident memory of all processes; shared memory counts once."""
        total = 0
        for process in self._running():
            for line in _read(process, "smaps_rollup").splitlines():
                if line.startswith("Pss:"):
                    total += int(line.split()[1]) * 1024
        return total

    def _running(self) -> list[int]:
        if self._postmaster is None:
            return []
        children = _read(self._postmaster, f"task/{self._postmaster}/children")
        return [self._postmaster, *map(int, children.split())]


def _read(process: int, name: str) -> str:
    try:
        return Path(f"/proc/{process}/{name}").read_text(encoding="utf-8")
    except OSError:
        return ""  # the process ended


def _parent_of(process: int) -> int | None:
    stat = _read(process, "stat")
    return int(stat.rpartition(")")[2].split()[1]) if stat else None


def _is_postgres(process: int) -> bool:
    return _read(process, "comm").startswith("postgres")
