"""Refuses a start with a journal or a blob store that earlier runs did not leave.

docs/servers/recovery.md says what to do then, and what the two flags give up.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack

from ...archive.archive import StoreChangedError
from ...archive.flush.catalog_repair import repair_catalog
from ...archive.flush.packs import Pointer
from ...archive.rows import status
from ...blobs.api import BlobStore
from ...blobs.cache import origin
from ...config.blob_stores import open_blobs, or_accept
from ...config.composition import end_on_refusal, open_journal, store_changed
from ...config.settings import Config
from ...core import process
from ...features.recovery import compare_start
from ...features.recovery.compare_start import EarlierCatalogs, UnreachedCatalog
from ...journal.clock import JournalClock
from ...journal.database.database import Database
from ...journal.moving.restoring import give_new_identity
from ...journal.sql.journal_metadata import backend_of
from ...keys.provider import KeyProvider

_log = logging.getLogger(__name__)


def require_publisher(config: Config) -> None:
    """Refuse Walrus settings that can read blobs but not store them."""
    if config.walrus_aggregator_url and not config.walrus_publisher_url:
        raise process.ConfigError(
            "--walrus-aggregator-url is set and --walrus-publisher-url is not; a server "
            "needs a publisher to store blobs"
        )


async def open_stores(
    config: Config, keys: KeyProvider | None, clock: JournalClock, stack: AsyncExitStack
) -> tuple[Database, BlobStore]:
    """Open the journal and the blob store until the end of the stack.

    Both must be the ones that earlier runs left, unless the settings accept others.

    Raises:
        StartError: Journal or blob store are others, or cannot be used.
    """
    journal = await open_journal(config, keys, clock=clock)
    async with AsyncExitStack() as failing:
        failing.push_async_callback(journal.close)
        remains = await _read_left(config, journal)
        await _check_kind(config, journal)
        blobs = _open_blobs(config, remains)
        stack.push_async_callback(blobs.close)
        if remains.damaged:
            with end_on_refusal():
                for tenant in remains.damaged:
                    await repair_catalog(journal, origin(blobs), keys, tenant)
            remains = await _read_left(config, journal)
        if await _compare(config, journal, remains, blobs, keys):
            journal = await open_journal(config, keys, clock=clock)
        failing.pop_all()
    stack.push_async_callback(journal.close)
    return journal, blobs


async def _read_left(config: Config, journal: Database) -> EarlierCatalogs:
    """Return the traces of earlier runs, before anything is written."""
    try:
        with end_on_refusal(), process.require_usable("catalog pointer", config.pointer):
            return await compare_start.read_earlier_catalogs(Pointer(config.pointer), journal)
    except UnicodeDecodeError:
        raise process.ConfigError(
            f"--catalog-pointer {config.pointer}, or a file beside it, is not text"
        ) from None


async def _check_kind(config: Config, journal: Database) -> None:
    """Refuse another kind of store than the journal's before the store is searched."""
    kind = config.bucket.partition("://")[0] or "directory"
    kind = "walrus" if config.walrus_aggregator_url else kind
    with end_on_refusal():
        home = await journal.query(status.store_kind)
    if home not in (None, kind):
        raise store_changed(config, StoreChangedError(home, kind)) from None


def _open_blobs(config: Config, remains: EarlierCatalogs) -> BlobStore:
    """Open the blob store that earlier runs left."""
    accepted = {*config.accept_missing_blobs, *config.accept_older_journal}
    return open_blobs(config, [blob_id for blob_id in remains.needed if blob_id not in accepted])


