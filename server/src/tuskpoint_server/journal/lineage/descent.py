"""Which checkpoints came from which, over threads.

A reference is "thread:checkpoint", and both parts may hold colons. Forked and adopted
checkpoints keep their ID, so a reference names a thread exactly if it is that thread's
name, a colon and the ID of the checkpoint that refers to it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence

from sqlalchemy import Connection, bindparam, literal_column, select

from ...domain.lineage import Descent, LineageStep, LineageTree
from ...domain.model import CheckpointKey
from ...domain.snapshots import is_reserved
from ..database.schema import DESCENDED, checkpoints, threads
from ..database.statements import Statement
from .stored import live

_STEP = select(
    threads.c.thread_id,
    checkpoints.c.checkpoint_ns,
    checkpoints.c.checkpoint_id,
    checkpoints.c.forked_from,
    checkpoints.c.adopted_from,
    checkpoints.c.rolled_back_from,
    checkpoints.c.created_us,
).join(threads, threads.c.number == checkpoints.c.thread)
# Not in order: for that SQLite would leave the index of these, and walk the whole thread.
_OF_THREAD = Statement(
    _STEP.where(
        threads.c.tenant == bindparam("of_tenant"),
        threads.c.thread_id == bindparam("of_thread_id"),
        DESCENDED,
    )
)
_FROM = bindparam("from_reference", type_=threads.c.thread_id.type)
_FROM_THREAD = {
    column: Statement(
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
}
_COLON, _PAST_COLON = ":", ";"


def tree(connection: Connection, tenant: str, thread_id: str, max_steps: int) -> LineageTree | None:
    """Return the steps to and from a thread; see `Lineage.lineage`."""
    if live(connection, tenant, thread_id) is None:
        return None
    descendants = _descendants(connection, tenant, thread_id, max_steps + 1)
    return LineageTree(
        ancestors=tuple(reversed(_ancestors(connection, tenant, thread_id, max_steps))),
        descendants=tuple(descendants[:max_steps]),
        truncated=len(descendants) > max_steps,
    )


def _ancestors(
    connection: Connection, tenant: str, thread_id: str, max_steps: int
) -> list[LineageStep]:
    """Return the steps that lead to a thread, nearest first, as far as they are known here."""
    steps: list[LineageStep] = []
    seen = {thread_id}
    while len(steps) < max_steps:
        came = [
            step
            for step in _steps(connection, tenant, thread_id)
            if step.descent is not Descent.ROLLBACK
        ]
        if not came:
            return steps
        steps.append(came[0])
        thread_id = came[0].origin.thread_id
        if thread_id in seen:
            return steps
        seen.add(thread_id)
    return steps


def _descendants(
    connection: Connection, tenant: str, thread_id: str, max_steps: int
) -> list[LineageStep]:
    """Return the steps that begin in a thread or below it, nearest first."""
    steps: list[LineageStep] = []
    seen = {thread_id}
    waiting = deque([thread_id])
    while waiting and len(steps) < max_steps:
        current = waiting.popleft()
        steps += [
            step for step in _steps(connection, tenant, current) if step.descent is Descent.ROLLBACK
        ]
        for step in _from(connection, tenant, current, max_steps):
            steps.append(step)
            if step.key.thread_id not in seen:
                seen.add(step.key.thread_id)
                waiting.append(step.key.thread_id)
    return steps


def _steps(connection: Connection, tenant: str, thread_id: str) -> list[LineageStep]:
    """Return the steps that end in a thread, by ID."""
    rows = _OF_THREAD.run(connection, of_tenant=tenant, of_thread_id=thread_id).fetchall()
    by_id = sorted(rows, key=lambda row: (row[2], row[1]))
    return [step for row in by_id for step in _steps_of(row)]


def _from(
    connection: Connection, tenant: str, thread_id: str, max_steps: int
) -> Iterator[LineageStep]:
    """Yield the forks and adoptions that begin in a thread."""
    for statement in _FROM_THREAD.values():
        rows = statement.run(
            connection,
            of_tenant=tenant,
            from_reference=thread_id + _COLON,
            below_reference=thread_id + _PAST_COLON,
            max_rows=max_steps,
        ).fetchall()
        for step in (step for row in rows for step in _steps_of(row)):
            if step.origin.thread_id == thread_id and not is_reserved(step.key.thread_id):
                yield step


def _steps_of(row: Sequence[object]) -> Iterator[LineageStep]:
    thread_id, namespace, checkpoint_id, forked, adopted, rolled_back, created_us = row
    key = CheckpointKey(str(thread_id), str(namespace), str(checkpoint_id))
    for descent, reference in (
        (Descent.FORK, str(forked)),
        (Descent.ADOPTION, str(adopted)),
        (Descent.ROLLBACK, str(rolled_back)),
    ):
        origin = _origin(descent, reference, key) if reference else None
        if origin is not None:
            yield LineageStep(descent, origin, key, int(str(created_us)))


def _origin(descent: Descent, reference: str, key: CheckpointKey) -> CheckpointKey | None:
    """Return what a reference names; `None` if it is not of the expected form."""
    if descent is Descent.ROLLBACK:
        own = key.thread_id + _COLON
        # In a copied thread the reference names the one that it was copied from.
        copied = not reference.startswith(own)
        checkpoint_id = reference.rpartition(_COLON)[2] if copied else reference[len(own) :]
        return CheckpointKey(key.thread_id, key.checkpoint_ns, checkpoint_id)
    thread_id = reference.removesuffix(_COLON + key.checkpoint_id)
    if thread_id == reference:
        return None
    return CheckpointKey(thread_id, key.checkpoint_ns, key.checkpoint_id)
