"""Random calls of clients to a server; the model records each answered call."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

from tests.kit.drafts import TENANT, Reference, channel, draft, write_of
from tests.simulation import effect_calls
from tests.simulation.at_rest.damage import Concern, concerns, tainted
from tests.simulation.bundles import store_bundle
from tests.simulation.coordination.ledgers import Ledgers
from tests.simulation.promises.committed_rows import Place
from tests.simulation.promises.model import Known
from tests.simulation.server import Server
from tuskpoint.v1 import value_pb2
from tuskpoint_server.core.errors import Reason, Refusal
from tuskpoint_server.core.lineage import mint_checkpoint_id
from tuskpoint_server.core.model import BlobLocation, CheckpointKey, SaveOutcome, Value, Write
from tuskpoint_server.core.threads import PruneStrategy, is_reserved
from tuskpoint_server.core.values import value_digest
from tuskpoint_server.features.call_memory import Holder
from tuskpoint_server.features.checkpoints.incoming import IncomingCheckpoint
from tuskpoint_server.features.checkpoints.missing_values import SuppliedValues
from tuskpoint_server.features.lineage.first_answers import request
from tuskpoint_server.features.lineage.snapshot_rows import SnapshotDraft
from tuskpoint_server.journal.database.pending_writes import StoredWrite

THREADS = ("a", "b", "c", "d")
NAMES = ("e", "f", "g", "h")
"""Names of threads that are created from others."""

RUNS = ("run-1", "run-2", "run-3")
DELTA = "log"
GROWING = 4200
"""Bytes at the start of a growing value, which is stored as patches."""

_SIZES = (0, 1, 20, 20, 20, 200, 200, 200, 200, 5000)

EXPECTED = {
    Reason.BACKLOG_FULL, Reason.BLOB_HASH_MISMATCH, Reason.BLOB_NOT_FOUND,
    Reason.BLOB_UNAVAILABLE, Reason.BLOB_REJECTED, Reason.CERTIFICATION_FAILED,
    Reason.CHECKPOINT_MISSING, Reason.CHECKPOINT_NOT_FOUND, Reason.DRAINING,
    Reason.EFFECT_NOT_FOUND, Reason.HANDOFF_CLOSED, Reason.HANDOFF_NOT_FOUND,
    Reason.JOURNAL_UNAVAILABLE, Reason.LEASE_LOST, Reason.SNAPSHOT_NOT_FOUND, Reason.THREAD_BUSY,
    Reason.THREAD_DELETED, Reason.THREAD_EXISTS, Reason.THREAD_NOT_FOUND, Reason.VALUES_MISSING,
}  # fmt: skip
"""Refusals that a client may see while faults are injected."""

Handoff = tuple[BlobLocation, Mapping[Place, Known]]


class Clients:
    """Makes calls of a server; all clients share `values` and `handed_off`.

    Attributes:
        values: All sent values, by digest.
        handed_off: Bundles of all servers, each with the content of its thread at that time.
        ledgers: What clients know of leases and offers.
        captured: Content of each member of a snapshot, by server and snapshot.
    """

    def __init__(self, rng: random.Random, clock_us: Callable[[], int]) -> None:
        self.rng = rng
        self.clock_us = clock_us
        self.values: dict[bytes, Value] = {}
        self.handed_off: list[Handoff] = []
        self.captured: dict[tuple[str, str], list[tuple[str, dict[Place, Known]]]] = {}
        self.problems: list[str] = []
        self.ledgers = Ledgers()
        self._growing = rng.randbytes(GROWING)

    # --- saves ---------------------------------------------------------------------------

    async def save(self, server: Server) -> SaveOutcome:
        """Save a checkpoint; send the values again that the server lacks."""
        server.archive.backlog(TENANT).admit()
        sent = self.draft(server)
        try:
            return await self.send(server, sent)
        except Refusal as refusal:
            if refusal.reason is not Reason.VALUES_MISSING:
                raise
        lacked = [name for name, channel in sent.channels.items() if not channel.encoded]
        filled = draft("", "", [self.channel(name, self.value()) for name in lacked])
        sent.channels |= filled.channels
        sent.contents |= filled.contents
        return await self.send(server, sent)

    async def send(self, server: Server, sent: IncomingCheckpoint) -> SaveOutcome:
        """Save a checkpoint."""
        name = sent.key.thread_id
        with self.ledgers.change(server, name, sent.lease_id), self.doubt(server, name):
            saved = await server.rows.save_checkpoint(TENANT, sent)
            server.model.save(sent, saved)
        return saved

    async def save_under(self, server: Server, name: str, lease_id: str) -> None:
        """Save a checkpoint, or writes to the latest checkpoint, under a lease."""
        parent_id = self.heads(server, name).get("", "")
        if parent_id and self.rng.random() < 0.3:
            await self._save_writes(server, CheckpointKey(name, "", parent_id), lease_id)
        else:
            sent = self._draft(server, CheckpointKey(name, "", self.new_id()), parent_id)
            await self.send(server, replace(sent, lease_id=lease_id))

    async def wait(self, server: Server, saved: SaveOutcome) -> None:
        """Wait until a change is certified."""
        await server.archive.certify(TENANT, saved.key, saved.seq)
        if server.shadow.threads[saved.key.thread_id].certified_seq < saved.seq:
            self.problems.append(f"{saved.key} was called certified above the watermark")

    async def resave(self, server: Server) -> None:
        """Save a checkpoint, which may be certified, again with other content."""
        key = self.some_key(server)
        if key is not None:
            await self.send(server, self._draft(server, key, ""))

    async def late_writes(self, server: Server) -> None:
        """Save writes to an existing checkpoint."""
        key = self.some_key(server)
        if key is not None:
            await self._save_writes(server, key)

    async def early_writes(self, server: Server) -> None:
        """Save writes to a checkpoint that may come later, and perhaps the checkpoint."""
        key = CheckpointKey(self.rng.choice(THREADS), "", self.new_id())
        await self._save_writes(server, key)
        if self.rng.random() < 0.7:
            heads = self.heads(server, key.thread_id)
            await self.send(server, self._draft(server, key, heads.get("", "")))

    async def label(self, server: Server) -> None:
        """Label a checkpoint."""
        key = self.some_key(server)
        if key is not None:
            label = self.rng.choice(("", "good", "bad"))
            await server.rows.set_label(TENANT, key, label)

    async def retention(self, server: Server) -> None:
        """Set the retention of a thread."""
        seconds = self.rng.choice((0, 10**9, 10**8))
        await server.removal.set_retention(TENANT, self.some_thread(server), seconds)

    async def _save_writes(self, server: Server, key: CheckpointKey, lease_id: str = "") -> None:
        writes = [self.write() for _ in range(self.rng.randint(1, 3))]
        name = key.thread_id
        with self.ledgers.change(server, name, lease_id), self.doubt(server, name):
            saved = await server.rows.save_writes(TENANT, key, writes, lease_id)
            server.model.save_writes(key, writes, saved)

    async def effect(self, server: Server) -> None:
        """Let agents ask for an effect."""
        with self.doubt(server, name := self.rng.choice(THREADS)):
            changes = partial(self.ledgers.change, server, name)
            self.problems += await effect_calls.ask(server, name, self.rng, self.value, changes)

    # --- removals ------------------------------------------------------------------------

    async def delete(self, server: Server) -> None:
        """Delete a thread."""
        name = self.some_thread(server)
        with self.ledgers.end(server, name), self.doubt(server, name):
            edited = concerns(server)
            removed = await server.removal.delete_thread(TENANT, name)
            self._removed(edited, removed, server.model.delete(name))

    async def prune(self, server: Server) -> None:
        """Keep the latest checkpoint of each namespace."""
        name = self.some_thread(server)
        with self.doubt(server, name):
            edited, keep_latest = concerns(server), PruneStrategy.KEEP_LATEST
            removed = await server.removal.prune_thread(TENANT, name, keep_latest)
            doomed = server.model.superseded(name)
            server.model.remove(name, doomed)
            self._removed(edited, removed, len(doomed))

    async def delete_run(self, server: Server) -> None:
        """Delete the checkpoints of a run in all threads."""
        run_id = self.rng.choice(RUNS)
        stories = server.model.stories.items()
        names = [name for name, _ in stories if not is_reserved(name)]
        with self.doubt(server, *names):
            edited, removed, refused = concerns(server), 0, None
            try:
                removed = await server.removal.delete_runs(TENANT, [run_id])
            except Refusal as refusal:
                if refusal.reason is not Reason.JOURNAL_DAMAGED:
                    raise
                refused = refusal
            count = sum(self._run_deleted(server, name, run_id, edited) for name in names)
            if refused is not None:
                raise refused
            self._removed(edited, removed, count)

    def _run_deleted(
        self, server: Server, name: str, run_id: str, edited: Mapping[str, Concern]
    ) -> int:
        """Record that a run was deleted from a thread, unless edits prevented the deletion."""
        story, kept = server.model.stories[name], set[Place]()
        if name in edited:
            kept = edited[name].rows & server.shadow.threads[name].rows.keys()
            if story.known.keys() <= server.shadow.threads[name].rows.keys():
                return 0  # The deletion from the whole thread was refused.
        known = story.known.items()
        doomed = [
            place
            for place, checkpoint in known
            if checkpoint.run_id == run_id and place not in kept
        ]
        server.model.remove(name, doomed)
        return len(doomed)

    def _removed(self, edited: Mapping[str, Concern], removed: int, expected: int) -> None:
        """Compare a count of removals; rows deleted or rolled back at rest may count or not."""
        unclear = any(concern.tainted for concern in edited.values())
        if removed != expected and not unclear:
            self.problems.append(f"a removal says {removed}, not {expected}")

    # --- lineage -------------------------------------------------------------------------

    async def fork(self, server: Server) -> None:
        """Fork a checkpoint as a new thread."""
        key, target = self.some_key(server), self.rng.choice(NAMES)
        if key is not None:
            call = partial(server.lineage.fork, TENANT, key, target, "")
            await self._make(server, target, key.thread_id, call)

    async def copy(self, server: Server) -> None:
        """Copy a thread."""
        source, target = self.some_thread(server), self.rng.choice(NAMES)
        call = partial(server.lineage.copy_thread, TENANT, source, target, "")
        await self._make(server, target, source, call)

    async def rollback(self, server: Server) -> None:
        """Roll a thread back to an earlier checkpoint."""
        key = self.some_key(server)
        if key is not None:
            call = partial(server.lineage.rollback, TENANT, key, "", None)
            with self.ledgers.change(server, key.thread_id):
                await self._make(server, key.thread_id, key.thread_id, call)

    async def hand_off(self, server: Server) -> None:
        """Store a bundle of a checkpoint."""
        key = self.some_key(server)
        bundle = await store_bundle(server, key) if key is not None else None
        if key is None or bundle is None:
            return
        create_request = request(TENANT, "", "CreateHandoff")
        location, parts = bundle.location, bundle.parts
        await server.handoffs.keep_handoff(
            create_request, key, location, parts, b"", content_seq=bundle.seq
        )
        if parts is not None:
            self.handed_off.append((location, bundle.known))

    async def adopt(self, server: Server) -> None:
        """Adopt a bundle of any server as a new thread."""
        if not self.handed_off:
            return
        location, known = self.rng.choice(self.handed_off)
        data = await server.archive.standalone.fetch(location, lambda count: None, Holder())
        # A descriptor names no more of the blob: its wrapped key is in its header.
        named = BlobLocation(location.sha256, 0, location.blob_id)
        closure = await server.archive.standalone.open(TENANT, data, named, Holder())
        target, sha256 = self.rng.choice(NAMES), location.sha256.hex()
        with self.doubt(server, target):
            await server.lineage.adopt(TENANT, closure, sha256, target, "", "")
            self.derive(server, target, known)

    async def snapshot(self, server: Server) -> None:
        """Take a snapshot of some threads."""
        names = sorted({name for name, place in server.model.users() if not place[0]})
        names = [name for name in names if not is_reserved(name)]
        if not names:
            return
        chosen = tuple(self.rng.sample(names, self.rng.randint(1, min(2, len(names)))))
        made = [(name, dict(server.model.stories[name].known)) for name in chosen]
        draft = SnapshotDraft(chosen, metadata=b'{"step":1}')
        created = await server.completer.supplied(
            TENANT, lambda values: server.snapshots.create_snapshot(TENANT, draft, "", values)
        )
        self.captured[server.name, created.snapshot_id] = made

    async def restore(self, server: Server) -> None:
        """Restore a snapshot, as new threads or by a rollback."""
        snapshot_id = self._some_snapshot(server)
        if snapshot_id is None:
            return
        made, rollback = self.captured[server.name, snapshot_id], self.rng.random() < 0.5
        names = [name for name, _ in made] if rollback else []
        with self.doubt(server, *names):
            restored = await server.completer.supplied(
                TENANT,
                lambda values: server.snapshots.restore_snapshot(
                    TENANT, snapshot_id, rollback=rollback, request_id="", supplied=values
                ),
            )
            for saved, (_, known) in zip(restored, made, strict=True):
                self.derive(server, saved.key.thread_id, known)

    async def delete_snapshot(self, server: Server) -> None:
        """Delete a snapshot."""
        snapshot_id = self._some_snapshot(server)
        if snapshot_id is not None:
            await server.snapshots.delete_snapshot(TENANT, snapshot_id)
            self.captured.pop((server.name, snapshot_id), None)

    async def _make(
        self,
        server: Server,
        target: str,
        source: str,
        call: Callable[[SuppliedValues], Awaitable[object]],
    ) -> None:
        with self.doubt(server, target):
            story = server.model.stories.get(source)
            known = dict(story.known) if story is not None else {}
            await server.completer.supplied(TENANT, call)
            self.derive(server, target, known)

    def derive(self, server: Server, name: str, known: Mapping[Place, Known]) -> None:
        server.shadow.follow([name])  # A thread without checkpoints starts without a change.
        if tainted(server):  # The origin may have been read in an earlier state.
            server.believe([name])
            return
        problem = server.model.derive(server.shadow.threads[name], name, known)
        if problem:
            self.problems.append(problem)

    def _some_snapshot(self, server: Server) -> str | None:
        ids = sorted(name for server_name, name in self.captured if server_name == server.name)
        return self.rng.choice(ids) if ids else None

    # --- the server's own work -----------------------------------------------------------

    async def flush(self, server: Server) -> None:
        """Certify everything."""
        await server.archive.certify_all(TENANT)

    async def evict(self, server: Server) -> None:
        """Evict all values that may leave the journal."""
        await server.evict()

    async def sweep(self, server: Server) -> None:
        """Remove everything that is not needed; all changes count as old at once."""
        await server.removal.sweep(early_write_ttl_s=10.0**9)

    async def index(self, server: Server) -> None:
        """Let the search index follow the journal, without text."""
        stretch = await server.index.take(20)
        if stretch.advances:
            await server.index.store(stretch, [], remember=False)

    async def look(self, server: Server) -> None:
        """Renew blobs that may expire, and store lost blobs again."""
        await server.archive.lifetime.check_now()

    async def read(self, server: Server) -> None:
        """Load a checkpoint and compare every byte with what was sent."""
        key = self.some_key(server)
        if key is not None:
            await self.compare(server, key)

    async def compare(self, server: Server, key: CheckpointKey) -> None:
        """Load a checkpoint and compare every byte with what was sent."""
        checkpoint = await server.load(key)
        if checkpoint is None or checkpoint.state is None:
            story = server.model.stories.get(key.thread_id)
            is_known = story is not None and key.thread_id not in tainted(server)
            if story and is_known and (key.checkpoint_ns, key.checkpoint_id) in story.known:
                self.problems.append(f"{key} was acknowledged and is gone")
            return
        if not checkpoint.entry.certified and key.thread_id not in tainted(server):
            server.compare_with_memory(key, checkpoint)
        held = [
            (channel.digest, channel.value)
            for channel in checkpoint.state.channels
            if channel.digest is not None
        ]
        held += [(write.digest, write.value) for write in checkpoint.writes]
        if any(value is None or self.values.get(digest, value) != value for digest, value in held):
            self.problems.append(f"{key} has other bytes than were sent")

    # --- random content ------------------------------------------------------------------

    def heads(self, server: Server, name: str) -> dict[str, str]:
        """Return the latest checkpoint of each namespace."""
        story = server.model.stories.get(name)
        heads: dict[str, str] = {}
        for ns, checkpoint_id in story.known if story is not None else ():
            heads[ns] = max(checkpoint_id, heads.get(ns, ""))
        return heads

    def some_key(self, server: Server) -> CheckpointKey | None:
        """Return a checkpoint of a user's thread."""
        users = [user for user in server.model.users() if not is_reserved(user[0])]
        if not users:
            return None
        name, place = self.rng.choice(users)
        return CheckpointKey(name, *place)

    def some_thread(self, server: Server) -> str:
        """Return the name of a user's thread; return any name if there is no thread."""
        names = sorted({name for name, _ in server.model.users() if not is_reserved(name)})
        return self.rng.choice(names or THREADS)

    def new_id(self, age_us: int = 0) -> str:
        """Return an ID of the current time, or of an earlier time."""
        return mint_checkpoint_id(self.clock_us() - age_us, self.rng.getrandbits(62), "")

    def draft(self, server: Server) -> IncomingCheckpoint:
        """Draw a checkpoint that continues a thread."""
        rng = self.rng
        name = rng.choice((*THREADS, *THREADS, self.some_thread(server)))
        heads = self.heads(server, name)
        ns = "inner" if heads and rng.random() < 0.2 else ""
        parent_id = heads.get(ns, "") if rng.random() < 0.9 else ""
        new_id = self.new_id(rng.choice((0, 0, 0, 0, 10_000_000)))
        return self._draft(server, CheckpointKey(name, ns, new_id), parent_id)

    def _draft(self, server: Server, key: CheckpointKey, parent_id: str) -> IncomingCheckpoint:
        rng = self.rng
        story = server.model.stories.get(key.thread_id)
        parent = story.known.get((key.checkpoint_ns, parent_id)) if story is not None else None
        delta = (DELTA,) if rng.random() < 0.5 else ()
        channels = []
        for name in ("x", "y", DELTA):
            if (name == DELTA and delta and rng.random() < 0.8) or rng.random() < 0.2:
                continue
            inherits = parent is not None and name in parent.channels and rng.random() < 0.4
            content: Value | Reference = Reference.INHERIT if inherits else self.value()
            channels.append(self.channel(name, Reference.EMPTY if rng.random() < 0.1 else content))
        metadata: dict[str, object] = {"step": rng.randint(0, 9)}
        if rng.random() < 0.4:
            metadata["run_id"] = rng.choice(RUNS)
        root_id = self.heads(server, key.thread_id).get("", "")
        if key.checkpoint_ns and root_id and rng.random() < 0.7:
            metadata["parents"] = {"": root_id}
        return draft(
            key.checkpoint_id,
            parent_id,
            channels,
            thread_id=key.thread_id,
            ns=key.checkpoint_ns,
            delta=delta,
            metadata=metadata,
            label=rng.choice(("", "", "", "first")),
            summary=rng.choice(("", "", "it went well")),
            agent_id=rng.choice(("", "", "planner", "writer")),
            writes=tuple(self.write() for _ in range(rng.choice((0, 0, 1, 2)))),
        )

    def channel(self, name: str, content: Value | Reference) -> value_pb2.Channel:
        """Return a channel with a value or a reference."""
        if isinstance(content, Value):
            self._note(content)
        return channel(name, content)

    def value(self) -> Value:
        """Draw a value; one value in four grows by a little."""
        rng = self.rng
        if rng.random() < 0.25:
            self._growing += rng.randbytes(40)
            return Value("msgpack", self._growing)
        return Value(rng.choice(("msgpack", "json")), rng.randbytes(rng.choice(_SIZES)))

    def write(self) -> StoredWrite:
        """Draw a pending write."""
        rng, value = self.rng, self.value()
        return write_of(Write(
            rng.choice(("t1", "t2")), rng.choice(("", "p")), rng.choice((-2, -1, 0, 1)),
            rng.choice(("out", DELTA)), value, self._note(value),
        ))  # fmt: skip

    def _note(self, value: Value) -> bytes:
        digest = value_digest(value)
        self.values[digest] = value
        return digest

    @contextmanager
    def doubt(self, server: Server, *names: str) -> Iterator[None]:
        """Mark threads as doubtful during a call, and after an error with an unknown outcome."""
        fresh = set(names) - server.model.doubtful
        server.model.doubtful |= fresh
        try:
            yield
        except Refusal as refusal:
            if refusal.reason is Reason.JOURNAL_UNAVAILABLE:
                server.believe(names)
            server.model.doubtful -= fresh
            raise
        server.model.doubtful -= fresh
