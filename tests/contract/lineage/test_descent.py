"""Threads know the threads that they came from, and the threads that came from them."""

from __future__ import annotations

import pytest

from tests.kit.drafts import TENANT, draft, key
from tests.kit.journal import Journal, save
from tuskpoint_server.core.lineage import Descent, LineageStep
from tuskpoint_server.core.model import CheckpointKey
from tuskpoint_server.features.lineage.lineage import LineageRows

FORK, ADOPTION, ROLLBACK = Descent.FORK, Descent.ADOPTION, Descent.ROLLBACK
Step = tuple[Descent, str, str]


async def fork(lineage: LineageRows, source: str, target: str, checkpoint_id: str = "01") -> None:
    await lineage.fork(TENANT, key(checkpoint_id, source), target, "")


async def adopt(lineage: LineageRows, source: str, target: str) -> None:
    closure = await lineage.closure(TENANT, key("", source))
    assert closure is not None
    await lineage.adopt(TENANT, closure, "ab" * 32, target, "", "")


async def roll_back(lineage: LineageRows, thread_id: str, checkpoint_id: str) -> CheckpointKey:
    return (await lineage.rollback(TENANT, key(checkpoint_id, thread_id), "", None, {})).key


def short(steps: tuple[LineageStep, ...]) -> list[Step]:
    """Return kind, origin thread, and thread of each step."""
    return [(step.descent, step.origin.thread_id, step.key.thread_id) for step in steps]


async def tree(
    lineage: LineageRows, thread_id: str, limit: int = 100
) -> tuple[list[Step], list[Step]]:
    """Return the ancestors and the descendants."""
    relatives = await lineage.lineage(TENANT, thread_id, limit)
    assert relatives is not None
    assert not relatives.truncated
    return short(relatives.ancestors), short(relatives.descendants)


async def test_a_thread_without_relatives(journal: Journal, lineage: LineageRows) -> None:
    await save(journal, draft("01"), draft("01", thread_id="gone"))
    await journal.removal.delete_thread(TENANT, "gone")
    assert await tree(lineage, "t") == ([], [])
    for absent in ("gone", "never was"):
        assert await lineage.lineage(TENANT, absent, 10) is None
    assert await lineage.lineage("another tenant", "t", 10) is None


async def test_a_tree_is_reported_from_every_thread(journal: Journal, lineage: LineageRows) -> None:
    await save(journal, draft("01"), draft("02", "01"))
    await fork(lineage, "t", "a")
    await adopt(lineage, "a", "b")
    await fork(lineage, "b", "c")
    await fork(lineage, "t", "d", "02")
    a, b, c = (FORK, "t", "a"), (ADOPTION, "a", "b"), (FORK, "b", "c")
    d = (FORK, "t", "d")
    assert await tree(lineage, "t") == ([], [a, d, b, c])
    assert await tree(lineage, "b") == ([a, b], [c])
    assert await tree(lineage, "c") == ([a, b, c], [])
    assert await tree(lineage, "d") == ([d], [])


async def test_a_step_names_its_source_and_its_target(
    journal: Journal, lineage: LineageRows
) -> None:
    await save(journal, draft("01"), draft("02", "01"), draft("03", ns="inner"))
    await lineage.fork(TENANT, key("03", "t", "inner"), "a", "")
    new = await roll_back(lineage, "t", "01")
    relatives = await lineage.lineage(TENANT, "t", 10)
    assert relatives is not None
    now = journal.database.now_us()
    assert relatives.descendants == (
        LineageStep(ROLLBACK, key("01"), new, now),
        LineageStep(FORK, key("03", "t", "inner"), key("03", "a", "inner"), now),
    )


async def test_rollbacks_are_steps_inside_a_thread(journal: Journal, lineage: LineageRows) -> None:
    await save(journal, draft("01"))
    await fork(lineage, "t", "a")
    await roll_back(lineage, "a", "01")
    inside = (ROLLBACK, "a", "a")
    assert await tree(lineage, "t") == ([], [(FORK, "t", "a"), inside])
    assert await tree(lineage, "a") == ([(FORK, "t", "a")], [inside])
    new = await roll_back(lineage, "a", "01")
    await fork(lineage, "a", "b", new.checkpoint_id)
    assert await tree(lineage, "b") == ([(FORK, "t", "a"), (FORK, "a", "b")], [])


