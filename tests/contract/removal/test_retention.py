"""Retention rules delete and spare the right checkpoints, and a preview reports the same."""

from __future__ import annotations

import pytest

from tests.contract.removal.rows import FOREVER, certify_all, chain, history, ids, rows
from tests.kit.drafts import TENANT, draft, key, write
from tests.kit.journal import Clock, Journal, save
from tuskpoint_server.core.model import BlobLocation
from tuskpoint_server.features.lineage import first_answers
from tuskpoint_server.features.removal.retention_rows import RetentionRows
from tuskpoint_server.features.removal.rules import RetentionEffect, RetentionRule
from tuskpoint_server.journal.sql.schema import contents, handoffs

DAY = 86400


@pytest.fixture
def retention(journal: Journal) -> RetentionRows:
    return RetentionRows(journal.database)


async def preview(retention: RetentionRows, *rules: RetentionRule) -> list[RetentionEffect]:
    return [effect async for effect in retention.effects(TENANT, rules)]


async def pruned(retention: RetentionRows, *rules: RetentionRule) -> int:
    """Apply rules; the preview must have announced the same deletions."""
    said = await preview(retention, *rules)
    threads, checkpoints = await retention.apply(rules)
    assert threads == sum(effect.thread_deleted for effect in said)
    assert checkpoints == sum(effect.checkpoints for effect in said)
    assert await preview(retention, *rules) == []
    return checkpoints


async def test_the_last_checkpoints_and_young_ones_stay(
    journal: Journal, retention: RetentionRows, clock: Clock
) -> None:
    for name in "abcde":
        await save(journal, draft(name))
        clock.advance(DAY)
    assert await pruned(retention, RetentionRule(keep_last=2, keep_for_s=4 * DAY)) == 2
    assert await ids(journal) == [("", "c"), ("", "d"), ("", "e")]
    assert await pruned(retention, RetentionRule(keep_last=2)) == 1
    clock.advance(100 * DAY)
    assert await pruned(retention, RetentionRule(keep_for_s=DAY)) == 1
    assert await ids(journal) == [("", "e")]


async def test_labelled_and_handed_off_checkpoints_stay_with_their_roots(
    journal: Journal, retention: RetentionRows
) -> None:
    under = {"parents": {"": "c"}}
    await save(
        journal,
        draft("a", label="v1"),
        draft("b", "a"),
        draft("c", "b"),
        draft("c1", ns="call:1", metadata=under),
        draft("d", "c"),
        draft("e", "d"),
    )
    request = first_answers.request(TENANT, "", "CreateHandoff")
    bundle = BlobLocation(b"b" * 32, 1, "blob")
    child = key("c1", "t", "call:1")
    await journal.handoffs.keep_handoff(request, child, bundle, [], b"answer", content_seq=1)
    assert len(await rows(journal, handoffs, "checkpoint_id")) == 1
    assert await pruned(retention, RetentionRule(keep_last=1)) == 2
    assert await ids(journal) == [("", "a"), ("", "c"), ("", "e"), ("call:1", "c1")]


async def test_subgraphs_stay_with_the_roots_that_need_them(
    journal: Journal, retention: RetentionRows
) -> None:
    await save(
        journal,
        draft("a"),
        draft("a1", ns="state", metadata={"parents": {"": "a"}}),
        draft("a2", ns="call:1", metadata={"parents": {"": "a"}}),
        draft("b", "a"),
        draft("b1", "a1", ns="state", metadata={"parents": {"": "b"}}),
        draft("b2", ns="call:2", metadata={"parents": {"": "b"}}),
        draft("c", "b"),
        draft("d", "c"),
        draft("n1", ns="own"),
        draft("n2", "n1", ns="own"),
        draft("z1", ns="call:3", metadata={"parents": {"": "zz"}}),
    )
    # The state after b is the state of c and d, and c's tasks may start from it again.
    assert await pruned(retention, RetentionRule(keep_last=2)) == 5
    assert await ids(journal) == [
        ("", "c"),
        ("", "d"),
        ("call:3", "z1"),
        ("own", "n1"),
        ("own", "n2"),
        ("state", "b1"),
    ]


