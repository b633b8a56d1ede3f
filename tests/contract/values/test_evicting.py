"""Values that segments hold leave the journal, and come back byte for byte."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial

import pytest
from sqlalchemy import Connection, delete, func, insert, select, update

from tests.kit.drafts import TENANT, as_loaded, by_digest, digest, key, refused, value, write
from tests.kit.values import LATER_US, PLENTY, Home, text
from tuskpoint_server.domain.errors import Reason, Refusal
from tuskpoint_server.domain.model import EVICTED, Value
from tuskpoint_server.domain.values import Encoding
from tuskpoint_server.journal.archiving import refill
from tuskpoint_server.journal.archiving.eviction import EvictionSettings, Evictor, evict_family
from tuskpoint_server.journal.checkpoints.located import encode_held
from tuskpoint_server.journal.database.logs import ThreadRow, find_thread
from tuskpoint_server.journal.database.overlay import Batch
from tuskpoint_server.journal.database.schema import (
    changes,
    checkpoints,
    contents,
    holes,
    members,
)
from tuskpoint_server.journal.lineage.stored import stored_value
from tuskpoint_server.journal.removal import passes
from tuskpoint_server.journal.removal.passes import Taken

BASE = text(1, 8_000)


async def change(home: Home, statement: object) -> None:
    """Change rows beside the overlay."""

    def run(batch: Batch) -> None:
        batch.connection.execute(statement)  # type: ignore[call-overload]
        batch.logs.clear()

    await home.database.transact(run)


async def add_hole(home: Home, checkpoint_id: str, seq: int, segment: bytes | None = None) -> None:
    def thread(connection: Connection) -> int:
        return int(connection.execute(select(func.min(checkpoints.c.thread))).scalar_one())

    await change(
        home,
        insert(holes).values(
            tenant=TENANT,
            thread=await home.database.query(thread),
            checkpoint_ns="",
            checkpoint_id=checkpoint_id,
            seq=seq,
            segment=segment,
            reason="lost",
            size=1,
            retry_us=0,
        ),
    )


async def during(home: Home, *works: Callable[[], Awaitable[object]]) -> Taken:
    """Evict a family, and let something happen before each step, while there is any."""
    left, family = list(works), await home.family()

    async def between() -> None:
        if left:
            await left.pop(0)()

    home.database.between = between
    try:
        gone = await evict_family(home.database, home.passes, family, LATER_US, PLENTY)
    finally:
        home.database.between = None
    assert not left
    return gone


async def nothing() -> None:
    """Let a step of the pass pass."""


async def written(home: Home, checkpoint_id: str) -> list[Value]:
    return [one.value for one in (await home.load(checkpoint_id)).writes]


# --- what goes -------------------------------------------------------------------------------


async def test_only_what_is_certified_and_no_head_goes(home: Home) -> None:
    await home.save("a", {"x": b"1"})
    await home.save("b", {"x": b"2"}, parent="a")
    assert await home.evict() == Taken()
    await home.save("c", {"x": b"3"}, parent="b")
    await home.certify()
    await home.save("d", {"x": b"4"}, parent="c")
    assert await home.evict() == Taken(3, 0, 3)
    assert [await home.here(one) for one in "abcd"] == [set(), set(), set(), {"x"}]
    assert await home.evict() == Taken()
    await home.certify()
    assert await home.evict() == Taken()
    for one, data in zip("abcd", (b"1", b"2", b"3", b"4"), strict=True):
        assert await home.data(one) == {"x": data}


async def test_the_head_of_each_namespace_stays(home: Home) -> None:
    await home.save("a", {"x": b"root"})
    await home.save("b", {"x": b"head"}, parent="a")
    await home.save("a", {"x": b"inner"}, ns="inner")
    await home.certify()
    assert (await home.evict()).values == 1
    assert await home.here("a", ns="inner") == {"x"}
    assert await home.here("b") == {"x"}


async def test_what_a_head_of_another_thread_of_the_family_needs_stays(home: Home) -> None:
    await home.save("a", {"x": b"1"})
    await home.save("b", {"x": b"2"}, parent="a")
    await home.fork("t", "a", "forked")
    await home.certify()
    await home.certify("forked")
    assert await home.evict() == Taken()
    await home.save("b", {"x": b"3"}, parent="a", thread="forked")
    assert (await home.evict()).values == 1
    assert await home.data("a") == await home.data("a", "forked") == {"x": b"1"}


async def test_what_a_change_above_the_watermark_needs_stays(home: Home) -> None:
    """A copy that is not stored yet needs values that were stored long ago."""
    await home.save("a", {"x": b"1"})
    await home.save("b", {"x": b"2"}, parent="a")
    await home.certify()
    await home.checkpoints.set_label(TENANT, (await home.load("a")).entry.key, "named")
    assert await home.evict() == Taken()
    await home.certify()
    assert (await home.evict()).values == 1


async def test_what_shares_a_change_that_is_not_certified_stays(home: Home) -> None:
    """A copy of many checkpoints is one change, which names none of them."""
    await home.save("a", {"x": b"1"})
    await home.save("b", {"x": b"2"}, parent="a")
    await home.certify()
    await home.checkpoints.set_label(TENANT, (await home.load("a")).entry.key, "named")
    await change(home, update(changes).values(checkpoint_id=""))
    assert await home.evict() == Taken()


async def test_the_young_keep_their_values(home: Home) -> None:
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
    assert await home.evict(wanted=wanted) == Taken(4, 0, wanted)
    assert [bool(await home.here(f"{number}")) for number in range(10)] == [False] * 4 + [True] * 6


async def test_what_no_segment_holds_stays(home: Home) -> None:
    await home.save("a", {"x": b"1"})
    await home.save("b", {"x": b"2"}, parent="a")
    await home.certify()
    await change(home, update(members).values(digests=b""))
    assert await home.evict() == Taken()
    await change(home, delete(members))
    assert await home.evict() == Taken()


async def test_what_only_a_lost_segment_holds_stays(home: Home) -> None:
    await home.save("a", {"x": b"1"}, writes=(write("x", b"w"),))
    await home.certify()
    await home.save("b", {"x": b"2"}, parent="a")
    [segment] = home.segments
    await add_hole(home, "", 1, segment)
    assert await home.evict() == Taken()
    await change(home, delete(holes))
    assert await home.evict() == Taken(1, 1, 2)


async def test_what_a_hole_covers_stays(home: Home) -> None:
    await home.save("a", {"x": b"1"}, writes=(write("x", b"w"),))
    await home.save("b", {"x": b"2"}, parent="a", writes=(write("x", b"w"),))
    await home.save("c", {"x": b"3"}, parent="b")
    await home.certify()
    await add_hole(home, "a", 1)
    assert await home.evict() == Taken(1, 1, 2)
    assert await home.here("a") == {"x"}
    assert await written(home, "a") == [value(b"w")]


async def test_a_value_in_a_segment_without_a_range_goes_there(home: Home) -> None:
    """As when each checkpoint is a blob of its own."""
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
        monkeypatch.setattr(passes, name, 3)
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


# --- keyframes -------------------------------------------------------------------------------


async def test_a_keyframe_goes_after_the_last_patch_on_it(home: Home) -> None:
    for number in range(4):
        data = BASE + b"%d" % number if number else BASE
        await home.save(f"{number}", {"x": data}, parent=f"{number - 1}")
    await home.certify()
    assert (await home.evict()).values == 2  # not the head, nor its keyframe
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


async def test_a_value_that_came_back_as_a_patch_is_no_keyframe(home: Home) -> None:
    """What is known of keyframes before the queue is a guess; the writer checks it."""
    await home.save("a", {"x": BASE})
    await home.save("b", {"x": b"small", "y": BASE + b"0"}, parent="a")
    await home.certify()
    assert (await home.evict()).values == 1
    await home.save("c", {"y": BASE}, parent="b")
    await home.save("d", {"x": BASE + b"1"}, parent="c")
    rows = {row["digest"]: row for row in await home.rows()}
    assert rows[digest(BASE)]["keyframe"] == digest(BASE + b"0")
    await home.check_groups()
    assert await home.data("d") == {"x": BASE + b"1"}
    assert await home.data("a") == {"x": BASE}


async def test_a_keyframe_that_was_evicted_is_no_keyframe_any_more(home: Home) -> None:
    """The writer's cache of keyframes forgets what went."""
    await home.save("a", {"x": BASE})
    await home.save("b", {"x": BASE + b"1"}, parent="a")
    await home.save("c", {"y": b"2"}, parent="b")
    await home.certify()
    assert (await home.evict()).values == 2
    await home.save("d", {"x": BASE + b"2"}, parent="c")
    await home.check_groups()
    assert await home.data("d") == {"x": BASE + b"2"}


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


