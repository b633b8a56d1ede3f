"""A server whose journal tests edit behind its back, in SQLite and in PostgreSQL."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.kit.databases import in_postgres, journal_of, postgres
from tests.kit.servers.processes import ServerProcess
from tuskpoint import Client, DataLoss

STEPS = 6
OF_THREAD = "thread = (SELECT number FROM threads WHERE thread_id = 'victim')"


@pytest.fixture(params=["sqlite", "postgresql"])
def kind(request: pytest.FixtureRequest) -> Iterator[str]:
    if request.param == "sqlite":
        yield "sqlite"
    else:
        with in_postgres(postgres()):
            yield "postgresql"


class Home:
    """A server with two threads, stopped; its journal can be edited.

    Attributes:
        settings: The environment of its next start.
    """

    def __init__(self, folder: Path, *, certified: bool) -> None:
        data_dir = folder / "data"
        data_dir.mkdir(parents=True)
        self.url = journal_of(data_dir)
        self.settings = {"TUSKPOINT_JOURNAL": self.url} if self.url else {}
        self.settings["TUSKPOINT_FLUSH_INTERVAL"] = "3600"
        self.settings["TUSKPOINT_BLOB_DIR"] = str(data_dir / "blobs")
        self.server = ServerProcess(folder, self.settings)
        self.server.start()
        with Client(self.server.target) as client:
            for thread_id in ("victim", "other"):
                for step in range(STEPS):
                    client.save(thread_id, {"state": f"{thread_id} {step}"}, summary=f"step {step}")
            if certified:
                client.flush()
        self.server.stop()

    def edit(self, *statements: str) -> None:
        """Run statements in the database; each must change a row."""
        if self.url:
            with psycopg.connect(self.url) as connection:
                for statement in statements:
                    assert connection.execute(statement.encode()).rowcount > 0
            return
        with closing(sqlite3.connect(self.server.data_dir / "journal.db")) as file, file:
            for statement in statements:
                assert file.execute(statement).rowcount > 0

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        """Return the rows of a query."""
        if self.url:
            with psycopg.connect(self.url) as connection:
                return connection.execute(query.encode()).fetchall()
        with closing(sqlite3.connect(self.server.data_dir / "journal.db")) as file:
            return file.execute(query).fetchall()

    def ids(self, thread_id: str) -> list[str]:
        """Return the checkpoints of a thread, oldest first."""
        chosen = f"(SELECT number FROM threads WHERE thread_id = '{thread_id}')"
        query = f"SELECT checkpoint_id FROM checkpoints WHERE thread = {chosen} ORDER BY 1"
        return [row[0] for row in self.rows(query)]


def is_verified(client: Client, thread_id: str) -> bool:
    """Whether a verification finds nothing wrong in the journal; whatever it finds is named."""
    try:
        outcome = client.verify(thread_id)
    except DataLoss as error:
        return f"thread '{thread_id}' is damaged in the journal" not in str(error)
    assert outcome.ok <= (not outcome.journal_details)
    return not outcome.journal_details
