"""The composition root: builds, starts and drains the parts of the server in order.

docs/architecture.md has the order, under "Start and stop".
"""

from __future__ import annotations

import asyncio
import importlib.metadata
import logging
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING

import uvloop

from ..api.middleware.errors import incident
from ..api.middleware.policy import CHANGES, EXCHANGE, POLICY
from ..api.middleware.quotas import COUNT_SECONDS
from ..api.server import server as rpc
from ..api.services import services
from ..archive.evict.eviction import EvictionSettings, Evictor
from ..auth.access import FileFollower, open_access
from ..config import settings as configuration
from ..config.composition import (
    bind_rows,
    open_identities,
    open_keys,
    open_lease,
    signing_keys,
    start_archive,
    start_leader,
    start_search,
)
from ..config.settings import Config
from ..config.sources import Settings, read_settings
from ..core import process
from ..core.errors import Refusal
from ..core.limits import LIMITS
from ..features.admin import Admin
from ..features.checkpoints.checkpoint_rows import CheckpointRows
from ..features.checkpoints.checkpoints import Checkpoints
from ..features.checkpoints.completing import Completer
from ..features.checkpoints.threads import Threads
from ..features.effects.effect_rows import EffectRows
from ..features.effects.effects import Effects
from ..features.history.changes import Events
from ..features.history.history import History
from ..features.inbox.inbox import Inbox
from ..features.inbox.offer_rows import OfferRows
from ..features.items.item_rows import ItemRows
from ..features.items.items import Store
from ..features.leases.leases import Leases
from ..features.lineage.branches import Branches
from ..features.lineage.handoff_rows import HandoffRows
from ..features.lineage.handoffs import Handoffs
from ..features.lineage.lineage import LineageRows
from ..features.lineage.snapshot_rows import SnapshotRows
from ..features.lineage.snapshots import Snapshots
from ..features.removal.erasure import Erasure
from ..features.removal.removal import Removal
from ..features.removal.removal_rows import RemovalRows
from ..features.removal.retention import Retention
from ..features.removal.retention_rows import RetentionRows
from ..features.resource_metrics import ResourceMetrics
from ..features.searching import Search
from ..features.trail.trail import FLUSH_SECONDS, Trail
from ..features.trail.trail_rows import TrailRows
from ..features.webhooks.deliveries import DeliveryRows
from ..features.webhooks.webhooks import Webhooks
from ..journal import rebinding, resealing
from ..journal.clock import JournalClock
from ..journal.database.database import Database
from ..journal.lease import Duty
from ..keys.signing import Signer
from ..search.search import SearchEngine
from .startup import start_line, systemd
from .startup.listening import listen, listen_http
from .startup.retention_file import read_rules
from .startup.start_checks import open_stores, require_publisher
from .startup.webhook_file import WebhookFile, read_webhooks

if TYPE_CHECKING:  # it loads an HTTP client
    from ..features.webhooks.sending import Sender

RETENTION_SECONDS = 20.0
"""Seconds between two checks for expired threads; at most half a minute late is promised."""
RULES_SECONDS = 300.0
"""Seconds between two applications of the retention rules; the contract promises twice as much."""
HEALTH_SECONDS = 0.5  # seconds between two checks of the journal
SIZE_SECONDS = 15.0  # seconds between two measurements of the journal's size, for the metrics
CLOCK_SECONDS = 10.0  # seconds between two comparisons of the clock with the journal's time
BIND_SECONDS = 5.0  # seconds between two checks for rows that servers of an older version wrote
SWEEP_SECONDS = 300.0  # seconds between two collections of unneeded rows, which read more

_log = logging.getLogger(__name__)

Announce = Callable[[Config, rpc.Server], None]
"""Prints the addresses of a server for the person or program that started it."""


def main(flags: Mapping[str, object], version: str) -> int:
    """Serve with the settings of a command line until a signal stops the server; return 0."""
    run(read_settings(flags), version)
    return 0


