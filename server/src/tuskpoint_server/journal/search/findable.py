"""Which checkpoints search may find: at this moment, whatever an index holds of them."""

from __future__ import annotations

from sqlalchemy import and_, exists, func, or_

from ...domain.snapshots import THREADS, THREADS_END
from ..database.schema import checkpoints, documents, threads, vectors
from ..database.statements import EMPTY

# So spelled, no index is asked for it: begun with its alternatives, SQLite reads everything.
_NAME = func.coalesce(threads.c.thread_id, EMPTY)

# the checkpoints of a thread may be found
FINDABLE = and_(
    threads.c.deleted.is_(False),
    threads.c.unsearchable.is_(False),
    or_(_NAME < THREADS, _NAME >= THREADS_END),
)
ITS_THREAD = threads.c.number == checkpoints.c.thread
ITS_DOCUMENT = documents.c.number == checkpoints.c.number
ITS_VECTOR = and_(
    vectors.c.thread == checkpoints.c.thread,
    vectors.c.checkpoint_ns == checkpoints.c.checkpoint_ns,
    vectors.c.checkpoint_id == checkpoints.c.checkpoint_id,
)
DOCUMENT_MAY_BE_FOUND = exists().where(ITS_DOCUMENT, ITS_THREAD, FINDABLE)
VECTOR_MAY_BE_FOUND = exists().where(ITS_VECTOR, ITS_THREAD, FINDABLE)
