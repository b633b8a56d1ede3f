"""A change that fails leaves no trace, and does not fail other changes."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest
from sqlalchemy import inspect

from tests.contract.database.kit import Call, Gate, bad_statement, change, half_done, save, together
from tests.kit.databases import ask
from tests.kit.drafts import (
    TENANT,
    Reference,
    channel,
    data_of,
    key,
    refused,
    value,
    write,
    written,
)
from tests.kit.journal import Journal, made
from tuskpoint_server.core.errors import Reason, Refusal
from tuskpoint_server.core.model import View
from tuskpoint_server.core.threads import EventKind
from tuskpoint_server.journal.database.unit_of_work import UnitOfWork
from tuskpoint_server.journal.sql.postgres import Postgres
from tuskpoint_server.journal.sql.sqlite import Sqlite


def reason(outcome: object) -> Reason:
    assert isinstance(outcome, Refusal), outcome
    return outcome.reason


def full_disk(journal: Journal) -> Exception:
    """Return the error of a database whose disk is full."""
    if journal.database.backend == "postgresql":
        return psycopg.errors.DiskFull("as if")
    error = sqlite3.OperationalError("as if")
    error.sqlite_errorname, error.sqlite_errorcode = "SQLITE_FULL", sqlite3.SQLITE_FULL
    return error


async def everything(journal: Journal) -> dict[str, list[tuple[Any, ...]]]:
    """Return all rows of all tables."""

    def read(connection: Any) -> dict[str, list[tuple[Any, ...]]]:
        names = inspect(connection).get_table_names()
        return {name: ask(connection, f'SELECT * FROM "{name}" ORDER BY 1, 2') for name in names}

    return await journal.database.query(read)


@contextmanager
def failing(moment: str, error: Exception) -> Iterator[None]:
    """Let transactions fail at their start or at their commit."""

    def fail(*_args: object, **_more: object) -> None:
        raise error

    with pytest.MonkeyPatch.context() as patched:
        for kind in (Postgres, Sqlite):
            patched.setattr(kind, moment, fail)
        yield


def bad_row(batch: UnitOfWork) -> None:
    """Leave rows that the database refuses when the unit of work writes them."""
    log = batch.find(TENANT, "t")
    assert log is not None
    batch.change(log, EventKind.RETENTION_SET)
    log.row.retention_s = None  # type: ignore[assignment]


@pytest.mark.parametrize("alone", [True, False])
@pytest.mark.parametrize("poison", [half_done, bad_row, bad_statement])
async def test_one_poisonous_change_fails_alone(
    journal: Journal, poison: Callable[[UnitOfWork], None], alone: bool
) -> None:
    await save(journal, "a", "", {"x": b"1"})

    async def poisonous() -> None:
        await (journal.database.transact if alone else journal.database.change)(poison)

    first, failed, label, last, other = await together(
        journal,
        save(journal, "b", "a", {"x": Reference.INHERIT}),
        poisonous(),
        made(journal.set_label, TENANT, key(""), "kept"),
        save(journal, "c", "b", {"x": b"3"}, expected_head="b"),
        save(journal, "a", thread_id="other"),
    )
    assert isinstance(failed, Exception)
    assert not isinstance(failed, Refusal)
    assert (first.seq, label.seq, last.seq, other.seq) == (2, 3, 4, 1)
    assert label.key == key("b")
    assert data_of(await journal.load(TENANT, key("b"), View.FULL)) == {"x": b"1"}
    assert data_of(await journal.load(TENANT, key("c"), View.FULL)) == {"x": b"3"}
    detail = await journal.thread(TENANT, "t")
    assert detail is not None
    assert (detail.thread.retention_s, detail.thread.checkpoint_count) == (0, 3)
    assert [event.seq for event in (await journal.events.after(TENANT, "t", 0, 9)).events] == [
        1,
        2,
        3,
        4,
    ]


@pytest.mark.parametrize("moment", ["begin", "commit"])
async def test_a_failed_transaction_fails_all_and_nothing_stays(
    journal: Journal, moment: str
) -> None:
    await save(journal, "a", "", {"x": b"1"})
    before = await everything(journal)
    gate = Gate()
    held = journal.database.change(gate)
    await gate.entered.wait()
    calls = [
        asyncio.ensure_future(call)
        for call in (
            save(journal, "b", "a", {"x": b"2"}, writes=(write("x", b"w"),)),
            save(journal, "a", thread_id="new"),
            journal.save_writes(TENANT, key("a"), [write("x", b"w")]),
            journal.set_label(TENANT, key("a"), "l"),
        )
    ]
    await asyncio.sleep(0)
    with failing(moment, full_disk(journal)):
        gate.release()
        outcomes = await asyncio.gather(*calls, return_exceptions=True)
        gated = (await asyncio.gather(held, return_exceptions=True))[0]
    assert [reason(outcome) for outcome in outcomes] == [Reason.JOURNAL_UNAVAILABLE] * 4
    if moment == "commit":  # the gate's own commit fails with the others
        assert reason(gated) is Reason.JOURNAL_UNAVAILABLE
    assert await everything(journal) == before
    again = await save(journal, "b", "a", {"x": Reference.INHERIT}, expected_head="a")
    assert again.seq == 2
    loaded = await journal.load(TENANT, key("b"), View.FULL)
    assert (data_of(loaded), written(loaded)) == ({"x": b"1"}, [])
    assert await journal.thread(TENANT, "new") is None
    assert (await save(journal, "z", thread_id="new")).seq == 1


async def test_storage_that_fails_in_a_statement_fails_its_batch(journal: Journal) -> None:
    def full(_batch: UnitOfWork) -> None:
        raise full_disk(journal)

    before = await everything(journal)
    outcomes = await together(
        journal, save(journal, "a"), change(journal, full), save(journal, "b")
    )
    assert [reason(outcome) for outcome in outcomes] == [Reason.JOURNAL_UNAVAILABLE] * 3
    assert outcomes[1].metadata["problem"].endswith("as if")
    assert await everything(journal) == before
    assert (await save(journal, "a")).seq == 1


async def test_a_transaction_that_is_lost_fails_its_batch(journal: Journal) -> None:
    def lose(batch: UnitOfWork) -> None:
        batch.connection.exec_driver_sql("ROLLBACK")
        raise full_disk(journal)

    async def losing() -> None:
        await journal.database.transact(lose)

    outcomes = await together(journal, save(journal, "a"), losing(), save(journal, "b"))
    assert [reason(outcome) for outcome in outcomes] == [Reason.JOURNAL_UNAVAILABLE] * 3
    assert (await save(journal, "a")).seq == 1


async def test_a_refused_change_leaves_no_trace(journal: Journal) -> None:
    def refused_calls() -> list[tuple[Reason, Call]]:
        writes = (write("x", b"w"),)
        missing, moved = Reason.VALUES_MISSING, Reason.HEAD_MOVED
        return [
            (missing, save(journal, "c", "b", {"x": b"9" * 5000, "y": Reference.INHERIT})),
            (missing, save(journal, "a", "", {"y": Reference.INHERIT}, thread_id="new")),
            (moved, save(journal, "c", "b", {"x": b"9"}, expected_head="a", writes=writes)),
            (moved, save(journal, "", expected_head="z")),
            (
                Reason.VERSION_TYPE_CHANGED,
                save(journal, "c", "b", (channel("x", value(b"9"), "text"),), writes=writes),
            ),
            (Reason.THREAD_DELETED, save(journal, "b", "a", {"x": b"9"}, thread_id="gone")),
            (
                Reason.THREAD_DELETED,
                made(journal.save_writes, TENANT, key("a", "gone"), [write("x", b"9")]),
            ),
            (Reason.CHECKPOINT_NOT_FOUND, made(journal.set_label, TENANT, key("z"), "l")),
            (
                Reason.THREAD_NOT_FOUND,
                journal.removal.set_retention(TENANT, "never was", 1),
            ),
        ]

    await save(journal, "a", "", {"x": b"1"})
    await save(journal, "b", "a", {"x": b"2"})
    await save(journal, "a", thread_id="gone")
    await journal.removal.delete_thread(TENANT, "gone")
    before = await everything(journal)
    for expected, call in refused_calls():
        await refused(call, expected)
        assert await everything(journal) == before
    calls = refused_calls()
    outcomes = await together(journal, *(call for _, call in calls))
    assert [reason(outcome) for outcome in outcomes] == [expected for expected, _ in calls]
    assert await everything(journal) == before


async def test_a_value_stored_as_a_patch_is_no_keyframe(journal: Journal) -> None:
    """A value that is stored as a patch is not a keyframe, even if it is sent whole later."""
    base = bytes(range(256)) * 24
    whole, first, second = base + b"0", base + b"1", base + b"12"
    await save(journal, "a", "", {"x": whole})
    await save(journal, "b", "a", (channel("x", first, 2),))  # stored as a patch
    # Channel "y" does not know that value, and starts a group with it.
    outcomes = await together(
        journal,
        save(journal, "c", "b", {"x": Reference.EMPTY, "y": first}),
        save(journal, "d", "c", (channel("x", Reference.EMPTY), channel("y", second, 2))),
    )
    assert [outcome.seq for outcome in outcomes] == [3, 4]
    assert data_of(await journal.load(TENANT, key("d"), View.FULL)) == {"y": second}
    assert data_of(await journal.load(TENANT, key("c"), View.FULL)) == {"y": first}
