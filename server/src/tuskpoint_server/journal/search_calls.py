"""The rows of a journal that search works on."""

from __future__ import annotations

from .finding import FindRows
from .indexing import IndexRows
from .journal import SqlJournal
from .memories import MemoryRows


class SearchRows:
    """What search reads and writes in a `SqlJournal`.

    Attributes:
        indexing: The index being written.
        finding: The index being read.
        memories: What MemWal is to be told.
    """

    def __init__(self, journal: SqlJournal) -> None:
        self.indexing = IndexRows(journal)
        self.finding = FindRows(journal)
        self.memories = MemoryRows(journal)