def announce_addresses(config: Config, server: rpc.Server) -> None:
    """Print the addresses for programs that start a server and wait for these lines."""
    address = start_line.address(config, server)
    print(f"tuskpoint-server listening on {address}", flush=True)  # noqa: T201 - the promise
    if config.http_listen:
        print(f"console and JSON over HTTP on {server.http_url}", flush=True)  # noqa: T201 - too


def run(settings: Settings, version: str, announce: Announce = announce_addresses) -> None:
    """Serve with these settings until a signal stops the server."""
    config = settings.config
    process.configure_logs(config.log_level, config.log_format)
    for variable in settings.ignored:
        _log.warning("variable %s is ignored: it is not a setting of the server", variable)
    metrics = config.metrics_listen
    address = configuration.split_address(metrics, "--metrics-listen") if metrics else None
    stop_telemetry = process.start_telemetry(config.telemetry, version, address)
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(serve(config, version, announce))
    finally:
        stop_telemetry()


async def serve(config: Config, version: str, announce: Announce) -> None:
    """Serve until SIGTERM or SIGINT."""
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    async with running_server(config) as server:
        announce(config, server)
        parts = start_line.describe(config, server, version)
        _log.info(start_line.sentence(parts), extra={process.LOG_FIELDS: parts})
        systemd.notify(systemd.READY)
        await stopping.wait()
        systemd.notify(systemd.STOPPING)
        _log.info("draining")
        finished = await server.drain(config.drain_grace)
        _log.info("drained" if finished else "calls were cut off after the grace period")


