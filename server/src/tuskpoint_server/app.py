"""The composition root: builds the rooms, starts them, drains them in order.

Start: configuration, logs, telemetry, data directory (locked), journal (opened and
migrated), blob store, archive (takes up its spool), sweeper, gRPC; then one line on
stdout, `tuskpoint-server listening on HOST:PORT`, and health says SERVING.

End, at SIGTERM or SIGINT: health says NOT_SERVING, new calls are refused and long streams
told, running calls finish (for `--drain-grace` seconds), the sweeper and the archive stop
at a safe point, the journal closes, the directory is free again.

Exit codes:
    0: drained, or `--help` or `--version`.
    1: a defect.
    2: a setting cannot be used.
    3: another server holds the data directory.
    4: the address cannot be listened on.
    5: a directory cannot be made or written.
    6: the journal cannot be used: not ours, or written by a newer server.
    7: the archive cannot take up its work.
"""

from __future__ import annotations

import asyncio
import importlib.metadata
import logging
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

from google.protobuf.descriptor import ServiceDescriptor

from . import config as configuration
from . import logs, otel
from .archive.archive import Archive
from .archive.settings import ArchiveSettings
from .blobs.api import BlobStore
from .blobs.cache import CachedStore
from .blobs.directory import DirectoryStore
from .config import Config, ConfigError
from .data_dir import DataDirLock, DataDirTakenError
from .domain.errors import Refusal
from .domain.limits import LIMITS
from .journal.journal import SqlJournal
from .rpc import server as rpc
from .rpc.errors import incident
from .service.admin import Admin
from .service.checkpoints import Checkpoints
from .service.commits import Commits
from .service.threads import Threads

EXIT_DEFECT = 1
EXIT_CONFIG = 2
EXIT_DATA_DIR_TAKEN = 3
EXIT_ADDRESS = 4
EXIT_DIRECTORY = 5
EXIT_JOURNAL = 6
EXIT_ARCHIVE = 7

SWEEP_SECONDS = 300.0
CONTENT_GRACE_SECONDS = 3600.0

_log = logging.getLogger(__name__)


class StartError(Exception):
    """The server cannot start; its text is one line.

    Attributes:
        code: The exit code.
    """

    def __init__(self, code: int, problem: str) -> None:
        self.code = code
        super().__init__(problem)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the server until it is told to stop; return the exit code."""
    version = importlib.metadata.version("tuskpoint-server")
    arguments = sys.argv[1:] if argv is None else argv
    try:
        config = configuration.load(arguments, version=version)
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
        lock = _lock(config)
        stack.callback(lock.release)
        journal = await _open_journal(config)
        stack.push_async_callback(journal.close)
        blobs = _open_blobs(config)
        stack.push_async_callback(blobs.close)
        archive = await _start_archive(config, journal, blobs)
        stack.push_async_callback(archive.stop)
        commits = Commits()
        stack.push_async_callback(commits.drain)
        sweeper = asyncio.create_task(_sweep(journal))
        stack.push_async_callback(_cancel, sweeper)
        contract = rpc.services(
            Checkpoints(journal, archive, commits),
            Threads(journal, archive, commits),
            Admin(
                journal,
                archive,
                version=importlib.metadata.version("tuskpoint-server"),
                blob_backend=blobs.backend,
            ),
        )
        server = _listen(config, contract)
        stack.push_async_callback(server.drain, 0)
        await server.start()
        yield server


def _listen(config: Config, contract: Sequence[tuple[ServiceDescriptor, object]]) -> rpc.Server:
    host, port = configuration.split_address(config.listen)
    try:
        return rpc.build(
            host,
            port,
            contract,
            max_call_seconds=config.max_call_seconds,
            reflect=config.reflection,
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


def _lock(config: Config) -> DataDirLock:
    try:
        return DataDirLock(config.data_dir)
    except DataDirTakenError as error:
        raise StartError(EXIT_DATA_DIR_TAKEN, str(error)) from None
    except OSError as error:
        raise _unusable("data directory", config.data_dir, error) from None


async def _open_journal(config: Config) -> SqlJournal:
    path = config.data_dir / "journal.db"
    try:
        return await SqlJournal.open(path)
    except Exception as error:
        cause = error if isinstance(error, RuntimeError) else error.__cause__ or error
        reason = str(cause).partition("\n")[0]
        raise StartError(
            EXIT_JOURNAL,
            f"journal {path} cannot be opened: {reason}; restore it, or choose another --data-dir",
        ) from error


def _open_blobs(config: Config) -> BlobStore:
    try:
        store: BlobStore = DirectoryStore(config.blobs)
    except OSError as error:
        raise _unusable("blob directory", config.blobs, error) from None
    if not config.cache_bytes:
        return store
    path = config.data_dir / "cache"
    try:
        return CachedStore(store, path, config.cache_bytes)
    except OSError as error:
        raise _unusable("cache directory", path, error) from None


async def _start_archive(config: Config, journal: SqlJournal, blobs: BlobStore) -> Archive:
    path = config.data_dir / "spool"
    settings = ArchiveSettings(
        pointer=config.pointer,
        flush_interval_s=config.flush_interval,
        soft_limit_bytes=config.backlog_soft_limit,
        hard_limit_bytes=config.backlog_hard_limit,
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
    return archive


async def _cancel(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def _sweep(journal: SqlJournal) -> None:
    """Remove from time to time what nothing needs any more."""
    while True:
        await asyncio.sleep(SWEEP_SECONDS)
        try:
            swept = await journal.sweep(
                content_grace_s=CONTENT_GRACE_SECONDS, early_write_ttl_s=LIMITS.early_write_ttl_s
            )
        except Refusal as refusal:
            _log.warning("sweep: %s", refusal)
        except Exception as error:  # noqa: BLE001 - a defect must not end the sweeping for good
            incident(error, "the sweeper")
        else:
            _log.debug("sweep: %s", swept)


def _unusable(what: str, path: object, error: OSError) -> StartError:
    return StartError(
        EXIT_DIRECTORY,
        f"{what} {path} cannot be made or written: {error.strerror or error}; "
        "choose another, or see to its permissions",
    )


if __name__ == "__main__":
    sys.exit(main())