# --- writes ----------------------------------------------------------------------------------


async def test_writes_of_certified_checkpoints_go(home: Home) -> None:
    await home.save("a", {}, writes=(write("x", b"one"), write("x", b"two", idx=-1)))
    await home.save("b", {}, parent="a", writes=(write("x", b"head"),))
    assert await home.evict() == Taken()
    await home.certify()
    assert await home.evict() == Taken(0, 2, 6)
    assert await written(home, "a") == [EVICTED, EVICTED]
    assert await written(home, "b") == [value(b"head")]


async def test_writes_that_wait_for_their_checkpoint_stay(home: Home) -> None:
    await home.checkpoints.save_writes(TENANT, key("a"), (write("x", b"early"),))
    await home.save("b", {})
    await home.certify()
    assert await home.evict() == Taken()


async def test_late_writes_stay_until_they_are_certified(home: Home) -> None:
    await home.save("a", {}, writes=(write("x", b"one"),))
    await home.save("b", {}, parent="a")
    await home.certify()
    await home.checkpoints.save_writes(TENANT, key("a"), (write("x", b"late", task="other"),))
    assert await home.evict() == Taken()
    await home.certify()
    assert await home.evict() == Taken(0, 2, 7)


async def test_writes_of_a_copy_go_where_all_of_it_is_held(home: Home) -> None:
    await home.save("a", {}, writes=(write("x", b"one"),))
    await home.certify()
    await home.save("b", {}, parent="a")
    await change(home, update(members).values(thread=99))
    assert await home.evict() == Taken()
    [segment] = home.segments
    lacking = encode_held(1, [segment, b"unknown" + bytes(25)])
    await change(home, update(checkpoints).values(held=lacking))
    assert await home.evict() == Taken()
    await change(home, update(checkpoints).values(held=encode_held(0, [segment])))
    assert await home.evict() == Taken()
    await change(home, update(checkpoints).values(held=encode_held(1, [segment])))
    late = write("x", b"late", task="other")
    await home.checkpoints.save_writes(TENANT, key("a"), (late,))
    await home.certify()
    await change(home, delete(members).where(members.c.thread != 99))
    assert await home.evict() == Taken(0, 1, 3)