@asynccontextmanager
async def running_server(config: Config) -> AsyncIterator[rpc.Server]:
    """Run a server inside the context; drain the server at the end."""
    require_publisher(config)
    async with AsyncExitStack() as stack:
        access, keys = open_access(config), open_keys(config)
        identities = open_identities(config)
        rules = None
        if (path := config.retention_file) is not None:
            rules = FileFollower([path], partial(read_rules, path))
        hooks = None
        if (path := config.webhooks) is not None:
            hooks = FileFollower([path], partial(read_webhooks, path))
        lock = process.DataDirLock(config.data_dir)
        stack.callback(lock.release)
        signer = Signer(signing_keys(config))
        clock = JournalClock(config.max_clock_step)
        journal, blobs = await open_stores(config, keys, clock, stack)
        await bind_rows(config, journal)
        bind_task = asyncio.create_task(_bind(journal))
        stack.push_async_callback(_cancel, bind_task)
        await clock.begin(journal)
        lease = await open_lease(config, journal, signer)
        archive = await start_archive(config, journal, lease, blobs, keys)
        stack.push_async_callback(archive.stop)
        removal_rows = RemovalRows(journal)
        removal = Removal(removal_rows, archive)
        evictor = Evictor(journal, EvictionSettings(config.journal_bytes, config.eviction_grace))
        rows = CheckpointRows(journal, config.late_save_grace)
        lineage, items, offers = LineageRows(journal), ItemRows(journal), OfferRows(journal)
        completer = Completer(rows, archive)
        engine = await start_search(config, journal, lease)
        if engine is not None:
            stack.push_async_callback(engine.stop)
        snapshots = SnapshotRows(journal)
        retention = Retention(
            *(RetentionRows(journal), rows, removal_rows, lineage, snapshots, archive, signer),
            journal.journal_id,
            Erasure(journal),
            bool(config.search and config.memwal_account_id),
        )
        recorded = {"off": (), "changes": CHANGES, "all": POLICY.keys() - {EXCHANGE}}
        trail = Trail(TrailRows(journal), recorded[config.recorded])
        admin = Admin(
            journal,
            archive,
            engine,
            clock,
            version=importlib.metadata.version("tuskpoint-server"),
            blob_backend=blobs.backend,
            signers=signer.public,
            identities=identities,
        )
        deliveries, effects = DeliveryRows(journal), EffectRows(journal)
        sender = _sender(admin.version) if hooks is not None else None
        contract = services(
            Checkpoints(rows, archive, completer),
            Threads(rows, archive, journal.journal_id),
            Branches(lineage, rows, archive, completer),
            removal,
            retention,
            Snapshots(snapshots, archive, completer, journal.journal_id),
            History(rows, Events(journal), completer, journal.now_us),
            Handoffs(rows, lineage, HandoffRows(journal), archive, completer, signer, identities),
            Leases(journal),
            Inbox(offers, archive),
            Search(engine),
            Store(items, archive, engine),
            Effects(effects, rows, archive, completer, journal.journal_id),
            admin,
            trail,
            Webhooks(deliveries, journal.subscriptions, sender),
        )
        if hooks is not None:
            use = partial(_use_webhooks, journal)
            use(hooks.first)
            hooks_task = asyncio.create_task(hooks.follow(use))
            stack.push_async_callback(_cancel, hooks_task)
        if rules is not None:
            retention.replace(rules.first)
            rules_task = asyncio.create_task(rules.follow(retention.replace))
            stack.push_async_callback(_cancel, rules_task)
        duties: list[Duty] = [
            archive.leading,
            partial(_background_work, evictor.run),
            partial(
                _background_work,
                partial(
                    _sweep,
                    clock,
                    removal_rows,
                    removal,
                    retention,
                    items,
                    offers,
                    deliveries,
                    engine,
                ),
            ),
        ]
        if sender is not None:
            duties.append(
                partial(
                    _background_work, _posting(journal, deliveries, rows, offers, effects, sender)
                )
            )
        if engine is not None:
            duties.append(engine.leading)
        if config.scrub_bytes_per_second:
            duties.append(
                partial(_background_work, archive.scrubber(config.scrub_bytes_per_second).run)
            )
        leader = await start_leader(lease, duties)
        stack.push_async_callback(leader.stop)
        stack.push_async_callback(trail.flush)
        trail_task = asyncio.create_task(
            _sweep_every(FLUSH_SECONDS, "the audit trail", trail.flush)
        )
        stack.push_async_callback(_cancel, trail_task)
        listeners = 2 if config.http_listen else 1
        max_connections = process.allowed_connections(config.max_connections, listeners)
        server = listen(config, contract, access, trail, max_connections)
        admin.grpc_port = server.port
        if config.http_listen:
            listener = listen_http(config, contract, access, server, max_connections)
            stack.push_async_callback(listener.stop)
            listener.start()
        stack.push_async_callback(server.drain, 0)
        access_task = asyncio.create_task(access.follow())
        stack.push_async_callback(_cancel, access_task)
        count = partial(access.authentication.quotas.count, rows, archive)
        count_task = asyncio.create_task(_sweep_every(COUNT_SECONDS, "what tenants store", count))
        stack.push_async_callback(_cancel, count_task)
        report_task = asyncio.create_task(_report_journal(server, journal))
        stack.push_async_callback(_cancel, report_task)
        if config.metrics_listen or config.telemetry != "none":
            measure = ResourceMetrics(journal, archive, config.data_dir).measure_journal
            await measure()
            size_task = asyncio.create_task(_sweep_every(SIZE_SECONDS, "journal size", measure))
            stack.push_async_callback(_cancel, size_task)
        follow = partial(_follow_clock, clock, journal, server)
        clock_task = asyncio.create_task(_sweep_every(CLOCK_SECONDS, "the clock", follow))
        stack.push_async_callback(_cancel, clock_task)
        server.report_deletions(stopped=clock.jump is not None)
        await server.start()
        yield server


@asynccontextmanager
async def _background_work(
    work: Callable[[], Coroutine[object, object, None]],
) -> AsyncIterator[None]:
    """Run endless work inside the context."""
    task = asyncio.create_task(work())
    try:
        yield
    finally:
        await _cancel(task)


