"""The commands for a stopped server: `tuskpoint-server recover` and `collect`.

`recover` rebuilds an empty server's journal from blobs alone. A journal that is being filled is
marked as unfinished until it is complete. So a recovery that fails leaves nothing, and a recovery
that was killed can be run again. `collect` removes blobs that nothing needs.
"""

from __future__ import annotations

import asyncio
import re
import shutil
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

from ..archive.archive import Archive
from ..archive.flush.packs import Pointer
from ..archive.formats.stored_json import Kind
from ..archive.renew.rewriting import IsOwn, Rewriting
from ..archive.renew.unneeded import is_own, remove, unneeded
from ..archive.rows import status
from ..auth.tokens import tenant_name
from ..blobs.api import BlobStore
from ..blobs.cache import CachedStore, origin
from ..blobs.packed import PackStore, StoredFile
from ..config.blob_stores import open_blobs
from ..config.command_line import from_flags, settings_parser
from ..config.composition import (
    open_journal,
    open_keys,
    open_lease,
    signing_keys,
    start_archive,
    start_leader,
)
from ..config.settings import Config
from ..core import process
from ..core.credentials import DEFAULT_TENANT
from ..core.errors import Reason, Refusal
from ..core.model import BlobLocation
from ..features.recovery.recovery import (
    Recovered,
    Recovery,
    UnclearReferenceError,
    find,
    parse_reference,
    read_source,
)
from ..journal.database.database import Database
from ..keys.provider import KeyProvider
from ..keys.signing import Signer

_PROGRESS_SECONDS = 2.0
_REWRITES = 8  # each supersedes the catalog before it, whose pack is due then; two are enough
_DASHED_BLOB_ID = re.compile(r"-[A-Za-z0-9_-]{42}(?![A-Za-z0-9_-])")
_CODES = {
    Reason.BLOB_NOT_FOUND: process.EXIT_DAMAGED,
    Reason.BLOB_HASH_MISMATCH: process.EXIT_DAMAGED,
    Reason.BLOB_MALFORMED: process.EXIT_DAMAGED,
    Reason.LIMIT_EXCEEDED: process.EXIT_CONFIG,
    Reason.JOURNAL_UNAVAILABLE: process.EXIT_JOURNAL,
}  # of refusals; every other one means that the store does not answer


class Order(NamedTuple):
    """What to recover: the newest catalog or a thread's stored manifest, and for which tenant."""

    kind: Kind
    reference: str
    tenant: str = DEFAULT_TENANT
    skip_damaged: bool = False


@asynccontextmanager
async def _stopped(
    config: Config, nothing: str, *, undo: Callable[[], None] = lambda: None
) -> AsyncIterator[BlobStore]:
    """Hold the data directory and yield the blob store, perhaps behind a cache.

    A failure ends the command with its exit code; its message begins with `nothing`. `undo` is
    called after a failure, while the data directory is still held.
    """
    lock = process.DataDirLock(config.data_dir)
    try:
        try:
            blobs = open_blobs(config, None)
            try:
                yield blobs
            finally:
                await blobs.close()
        except BaseException:
            undo()
            raise
    except Refusal as refusal:
        code = _CODES.get(refusal.reason, process.EXIT_ARCHIVE)
        raise process.StartError(code, f"{nothing}: {refusal}") from refusal
    except RuntimeError as error:
        raise process.StartError(
            process.EXIT_JOURNAL,
            f"{nothing}: journal {config.journal_name} cannot be used: {error}",
        ) from error
    finally:
        lock.release()


def main_recover(arguments: Sequence[str], version: str) -> int:
    """Recover with the arguments after `recover`, and return the exit code."""
    config, order = parse(arguments, version)
    process.configure_logs(config.log_level)
    recovered = asyncio.run(until_terminated(recover(config, order)))
    say(f"recovered {_counts(recovered)}; start the server on {config.data_dir}")
    for what in recovered.left_out:
        say(f"left out: {what}")
    return process.EXIT_LEFT_OUT if recovered.left_out else 0


async def until_terminated(work: Coroutine[Any, Any, Recovered]) -> Recovered:
    """Run work until it is done or SIGTERM comes, in which case it cleans up."""
    task = asyncio.ensure_future(work)
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, task.cancel)
    try:
        return await task
    except asyncio.CancelledError:
        raise process.StartError(process.EXIT_DEFECT, "interrupted; nothing is recovered") from None
    finally:
        loop.remove_signal_handler(signal.SIGTERM)


