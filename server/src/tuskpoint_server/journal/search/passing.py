"""Which rows of the index stand for checkpoints in a scope: asked once, if few do.

A search looks its candidates up as they come, nearest first. Where hardly any passes, that
is a look-up for each row there is; to ask for all that pass is one scan.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import islice
from typing import Any

from sqlalchemy import Boolean, Connection, Select, Table, and_, literal, or_, select
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.elements import ColumnElement
from sqlalchemy.sql.functions import FunctionElement

from ...domain.metadata import matches_typed
from ...domain.search import SearchScope
from ..database.schema import checkpoints, documents, threads
from .findable import FINDABLE, ITS_DOCUMENT, ITS_VECTOR

_TESTED = 16
"""Keys of a filter that metadata is tested for before it is parsed: SQL may be only so deep."""

_BACKSLASH = b"\\"


class _Contains(FunctionElement[bool]):
    """Bytes contain other bytes."""

    name = "contains"
    type = Boolean()
    inherit_cache = True


@compiles(_Contains, "sqlite")
def _in_sqlite(element: _Contains, compiler: Any, **more: Any) -> str:
    return f"instr({compiler.process(element.clauses, **more)}) > 0"


@compiles(_Contains, "postgresql")
def _in_postgresql(element: _Contains, compiler: Any, **more: Any) -> str:
    whole, part = (compiler.process(one, **more) for one in element.clauses)
    return f"position({part} in {whole}) > 0"


def passing(connection: Connection, table: Table, tenant: str, scope: SearchScope) -> set[int]:
    """Return the numbers of a table's rows whose checkpoints are live and in scope.

    Args:
        connection: In a transaction.
        table: Documents or vectors.
        tenant: The tenant.
        scope: Which checkpoints may be found.
    """
    rows = connection.execute(_passing(table, tenant, scope))
    return {number for number, metadata in rows if matches_typed(metadata, scope.filter)}


def _passing(table: Table, tenant: str, scope: SearchScope) -> Select[int, bytes]:
    # The threads come first, and of each its checkpoints: a join would begin with all there are.
    which = select(threads.c.number).where(threads.c.tenant == tenant, FINDABLE)
    if scope.thread_id:
        which = which.where(threads.c.thread_id == scope.thread_id)
    if scope.agent_id:
        which = which.where(threads.c.agent_id == scope.agent_id)
    its_row = ITS_DOCUMENT if table is documents else ITS_VECTOR
    return (
        select(table.c.number, checkpoints.c.metadata)
        .select_from(checkpoints.join(table, its_row))
        .where(
            checkpoints.c.thread.in_(which),
            *([_may_match(scope)] if scope.filter else []),
        )
    )


def _may_match(scope: SearchScope) -> ColumnElement[bool]:
    """Match metadata that is worth parsing.

    Without a backslash there is one way to spell a string in JSON: what is looked for stands
    there byte for byte.
    """
    metadata = checkpoints.c.metadata
    escaped = _Contains(metadata, literal(_BACKSLASH))
    needed = list(_needed(scope))
    if None in needed:
        return escaped
    return or_(escaped, and_(*(_Contains(metadata, literal(part)) for part in needed)))


def _needed(scope: SearchScope) -> Iterator[bytes | None]:
    """Yield what metadata without a backslash holds if it matches; `None`: none can match."""
    for key, value in islice(scope.filter.items(), _TESTED):
        yield _spelled(key)
        # Numbers have many spellings, and so has what is in arrays and objects.
        if value is None or isinstance(value, (bool, str)):
            yield _spelled(value)


def _spelled(value: str | bool | None) -> bytes | None:
    """Return the one spelling of a value, `None` if it takes a backslash."""
    try:
        spelled = json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:  # half of a surrogate pair
        return None
    return None if _BACKSLASH in spelled else spelled
