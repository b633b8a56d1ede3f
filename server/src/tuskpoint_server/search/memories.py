"""Memories: summaries to deliver to MemWal, and the progress of each delivery.

`index` adds memories with the documents; from then on, only one task writes them. When the turn of
a memory comes and its pointer has no findable checkpoint, the memory is removed: the checkpoint was
deleted or summarized again meanwhile, or its thread is no longer searchable.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from sqlalchemy import Connection, Select, bindparam, delete, func, select, update

from ..core.search import Memory, MemoryState, memory_text
from ..journal.database.database import Database
from ..journal.database.unit_of_work import UnitOfWork
from ..journal.sql.schema import UNSURE, checkpoints, documents, memories, threads
from ..journal.sql.statements import Statement
from ..journal.values.integrity import damaged_rows
from .change_feed import ITS_DOCUMENT, ITS_THREAD, C, D, M, T

LOOKED_AT = 200  # memories that one transaction examines
_PROGRESS = ("state", "unsure", "attempts", "due_us", "job_id", "blob_id")


def _oldest_due() -> Select[object]:
    # Second key is the tenant, as in the index by state.
    return (
        select(M.number, M.tenant, M.pointer, M.text, M.unsure, M.attempts, M.job_id, M.due_us)
        .where(M.due_us <= bindparam("now_us"))
        .order_by(M.due_us, M.tenant, M.number)
        .limit(bindparam("max_rows"))
    )


_DUE = Statement(_oldest_due().where(M.state == bindparam("of_state")))
# The sum keeps SQLite from using the index by state, which also contains all sure memories.
_DUE_UNSURE = Statement(_oldest_due().where(UNSURE, M.state + 0 == bindparam("of_state")))
# Not `change_feed.FINDABLE`, with which SQLite starts at all checkpoints. What that condition also
# excludes, threads of the server's own, has no documents, or none with such a pointer.
_SUMMARIES = Statement(
    select(C.number, C.summary)
    .select_from(documents)
    .join(checkpoints, ITS_DOCUMENT)
    .join(threads, ITS_THREAD)
    .where(
        D.tenant == bindparam("of_tenant"),
        D.pointer == bindparam("of_pointer"),
        T.deleted.is_(False),
        T.unsearchable.is_(False),
    )
)
_OF_NUMBER = M.number == bindparam("of_number")
_DROP = Statement(delete(memories).where(_OF_NUMBER))
_BEGIN = Statement(
    update(memories).where(_OF_NUMBER).values(unsure=True, due_us=bindparam("now_us"))
)
_NOTE = Statement(
    update(memories)
    .where(_OF_NUMBER)
    .values({name: bindparam(f"new_{name}") for name in _PROGRESS})
)
_NEXT_DUE = Statement(select(func.min(M.due_us)).where(M.state == bindparam("of_state")))
# Numbers rise with time: the least number is the oldest memory, and the index has it.
_COUNT = Statement(
    select(func.count(), func.min(M.number)).where(
        M.state == bindparam("of_state"), M.tenant == bindparam("of_tenant")
    )
)
_TALLIES = Statement(select(M.tenant, M.state, func.count()).group_by(M.tenant, M.state))
_CREATED = Statement(select(M.created_us).where(_OF_NUMBER))


@dataclass(frozen=True, slots=True)
class MemoriesStatus:
    """Memories of a tenant by progress; refused memories are left out."""

    waiting: int = 0
    underway: int = 0
    delivered: int = 0
    oldest_waiting_us: int | None = None


class MemoryTally(NamedTuple):
    """Number of a tenant's memories in a state."""

    tenant: str
    state: MemoryState
    memories: int


