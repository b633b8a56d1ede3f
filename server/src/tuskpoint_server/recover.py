"""`tuskpoint-server recover`: an empty server's journal, rebuilt from blobs alone.

The journal is filled beside its place and moved there when it is whole, so whatever ends
the program in between leaves a directory without a journal, and it can be run again.
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

from . import exits, logs
from .archive.pointer import Pointer
from .archive.recovery import DAMAGE, Recovered, Recovery
from .archive.references import (
    BlobReference,
    UnclearReferenceError,
    find_catalog,
    find_segment,
    parse_reference,
)
from .blobs.api import BlobStore
from .blobs.cache import origin
from .config import Config, ConfigError, from_flags
from .data_dir import DataDirLock, DataDirTakenError
from .domain.errors import Reason, Refusal
from .domain.model import BlobLocation
from .domain.tenants import DEFAULT_TENANT, TENANT_RULE, is_tenant
from .exits import StartError
from .flags import command_parser
from .journal import publishing
from .journal.journal import SqlJournal

PROGRESS_SECONDS = 2.0
JOURNAL = "journal.db"
_DASHED_BLOB_ID = re.compile(r"-[A-Za-z0-9_-]{42}(?![A-Za-z0-9_-])")


@dataclass(frozen=True, slots=True)
class Order:
    """What shall be recovered.

    Attributes:
        catalog: The newest catalog, or `None`.
        manifest: The last segment of one thread's manifest, if there is no catalog.
        tenant: Tenant that it becomes.
        skip_damaged: Leave out what is damaged.
    """

    catalog: BlobReference | None
    manifest: BlobReference | None
    tenant: str = DEFAULT_TENANT
    skip_damaged: bool = False


def main(arguments: Sequence[str], version: str, open_blobs: Callable[[Config], BlobStore]) -> int:
    """Recover and return the exit code.

    Args:
        arguments: The arguments behind `recover`.
        version: What `--version` prints.
        open_blobs: Opens the store that settings name.

    Raises:
        ConfigError: An argument or setting cannot be used.
        StartError: Nothing was recovered.
    """
    config, order = parse(arguments, version)
    logs.configure(config.log_level)
    recovered = asyncio.run(until_told(recover(config, order, open_blobs)))
    _tell(f"recovered {_counts(recovered)}; start the server on {config.data_dir}")
    for what in recovered.left_out:
        _tell(f"left out: {what}")
    return exits.EXIT_LEFT_OUT if recovered.left_out else 0


async def until_told(work: Coroutine[Any, Any, Recovered]) -> Recovered:
    """Run work until it is done or SIGTERM comes, in which case it cleans up.

    Raises:
        StartError: SIGTERM came.
    """
    task = asyncio.ensure_future(work)
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, task.cancel)
    try:
        return await task
    except asyncio.CancelledError:
        raise StartError(exits.EXIT_DEFECT, "interrupted; nothing is recovered") from None
    finally:
        loop.remove_signal_handler(signal.SIGTERM)


async def recover(
    config: Config, order: Order, open_blobs: Callable[[Config], BlobStore]
) -> Recovered:
    """Make the journal of an empty data directory.

    Raises:
        StartError: Nothing was recovered, and nothing is left behind.
    """
    lock = _lock(config)
    try:
        path = config.data_dir / JOURNAL
        _require_empty(path)
        blobs = open_blobs(config)
        try:
            return await _recover(config, order, path, origin(blobs))
        finally:
            await blobs.close()
    except UnclearReferenceError as error:
        raise StartError(exits.EXIT_CONFIG, str(error)) from None
    except Refusal as refusal:
        raise StartError(_code(refusal), f"nothing is recovered: {refusal}") from refusal
    except OSError as error:
        raise StartError(
            exits.EXIT_DIRECTORY,
            f"data directory {config.data_dir} cannot be written: {error.strerror or error}",
        ) from None
    except RuntimeError as error:
        raise StartError(
            exits.EXIT_JOURNAL, f"no journal can be made in {config.data_dir}: {error}"
        ) from error
    finally:
        lock.release()


async def _recover(config: Config, order: Order, path: Path, blobs: BlobStore) -> Recovered:
    location = await _find(order, blobs)
    filled = publishing.beside(path)
    publishing.remove(filled)
    try:
        journal = await SqlJournal.open(filled)
        try:
            recovery = Recovery(
                order.tenant,
                journal,
                blobs,
                clock_us=lambda: time.time_ns() // 1000,
                skip_damaged=order.skip_damaged,
                on_progress=_Progress(),
            )
            start = recovery.from_catalog if order.catalog else recovery.from_manifest
            recovered = await start(location)
        finally:
            await journal.close()
        publishing.publish(path)
    except BaseException:
        publishing.remove(filled)
        raise
    if order.catalog:
        _point(config, order.tenant, location.blob_id)
    return recovered


async def _find(order: Order, blobs: BlobStore) -> BlobLocation:
    if order.catalog is not None:
        return await find_catalog(blobs, order.catalog)
    if order.manifest is None:
        raise UnclearReferenceError("--catalog or --manifest must be given")
    return await find_segment(blobs, order.manifest)


def parse(arguments: Sequence[str], version: str) -> tuple[Config, Order]:
    """Return what the arguments behind `recover` ask for.

    Raises:
        ConfigError: They cannot be used.
    """
    parser = command_parser(
        version,
        command="recover",
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
        "--manifest", metavar="BLOB", help="Last segment of a manifest: only its thread."
    )
    parser.add_argument("--tenant", default=DEFAULT_TENANT, help="Tenant. Default: %(default)s.")
    parser.add_argument(
        "--skip-damaged",
        action="store_true",
        default=False,
        help="Leave out what is missing or damaged, list it, and end with code 9.",
    )
    flags = vars(parser.parse_args(_joined(arguments)))
    try:
        order = Order(
            catalog=_reference(flags.pop("catalog", None)),
            manifest=_reference(flags.pop("manifest", None)),
            tenant=flags.pop("tenant"),
            skip_damaged=flags.pop("skip_damaged"),
        )
    except UnclearReferenceError as error:
        raise ConfigError(str(error)) from None
    if not is_tenant(order.tenant):  # no credential could name it, so nobody would reach it
        raise ConfigError(f"--tenant: a tenant is {TENANT_RULE}, not '{order.tenant}'")
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


def _reference(text: str | None) -> BlobReference | None:
    return None if text is None else parse_reference(text)


def _lock(config: Config) -> DataDirLock:
    try:
        return DataDirLock(config.data_dir)
    except DataDirTakenError as error:
        raise StartError(exits.EXIT_DATA_DIR_TAKEN, str(error)) from None
    except OSError as error:
        raise StartError(
            exits.EXIT_DIRECTORY,
            f"data directory {config.data_dir} cannot be made or written: "
            f"{error.strerror or error}; choose another, or see to its permissions",
        ) from None


def _require_empty(path: Path) -> None:
    there = publishing.remains(path)
    if there:
        raise StartError(
            exits.EXIT_JOURNAL,
            f"{there[0]} is there already; recover into an empty --data-dir, or move it away",
        )


def _code(refusal: Refusal) -> int:
    if refusal.reason in DAMAGE:
        return exits.EXIT_DAMAGED
    if refusal.reason is Reason.JOURNAL_UNAVAILABLE:
        return exits.EXIT_JOURNAL
    return exits.EXIT_ARCHIVE


def _point(config: Config, tenant: str, blob_id: str) -> None:
    """Write the pointer file; the next flush tries again what fails here.

    Whoever recovered from an old catalog by mistake shall not lose the name of a newer one.
    """
    pointer = Pointer(config.pointer)
    try:
        path = pointer.path(tenant)
        before = path.read_text(encoding="utf-8").strip() if path.exists() else blob_id
        if before != blob_id:
            _tell(f"{path} named catalog {before}, and names {blob_id} from now on")
        pointer.write(tenant, blob_id)
    except (OSError, UnicodeDecodeError) as error:
        _tell(f"the pointer file cannot be written: {error}")


class _Progress:
    """Tells from time to time how far a recovery is."""

    def __init__(self) -> None:
        self._next = time.monotonic() + PROGRESS_SECONDS

    def __call__(self, recovered: Recovered) -> None:
        now = time.monotonic()
        if now >= self._next:
            self._next = now + PROGRESS_SECONDS
            _tell(f"recovering: {_counts(recovered)}")


def _counts(recovered: Recovered) -> str:
    return (
        f"{recovered.threads} threads, {recovered.checkpoints} checkpoints, "
        f"{recovered.size_bytes} bytes, {recovered.snapshots} snapshots, "
        f"{recovered.ended} deleted threads"
    )


def _tell(text: str) -> None:
    print(f"tuskpoint-server: {text}", file=sys.stderr, flush=True)  # noqa: T201 - for who started it
