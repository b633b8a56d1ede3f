"""Copies a journal into another database: resumes where it stopped, and compares at the end."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from sqlalchemy import Connection, delete, func, insert, select

from ..failpoints import failpoint
from ..sql.backend import Backend
from ..sql.journal_metadata import (
    CLOCK,
    GENERATION,
    JOURNAL_ID,
    OWN,
    SCRUB,
    finish,
    is_unfinished,
    make,
    read_facts,
    read_finished,
)
from ..sql.schema import journal_info, packs
from .checking import damaged_values
from .rows import Rows, all_rows, copy_numbers

Progress = Callable[[str, int], None]
"""Accepts the name of a table and the number of its rows that this attempt has copied so far."""


class UnequalError(Exception):
    """The copy differs from its source; the text names the table."""


class CopiedTable(NamedTuple):
    """A table that is equal in both databases: its name, number of rows, and their SHA-256."""

    name: str
    rows: int
    sha256: bytes


class JournalCopy(NamedTuple):
    """A finished copy."""

    tables: Sequence[CopiedTable]
    packs: int  # in-flight packs of the source; the copy's next flush builds them again
    anew: bool  # the source had changed since an earlier attempt, whose rows were dropped
    damaged: Sequence[str]  # a line for each value that differs from its digest


def copy(source: Backend, target: Backend, progress: Progress) -> JournalCopy:
    """Copy a journal that no server uses into an empty database, or finish an unfinished copy.

    The copy is the same journal in its next generation. No server opens it before it is complete.

    Raises:
        RuntimeError: The source is not a complete journal, or the target is not empty.
        UnequalError: A table differs; the copy stays unfinished.
        Exception: A database failed or is in use; its `storage_problem` describes the error.
    """
    with source.engine.connect() as reading, target.engine.connect() as writing:
        with _name_database("the source"):
            source.check(reading)
            keep_servers_away(source, reading)
        with source.transaction(reading):  # all reads see the same moment
            with _name_database("the source"):
                facts = read_finished(reading)
            with _name_database("the target"):
                target.check(writing)
                keep_servers_away(target, writing)
                resumed = _begin(target, writing, facts)
            run = _Run(reading, target, writing, progress)
            anew = False
            try:
                tables = run.fill()
            except Exception as error:
                # Rows of an earlier attempt differ from the source's rows, or collide with them.
                anew = resumed and not any(
                    backend.storage_problem(error) for backend in (source, target)
                )
                if not anew:
                    raise
                with target.transaction(writing, writes=True):
                    target.drop(writing)
                    _make(target, writing, facts)
                tables = run.fill()
            with target.transaction(writing, writes=True):
                copy_numbers(reading, writing)
                _copy_facts(writing, facts)
                finish(writing)
            [left_out] = reading.execute(select(func.count()).select_from(packs)).one()
            return JournalCopy(tables, left_out, anew, damaged_values(reading))


def keep_servers_away(backend: Backend, connection: Connection) -> None:
    """Keep servers from a journal while this connection is open, and check that none uses it.

    Raises:
        Exception: A server uses the journal; the backend's `storage_problem` describes the error.
    """
    backend.own(connection)
    backend.use(connection, alone=True)


class _Run(NamedTuple):
    """One attempt of a copy, with the two databases."""

    reading: Connection
    target: Backend
    writing: Connection
    progress: Progress

    def fill(self) -> list[CopiedTable]:
        """Copy the rows that the target lacks, and compare all rows.

        Raises:
            UnequalError: A table differs.
        """
        every_rows = all_rows()
        for rows in every_rows:
            self._copy(rows)
        with self.target.transaction(self.writing):
            return [self._compare(rows) for rows in every_rows]

    def _compare(self, rows: Rows) -> CopiedTable:
        digest = rows.digest(self.reading)
        if rows.digest(self.writing) != digest:
            raise UnequalError(f"table {rows.name} of the copy differs from the source")
        return CopiedTable(rows.name, *digest)

    def _copy(self, rows: Rows) -> None:
        copied = 0
        for run in rows.runs(self.reading, rows.last(self.writing)):
            with self.target.transaction(self.writing, writes=True):
                rows.write(self.writing, run)
            failpoint("copy.after_run")
            self.target.tidy(self.writing)
            copied += len(run)
            self.progress(rows.name, copied)


@contextmanager
def _name_database(place: str) -> Iterator[None]:
    """Name in errors the database that cannot be used, source or target."""
    try:
        yield
    except RuntimeError as error:
        raise RuntimeError(f"{place} cannot be used: {error}") from error


def _begin(target: Backend, connection: Connection, source_facts: dict[str, str]) -> bool:
    """Create the tables unless they exist; return whether an earlier attempt created them."""
    with target.transaction(connection, writes=True):
        facts = read_facts(connection)
        if facts is None:
            _make(target, connection, source_facts)
            return False
        expected = {
            JOURNAL_ID: source_facts[JOURNAL_ID],
            GENERATION: str(int(source_facts[GENERATION]) + 1),
        }
        if not is_unfinished(facts) or not expected.items() <= facts.items():
            raise RuntimeError("it is not empty; choose an empty database or data directory")
        return True


def _make(target: Backend, connection: Connection, facts: dict[str, str]) -> None:
    generation = int(facts[GENERATION]) + 1
    make(target, connection, generation, finished=False, journal_id=facts[JOURNAL_ID])


def _copy_facts(connection: Connection, facts: dict[str, str]) -> None:
    """Copy the other facts of the source, such as the place of its blobs and its embedder."""
    # A copy starts with the time of its own clock, and is not scrubbed.
    excluded = (*OWN, CLOCK, SCRUB)
    connection.execute(delete(journal_info).where(journal_info.c.name.not_in(excluded)))
    rows = [{"name": name, "value": value} for name, value in facts.items() if name not in excluded]
    if rows:
        connection.execute(insert(journal_info), rows)
