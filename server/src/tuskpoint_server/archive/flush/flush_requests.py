"""Requests of servers to the leader of a shared journal, and the leader's answers.

A server that is not the leader does not flush. It requests a flush in a row of the tenant, and
reads the progress of flushes from the journal.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from sqlalchemy import Connection, bindparam, select, update

from ...core.errors import Reason, Refusal
from ...journal.sql.schema import flush_requests
from ...journal.sql.statements import Statement, insert_rows, put_rows


class FlushRequestRow(NamedTuple):
    """Row of a tenant; fields as the columns of `flush_requests`."""

    tenant: str
    asked: int = 0
    all_asked: int = 0
    all_tried: int = 0
    outcome: str = ""
    trouble: str = ""
    trouble_us: int | None = None
    failing: int = 0


_OF_TENANT = flush_requests.c.tenant == bindparam("of_tenant")
_COLUMNS = select(*(flush_requests.c[name] for name in FlushRequestRow._fields))
_EVERY, _ONE = Statement(_COLUMNS), Statement(_COLUMNS.where(_OF_TENANT))
_INSERT = insert_rows(flush_requests)
_ASK = Statement(
    _INSERT.on_conflict_do_update(
        index_elements=[flush_requests.c.tenant],
        set_={
            "asked": flush_requests.c.asked + 1,
            "all_asked": flush_requests.c.all_asked + _INSERT.excluded.all_asked,
        },
    ).returning(flush_requests.c.all_asked)
)
_TRIED = Statement(
    update(flush_requests)
    .where(_OF_TENANT, flush_requests.c.all_tried < bindparam("tried"))
    .values(all_tried=bindparam("tried"), outcome=bindparam("new_outcome"))
)
_REPORT = Statement(
    put_rows(flush_requests, ("tenant",), replaced=("trouble", "trouble_us", "failing"))
)


def ask(connection: Connection, tenant: str, *, everything: bool) -> int:
    """Request a flush; return the number of the last request to certify everything.

    `everything`: whether this is a request to certify everything, which retries gaps, and at once.
    """
    row = FlushRequestRow(tenant, 1, int(everything))._asdict()
    return int(_ASK.run(connection, **row).fetchall()[0][0])


def read_rows(connection: Connection) -> dict[str, FlushRequestRow]:
    """Return the rows of all tenants that have a request or a recorded error."""
    return {row[0]: FlushRequestRow(*row) for row in _EVERY.run(connection).fetchall()}


def of_tenant(connection: Connection, tenant: str) -> FlushRequestRow:
    """Return the row of a tenant."""
    row = _ONE.run(connection, of_tenant=tenant).fetchone()
    return FlushRequestRow(tenant) if row is None else FlushRequestRow(*row)


def record_outcome(
    connection: Connection, tenant: str, number: int, outcome: int | Refusal
) -> None:
    """Record the outcome of the requests up to a number: certified checkpoints, or a refusal."""
    if isinstance(outcome, Refusal):
        content: object = {"reason": outcome.reason.name, "metadata": outcome.metadata}
    else:
        content = outcome
    _TRIED.run(connection, of_tenant=tenant, tried=number, new_outcome=json.dumps(content))


def outcome_of(row: FlushRequestRow) -> int | Refusal:
    """Return the last outcome of a tenant, as `record_outcome` recorded it."""
    content: Any = json.loads(row.outcome)
    if isinstance(content, int):
        return content
    return Refusal(Reason[content["reason"]], **content["metadata"])


def report(connection: Connection, row: FlushRequestRow) -> None:
    """Record the leader's last error and its number of failing renewals."""
    _REPORT.run(connection, **row._asdict())
