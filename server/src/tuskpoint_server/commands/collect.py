"""The command `tuskpoint-server collect`: removes unneeded blobs of a stopped server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from ..archive.archive import Archive
from ..archive.renew.rewriting import IsOwn, PackRewriter
from ..archive.renew.unneeded import find_unneeded, is_own, remove
from ..archive.rows import status
from ..blobs.cache import CachedStore, origin
from ..blobs.packed import PackStore, StoredFile
from ..config.command_line import settings_parser
from ..config.composition import (
    open_journal,
    open_keys,
    open_lease,
    signing_keys,
    start_archive,
    start_leader,
)
from ..config.settings import Config
from ..config.sources import from_flags
from ..core import process
from ..core.model import BlobLocation
from ..journal.database.database import Database
from ..keys.provider import KeyProvider
from ..keys.signing import Signer
from .stopped import STORE_SETTINGS, say, stopped_server

_REWRITES = 8  # a rewrite supersedes the catalog before it, whose pack is then due: two do


def main(arguments: Sequence[str], version: str) -> int:
    """Collect with the arguments after `collect`, and return the exit code."""
    parser = settings_parser(
        version,
        prog="tuskpoint-server collect",
        description="Remove blobs from the blob store that nothing in this journal needs, and "
        "rewrite packs that have bytes of deleted threads. The server has to be stopped. Blobs "
        "that another server may have stored stay. Old catalogs, and bundles that deleted threads "
        "have handed off, are gone then.",
        shown=("data_dir", "journal", *STORE_SETTINGS, "log_level"),
    )
    parser.add_argument(
        "--dry-run", action="store_true", default=False, help="Only list what would be removed."
    )
    parser.add_argument(
        "--all",
        action="store_true",
        default=False,
        help="Also what this journal did not store and is older than an hour: only if no other "
        "server, recovered or not, uses the store.",
    )
    flags = vars(parser.parse_args(arguments))
    dry_run, of_others = flags.pop("dry_run"), flags.pop("all")
    config = from_flags(flags)
    process.configure_logs(config.log_level)
    files, other_count = asyncio.run(_collect(config, dry_run=dry_run, of_others=of_others))
    for file in files:
        print(f"{file.blob_id} {file.size}")  # noqa: T201 - the answer
    verb = "would be removed" if dry_run else "are removed"
    size = sum(file.size for file in files)
    stay = f"; {other_count} that others may have stored stay" if other_count else ""
    say(f"{len(files)} blobs with {size} bytes {verb}{stay}")
    return 0


async def _collect(
    config: Config, *, dry_run: bool, of_others: bool
) -> tuple[Sequence[StoredFile], int]:
    """Remove the unneeded blobs unless `dry_run`; return them, and the number of shared blobs."""
    path = config.journal_place
    if isinstance(path, Path) and not path.exists():
        raise process.StartError(
            process.EXIT_JOURNAL, f"there is no journal {path}; give the --data-dir of a server"
        )
    async with stopped_server(config, "nothing more is collected") as blobs:
        store = origin(blobs)
        if not isinstance(store, PackStore):
            raise process.ConfigError(
                f"nothing is collected in the {store.backend} store: unneeded blobs expire there"
            )
        keys = open_keys(config)
        database = await open_journal(config, keys, alone=True)

        async def is_ours(blob_id: str, segment: BlobLocation | None) -> bool:
            return of_others or await is_own(blob_id, segment, database, store, keys)

        try:
            if dry_run:
                packs = await _rewrite_packs(database, store, is_ours)
                unneeded_blobs = await find_unneeded(database, store, keys, of_others=of_others)
                return (*unneeded_blobs.removable, *packs), unneeded_blobs.others
            async with _archive(config, database, store, keys) as archive:
                await _rewrite_packs(database, store, is_ours, archive)
            unneeded_blobs = await find_unneeded(database, store, keys, of_others=of_others)
            files = await remove(database, store, unneeded_blobs)
            if isinstance(blobs, CachedStore):
                await blobs.clear()
        finally:
            await database.close()
    return files, unneeded_blobs.others


@asynccontextmanager
async def _archive(
    config: Config, database: Database, store: PackStore, keys: KeyProvider | None
) -> AsyncIterator[Archive]:
    """Run only the archive of a server inside the context."""
    lease = await open_lease(config, database, Signer(signing_keys(config)))
    archive = await start_archive(config, database, lease, store, keys)
    try:
        leader = await start_leader(lease, [archive.leading])
        try:
            yield archive
        finally:
            await leader.stop()
    finally:
        await archive.stop()


async def _rewrite_packs(
    database: Database, store: PackStore, is_ours: IsOwn, archive: Archive | None = None
) -> list[StoredFile]:
    """Rewrite the due packs of all tenants; without an archive only return them."""
    tenants = await database.query(status.catalog_tenants)
    packs: list[StoredFile] = []
    for tenant in tenants:
        rewriting = PackRewriter(database, store, tenant, is_ours)
        for _ in range(_REWRITES):
            files = {file.blob_id: file async for file in store.blobs()}
            sizes = {blob_id: file.size for blob_id, file in files.items()}
            if archive is None:
                packs += [files[pack.blob.blob_id] for pack in await rewriting.due(sizes)]
                break
            if not await archive.rewrite(rewriting, tenant, sizes):
                break
    return packs