# --- what happens meanwhile ------------------------------------------------------------------


async def test_a_value_that_a_save_refers_to_meanwhile_stays(home: Home) -> None:
    await home.save("a", {"x": b"1", "y": b"2"})
    await home.save("b", {"x": b"3"}, parent="a")
    await home.certify()

    async def refer() -> None:
        await home.save("c", (by_digest("x", b"1"),), parent="b")

    # Opened, threads, a look at one, values, segments: then it evicts.
    gone = await during(home, *[nothing] * 5, refer)
    assert gone == Taken(1, 0, 1)
    assert await home.here("c") == {"x"}


async def test_what_is_labelled_meanwhile_stays_for_the_next_flush(home: Home) -> None:
    await home.save("a", {"x": b"1"})
    await home.save("b", {"x": b"2"}, parent="a")
    await home.certify()

    async def label() -> None:
        await home.checkpoints.set_label(TENANT, key("a"), "milestone")

    assert await during(home, *[nothing] * 5, label) == Taken()
    assert await home.here("a") == {"x"}


async def test_a_patch_that_is_saved_meanwhile_keeps_its_keyframe(home: Home) -> None:
    await home.save("a", {"x": BASE})
    await home.save("b", {"x": b"other"}, parent="a")
    await home.certify()

    async def save() -> None:
        await home.save("c", {"x": BASE + b"1"}, parent="b")

    home.checkpoints.keyframes.prepare(TENANT, "t", "", "x", BASE, digest(BASE))
    assert await during(home, *[nothing] * 5, save) == Taken()
    await home.check_groups()
    assert await home.data("c") == {"x": BASE + b"1"}


