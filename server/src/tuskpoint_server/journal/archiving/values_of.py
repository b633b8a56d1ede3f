"""Reading columns of many values of a family by digest, in few statements."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from functools import cache
from typing import Any

from sqlalchemy import Connection, bindparam, select

from ..database.schema import contents
from ..database.statements import Statement

_LONGEST_LIST = 512


@cache
def _of_digests(columns: tuple[Any, ...], count: int) -> tuple[Statement, tuple[str, ...]]:
    """Return the statement that reads columns of so many values, and its parameters."""
    names = tuple(f"digest_{index}" for index in range(count))
    listed = contents.c.digest.in_([bindparam(name) for name in names])
    chosen = select(*columns).where(contents.c.family == bindparam("of_family"), listed)
    return Statement(chosen), names


def rows(
    connection: Connection,
    columns: tuple[Any, ...],
    family: int,
    digests: Collection[bytes],
    **values: object,
) -> Iterator[tuple[Any, ...]]:
    """Yield columns of the values that are known.

    Args:
        connection: In a transaction.
        columns: What is read; always the same objects, since the statement is kept.
        family: The family.
        digests: The values, each once.
        **values: Parameters of the columns.
    """
    wanted = list(digests)
    for start in range(0, len(wanted), _LONGEST_LIST):
        some = wanted[start : start + _LONGEST_LIST]
        # A list is filled up to the next power of two, so that few texts are compiled.
        count = 1 << (len(some) - 1).bit_length()
        some += [some[-1]] * (count - len(some))
        statement, names = _of_digests(columns, count)
        named = dict(zip(names, some, strict=True))
        cursor = statement.run(connection, of_family=family, **values, **named)
        yield from cursor.fetchall()
        cursor.close()


def data(connection: Connection, family: int, digests: Collection[bytes]) -> dict[bytes, bytes]:
    """Return the stored bytes of values by digest; evicted ones are left out."""
    found = rows(connection, (contents.c.digest, contents.c.data), family, digests)
    return {digest: stored for digest, stored in found if stored is not None}
