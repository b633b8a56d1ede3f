"""Only values that the journal does not need are evicted, after a segment contains them."""

from __future__ import annotations

import pytest
from sqlalchemy import delete, func, select, update

from tests.contract.values.kit import BASE, check_evicted_keyframe, during, evict, nothing, written
from tests.kit.drafts import (
    TENANT,
    Reference,
    by_digest,
    channel,
    digest,
    key,
    refused,
    value,
    write,
)
from tests.kit.journal import insert_gap
from tests.kit.values import Home, text
from tuskpoint.v1 import value_pb2
from tuskpoint_server.core.errors import Reason
from tuskpoint_server.core.model import EVICTED
from tuskpoint_server.journal.database.unit_of_work import UnitOfWork
from tuskpoint_server.journal.removal import garbage_collection
from tuskpoint_server.journal.removal.garbage_collection import FreedValues
from tuskpoint_server.journal.sql.schema import changes, checkpoints, gaps, members
from tuskpoint_server.journal.values.segment_refs import ForeignSegments, encode_held


async def change(home: Home, statement: object) -> None:
    """Change rows without the unit of work."""

    def run(batch: UnitOfWork) -> None:
        batch.connection.execute(statement)  # type: ignore[call-overload]
        batch.logs.clear()

    await home.database.transact(run)


async def add_gap(home: Home, checkpoint_id: str, segment: bytes | None = None) -> None:
    def add(batch: UnitOfWork) -> None:
        first = select(func.min(checkpoints.c.thread))
        thread = batch.connection.execute(first).scalar_one()
        insert_gap(batch.connection, thread, checkpoint_id, segment)
        batch.logs.clear()

    await home.database.transact(add)


async def test_only_values_that_are_certified_and_of_no_head_are_evicted(home: Home) -> None:
    await home.save("a", {"x": b"1"})
    await home.save("b", {"x": b"2"}, parent="a")
    assert await home.evict() == FreedValues()
    await home.save("c", {"x": b"3"}, parent="b")
    await home.certify()
    await home.save("d", {"x": b"4"}, parent="c")
    assert await home.evict() == FreedValues(3, 0, 3)
    assert [await home.here(checkpoint_id) for checkpoint_id in "abcd"] == [
        set(),
        set(),
        set(),
        {"x"},
    ]
    assert await home.evict() == FreedValues()
    await home.certify()
    assert await home.evict() == FreedValues()
    for checkpoint_id, data in zip("abcd", (b"1", b"2", b"3", b"4"), strict=True):
        assert await home.data(checkpoint_id) == {"x": data}


async def test_the_head_of_each_namespace_stays(home: Home) -> None:
    await home.save("a", {"x": b"root"})
    await home.save("b", {"x": b"head"}, parent="a")
    await home.save("a", {"x": b"inner"}, ns="inner")
    await home.certify()
    assert (await home.evict()).values == 1
    assert await home.here("a", ns="inner") == {"x"}
    assert await home.here("b") == {"x"}


async def test_values_of_heads_of_other_threads_of_the_family_stay(home: Home) -> None:
    await home.save("a", {"x": b"1"})
    await home.save("b", {"x": b"2"}, parent="a")
    await home.fork("t", "a", "forked")
    await home.certify()
    await home.certify("forked")
    assert await home.evict() == FreedValues()
    await home.save("b", {"x": b"3"}, parent="a", thread="forked")
    assert (await home.evict()).values == 1
    assert await home.data("a") == await home.data("a", "forked") == {"x": b"1"}


async def test_values_of_changes_above_the_watermark_stay(home: Home) -> None:
    """A copy that is not stored yet needs values that were stored long ago."""
    await home.save("a", {"x": b"1"})
    await home.save("b", {"x": b"2"}, parent="a")
    await home.certify()
    await home.checkpoints.set_label(TENANT, (await home.load("a")).entry.key, "named")
    assert await home.evict() == FreedValues()
    await home.certify()
    assert (await home.evict()).values == 1


async def test_values_shared_with_an_uncertified_change_stay(home: Home) -> None:
    """A copy of many checkpoints is one change, which names none of its checkpoints."""
    await home.save("a", {"x": b"1"})
    await home.save("b", {"x": b"2"}, parent="a")
    await home.certify()
    await home.checkpoints.set_label(TENANT, (await home.load("a")).entry.key, "named")
    await change(home, update(changes).values(checkpoint_id=""))
    assert await home.evict() == FreedValues()


async def test_values_of_recent_changes_stay(home: Home) -> None:
    await home.save("a", {"x": b"1"})
    await home.save("b", {"x": b"2"}, parent="a")
    young_from = home.clock.now_us
    await home.save("c", {"x": b"3"}, parent="b")
    await home.certify()
    assert (await home.evict(before_us=young_from)).values == 1
    assert await home.here("b") == {"x"}
    assert (await home.evict(before_us=home.clock.now_us + 1)).values == 1