def _sender(version: str) -> Sender:
    from ..features.webhooks.sending import Sender

    return Sender(f"TuskPoint/{version}")


def _posting(
    journal: Database,
    deliveries: DeliveryRows,
    rows: CheckpointRows,
    offers: OfferRows,
    effects: EffectRows,
    sender: Sender,
) -> Callable[[], Coroutine[object, object, None]]:
    """Return the work that posts events to webhooks."""
    from ..features.webhooks.posting import WebhookPoster

    listen_all = journal.waiters.subscribe
    return WebhookPoster(
        deliveries, rows, offers, effects, journal.subscriptions, sender, listen_all
    ).run


def _use_webhooks(journal: Database, file: WebhookFile) -> None:
    """Send events to the webhooks of a file from now on."""
    journal.subscriptions.replace(file.webhooks, file.console_url)


async def _bind(journal: Database) -> None:
    """Bind rows that servers of an older version write, until no such server can write."""
    is_complete = False
    while not is_complete:
        await asyncio.sleep(BIND_SECONDS)
        try:
            bound = await rebinding.bind_rows(journal)
            resealed = await resealing.reseal(journal)
            is_refusing = await journal.refuse_older_writers()
            is_complete = bound.is_complete and resealed.is_complete and is_refusing
        except Refusal as refusal:
            _log.warning("what the journal has is not bound: %s", refusal)


async def _cancel(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def _report_journal(server: rpc.Server, journal: Database) -> None:
    """Report to health whether the journal can be used."""
    while True:
        server.report("journal", journal.problem)
        await asyncio.sleep(HEALTH_SECONDS)


async def _follow_clock(clock: JournalClock, journal: Database, server: rpc.Server) -> None:
    """Compare the clock with the journal's time, and report to health whether deletions run."""
    jump = await clock.check(journal)
    server.report_deletions(stopped=jump is not None)


async def _sweep(
    clock: JournalClock,
    rows: RemovalRows,
    removal: Removal,
    retention: Retention,
    items: ItemRows,
    offers: OfferRows,
    deliveries: DeliveryRows,
    engine: SearchEngine | None,
) -> None:
    """Remove expired threads and unneeded rows at intervals."""

    def sweep() -> Awaitable[object]:
        return rows.sweep(early_write_ttl_s=LIMITS.early_write_ttl_s, indexing=engine is not None)

    def by_time(seconds: float, name: str, delete: Callable[[], Awaitable[object]]) -> None:
        """Delete by time, unless the clock has moved too far."""

        async def deleted() -> object:
            return "stopped by the clock" if clock.jump is not None else await delete()

        group.create_task(_sweep_every(seconds, name, deleted))

    async with asyncio.TaskGroup() as group:
        by_time(RETENTION_SECONDS, "threads past their retention", removal.delete_past_retention)
        by_time(RULES_SECONDS, "what retention rules delete", retention.apply)
        by_time(RETENTION_SECONDS, "items that expired", items.sweep)
        by_time(SWEEP_SECONDS, "offers that were closed long ago", offers.sweep)
        by_time(SWEEP_SECONDS, "unneeded rows", sweep)
        by_time(SWEEP_SECONDS, "events that no webhook accepted for long", deliveries.sweep)
        if engine is not None:
            hidden = engine.sweep
            group.create_task(
                _sweep_every(SWEEP_SECONDS, "index entries that search may not find", hidden)
            )


async def _sweep_every(seconds: float, name: str, sweep: Callable[[], Awaitable[object]]) -> None:
    while True:
        await asyncio.sleep(seconds)
        try:
            _log.debug("sweep of %s: %s", name, await sweep())
        except Refusal as refusal:
            _log.warning("sweep of %s failed: %s", name, refusal)
        except Exception as error:  # noqa: BLE001 - a defect must not end the sweeping for good
            incident(error, "the sweeper")
