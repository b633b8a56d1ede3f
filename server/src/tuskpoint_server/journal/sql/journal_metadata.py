"""Facts that a journal records about itself, such as its layout, ID and generation."""

from __future__ import annotations

import base64
import logging
import uuid
from pathlib import Path

from sqlalchemy import Connection, bindparam, delete, insert, inspect, select, update

from ..failpoints import failpoint
from ..migrations import FIRST, LATEST, Migration, migrations_after
from .backend import Backend
from .schema import catalogs, checkpoints, journal_info, packs, threads, writes
from .sealing import BY_PLACE, Seal
from .sqlite import Sqlite
from .statements import Statement, driver_of, insert_rows, put_rows

JOURNAL_ID, GENERATION = "journal_id", "generation"
JOURNAL_KEY = "journal_key"
"""Key of a sealed journal, wrapped by the key provider, in base64; absent in other journals."""

SEALING = "sealing"
"""Sealing format of a sealed journal (`sealing.BY_VALUE` and the others)."""

CLOCK = "clock"
"""The last time of a journal and the uptime of the server that recorded it; see `journal.clock`."""
ROW_KEY = "row_key"
"""Key that binds the rows (`binding`), wrapped, in base64."""
SCRUB = "scrub"
"""Progress of the scrub; see `archive.verify.scrub_progress`."""
BOUND = "bound"
"""Set if all rows are bound, so that a row without a MAC is damaged."""

_LAYOUT, _NUMBER = "layout", "migration"
OWN = (JOURNAL_ID, GENERATION, _LAYOUT, _NUMBER)
"""Names of the facts that every journal has."""

# Values of the fact `layout`: of journals of layout 1, which have no number; of older journals; of
# all later journals, whose number is another fact; of a journal that is being filled.
_UNNUMBERED, _TOO_OLD = "3", ("1", "2")
_NUMBERED = "numbered"
_UNFINISHED = "unfinished"
_FIRST_VERSION = "alembic_version"
_LOCK_TIMEOUT = "SET LOCAL lock_timeout = '10s'"  # for a migration; readers wait behind its locks
_ROOTS = Statement(
    select(catalogs.c.tenant, catalogs.c.root)
    .where(catalogs.c.root.is_not(None))
    .order_by(catalogs.c.tenant)
)
_FIRST_PACKS = Statement(
    select(packs.c.tenant).distinct().where(packs.c.tenant.not_in(select(catalogs.c.tenant)))
)
_ANY_THREAD = Statement(select(threads.c.number).limit(1))
_ADD_FACT = Statement(insert_rows(journal_info).on_conflict_do_nothing(index_elements=["name"]))
_PUT_FACT = Statement(put_rows(journal_info, ("name",)))
_DROP_FACT = Statement(delete(journal_info).where(journal_info.c.name == bindparam("of_name")))
_UNBIND = (
    Statement(update(threads).values(binding=None)),
    *(Statement(update(table).values(mac=None)) for table in (checkpoints, writes)),
)
_SEALING = Statement(
    select(journal_info.c.value).where(journal_info.c.name == SEALING).with_for_update(read=True)
)
_SET_FACT = Statement(
    update(journal_info)
    .where(journal_info.c.name == bindparam("of_name"))
    .values(value=bindparam("fact"))
)

_log = logging.getLogger(__name__)


def backend_of(where: Path | str) -> Backend:
    """Return the backend for a SQLite file, or for the URL of a PostgreSQL database."""
    if isinstance(where, Path):
        return Sqlite(where)
    from .postgres import Postgres  # the driver of PostgreSQL is an extra

    return Postgres(where)


def prepare(
    backend: Backend,
    generation: int | None,
    *,
    migrates: bool = True,
    accepts_rows: bool = False,
) -> dict[str, str]:
    """Create missing tables, and migrate older tables; return the journal's facts.

    Args:
        backend: The database.
        generation: As for `Database.open`.
        migrates: Whether an older layout is migrated; if not, an older layout is refused.
        accepts_rows: As for `Database.open`.

    Raises:
        RuntimeError: As `Database.open`.
    """
    with backend.engine.connect() as connection:
        backend.check(connection)
        backend.own(connection)
        with backend.transaction(connection, writes=True):
            facts = read_facts(connection)
            if generation is not None and facts is not None:
                if not is_unfinished(facts):
                    raise RuntimeError("it is not empty; choose an empty --data-dir or database")
                backend.drop(connection)
                facts = None
            if facts is None:
                return make(backend, connection, generation or 1, finished=generation is None)
            check_finished(facts)
        for step in migrations_after(layout_of(facts)):
            if not migrates:
                raise RuntimeError(
                    f"it has layout {layout_of(facts)} and this server uses layout {LATEST}: make "
                    "a backup, then start without --no-migrate"
                )
            facts = _migrate(backend, connection, facts, step)
        if accepts_rows:
            with backend.transaction(connection, writes=True):
                unbind(connection)
                facts = read_facts(connection) or facts
        return facts


