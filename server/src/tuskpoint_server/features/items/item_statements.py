"""Statements on items of stores."""

from __future__ import annotations

from sqlalchemy import (
    and_,
    bindparam,
    delete,
    exists,
    func,
    literal_column,
    or_,
    select,
    update,
)

from ...core.limits import LIMITS
from ...journal.sql.schema import UNEMBEDDED, checkpoints, documents, items, threads, vectors
from ...journal.sql.statements import EMPTY, LISTED, Statement, of_thread, put_rows

SWEPT_AT_ONCE = 500

_I, _T, _C = items.c, threads.c, checkpoints.c
_LIVES = or_(_I.expire_us.is_(None), _I.expire_us > bindparam("now_us"))
_ITS_CHECKPOINT = and_(
    _C.thread == _I.thread, _C.checkpoint_ns == EMPTY, _C.checkpoint_id == _I.checkpoint_id
)
_ITS_DOCUMENT = and_(documents.c.number == _C.number, documents.c.seq == _C.seq)
_ITS_VECTOR = and_(
    vectors.c.thread == _C.thread,
    vectors.c.checkpoint_ns == _C.checkpoint_ns,
    vectors.c.checkpoint_id == _C.checkpoint_id,
)
_BELOW = and_(
    _T.tenant == bindparam("of_tenant"),
    # One range of names, for the index; the range may include other namespaces.
    _T.thread_id >= bindparam("of_name"),
    _T.thread_id < bindparam("past_name"),
    or_(_T.thread_id == bindparam("of_name"), _T.thread_id >= bindparam("from_name")),
)
_TIMES = (_I.created_us, _I.updated_us, _I.ttl_us, _I.expire_us, _I.more)
STANDING = Statement(
    select(_I.checkpoint_id, *_TIMES).where(of_thread(items), _I.checkpoint_id.in_(LISTED))
)
_JOINED = threads.join(items, _I.thread == _T.number).join(checkpoints, _ITS_CHECKPOINT)
READ_ITEM = (_T.thread_id, _I.checkpoint_id, *_TIMES, _C.metadata)
FIND = Statement(
    select(_I.checkpoint_id, _C.number)
    .select_from(_JOINED)
    .where(
        _T.tenant == bindparam("of_tenant"),
        _T.thread_id == bindparam("of_name"),
        _I.checkpoint_id.in_(LISTED),
        _LIVES,
    )
)
NUMBERS = Statement(
    select(_C.number, _I.more)
    .select_from(_JOINED)
    .where(_BELOW, _LIVES)
    .order_by(_I.updated_us.desc(), _T.thread_id, _I.checkpoint_id)
    .limit(bindparam("max_rows"))
)
SIZES = Statement(select(_C.number, func.length(_C.metadata)).where(_C.number.in_(LISTED)))
NUMBERED = Statement(
    select(_C.number, *READ_ITEM).select_from(_JOINED).where(_C.number.in_(LISTED), _LIVES)
)


# A vector counts if it was made from the present text.
VECTORS = Statement(
    select(_C.number, vectors.c.vector)
    .select_from(checkpoints.join(documents, _ITS_DOCUMENT).join(vectors, _ITS_VECTOR))
    .where(_C.number.in_(LISTED))
)
_said = checkpoints.alias("said")
MORE_VECTORS = Statement(
    select(_C.number, vectors.c.vector)
    .select_from(
        checkpoints.join(
            _said,
            and_(
                _said.c.thread == _C.thread,
                _said.c.checkpoint_ns.in_(
                    [literal_column(f"'{number}'") for number in range(1, LIMITS.max_item_paths)]
                ),
                _said.c.checkpoint_id == _C.checkpoint_id,
            ),
        )
        .join(
            documents,
            and_(documents.c.number == _said.c.number, documents.c.seq == _said.c.seq),
        )
        .join(
            vectors,
            and_(
                vectors.c.thread == _said.c.thread,
                vectors.c.checkpoint_ns == _said.c.checkpoint_ns,
                vectors.c.checkpoint_id == _said.c.checkpoint_id,
            ),
        )
    )
    .where(_C.number.in_(LISTED))
)
OWED = Statement(
    select(documents.c.number)
    .join(threads, _T.number == documents.c.thread)
    .where(UNEMBEDDED, _BELOW)
    .limit(1)
)
NAMESPACES = Statement(
    select(_T.thread_id)
    .where(_BELOW, exists().where(_I.thread == _T.number, _LIVES))
    .order_by(_T.thread_id)
)
PAST_ITEMS = Statement(
    select(_T.tenant, _T.thread_id, _I.checkpoint_id)
    .join(items, _I.thread == _T.number)
    .where(_I.expire_us.is_not(None), _I.expire_us <= bindparam("now_us"))
    .order_by(_I.expire_us)
    .limit(SWEPT_AT_ONCE)
)
METADATA = Statement(
    select(_C.checkpoint_id, _C.metadata, _C.summary).where(
        of_thread(checkpoints), _C.checkpoint_ns == EMPTY, _C.checkpoint_id.in_(LISTED)
    )
)
ITEM_COLUMNS = tuple(column.name for column in items.columns)
PUT_ITEMS = Statement(put_rows(items, ("thread", "checkpoint_id")), distinct=True)
_OF_ITEM = (of_thread(items), _I.checkpoint_id == bindparam("of_id"))
DROP_ITEMS = Statement(delete(items).where(*_OF_ITEM))
EXTEND = Statement(update(items).where(*_OF_ITEM).values(expire_us=bindparam("new_us")))
