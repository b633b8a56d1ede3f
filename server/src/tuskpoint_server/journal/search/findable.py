"""Which checkpoints search may find: at this moment, whatever an index holds of them."""

from __future__ import annotations

from sqlalchemy import and_, exists, func, or_

from ...domain.snapshots import THREADS, THREADS_END
from ..database.schema import checkpoints, documents, threads, vectors
from ..database.statements import EMPTY

# Columns, as aliases stand in SQL.
C, D, T, V = checkpoints.c, documents.c, threads.c, vectors.c

# So spelled, no index is asked for it: begun with its alternatives, SQLite reads everything.
_NAME = func.coalesce(T.thread_id, EMPTY)

# the checkpoints of a thread may be found
FINDABLE = and_(
    T.deleted.is_(False), T.unsearchable.is_(False), or_(_NAME < THREADS, _NAME >= THREADS_END)
)
ITS_THREAD = T.number == C.thread
ITS_DOCUMENT = D.number == C.number
ITS_VECTOR = and_(
    V.thread == C.thread, V.checkpoint_ns == C.checkpoint_ns, V.checkpoint_id == C.checkpoint_id
)
DOCUMENT_MAY_BE_FOUND = exists().where(ITS_DOCUMENT, ITS_THREAD, FINDABLE)
VECTOR_MAY_BE_FOUND = exists().where(ITS_VECTOR, ITS_THREAD, FINDABLE)