async def test_a_value_whose_segment_goes_meanwhile_stays_with_its_keyframe(home: Home) -> None:
    await home.save("a", {"x": BASE})
    await home.certify()
    await home.save("b", {"x": BASE + b"1"}, parent="a")
    await home.certify()
    await home.save("c", {"x": b"other"}, parent="b")
    last = max(home.segments)

    async def collect() -> None:
        await change(home, delete(members).where(members.c.sha256 == last))

    assert await during(home, *[nothing] * 5, collect) == Taken()
    assert await home.data("a") == {"x": BASE}
    assert await home.data("b") == {"x": BASE + b"1"}


async def test_a_write_that_is_replaced_meanwhile_stays(home: Home) -> None:
    await home.save("a", {}, writes=(write("x", b"one", idx=-1),))
    await home.save("b", {}, parent="a")
    await home.certify()

    async def replace() -> None:
        late = write("x", b"two", idx=-1)
        await home.checkpoints.save_writes(TENANT, key("a"), (late,))

    assert (await during(home, *[nothing] * 3, replace)).writes == 0
    assert await written(home, "a") == [value(b"two")]


# --- coming back -----------------------------------------------------------------------------


async def test_evicted_values_are_put_back_whole(home: Home) -> None:
    for number in range(3):
        data = BASE + b"%d" % number if number else BASE
        await home.save(f"{number}", {"x": data}, parent=f"{number - 1}")
    await home.save("3", {"x": b"other"}, parent="2")
    await home.certify()
    assert (await home.evict()).values == 3
    assert await home.read_back("1") == 1
    assert await home.here("1") == {"x"}
    assert await home.read_back("1") == 0
    await home.check_groups()
    [row] = [row for row in await home.rows() if row["digest"] == digest(BASE + b"1")]
    assert (row["encoding"], row["patches"], row["segment"]) == (Encoding.ZSTD, 0, None)
    assert (await home.evict()).values == 1


async def test_evicted_writes_are_put_back_unless_they_were_replaced(home: Home) -> None:
    first, second = write("x", b"one", idx=-1), write("x", text(1, 500), idx=1)
    await home.save("a", {}, writes=(first, second))
    await home.save("b", {}, parent="a")
    await home.certify()
    await home.evict()
    packed = {one.digest: stored_value(one.digest, one.value) for one in as_loaded(first, second)}

    def find(connection: Connection) -> tuple[ThreadRow, list[refill.Affected]]:
        user = find_thread(connection, TENANT, "t")
        assert user is not None
        found, _ = refill.affected(connection, user, home.segments)
        return user, [one for one in found if one.place == ("", "a")]

    for replaced in (False, True):
        user, [one] = await home.database.query(find)
        assert {written.digest for written in one.evicted_writes} == packed.keys()
        if replaced:
            late = write("x", b"two", idx=-1)
            await home.checkpoints.save_writes(TENANT, key("a"), (late,))
        again = partial(refill.store_again, user=user, chosen=[(one, packed)])
        assert await home.database.transact(again) == 1
        expected = b"two" if replaced else b"one"
        assert await written(home, "a") == [value(expected), value(text(1, 500))]
        await home.certify()
        await home.evict()


async def test_only_evicted_values_of_the_family_are_put_back(home: Home) -> None:
    await home.save("a", {"x": b"1"})
    await home.save("a", {"x": b"1"}, thread="other")
    await home.save("b", {}, parent="a")
    await home.save("b", {}, parent="a", thread="other")
    await home.certify()
    await home.certify("other")
    assert (await home.evict()).values == (await home.evict("other")).values == 1
    assert await home.read_back("a") == 1
    assert await home.here("a", "other") == set()


