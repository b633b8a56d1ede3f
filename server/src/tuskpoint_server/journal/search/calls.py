"""What search reads and writes in a journal."""

from __future__ import annotations

from ..database.database import Database
from .finding import FindRows
from .index import IndexRows
from .memories import MemoryRows


class SearchRows:
    """The rows of a journal that search works on.

    Attributes:
        indexing: The index being written.
        finding: The index being read.
        memories: The summaries that MemWal has to have.
    """

    def __init__(self, database: Database) -> None:
        self.indexing = IndexRows(database)
        self.finding = FindRows(database)
        self.memories = MemoryRows(database)