async def recover(config: Config, order: Order) -> Recovered:
    """Make the journal of an empty data directory, or of an empty database."""
    try:
        reference = parse_reference(order.reference)
        _check_blob_directory(config)
        undo = _undo(config.data_dir)
        async with _stopped(config, "nothing is recovered", undo=undo) as opened:
            blobs = origin(opened)
            location = await find(blobs, reference, order.kind)
            with process.usable("data directory", config.data_dir):
                recovered = await _fill(config, blobs, location, order)
            if order.kind is Kind.CATALOG:
                point(config, order.tenant, location.blob_id)
            return recovered
    except UnclearReferenceError as error:
        raise process.ConfigError(str(error)) from None


def _check_blob_directory(config: Config) -> None:
    """Refuse a directory without blobs, which opening it as a blob store would make one."""
    path = config.blob_directory
    if config.bucket or config.walrus_aggregator_url or any(path.glob("*/*")):
        return
    if not (path / "layout").exists():
        raise process.StartError(
            process.EXIT_DIRECTORY,
            f"nothing is recovered: {path} is not a blob directory, because it has no file "
            "`layout`; give the --blob-dir of the lost server, with all of its files",
        )


def _undo(data_dir: Path) -> Callable[[], None]:
    """Return what removes from a data directory all that is not there now, and what it made.

    A journal that is there now stays with its logs.
    """
    missing = [one for one in (data_dir, *data_dir.parents) if not one.exists()]
    known = set() if missing else {one.name for one in data_dir.iterdir()}
    journal = "journal.db"

    def undo() -> None:
        for path in data_dir.iterdir():
            if path.name in known or (journal in known and path.name.startswith(journal)):
                continue
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink()
        for path in missing:
            path.rmdir()

    return undo


async def _fill(
    config: Config, blobs: BlobStore, location: BlobLocation, order: Order
) -> Recovered:
    keys = open_keys(config)
    source = await read_source(blobs, location, order.kind, keys, order.tenant, config.memory_bytes)
    journal, log = config.journal_place, config.data_dir / "journal.db-wal"
    if isinstance(journal, Path) and log.exists() and not journal.exists():
        raise process.StartError(
            process.EXIT_JOURNAL, f"{log} is there without its journal; move it away"
        )
    database = await open_journal(config, keys, generation=source.generation)
    tell = progress()
    try:
        recovery = Recovery(
            order.tenant,
            database,
            blobs,
            skip_damaged=order.skip_damaged,
            memory_bytes=config.memory_bytes,
            on_progress=lambda done: tell(f"recovering: {_counts(done)}"),
        )
        recovered = await recovery.recover(source)
        await database.finish()
    except BaseException:
        await database.remove()
        raise
    await database.close()
    return recovered


def parse(arguments: Sequence[str], version: str) -> tuple[Config, Order]:
    """Return the configuration and the order in the arguments after `recover`."""
    parser = settings_parser(
        version,
        prog="tuskpoint-server recover",
        description="Rebuild the journal of an empty data directory from the blob store alone. "
        "A blob is named as BLOB_ID, BLOB_ID/IDENTIFIER or BLOB_ID:SHA256HEX.",
    )
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument(
        "--catalog",
        metavar="BLOB",
        help="Newest catalog of the tenant; the log, the status and the pointer file name it.",
    )
    source.add_argument(
        "--manifest", metavar="BLOB", help="Stored manifest of a thread: recover only that thread."
    )
    parser.add_argument(
        "--tenant", type=tenant_name, default=DEFAULT_TENANT, help="Tenant. Default: %(default)s."
    )
    parser.add_argument(
        "--skip-damaged",
        action="store_true",
        default=False,
        help="Leave out what is missing or damaged, list it, and end with code 9.",
    )
    flags = vars(parser.parse_args(_joined(arguments)))
    kind = Kind.CATALOG if Kind.CATALOG in flags else Kind.MANIFEST
    order = Order(kind, flags.pop(kind), flags.pop("tenant"), flags.pop("skip_damaged"))
    return from_flags(flags), order


def _joined(arguments: Sequence[str]) -> list[str]:
    """Join to its flag a blob ID that begins with a dash: alone it would pass for a flag."""
    joined: list[str] = []
    for argument in arguments:
        if joined[-1:] in (["--catalog"], ["--manifest"]) and _DASHED_BLOB_ID.match(argument):
            joined[-1] += f"={argument}"
        else:
            joined.append(argument)
    return joined


def point(config: Config, tenant: str, blob_id: str) -> None:
    """Write the pointer file; if that fails, the next flush writes it.

    If the file named a newer catalog, because an old one was given by mistake, the output names it.
    """
    pointer = Pointer(config.pointer)
    try:
        path = pointer.path(tenant)
        before = path.read_text(encoding="utf-8").strip() if path.exists() else blob_id
        if before != blob_id:
            kept = pointer.set_aside(tenant)
            say(f"{path} named catalog {before} and now names {blob_id}; {kept} keeps the other")
        pointer.write(tenant, blob_id)
    except (OSError, UnicodeDecodeError) as error:
        say(f"the pointer file cannot be written: {error}")


