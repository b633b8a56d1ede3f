"""Saves continue from the latest checkpoint, whatever the client believes to be the latest."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.contract.checkpoints.kit import absent, load
from tests.kit.drafts import (
    TENANT,
    Reference,
    by_digest,
    channel,
    data_of,
    draft,
    key,
    refused,
)
from tests.kit.journal import Journal
from tuskpoint.v1.checkpoint_pb2 import ChannelNames, CheckpointState
from tuskpoint_server.core.errors import Reason
from tuskpoint_server.core.lineage import is_generated, mint_checkpoint_id, random_end_of
from tuskpoint_server.core.model import Checkpoint, SaveOutcome, Version
from tuskpoint_server.features.checkpoints.incoming import IncomingCheckpoint

SECOND_US = 1_000_000


def generated(second: int, entropy: int = 0) -> str:
    """Return an ID that a client generated at a given second."""
    return mint_checkpoint_id(second * SECOND_US, entropy or second, "")


def step(
    checkpoint_id: str, parent_id: str = "", *arguments: Any, **more: Any
) -> IncomingCheckpoint:
    return draft(checkpoint_id, parent_id, *arguments, continues=True, raises_id=True, **more)


def versions(checkpoint: Checkpoint | None) -> dict[str, Version | None]:
    assert checkpoint is not None
    assert checkpoint.state is not None
    return {channel.name: channel.version for channel in checkpoint.state.channels}


async def save(journal: Journal, sent: IncomingCheckpoint) -> SaveOutcome:
    return await journal.save_checkpoint(TENANT, sent)


async def test_a_save_with_an_outdated_parent_follows_the_latest(journal: Journal) -> None:
    first, second, third = map(generated, (1, 2, 3))
    await save(journal, step(first, "", (channel("x", b"1", 1), channel("y", b"1", 1))))
    await save(journal, step(second, first, (channel("x", b"2", 2), channel("y", b"1", 1))))
    frame = CheckpointState(updated_channels=ChannelNames(names=["x", "y"])).SerializeToString()
    late = step(third, first, (channel("x", b"2", 2), channel("y", b"3", 2)), frame=frame)
    saved = await save(journal, late)
    assert (saved.key.checkpoint_id, saved.parent_id) == (third, second)
    loaded = await load(journal, key(third))
    assert loaded is not None
    assert loaded.entry.parent_id == second
    assert data_of(loaded) == {"x": b"2", "y": b"3"}
    assert versions(loaded) == {"x": 2, "y": 3}
    assert loaded.state is not None
    updated = CheckpointState.FromString(loaded.state.frame).updated_channels
    assert list(updated.names) == ["y"]


async def test_a_save_that_knows_the_latest_is_stored_as_it_was_sent(journal: Journal) -> None:
    first, second = map(generated, (1, 2))
    await save(journal, step(first, "", (channel("x", b"1", 5),)))
    saved = await save(journal, step(second, first, (channel("x", b"2", 9),)))
    assert saved.parent_id == first
    assert versions(await load(journal, key(second))) == {"x": 9}


async def test_many_callers_who_know_nothing_of_each_other_are_all_saved(
    journal: Journal,
) -> None:
    sent = [step(generated(64 - n), "", (channel("x", b"%d" % n, 1),)) for n in range(64)]
    saves = await asyncio.gather(*(save(journal, checkpoint) for checkpoint in sent))
    line = sorted(saves, key=lambda save: save.seq)
    ids = [save.key.checkpoint_id for save in line]
    assert ids == sorted(set(ids))
    assert [save.parent_id for save in line] == ["", *ids[:-1]]
    proposed = [checkpoint.key.checkpoint_id for checkpoint in sent]
    assert set(map(random_end_of, ids)) == set(map(random_end_of, proposed))
    assert all(map(is_generated, ids))
    newest = await load(journal, key(ids[-1]))
    assert versions(newest) == {"x": 64}


async def test_a_retry_finds_the_checkpoint_that_got_another_id(journal: Journal) -> None:
    await save(journal, step(generated(9), "", (channel("x", b"9", 1),)))
    late = generated(5)
    first = await save(journal, step(late, "", (channel("x", b"5", 1),)))
    assert first.key.checkpoint_id > generated(9)
    assert await absent(journal, key(late))
    await save(journal, step(generated(20), "", (channel("x", b"0", 1),)))
    again = await save(journal, step(late, "", (channel("x", b"5", 1),)))
    assert again == first
    assert versions(await load(journal, again.key)) == {"x": 2}


async def test_a_retry_with_the_same_id_changes_nothing(journal: Journal) -> None:
    await save(journal, step(generated(1), "", (channel("x", b"1", 1),)))
    sent = step(generated(2), "", (channel("x", b"2", 1),))
    first = await save(journal, sent)
    await save(journal, step(generated(3), "", (channel("x", b"3", 1),)))
    assert await save(journal, sent) == first


async def test_an_id_that_a_caller_chose_is_kept(journal: Journal) -> None:
    await save(journal, draft("b", "", {"x": b"1"}, continues=True))
    saved = await save(journal, draft("a", "", {"x": b"2"}, continues=True))
    assert (saved.key.checkpoint_id, saved.parent_id, saved.latest) == ("a", "b", "b")
    again = await save(journal, draft("a", "z", {"x": b"3"}, continues=True))
    assert (again.parent_id, again.latest) == ("b", "")
    assert data_of(await load(journal, key("a"))) == {"x": b"3"}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (f"{7:032}.0123", f"{8:032}.{0:016}"),
        (41, 42),
        (2.5, 3.0),
        (None, "sent"),
    ],
)
async def test_versions_go_on_in_the_kind_of_the_latest(
    journal: Journal, before: Version | None, after: Version
) -> None:
    await save(journal, draft("a", "", (channel("x", b"1", before), channel("y", b"1", before))))
    sent = (channel("x", b"2", "sent"), channel("y", b"1", "sent"))
    await save(journal, draft("b", "", sent, continues=True))
    assert versions(await load(journal, key("b"))) == {"x": after, "y": before}


@pytest.mark.parametrize("given", [("v1", "v1"), ("1", 1), (1, 1.0)])
async def test_versions_that_cannot_go_on_are_refused(
    journal: Journal, given: tuple[Version, Version]
) -> None:
    version, other = given
    await save(journal, draft("a", "", (channel("x", b"1", version), channel("y", b"1", other))))
    sent = draft("b", "", (channel("x", b"2", 1),), continues=True)
    refusal = await refused(journal.save_checkpoint(TENANT, sent), Reason.INVALID_FIELD)
    assert "cannot be incremented" in refusal.message


async def test_inherited_channels_and_digests_are_those_of_the_latest(journal: Journal) -> None:
    await save(journal, draft("a", "", {"x": b"1", "y": b"1"}))
    await save(journal, draft("b", "a", (channel("x", b"2", 2), channel("y", b"1", 1))))
    sent = (channel("x", Reference.INHERIT, 1), by_digest("y", b"2", 7))
    await save(journal, draft("c", "a", sent, continues=True))
    loaded = await load(journal, key("c"))
    assert data_of(loaded) == {"x": b"2", "y": b"2"}
    assert versions(loaded) == {"x": 2, "y": 3}
    unknown = draft("d", "a", (by_digest("x", b"unknown"),), continues=True)
    await refused(journal.save_checkpoint(TENANT, unknown), Reason.VALUES_MISSING)


async def test_a_deleted_thread_begins_again(journal: Journal) -> None:
    old = generated(5)
    await save(journal, step(old, "", (channel("x", b"1", 1),)))
    await journal.removal.delete_thread(TENANT, "t")
    # The client's clock is behind, so the new ID sorts below the deleted IDs; it is still new.
    begun = await save(journal, step(generated(4), old, (channel("x", b"2", 2),)))
    assert begun.incarnation == 2
    assert begun.parent_id == ""
    assert begun.key.checkpoint_id > old
    assert versions(await load(journal, begun.key)) == {"x": 2}


async def test_a_save_whose_id_sorts_below_the_latest_names_the_latest(journal: Journal) -> None:
    assert (await save(journal, draft("b"))).latest == ""
    assert (await save(journal, draft("a"))).latest == "b"
    assert (await save(journal, draft("a"))).latest == ""
    assert (await save(journal, draft("a", ns="inner"))).latest == ""
