"""Delta channels are rebuilt from the right seed and writes, before any removal."""

from __future__ import annotations

from tests.contract.removal.rows import history
from tests.kit.drafts import TENANT, Reference, channel, draft, key, write
from tests.kit.journal import Journal, save
from tuskpoint_server.core.threads import PruneStrategy
from tuskpoint_server.features.removal.removal_rows import RemovalRows


async def histories(
    journal: Journal, checkpoint_id: str, *names: str
) -> list[tuple[bytes | None, list[bytes]]]:
    channel_histories = await journal.delta_history(TENANT, key(checkpoint_id), names)
    assert tuple(channel_history.channel for channel_history in channel_histories) == names
    for channel_history in channel_histories:
        assert channel_history.seed is None or channel_history.seed.name == channel_history.channel
        assert all(written.channel == channel_history.channel for written in channel_history.writes)
        assert channel_history.sources == ()
    return [
        (
            channel_history.seed.value.data
            if channel_history.seed and channel_history.seed.value
            else None,
            [w.value.data for w in channel_history.writes],
        )
        for channel_history in channel_histories
    ]


async def test_channels_stop_at_their_own_nearest_value(journal: Journal) -> None:
    for n in range(5):
        stored = {1: {"a": b"A"}, 3: {"b": b"B"}}.get(n, {})
        await save(
            journal,
            draft(
                str(n),
                str(n - 1) if n else "",
                {"a": Reference.EMPTY, "b": Reference.EMPTY, **stored},
                writes=(write("a", b"a%d" % n), write("b", b"b%d" % n, idx=1)),
            ),
        )
    assert await histories(journal, "4", "a", "b", "c") == [
        (b"A", [b"a1", b"a2", b"a3"]),
        (b"B", [b"b3"]),
        (None, []),
    ]
    assert await histories(journal, "", "b", "a", "b") == [
        (b"B", [b"b3"]),
        (b"A", [b"a1", b"a2", b"a3"]),
        (b"B", [b"b3"]),
    ]
    assert await histories(journal, "1", "a") == [(None, [b"a0"])]
    assert await histories(journal, "4") == []


async def test_a_seed_has_its_version_and_size(journal: Journal) -> None:
    await save(journal, draft("a", "", (channel("x", b"seed", "v7"),)), draft("b", "a"))
    (channel_history,) = await journal.delta_history(TENANT, key("b"), ["x"])
    assert channel_history.seed is not None
    assert (channel_history.seed.version, channel_history.seed.size) == ("v7", 4)


async def test_unknown_targets_and_missing_parents_have_no_history(journal: Journal) -> None:
    await save(journal, draft("b", "missing", writes=(write("log", b"b"),)), draft("c", "b"))
    assert await history(journal, "c") == (None, [b"b"])
    assert await history(journal, "b") == (None, [])
    assert await history(journal, "unknown") == (None, [])
    assert await history(journal, "", ns="unknown") == (None, [])
    (channel_history,) = await journal.delta_history(TENANT, key("c", "no such thread"), ["log"])
    assert (channel_history.seed, channel_history.writes) == (None, ())
    (channel_history,) = await journal.delta_history("another tenant", key("c"), ["log"])
    assert (channel_history.seed, channel_history.writes) == (None, ())


async def test_writes_of_a_step_keep_their_order(journal: Journal) -> None:
    await save(journal, draft("a"), draft("b", "a"))
    await journal.save_writes(
        TENANT,
        key("a"),
        [
            write("log", b"3", task="a", path="~b", idx=1),
            write("log", b"2", task="a", path="~b"),
            write("log", b"1", task="z", path="~a"),
            write("y", b"not asked", task="z", path="~a", idx=1),
        ],
    )
    assert await history(journal, "b") == (None, [b"1", b"2", b"3"])


async def test_a_loop_of_parents_ends_the_walk(journal: Journal, removal: RemovalRows) -> None:
    await save(
        journal,
        draft("a", "c", delta=("log",), writes=(write("log", b"a"),)),
        draft("b", "a", delta=("log",), writes=(write("log", b"b"),)),
        draft("c", "b", delta=("log",)),
    )
    assert await history(journal) == (None, [b"a", b"b"])
    await removal.prune_thread(TENANT, "t", PruneStrategy.KEEP_LATEST)
    assert await history(journal) == (None, [b"a", b"b"])


async def test_long_chains(journal: Journal, removal: RemovalRows) -> None:
    for n in range(40):
        await save(
            journal,
            draft(
                f"{n:03}",
                f"{n - 1:03}" if n else "",
                (channel("log", b"seed"),) if n == 5 else (),
                delta=("log",),
                writes=(write("log", b"%d" % n),),
            ),
        )
    expected = (b"seed", [b"%d" % n for n in range(5, 39)])
    assert await history(journal) == expected
    await removal.prune_thread(TENANT, "t", PruneStrategy.KEEP_LATEST)
    assert await history(journal) == expected