async def _compare(
    config: Config,
    journal: Database,
    remains: EarlierCatalogs,
    blobs: BlobStore,
    keys: KeyProvider | None,
) -> bool:
    """Refuse a journal or a blob store that earlier runs did not leave.

    Accepted differences are logged again, and kept. An accepted older journal gets a new
    generation, so that no number of a catalog is used twice. The journal is then closed; return
    whether it was.
    """
    store = origin(blobs)
    with end_on_refusal():
        missing_catalogs = await compare_start.find_missing_catalogs(
            remains, store, time.time_ns() // 1000
        )
        newer_catalogs, unclear_tenants = await compare_start.find_newer_catalogs(
            remains, store, keys, is_shared=journal.is_shared
        )
        abandoned_catalogs = await compare_start.find_returned_catalogs(
            remains, store, keys, journal.generation
        )
    _refuse_missing(config, store, missing_catalogs)
    _refuse_older(
        config,
        newer_catalogs or abandoned_catalogs,
        beside="" if newer_catalogs else "a file beside ",
    )
    for blob_id, tenant in missing_catalogs.items():
        _log.error(
            "ACCEPTED: the blob store lacks catalog %s of tenant %s; what the journal and the "
            "cache have is stored again, and what is lost is listed",
            blob_id,
            tenant,
        )
    generations = [catalog.generation for catalog in (*newer_catalogs, *abandoned_catalogs)]
    generation = max(generations, default=0)  # the journal's own number is at least 1
    is_behind = journal.generation <= generation or not all(generations)
    if is_behind:
        await journal.close()
        await _give_new_identity(config, generation)
    pointer = Pointer(config.pointer)
    for catalog in abandoned_catalogs if not newer_catalogs else ():
        _log.error("tenant %s: ACCEPTED: %s", catalog.tenant, catalog.why)
    accepted = {catalog.tenant: f"ACCEPTED: {catalog.why}" for catalog in newer_catalogs}
    for tenant, problem in {
        **accepted,
        **dict.fromkeys(unclear_tenants, "it cannot be compared"),
    }.items():
        if tenant not in remains.named:
            _log.error("tenant %s: %s", tenant, problem)
            continue
        with process.require_usable("catalog pointer", config.pointer):
            path = pointer.set_aside(tenant)
        catalog_id = remains.named[tenant]
        _log.error(
            "tenant %s: %s; %s keeps the name of catalog %s", tenant, problem, path, catalog_id
        )
    return is_behind


def _refuse_missing(config: Config, store: BlobStore, catalogs: Mapping[str, str]) -> None:
    blob_ids = [blob_id for blob_id in catalogs if blob_id not in config.accept_missing_blobs]
    if not blob_ids:
        return
    place = config.bucket or f"directory {config.blob_directory}"
    raise process.StartError(
        process.EXIT_ARCHIVE,
        f"blob store {'Walrus' if config.walrus_aggregator_url else place} lacks "
        f"{_list_catalogs(blob_ids, catalogs)}, so it has lost blobs or belongs to another "
        f"journal than {config.journal_name}: bring the blobs back, or name the right store"
        + or_accept("missing-blobs", blob_ids),
    )


def _refuse_older(config: Config, catalogs: Sequence[UnreachedCatalog], *, beside: str) -> None:
    refused = {
        catalog.blob_id: catalog
        for catalog in catalogs
        if catalog.blob_id not in config.accept_older_journal
    }
    if not refused:
        return
    [first, *_] = refused.values()
    tenants = {blob_id: catalog.tenant for blob_id, catalog in refused.items()}
    raise process.StartError(
        process.EXIT_JOURNAL,
        f"{beside}the catalog pointer {config.pointer} names "
        f"{_list_catalogs([*refused], tenants)}, and {first.why}: "
        f"{config.journal_name} is older, or the journal of another server; bring "
        "the right one back, or recover from that catalog" + or_accept("older-journal", [*refused]),
    )


def _list_catalogs(blob_ids: Sequence[str], tenants: Mapping[str, str]) -> str:
    """Return catalogs as text for a line."""
    return ", ".join(f"catalog {blob_id} of tenant {tenants[blob_id]}" for blob_id in blob_ids)


async def _give_new_identity(config: Config, generation: int) -> None:
    """Give an older, closed journal another ID and a higher generation."""
    backend = backend_of(config.journal_place)
    try:
        await asyncio.to_thread(give_new_identity, backend, generation, trusted=False)
    except Exception as error:
        problem = backend.storage_problem(error)
        if problem is None:
            raise
        raise process.StartError(
            process.EXIT_JOURNAL,
            f"journal {config.journal_name} cannot begin a new generation: {problem}; stop every "
            "other server of it first",
        ) from error