@pytest.mark.parametrize(
    ("source", "decoy", "checkpoint_id"),
    [("t", "t:01", "01"), ("t:01", "t", "01"), ("t", "t:x", "x:01"), ("a:b:c", "a:b", "c:01")],
)
async def test_names_with_colons(
    journal: Journal, lineage: LineageRows, source: str, decoy: str, checkpoint_id: str
) -> None:
    await save(journal, draft("01", thread_id=decoy), draft(checkpoint_id, thread_id=source))
    await fork(lineage, decoy, "of the decoy")
    await fork(lineage, source, "fork", checkpoint_id)
    assert await tree(lineage, source) == ([], [(FORK, source, "fork")])
    assert await tree(lineage, "fork") == ([(FORK, source, "fork")], [])
    assert await tree(lineage, decoy) == ([], [(FORK, decoy, "of the decoy")])


async def test_a_rollback_of_names_with_colons(journal: Journal, lineage: LineageRows) -> None:
    await save(journal, draft("0:1", thread_id="a:b"))
    await roll_back(lineage, "a:b", "0:1")
    relatives = await lineage.lineage(TENANT, "a:b", 10)
    assert relatives is not None
    assert [step.origin for step in relatives.descendants] == [key("0:1", "a:b")]


async def test_a_copied_thread_has_the_rollbacks_of_its_source(
    journal: Journal, lineage: LineageRows
) -> None:
    await save(journal, draft("01"), draft("02", "01"))
    await fork(lineage, "t", "a")
    new = await roll_back(lineage, "a", "01")
    await journal.lineage.copy_thread(TENANT, "a", "copy", "")
    relatives = await lineage.lineage(TENANT, "copy", 10)
    assert relatives is not None
    assert short(relatives.ancestors) == [(FORK, "t", "copy")]
    (inside,) = relatives.descendants
    assert (inside.origin, inside.key) == (key("01", "copy"), key(new.checkpoint_id, "copy"))


async def test_adopting_back_and_forth_ends(journal: Journal, lineage: LineageRows) -> None:
    await save(journal, draft("01", thread_id="a"))
    await adopt(lineage, "a", "b")
    await journal.removal.delete_thread(TENANT, "a")
    await adopt(lineage, "b", "a")
    there, back = (ADOPTION, "a", "b"), (ADOPTION, "b", "a")
    assert await tree(lineage, "a") == ([there, back], [there, back])
    assert await tree(lineage, "b") == ([back, there], [back, there])


async def test_the_lineage_ends_at_a_deleted_thread(journal: Journal, lineage: LineageRows) -> None:
    await save(journal, draft("01"))
    await fork(lineage, "t", "a")
    await fork(lineage, "a", "b")
    await journal.removal.delete_thread(TENANT, "a")
    assert await tree(lineage, "b") == ([(FORK, "a", "b")], [])
    assert await tree(lineage, "t") == ([], [])


async def test_a_large_tree_is_cut(journal: Journal, lineage: LineageRows) -> None:
    await save(journal, draft("01"), draft("01", thread_id="t:a"))
    for number in range(4):
        await fork(lineage, "t:a", f"not {number}")
    for number in range(4):
        await fork(lineage, "t", f"fork {number}")
    for limit, truncated in ((3, True), (4, False)):
        relatives = await lineage.lineage(TENANT, "t", limit)
        assert relatives is not None
        assert relatives.truncated is truncated
        assert short(relatives.descendants) == [(FORK, "t", f"fork {n}") for n in range(limit)]
    for number in range(3):
        await fork(lineage, f"fork {number}", f"fork {number + 1} of it")
    line = await lineage.lineage(TENANT, "fork 1 of it", 1)
    assert line is not None
    assert short(line.ancestors) == [(FORK, "fork 0", "fork 1 of it")]
