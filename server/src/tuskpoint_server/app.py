"""The composition root: builds the rooms, starts them, drains them in order.

Start: configuration, logs, telemetry, certificate and tokens, data directory (locked),
journal (opened and migrated), blob store, archive (takes up its spool), search, sweeper, gRPC;
then one line on stdout, `tuskpoint-server listening on HOST:PORT`, and health says SERVING.

End, at SIGTERM or SIGINT: health says NOT_SERVING, new calls are refused and long streams
told, running calls finish (for `--drain-grace` seconds), the sweeper, search and the archive
stop at a safe point, the journal closes, the directory is free again.

Exit codes: see `exits`.

A room that a setting switches on (Walrus, TLS, an embedder, MemWal) is imported where it is opened:
its libraries take longer to load than the rest of the server takes to start.
"""

from __future__ import annotations

import asyncio
import importlib.metadata
import logging
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from google.protobuf.descriptor import ServiceDescriptor

from . import access_setup, flags, logs, otel, search_setup
from . import config as configuration
from .access_setup import Access
from .archive.archive import Archive, StoreChangedError
from .archive.flush.settings import ArchiveSettings
from .blobs.api import BlobStore
from .blobs.cache import CachedStore
from .blobs.directory import DirectoryStore, UnknownLayoutError
from .config import Config, ConfigError
from .data_dir import DataDirLock
from .domain.errors import Refusal
from .domain.limits import LIMITS
from .exits import (
    EXIT_ADDRESS,
    EXIT_ARCHIVE,
    EXIT_CONFIG,
    EXIT_DEFECT,
    EXIT_DIRECTORY,
    EXIT_JOURNAL,
    StartError,
)
from .journal.archiving.evictor import EvictionSettings, Evictor
from .journal.changes import Events
from .journal.checkpoints.store import Checkpoints as CheckpointRows
from .journal.database.database import Database
from .journal.lineage.handoffs import Handoffs as HandoffRows
from .journal.lineage.lineage import Lineage
from .journal.lineage.snapshots import Snapshots as SnapshotRows
from .journal.removal.removal import Removal, Swept
from .recall.embedders.api import EmbedderError
from .recall.recall import Recall
from .reloading import UnusableFileError
from .rpc import server as rpc
from .rpc.errors import incident
from .service.admin import Admin
from .service.checkpoints import Checkpoints
from .service.commits import Commits
from .service.completing import Completer
from .service.handoffs import Handoffs
from .service.history import History
from .service.manifests import Manifests
from .service.page_tokens import PageTokens
from .service.searching import Search
from .service.snapshots import Snapshots
from .service.threads import Threads

RETENTION_SECONDS = 20.0
"""Time between two looks for threads past their retention; half a minute late is promised."""
SWEEP_SECONDS = 300.0
"""Time between two sweeps of what nothing needs any more, which read more."""

