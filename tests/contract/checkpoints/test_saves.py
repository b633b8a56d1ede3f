"""Checkpoints and labels are saved, and loaded exactly."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.contract.checkpoints.kit import absent, load
from tests.kit.drafts import (
    TENANT,
    Reference,
    as_loaded,
    by_digest,
    channel,
    data_of,
    draft,
    key,
    refused,
    value,
    write,
    written,
)
from tests.kit.journal import Clock, Journal, opened
from tuskpoint.v1.checkpoint_pb2 import CheckpointState
from tuskpoint_server.core.errors import Reason
from tuskpoint_server.core.model import (
    Checkpoint,
    CheckpointKey,
    State,
    Version,
    View,
)
from tuskpoint_server.features.checkpoints.incoming import IncomingCheckpoint

INHERIT, EMPTY = Reference.INHERIT, Reference.EMPTY


def state_of(checkpoint: Checkpoint) -> State:
    assert checkpoint.state is not None
    return checkpoint.state


async def test_a_checkpoint_is_loaded_as_it_was_saved(journal: Journal, clock: Clock) -> None:
    frame = CheckpointState(schema_version=1, delta_channels=["empty"]).SerializeToString()
    saved = draft(
        "a",
        "",
        (
            channel("text", value(b"\x00\xff", "bytes"), "0001.5"),
            channel("integer", b"", 2**62),
            channel("number", b"x" * 5000, 1.5),
            channel("unversioned", b"n", None),
            channel("empty", EMPTY, 3),
        ),
        frame=frame,
        metadata={"source": "loop", "step": 1, "nested": {"é": [None]}},
        label="first",
        summary="It began.",
        agent_id="planner",
        writes=(write("text", b"w"),),
    )
    outcome = await journal.save_checkpoint(TENANT, saved)
    loaded = await load(journal, key("a"))

    assert (outcome.key, outcome.incarnation, outcome.seq) == (key("a"), 1, 1)
    assert 0 < journal.added[-1] < 5000  # the stored bytes are compressed
    assert state_of(loaded).frame == frame
    assert [(c.name, c.version, type(c.version), c.size) for c in state_of(loaded).channels] == [
        ("text", "0001.5", str, 2),
        ("integer", 2**62, int, 0),
        ("number", 1.5, float, 5000),
        ("unversioned", None, type(None), 1),
        ("empty", 3, int, 0),
    ]
    assert [c.value for c in state_of(loaded).channels] == [
        value(b"\x00\xff", "bytes"),
        value(b""),
        value(b"x" * 5000),
        value(b"n"),
        None,
    ]
    assert [c.digest is None for c in state_of(loaded).channels] == [False] * 4 + [True]
    entry = loaded.entry
    assert entry.metadata == saved.metadata.raw
    assert (entry.label, entry.summary, entry.parent_id) == ("first", "It began.", "")
    assert (entry.certified, entry.seq) == (False, 1)
    assert entry.created_us == clock.now_us
    assert loaded.writes == as_loaded(*saved.writes)


async def test_an_entry_holds_no_state(journal: Journal) -> None:
    await journal.save_checkpoint(TENANT, draft("a", "", {"x": b"1"}, writes=(write("x", b"2"),)))
    loaded = await load(journal, key("a"), View.ENTRY)
    assert loaded.state is None
    assert loaded.writes == ()
    assert loaded.entry.key == key("a")


async def test_a_missing_checkpoint_is_none(journal: Journal) -> None:
    await journal.save_checkpoint(TENANT, draft("a"))
    for missing_key in (key("b"), key("a", "other"), key("a", "t", "ns"), key("", "other")):
        assert await absent(journal, missing_key)
    assert await journal.load("another tenant", key("a"), View.FULL) is None


async def test_latest_is_the_greatest_id_not_the_last_saved(journal: Journal) -> None:
    for checkpoint_id in ("b", "c", "a"):
        await journal.save_checkpoint(TENANT, draft(checkpoint_id))
    await journal.save_checkpoint(TENANT, draft("z", ns="inner"))
    assert (await load(journal, key(""))).entry.key == key("c")
    assert (await load(journal, key("", "t", "inner"))).entry.key.checkpoint_id == "z"
    detail = await journal.thread(TENANT, "t")
    assert detail is not None
    assert detail.thread.head_id == "c"
    assert detail.heads == {"": "c", "inner": "z"}
    assert (detail.thread.checkpoint_count, detail.uncertified_count) == (4, 4)


async def test_everything_survives_a_restart(tmp_path: Path, clock: Clock) -> None:
    async with opened(tmp_path, clock) as first:
        identity = first.database.journal_id
        await first.save_checkpoint(TENANT, draft("a", "", {"x": b"1"}, writes=(write("x", b"2"),)))
    async with opened(tmp_path, clock) as second:
        loaded = await load(second, key("a"))
        assert data_of(loaded) == {"x": b"1"}
        assert written(loaded) == [("", "task", 0, "x", b"2")]
        assert second.database.journal_id == identity


async def test_an_identical_save_changes_nothing(journal: Journal, clock: Clock) -> None:
    again = draft("a", "p", {"x": b"1"}, label="l", summary="s", writes=(write("x", b"w"),))
    first = await journal.save_checkpoint(TENANT, again)
    await journal.save_checkpoint(TENANT, draft("b", "a"))
    clock.advance(5)
    second = await journal.save_checkpoint(TENANT, again)
    assert (second.key, second.seq, second.incarnation) == (first.key, first.seq, 1)
    detail = await journal.thread(TENANT, "t")
    assert detail is not None
    assert detail.thread.seq == 2


@pytest.mark.parametrize(
    "changed",
    [
        draft("a", "q", {"x": b"1"}, metadata={"m": 1}),
        draft("a", "p", {"x": b"2"}, metadata={"m": 1}),
        draft("a", "p", (channel("x", b"1", 2),), metadata={"m": 1}),
        draft("a", "p", {"x": b"1"}, metadata={"m": 2}),
        draft("a", "p", {"x": b"1"}, metadata={"m": 1}, frame=b"\x08\x02"),
        draft("a", "p", {"x": b"1"}, metadata={"m": 1}, delta=("x",)),
        draft("a", "p", {"x": b"1"}, metadata={"m": 1}, label="new"),
        draft("a", "p", {"x": b"1"}, metadata={"m": 1}, summary="New."),
        draft("a", "p", {"x": b"1"}, metadata={"m": 1}, writes=(write("x", b"w"),)),
    ],
    ids=["parent", "value", "version", "metadata", "frame", "delta", "label", "summary", "writes"],
)
async def test_any_difference_is_a_change(journal: Journal, changed: IncomingCheckpoint) -> None:
    await journal.save_checkpoint(TENANT, draft("a", "p", {"x": b"1"}, metadata={"m": 1}))
    second = await journal.save_checkpoint(TENANT, changed)
    assert second.seq == 2
    loaded = await load(journal, key("a"))
    assert loaded.entry.seq == 2
    assert loaded.entry.parent_id == changed.parent_id
    assert loaded.entry.metadata == changed.metadata.raw
    assert (loaded.entry.label, loaded.entry.summary) == (changed.label, changed.summary)
    assert state_of(loaded).frame == changed.frame
    assert [(c.version, c.digest) for c in state_of(loaded).channels] == [
        (c.version, c.digest) for c in changed.channels.values()
    ]
    assert loaded.writes == as_loaded(*changed.writes)


async def test_a_new_save_of_an_id_keeps_writes_label_and_first_time(
    journal: Journal, clock: Clock
) -> None:
    begun = clock.now_us
    await journal.save_checkpoint(TENANT, draft("a", "", {"x": b"1"}, label="l", summary="s"))
    await journal.save_writes(TENANT, key("a"), [write("x", b"w")])
    clock.advance(1)
    await journal.save_checkpoint(TENANT, draft("a", "", {"y": b"2"}))
    loaded = await load(journal, key("a"))
    assert data_of(loaded) == {"y": b"2"}
    assert written(loaded) == [("", "task", 0, "x", b"w")]
    assert (loaded.entry.label, loaded.entry.summary) == ("l", "s")
    assert (loaded.entry.created_us, loaded.entry.seq) == (begun, 3)


async def test_the_agent_is_replaced_only_by_a_name(journal: Journal) -> None:
    async def agent() -> str:
        detail = await journal.thread(TENANT, "t")
        assert detail is not None
        return detail.thread.agent_id

    await journal.save_checkpoint(TENANT, draft("a", agent_id="one"))
    await journal.save_checkpoint(TENANT, draft("b"))
    assert await agent() == "one"
    await journal.save_checkpoint(TENANT, draft("b", agent_id="two"))
    assert await agent() == "two"


async def test_a_missing_id_is_minted_above_the_greatest(journal: Journal) -> None:
    first = await journal.save_checkpoint(TENANT, draft(""))
    later = "1fffffff-ffff-6000-8000-000000000000"
    await journal.save_checkpoint(TENANT, draft(later))
    above = await journal.save_checkpoint(TENANT, draft(""))
    other = await journal.save_checkpoint(TENANT, draft("", ns="inner"))
    assert above.key.checkpoint_id > later > first.key.checkpoint_id
    assert other.key.checkpoint_id == first.key.checkpoint_id
    await journal.save_checkpoint(TENANT, draft("zzz"))
    own = await journal.save_checkpoint(TENANT, draft(""))
    assert own.key.checkpoint_id.startswith("zzz-")
    await journal.save_checkpoint(TENANT, draft("zzzz" * 30))
    await refused(journal.save_checkpoint(TENANT, draft("")), Reason.INVALID_FIELD)


async def test_unchanged_channels_are_inherited(journal: Journal) -> None:
    await journal.save_checkpoint(TENANT, draft("a", "", {"x": b"1", "gone": EMPTY, "y": b"2"}))
    await journal.save_checkpoint(
        TENANT, draft("b", "a", {"x": INHERIT, "gone": INHERIT, "y": b"3"})
    )
    loaded = await load(journal, key("b"))
    assert data_of(loaded) == {"x": b"1", "y": b"3"}
    assert [c.size for c in state_of(loaded).channels] == [1, 0, 1]
    assert 1 <= journal.added[-1] < 300


@pytest.mark.parametrize("version", [2, "1", 1.0, None])
async def test_inheritance_asks_for_the_same_version(
    journal: Journal, version: Version | None
) -> None:
    await journal.save_checkpoint(TENANT, draft("a", "", {"x": b"1"}))
    unequal = draft("b", "a", (channel("x", INHERIT, version),))
    kinds = (int, type(None))
    reason = Reason.VALUES_MISSING if isinstance(version, kinds) else Reason.VERSION_TYPE_CHANGED
    await refused(journal.save_checkpoint(TENANT, unequal), reason)


async def test_missing_values_are_named_all_at_once(journal: Journal) -> None:
    await journal.save_checkpoint(TENANT, draft("a", "", {"x": b"1"}))
    await journal.save_checkpoint("stranger", draft("a", "", {"x": b"theirs"}))
    checkpoint = draft(
        "b",
        "a",
        (
            channel("x", INHERIT),
            channel("new", INHERIT),
            by_digest("foreign", b"theirs"),
            by_digest("known", b"1"),
        ),
    )
    refusal = await refused(journal.save_checkpoint(TENANT, checkpoint), Reason.VALUES_MISSING)
    assert [violation.field for violation in refusal.violations] == ["new", "foreign"]
    assert await absent(journal, key("b"))


async def test_a_parent_elsewhere_gives_nothing(journal: Journal) -> None:
    await journal.save_checkpoint(TENANT, draft("a", "", {"x": b"1"}))
    for checkpoint in (
        draft("b", "a", {"x": INHERIT}, ns="inner"),
        draft("b", "?", {"x": INHERIT}),
    ):
        await refused(journal.save_checkpoint(TENANT, checkpoint), Reason.VALUES_MISSING)


async def test_a_digest_finds_a_value_of_its_family(journal: Journal) -> None:
    await journal.save_checkpoint(TENANT, draft("a", "", {"x": b"12345"}))
    await journal.save_checkpoint(TENANT, draft("b", "", (by_digest("y", b"12345", 9),)))
    loaded = await load(journal, key("b"))
    assert data_of(loaded) == {"y": b"12345"}
    assert state_of(loaded).channels[0].size == 5
    stranger = draft("b", "", (by_digest("y", b"12345", 9),), thread_id="u")
    refusal = await refused(journal.save_checkpoint(TENANT, stranger), Reason.VALUES_MISSING)
    assert [violation.field for violation in refusal.violations] == ["y"]
    assert await journal.thread(TENANT, "u") is None


async def test_equal_versions_of_forks_do_not_overwrite_each_other(journal: Journal) -> None:
    await journal.save_checkpoint(TENANT, draft("a", "", {"x": b"root"}))
    await journal.save_checkpoint(TENANT, draft("b", "a", (channel("x", b"left", 2),)))
    await journal.save_checkpoint(TENANT, draft("c", "a", (channel("x", b"right", 2),)))
    assert data_of(await load(journal, key("a"))) == {"x": b"root"}
    assert data_of(await load(journal, key("b"))) == {"x": b"left"}
    assert data_of(await load(journal, key("c"))) == {"x": b"right"}


async def test_values_of_different_types_are_different(journal: Journal) -> None:
    both = (channel("x", value(b"1", "json")), channel("y", value(b"1", "bytes")))
    await journal.save_checkpoint(TENANT, draft("a", "", both))
    loaded = await load(journal, key("a"))
    assert [c.value.type for c in state_of(loaded).channels if c.value] == ["json", "bytes"]


@pytest.mark.parametrize(
    ("before", "now", "names"),
    [
        (1, "2", ("integer", "text")),
        ("1", 2.0, ("text", "number")),
        (1.0, 2, ("number", "integer")),
    ],
)
async def test_versions_keep_their_type_along_a_thread(
    journal: Journal, before: Version, now: Version, names: tuple[str, str]
) -> None:
    await journal.save_checkpoint(TENANT, draft("a", "", (channel("x", b"1", before),)))
    changed = draft("b", "a", (channel("x", b"2", now),))
    refusal = await refused(journal.save_checkpoint(TENANT, changed), Reason.VERSION_TYPE_CHANGED)
    assert refusal.metadata == {"channel": "x", "parent": names[0], "sent": names[1]}


async def test_a_save_can_ask_for_the_head(journal: Journal) -> None:
    await journal.save_checkpoint(TENANT, draft("b", expected_head=""))
    await journal.save_checkpoint(TENANT, draft("c", "b", expected_head="b"))
    refusal = await refused(
        journal.save_checkpoint(TENANT, draft("d", "b", expected_head="b")), Reason.HEAD_MOVED
    )
    assert refusal.metadata == {
        "thread_id": "t",
        "checkpoint_ns": "",
        "head": "c",
        "expected": "b",
    }
    assert await absent(journal, key("d"))
    await journal.save_checkpoint(TENANT, draft("d", ns="inner", expected_head=""))


async def test_a_retry_of_a_stored_save_is_no_conflict(journal: Journal) -> None:
    await journal.save_checkpoint(TENANT, draft("b"))
    step = draft("c", "b", {"x": b"1"}, writes=(write("x", b"w"),), expected_head="b")
    first = await journal.save_checkpoint(TENANT, step)
    second = await journal.save_checkpoint(TENANT, step)
    assert second.seq == first.seq
    other = draft("c", "b", {"x": b"2"}, expected_head="b")
    await refused(journal.save_checkpoint(TENANT, other), Reason.HEAD_MOVED)
    await journal.save_checkpoint(TENANT, draft("d", "c"))
    third = await journal.save_checkpoint(TENANT, step)
    assert third.seq == first.seq
    await refused(journal.save_checkpoint(TENANT, other), Reason.HEAD_MOVED)


async def test_labels_are_set_and_cleared(journal: Journal) -> None:
    await journal.save_checkpoint(TENANT, draft("a"))
    await journal.save_checkpoint(TENANT, draft("b", "a"))
    latest = await journal.set_label(TENANT, key(""), "done")
    assert (latest.key, latest.seq) == (key("b"), 3)
    again = await journal.set_label(TENANT, key("b"), "done")
    assert again.seq == 3
    assert (await load(journal, key("b"))).entry.label == "done"
    await journal.set_label(TENANT, key("b"), "")
    assert (await load(journal, key("b"))).entry.label == ""


@pytest.mark.parametrize("absent", [key("z"), key("", "other"), key("a", "t", "inner")], ids=str)
async def test_only_existing_checkpoints_are_labelled(
    journal: Journal, absent: CheckpointKey
) -> None:
    await journal.save_checkpoint(TENANT, draft("a"))
    await refused(journal.set_label(TENANT, absent, "l"), Reason.CHECKPOINT_NOT_FOUND)
