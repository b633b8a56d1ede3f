"""Lineage of checkpoints across threads.

A reference is "thread:checkpoint", and both parts may contain colons. Forked and adopted
checkpoints keep their ID, so a reference names a thread exactly if it consists of the thread's
name, a colon and the ID of the referring checkpoint.
"""

from __future__ import annotations

from collections.abc import Iterator

from sqlalchemy import Connection, bindparam, literal_column, select

from ...archive.rows.stored import live_thread
from ...core.lineage import Descent, LineageStep, LineageTree
from ...core.model import CheckpointKey
from ...core.threads import is_reserved
from ...journal.sql.schema import DESCENDED, checkpoints, threads
from ...journal.sql.statements import SqlRow, Statement

_STEP = select(
    threads.c.thread_id,
    checkpoints.c.checkpoint_ns,
    checkpoints.c.checkpoint_id,
    checkpoints.c.forked_from,
    checkpoints.c.adopted_from,
    checkpoints.c.rolled_back_from,
    checkpoints.c.created_us,
).join(threads, threads.c.number == checkpoints.c.thread)
# Unordered: to sort, SQLite would leave this index and read the whole thread.
_OF_THREAD = Statement(
    _STEP.where(
        threads.c.tenant == bindparam("of_tenant"),
        threads.c.thread_id == bindparam("of_thread_id"),
        DESCENDED,
    )
)
_FROM = bindparam("from_reference", type_=threads.c.thread_id.type)
_FROM_THREAD = tuple(
    Statement(
        _STEP.where(
            checkpoints.c.tenant == bindparam("of_tenant"),
            checkpoints.c[column] != literal_column("''"),
            checkpoints.c[column] > _FROM,
            checkpoints.c[column] < bindparam("below_reference"),
            checkpoints.c[column] == _FROM + checkpoints.c.checkpoint_id,
        )
        .order_by(checkpoints.c[column], threads.c.thread_id)
        .limit(bindparam("max_rows"))
    )
    for column in ("forked_from", "adopted_from")
)
_COLON, _PAST_COLON = ":", ";"


def tree(connection: Connection, tenant: str, thread_id: str, max_steps: int) -> LineageTree | None:
    """Return the known steps to and from a thread; see `LineageRows.lineage`."""
    if live_thread(connection, tenant, thread_id) is None:
        return None
    ancestors: list[LineageStep] = []
    seen: set[str] = set()
    current = thread_id
    while len(ancestors) < max_steps and current not in seen:
        seen.add(current)
        steps = _steps(connection, tenant, current)
        came = [step for step in steps if step.descent is not Descent.ROLLBACK]
        if not came:
            break
        ancestors.append(came[0])
        current = came[0].origin.thread_id
    descendants: list[LineageStep] = []
    thread_ids = [thread_id]
    for current in thread_ids:  # the list grows
        if len(descendants) > max_steps:
            break
        steps = _steps(connection, tenant, current)
        descendants += [step for step in steps if step.descent is Descent.ROLLBACK]
        bounds = {"from_reference": current + _COLON, "below_reference": current + _PAST_COLON}
        for statement in _FROM_THREAD:  # forks and adoptions that start from the thread
            rows = statement.run(connection, of_tenant=tenant, **bounds, max_rows=max_steps + 1)
            for step in (step for row in rows.fetchall() for step in _steps_of(row)):
                came_from, target = step.origin.thread_id, step.key.thread_id
                if came_from == current and not is_reserved(target):
                    descendants.append(step)
                    thread_ids += [target] if target not in thread_ids else []
    truncated = len(descendants) > max_steps
    return LineageTree(tuple(reversed(ancestors)), tuple(descendants[:max_steps]), truncated)


def _steps(connection: Connection, tenant: str, thread_id: str) -> list[LineageStep]:
    """Return the steps that end in a thread, by ID."""
    rows = _OF_THREAD.run(connection, of_tenant=tenant, of_thread_id=thread_id).fetchall()
    by_id = sorted(rows, key=lambda row: (row[2], row[1]))
    return [step for row in by_id for step in _steps_of(row)]


def _steps_of(row: SqlRow) -> Iterator[LineageStep]:
    """Yield the steps that a checkpoint's references name, if they have the expected form."""
    key, created_us = CheckpointKey(*row[:3]), row[6]
    for descent, reference in ((Descent.FORK, row[3]), (Descent.ADOPTION, row[4])):
        thread_id = reference.removesuffix(_COLON + key.checkpoint_id)
        if thread_id != reference:
            origin = CheckpointKey(thread_id, key.checkpoint_ns, key.checkpoint_id)
            yield LineageStep(descent, origin, key, created_us)
    if row[5]:
        prefix = key.thread_id + _COLON
        # In a copied thread the reference names the original thread.
        copied = not row[5].startswith(prefix)
        checkpoint_id = row[5].rpartition(_COLON)[2] if copied else row[5][len(prefix) :]
        origin = CheckpointKey(key.thread_id, key.checkpoint_ns, checkpoint_id)
        yield LineageStep(Descent.ROLLBACK, origin, key, created_us)
