"""What is done to a server that is stopped: `tuskpoint-server recover` and `collect`.

`recover` rebuilds an empty server's journal from blobs alone. The journal is filled beside its
place and moved there when it is whole, so whatever ends the program in between leaves a directory
without a journal, and it can be run again. `collect` frees what a blob directory need not hold.
"""

from __future__ import annotations

import asyncio
import re
import signal
import sys
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import process
from .archive.flush.packs import Pointer
from .archive.lifetime.collecting import Unneeded, remove, unneeded
from .archive.recover.recovery import (
    BlobReference,
    Recovered,
    Recovery,
    UnclearReferenceError,
    find,
    parse_reference,
    read_source,
)
from .blobs.api import BlobStore
from .blobs.directory import DirectoryStore, StoredFile
from .config import Config, from_flags, settings_parser
from .domain.credentials import DEFAULT_TENANT, TENANT_RULE, is_tenant
from .domain.formats.stored_json import Kind
from .journal import recovery as publishing
from .journal.database.database import Database
from .opening import open_blobs, stopped

PROGRESS_SECONDS = 2.0
_DASHED_BLOB_ID = re.compile(r"-[A-Za-z0-9_-]{42}(?![A-Za-z0-9_-])")


@dataclass(frozen=True, slots=True)
class Order:
    """What to recover: the newest catalog or the stored manifest of one thread, as a tenant's."""

    kind: Kind
    reference: BlobReference
    tenant: str = DEFAULT_TENANT
    skip_damaged: bool = False


def main_recover(arguments: Sequence[str], version: str) -> int:
    """Recover as the arguments behind `recover` say, and return the exit code."""
    config, order = parse(arguments, version)
    process.configure_logs(config.log_level)
    recovered = asyncio.run(until_terminated(recover(config, order, open_blobs)))
    _say(f"recovered {_counts(recovered)}; start the server on {config.data_dir}")
    for what in recovered.left_out:
        _say(f"left out: {what}")
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


async def recover(
    config: Config, order: Order, open_store: Callable[[Config], BlobStore]
) -> Recovered:
    """Make the journal of an empty data directory from a store that is opened for it."""
    path = config.data_dir / "journal.db"
    try:
        async with stopped(config, "nothing is recovered", open_store) as blobs:
            if there := publishing.remains(path):
                raise process.StartError(
                    process.EXIT_JOURNAL,
                    f"{there[0]} is there already; recover into an empty --data-dir, or move it "
                    "away",
                )
            return await _recover(config, order, path, blobs)
    except UnclearReferenceError as error:
        raise process.ConfigError(str(error)) from None
    except OSError as error:
        raise process.StartError(
            process.EXIT_DIRECTORY,
            f"data directory {config.data_dir} cannot be written: {error.strerror or error}",
        ) from None
    except RuntimeError as error:
        raise process.StartError(
            process.EXIT_JOURNAL, f"no journal can be made in {config.data_dir}: {error}"
        ) from error


async def _recover(config: Config, order: Order, path: Path, blobs: BlobStore) -> Recovered:
    location = await find(blobs, order.reference, order.kind)
    source = await read_source(blobs, location, order.kind)
    filled = publishing.beside(path)
    publishing.remove(filled)
    try:
        database = await Database.open(filled, generation=source.generation)
        try:
            recovery = Recovery(
                order.tenant,
                database,
                blobs,
                skip_damaged=order.skip_damaged,
                on_progress=_progress(),
            )
            recovered = await recovery.recover(source)
        finally:
            await database.close()
        publishing.publish(path)
    except BaseException:
        publishing.remove(filled)
        raise
    if order.kind is Kind.CATALOG:
        _point(config, order.tenant, location.blob_id)
    return recovered


def parse(arguments: Sequence[str], version: str) -> tuple[Config, Order]:
    """Return what the arguments behind `recover` ask for."""
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
    parser.add_argument("--tenant", default=DEFAULT_TENANT, help="Tenant. Default: %(default)s.")
    parser.add_argument(
        "--skip-damaged",
        action="store_true",
        default=False,
        help="Leave out what is missing or damaged, list it, and end with code 9.",
    )
    flags = vars(parser.parse_args(_joined(arguments)))
    named = {kind: flags.pop(kind, None) for kind in (Kind.CATALOG, Kind.MANIFEST)}
    [(kind, text)] = [(kind, text) for kind, text in named.items() if text is not None]
    try:
        reference = parse_reference(text)
    except UnclearReferenceError as error:
        raise process.ConfigError(str(error)) from None
    order = Order(kind, reference, flags.pop("tenant"), flags.pop("skip_damaged"))
    if not is_tenant(order.tenant):  # no credential could name it, so nobody would reach it
        raise process.ConfigError(f"--tenant: a tenant is {TENANT_RULE}, not '{order.tenant}'")
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


