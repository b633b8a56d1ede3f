"""Search as it is configured: the embedder, MemWal, and what runs them.

An embedder that cannot be had ends the start: whoever asked for one would search by words and
not know it. MemWal that cannot be had does not: it may be back, and the log says what is wrong.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from .config import Config
from .journal.database.database import Database
from .recall.embedders.api import Embedder
from .recall.recall import Recall
from .recall.settings import IndexSettings, MemWalSettings

if TYPE_CHECKING:  # it brings an HTTP client, and is imported where it is switched on
    from .recall.memwal.memwal import MemWal

SPARE_POINTS_PER_MINUTE, SPARE_POINTS_PER_HOUR = 5, 50
"""Points of the relayer's rate limit that searches have for themselves."""

_log = logging.getLogger(__name__)


def open_recall(config: Config, journal: Database) -> Recall | None:
    """Return search over a journal, not yet started; `None` if it is switched off.

    Raises:
        EmbedderError: The embedder that is asked for cannot be had.
    """
    if not config.search:
        if config.memwal_private_key.get_secret_value() or config.memwal_account_id:
            _log.warning("MemWal is off: this server runs with --no-search")
        return None
    return Recall(
        journal,
        IndexSettings(
            excluded=frozenset(config.search_exclude), cache_bytes=config.search_cache_bytes
        ),
        embedder=_embedder(config),
        memwal=_memwal(config, journal),
    )


def _embedder(config: Config) -> Embedder | None:
    if config.embedder == "local":
        from .recall.embedders.local import LocalEmbedder

        return LocalEmbedder()
    if config.embedder == "openai":
        from .recall.embedders.openai import OpenAIEmbedder

        return OpenAIEmbedder(
            config.embedder_url,
            config.embedder_model,
            key=config.embedder_key.get_secret_value(),
            dimensions=config.embedder_dimensions,
        )
    return None


def _memwal(config: Config, journal: Database) -> MemWal | None:
    key, account = config.memwal_private_key.get_secret_value(), config.memwal_account_id
    if not key and not account:
        return None
    if not key or not account:
        missing = "MEMWAL_ACCOUNT_ID" if key else "MEMWAL_PRIVATE_KEY"
        _log.error("MemWal is off: %s is not set; search uses the server's own index", missing)
        return None
    from .journal.search.memories import MemoryRows
    from .recall.memwal.memwal import MemWal

    settings = MemWalSettings(
        private_key=key,
        account_id=account,
        server_url=config.memwal_server_url,
        namespace=config.memwal_namespace,
        points_per_minute=config.memwal_points_per_minute,
        points_per_hour=config.memwal_points_per_hour,
        recall_points_per_minute=config.memwal_points_per_minute + SPARE_POINTS_PER_MINUTE,
        recall_points_per_hour=config.memwal_points_per_hour + SPARE_POINTS_PER_HOUR,
    )
    return MemWal(MemoryRows(journal), settings, clock_us=journal.now_us)
