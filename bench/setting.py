"""The setting of a run of the measures."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.running.postgres import LeftOutError, running_postgres

_CONNECTIONS = 300
"""Most open connections of all measuring processes to PostgreSQL."""


@dataclass(frozen=True, slots=True)
class Setting:
    """One run.

    Attributes:
        quick: Smaller counts, for a first impression.
        folder: An empty directory for the measures' files; removed afterwards.
        postgres: PostgreSQL's address in libpq's form; empty without PostgreSQL.
        left_out: Why PostgreSQL is missing; empty if it runs.
    """

    quick: bool
    folder: Path
    postgres: str
    left_out: str

    def place(self, name: str) -> Path:
        """Return a new empty directory whose name starts with `name`."""
        return Path(tempfile.mkdtemp(prefix=f"{name}-", dir=self.folder))


@contextmanager
def prepared(*, quick: bool, postgres: str, wants_postgres: bool) -> Iterator[Setting]:
    """Create the folder and find or start PostgreSQL.

    Args:
        quick: Smaller counts.
        postgres: A DSN that the caller gave; empty to start a server if the machine has one.
        wants_postgres: Whether any measure of this run compares with it.
    """
    reason = ""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tuskpoint-bench-")))
        if wants_postgres:
            try:
                postgres = postgres or stack.enter_context(
                    running_postgres(f"max_connections={_CONNECTIONS}")
                )
            except LeftOutError as left_out:
                postgres, reason = "", str(left_out)
        yield Setting(quick, folder, postgres, reason)