def _migrate(
    backend: Backend, connection: Connection, facts: dict[str, str], step: Migration
) -> dict[str, str]:
    """Apply one migration; return the journal's facts after it."""
    _log.warning(
        "the journal is migrated from layout %d to %d, to %s; older servers will not open it",
        *(step.number - 1, step.number, step.title),
    )
    layout_facts = {_LAYOUT: _NUMBERED, _NUMBER: str(step.number)}
    with backend.transaction(connection, writes=True):
        if backend.is_shared:
            driver_of(connection).execute(_LOCK_TIMEOUT)
        for statement in step.statements[backend.name]:
            driver_of(connection).execute(statement)
        failpoint("journal.before_migrated")
        for name, value in layout_facts.items():
            _PUT_FACT.run(connection, name=name, value=value).close()
        facts = read_facts(connection) or facts
    failpoint("journal.after_migrated")
    return facts


def begin_sealing(backend: Backend, wrapped: str) -> str:
    """Store the key of an empty journal, unless another server has; return the stored key.

    Raises:
        RuntimeError: The journal has rows that are not sealed.
    """
    with backend.engine.connect() as connection, backend.transaction(connection, writes=True):
        journal_key = (read_facts(connection) or {}).get(JOURNAL_KEY)
        if journal_key is None and _ANY_THREAD.run(connection).fetchone():
            raise RuntimeError(
                "it is not sealed, and only a new journal can be: rebuild it with `recover` in an "
                "empty --data-dir or database, or start without --seal-journal"
            )
        if journal_key is None:
            _ADD_FACT.run(connection, name=JOURNAL_KEY, value=wrapped).close()
            _ADD_FACT.run(connection, name=SEALING, value=BY_PLACE).close()
        return journal_key or wrapped


def follow_sealing(connection: Connection, seal: Seal) -> None:
    """Seal in the journal's current format, which cannot change during this transaction."""
    row = _SEALING.run(connection).fetchone()
    seal.state = row[0] if row is not None else BY_PLACE


def set_sealing(connection: Connection, state: str) -> None:
    """Set the journal's sealing format."""
    _PUT_FACT.run(connection, name=SEALING, value=state).close()


def add_row_key(backend: Backend, wrapped: str) -> str:
    """Store the key of a journal's rows, unless another server has; return the stored key."""
    with backend.engine.connect() as connection, backend.transaction(connection, writes=True):
        _ADD_FACT.run(connection, name=ROW_KEY, value=wrapped).close()
        return (read_facts(connection) or {}).get(ROW_KEY, wrapped)


def replace_key(backend: Backend, name: str, wrapped: str) -> None:
    """Store a key of the journal that was wrapped again; `name`: the fact of the key."""
    with backend.engine.connect() as connection, backend.transaction(connection, writes=True):
        _PUT_FACT.run(connection, name=name, value=wrapped).close()


def has_threads(backend: Backend) -> bool:
    """Return whether a journal has rows of threads."""
    with backend.engine.connect() as connection, backend.transaction(connection):
        return _ANY_THREAD.run(connection).fetchone() is not None


def row_key_of(backend: Backend) -> str:
    """Return the stored form of the key that binds the rows; empty if there is no key yet."""
    with backend.engine.connect() as connection, backend.transaction(connection):
        return read_finished(connection).get(ROW_KEY, "")


def unbind(connection: Connection) -> None:
    """Make the next start bind all rows as they are, with another key."""
    for statement in _UNBIND:
        statement.run(connection)
    for name in (ROW_KEY, BOUND):
        _DROP_FACT.run(connection, of_name=name)


def set_bound(connection: Connection) -> None:
    """Note that all rows are bound."""
    _PUT_FACT.run(connection, name=BOUND, value="1").close()


def wrapped_keys(backend: Backend) -> dict[str, bytes]:
    """Return the wrapped keys of a journal, by their use; empty bytes for an unknown key.

    Raises:
        RuntimeError: The journal is missing or not complete.
        Exception: The database cannot be used; `storage_problem` describes the error.
    """
    with backend.engine.connect() as connection, backend.transaction(connection):
        facts = read_finished(connection)
        rows = _ROOTS.run(connection).fetchall()
        first = _FIRST_PACKS.run(connection).fetchall()
    keys = {f"the first catalog of tenant {tenant}, on its way": b"" for [tenant] in first}
    keys |= {f"the newest catalog of tenant {tenant}": bytes(root) for tenant, root in rows}
    if JOURNAL_KEY in facts:
        keys["the values in the journal"] = base64.b64decode(facts[JOURNAL_KEY])
    return keys


