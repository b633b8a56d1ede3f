"""The saver's methods for asyncio, from which the blocking ones are generated.

`make sync` writes the package `_sync` from this one. Methods without a blocking
counterpart are in `..saver`.
"""

from .changes import AsyncChanges
from .lineage import AsyncLineage
from .reads import AsyncReads
from .search import AsyncSearch


class AsyncMethods(AsyncReads, AsyncChanges, AsyncLineage, AsyncSearch):
    """All methods for asyncio."""
