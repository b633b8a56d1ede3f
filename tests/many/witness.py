"""Triggers in PostgreSQL that log each change of a journal, and the check of that log."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import groupby, pairwise
from operator import itemgetter
from typing import Any

import psycopg

# A sequence and a log row per change: the log has the order of the row locks.
_SETUP = """
CREATE SCHEMA witness;
CREATE TABLE witness.catalogs (n bigserial, tenant text, generation bigint, number bigint);
CREATE TABLE witness.threads (
    n bigserial, thread bigint, incarnation bigint, seq bigint, certified_seq bigint
);
CREATE FUNCTION witness.note_catalog() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    INSERT INTO witness.catalogs (tenant, generation, number)
        VALUES (NEW.tenant, NEW.generation, NEW.number);
    RETURN NULL;
END $$;
CREATE FUNCTION witness.note_thread() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    INSERT INTO witness.threads (thread, incarnation, seq, certified_seq)
        VALUES (NEW.number, NEW.incarnation, NEW.seq, NEW.certified_seq);
    RETURN NULL;
END $$;
CREATE TRIGGER witness AFTER INSERT OR UPDATE ON catalogs
    FOR EACH ROW EXECUTE FUNCTION witness.note_catalog();
CREATE TRIGGER witness AFTER INSERT OR UPDATE ON threads
    FOR EACH ROW EXECUTE FUNCTION witness.note_thread();
"""
_WRONG = {
    "a number of the thread has no change, or two": (
        "SELECT number, thread_id, seq FROM threads WHERE seq <> compacted_seq"
        " + (SELECT count(*) FROM changes WHERE thread = number AND changes.seq > compacted_seq)"
    ),
    "not certified": (
        "SELECT number, thread_id, seq, certified_seq FROM threads WHERE seq <> certified_seq"
    ),
    "two segments have the same change": (
        "SELECT a.thread, a.first_seq, a.last_seq, b.first_seq, b.last_seq FROM members AS a"
        " JOIN members AS b USING (tenant, thread, incarnation) WHERE a.sha256 < b.sha256"
        " AND a.first_seq <= b.last_seq AND b.first_seq <= a.last_seq"
    ),
    "a gap": "SELECT thread, checkpoint_id, reason FROM holes",
    "a pack that is in flight for ever": "SELECT number, spool FROM packs",
}


class Witness:
    """Logs the changes of a database's journal from its creation on."""

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn
        with psycopg.connect(dsn) as connection:
            connection.execute(_SETUP.encode())

    def problems(self) -> Iterator[str]:
        """Yield the faults of the journal once all is certified, and the faults of its log."""
        with psycopg.connect(self._dsn) as connection:
            for what, query in _WRONG.items():
                for row in connection.execute(query.encode()):
                    yield f"{what}: {row}"
            catalogs = connection.execute(
                "SELECT tenant, generation, number FROM witness.catalogs ORDER BY tenant, n"
            ).fetchall()
            yield from _steps(catalogs, _catalog_follows)
            threads = connection.execute(
                "SELECT thread, incarnation, seq, certified_seq FROM witness.threads"
                " ORDER BY thread, n"
            ).fetchall()
            yield from _steps(threads, _thread_follows)
            assert catalogs
            assert threads


Row = tuple[Any, ...]


def _steps(rows: list[Row], follows: Callable[[Row, Row], bool]) -> Iterator[str]:
    """Yield each row that does not follow the previous row of its thread or tenant."""
    for _, of_one in groupby(rows, key=itemgetter(0)):
        for earlier, later in pairwise(of_one):
            if not follows(earlier, later):
                yield f"{later} follows {earlier}"


def _catalog_follows(earlier: Row, later: Row) -> bool:
    return later in (earlier, (*earlier[:2], earlier[2] + 1))


def _thread_follows(earlier: Row, later: Row) -> bool:
    _, _, seq, certified_seq = later
    rises = all(before <= after for before, after in zip(earlier, later, strict=True))
    return rises and bool(certified_seq <= seq)