class MemoryRows:
    """Memories in a journal. Every call may raise `JOURNAL_UNAVAILABLE`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def take(self, limit: int, *, unsure_first: bool = False) -> list[Memory]:
        """Return memories to send now; until the outcome is noted, they are unsure.

        Memories of checkpoints that search may not find are removed. The longest due memory comes
        first, with others of its tenant; with `unsure_first` an unsure memory has precedence. An
        unsure memory always comes alone.
        """
        looked, outgoing = True, list[Memory]()
        # One transaction removes no more rows than it examines, however many there are to remove.
        while looked and not outgoing:
            looked, outgoing = await self._database.transact(
                partial(_take, limit=limit, unsure_first=unsure_first)
            )
        return outgoing

    async def note(self, progress: Sequence[Memory]) -> None:
        """Record the progress of memories: all fields except the text."""
        rows = [
            {
                "of_number": memory.number,
                **{f"new_{name}": getattr(memory, name) for name in _PROGRESS},
            }
            for memory in progress
        ]
        await self._database.transact(lambda batch: _NOTE.run_many(batch.connection, rows))

    async def underway(self, limit: int) -> list[Memory]:
        """Return sent memories whose jobs are to be polled now, longest due first."""
        now_us = self._database.now_us()
        return await self._database.query(
            lambda connection: _due_memories(connection, _DUE, MemoryState.SENT, now_us, limit)
        )

    async def next_due_us(self, state: MemoryState) -> int | None:
        """Return the time of the next step of memories in a state; `None`: no such memories."""
        [(due_us,)] = await self._database.rows(_NEXT_DUE, of_state=state.value)
        return due_us  # type: ignore[no-any-return]

    async def status(self, tenant: str) -> MemoriesStatus:
        """Return the status of a tenant's memories."""

        def work(connection: Connection) -> MemoriesStatus:
            waiting, sent, delivered = (
                _COUNT.run(connection, of_state=state.value, of_tenant=tenant).fetchall()[0]
                for state in (MemoryState.WAITING, MemoryState.SENT, MemoryState.DELIVERED)
            )
            created = _CREATED.run(connection, of_number=waiting[1]).fetchone()
            oldest_us = created[0] if created is not None else None
            return MemoriesStatus(waiting[0], sent[0], delivered[0], oldest_us)

        return await self._database.query(work)

    async def pending(self, tenant: str) -> int:
        """Return the number of a tenant's memories that probably cannot be recalled yet."""
        return await self._database.query(
            lambda connection: sum(
                _COUNT.run(connection, of_state=state.value, of_tenant=tenant).fetchall()[0][0]
                for state in (MemoryState.WAITING, MemoryState.SENT)
            )
        )

    async def tallies(self) -> list[MemoryTally]:
        """Return the number of memories by tenant and state, for states with memories."""
        return [
            MemoryTally(tenant, MemoryState(state), count)
            for tenant, state, count in await self._database.rows(_TALLIES)
        ]


def _take(batch: UnitOfWork, limit: int, unsure_first: bool) -> tuple[bool, list[Memory]]:
    """Start sending the oldest memories; return whether any was examined, and those to send."""
    connection, waiting = batch.connection, MemoryState.WAITING
    due_memories: list[Memory] = []
    if unsure_first:
        due_memories = _due_memories(connection, _DUE_UNSURE, waiting, batch.now_us, LOOKED_AT)
    due_memories = due_memories or _due_memories(connection, _DUE, waiting, batch.now_us, LOOKED_AT)
    outgoing: list[Memory] = []
    dead_numbers: list[int] = []
    for memory in due_memories:
        if outgoing and (memory.unsure or memory.tenant != outgoing[0].tenant):
            continue
        if not _is_live(connection, memory):
            dead_numbers.append(memory.number)
            continue
        outgoing.append(memory)
        if memory.unsure or len(outgoing) == limit:
            break
    _DROP.run_many(connection, [{"of_number": number} for number in dead_numbers])
    rows = [(batch.now_us, memory.number) for memory in outgoing]
    _BEGIN.run_rows(connection, ("now_us", "of_number"), rows)
    return bool(due_memories), outgoing


def _due_memories(
    connection: Connection, statement: Statement, state: MemoryState, now_us: int, limit: int
) -> list[Memory]:
    rows = statement.run(connection, of_state=state.value, now_us=now_us, max_rows=limit).fetchall()
    return [
        Memory(number, tenant, bytes(pointer), text, state, bool(unsure), *columns)
        for number, tenant, pointer, text, unsure, *columns in rows
    ]


def _is_live(connection: Connection, memory: Memory) -> bool:
    pointer = memory.pointer
    rows = _SUMMARIES.run(connection, of_tenant=memory.tenant, of_pointer=pointer).fetchall()
    numbers = [number for number, summary in rows if memory_text(summary, pointer) == memory.text]
    return len(damaged_rows(connection, numbers)) < len(numbers)