async def test_the_oldest_go_first_and_no_more_than_have_to(home: Home) -> None:
    for number in range(10):
        await home.save(f"{number}", {"x": text(number, 1000)}, parent=f"{number - 1}")
    await home.certify()
    rows = await home.rows()
    wanted = sum(len(row["data"]) for row in rows[:4])
    assert await home.evict(wanted=wanted) == FreedValues(4, 0, wanted)
    assert [bool(await home.here(f"{number}")) for number in range(10)] == [False] * 4 + [True] * 6


async def test_values_in_no_segment_stay(home: Home) -> None:
    await home.save("a", {"x": b"1"})
    await home.save("b", {"x": b"2"}, parent="a")
    await home.certify()
    await change(home, update(members).values(digests=b""))
    assert await home.evict() == FreedValues()
    await change(home, delete(members))
    assert await home.evict() == FreedValues()


async def test_values_only_in_a_lost_segment_stay(home: Home) -> None:
    await home.save("a", {"x": b"1"}, writes=(write("x", b"w"),))
    await home.certify()
    await home.save("b", {"x": b"2"}, parent="a")
    [segment] = home.segments
    await add_gap(home, "", segment)
    assert await home.evict() == FreedValues()
    await change(home, delete(gaps))
    assert await home.evict() == FreedValues(1, 1, 2)


async def test_values_of_a_gap_stay(home: Home) -> None:
    await home.save("a", {"x": b"1"}, writes=(write("x", b"w"),))
    await home.save("b", {"x": b"2"}, parent="a", writes=(write("x", b"w"),))
    await home.save("c", {"x": b"3"}, parent="b")
    await home.certify()
    await add_gap(home, "a")
    assert await home.evict() == FreedValues(1, 1, 2)
    assert await home.here("a") == {"x"}
    assert await written(home, "a") == [value(b"w")]


async def test_a_value_in_a_segment_without_a_range_goes_there(home: Home) -> None:
    """Segments have no range when each checkpoint is a standalone blob."""
    await home.save("a", {"x": b"1"})
    await home.save("b", {"x": b"2"}, parent="a")
    await home.certify()
    await change(home, update(members).values(first_seq=None, last_seq=None))
    assert (await home.evict()).values == 1
    assert await home.data("a") == {"x": b"1"}


