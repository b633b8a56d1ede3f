"""A server whose journal, in SQLite or PostgreSQL, is edited behind the server's back."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg

from tests.kit.databases import journal_of
from tests.kit.servers.processes import ServerProcess
from tuskpoint import Client, DataLoss

STEPS = 6
SKIP_TRIGGERS = "SET session_replication_role = replica"
"""Statement of PostgreSQL after which edits run no trigger."""


def of_thread(thread_id: str) -> str:
    """Return the SQL condition for the rows of a thread."""
    return f"thread = (SELECT number FROM threads WHERE thread_id = '{thread_id}')"


class Home:
    """A stopped server with some victims and the thread "other"; its journal can be edited.

    Attributes:
        certified: Whether everything was certified before the edits.
        settings: The environment of the server's next start.
        ids: The checkpoints of each thread, oldest first.
    """

    def __init__(
        self, folder: Path, *, certified: bool, victims: Sequence[str] = ("victim",)
    ) -> None:
        data_dir = folder / "data"
        data_dir.mkdir(parents=True)
        self.certified = certified
        self.url = journal_of(data_dir)
        self.settings = {"TUSKPOINT_JOURNAL": self.url} if self.url else {}
        self.settings["TUSKPOINT_FLUSH_INTERVAL"] = "3600"
        self.settings["TUSKPOINT_BLOB_DIR"] = str(data_dir / "blobs")
        self.server = ServerProcess(folder, self.settings)
        self.server.start()
        with Client(self.server.target) as client:
            self.ids = {
                thread_id: [
                    client.save(thread_id, {"state": f"{thread_id} {step}"}, summary=f"step {step}")
                    for step in range(STEPS)
                ]
                for thread_id in (*victims, "other")
            }
            if certified:
                client.flush()
        self.server.stop()

    def edit(self, *statements: str, anyway: bool = False) -> None:
        """Run statements in the database; each must change a row, except with `anyway`."""
        opened: Any = (
            psycopg.connect(self.url)
            if self.url
            else sqlite3.connect(self.server.data_dir / "journal.db")
        )
        with closing(opened) as database:
            if self.url:
                database.execute(SKIP_TRIGGERS)
            for statement in statements:
                assert database.execute(statement).rowcount > 0 or anyway
            database.commit()

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        """Return the rows of a query."""
        if self.url:
            with psycopg.connect(self.url) as connection:
                return connection.execute(query.encode()).fetchall()
        with closing(sqlite3.connect(self.server.data_dir / "journal.db")) as file:
            return file.execute(query).fetchall()


def is_verified(client: Client, thread_id: str) -> bool:
    """Return whether a verification finds no damage in the journal; damage must name the thread."""
    try:
        outcome = client.verify(thread_id)
    except DataLoss as error:
        return f"thread '{thread_id}' is damaged in the journal" not in str(error)
    assert outcome.ok <= (not outcome.journal_details)
    return not outcome.journal_details