_log = logging.getLogger(__name__)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the server until it is told to stop; return the exit code."""
    # Numpy's threads wait for one another while they spin, and take from saves what they need.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    version = importlib.metadata.version("tuskpoint-server")
    arguments = sys.argv[1:] if argv is None else argv
    try:
        if list(arguments[:1]) == ["recover"]:
            from . import recover

            return recover.main(arguments[1:], version, _open_blobs)
        if list(arguments[:1]) == ["collect"]:
            from . import collect

            return collect.main(arguments[1:], version, _open_blobs)
        if list(arguments[:1]) == ["token"]:
            from . import token_command

            return token_command.main(arguments[1:])
        config = flags.load(arguments, version=version)
        logs.configure(config.log_level)
        stop_telemetry = _start_telemetry(config, version)
        try:
            with asyncio.Runner(loop_factory=_loop_factory()) as runner:
                runner.run(serve(config))
        finally:
            stop_telemetry()
    except (ConfigError, StartError) as error:
        print(f"tuskpoint-server: {error}", file=sys.stderr)  # noqa: T201 - for who started it
        return error.code if isinstance(error, StartError) else EXIT_CONFIG
    except KeyboardInterrupt:
        return EXIT_DEFECT
    return 0


async def serve(config: Config) -> None:
    """Serve until SIGTERM or SIGINT.

    Raises:
        StartError: The server cannot start.
    """
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    async with running(config) as server:
        host, _ = configuration.split_address(config.listen)
        address = configuration.join_address(host, server.port)
        print(f"tuskpoint-server listening on {address}", flush=True)  # noqa: T201 - the promise
        _log.info("serving on %s, data in %s", address, config.data_dir)
        await stopping.wait()
        _log.info("draining")
        finished = await server.drain(config.drain_grace)
        _log.info("drained" if finished else "calls were cut off after the grace period")


@asynccontextmanager
async def running(config: Config) -> AsyncIterator[rpc.Server]:
    """Run a server inside the context; whoever leaves should have drained it.

    Raises:
        StartError: It cannot start; what was started is stopped again.
    """
    async with AsyncExitStack() as stack:
        if config.walrus_aggregator_url and not config.walrus_publisher_url:
            raise StartError(
                EXIT_CONFIG,
                "--walrus-aggregator-url is set and --walrus-publisher-url is not; a server "
                "that serves has to store",
            )
        access = _open_access(config)
        lock = DataDirLock(config.data_dir)
        stack.callback(lock.release)
        journal = await _open_journal(config)
        stack.push_async_callback(journal.close)
        blobs = _open_blobs(config)
        stack.push_async_callback(blobs.close)
        archive = await _start_archive(config, journal, blobs)
        stack.push_async_callback(archive.stop)
        removal = Removal(journal)
        evictor = _start_evictor(config, journal, removal)
        stack.push_async_callback(evictor.stop)
        rows = CheckpointRows(journal)
        completer = Completer(rows, archive)
        commits = Commits(archive, completer)
        stack.push_async_callback(commits.drain)
        lineage = Lineage(journal)
        recall = await _start_recall(config, journal)
        if recall is not None:
            stack.push_async_callback(recall.stop)
        tokens = PageTokens(journal.journal_id)
        threads = Threads(rows, removal, lineage, archive, commits, tokens)
        rooms = rpc.Rooms(
            checkpoints=Checkpoints(rows, archive, commits, completer),
            threads=threads,
            manifests=Manifests(rows, archive, tokens),
            snapshots=Snapshots(SnapshotRows(journal), archive, commits, tokens),
            handoffs=Handoffs(
                rows,
                lineage,
                HandoffRows(journal, archive.expiry),
                archive.handoffs,
                archive,
                commits,
                completer,
            ),
            history=History(rows, Events(journal), completer, clock_us=journal.now_us),
            search=Search(recall),
            admin=Admin(
                journal,
                archive,
                recall,
                version=importlib.metadata.version("tuskpoint-server"),
                blob_backend=blobs.backend,
            ),
        )
        sweeper = asyncio.create_task(_sweep(removal, threads, recall))
        stack.push_async_callback(_cancel, sweeper)
        server = _listen(config, rpc.services(rooms), access)
        stack.push_async_callback(server.drain, 0)
        following = asyncio.create_task(access.follow())
        stack.push_async_callback(_cancel, following)
        await server.start()
        yield server


def _open_access(config: Config) -> Access:
    try:
        return access_setup.open_access(config)
    except UnusableFileError as error:
        raise StartError(EXIT_CONFIG, str(error)) from None


def _listen(
    config: Config, contract: Sequence[tuple[ServiceDescriptor, object]], access: Access
) -> rpc.Server:
    host, port = configuration.split_address(config.listen)
    try:
        return rpc.build(
            host,
            port,
            contract,
            max_call_seconds=config.max_call_seconds,
            reflect=config.reflection,
            authentication=access.authentication,
            tls=access.tls.credentials if access.tls is not None else None,
        )
    except OSError as error:
        raise StartError(
            EXIT_ADDRESS,
            f"cannot listen on {config.listen}: {error.strerror or error}; choose another --listen "
            "(port 0 picks a free one)",
        ) from None


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:  # not made for every platform
        return None
    return uvloop.new_event_loop


def _start_telemetry(config: Config, version: str) -> Callable[[], None]:
    if config.telemetry == "none":
        return lambda: None
    try:
        return otel.start(config.telemetry, version)
    except otel.ExporterMissingError as error:
        raise StartError(EXIT_CONFIG, str(error)) from None


async def _open_journal(config: Config) -> Database:
    path = config.data_dir / "journal.db"
    try:
        return await Database.open(path)
    except Exception as error:
        cause = error if isinstance(error, RuntimeError) else error.__cause__ or error
        reason = str(cause).partition("\n")[0]
        raise StartError(
            EXIT_JOURNAL,
            f"journal {path} cannot be opened: {reason}; restore it, or choose another --data-dir",
        ) from error


def _open_blobs(config: Config) -> BlobStore:
    store = _walrus(config) if config.walrus_aggregator_url else _directory(config)
    if not config.cache_bytes:
        return store
    path = config.data_dir / "cache"
    try:
        return CachedStore(store, path, config.cache_bytes)
    except OSError as error:
        raise _unusable("cache directory", path, error) from None


def _directory(config: Config) -> BlobStore:
    try:
        return DirectoryStore(config.blobs)
    except OSError as error:
        raise _unusable("blob directory", config.blobs, error) from None
    except UnknownLayoutError as error:
        raise StartError(
            EXIT_DIRECTORY,
            f"blob directory {config.blobs} cannot be used: {error}; choose another --blob-dir",
        ) from None


def _walrus(config: Config) -> BlobStore:
    from .blobs.walrus.settings import WalrusSettings
    from .blobs.walrus.store import WalrusStore

    try:
        return WalrusStore(
            WalrusSettings(
                aggregators=config.walrus_aggregator_url,
                publishers=config.walrus_publisher_url,
                epochs=config.walrus_epochs,
                epoch_s=config.walrus_epoch_seconds,
                send_object_to=config.walrus_send_object_to,
                jwt_secret=_jwt_secret(config.walrus_jwt_secret_file),
                jwt_algorithm=config.walrus_jwt_algorithm,
                jwt_lifetime_s=config.walrus_jwt_lifetime,
                put_timeout_s=config.walrus_put_timeout,
                puts_at_once=config.walrus_puts_at_once,
                max_put_bytes=config.walrus_max_put_bytes,
            )
        )
    except ValueError as error:
        raise StartError(EXIT_CONFIG, f"Walrus settings cannot be used: {error}") from None


def _jwt_secret(file: Path | None) -> bytes:
    """Return the secret in a file."""
    if file is None:
        return b""
    try:
        text = file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        problem = error.strerror if isinstance(error, OSError) else "it is not text"
        raise ValueError(f"--walrus-jwt-secret-file {file} cannot be read: {problem}") from None
    if not text:
        raise ValueError(f"--walrus-jwt-secret-file {file} is empty")
    from .blobs.walrus.token import secret_bytes

    return secret_bytes(text)


async def _start_archive(config: Config, journal: Database, blobs: BlobStore) -> Archive:
    path = config.data_dir / "spool"
    settings = ArchiveSettings(
        pointer=config.pointer,
        flush_interval_s=config.flush_seconds,
        soft_limit_bytes=config.backlog_soft_limit,
        hard_limit_bytes=config.backlog_hard_limit,
        apart=config.packing == "blob",
        epochs=config.walrus_epochs,
        renew_interval_s=config.walrus_renew_interval,
        renew_margin_epochs=config.walrus_renew_margin,
    )
    try:
        config.pointer.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _unusable("catalog pointer", config.pointer, error) from None
    try:
        archive = Archive(
            journal, blobs, path, settings=settings, clock_us=lambda: time.time_ns() // 1000
        )
        await archive.start()
    except OSError as error:
        raise _unusable("spool directory", path, error) from None
    except Refusal as refusal:
        raise StartError(EXIT_ARCHIVE, f"the archive cannot start: {refusal}") from None
    except StoreChangedError as changed:
        raise StartError(
            EXIT_ARCHIVE,
            f"journal {config.data_dir / 'journal.db'}: {changed}; use the settings of that "
            "store, or an empty --data-dir",
        ) from None
    return archive


def _start_evictor(config: Config, journal: Database, removal: Removal) -> Evictor:
    settings = EvictionSettings(
        journal_bytes=config.journal_bytes,
        interval_s=config.eviction_interval,
        grace_s=config.eviction_grace,
    )
    evictor = Evictor(journal, removal.passes, settings)
    evictor.start()
    return evictor


async def _start_recall(config: Config, journal: Database) -> Recall | None:
    try:
        recall = search_setup.open_recall(config, journal)
    except EmbedderError as error:
        raise StartError(
            EXIT_CONFIG, f"--embedder {config.embedder} cannot be used: {error}"
        ) from None
    if recall is not None:
        await recall.start()
    return recall


async def _cancel(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def _sweep(removal: Removal, threads: Threads, recall: Recall | None) -> None:
    """Remove from time to time what is past its retention, and what nothing needs any more."""

    def sweep() -> Awaitable[Swept]:
        return removal.sweep(
            early_write_ttl_s=LIMITS.early_write_ttl_s, indexing=recall is not None
        )

    async with asyncio.TaskGroup() as sweeping:
        past = threads.delete_past_retention
        sweeping.create_task(_every(RETENTION_SECONDS, "threads past their retention", past))
        sweeping.create_task(_every(SWEEP_SECONDS, "rows that nothing needs", sweep))
        if recall is not None:
            hidden = recall.sweep
            sweeping.create_task(_every(SWEEP_SECONDS, "what search may not find", hidden))


async def _every(seconds: float, what: str, sweep: Callable[[], Awaitable[object]]) -> None:
    while True:
        await asyncio.sleep(seconds)
        await _swept(what, sweep)


async def _swept(what: str, sweep: Callable[[], Awaitable[object]]) -> None:
    """Run one part of the sweeping; what keeps it from ending well is told."""
    try:
        removed = await sweep()
    except Refusal as refusal:
        _log.warning("sweep of %s: %s", what, refusal)
    except Exception as error:  # noqa: BLE001 - a defect must not end the sweeping for good
        incident(error, "the sweeper")
    else:
        _log.debug("sweep of %s: %s", what, removed)


def _unusable(what: str, path: object, error: OSError) -> StartError:
    return StartError(
        EXIT_DIRECTORY,
        f"{what} {path} cannot be made or written: {error.strerror or error}; "
        "choose another, or see to its permissions",
    )


if __name__ == "__main__":
    sys.exit(main())
