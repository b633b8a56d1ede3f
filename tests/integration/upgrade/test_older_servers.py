"""Servers of an older layout that still use a shared journal while the first newer ones run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

from tests.kit.databases import in_postgres, journal_of, postgres, rows_of_server
from tests.kit.servers.processes import ServerProcess
from tuskpoint import Client

USE = 0x7475736C  # first key of the lock that every server holds; layout 1 knows no other one
SCHEMA = "hashtext(current_schema())"
LABELLED = """
WITH renamed AS (
    UPDATE threads SET seq = seq + 1, updated_us = updated_us + 1
    WHERE thread_id = %(thread)s RETURNING number, seq, incarnation, head_id
), labelled AS (
    UPDATE checkpoints SET label = %(label)s FROM renamed
    WHERE thread = renamed.number AND checkpoint_id = renamed.head_id
)
INSERT INTO changes
    (thread, seq, incarnation, kind, checkpoint_ns, checkpoint_id, deleted, created_us)
SELECT number, seq, incarnation, 3, '', head_id, 0, 1 FROM renamed
"""


class OlderServer:
    """Writes rows as a server of layout 1 does: it knows no MACs, and leaves them as they are."""

    def __init__(self, connection: psycopg.Connection[tuple[object, ...]]) -> None:
        self._connection = connection

    def label(self, thread_id: str, label: str) -> None:
        """Set the label of a thread's latest checkpoint."""
        self._connection.execute(LABELLED, {"thread": thread_id, "label": label})


@contextmanager
def older_server(url: str) -> Iterator[OlderServer]:
    """Be connected as an older server is."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"SELECT pg_advisory_lock_shared({USE}, {SCHEMA})".encode())
        yield OlderServer(connection)


@pytest.mark.postgresql
def test_what_older_servers_write_is_bound_when_the_last_one_has_stopped(tmp_path: Path) -> None:
    with in_postgres(postgres()):
        url = journal_of(tmp_path / "data")
        settings = {"TUSKPOINT_JOURNAL": url, "TUSKPOINT_FLUSH_INTERVAL": "3600"}
        with ServerProcess(tmp_path, settings) as server:
            server.start()
            server.stop()
            with psycopg.connect(url) as connection:  # as it is after the tables were migrated
                connection.execute("DELETE FROM journal_info WHERE name = 'bound'")
                connection.execute("ALTER TABLE changes DROP CONSTRAINT IF EXISTS changes_bound")
            with older_server(url) as older:
                server.start()
                with Client(server.target) as client:
                    client.save("shared", {"step": 1})
                    older.label("shared", "reviewed")
                    assert client.load("shared").label == "reviewed"
                    client.save("shared", {"step": 2})
                    client.save("left", {"step": 1})
                    older.label("left", "by the older server")
                    server.stop()
                    assert "bound" not in facts(server)
            server.start()  # a start binds before it listens
            assert facts(server)["bound"] == "1"
            with Client(server.target) as client:
                assert client.load("left").label == "by the older server"
                assert client.load("shared").state == {"step": 2}
                assert {one.label for one in client.history("shared")} == {"reviewed", ""}
                client.flush()
                assert client.verify("left").ok
                assert client.verify("shared").ok
            with older_server(url) as late, pytest.raises(psycopg.errors.CheckViolation):
                late.label("left", "by a server that was cut off")


def facts(server: ServerProcess) -> dict[str, str]:
    """Return what the journal has noted of itself."""
    return dict(rows_of_server(server.data_dir, "SELECT name, value FROM journal_info"))
