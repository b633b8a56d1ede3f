"""SQLite uses the right indexes for the statements of search.

The statements are private to their modules; this test checks their plans, not their results.
"""

from __future__ import annotations

from functools import partial

import pytest
from sqlalchemy import Connection, Table

from tests.contract.search.kit import ANYWHERE
from tests.kit.drafts import TENANT
from tests.kit.journal import Journal
from tuskpoint_server.core.search import SearchScope
from tuskpoint_server.journal.sql import statements
from tuskpoint_server.journal.sql.schema import documents, vectors
from tuskpoint_server.journal.sql.statements import Statement
from tuskpoint_server.journal.values import vectors as vectors_of
from tuskpoint_server.search import change_feed, finding, index, memories

pytestmark = pytest.mark.sqlite


def plan_of(connection: Connection, sql: str, values: tuple[object, ...] = ()) -> list[str]:
    """Return SQLite's plan of a statement, step by step."""
    parameters = values or ("",) * sql.count("?")
    rows = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {sql}", parameters)
    return [str(row[3]) for row in rows]


@pytest.mark.parametrize(
    "scope", [ANYWHERE, SearchScope(thread_id="t"), SearchScope(agent_id="a")], ids=str
)
@pytest.mark.parametrize("name", ["_BY_DOCUMENT", "_BY_VECTOR"])
async def test_a_look_up_begins_with_its_numbers(
    journal: Journal, name: str, scope: SearchScope
) -> None:
    """Starting with the tenant or the agent, each page would read all of their documents."""
    within = finding._in_scope(TENANT, scope, finding._looked_at)
    lookup = getattr(finding, name).where(*within).params(numbers=[1, 2])

    def work(connection: Connection) -> str:
        compiled = lookup.compile(
            dialect=connection.dialect, compile_kwargs={"render_postcompile": True}
        )
        return plan_of(connection, str(compiled))[0]

    assert "USING INTEGER PRIMARY KEY (rowid=?)" in await journal.database.query(work)


@pytest.mark.parametrize(
    ("statement", "step"),
    [
        (finding._SCAN, "USING INTEGER PRIMARY KEY (rowid>?)"),
        (finding._SCAN_THREAD, "search_vectors_by_checkpoint (thread=?)"),
        (finding._VECTORS, "search_vectors_by_tenant (tenant=?)"),
        (finding._TRUNCATED, "USING INDEX search_documents_truncated"),
        (finding._OF_POINTER, "search_documents_by_pointer (tenant=? AND pointer=?)"),
        (change_feed._LOGS, "threads_unindexed"),
        (change_feed._CHANGES, "threads_unindexed"),
        (change_feed.NOW, "threads_unindexed"),
        (change_feed._BACKLOG, "threads_unindexed"),
        (
            change_feed._BY_KEY,
            "checkpoints_by_key (thread=? AND (checkpoint_ns,checkpoint_id)>(?,?))",
        ),
        (index._UNEMBEDDED, "search_documents_unembedded"),
        (finding._OWED, "search_documents_unembedded"),
        (finding._CUT, "USING INDEX search_documents_truncated"),
        (vectors_of._ANY_SIZE, "search_vectors_by_tenant (tenant=?)"),
    ],
)
async def test_indexes_serve_the_index(journal: Journal, statement: Statement, step: str) -> None:
    def work(connection: Connection) -> str:
        steps = plan_of(connection, statement.compiled(connection)[0].sql)
        return next(step for step in steps if not step.startswith(("CO-ROUTINE", "MATERIALIZE")))

    assert step in await journal.database.query(work)


@pytest.mark.parametrize(
    "statement",
    [change_feed._LOGS, change_feed._CHANGES, change_feed._BY_KEY],
    ids=["logs", "log", "key"],
)
async def test_due_changes_are_read_in_the_order_of_indexes(
    journal: Journal, statement: Statement
) -> None:
    """With a sort, every batch would read all due changes."""

    steps = await journal.database.query(
        lambda connection: plan_of(connection, statement.compiled(connection)[0].sql)
    )
    assert not any("TEMP B-TREE" in step or step.startswith("SCAN") for step in steps[1:]), steps


@pytest.mark.parametrize("name", ["_STANDING", "_BY_CALLER"])
async def test_documents_of_a_batch_are_read_by_number(journal: Journal, name: str) -> None:
    def work(connection: Connection) -> list[str]:
        text = getattr(index, name).compiled(connection)[0].sql
        return plan_of(connection, text.replace(statements._LISTED, "IN (?, ?)"))

    steps = await journal.database.query(work)
    assert "USING INTEGER PRIMARY KEY (rowid=?)" in steps[0]
    scans = [step for step in steps if step.startswith("SCAN")]
    assert all("search_text VIRTUAL TABLE INDEX 0:=" in step for step in scans), steps


async def test_memories_of_a_state_are_found_by_indexes(journal: Journal) -> None:
    values = {
        "of_state": 1,
        "now_us": 0,
        "max_rows": 1,
        "of_tenant": TENANT,
        "of_pointer": b"",
    }

    def plan(name: str, connection: Connection) -> str:
        statement: Statement = getattr(memories, name)
        text, _ = statement.compiled(connection)
        known = {**text.defaults, **values}
        cursor = connection.connection.cursor()
        cursor.execute(f"EXPLAIN QUERY PLAN {text.sql}", [known[name] for name in text.names])
        return " ".join(row[3] for row in cursor.fetchall())

    for name in ("_DUE", "_NEXT_DUE", "_COUNT"):
        plan_text = await journal.database.query(partial(plan, name))
        assert "search_memories_by_state" in plan_text
        assert "TEMP B-TREE" not in plan_text
    plan_text = await journal.database.query(partial(plan, "_SUMMARIES"))
    assert plan_text.startswith(
        "SEARCH search_documents USING COVERING INDEX search_documents_by_p"
    )
    assert "SCAN" not in plan_text
    assert "search_memories_unsure" in await journal.database.query(partial(plan, "_DUE_UNSURE"))


@pytest.mark.parametrize("table", [documents, vectors], ids=str)
@pytest.mark.parametrize(
    ("scope", "by"),
    [
        (SearchScope(filter={"outcome": "success"}), "(tenant=?)"),
        (SearchScope(agent_id="a", filter={"a": 1}), "threads_by_agent (tenant=? AND agent_id=?)"),
        (SearchScope("t", "a"), "threads_by_name (tenant=? AND thread_id=?)"),
    ],
    ids=["anywhere", "an agent", "a thread"],
)
async def test_those_that_pass_are_read_thread_by_thread(
    journal: Journal, table: Table, scope: SearchScope, by: str
) -> None:
    def work(connection: Connection) -> list[str]:
        passing = finding._select_in_scope(connection, table, TENANT, scope)
        compiled = passing.compile(dialect=connection.dialect)
        values = tuple(compiled.params[name] for name in compiled.positiontup or ())
        return plan_of(connection, str(compiled), values)

    steps = await journal.database.query(work)
    assert any(step.startswith("SEARCH threads") and step.endswith(by) for step in steps), steps
    [of_checkpoints] = [step for step in steps if step.startswith("SEARCH checkpoints")]
    assert "checkpoints_by_key (thread=?" in of_checkpoints
    assert not any(step.startswith("SCAN") for step in steps), steps
