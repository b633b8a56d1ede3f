"""Of several pending writes for a slot the right one stays; writes keep their order and expire."""

from __future__ import annotations

import pytest

from tests.contract.checkpoints.kit import load
from tests.kit.drafts import (
    TENANT,
    as_loaded,
    draft,
    key,
    write,
    written,
)
from tests.kit.journal import Clock, Journal
from tuskpoint_server.core.model import (
    write_order,
)


async def test_first_wins_for_channels_and_last_for_signs(journal: Journal) -> None:
    await journal.save_checkpoint(TENANT, draft("a"))
    await journal.save_writes(
        TENANT, key("a"), [write("x", b"first"), write("__resume__", b"first", idx=-4)]
    )
    outcome = await journal.save_writes(
        TENANT,
        key("a"),
        [
            write("x", b"second"),
            write("y", b"new", idx=1),
            write("__resume__", b"second", idx=-4),
        ],
    )
    assert outcome.seq == 3
    assert journal.added[-1] == len(b"new" + b"second")
    assert written(await load(journal, key("a"))) == [
        ("", "task", -4, "__resume__", b"second"),
        ("", "task", 0, "x", b"first"),
        ("", "task", 1, "y", b"new"),
    ]


@pytest.mark.parametrize("idx", [-1, -2, -3, -4])
async def test_any_difference_replaces_a_sign(journal: Journal, idx: int) -> None:
    await journal.save_checkpoint(TENANT, draft("a"))
    versions = [
        write("__sign__", b"1", idx=idx),
        write("__sign__", b"2", idx=idx),
        write("__sign__", b"2", idx=idx, path="~a"),
        write("__other__", b"2", idx=idx, path="~a"),
    ]
    for seq, version in enumerate(versions, start=2):
        outcome = await journal.save_writes(TENANT, key("a"), [version])
        assert outcome.seq == seq
        assert (await load(journal, key("a"))).writes == as_loaded(version)


async def test_repeated_writes_change_nothing(journal: Journal) -> None:
    await journal.save_checkpoint(TENANT, draft("a"))
    sent = [write("x", b"1"), write("__interrupt__", b"2", idx=-3)]
    first = await journal.save_writes(TENANT, key("a"), sent)
    second = await journal.save_writes(TENANT, key("a"), sent)
    assert (second.key, second.seq) == (first.key, first.seq)


async def test_of_equal_slots_in_one_call_the_last_sign_stays(journal: Journal) -> None:
    await journal.save_checkpoint(TENANT, draft("a"))
    first, second = write("__error__", b"1", idx=-1), write("__error__", b"2", idx=-1)
    for sent in ([first, second], [first, second], [second, first], [second, first, second]):
        await journal.save_writes(TENANT, key("a"), [write("x", b"1"), write("x", b"2"), *sent])
        assert (await load(journal, key("a"))).writes == as_loaded(sent[-1], write("x", b"1"))


async def test_writes_are_read_in_code_point_order(journal: Journal) -> None:
    await journal.save_checkpoint(TENANT, draft("a"))
    sent = [
        write("x", b"1", task="ﬀ", path="~b"),
        write("x", b"2", task="\U0001f418", path="~b"),
        write("x", b"3", task="a", path="~b", idx=1),
        write("x", b"4", task="a", path="~b", idx=0),
        write("x", b"5", task="z"),
        write("x", b"6", task="b", path="~A"),
    ]
    await journal.save_writes(TENANT, key("a"), sent)
    writes = (await load(journal, key("a"))).writes
    assert [w.value.data for w in writes] == [b"5", b"6", b"4", b"3", b"1", b"2"]
    assert list(writes) == sorted(as_loaded(*sent), key=write_order)


async def test_early_writes_expire_and_claimed_ones_do_not(journal: Journal, clock: Clock) -> None:
    await journal.save_writes(TENANT, key("a"), [write("x", b"1")])
    await journal.save_writes(TENANT, key("b"), [write("x", b"2")])
    await journal.save_checkpoint(TENANT, draft("b"))
    clock.advance(100)
    await journal.save_writes(TENANT, key("c"), [write("x", b"3")])
    swept = await journal.removal.sweep(early_write_ttl_s=60)
    assert swept.early_writes == 1
    for checkpoint_id, expected in (("a", []), ("b", [b"2"]), ("c", [b"3"])):
        await journal.save_checkpoint(TENANT, draft(checkpoint_id))
        loaded = await load(journal, key(checkpoint_id))
        assert [w.value.data for w in loaded.writes] == expected
