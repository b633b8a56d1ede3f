"""What clients do: random calls, as the service makes them of journal and archive."""

from __future__ import annotations

import asyncio
import copy
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial

from sqlalchemy import Connection

from tests.simulation import checks
from tests.simulation.crashes import Crash
from tests.simulation.descents import Descents
from tests.simulation.model import Place, Thread
from tests.simulation.world import TENANT, World
from tuskpoint.v1 import checkpoint_pb2
from tuskpoint_server.archive.eviction import EvictionSettings, Evictor
from tuskpoint_server.domain.digests import value_digest
from tuskpoint_server.domain.errors import Reason, Refusal
from tuskpoint_server.domain.metadata import parse_metadata
from tuskpoint_server.domain.model import (
    ChannelDraft,
    CheckpointDraft,
    CheckpointKey,
    Durability,
    Reference,
    Removed,
    Saved,
    Value,
    Version,
    View,
    Write,
)
from tuskpoint_server.journal import copies, reads, removals, saves, sweeping
from tuskpoint_server.journal.api import WritesEvicted
from tuskpoint_server.journal.retention import set_retention
from tuskpoint_server.service.completing import Completer

THREADS = ("a", "b", "c", "d")
NAMESPACES = ("", "", "", "inner")
RUNS = ("run-1", "run-2", "run-3")
DELTA = "log"
BIGGEST = 9000
_VERSIONS: dict[str, Version] = {"x": 1, "y": "1", DELTA: 1.5}

_EXPECTED = {
    Reason.BACKLOG_FULL,
    Reason.BLOB_HASH_MISMATCH,
    Reason.BLOB_NOT_FOUND,
    Reason.BLOB_UNAVAILABLE,
    Reason.CHECKPOINT_MISSING,
    Reason.CHECKPOINT_NOT_FOUND,
    Reason.DRAINING,
    Reason.JOURNAL_UNAVAILABLE,
    Reason.SNAPSHOT_NOT_FOUND,
    Reason.THREAD_DELETED,
    Reason.THREAD_EXISTS,
    Reason.THREAD_NOT_FOUND,
}
"""Refusals that a client may see while faults are injected."""

_FINE_WHEN_CALM = _EXPECTED - {
    Reason.BLOB_HASH_MISMATCH,
    Reason.BLOB_NOT_FOUND,
    Reason.BLOB_UNAVAILABLE,
    Reason.JOURNAL_UNAVAILABLE,
}


