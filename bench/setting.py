"""What a run of the measurements has to work with."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.running.postgres import LeftOutError, running_postgres

_CONNECTIONS = 300
"""Connections that the processes of the measures may have open to PostgreSQL together."""


@dataclass(frozen=True, slots=True)
class Setting:
    """One run.

    Attributes:
        quick: Smaller counts, for a first impression.
        folder: An empty directory for whatever the measures store; removed afterwards.
        postgres: Where PostgreSQL listens, as libpq writes it; empty if there is none.
        left_out: Why there is no PostgreSQL; empty if there is one.
    """

    quick: bool
    folder: Path
    postgres: str
    left_out: str

    def place(self, name: str) -> Path:
        """Return a new empty directory whose name begins with `name`."""
        return Path(tempfile.mkdtemp(prefix=f"{name}-", dir=self.folder))


@contextmanager
def prepared(*, quick: bool, postgres: str, wants_postgres: bool) -> Iterator[Setting]:
    """Make the folder and find or start PostgreSQL.

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
