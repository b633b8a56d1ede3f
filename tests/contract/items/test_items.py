"""Items of stores are put, read, found, expired, certified and recovered in the journal."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from sqlalchemy import Connection

from tests.contract.search.kit import ONE, OTHER, drain
from tests.integration.archive.recover.recovered import recovered_house
from tests.kit.archives import House
from tests.kit.databases import ask
from tests.kit.drafts import TENANT, draft
from tests.kit.journal import Clock, Journal, opened, row_of, rows_of
from tuskpoint_server.core.items import Item, ItemChange, Namespace, filter_condition, thread_of
from tuskpoint_server.core.search import pack_vector
from tuskpoint_server.features.items import item_statements
from tuskpoint_server.journal.sql.schema import memories

HOUR_US = 3_600_000_000
A: Namespace = ("users", "a")
B: Namespace = ("users", "b/c~d")


def put(key: str, value: bytes = b'{"x":1}', *, of: Namespace = A, ttl_us: int = 0) -> ItemChange:
    return ItemChange(of, key, value, ttl_us, ("text",))


async def there(journal: Journal, *prefix: str) -> dict[tuple[Namespace, str], bytes]:
    """Return the values of the items below a namespace."""
    page = await journal.items.latest(TENANT, prefix, None, 0, 1000)
    assert not page.cut
    return {(item.namespace, item.key): item.value for item in page.items}


async def got(journal: Journal, key: str, namespace: Namespace = A) -> Item | None:
    items, answered = await journal.items.get(TENANT, [(namespace, key)])
    assert answered == 1
    return items[0] if items else None


async def test_values_are_returned_as_they_were_put(journal: Journal) -> None:
    value = b'{ "value" : 1.50, "value" :2e3,\n"\xc3\xa9":"\\ud800" }'
    await journal.items.put(TENANT, [put("k", value)])
    item = await got(journal, "k")
    assert item is not None
    assert item.value == value
    assert await got(journal, "other") is None
    assert await journal.items.get("another tenant", [(A, "k")]) == ([], 1)


async def test_the_last_of_several_changes_counts_and_deleting_nothing_is_no_change(
    journal: Journal,
) -> None:
    gone = ItemChange(A, "k")
    await journal.items.put(TENANT, [gone, ItemChange(B, "k")])
    await journal.items.put(TENANT, [put("k"), gone, put("l"), put("l", b"{}")])
    assert await there(journal) == {(A, "l"): b"{}"}
    before = await row_of(journal, thread_of(A))
    await journal.items.put(TENANT, [gone])
    assert (await row_of(journal, thread_of(A))).seq == before.seq
    assert before.checkpoint_count == 1


async def test_an_item_keeps_its_creation_until_it_is_deleted(
    journal: Journal, clock: Clock
) -> None:
    made_us = clock.now_us
    await journal.items.put(TENANT, [put("k")])
    clock.advance(1)
    await journal.items.put(TENANT, [put("k", b'{"x":2}')])
    item = await got(journal, "k")
    assert item is not None
    assert (item.times.created_us, item.times.updated_us) == (made_us, clock.now_us)
    await journal.items.put(TENANT, [ItemChange(A, "k")])
    await journal.items.put(TENANT, [put("k")])
    item = await got(journal, "k")
    assert item is not None
    assert item.times.created_us == clock.now_us


async def test_a_namespace_is_found_with_those_below_it_and_no_others(journal: Journal) -> None:
    spaces: list[Namespace] = [("a",), ("a", "b"), ("a/b",), ("ab",), ("a0",), ("a", "b", "c")]
    await journal.items.put(TENANT, [put("k", of=namespace) for namespace in spaces])
    assert {namespace for namespace, _ in await there(journal, "a")} == {
        ("a",),
        ("a", "b"),
        ("a", "b", "c"),
    }
    assert {namespace for namespace, _ in await there(journal, "a", "b")} == {
        ("a", "b"),
        ("a", "b", "c"),
    }
    assert {namespace for namespace, _ in await there(journal, "a/b")} == {("a/b",)}
    assert await journal.items.namespaces(TENANT, ()) == sorted(spaces)
    await journal.items.put(TENANT, [ItemChange(("ab",), "k")])
    assert ("ab",) not in await journal.items.namespaces(TENANT, ())


async def test_pages_follow_the_last_put_and_end_with_large_values(
    journal: Journal, clock: Clock
) -> None:
    for number in range(6):
        value = b'{"n":%d,"x":"%b"}' % (number, b"x" * (1 << 20) if number > 2 else b"")
        await journal.items.put(TENANT, [put(str(number), value)])
        clock.advance(1)
    page = await journal.items.latest(TENANT, A, None, 0, 5)
    assert ([item.key for item in page.items], page.cut) == (["5", "4", "3"], True)
    page = await journal.items.latest(TENANT, A, None, 3, 2)
    assert ([item.key for item in page.items], page.cut) == (["2", "1"], False)
    admits = filter_condition({"n": {"$lte": 4, "$ne": 2}})
    page = await journal.items.latest(TENANT, A, admits, 1, 2)
    assert ([item.key for item in page.items], page.cut) == (["3", "1"], False)
    items, answered = await journal.items.get(TENANT, [(A, key) for key in "543210"])
    assert ([item.key for item in items], answered) == (["5", "4", "3"], 3)


async def test_an_expired_item_is_gone_before_and_after_it_is_swept(
    home: House, clock: Clock
) -> None:
    journal = home.journal
    await journal.items.put(TENANT, [put("k", ttl_us=HOUR_US), put("l")])
    await home.flush()
    home.clock.advance(3599)
    assert len(await there(journal)) == 2
    home.clock.advance(1)
    for _ in range(2):
        assert await got(journal, "k") is None
        assert await there(journal) == {(A, "l"): b'{"x":1}'}
        swept = await journal.items.sweep()
    assert swept == 0
    assert (await row_of(journal, thread_of(A))).checkpoint_count == 1
    assert await home.flush() == 0
    assert [key for _, key in (await home.manifest(thread_of(A))).entries] == ["l"]


async def test_an_item_that_expired_is_made_anew(journal: Journal, clock: Clock) -> None:
    await journal.items.put(TENANT, [put("k", ttl_us=HOUR_US)])
    clock.advance(3600)
    await journal.items.put(TENANT, [put("k")])
    item = await got(journal, "k")
    assert item is not None
    assert (item.times.created_us, item.times.expire_us) == (clock.now_us, None)
    assert await journal.items.sweep() == 0
    assert (await row_of(journal, thread_of(A))).checkpoint_count == 1


async def test_reading_puts_the_end_off_and_seldom_waits_for_certification(home: House) -> None:
    journal, clock = home.journal, home.clock
    await journal.items.put(TENANT, [put("k", ttl_us=HOUR_US), put("never")])
    await home.flush()

    async def read(after_s: float) -> tuple[int, int]:
        """Read the items; return the seconds until one expires, and the number of dirty threads."""
        clock.advance(after_s)
        items, _ = await journal.items.get(TENANT, [(A, "k"), (A, "never")])
        shown = await journal.items.put_off(TENANT, items)
        [item, never] = shown
        assert never.times.expire_us is None
        assert item == await got(journal, "k")
        assert item.times.expire_us is not None
        left_us = item.times.expire_us - clock.now_us
        return left_us // 1_000_000, (await home.waiting()).threads

    assert await read(35) == (3565, 0)  # less than a hundredth of the time has passed
    assert await read(1) == (3600, 0)
    assert await read(1700) == (3600, 0)
    assert await read(100) == (3600, 1)  # less than half of the time is left in the certified item
    await home.flush()
    assert await read(1800) == (3600, 0)
    clock.advance(3600)
    assert await got(journal, "k") is None


async def test_items_are_recovered_and_those_that_are_gone_are_not(
    tmp_path: Path, home: House
) -> None:
    journal = home.journal
    await journal.save_checkpoint(TENANT, draft("c"))
    many = [put(f"k{number}", b'{"n":%d}' % number) for number in range(50)]
    await journal.items.put(TENANT, [*many, put("ends", ttl_us=HOUR_US, of=B), put("x", of=("e",))])
    await home.flush()
    home.clock.advance(10)
    await journal.items.put(TENANT, [put("k1", b'{"n":"new"}'), ItemChange(A, "k2")])
    await journal.items.put(TENANT, [ItemChange(("e",), "x")])
    await home.flush()
    before = await journal.items.latest(TENANT, (), None, 0, 1000)
    assert len(before.items) == 50
    async with recovered_house(tmp_path / "recovered", home) as after:
        assert await after.journal.items.latest(TENANT, (), None, 0, 1000) == before
        assert await after.journal.items.namespaces(TENANT, ()) == [A, B]
        assert (await row_of(after.journal, thread_of(A))).checkpoint_count == 49
        # Deleted items come back only if they are put again, and the other items can be changed.
        await after.journal.items.put(
            TENANT, [put("x", of=("e",)), put("k1", b'{"n":3}'), ItemChange(A, "k3")]
        )
        await after.flush()
        expected = await there(after.journal)
        assert expected[("e",), "x"] == b'{"x":1}'
        assert (A, "k3") not in expected
        async with recovered_house(tmp_path / "again", after) as again:
            assert await there(again.journal) == expected
            again.clock.advance(3600)
            assert (B, "ends") not in await there(again.journal)
            assert await again.journal.items.sweep() == 1


@pytest.mark.parametrize(
    ("wanted", "admitted"),
    [
        ({"a": 1}, "1 1.0"),
        ({"a": {"$eq": True}}, "true"),
        ({"a": {"$ne": 1}}, 'true "1" null {} [1] {"b":{"c":1}}'),
        ({"a": None}, "null {}"),
        ({"a": {"$gt": 0, "$lt": 2}}, "1 1.0"),
        ({"a": {"$gte": "1"}}, '"1"'),
        ({"a": [{"$lte": 1}]}, "[1]"),
        ({"a": {"b": {"c": {"$gte": 1}}}}, '{"b":{"c":1}}'),
        ({"a": {"b": {}}}, '{"b":{"c":1}}'),
    ],
)
async def test_filters(journal: Journal, wanted: dict[str, object], admitted: str) -> None:
    texts = ["1", "1.0", "true", '"1"', "null", "[1]", '{"b":{"c":1}}']
    changes = [put(text, b'{"a":%b}' % text.encode()) for text in texts]
    await journal.items.put(TENANT, [*changes, put("{}", b"{}")])
    page = await journal.items.latest(TENANT, A, filter_condition(wanted), 0, 100)
    assert {item.key for item in page.items} == set(admitted.split())


async def test_an_item_has_a_vector_for_each_of_its_texts(tmp_path: Path, home: House) -> None:
    journal = home.journal

    async def owed(among: Journal = journal) -> list[str]:
        await drain(among)
        return sorted(document.text for document in await among.index.unembedded(100))

    async def say(*texts: str, key: str = "k", ttl_us: int = 0) -> None:
        await journal.items.put(TENANT, [ItemChange(A, key, b"{}", ttl_us, texts)])

    await say("one", "two", "three")
    await say("four", key="l", ttl_us=HOUR_US)
    assert await owed() == ["four", "one", "three", "two"]
    await say("one", "five")
    assert await owed() == ["five", "four", "one"]
    await say("one", "six", "seven", "eight")
    assert await owed() == ["eight", "four", "one", "seven", "six"]
    assert (await row_of(journal, thread_of(A))).checkpoint_count == 5
    await journal.index.embed(
        "e",
        [
            (document, pack_vector(ONE if document.text in ("seven", "four") else OTHER))
            for document in await journal.index.unembedded(100)
        ],
    )

    def compare(rows: Sequence[tuple[int, bytes]]) -> list[tuple[int, float]]:
        return [(number, struct.unpack("<2f", vector)[0]) for number, vector in rows]

    async def ranked() -> list[tuple[str, float | None]]:
        best = await journal.items.ranked(TENANT, A, None, compare)
        page, numbers = await journal.items.numbered([number for number, _ in best])
        assert numbers == [number for number, _ in best]
        return [(item.key, score) for item, (_, score) in zip(page.items, best, strict=True)]

    assert await ranked() == [("k", 1.0), ("l", 1.0)]
    await say("four", "nine", key="l")
    assert await owed() == ["nine"]
    await say(key="m")
    assert await ranked() == [("k", 1.0), ("l", 1.0), ("m", None)]
    await say("six")
    assert await ranked() == [("l", 1.0), ("k", None), ("m", None)]
    await home.flush()
    async with recovered_house(tmp_path / "recovered", home) as after:
        assert await owed(after.journal) == ["four", "nine", "six"]
    await journal.items.put(TENANT, [ItemChange(A, key) for key in "klm"])
    await home.flush()
    assert not (await home.manifest(thread_of(A))).entries
    assert (await row_of(journal, thread_of(A))).checkpoint_count == 0


async def test_of_items_the_archive_evicts_nothing(home: House) -> None:
    await home.journal.items.put(TENANT, [put("k", b'{"x":"%b"}' % (b"x" * 100_000))])
    await home.flush()
    before = await there(home.journal)
    assert await home.evict() == 0
    assert await there(home.journal) == before


async def test_memwal_gets_no_items(journal: Journal) -> None:
    await journal.items.put(TENANT, [put("c")])
    await journal.save_checkpoint(TENANT, draft("c", summary="of a checkpoint"))
    assert await drain(journal, remember=True) == 2
    [(text,)] = await rows_of(journal, memories, "text")
    assert "of a checkpoint" in text
    assert {document.text for document in await journal.index.unembedded(10)} == {
        "text",
        "of a checkpoint",
    }
    assert await journal.index.sweep() == 0
    await journal.items.put(TENANT, [ItemChange(A, "c")])
    assert await journal.index.sweep() == 1


@pytest.mark.sqlite
async def test_what_is_read_depends_on_the_items_below_the_namespace(journal: Journal) -> None:
    """A tenant may have any number of threads, and documents of other checkpoints."""

    def plan(connection: Connection) -> str:
        read: list[str] = []
        for statement in (
            item_statements.NUMBERS,
            item_statements.NAMESPACES,
            item_statements.OWED,
        ):
            sql = statement.compiled(connection)[0].sql
            rows = ask(connection, f"EXPLAIN QUERY PLAN {sql}", *[None] * sql.count("?"))
            read += (str(row[3]) for row in rows if "threads" in row[3] or "documents" in row[3])
        return "\n".join(read)

    through_names = (
        "USING COVERING INDEX threads_by_name (tenant=? AND thread_id>? AND thread_id<?)"
    )
    read = (await journal.database.query(plan)).splitlines()
    assert [step for step in read if through_names not in step] == [
        "SCAN search_documents USING INDEX search_documents_unembedded"
    ]


@pytest.mark.postgresql
async def test_servers_that_share_a_journal_agree_on_items(tmp_path: Path, clock: Clock) -> None:
    async with AsyncExitStack() as stack:
        servers = [await stack.enter_async_context(opened(tmp_path, clock)) for _ in range(3)]

        async def work(number: int) -> None:
            for step in range(12):
                items_of = servers[(number + step) % 3].items
                value = b'{"by":%d,"step":%d}' % (number, step)
                await items_of.put(TENANT, [put("shared", value), put(f"own {number}", value)])
                if step % 4 == 3:
                    await items_of.put(TENANT, [ItemChange(A, f"own {number}")])

        await asyncio.gather(*map(work, range(6)))
        seen = [await there(server) for server in servers]
        assert seen == [seen[0]] * 3
        assert [key for _, key in seen[0]] == ["shared"]
        row = await row_of(servers[0], thread_of(A))
        assert (row.seq, row.checkpoint_count) == (6 * (2 * 12 + 3), 1)