async def test_delta_channels_are_rebuilt_after_pruning(
    journal: Journal, retention: RetentionRows
) -> None:
    await chain(journal, seed_at=0, length=6)
    before = await history(journal)
    for name in range(6):
        await journal.set_label(TENANT, key(f"{name:02}"), "")
    assert await pruned(retention, RetentionRule(keep_last=2)) == 4
    assert await history(journal) == before


async def test_an_idle_thread_is_deleted_and_a_changed_one_is_not(
    journal: Journal, retention: RetentionRows, clock: Clock
) -> None:
    await save(journal, draft("a"), draft("a", thread_id="busy"))
    clock.advance(9)
    await save(journal, draft("b", "a", thread_id="busy"))
    clock.advance(1)
    rule = RetentionRule(delete_after_s=10)
    assert await pruned(retention, rule) == 1
    assert await journal.thread(TENANT, "t") is None
    assert await ids(journal, "busy") == [("", "a"), ("", "b")]


async def test_the_most_specific_rule_applies(
    journal: Journal, retention: RetentionRows, clock: Clock
) -> None:
    for name, agent in (("one", "x"), ("two", "x"), ("three", "y"), ("four", "z")):
        for checkpoint_id in "abcd":
            await save(journal, draft(checkpoint_id, thread_id=name, agent_id=agent))
    rules = (
        RetentionRule(keep_last=3),
        RetentionRule(tenant=TENANT, agent_id="x", keep_last=2),
        RetentionRule(agent_id="x", keep_last=4),
        RetentionRule(thread_id="two", keep_last=1),
        RetentionRule(tenant="other", delete_after_s=1),
    )
    clock.advance(100)
    assert await retention.apply(rules) == (0, 2 + 3 + 1 + 1)
    counts = {name: len(await ids(journal, name)) for name in ("one", "two", "three", "four")}
    assert counts == {"one": 2, "two": 1, "three": 3, "four": 3}


async def test_a_preview_counts_the_bytes_that_the_journal_drops(
    journal: Journal, retention: RetentionRows
) -> None:
    await save(journal, draft("a", "", {"x": b"a" * 1000, "y": b"shared" * 100}))
    await save(journal, draft("b", "a", {"x": b"b" * 500}, writes=(write("x", b"w" * 300),)))
    await save(journal, draft("c", "b", {"y": b"shared" * 100}))
    await journal.lineage.fork(TENANT, key("b"), "fork", "")
    before = sum(len(row[0]) for row in await rows(journal, contents, "data"))
    [effect] = await preview(retention, RetentionRule(thread_id="t", keep_last=1))
    assert await retention.apply([RetentionRule(thread_id="t", keep_last=1)]) == (0, 2)
    await certify_all(journal)
    await journal.removal.sweep(early_write_ttl_s=FOREVER)
    dropped = before - sum(len(row[0]) for row in await rows(journal, contents, "data"))
    assert dropped > 0  # the fork shares the value of b
    # States, metadata and the write of b count in addition to the value of a.
    assert dropped <= effect.journal_bytes <= dropped + 800
    assert effect.stored_bytes == 0


async def test_pages_of_threads_are_looked_at_one_after_another(
    journal: Journal, retention: RetentionRows
) -> None:
    for number in range(205):
        await save(journal, draft("a", thread_id=f"t{number:03}"))
    for name in ("t000", "t199", "t200", "t204"):
        await save(journal, draft("b", "a", thread_id=name))
    effects = await preview(retention, RetentionRule(keep_last=1))
    assert [effect.thread_id for effect in effects] == ["t000", "t199", "t200", "t204"]
    assert await pruned(retention, RetentionRule(keep_last=1)) == 4
