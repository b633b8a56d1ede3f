"""Garbage collection removes unneeded values, and keeps needed values."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from threading import Event

import pytest
from sqlalchemy import Connection, select

from tests.contract.values.kit import during, mark, nothing
from tests.kit.drafts import TENANT, by_digest, digest, write
from tests.kit.values import Home
from tuskpoint_server.core.delta_bases import DeltaChannel, DeltaSeed, DeltaWrite, encode_delta_base
from tuskpoint_server.journal.database.unit_of_work import UnitOfWork
from tuskpoint_server.journal.removal import garbage_collection
from tuskpoint_server.journal.removal.garbage_collection import (
    FreedValues,
    due_families,
    remove,
    remove_due,
    remove_unneeded,
)
from tuskpoint_server.journal.sql.schema import threads


async def stored(home: Home, thread: str = "t") -> set[object]:
    return {row["digest"] for row in await home.rows(thread)}


BEGUN: tuple[Callable[[], Awaitable[object]], ...] = (nothing,) * 2
"""Steps until a pass has started: it reads counts, and the ends of the logs."""


# --- removed values --------------------------------------------------------------------------


async def test_values_of_a_delta_base_stay(home: Home) -> None:
    await home.save("a", {"x": b"seed", "y": b"write", "z": b"neither"})
    await home.save("b", {}, parent="a")
    base = encode_delta_base(
        (
            DeltaChannel(
                "x",
                DeltaSeed(1, digest(b"seed"), 4),
                (DeltaWrite("", "task", 0, digest(b"write"), "msgpack", 5),),
            ),
        )
    )
    await home.remove("a")

    def amend(batch: UnitOfWork) -> None:
        log = batch.find(TENANT, "t")
        assert log is not None
        known = batch.checkpoint(log, ("", "b"))
        assert known is not None
        known.delta_base = base
        batch.amend_checkpoint(log, ("", "b"), known)

    await home.database.transact(amend)
    await home.remove_unneeded()
    assert await stored(home) == {digest(b"seed"), digest(b"write")}


async def test_writes_hold_their_values_themselves(home: Home) -> None:
    await home.save("a", {"x": b"1"}, writes=(write("x", b"written"),))
    await home.save("b", {"x": b"2"}, parent="a")
    assert digest(b"written") not in await stored(home)
    await home.remove_unneeded()
    assert [write.value.data for write in (await home.load("a")).writes] == [b"written"]


async def test_evicted_values_go_too_when_nothing_needs_them(home: Home) -> None:
    for number in range(3):
        await home.save(f"{number}", {"x": b"%d" % number}, parent=f"{number - 1}")
    await home.certify()
    assert (await home.evict()).values == 2
    await home.remove("0")
    assert await home.remove_unneeded() == FreedValues(1, 0, 0)
    assert await stored(home) == {digest(b"1"), digest(b"2")}
    assert await home.data("1") == {"x": b"1"}


async def test_many_pages_are_read_and_many_batches_removed(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(garbage_collection, "READ_AT_ONCE", 3)
    for name in ("SCANNED_AT_ONCE", "TAKEN_AT_ONCE"):
        monkeypatch.setattr(garbage_collection, name, 3)
    for number in range(20):
        parent = f"{number - 1:02}" if number else ""
        await home.save(f"{number:02}", {"x": b"%d" % number}, parent=parent)
        await home.save(f"{number:02}", {"x": b"n%d" % number}, parent=parent, ns="inner")
    for target in ("u", "v", "w"):
        await home.fork("t", "05", target)
    for number in range(0, 20, 2):
        await home.remove(f"{number:02}")
    assert (await home.remove_unneeded()).values == 10
    kept = {digest(b"%d" % number) for number in range(1, 20, 2)}
    assert await stored(home) == kept | {digest(b"n%d" % number) for number in range(20)}


# --- schedule --------------------------------------------------------------------------------


async def test_a_pass_is_due_once_a_quarter_was_removed(home: Home) -> None:
    for number in range(8):
        await home.save(f"{number}", {"x": b"%d" % number}, parent=f"{number - 1}")
    assert await home.database.query(due_families) == []
    await home.remove("0")
    assert await home.database.query(due_families) == []
    await home.remove("1")
    assert await home.database.query(due_families) == [await home.family()]
    assert await remove_due(home.database) == FreedValues(2, 0, 2)
    assert await home.database.query(due_families) == []
    await home.remove("2")
    assert await home.database.query(due_families) == []
    assert await remove_due(home.database) == FreedValues()


async def test_a_pass_is_due_once_a_quarter_of_the_bytes_was_removed(home: Home) -> None:
    for number in range(8):
        await home.save(f"{number}", {"x": b"%d" % number}, parent=f"{number - 1}")
    await home.remove("0")

    def count(connection: Connection) -> tuple[int, int]:
        chosen = select(threads.c.added_bytes, threads.c.removed_bytes)
        return tuple(connection.execute(chosen).one())

    added, _ = await home.database.query(count)

    def raise_removed(batch: UnitOfWork) -> None:
        log = batch.find(TENANT, "t")
        assert log is not None
        log.row.removed_bytes = added // 4 + 1
        batch.store(log)

    await home.database.transact(raise_removed)
    assert await home.database.query(due_families) == [await home.family()]
    await remove_due(home.database)
    assert await home.database.query(count) == (added - added // 4 - 1, 0)
    assert await home.database.query(due_families) == []


async def test_a_family_without_a_living_thread_goes_unmarked(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(garbage_collection, "TAKEN_AT_ONCE", 2)
    for number in range(5):
        await home.save(f"{number}", {"x": b"%d" % number})
    await home.save("a", {"x": b"kept"}, thread="other")
    await home.delete("t")
    assert await home.database.query(due_families) == [await home.family()]
    assert await remove_due(home.database) == FreedValues(5, 0, 5)
    assert await home.rows() == []
    assert await home.data("a", "other") == {"x": b"kept"}
    assert await home.database.query(due_families) == []


async def test_families_that_a_next_incarnation_left_are_found(home: Home) -> None:
    await home.save("a", {"x": b"1"}, thread="other")
    await home.save("a", {"x": b"1"})
    left = await home.family()
    await home.delete("t")
    await home.save("~~", {"x": b"2"})
    assert await home.family() != left
    assert await home.database.query(due_families) == [left]
    assert await remove_unneeded(home.database, left) == FreedValues(1, 0, 1)
    assert await home.data("~~") == {"x": b"2"}
    assert await home.data("a", "other") == {"x": b"1"}


# --- references of concurrent commits --------------------------------------------------------


async def test_a_save_in_the_same_batch_as_a_removal_counts(home: Home) -> None:
    """Waiting changes are committed together: the pass sees the changes of its own batch."""
    await home.save("a", {"x": b"1"})
    await home.save("b", {"x": b"2"}, parent="a")
    await home.remove("a")
    family = await home.family()
    collection = await garbage_collection.begin(home.database, family)
    values, _ = await home.database.query(partial(garbage_collection.scan, family=family))
    doomed = [value for value in values if value.digest == digest(b"1")]
    busy = Event()
    held = home.database.transact(lambda batch: busy.wait(10))
    save = asyncio.create_task(home.save("c", (by_digest("x", b"1"),), parent="b"))
    await asyncio.sleep(0)
    removal = asyncio.create_task(
        collection.take(home.database, doomed, partial(remove, family=family))
    )
    await asyncio.sleep(0)
    busy.set()
    assert await held
    assert await removal == FreedValues()
    await save
    assert await home.data("c") == {"x": b"1"}


async def test_a_crash_forgets_the_pass(home: Home) -> None:
    """A pass that fails is closed, and the next pass starts from the beginning."""
    await home.save("a", {"x": b"1"})
    await home.save("b", {"x": b"2"}, parent="a")
    await home.remove("a")

    async def fail() -> None:
        raise OSError("the machine is gone")

    with pytest.raises(OSError, match="gone"):
        await during(home, mark, *BEGUN, nothing, fail)
    home.database.between = None
    assert await home.database.query(due_families) == [await home.family()]
    assert await home.remove_unneeded() == FreedValues(1, 0, 1)
