"""A listing or a replay of one thread reads no row of another thread."""

from __future__ import annotations

import pytest
from sqlalchemy import Connection
from sqlalchemy.dialects import sqlite

from tests.kit.journal import Journal
from tuskpoint_server.core.model import CheckpointQuery
from tuskpoint_server.journal.values.listing import ListPosition, _listing_statement
from tuskpoint_server.journal.values.segment_refs import ROW

pytestmark = pytest.mark.sqlite


@pytest.mark.parametrize("after", [None, ListPosition("1", "t", "")], ids=["first", "later"])
@pytest.mark.parametrize("replayed", [False, True], ids=["listed", "replayed"])
@pytest.mark.parametrize("checkpoint_ns", [None, ""], ids=["all", "one namespace"])
async def test_the_checkpoints_of_a_thread_are_found_by_the_thread(
    journal: Journal, after: ListPosition | None, checkpoint_ns: str | None, *, replayed: bool
) -> None:
    query = CheckpointQuery(thread_id="t", checkpoint_ns=checkpoint_ns, replayed=replayed)
    statement = _listing_statement("default", query, after, ROW, 101)

    def steps(connection: Connection) -> list[str]:
        literal = statement.compile(
            dialect=sqlite.dialect(), compile_kwargs={"literal_binds": True}
        )
        rows = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {literal}").all()
        return [row[3] for row in rows if row[3].startswith(("SEARCH checkpoints", "SCAN"))]

    assert sorted(step.partition(" (")[0] for step in await journal.database.query(steps)) == [
        "SEARCH checkpoints USING COVERING INDEX checkpoints_by_key",
        "SEARCH checkpoints USING INTEGER PRIMARY KEY",
    ]
