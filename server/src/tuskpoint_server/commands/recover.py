"""The command `tuskpoint-server recover`: rebuilds an empty journal from blobs alone.

An incomplete journal is marked as unfinished. So a failed recovery leaves nothing, and a killed
recovery can be run again.
"""

from __future__ import annotations

import asyncio
import re
import shutil
import signal
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import NamedTuple

from ..archive.formats.stored_json import Kind
from ..auth.tokens import tenant_name
from ..blobs.api import BlobStore
from ..blobs.cache import origin
from ..config.command_line import settings_parser
from ..config.composition import (
    open_journal,
    open_keys,
)
from ..config.settings import Config
from ..config.sources import from_flags
from ..core import process
from ..core.credentials import DEFAULT_TENANT
from ..core.model import BlobLocation
from ..features.recovery.recovery import (
    Recovery,
    RecoveryCounts,
    UnclearReferenceError,
    find,
    parse_reference,
    read_source,
)
from .stopped import STORE_SETTINGS, point, progress, say, stopped_server

_DASHED_BLOB_ID = re.compile(r"-[A-Za-z0-9_-]{42}(?![A-Za-z0-9_-])")


class Order(NamedTuple):
    """The source of a recovery, a catalog or a thread's stored manifest, and the tenant."""

    kind: Kind
    reference: str
    tenant: str = DEFAULT_TENANT
    skip_damaged: bool = False


def main(arguments: Sequence[str], version: str) -> int:
    """Recover with the arguments after `recover`, and return the exit code."""
    config, order = parse(arguments, version)
    process.configure_logs(config.log_level)
    recovered = asyncio.run(until_terminated(recover(config, order)))
    say(f"recovered {_counts(recovered)}; start the server on {config.data_dir}")
    for text in recovered.left_out:
        say(f"left out: {text}")
    return process.EXIT_LEFT_OUT if recovered.left_out else 0


async def until_terminated(work: Coroutine[object, object, RecoveryCounts]) -> RecoveryCounts:
    """Run work until it is done; SIGTERM cancels the work, which cleans up."""
    task = asyncio.ensure_future(work)
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, task.cancel)
    try:
        return await task
    except asyncio.CancelledError:
        raise process.StartError(process.EXIT_DEFECT, "interrupted; nothing is recovered") from None
    finally:
        loop.remove_signal_handler(signal.SIGTERM)


async def recover(config: Config, order: Order) -> RecoveryCounts:
    """Fill the journal of an empty data directory, or of an empty database."""
    try:
        reference = parse_reference(order.reference)
        _check_blob_directory(config)
        undo = _undo(config.data_dir)
        async with stopped_server(config, "nothing is recovered", undo=undo) as opened:
            blobs = origin(opened)
            location = await find(blobs, reference, order.kind)
            with process.require_usable("data directory", config.data_dir):
                recovered = await _fill(config, blobs, location, order)
            if order.kind is Kind.CATALOG:
                point(config, order.tenant, location.blob_id)
            return recovered
    except UnclearReferenceError as error:
        raise process.ConfigError(str(error)) from None


def _check_blob_directory(config: Config) -> None:
    """Refuse a directory without blobs, before it is opened, which would create a blob store."""
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
    """Return a function that removes everything that the recovery adds to a data directory.

    An existing journal stays, with its logs.
    """
    missing_paths = [path for path in (data_dir, *data_dir.parents) if not path.exists()]
    names = set() if missing_paths else {path.name for path in data_dir.iterdir()}
    journal = "journal.db"

    def undo() -> None:
        for path in data_dir.iterdir():
            if path.name in names or (journal in names and path.name.startswith(journal)):
                continue
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink()
        for path in missing_paths:
            path.rmdir()

    return undo


async def _fill(
    config: Config, blobs: BlobStore, location: BlobLocation, order: Order
) -> RecoveryCounts:
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
            on_progress=lambda counts: tell(f"recovering: {_counts(counts)}"),
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
        shown=("data_dir", "journal", *STORE_SETTINGS, "walrus_aggregator_url", "log_level"),
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
    flags = vars(parser.parse_args(_join_blob_ids(arguments)))
    kind = Kind.CATALOG if Kind.CATALOG in flags else Kind.MANIFEST
    order = Order(kind, flags.pop(kind), flags.pop("tenant"), flags.pop("skip_damaged"))
    return from_flags(flags), order


def _join_blob_ids(arguments: Sequence[str]) -> list[str]:
    """Join a blob ID that starts with a dash to its flag; alone it would look like a flag."""
    words: list[str] = []
    for argument in arguments:
        if words[-1:] in (["--catalog"], ["--manifest"]) and _DASHED_BLOB_ID.match(argument):
            words[-1] += f"={argument}"
        else:
            words.append(argument)
    return words


def _counts(recovered: RecoveryCounts) -> str:
    return (
        f"{recovered.threads} threads, {recovered.checkpoints} checkpoints, "
        f"{recovered.size_bytes} bytes, {recovered.snapshots} snapshots, "
        f"{recovered.ended} deleted threads"
    )