def _point(config: Config, tenant: str, blob_id: str) -> None:
    """Write the pointer file; the next flush tries again what fails here.

    Whoever recovered from an old catalog by mistake keeps the name of a newer one in the output.
    """
    pointer = Pointer(config.pointer)
    try:
        path = pointer.path(tenant)
        before = path.read_text(encoding="utf-8").strip() if path.exists() else blob_id
        if before != blob_id:
            _say(f"{path} named catalog {before}, and names {blob_id} from now on")
        pointer.write(tenant, blob_id)
    except (OSError, UnicodeDecodeError) as error:
        _say(f"the pointer file cannot be written: {error}")


def _progress() -> Callable[[Recovered], None]:
    told = time.monotonic()

    def show(recovered: Recovered) -> None:
        nonlocal told
        if time.monotonic() >= told + PROGRESS_SECONDS:
            told = time.monotonic()
            _say(f"recovering: {_counts(recovered)}")

    return show


def _counts(recovered: Recovered) -> str:
    return (
        f"{recovered.threads} threads, {recovered.checkpoints} checkpoints, "
        f"{recovered.size_bytes} bytes, {recovered.snapshots} snapshots, "
        f"{recovered.ended} deleted threads"
    )


def _say(text: str) -> None:
    print(f"tuskpoint-server: {text}", file=sys.stderr, flush=True)  # noqa: T201 - for who started it


# --- collect -------------------------------------------------------------------------------


def main_collect(arguments: Sequence[str], version: str) -> int:
    """Collect as the arguments behind `collect` say, and return the exit code."""
    parser = settings_parser(
        version,
        prog="tuskpoint-server collect",
        description="Remove blobs from the blob directory that nothing in this journal needs. The "
        "server has to be stopped. Blobs that another server may have stored stay, and so do those "
        "younger than an hour. Old catalogs, and bundles that deleted threads have handed off, are "
        "gone then.",
    )
    parser.add_argument(
        "--dry-run", action="store_true", default=False, help="Only list what would be removed."
    )
    parser.add_argument(
        "--all",
        action="store_true",
        default=False,
        help="Also what this journal did not store: only if no other server, recovered or not, "
        "uses the directory.",
    )
    given = vars(parser.parse_args(arguments))
    dry_run, of_others = given.pop("dry_run"), given.pop("all")
    config = from_flags(given)
    process.configure_logs(config.log_level)
    found, removed = asyncio.run(_collect(config, dry_run=dry_run, of_others=of_others))
    files = found.removable if dry_run else removed
    for file in files:
        print(f"{file.blob_id} {file.size}")  # noqa: T201 - the answer
    verb = "would be removed" if dry_run else "are removed"
    size = sum(file.size for file in files)
    others = f"; {found.others} that others may have stored stay" if found.others else ""
    print(  # noqa: T201 - for who started it
        f"tuskpoint-server: {len(files)} blobs with {size} bytes {verb}{others}", file=sys.stderr
    )
    return 0


async def _collect(
    config: Config, *, dry_run: bool, of_others: bool
) -> tuple[Unneeded, list[StoredFile]]:
    path = config.data_dir / "journal.db"
    if not path.exists():
        raise process.StartError(
            process.EXIT_JOURNAL, f"there is no journal {path}; choose its --data-dir"
        )
    try:
        async with stopped(config, "nothing more is collected", open_blobs) as store:
            if not isinstance(store, DirectoryStore):
                raise process.ConfigError(
                    f"nothing is collected in the {store.backend} store: what is not needed there "
                    "lapses by itself"
                )
            database = await Database.open(path)
            try:
                found = await unneeded(database, store, of_others=of_others)
                return found, [] if dry_run else await remove(database, store, found)
            finally:
                await database.close()
    except RuntimeError as error:
        raise process.StartError(
            process.EXIT_JOURNAL, f"journal {path} cannot be opened: {error}"
        ) from error