async def test_many_pages_are_read_and_many_batches_evicted(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("SCANNED_AT_ONCE", "TAKEN_AT_ONCE"):
        monkeypatch.setattr(garbage_collection, name, 3)
    for number in range(20):
        await home.save(
            f"{number:02}",
            {"x": b"%d" % number},
            parent=f"{number - 1:02}" if number else "",
            writes=(write("x", b"w", idx=0), write("x", b"v", idx=1)),
        )
        if number % 5 == 0:
            await home.certify()
    await home.certify()
    gone = await home.evict()
    assert (gone.values, gone.writes) == (19, 38)
    for number in range(20):
        assert await home.data(f"{number:02}") == {"x": b"%d" % number}


async def test_a_keyframe_goes_after_the_last_patch_on_it(home: Home) -> None:
    for number in range(4):
        data = BASE + b"%d" % number if number else BASE
        await home.save(f"{number}", {"x": data}, parent=f"{number - 1}")
    await home.certify()
    assert (await home.evict()).values == 2  # neither the head nor its keyframe
    await home.check_groups()
    await home.save("4", {"x": b"other"}, parent="3")
    await home.certify()
    rows = {row["digest"]: row for row in await home.rows()}
    patch_bytes = len(rows[digest(BASE + b"3")]["data"])
    assert (await home.evict(wanted=patch_bytes)).values == 1
    assert await home.here("0") == {"x"}
    assert (await home.evict()).values == 1
    assert await home.here("0") == set()
    for number in range(1, 4):
        assert await home.data(f"{number}") == {"x": BASE + b"%d" % number}


async def test_a_keyframe_that_was_evicted_is_no_keyframe_any_more(home: Home) -> None:
    """The writer's cache of keyframes forgets evicted keyframes."""
    await check_evicted_keyframe(home, home)


async def test_a_save_brings_an_evicted_value_back(home: Home) -> None:
    await home.save("a", {"x": b"1"})
    await home.save("b", {"x": b"2"}, parent="a")
    await home.certify()
    await home.evict()
    await refused(home.save("c", (by_digest("x", b"1"),), parent="b"), Reason.VALUES_MISSING)
    await home.save("c", {"x": b"1"}, parent="b")
    [row] = [row for row in await home.rows() if row["digest"] == digest(b"1")]
    assert (row["data"], row["segment"]) == (b"1", None)
    await home.save("d", {"x": b"3"}, parent="c")
    await home.certify()
    assert (await home.evict()).values == 2
    assert await home.data("a") == await home.data("c") == {"x": b"1"}


async def test_writes_of_certified_checkpoints_go(home: Home) -> None:
    await home.save("a", {}, writes=(write("x", b"one"), write("x", b"two", idx=-1)))
    await home.save("b", {}, parent="a", writes=(write("x", b"head"),))
    assert await home.evict() == FreedValues()
    await home.certify()
    assert await home.evict() == FreedValues(0, 2, 6)
    assert await written(home, "a") == [EVICTED, EVICTED]
    assert await written(home, "b") == [value(b"head")]


async def test_writes_that_wait_for_their_checkpoint_stay(home: Home) -> None:
    await home.checkpoints.save_writes(TENANT, key("a"), (write("x", b"early"),))
    await home.save("b", {})
    await home.certify()
    assert await home.evict() == FreedValues()


async def test_late_writes_stay_until_they_are_certified(home: Home) -> None:
    await home.save("a", {}, writes=(write("x", b"one"),))
    await home.save("b", {}, parent="a")
    await home.certify()
    await home.checkpoints.save_writes(TENANT, key("a"), (write("x", b"late", task="other"),))
    assert await home.evict() == FreedValues()
    await home.certify()
    assert await home.evict() == FreedValues(0, 2, 7)


async def test_writes_of_a_copy_go_where_all_of_it_is_held(home: Home) -> None:
    await home.save("a", {}, writes=(write("x", b"one"),))
    await home.certify()
    await home.save("b", {}, parent="a")
    await change(home, update(members).values(thread=99))
    assert await home.evict() == FreedValues()
    [segment] = home.segments
    lacking = encode_held(ForeignSegments(1, (segment, b"unknown" + bytes(25))))
    await change(home, update(checkpoints).values(held=lacking))
    assert await home.evict() == FreedValues()
    await change(home, update(checkpoints).values(held=encode_held(ForeignSegments(0, (segment,)))))
    assert await home.evict() == FreedValues()
    await change(home, update(checkpoints).values(held=encode_held(ForeignSegments(1, (segment,)))))
    late = write("x", b"late", task="other")
    await home.checkpoints.save_writes(TENANT, key("a"), (late,))
    await home.certify()
    await change(home, delete(members).where(members.c.thread != 99))
    assert await home.evict() == FreedValues(0, 1, 3)


async def test_a_value_whose_segment_goes_meanwhile_stays_with_its_keyframe(home: Home) -> None:
    await home.save("a", {"x": BASE})
    await home.certify()
    await home.save("b", {"x": BASE + b"1"}, parent="a")
    await home.certify()
    await home.save("c", {"x": b"other"}, parent="b")
    last = max(home.segments)

    async def collect() -> None:
        await change(home, delete(members).where(members.c.sha256 == last))

    assert await during(home, evict, *[nothing] * 5, collect) == FreedValues()
    assert await home.data("a") == {"x": BASE}
    assert await home.data("b") == {"x": BASE + b"1"}


async def test_a_write_that_is_replaced_meanwhile_stays(home: Home) -> None:
    await home.save("a", {}, writes=(write("x", b"one", idx=-1),))
    await home.save("b", {}, parent="a")
    await home.certify()

    async def replace() -> None:
        late = write("x", b"two", idx=-1)
        await home.checkpoints.save_writes(TENANT, key("a"), (late,))

    assert (await during(home, evict, *[nothing] * 2, replace)).writes == 0
    assert await written(home, "a") == [value(b"two")]


async def test_a_write_whose_number_another_thread_gets_meanwhile_stays(home: Home) -> None:
    """SQLite gives the number of the last row again once that row is gone."""
    await home.save("a", {}, writes=(write("x", b"one"),))
    await home.save("b", {}, parent="a")
    await home.certify()

    async def replace() -> None:
        await home.remove("a")
        await home.save("a", {}, thread="u", writes=(write("x", b"two"),))

    assert (await during(home, evict, *[nothing] * 2, replace)).writes == 0
    [kept_write] = (await home.load("a", "u")).writes
    assert kept_write.value == value(b"two")


@pytest.mark.parametrize("sent", [channel("x", Reference.INHERIT), by_digest("x", b"1")])
async def test_a_head_that_was_none_gives_no_evicted_value(
    home: Home, sent: value_pb2.Channel
) -> None:
    await home.save("a", {"x": b"1"})
    await home.save("b", {"x": b"2"}, parent="a")
    await home.certify()
    await home.evict()
    await home.remove("b")
    await refused(home.save("c", (sent,), parent="a"), Reason.VALUES_MISSING)
    await home.save("c", {"x": b"1"}, parent="a")
    assert await home.here("c") == {"x"}


async def test_the_head_of_a_copy_gives_no_evicted_value(home: Home) -> None:
    await home.save("a", {"x": b"1"})
    await home.save("b", {"x": b"2"}, parent="a")
    await home.certify()
    await home.evict()
    await home.fork("t", "a", "u")
    await refused(
        home.save("c", (channel("x", Reference.INHERIT),), parent="a", thread="u"),
        Reason.VALUES_MISSING,
    )
    await home.save("c", {"x": b"1"}, parent="a", thread="u")
    assert await home.here("c", "u") == {"x"}
