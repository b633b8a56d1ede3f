"""What clients do beyond saving: forks, rollbacks, adoptions, snapshots, and retries of them."""

from __future__ import annotations

import copy
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

from sqlalchemy import Connection

from tests.simulation import checks, descent_model
from tests.simulation.descent_model import Row, Rows, Wrong
from tests.simulation.model import Stored
from tests.simulation.world import TENANT, World
from tuskpoint_server.domain.lineage import Closure, Snapshot
from tuskpoint_server.domain.model import CheckpointKey, Removed, Saved, Value, View
from tuskpoint_server.domain.snapshots import thread_of
from tuskpoint_server.journal import closures, reads
from tuskpoint_server.journal.lineage_api import SnapshotDraft, ValuesEvicted
from tuskpoint_server.journal.lineage_calls import Lineage
from tuskpoint_server.journal.snapshots import Snapshots
from tuskpoint_server.service.completing import Completer

if TYPE_CHECKING:
    from tests.simulation.clients import Clients

_T = TypeVar("_T")
NAMES = ("e", "f", "g")
"""Names of threads that nobody saves to before they are made of others."""

CROWD = 11
"""Threads from which on no new names are made up: of more a catalog tells that is too large
for the simulated store."""


class _Noting:
    """As much of a `SqlJournal` as lineage and snapshots ask for; tells of each commit.

    Attributes:
        now: The time that the last change was given.
    """

    def __init__(self, world: World, then: Callable[[Any], None] = lambda _: None) -> None:
        self._world = world
        self._then = then
        self.now = 0

    def now_us(self) -> int:
        """Return the time."""
        self.now = self._world.clock()
        return self.now

    def random_bits(self) -> int:
        """Return 62 random bits."""
        return self._world.entropy.getrandbits(62)

    async def transact(self, work: Callable[[Connection], _T], *, size_bytes: int = 0) -> _T:
        """Change the journal."""
        return await self._world.journal.transact(work, self._then, size_bytes=size_bytes)

    async def query(self, work: Callable[[Connection], _T]) -> _T:
        """Read the journal."""
        return await self._world.journal.query(work)


@dataclass(frozen=True)
class _Asked:
    """A request that may be sent again: the call, given its `request_id`."""

    request_id: str
    call: Callable[[str], Awaitable[None]]