# --- the bound of the journal ----------------------------------------------------------------


def evictor(home: Home, journal_bytes: int, grace_s: float = 0) -> Evictor:
    settings = EvictionSettings(journal_bytes=journal_bytes, grace_s=grace_s, interval_s=3600)
    return Evictor(home.database, home.passes, settings)


async def grow(home: Home, thread: str, count: int) -> None:
    for number in range(count):
        data = text(1000 * len(thread) + number, 100_000)
        await home.save(f"{number:02}", {"x": data}, parent=f"{number - 1:02}", thread=thread)
    await home.certify(thread)


async def test_a_journal_within_its_bound_keeps_its_values(home: Home) -> None:
    await grow(home, "t", 3)
    home.clock.advance(1)
    used = await home.database.used_bytes()
    assert await evictor(home, used).evict() == Taken()


async def test_eviction_ends_within_the_bound_and_begins_with_idle_families(home: Home) -> None:
    await grow(home, "idling", 10)
    await grow(home, "busy", 10)
    home.clock.advance(1)
    bound = await home.database.used_bytes() - 300_000
    gone = await evictor(home, bound).evict()
    assert await home.database.used_bytes() <= bound
    assert 3 <= gone.values < 9
    kept = [await home.here(f"{number:02}", "idling") for number in range(10)]
    assert [len(one) for one in kept] == [0] * gone.values + [1] * (10 - gone.values)
    assert all([await home.here(f"{number:02}", "busy") for number in range(10)])


async def test_a_family_that_gave_all_is_left_alone_until_its_log_goes_on(home: Home) -> None:
    await grow(home, "t", 3)
    home.clock.advance(1)
    one = evictor(home, 0)
    assert (await one.evict()).values == 2
    seen = []

    async def count() -> None:
        seen.append(1)

    home.database.between = count
    assert await one.evict() == Taken()
    assert len(seen) == 1  # it looked at the families, and at none of them
    home.database.between = None
    await home.save("03", {"x": b"new"}, parent="02", thread="t")
    await home.certify("t")
    home.clock.advance(1)
    assert (await one.evict()).values == 1


async def test_young_changes_are_asked_again_later(home: Home) -> None:
    await grow(home, "t", 3)
    one = evictor(home, 0, grace_s=60)
    assert await one.evict() == Taken()
    home.clock.advance(61)
    assert (await one.evict()).values == 2


async def ended(running: asyncio.Task[None]) -> None:
    running.cancel()
    await asyncio.wait({running})


async def test_the_evictor_works_by_itself_and_stops(home: Home) -> None:
    await grow(home, "t", 3)
    home.clock.advance(1)
    one = evictor(home, 0)

    def evicted(connection: Connection) -> int:
        chosen = select(func.count()).where(contents.c.data.is_(None))
        return int(connection.execute(chosen).scalar_one())

    running = asyncio.create_task(one.run())
    while await home.database.query(evicted) < 2:
        pass
    await ended(running)
    assert home.passes._open == ()


async def test_failures_do_not_end_it(home: Home, caplog: pytest.LogCaptureFixture) -> None:
    await grow(home, "t", 3)
    home.clock.advance(1)
    failures: list[Exception] = [
        Refusal(Reason.JOURNAL_UNAVAILABLE, problem="no"),
        RuntimeError("a defect"),
    ]
    went_on = asyncio.Event()

    async def fail() -> None:
        if failures:
            raise failures.pop(0)
        went_on.set()

    home.database.between = fail
    settings = EvictionSettings(journal_bytes=0, grace_s=0, interval_s=0.001)
    one = Evictor(home.database, home.passes, settings)
    running = asyncio.create_task(one.run())
    await asyncio.wait_for(went_on.wait(), 30)
    await ended(running)
    logged = [record.message for record in caplog.records if record.name.endswith("eviction")]
    assert logged[0].startswith("eviction is delayed: ")
    assert logged[1] == "eviction failed"
