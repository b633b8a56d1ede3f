"""Shared parts of the commands for a stopped server, and their output.

It must not print an answer to stdout: only a command does.
"""

from __future__ import annotations

import sys
import time
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager

from ..archive.flush.packs import Pointer
from ..blobs.api import BlobStore
from ..config.blob_stores import open_blobs
from ..config.settings import Config
from ..core import process
from ..core.errors import Reason, Refusal

STORE_SETTINGS = (
    *("blob_dir", "blobs", "catalog_pointer", "signing_key"),
    *("key_file", "keys", "key_command", "key_vault", "key_aws_kms"),
)
"""Settings of commands that read the blob store, besides the journal's settings."""

_PROGRESS_SECONDS = 2.0


_CODES = {
    Reason.BLOB_NOT_FOUND: process.EXIT_DAMAGED,
    Reason.BLOB_HASH_MISMATCH: process.EXIT_DAMAGED,
    Reason.BLOB_MALFORMED: process.EXIT_DAMAGED,
    Reason.LIMIT_EXCEEDED: process.EXIT_CONFIG,
    Reason.JOURNAL_UNAVAILABLE: process.EXIT_JOURNAL,
}  # exit codes of reasons; other reasons mean that the store does not answer


@asynccontextmanager
async def stopped_server(
    config: Config, nothing: str, *, undo: Callable[[], None] = lambda: None
) -> AsyncIterator[BlobStore]:
    """Lock the data directory and yield the blob store, behind a cache if configured.

    A failure ends the command with its exit code; the message starts with `nothing`. `undo` is
    called after a failure, while the data directory is locked.
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


def point(config: Config, tenant: str, blob_id: str) -> None:
    """Write the pointer file; after a failure the next flush writes it.

    If the file named a newer catalog, because an old one was given by mistake, the output names it.
    """
    pointer = Pointer(config.pointer)
    try:
        path = pointer.path(tenant)
        old_id = path.read_text(encoding="utf-8").strip() if path.exists() else blob_id
        if old_id != blob_id:
            old_path = pointer.set_aside(tenant)
            say(
                f"{path} named catalog {old_id} and now names {blob_id}; {old_path} keeps the other"
            )
        pointer.write(tenant, blob_id)
    except (OSError, UnicodeDecodeError) as error:
        say(f"the pointer file cannot be written: {error}")


def unpoint(config: Config, kept: Collection[str]) -> None:
    """Move the pointer files of tenants for which a restored journal certified nothing."""
    pointer = Pointer(config.pointer)
    try:
        for tenant, blob_id in pointer.named().items():
            if tenant not in kept:
                path = pointer.set_aside(tenant)
                say(f"the backup has no catalog of tenant {tenant}; {path} keeps {blob_id}")
    except (OSError, UnicodeDecodeError) as error:
        say(f"the pointer files cannot be read: {error}")


def say(text: str) -> None:
    """Print a line for the person at the terminal."""
    print(f"tuskpoint-server: {text}", file=sys.stderr, flush=True)  # noqa: T201 - for who started it


def progress() -> Callable[[str], None]:
    """Return a `say` for progress, which drops lines that come too often."""
    last_time = time.monotonic()

    def tell(text: str) -> None:
        nonlocal last_time
        if time.monotonic() >= last_time + _PROGRESS_SECONDS:
            last_time = time.monotonic()
            say(text)

    return tell
