"""What a journal says of itself: its layout, its identity and its generation."""

from __future__ import annotations

import base64
import uuid
from pathlib import Path

from sqlalchemy import Connection, bindparam, insert, inspect, select, update

from .backend import Backend
from .schema import catalogs, journal_info, packs, threads
from .sqlite import Sqlite
from .statements import Statement, driver_of, inserting, putting

LAYOUT = "3"
"""Layout of the tables; a database says in `journal_info` which one it has."""

JOURNAL_ID, GENERATION = "journal_id", "generation"
JOURNAL_KEY = "journal_key"
"""Key of a sealed journal, wrapped by the key provider, in base64; others have none."""

CLOCK = "clock"
"""The last time of a journal and the uptime of the server that recorded it; see `journal.clock`."""

_LAYOUT = "layout"
OWN = (JOURNAL_ID, GENERATION, _LAYOUT)
"""Names of the facts that every journal has."""

_OLDER = ("1", "2")
_UNFINISHED = "unfinished"  # layout of a journal that is being filled
_FIRST_VERSION = "alembic_version"
_ROOTS = Statement(
    select(catalogs.c.tenant, catalogs.c.root)
    .where(catalogs.c.root.is_not(None))
    .order_by(catalogs.c.tenant)
)
_FIRST_PACKS = Statement(
    select(packs.c.tenant).distinct().where(packs.c.tenant.not_in(select(catalogs.c.tenant)))
)
_ANY_THREAD = Statement(select(threads.c.number).limit(1))
_ADD_KEY = Statement(inserting(journal_info).on_conflict_do_nothing(index_elements=["name"]))
_REPLACE_KEY = Statement(putting(journal_info, ("name",)))
_SET_FACT = Statement(
    update(journal_info)
    .where(journal_info.c.name == bindparam("of_name"))
    .values(value=bindparam("fact"))
)


def backend_of(where: Path | str) -> Backend:
    """Return the database at a file of SQLite, or at a URL of PostgreSQL."""
    if isinstance(where, Path):
        return Sqlite(where)
    from .postgres import Postgres  # its driver is an extra

    return Postgres(where)


def prepare(backend: Backend, generation: int | None) -> dict[str, str]:
    """Make the tables that are missing; return what the journal says of itself.

    `generation`: as for `Database.open`.
    """
    with backend.engine.connect() as connection:
        backend.check(connection)
        backend.own(connection)
        with backend.transaction(connection, writes=True):
            known = read_facts(connection)
            if generation is not None and known is not None:
                if not is_unfinished(known):
                    raise RuntimeError("it is not empty; choose an empty --data-dir or database")
                backend.drop(connection)
                known = None
            if known is None:
                return make(backend, connection, generation or 1, finished=generation is None)
            check_finished(known)
            return known


def begin_sealing(backend: Backend, wrapped: str) -> str:
    """Give an empty journal its key, unless another server has; return the one that it has.

    Raises:
        RuntimeError: It has rows that are not sealed.
    """
    with backend.engine.connect() as connection, backend.transaction(connection, writes=True):
        known = (read_facts(connection) or {}).get(JOURNAL_KEY)
        if known is None and _ANY_THREAD.run(connection).fetchone():
            raise RuntimeError(
                "it is not sealed, and only a new journal can be: rebuild it with `recover` in an "
                "empty --data-dir or database, or start without --seal-journal"
            )
        if known is None:
            _ADD_KEY.run(connection, name=JOURNAL_KEY, value=wrapped).close()
        return known or wrapped


def replace_key(backend: Backend, wrapped: str) -> None:
    """Store the key of a sealed journal, wrapped anew."""
    with backend.engine.connect() as connection, backend.transaction(connection, writes=True):
        _REPLACE_KEY.run(connection, name=JOURNAL_KEY, value=wrapped).close()


def wrapped_keys(backend: Backend) -> dict[str, bytes]:
    """Return the wrapped keys that a journal has, by what they open; empty bytes if not known.

    Raises:
        RuntimeError: There is no complete journal.
        Exception: The database cannot be used; `storage_problem` describes the error.
    """
    with backend.engine.connect() as connection, backend.transaction(connection):
        known = read_finished(connection)
        rows = _ROOTS.run(connection).fetchall()
        first = _FIRST_PACKS.run(connection).fetchall()
    found = {f"the first catalog of tenant {tenant}, on its way": b"" for [tenant] in first}
    found |= {f"the newest catalog of tenant {tenant}": bytes(root) for tenant, root in rows}
    if JOURNAL_KEY in known:
        found["the values in the journal"] = base64.b64decode(known[JOURNAL_KEY])
    return found


def read_facts(connection: Connection) -> dict[str, str] | None:
    """Return what a journal says of itself, or `None` if there are no tables.

    Raises:
        RuntimeError: The tables are of another program, or of the first version.
    """
    tables = inspect(connection).get_table_names()
    if _FIRST_VERSION in tables:
        raise RuntimeError(
            "it was written by the first version of TuskPoint, which this server does not read"
        )
    known: dict[str, str] = {}
    if journal_info.name in tables:
        found = connection.execute(select(journal_info.c.name, journal_info.c.value))
        known = {str(name): str(value) for name, value in found}
    if tables and _LAYOUT not in known:
        raise RuntimeError("it is a database of another program")
    return known or None


def is_unfinished(known: dict[str, str]) -> bool:
    """Return whether a journal is being filled."""
    return known[_LAYOUT] == _UNFINISHED


def check_finished(known: dict[str, str]) -> None:
    """Check that a journal is complete and has this layout.

    Raises:
        RuntimeError: It is being filled, or it has another layout.
    """
    if is_unfinished(known):
        raise RuntimeError("it was not filled to the end; run `recover` or `copy` again")
    if known[_LAYOUT] != LAYOUT:
        older = known[_LAYOUT] in _OLDER
        why = "rebuild it from its blobs with `recover`" if older else "a newer server wrote it"
        raise RuntimeError(
            f"it has layout {known[_LAYOUT]} and this server knows layout {LAYOUT}: {why}"
        )


def read_finished(connection: Connection) -> dict[str, str]:
    """Return what a complete journal says of itself.

    Raises:
        RuntimeError: There is none.
    """
    known = read_facts(connection)
    if known is None:
        raise RuntimeError("there is no journal")
    check_finished(known)
    return known


def make(
    backend: Backend,
    connection: Connection,
    generation: int,
    *,
    finished: bool,
    journal_id: str = "",
) -> dict[str, str]:
    """Make the tables of a journal in an empty database; a new journal has an ID of its own."""
    for definition in backend.definitions():
        driver_of(connection).execute(definition)
    facts = {
        JOURNAL_ID: journal_id or uuid.uuid4().hex,
        _LAYOUT: LAYOUT if finished else _UNFINISHED,
        GENERATION: str(generation),
    }
    rows = [{"name": name, "value": value} for name, value in facts.items()]
    connection.execute(insert(journal_info), rows)
    return facts


def finish(connection: Connection) -> None:
    """Let a journal that was filled be opened once this transaction is committed."""
    _SET_FACT.run(connection, of_name=_LAYOUT, fact=LAYOUT)


def renew(connection: Connection, above: int = 0) -> int:
    """Give a journal another identity and the next generation, which is returned.

    It is also above the generation `above`.
    """
    known = read_finished(connection)
    generation = max(int(known[GENERATION]), above) + 1
    _SET_FACT.run(connection, of_name=JOURNAL_ID, fact=uuid.uuid4().hex)
    _SET_FACT.run(connection, of_name=GENERATION, fact=str(generation))
    return generation
