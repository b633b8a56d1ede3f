"""A journal whose values are evicted and removed, and segments with its certified values."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy import Connection, select

from tests.kit.databases import place_of_new_journal
from tests.kit.drafts import TENANT, draft, key
from tests.kit.journal import Clock, insert_segment
from tuskpoint.v1 import value_pb2
from tuskpoint_server.archive.evict.eviction import evict_family
from tuskpoint_server.archive.rows.stored import stored_value
from tuskpoint_server.core.model import EVICTED, Checkpoint, Value, View
from tuskpoint_server.core.threads import EventKind
from tuskpoint_server.core.values import Encoding
from tuskpoint_server.features.checkpoints.checkpoint_rows import CheckpointRows
from tuskpoint_server.features.removal.removal_rows import RemovalRows
from tuskpoint_server.journal.database.database import Database
from tuskpoint_server.journal.database.pending_writes import StoredWrite
from tuskpoint_server.journal.database.unit_of_work import UnitOfWork
from tuskpoint_server.journal.removal.garbage_collection import FreedValues, remove_unneeded
from tuskpoint_server.journal.sql.schema import checkpoints, contents, threads
from tuskpoint_server.journal.sql.statements import Statement
from tuskpoint_server.journal.values import contents as values
from tuskpoint_server.journal.values.contents import referred_digests

T = TypeVar("T")

LATER_US = 2**62
PLENTY = 2**62


def text(seed: int, size: int) -> bytes:
    """Return letters that compress to about 60 % and contain a label."""
    return bytes(random.Random(seed).choices(b"abcdefghijklmnop ", k=size))


class Stepped(Database):
    """A database that calls a hook before each step of a pass."""

    between: Callable[[], Awaitable[None]] | None = None

    def transact(
        self, work: Callable[[UnitOfWork], T], size_bytes: int = 0, *, keeps_heads: bool = False
    ) -> asyncio.Future[T]:
        if self.between is None:
            return super().transact(work, size_bytes, keeps_heads=keeps_heads)

        async def later() -> T:
            await self._step()
            return await Database.transact(self, work, size_bytes, keeps_heads=keeps_heads)

        return asyncio.ensure_future(later())

    async def query(self, work: Callable[[Connection], T]) -> T:
        await self._step()
        return await super().query(work)

    async def _step(self) -> None:
        between, self.between = self.between, None
        if between is not None:
            try:
                await between()
            finally:
                self.between = between


class Home:
    """A journal, and the stored part of it.

    Attributes:
        segments: By hash, the values of a segment, and its writes by checkpoint.
    """

    def __init__(self, database: Stepped, clock: Clock) -> None:
        self.database = database
        self.clock = clock
        self.checkpoints = CheckpointRows(database)
        self.removal = RemovalRows(database)
        self.segments: dict[bytes, dict[bytes, Value]] = {}
        self.written: dict[bytes, dict[bytes, Value]] = {}
        self._sequence = 0

    # --- changes ---------------------------------------------------------------------------

    async def save(
        self,
        checkpoint_id: str,
        channels: Mapping[str, bytes] | tuple[value_pb2.Channel, ...],
        *,
        parent: str = "",
        thread: str = "t",
        ns: str = "",
        writes: Sequence[StoredWrite] = (),
    ) -> None:
        self.clock.advance(1)
        sent = draft(
            checkpoint_id,
            parent,
            channels,
            thread_id=thread,
            ns=ns,
            metadata={"run_id": f"{thread}/{ns}/{checkpoint_id}"},
            writes=writes,
        )
        await self.checkpoints.save_checkpoint(TENANT, sent)

    async def fork(self, source: str, checkpoint_id: str, target: str) -> None:
        """Copy one checkpoint into a new thread of the same family."""

        def copy(batch: UnitOfWork) -> None:
            before = batch.find(TENANT, source)
            assert before is not None
            place = ("", checkpoint_id)
            known = batch.checkpoint(before, place)
            assert known is not None
            log = batch.begin(TENANT, target, family=before.row.family)
            seq = batch.change(log, EventKind.CHECKPOINT_SAVED, place)
            copied = replace(known, seq=seq, parent_id="", run_id=f"{target}//{checkpoint_id}")
            batch.put_checkpoint(log, place, copied)
            log.row.checkpoint_count += 1

        await self.database.transact(copy)

    async def remove(self, checkpoint_id: str, thread: str = "t", ns: str = "") -> None:
        """Remove one checkpoint, if it exists."""
        await self.removal.delete_runs(TENANT, [f"{thread}/{ns}/{checkpoint_id}"])

    async def delete(self, thread: str) -> None:
        """Delete a thread."""
        await self.removal.delete_thread(TENANT, thread)

    async def certify(self, thread: str = "t") -> None:
        """Store all changes since the last call as one segment."""
        await self.database.transact(partial(self._certify, thread=thread))

    def _certify(self, batch: UnitOfWork, thread: str) -> None:
        log = batch.find(TENANT, thread)
        assert log is not None
        row, connection = log.row, batch.connection
        if row.seq == row.certified_seq:
            return
        first, last = row.certified_seq + 1, row.seq
        in_range = checkpoints.c.seq.between(first, last)
        needed: set[bytes] = set()
        for state, delta_base in connection.execute(
            select(checkpoints.c.state, checkpoints.c.delta_base).where(
                checkpoints.c.thread == row.number, in_range
            )
        ).all():
            needed |= referred_digests(state, delta_base)
        stored_values = values.read(connection, row.family, needed)
        held = {digest: value for digest, value in stored_values.items() if value is not EVICTED}
        self._sequence += 1
        sha256 = self._sequence.to_bytes(32, "big")
        self.segments[sha256] = held
        insert_segment(
            *(connection, row.number, sha256),
            identifier=sha256.hex(),
            incarnation=row.incarnation,
            first_seq=first,
            last_seq=last,
            digests=b"".join(sorted(digest[:16] for digest in held)),
        )
        row.certified_seq = last
        row.dirty_since_us = None
        batch.store(log)

    # --- passes ----------------------------------------------------------------------------

    async def family(self, thread: str = "t") -> int:
        def find(connection: Connection) -> int:
            chosen = select(threads.c.family).where(threads.c.thread_id == thread)
            return int(connection.execute(chosen).scalar_one())

        return await self.database.query(find)

    async def remove_unneeded(self, thread: str = "t") -> FreedValues:
        return await remove_unneeded(self.database, await self.family(thread))

    async def evict(
        self, thread: str = "t", *, wanted: int = PLENTY, before_us: int = LATER_US
    ) -> FreedValues:
        family = await self.family(thread)
        return await evict_family(self.database, family, before_us, wanted)

    # --- reading ---------------------------------------------------------------------------

    async def load(self, checkpoint_id: str, thread: str = "t", ns: str = "") -> Checkpoint:
        checkpoint = await self.checkpoints.load(TENANT, key(checkpoint_id, thread, ns), View.FULL)
        assert checkpoint is not None
        return checkpoint

    async def here(self, checkpoint_id: str, thread: str = "t", ns: str = "") -> set[str]:
        """Return the channels of a checkpoint whose values are in the journal."""
        state = (await self.load(checkpoint_id, thread, ns)).state
        assert state is not None
        assert all(channel.value is not None for channel in state.channels), "a value is not stored"
        return {channel.name for channel in state.channels if channel.value is not EVICTED}

    async def data(self, checkpoint_id: str, thread: str = "t", ns: str = "") -> dict[str, bytes]:
        """Return the values of a checkpoint; evicted values are read from their segments."""
        state = (await self.load(checkpoint_id, thread, ns)).state
        assert state is not None
        held = {row["digest"]: row["segment"] for row in await self.rows(thread)}
        data_by_channel = {}
        for channel in state.channels:
            assert channel.digest is not None
            value = channel.value
            if value is EVICTED:
                value = self.segments[held[channel.digest]][channel.digest]
            assert value is not None
            data_by_channel[channel.name] = value.data
        return data_by_channel

    async def read_back(self, checkpoint_id: str, thread: str = "t") -> int:
        """Put evicted values of a checkpoint back into the journal; return their number."""
        state = (await self.load(checkpoint_id, thread)).state
        assert state is not None
        rows = {row["digest"]: row for row in await self.rows(thread)}
        evicted = [
            channel.digest
            for channel in state.channels
            if channel.value is EVICTED and channel.digest
        ]

        def put(batch: UnitOfWork) -> None:
            log = batch.find(TENANT, thread)
            assert log is not None
            for digest in evicted:
                value = self.segments[rows[digest]["segment"]][digest]
                batch.put_content(log, rows[digest]["seq"], stored_value(digest, value))

        await self.database.transact(put)
        return len(evicted)

    async def rows(self, thread: str = "t") -> list[dict[str, Any]]:
        """Return the rows of the values of a thread's family, in the order of insertion."""
        return await self.rows_of(await self.family(thread))

    async def rows_of(self, family: int) -> list[dict[str, Any]]:
        """Return the rows of the values of a family, in the order of insertion."""

        def read(connection: Connection) -> list[dict[str, Any]]:
            chosen = select(contents).where(contents.c.family == family)
            rows = Statement(chosen.order_by(contents.c.number)).run(connection).fetchall()
            return [dict(zip(contents.c.keys(), row, strict=True)) for row in rows]

        return await self.database.query(read)

    async def check_groups(self, thread: str = "t") -> None:
        """Check that each value here is whole, or a patch on a whole value that is here."""
        rows = {row["digest"]: row for row in await self.rows(thread)}
        for row in rows.values():
            if row["data"] is None:
                assert row["keyframe"] is None
                assert row["segment"] in self.segments
                assert row["digest"] in self.segments[row["segment"]]
            elif row["encoding"] == Encoding.PATCH:
                keyframe = rows[row["keyframe"]]
                assert keyframe["data"] is not None
                assert keyframe["encoding"] != Encoding.PATCH
                assert int(row["patches"]) < 64


@asynccontextmanager
async def home_in(directory: Path) -> AsyncIterator[Home]:
    clock = Clock()
    database = await Stepped.open(
        place_of_new_journal(directory / "journal.db"), clock_us=clock, entropy=lambda: 0x1234567890
    )
    assert isinstance(database, Stepped)
    try:
        yield Home(database, clock)
    finally:
        await database.close()
