"""The outbox: events for webhooks, written in the transaction that makes the event.

So an event is sent if and only if its change is journaled. Without webhooks the outbox writes
nothing.
"""

from __future__ import annotations

from sqlalchemy import Connection, bindparam, update

from ...core.threads import is_reserved
from ...core.webhooks import Subscriptions, WebhookEvent
from ..sql.schema import deliveries
from ..sql.statements import Statement, insert_rows
from .thread_rows import Place, ThreadRow

_COLUMNS = (
    *("tenant", "webhook", "thread", "event", "seq", "checkpoint_ns", "checkpoint_id"),
    *("created_us", "due_us", "attempts", "parked", "error"),
)
_INSERT = Statement(insert_rows(deliveries, _COLUMNS))
_of = deliveries.c
_HURRY = Statement(
    update(deliveries)
    .where(
        _of.thread == bindparam("of_thread"),
        _of.event == bindparam("of_event"),
        _of.attempts == 0,
        _of.due_us > bindparam("now_us"),
    )
    .values(due_us=bindparam("now_us"))
)


class Outbox:
    """The events of an open write transaction.

    Attributes:
        subscriptions: The webhooks of the server.
        count: Number of events that were written out.
    """

    def __init__(self, subscriptions: Subscriptions) -> None:
        self.subscriptions = subscriptions
        self.count = 0
        self._rows: list[tuple[object, ...]] = []
        self._hurried: list[dict[str, int]] = []

    def add(
        self,
        row: ThreadRow,
        event: WebhookEvent,
        now_us: int,
        place: Place = ("", ""),
        *,
        agent_id: str | None = None,
        due_us: int | None = None,
    ) -> None:
        """Add an event of a user's thread, for each webhook that wants the event.

        `place` has the checkpoint, the offer or the key of the effect of the event. `agent_id` is
        the agent that the event is for; by default the agent of the thread. `due_us` is the time
        before which the event is not posted; by default now.
        """
        if not self.subscriptions.webhooks or is_reserved(row.thread_id):
            return
        agent_id = row.agent_id if agent_id is None else agent_id
        for webhook in self.subscriptions.names(row.tenant, agent_id, event):
            change = (row.tenant, webhook, row.number, int(event), row.seq, *place)
            times = (now_us, now_us if due_us is None else due_us)
            self._rows.append((*change, *times, 0, False, ""))

    def hurry(self, row: ThreadRow, event: WebhookEvent, now_us: int) -> None:
        """Let events of a thread that wait for their time be looked at now."""
        if self.subscriptions.webhooks:
            parameters = {"of_thread": row.number, "of_event": int(event), "now_us": now_us}
            self._hurried.append(parameters)

    def write_out(self, connection: Connection) -> None:
        """Write the events so far."""
        _INSERT.run_rows(connection, _COLUMNS, self._rows)
        for parameters in self._hurried:
            _HURRY.run(connection, **parameters).close()
        self.count += len(self._rows) + len(self._hurried)
        self.discard()

    def discard(self) -> None:
        """Forget the events of a change that was undone."""
        self._rows, self._hurried = [], []
