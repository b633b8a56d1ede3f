"""The state of a thread follows from the writes of its latest root checkpoint."""

from __future__ import annotations

from tests.kit.drafts import (
    TENANT,
    draft,
    key,
    write,
)
from tests.kit.journal import Journal, thread_of
from tuskpoint_server.core.threads import ThreadState
from tuskpoint_server.journal.database.pending_writes import StoredWrite


async def test_the_state_follows_the_latest_root_checkpoint(journal: Journal) -> None:
    await journal.save_checkpoint(TENANT, draft("a"))
    await journal.save_checkpoint(TENANT, draft("b", "a"))
    interrupt, resume = write("__interrupt__", b"?", idx=-3), write("__resume__", b"!", idx=-4)
    await journal.save_writes(TENANT, key("a"), [interrupt])
    assert (await thread_of(journal)).state is ThreadState.IDLE
    await journal.save_writes(TENANT, key("b", "t", "inner"), [interrupt])
    assert (await thread_of(journal)).state is ThreadState.IDLE
    await journal.save_writes(TENANT, key("b"), [interrupt])
    assert (await thread_of(journal)).state is ThreadState.INTERRUPTED
    await journal.save_writes(TENANT, key("b"), [resume])
    assert (await thread_of(journal)).state is ThreadState.IDLE
    await journal.save_writes(TENANT, key("b"), [write("__error__", b"x", task="u", idx=-1)])
    assert (await thread_of(journal)).state is ThreadState.FAILED
    await journal.save_checkpoint(TENANT, draft("c", "b"))
    assert (await thread_of(journal)).state is ThreadState.IDLE


async def test_a_thread_waits_as_long_as_one_of_its_tasks_does(journal: Journal) -> None:
    def sign(task: str, channel: str) -> StoredWrite:
        return write(channel, b"?", task=task, idx={"__interrupt__": -3, "__resume__": -4}[channel])

    nobody = "00000000-0000-0000-0000-000000000000"
    await journal.save_checkpoint(TENANT, draft("a"))
    asking = [sign(task, "__interrupt__") for task in ("t", "u", "v")]
    await journal.save_writes(TENANT, key("a"), asking)
    await journal.save_writes(TENANT, key("a"), [sign("t", "__resume__")])
    assert (await thread_of(journal)).state is ThreadState.INTERRUPTED
    await journal.save_writes(TENANT, key("a"), [write("x", b"ended", task="u")])
    assert (await thread_of(journal)).state is ThreadState.INTERRUPTED
    await journal.save_writes(TENANT, key("a"), [sign("v", "__resume__")])
    assert (await thread_of(journal)).state is ThreadState.IDLE
    await journal.save_checkpoint(TENANT, draft("b", "a"))
    await journal.save_writes(TENANT, key("b"), asking)
    assert (await thread_of(journal)).state is ThreadState.INTERRUPTED
    await journal.save_writes(TENANT, key("b"), [sign(nobody, "__resume__")])
    assert (await thread_of(journal)).state is ThreadState.IDLE


async def test_a_task_that_was_answered_and_asks_again_waits(journal: Journal) -> None:
    asks = write("__interrupt__", b"?", idx=-3)
    used, answer = (
        write("__resume__", b"[1]", idx=-4),
        write("__resume__", b"1", task="00000000-0000-0000-0000-000000000000", idx=-4),
    )
    await journal.save_checkpoint(TENANT, draft("a"))
    await journal.save_writes(TENANT, key("a"), [asks])
    await journal.save_writes(TENANT, key("a"), [answer])
    assert (await thread_of(journal)).state is ThreadState.IDLE
    # the question has the same words as before
    await journal.save_writes(TENANT, key("a"), [asks, used])
    assert (await thread_of(journal)).state is ThreadState.INTERRUPTED
    before = await journal.save_writes(TENANT, key("a"), [asks, used])  # a retry of the same call
    assert (await thread_of(journal)).state is ThreadState.INTERRUPTED
    again = await journal.save_writes(TENANT, key("a"), [asks, used])
    assert again.seq == before.seq
    second = write("__resume__", b"2", task=answer.task_id, idx=-4)
    await journal.save_writes(TENANT, key("a"), [second])
    assert (await thread_of(journal)).state is ThreadState.IDLE
    await journal.save_writes(TENANT, key("a"), [write("x", b"ended")])
    assert (await thread_of(journal)).state is ThreadState.IDLE


async def test_early_and_enclosed_writes_count_for_the_state(journal: Journal) -> None:
    await journal.save_writes(TENANT, key("a"), [write("__interrupt__", b"?", idx=-3)])
    await journal.save_checkpoint(TENANT, draft("a"))
    assert (await thread_of(journal)).state is ThreadState.INTERRUPTED
    await journal.save_checkpoint(
        TENANT, draft("b", "a", writes=(write("__error__", b"x", idx=-1),))
    )
    assert (await thread_of(journal)).state is ThreadState.FAILED


async def test_early_writes_are_as_young_as_their_checkpoint(journal: Journal) -> None:
    """The result is the same whether the writer remembers the checkpoint or reads it again."""
    question, answer = write("__interrupt__", b"?", idx=-3), write("__resume__", b"!", idx=-4)
    await journal.save_writes(TENANT, key("a"), [question])
    await journal.save_checkpoint(TENANT, draft("a", writes=(answer,)))
    await journal.save_writes(TENANT, key("a"), [write("__error_source_node__", b"", idx=-2)])
    remembered = (await thread_of(journal)).state
    await journal.database.transact(lambda batch: batch.logs.clear())
    await journal.save_writes(TENANT, key("a"), [write("__error_source_node__", b"n", idx=-2)])
    assert (await thread_of(journal)).state is remembered