class Clients:
    """Makes calls on the server that lives right now."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.rng = world.rng
        self._numbers = 0
        self.calls: dict[str, Callable[[], Awaitable[None]]] = {
            "save": self.save,
            "save_and_wait": partial(self.save, wait=True),
            "save_writes": self.save_writes,
            "writes_and_wait": partial(self.save_writes, wait=True),
            "label": self.label,
            "read": self.read,
            "delete": self.delete,
            "copy": self.copy,
            "prune": self.prune,
            "delete_run": self.delete_run,
            "flush": self.flush,
            "sweep": self.sweep,
            "evict": self.evict,
            "retention": self.retention,
            **Descents(self).calls,
        }

    async def call(self, name: str) -> None:
        """Make a call; whatever it may be refused for is fine."""
        world = self.world
        world.trace(name)
        fine = _FINE_WHEN_CALM if world.calm else _EXPECTED
        try:
            await self.calls[name]()
        except (Crash, TimeoutError):
            return
        except Refusal as refusal:
            world.trace(name, refusal.reason)
            if refusal.reason not in fine:
                world.violate("a call is refused only with a reason", f"{name}: {refusal}")

    # --- saves -------------------------------------------------------------------------

    async def save(self, *, wait: bool = False) -> None:
        """Save a checkpoint, and perhaps wait until it is certified."""
        self.admit()
        draft = self._draft()
        try:
            saved = await self._save(draft)
        except Refusal as refusal:
            if refusal.reason is not Reason.VALUES_MISSING:
                raise
            saved = await self._save(self._inline(draft))
        if wait:
            await self._wait(saved)

    async def save_writes(self, *, wait: bool = False) -> None:
        """Save writes to a checkpoint that may be old, or not there yet."""
        self.admit()
        key = self.some_key() if self.rng.random() < 0.8 else self._new_key()
        if self.world.model.snapshots and self.rng.random() < 0.2:
            key = self.some_captured()  # which may be gone from its thread
        writes = tuple(self._write() for _ in range(self.rng.randint(1, 3)))
        now_us = self.world.clock()

        def work(connection: Connection) -> Saved:
            return saves.save_writes(connection, TENANT, key, writes, now_us)

        def then(saved: Saved) -> None:
            revision = self.world.model.save_writes(key, writes)
            self._compare_revisions(saved, revision)

        saved = await self._change(work, then)
        self.world.archive.changed(TENANT, saved.stored_bytes)
        if wait and saved.revision:
            await self._wait(saved)

    async def label(self) -> None:
        """Label a checkpoint."""
        key, label = self.some_key(), self.rng.choice(("", "good", "bad"))
        now_us = self.world.clock()

        def work(connection: Connection) -> Saved:
            return saves.set_label(connection, TENANT, key, label, now_us)

        def then(saved: Saved) -> None:
            self._compare_revisions(saved, self.world.model.set_label(key, label))

        saved = await self._change(work, then)
        self.world.archive.changed(TENANT, saved.stored_bytes)
        if self.rng.random() < 0.3:
            await self._wait(saved)

    async def _save(self, draft: CheckpointDraft) -> Saved:
        try:
            return await self._save_with(draft, ())
        except WritesEvicted as lack:
            archive = self.world.archive
            stored = await archive.read(TENANT, lack.entry, bypass_cache=False)
            return await self._save_with(draft, stored.writes)

    async def _save_with(self, draft: CheckpointDraft, restored: Sequence[Write]) -> Saved:
        now_us = self.world.clock()

        def work(connection: Connection) -> Saved:
            return saves.save_checkpoint(connection, TENANT, draft, now_us, 0, restored)

        def then(saved: Saved) -> None:
            self._compare_revisions(saved, self.world.model.save(draft, now_us))

        saved = await self._change(work, then)
        self.world.archive.changed(TENANT, saved.stored_bytes)
        return saved

    async def _change(
        self, work: Callable[[Connection], Saved], then: Callable[[Saved], None]
    ) -> Saved:
        """Journal a change; what is committed and not heard of passes the admission unseen."""
        committed: list[int] = []

        def note(saved: Saved) -> None:
            committed.append(saved.stored_bytes)
            then(saved)

        try:
            return await self.world.journal.transact(work, note)
        except Refusal:
            self.world.unadmitted_bytes += sum(committed)
            raise

    def _compare_revisions(self, saved: Saved, revision: int) -> None:
        if saved.revision != revision:
            self.world.violate(
                "a revision counts changes", f"{saved.key}: {saved.revision}, not {revision}"
            )

    def admit(self) -> None:
        """Let the archive refuse; what it lets pass is bounded."""
        self.world.archive.admit(TENANT)
        checks.the_backlog_is_bounded(self.world, admitted=True, slack=20 * BIGGEST)

    async def _wait(self, saved: Saved) -> None:
        """Wait until a revision is certified, for ever or up to a deadline."""
        world = self.world
        thread = world.model.threads[saved.key.thread_id]
        incarnation = saved.incarnation
        if thread.incarnation != incarnation:
            return
        deadline = self.rng.choice((0.5, 30.0, None, None))
        async with asyncio.timeout(deadline):
            catalog = await world.archive.certify(TENANT, saved.key, saved.revision)
        world.trace("certified", str(saved.key), saved.revision)
        checks.certified_means_found_from_the_catalog(
            world, saved.key, incarnation, saved.revision, catalog
        )

    # --- reads, flushes, removals --------------------------------------------------------

    async def read(self) -> None:
        """Read a checkpoint from the store, or from the journal if it is not certified."""
        world, key = self.world, self.some_key()
        found, acknowledged = await world.journal.query(
            lambda connection: (
                reads.load(connection, TENANT, key, View.FULL),
                copy.deepcopy(world.model.find(key)),
            )
        )
        if found is None or acknowledged is None:
            if (found is None) != (acknowledged is None):
                world.violate("a read returns what was saved", f"{key}: {found}, {acknowledged}")
            return
        expected = acknowledged.content()
        completer: Completer = Completer(world.archive)
        whole = await completer.checkpoint(TENANT, found)
        checks.a_read_returns_what_was_saved(world, key, expected, whole)
        if found.entry.durability is Durability.CERTIFIED:
            stored = await world.archive.read(
                TENANT, found.entry, bypass_cache=self.rng.random() < 0.5
            )
            checks.a_read_returns_what_was_saved(world, key, expected, stored)

    async def flush(self) -> None:
        """Certify everything journaled so far."""
        world = self.world
        wanted = world.model.revisions()
        ended = {
            name: thread.incarnation
            for name, thread in world.model.threads.items()
            if thread.deleted
        }
        outcome = await world.archive.certify_all(TENANT)
        world.trace("flushed", outcome.certified)
        checks.flushed_means_all_found(world, wanted, ended, outcome.catalog)

    async def sweep(self) -> None:
        """Remove contents that nothing refers to."""
        journal = self.world.journal
        found, _ = await journal.query(partial(sweeping.unreferenced, after=("", b"")))
        before_us = self.world.clock()
        await journal.transact(partial(sweeping.drop_contents, found=found, before_us=before_us))

    async def evict(self) -> None:
        """Let every value leave the journal that may."""
        world = self.world
        settings = EvictionSettings(journal_bytes=0, grace_s=self.rng.choice((0.0, 30.0)))
        gone = await Evictor(world.journal, settings, world.clock).evict_now()
        world.trace("evicted", gone.size_bytes)

    async def retention(self) -> None:
        """Say how long a thread is kept."""
        thread_id, seconds = self.rng.choice(THREADS), self.rng.choice((0, 10**9, 10**8))
        now_us = self.world.clock()

        def work(connection: Connection) -> None:
            set_retention(connection, TENANT, thread_id, seconds, now_us)

        def then(_: None) -> None:
            self.world.model.threads[thread_id].retention_s = seconds

        await self.world.journal.transact(work, then)
        self.world.archive.changed(TENANT, 0)

    async def delete(self) -> None:
        """Delete a thread."""
        thread_id, now_us = self.rng.choice(THREADS), self.world.clock()

        def work(connection: Connection) -> Removed:
            return removals.delete_thread(connection, TENANT, thread_id, now_us)

        def then(removed: Removed) -> None:
            expected = self.world.model.delete(thread_id)
            if removed != Removed(expected):
                self.world.violate("a deletion tells its count", f"{removed}, not {expected}")

        await self.world.journal.transact(work, then)
        self.world.archive.changed(TENANT, 0)

    async def copy(self) -> None:
        """Copy a thread."""
        source, target = self.rng.sample(THREADS, 2)
        now_us = self.world.clock()

        def work(connection: Connection) -> int:
            return copies.copy_thread(connection, TENANT, source, target, "", now_us)

        def then(copied: int) -> None:
            rows = self.world.database.ask(
                "SELECT checkpoint_ns, checkpoint_id, revision FROM checkpoints"
                " WHERE thread_id = :name",
                name=target,
            )
            revisions = {(ns, checkpoint_id): revision for ns, checkpoint_id, revision in rows}
            expected = self.world.model.copy(source, target, revisions)
            if copied != expected:
                self.world.violate("a copy tells its count", f"{copied}, not {expected}")
            [(waiting,)] = self.world.database.ask(
                "SELECT coalesce(sum(dirty_bytes), 0) FROM checkpoints WHERE thread_id = :name",
                name=target,
            )
            self.world.unadmitted_bytes += waiting

        await self.world.journal.transact(work, then)
        self.world.archive.changed(TENANT, 0)

    async def prune(self) -> None:
        """Keep the latest checkpoint of each namespace of a thread."""
        thread_id, now_us = self.rng.choice(THREADS), self.world.clock()
        model = self.world.model

        def work(connection: Connection) -> Removed:
            return removals.keep_latest(connection, TENANT, thread_id, now_us)

        def then(removed: Removed) -> None:
            self._remove({thread_id: model.superseded(thread_id)}, removed)

        await self.world.journal.transact(work, then)
        self.world.archive.changed(TENANT, 0)

    async def delete_run(self) -> None:
        """Delete the checkpoints of a run, in all threads."""
        run_id, now_us = self.rng.choice(RUNS), self.world.clock()

        def work(connection: Connection) -> Removed:
            return removals.delete_runs(connection, TENANT, [run_id], now_us)

        def then(removed: Removed) -> None:
            self._remove(self.world.model.of_runs([run_id]), removed)

        await self.world.journal.transact(work, then)
        self.world.archive.changed(TENANT, 0)

    def _remove(self, doomed: dict[str, set[Place]], removed: Removed) -> None:
        """Remove from the model; the journal says what delta channels still need."""
        count = sum(map(len, doomed.values()))
        if removed.deleted + removed.hidden != count:
            self.world.violate("a removal tells its count", f"{removed}, not {count}")
        for thread_id, places in doomed.items():
            rows = self.world.database.ask(
                "SELECT checkpoint_ns, checkpoint_id FROM checkpoints"
                " WHERE thread_id = :name AND hidden",
                name=thread_id,
            )
            kept = set(rows)
            self.world.model.remove(thread_id, places, kept)

    # --- making things up -----------------------------------------------------------------

    def _draft(self) -> CheckpointDraft:
        rng = self.rng
        thread_id, ns = rng.choice(THREADS), rng.choice(NAMESPACES)
        thread = self.world.model.threads.get(thread_id) or Thread()
        ids = sorted(place[1] for place in thread.stored if place[0] == ns)
        roll = rng.random()
        if ids and roll < 0.15:
            checkpoint_id = rng.choice(ids)
        elif roll < 0.25:
            checkpoint_id = f"{rng.randint(1, 10 * self._numbers + 10):06d}"
        else:
            checkpoint_id = self._new_id()
            if ids and len(ids[-1]) > len(checkpoint_id):  # a minted one; go on from there
                checkpoint_id = f"{ids[-1]}{self._numbers % 10}"
        below = [one for one in ids if one < checkpoint_id]
        parent_id = ""
        if below and not thread.deleted and rng.random() < 0.9:
            parent_id = below[-1] if rng.random() < 0.7 else rng.choice(below)
        parent = thread.stored.get((ns, parent_id))
        delta = (DELTA,) if rng.random() < 0.5 else ()
        known = {name: version for name, version, _ in parent.channels} if parent else {}
        channels = []
        for name in ("x", "y", DELTA):
            if name == DELTA and delta and rng.random() < 0.8:
                continue
            if rng.random() < 0.8:
                channels.append(self._channel(name, known))
        writes = tuple(self._write() for _ in range(rng.choice((0, 0, 1, 2))))
        metadata: dict[str, object] = {"step": rng.randint(0, 9)}
        if rng.random() < 0.5:
            metadata["run_id"] = rng.choice(RUNS)
        if ns and not self.world.plan.plain:
            metadata |= self._tie(thread)
        return CheckpointDraft(
            CheckpointKey(thread_id, ns, checkpoint_id),
            parent_id,
            checkpoint_pb2.CheckpointState(delta_channels=delta).SerializeToString(),
            tuple(channels),
            delta_channels=delta,
            metadata=parse_metadata(json.dumps(metadata).encode(), "metadata"),
            label=rng.choice(("", "", "", "first")),
            summary=rng.choice(("", "", "", "it went well", "it went badly")),
            agent_id=rng.choice(("", "", "planner", "writer")),
            writes=writes,
        )

    def _tie(self, thread: Thread) -> dict[str, object]:
        """Return what ties a subgraph's checkpoint to a root checkpoint, to most of them."""
        roots = sorted(place[1] for place in thread.visible() if not place[0])
        if not roots or self.rng.random() < 0.3:
            return {}
        root_id = roots[-1] if self.rng.random() < 0.7 else self.rng.choice(roots)
        return {"parents": {"": root_id}}

    def _channel(self, name: str, known: Mapping[str, Version | None]) -> ChannelDraft:
        rng = self.rng
        version = _VERSIONS[name]
        roll = rng.random()
        if roll < 0.15 and known.get(name) == version:
            return ChannelDraft(name, version, Reference.INHERIT)
        if roll < 0.2:
            return ChannelDraft(name, version, Reference.EMPTY)
        if roll < 0.35 and self.world.model.values:
            return ChannelDraft(name, version, rng.choice(sorted(self.world.model.values)))
        value = self._value()
        return ChannelDraft(name, version, value, value_digest(value))

    def _inline(self, draft: CheckpointDraft) -> CheckpointDraft:
        """Return a draft with every content inline, as a client answers VALUES_MISSING."""
        channels = []
        for channel in draft.channels:
            content = channel.content
            if content is Reference.INHERIT:
                content = self._value()
            elif isinstance(content, bytes):
                content = self.world.model.values[content]
            digest = value_digest(content) if isinstance(content, Value) else None
            channels.append(ChannelDraft(channel.name, channel.version, content, digest))
        return CheckpointDraft(
            draft.key,
            draft.parent_id,
            draft.frame,
            tuple(channels),
            delta_channels=draft.delta_channels,
            metadata=draft.metadata,
            label=draft.label,
            summary=draft.summary,
            agent_id=draft.agent_id,
            writes=draft.writes,
        )

    def _value(self) -> Value:
        rng = self.rng
        size = rng.choice((0, 1, 20, 20, 200, 200, 900, BIGGEST if rng.random() < 0.2 else 20))
        return Value(rng.choice(("msgpack", "json")), rng.randbytes(size))

    def _write(self) -> Write:
        rng = self.rng
        value = self._value()
        return Write(
            task_id=rng.choice(("t1", "t2")),
            task_path=rng.choice(("", "p")),
            idx=rng.choice((-2, -1, 0, 1)),
            channel=rng.choice(("out", DELTA)),
            value=value,
            digest=value_digest(value),
        )

    def _new_id(self) -> str:
        self._numbers += 1
        return f"{10 * self._numbers:06d}"

    def _new_key(self) -> CheckpointKey:
        return CheckpointKey(self.rng.choice(THREADS), self.rng.choice(NAMESPACES), self._new_id())

    def some_key(self) -> CheckpointKey:
        keys = sorted(
            (name, *place)
            for name, thread in self.world.model.of_users().items()
            for place in thread.stored
        )
        return CheckpointKey(*self.rng.choice(keys)) if keys else self._new_key()

    def some_captured(self) -> CheckpointKey:
        """Return the key of a checkpoint that a snapshot captured; there must be one."""
        snapshots = self.world.model.snapshots
        captured, _ = snapshots[self.rng.choice(sorted(snapshots))]
        return self.rng.choice(captured.members)