class Descents:
    """Makes the calls; each tells the model what it made at the commit."""

    def __init__(self, clients: Clients) -> None:
        self._clients = clients
        self._world = clients.world
        self._rng = clients.world.rng
        self._asked: list[_Asked] = []
        self.calls: dict[str, Callable[[], Awaitable[None]]] = {
            "fork": self.fork,
            "rollback": self.roll_back,
            "adopt": self.adopt,
            "snapshot": self.snapshot,
            "restore": self.restore,
            "restore_back": self.restore_back,
            "delete_snapshot": self.delete_snapshot,
            "retry": self.retry,
        }

    async def retry(self) -> None:
        """Send a request again, whatever became of it."""
        if self._asked:
            asked = self._rng.choice(self._asked)
            await asked.call(asked.request_id)

    async def _ask(self, call: Callable[[str], Awaitable[None]]) -> None:
        """Make a request, mostly one that can be sent again."""
        self._clients.admit()
        if self._rng.random() < 0.2:
            await call("")
            return
        asked = _Asked(f"request {len(self._asked)}", call)
        self._asked.append(asked)
        await call(asked.request_id)

    # --- lineage -----------------------------------------------------------------------

    async def fork(self) -> None:
        """Make a thread of a checkpoint, or of the latest of a namespace."""
        key = self._clients.some_key()
        latest = self._rng.random() < 0.3
        target = self._some_name()

        async def call(request_id: str) -> None:
            def made(saved: Saved) -> None:
                source = replace(saved.key, thread_id=key.thread_id)
                name = saved.key.thread_id
                self._expect(latest or source == key, f"{key} was forked, not {source}")
                descent_model.fork(self._world.model, source, name, self._rows(name), noting.now)
                self._counts(name)

            noting = _Noting(self._world, self._once(request_id, made))
            asked = replace(key, checkpoint_id="") if latest else key
            saved = await self._lineage(noting).fork(TENANT, asked, target, request_id)
            self._world.archive.changed(TENANT, saved.stored_bytes)

        await self._ask(call)

    async def roll_back(self) -> None:
        """Append a checkpoint with the state of an earlier one."""
        key = self._clients.some_key()

        async def call(request_id: str) -> None:
            def made(saved: Saved) -> None:
                model = self._world.model
                target = model.find(key)
                self._expect(target is not None, f"{key} cannot be seen")
                assert target is not None
                descent_model.roll_back(
                    model, key, target, saved.key.checkpoint_id, self._new(key), noting.now
                )
                self._counts(key.thread_id)

            noting = _Noting(self._world, self._once(request_id, made))
            saved = await self._supplied(
                lambda values: self._lineage(noting).rollback(TENANT, key, request_id, None, values)
            )
            self._world.archive.changed(TENANT, saved.stored_bytes)

        await self._ask(call)

    async def adopt(self) -> None:
        """Make a thread of what is needed to go on from a checkpoint, as it comes from a blob."""
        key = self._clients.some_key()
        model = self._world.model
        closure, origin = await self._world.journal.query(
            lambda connection: (
                closures.closure(connection, TENANT, key),
                copy.deepcopy(model.threads.get(key.thread_id)),
            )
        )
        self._world.trace("closure", closure is not None)
        if closure is None or origin is None:
            return
        whole, was, target = await self._completed(closure), origin, self._some_name()

        async def call(request_id: str) -> None:
            def made(saved: Saved) -> None:
                name = saved.key.thread_id
                descent_model.adopt(model, was, key, name, self._rows(name), noting.now)
                model.threads[name].agent_id = "adopter"
                self._counts(name)

            noting = _Noting(self._world, self._once(request_id, made))
            saved = await self._lineage(noting).adopt(
                TENANT, whole, "hash", target, "adopter", request_id
            )
            self._world.archive.changed(TENANT, saved.stored_bytes)

        await self._ask(call)

    # --- snapshots ---------------------------------------------------------------------

    async def snapshot(self) -> None:
        """Capture some threads."""
        live = [
            name
            for name, thread in sorted(self._world.model.of_users().items())
            if any(not ns for ns, _ in thread.visible())
        ]
        if not live or self._crowded():
            return
        names = tuple(self._rng.sample(live, self._rng.randint(1, min(3, len(live)))))
        draft = SnapshotDraft(names, session_id=self._rng.choice(("", "s")), metadata=b'{"a": 1}')

        async def call(request_id: str) -> None:
            def made(snapshot: Snapshot) -> None:
                rows = self._rows(thread_of(snapshot.snapshot_id))
                told = (tuple(one.thread_id for one in snapshot.members), snapshot.metadata)
                self._expect(told == (names, draft.metadata), f"{snapshot} is not {draft}")
                captured = {place: row for place, row in rows.items() if place[0]}
                description = self._description(snapshot)
                descent_model.capture(self._world.model, snapshot, description, captured)
                self._counts(thread_of(snapshot.snapshot_id))

            noting = _Noting(self._world, self._once(request_id, made))
            await self._snapshots(noting).create_snapshot(TENANT, draft, request_id)
            self._world.archive.changed(TENANT, 0)

        await self._ask(call)

    async def restore(self) -> None:
        """Make new threads of a snapshot's members."""
        await self._restore(rollback=False)

    async def restore_back(self) -> None:
        """Roll the threads of a snapshot's members back to what was captured."""
        await self._restore(rollback=True)

    async def _restore(self, *, rollback: bool) -> None:
        snapshot = self._some_snapshot()
        if snapshot is None or (not rollback and self._crowded()):
            return

        async def call(request_id: str) -> None:
            def made(restored: Sequence[Saved]) -> None:
                for number, saved in enumerate(restored):
                    self._restored(snapshot, number, saved.key, noting.now, rollback=rollback)

            noting = _Noting(self._world, self._once(request_id, made))
            restored = await self._supplied(
                lambda values: self._snapshots(noting).restore_snapshot(
                    TENANT,
                    snapshot.snapshot_id,
                    rollback=rollback,
                    request_id=request_id,
                    supplied=values,
                )
            )
            self._world.archive.changed(TENANT, sum(one.stored_bytes for one in restored))

        await self._ask(call)

    def _restored(
        self, snapshot: Snapshot, number: int, key: CheckpointKey, now_us: int, *, rollback: bool
    ) -> None:
        model, name = self._world.model, key.thread_id
        if rollback:
            descent_model.restore_back(
                model, snapshot, number, key.checkpoint_id, self._new(key), now_us
            )
        else:
            descent_model.restore(model, snapshot, number, name, self._rows(name), now_us)
        self._counts(name)

    async def delete_snapshot(self) -> None:
        """Delete a snapshot."""
        snapshot = self._some_snapshot()
        if snapshot is None:
            return
        snapshot_id = snapshot.snapshot_id

        def then(removed: Removed) -> None:
            model = self._world.model
            there = model.snapshots.pop(snapshot_id, None) is not None
            self._expect((removed.deleted > 0) == there, f"{snapshot_id}: {removed}")
            model.delete(thread_of(snapshot_id))

        noting = _Noting(self._world, self._told("a deletion tells its count", then))
        await self._snapshots(noting).delete_snapshot(TENANT, snapshot_id)
        self._world.archive.changed(TENANT, 0)

    # --- at the commit -----------------------------------------------------------------

    def _once(self, request_id: str, made: Callable[[Any], None]) -> Callable[[Any], None]:
        """Return what a commit tells: a retry has the first answer, and nothing is made."""

        def then(answer: Any) -> None:
            answers = self._world.model.answers
            plain = _plain(answer)
            if request_id in answers:
                self._expect(plain == answers[request_id], f"{answers[request_id]}, then {plain}")
                return
            made(answer)
            if request_id:
                answers[request_id] = plain

        return self._told("what is made of checkpoints goes on where they stood", then)

    def _told(self, promise: str, then: Callable[[Any], None]) -> Callable[[Any], None]:
        def told(answer: Any) -> None:
            try:
                then(answer)
            except Wrong as wrong:
                self._world.violate(promise, str(wrong))

        return told

    def _expect(self, fine: bool, otherwise: str) -> None:
        if not fine:
            raise Wrong(otherwise)

    def _rows(self, name: str) -> Rows:
        """Return the rows of a thread."""
        rows = self._world.database.ask(
            "SELECT checkpoint_ns, checkpoint_id, hidden, revision FROM checkpoints"
            " WHERE thread_id = :name ORDER BY checkpoint_ns, checkpoint_id",
            name=name,
        )
        return {(ns, one): Row(bool(hidden), revision) for ns, one, hidden, revision in rows}

    def _new(self, key: CheckpointKey) -> Rows:
        """Return the rows of a thread that the model does not have."""
        known = self._world.model.threads[key.thread_id].stored
        rows = self._rows(key.thread_id)
        return {place: row for place, row in rows.items() if place not in known}

    def _counts(self, name: str) -> None:
        """Note what passed the admission unseen: nobody knows its size before."""
        [(waiting,)] = self._world.database.ask(
            "SELECT coalesce(sum(dirty_bytes), 0) FROM checkpoints WHERE thread_id = :name",
            name=name,
        )
        self._world.unadmitted_bytes += waiting

    def _description(self, snapshot: Snapshot) -> Stored:
        """Return the checkpoint that describes a snapshot; it must stay as it is."""
        key = CheckpointKey(thread_of(snapshot.snapshot_id), "", snapshot.snapshot_id)
        found = reads.load(self._world.database.connection, TENANT, key, View.FULL)
        self._expect(found is not None, f"{snapshot} is not described")
        assert found is not None
        return checks.stored_of(found)

    # --- what the service does ---------------------------------------------------------

    async def _supplied(self, call: Callable[[dict[bytes, Value]], Awaitable[_T]]) -> _T:
        """Make a call; what was evicted is read for it."""
        values: dict[bytes, Value] = {}
        while True:
            try:
                return await call(values)
            except ValuesEvicted as lack:
                completer = Completer(self._world.archive)
                values |= await completer.values(TENANT, lack.entries, values)

    async def _completed(self, closure: Closure) -> Closure:
        completer = Completer(self._world.archive)
        loaded = [member.checkpoint for member in closure.members]
        async with aclosing(completer.checkpoints(TENANT, loaded)) as completed:
            whole = [checkpoint async for checkpoint in completed]
        members = zip(closure.members, whole, strict=True)
        return replace(
            closure, members=tuple(replace(member, checkpoint=one) for member, one in members)
        )

    def _lineage(self, noting: _Noting) -> Lineage:
        return Lineage(noting)  # type: ignore[arg-type] # it asks for no more

    def _snapshots(self, noting: _Noting) -> Snapshots:
        return Snapshots(noting)  # type: ignore[arg-type] # it asks for no more

    # --- making things up --------------------------------------------------------------

    def _some_name(self) -> str:
        return self._rng.choice((*NAMES, *NAMES, "a", "a" if self._crowded() else ""))

    def _crowded(self) -> bool:
        return len(self._world.model.threads) >= CROWD

    def _some_snapshot(self) -> Snapshot | None:
        snapshots = self._world.model.snapshots
        return snapshots[self._rng.choice(sorted(snapshots))][0] if snapshots else None


def _plain(answer: Any) -> object:
    """Return an answer without what a retry does not tell."""
    if isinstance(answer, Saved):
        return replace(answer, stored_bytes=0)
    return tuple(map(_plain, answer)) if isinstance(answer, tuple) else answer
