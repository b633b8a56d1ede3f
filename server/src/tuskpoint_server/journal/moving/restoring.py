"""Backs up a SQLite journal while a server uses it, and creates a journal from a backup.

A backup is one file without a log. A restored journal is a journal of its own, in the next
generation: the original journal may have continued, and stored and certified content under the
numbers that the restored journal gives again.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from sqlalchemy import Connection, create_engine, delete, func, select
from sqlalchemy.pool import NullPool

from ...core.process import sync
from ..failpoints import failpoint
from ..migrations import FIRST
from ..sql.backend import Backend
from ..sql.journal_metadata import GENERATION, layout_of, read_finished, renew, unbind
from ..sql.schema import catalogs, checkpoints, members, packs, threads
from ..sql.sqlite import Sqlite, log_bytes
from ..sql.statements import driver_of, of_users
from .checking import damaged_values
from .copying import keep_servers_away

_LOGS = ("-wal", "-shm")  # files beside an open database file


class DamagedError(Exception):
    """The backup is damaged; the text has SQLite's finding."""


class Summary(NamedTuple):
    """The content of a journal."""

    threads: int  # live threads
    checkpoints: int  # with the checkpoints of snapshots
    generation: int
    catalogs: Mapping[str, str]  # tenant to the blob ID of its newest catalog
    damaged: Sequence[str] = ()  # a line about each value that differs from its digest


def back_up(journal: Path, file: Path) -> Summary:
    """Write a snapshot of a journal to a new file; durable on return.

    A server may use the journal meanwhile: its saves do not wait. All values of the file are
    compared with their digests, unless they are sealed.

    Raises:
        RuntimeError: The journal is not complete.
        OSError: The file exists already, or cannot be written.
        sqlite3.Error: The journal cannot be read, or the file cannot be written.
    """
    if file.exists():
        raise FileExistsError(None, "it is there already")
    part = file.with_name(f".{file.name}.{os.getpid()}.part")
    os.close(os.open(part, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    try:
        with Sqlite(journal).engine.connect() as connection:
            read_finished(connection)
            driver_of(connection).execute("VACUUM INTO ?", (str(part),))
        with _open_unused(part) as connection:
            summary = _summary(connection)._replace(damaged=damaged_values(connection))
        sync(part)
        failpoint("backup.before_rename")
        if file.exists():
            raise FileExistsError(None, "it is there already")
        part.rename(file)
        sync(file.parent)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
    return summary


def restore(file: Path, journal: Path) -> Summary:
    """Create the journal of an empty data directory, which the caller has locked, from a backup.

    Raises:
        RuntimeError: The directory has a journal already, or the file is not a backup.
        DamagedError: The file is damaged.
        OSError: A file cannot be read or written.
    """
    for suffix in ("", *_LOGS):
        if Path(f"{journal}{suffix}").exists():
            raise RuntimeError(f"{journal}{suffix} is there already; choose an empty --data-dir")
    if log_bytes(file):
        raise RuntimeError(
            f"{file}-wal has changes that are not in the file; make a backup with "
            "`tuskpoint-server backup`"
        )
    part = journal.with_name(f".{journal.name}.part")
    _remove(part)  # an earlier attempt was killed
    try:
        shutil.copyfile(file, part)
        with _open_unused(part) as connection:
            _check_pages(connection)
            read_finished(connection, current=False)
        summary = give_new_identity(Sqlite(part))
        sync(part)
        failpoint("restore.before_rename")
        part.rename(journal)
        sync(journal.parent)
    except BaseException:
        _remove(part)
        raise
    return summary


def _remove(part: Path) -> None:
    for suffix in ("", *_LOGS):
        Path(f"{part}{suffix}").unlink(missing_ok=True)


def give_new_identity(backend: Backend, above: int = 0, *, trusted: bool = True) -> Summary:
    """Give a restored journal a new ID and the next generation.

    The generation is also above `above`, the generation of a catalog that the journal does not
    know. If the journal is `trusted`, the next start binds the rows as they are, with a new key.
    In-flight packs are dropped: the spool may not have them, and the original journal may have
    certified them. The next flush builds them again.

    Raises:
        RuntimeError: The journal is not complete.
        Exception: The database failed or is in use; its `storage_problem` describes the error.
    """
    with backend.engine.connect() as connection:
        backend.check(connection)
        keep_servers_away(backend, connection)
        with backend.transaction(connection, writes=True):
            facts = read_finished(connection, current=False)
            renew(connection, above)
            if trusted and layout_of(facts) > FIRST:  # the next start creates a key
                unbind(connection)
            connection.execute(delete(packs))
        with backend.transaction(connection):
            return _summary(connection)


@contextmanager
def _open_unused(file: Path) -> Iterator[Connection]:
    """Open a database file that no other process uses, and leave the file as it is."""
    place = f"{file.resolve().as_uri()}?immutable=1"
    engine = create_engine(
        "sqlite://", creator=lambda: sqlite3.connect(place, uri=True), poolclass=NullPool
    )
    with engine.connect() as connection:
        yield connection


def _check_pages(connection: Connection) -> None:
    try:
        [result] = driver_of(connection).execute("PRAGMA integrity_check(1)").fetchone()
    except sqlite3.DatabaseError as error:
        if error.sqlite_errorcode == sqlite3.SQLITE_NOTADB:
            raise RuntimeError("it is not a database of SQLite") from error
        raise DamagedError(str(error)) from error
    if result != "ok":
        raise DamagedError(result.partition("\n")[0])


def _summary(connection: Connection) -> Summary:
    living = select(func.count()).where(of_users(threads), threads.c.deleted.is_(False))
    stored = (members.c.tenant == catalogs.c.tenant) & (members.c.sha256 == catalogs.c.sha256)
    rows = connection.execute(select(catalogs.c.tenant, members.c.blob_id).join(members, stored))
    return Summary(
        connection.execute(living).scalar_one(),
        connection.execute(select(func.count()).select_from(checkpoints)).scalar_one(),
        int(read_finished(connection, current=False)[GENERATION]),
        dict(rows.fetchall()),
    )
