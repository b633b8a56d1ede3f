"""What the archive needs of a journal."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeVar

_T = TypeVar("_T")

Work = Callable[[Any], _T]
"""Runs on a database connection, which only the journal's own modules look into."""


class ArchiveJournal(Protocol):
    """A journal that runs the archive's work on its database."""

    async def transact(self, work: Work[_T]) -> _T:
        """Run work in a write transaction; return once it is fsynced."""

    async def query(self, work: Work[_T]) -> _T:
        """Run work on a snapshot."""