def unpoint(config: Config, kept: Collection[str]) -> None:
    """Set aside the pointer files of tenants of which a restored journal has certified nothing."""
    pointer = Pointer(config.pointer)
    try:
        for tenant, blob_id in pointer.named().items():
            if tenant not in kept:
                path = pointer.set_aside(tenant)
                say(f"the backup has no catalog of tenant {tenant}; {path} keeps {blob_id}")
    except (OSError, UnicodeDecodeError) as error:
        say(f"the pointer files cannot be read: {error}")


def _counts(recovered: Recovered) -> str:
    return (
        f"{recovered.threads} threads, {recovered.checkpoints} checkpoints, "
        f"{recovered.size_bytes} bytes, {recovered.snapshots} snapshots, "
        f"{recovered.ended} deleted threads"
    )


def say(text: str) -> None:
    """Print a line for the person at the terminal."""
    print(f"tuskpoint-server: {text}", file=sys.stderr, flush=True)  # noqa: T201 - for who started it


def progress() -> Callable[[str], None]:
    """Return a `say` for how far a command is, which leaves out what comes too often."""
    said = time.monotonic()

    def tell(text: str) -> None:
        nonlocal said
        if time.monotonic() >= said + _PROGRESS_SECONDS:
            said = time.monotonic()
            say(text)

    return tell


def main_collect(arguments: Sequence[str], version: str) -> int:
    """Collect with the arguments after `collect`, and return the exit code."""
    parser = settings_parser(
        version,
        prog="tuskpoint-server collect",
        description="Remove blobs from the blob store that nothing in this journal needs, and "
        "rewrite packs that have bytes of deleted threads. The server has to be stopped. Blobs "
        "that another server may have stored stay. Old catalogs, and bundles that deleted threads "
        "have handed off, are gone then.",
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
    given = vars(parser.parse_args(arguments))
    dry_run, of_others = given.pop("dry_run"), given.pop("all")
    config = from_flags(given)
    process.configure_logs(config.log_level)
    files, others = asyncio.run(_collect(config, dry_run=dry_run, of_others=of_others))
    for file in files:
        print(f"{file.blob_id} {file.size}")  # noqa: T201 - the answer
    verb = "would be removed" if dry_run else "are removed"
    size = sum(file.size for file in files)
    stay = f"; {others} that others may have stored stay" if others else ""
    say(f"{len(files)} blobs with {size} bytes {verb}{stay}")
    return 0


async def _collect(
    config: Config, *, dry_run: bool, of_others: bool
) -> tuple[Sequence[StoredFile], int]:
    """Return the unneeded blobs, removed unless `dry_run`, and how many others may need."""
    path = config.journal_place
    if isinstance(path, Path) and not path.exists():
        raise process.StartError(
            process.EXIT_JOURNAL, f"there is no journal {path}; give the --data-dir of a server"
        )
    async with _stopped(config, "nothing more is collected") as blobs:
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
                due = await _rewriting(database, store, is_ours)
                found = await unneeded(database, store, keys, of_others=of_others)
                return (*found.removable, *due), found.others
            async with _archive(config, database, store, keys) as archive:
                await _rewriting(database, store, is_ours, archive)
            found = await unneeded(database, store, keys, of_others=of_others)
            files = await remove(database, store, found)
            if isinstance(blobs, CachedStore):
                await blobs.clear()
        finally:
            await database.close()
    return files, found.others


@asynccontextmanager
async def _archive(
    config: Config, database: Database, store: PackStore, keys: KeyProvider | None
) -> AsyncIterator[Archive]:
    """Run an archive that flushes, and nothing else of a server, inside the context."""
    lease = await open_lease(config, database, Signer(signing_keys(config)))
    archive = await start_archive(config, database, lease, store, keys)
    try:
        leader = await start_leader(lease, [archive.keeping])
        try:
            yield archive
        finally:
            await leader.stop()
    finally:
        await archive.stop()


async def _rewriting(
    database: Database, store: PackStore, is_ours: IsOwn, archive: Archive | None = None
) -> list[StoredFile]:
    """Rewrite the packs of all tenants that are due; without an archive only return them."""
    tenants = await database.query(status.catalog_tenants)
    due: list[StoredFile] = []
    for tenant in tenants:
        rewriting = Rewriting(database, store, tenant, is_ours)
        for _ in range(_REWRITES):
            files = {file.blob_id: file async for file in store.blobs()}
            sizes = {blob_id: file.size for blob_id, file in files.items()}
            if archive is None:
                due += [files[one.blob.blob_id] for one in await rewriting.due(sizes)]
                break
            if not await archive.rewrite(rewriting, tenant, sizes):
                break
    return due
