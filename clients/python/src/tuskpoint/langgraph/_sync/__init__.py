# Written by `make sync` from _async/__init__.py; do not edit.
"""The saver's methods that block their thread, generated from the package `_async`."""

from .changes import SyncChanges
from .lineage import SyncLineage
from .reads import SyncReads
from .search import SyncSearch


class SyncMethods(SyncReads, SyncChanges, SyncLineage, SyncSearch):
    """All methods that block their thread."""