def read_facts(connection: Connection) -> dict[str, str] | None:
    """Return a journal's facts, or `None` if there are no tables.

    Raises:
        RuntimeError: Another program, or the first version of TuskPoint, created the tables.
    """
    tables = inspect(connection).get_table_names()
    if _FIRST_VERSION in tables:
        raise RuntimeError(
            "it was written by the first version of TuskPoint, which this server does not read"
        )
    facts: dict[str, str] = {}
    if journal_info.name in tables:
        rows = connection.execute(select(journal_info.c.name, journal_info.c.value))
        facts = {str(name): str(value) for name, value in rows}
    if tables and _LAYOUT not in facts:
        raise RuntimeError("it is a database of another program")
    return facts or None


def is_unfinished(known: dict[str, str]) -> bool:
    """Return whether a journal is being filled."""
    return known[_LAYOUT] == _UNFINISHED


def layout_of(known: dict[str, str]) -> int:
    """Return the layout number of a finished journal; above `LATEST` for a newer layout."""
    if known[_LAYOUT] == _UNNUMBERED:
        return FIRST
    number = known.get(_NUMBER, "")
    is_known = known[_LAYOUT] == _NUMBERED and number.isdecimal()
    return int(number) if is_known else LATEST + 1


def check_finished(known: dict[str, str]) -> None:
    """Check that a journal is complete and has a layout that this server can read.

    Raises:
        RuntimeError: The journal is being filled, or its layout is too old or newer.
    """
    if is_unfinished(known):
        raise RuntimeError("it was not filled to the end; run `recover` or `copy` again")
    if known[_LAYOUT] in _TOO_OLD:
        raise RuntimeError(
            "its layout is from before the first that can be migrated: rebuild it from its blobs "
            "with `recover`"
        )
    if layout_of(known) > LATEST:
        shown = known.get(_NUMBER) or known[_LAYOUT]
        raise RuntimeError(
            f"it has layout {shown} and this server knows layouts up to {LATEST}: a newer server "
            "wrote it; start that version"
        )


def read_finished(connection: Connection, *, current: bool = True) -> dict[str, str]:
    """Return the facts of a complete journal.

    Args:
        connection: A connection to the journal.
        current: Whether the layout must be the layout of this server.

    Raises:
        RuntimeError: The journal is missing, or it has another layout.
    """
    facts = read_facts(connection)
    if facts is None:
        raise RuntimeError("there is no journal")
    check_finished(facts)
    if current and layout_of(facts) < LATEST:
        raise RuntimeError(
            f"it has layout {layout_of(facts)} and {LATEST} is needed: start the server with it "
            "once, which migrates it"
        )
    return facts


def new_facts(journal_id: str, generation: int, *, finished: bool) -> dict[str, str]:
    """Return the facts of a new journal."""
    return {
        JOURNAL_ID: journal_id,
        _LAYOUT: _NUMBERED if finished else _UNFINISHED,
        _NUMBER: str(LATEST),
        GENERATION: str(generation),
        BOUND: "1",
    }


def make(
    backend: Backend,
    connection: Connection,
    generation: int,
    *,
    finished: bool,
    journal_id: str = "",
) -> dict[str, str]:
    """Create the tables of a journal in an empty database; a new journal gets a new ID."""
    for definition in backend.definitions():
        driver_of(connection).execute(definition)
    facts = new_facts(journal_id or uuid.uuid4().hex, generation, finished=finished)
    rows = [{"name": name, "value": value} for name, value in facts.items()]
    connection.execute(insert(journal_info), rows)
    return facts


def finish(connection: Connection) -> None:
    """Allow servers to open a filled journal once this transaction is committed."""
    _SET_FACT.run(connection, of_name=_LAYOUT, fact=_NUMBERED)


def renew(connection: Connection, above: int = 0) -> int:
    """Give a journal a new ID and the next generation; return the generation.

    The generation is also above the generation `above`.
    """
    facts = read_finished(connection, current=False)
    generation = max(int(facts[GENERATION]), above) + 1
    _SET_FACT.run(connection, of_name=JOURNAL_ID, fact=uuid.uuid4().hex)
    _SET_FACT.run(connection, of_name=GENERATION, fact=str(generation))
    return generation
