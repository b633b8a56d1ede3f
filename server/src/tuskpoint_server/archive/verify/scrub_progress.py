"""Progress of the scrub, stored in the journal: a restart or another server continues there.

A scrub that started with the first thread after each restart would never reach the last thread of a
large journal on a server that restarts often. A random start would reach it some time, but nobody
could tell when all threads had been checked.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import NamedTuple

from sqlalchemy import Connection, bindparam, select

from ...journal.database.unit_of_work import UnitOfWork
from ...journal.sql.journal_metadata import SCRUB
from ...journal.sql.schema import journal_info, threads
from ...journal.sql.statements import Statement, put_rows
from ...journal.values.integrity import CheckPosition

MAX_DAMAGED = 100  # threads of a tenant whose names are kept

_READ = Statement(select(journal_info.c.value).where(journal_info.c.name == bindparam("of_name")))
_WRITE = Statement(put_rows(journal_info, ("name",)))
_FROM = Statement(
    select(threads.c.number, threads.c.tenant, threads.c.thread_id)
    .where(threads.c.number >= bindparam("first"))
    .order_by(threads.c.number)
    .limit(1)
)

Names = dict[str, list[str]]
"""Names of threads by tenant."""


class NumberedThread(NamedTuple):
    """A thread, by its number and by its name."""

    number: int
    tenant: str
    thread_id: str


@dataclass(slots=True)
class Progress:
    """A pass through all threads, and the findings of the last complete pass. Times are in us.

    Attributes:
        number: Number of the next thread.
        at: Position up to which that thread was checked; `None`: not at all.
        began_us: Start of this pass; 0: no pass started.
        ended_us: End of the last complete pass; 0: no pass ended.
        damaged: Threads in which the last complete pass found damage that it did not repair.
        found: Threads in which this pass found such damage.
    """

    number: int = 0
    at: CheckPosition | None = None
    began_us: int = 0
    ended_us: int = 0
    damaged: Names = field(default_factory=dict)
    found: Names = field(default_factory=dict)

    def note(self, thread: NumberedThread) -> bool:
        """Add a thread to the damaged threads of this pass; return whether it was added."""
        names = self.found.setdefault(thread.tenant, [])
        if thread.thread_id in names or len(names) >= MAX_DAMAGED:
            return False
        names.append(thread.thread_id)
        return True

    def end(self, now_us: int) -> None:
        """End the pass."""
        self.number, self.at = 0, None
        self.ended_us = now_us
        self.damaged, self.found = self.found, {}

    def of_tenant(self, tenant: str) -> list[str]:
        """Return a tenant's threads in which this pass or the last one found damage."""
        names = (*self.damaged.get(tenant, ()), *self.found.get(tenant, ()))
        return list(dict.fromkeys(names))[:MAX_DAMAGED]


def read(connection: Connection) -> Progress:
    """Return the stored progress of the scrub."""
    row = _READ.run(connection, of_name=SCRUB).fetchone()
    if row is None:
        return Progress()
    content: Mapping[str, object] = json.loads(row[0])
    progress = Progress(**content)  # type: ignore[arg-type]  # as `record` wrote it
    if progress.at is not None:
        part, after = progress.at
        progress.at = CheckPosition(part, tuple(after))
    return progress


def record(batch: UnitOfWork, progress: Progress) -> None:
    """Store the progress of the scrub."""
    _WRITE.run(batch.connection, name=SCRUB, value=json.dumps(asdict(progress))).close()


def thread_from(connection: Connection, number: int) -> NumberedThread | None:
    """Return the first thread whose number is at least `number`, deleted or not."""
    row = _FROM.run(connection, first=number).fetchone()
    return NumberedThread(*row) if row is not None else None
