"""Settings of a thread: how long it is kept, and whether search finds it."""

from __future__ import annotations

from ...domain.errors import Reason, Refusal
from ...domain.lineage import EventKind
from ..database.logs import Log
from ..database.overlay import Batch


def set_retention(batch: Batch, tenant: str, thread_id: str, retention_s: int) -> None:
    """Set the seconds without a change after which a thread is deleted; 0: never.

    It counts as a change of the thread, also where nothing is different: the time begins
    anew.

    Raises:
        Refusal: `THREAD_NOT_FOUND`.
    """
    log = _live(batch, tenant, thread_id)
    log.row.retention_s = retention_s
    log.row.settings_seq = batch.change(log, EventKind.RETENTION_SET)


def set_searchable(batch: Batch, tenant: str, thread_id: str, searchable: bool) -> None:
    """Set whether search finds the checkpoints of a thread; a change only if it is one.

    Raises:
        Refusal: `THREAD_NOT_FOUND`.
    """
    switch_search(batch, _live(batch, tenant, thread_id), searchable)


def switch_search(batch: Batch, log: Log, searchable: bool) -> None:
    """Set whether search finds the checkpoints of a thread that is at hand."""
    if bool(log.row.unsearchable) is not searchable:
        return
    log.row.unsearchable = not searchable
    log.row.settings_seq = batch.change(log, EventKind.SEARCHABLE_SET, indexed=searchable)


def _live(batch: Batch, tenant: str, thread_id: str) -> Log:
    log = batch.find(tenant, thread_id)
    if log is None or log.row.deleted:
        raise Refusal(Reason.THREAD_NOT_FOUND, thread_id=thread_id)
    return log
