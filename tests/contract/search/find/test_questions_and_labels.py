"""Search finds questions that tasks wait for, and labels, at their checkpoint."""

from __future__ import annotations

import json

import pytest
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.types import Interrupt

from tests.contract.search.kit import check_text, drain, due_keys, look, make_searchable, results_of
from tests.kit.drafts import TENANT, draft, key, write_of
from tests.kit.journal import Clock, Journal
from tuskpoint_server.core.limits import KIB, LIMITS
from tuskpoint_server.core.model import Value, Write
from tuskpoint_server.core.threads import INTERRUPT, RESUME, PruneStrategy
from tuskpoint_server.core.values import value_digest
from tuskpoint_server.journal.database.pending_writes import StoredWrite
from tuskpoint_server.search.searchable import body_of
from tuskpoint_server.search.searched_values import Document


def body(due: Document) -> str:
    """Return the text as the server creates it."""
    return body_of(due.channels, frozenset(), LIMITS.max_search_text, due.label).text


async def index(journal: Journal) -> int:
    return await drain(journal, body=body)


def asking(question: object, *, task: str = "task", channel: str = INTERRUPT) -> StoredWrite:
    """Return the write of an interrupt, as LangGraph creates it."""
    value = Value(*JsonPlusSerializer().dumps_typed((Interrupt(value=question, id="1f" * 16),)))
    return write_of(Write(task, "", -3, channel, value, value_digest(value)))


async def saved(journal: Journal, checkpoint_id: str, parent: str = "") -> None:
    state = Value("json", json.dumps(f"walrus {checkpoint_id}").encode())
    await journal.save_checkpoint(TENANT, draft(checkpoint_id, parent, {"animal": state}))


async def test_a_question_is_found_though_it_comes_after_its_checkpoint(journal: Journal) -> None:
    await saved(journal, "01")
    await saved(journal, "02", "01")
    await index(journal)
    await journal.save_writes(TENANT, key("01"), [asking("Publish the draft?")])
    assert await due_keys(journal) == ["t:01"]
    [backlog] = await journal.index.backlog()
    assert backlog.checkpoints == 1
    assert await index(journal) == 1
    [result] = await results_of(journal, "publish")
    assert (result.key, result.truncated) == (key("01"), False)
    assert result.content == 'asks: Publish the draft?\n{"animal":"walrus 01"}'
    assert set(await look(journal, "walrus")) == {key("01"), key("02")}
    assert await index(journal) == 0
    assert await journal.index.backlog() == []
    await check_text(journal)


async def test_a_question_is_found_though_it_comes_before_its_checkpoint(journal: Journal) -> None:
    await journal.save_writes(TENANT, key("01"), [asking("Publish the draft?")])
    assert await index(journal) == 0
    await saved(journal, "01")
    await index(journal)
    assert await look(journal, "publish") == [key("01")]


async def test_other_writes_have_nothing_to_be_indexed(journal: Journal) -> None:
    await saved(journal, "01")
    await index(journal)
    await journal.save_writes(TENANT, key("01"), [asking("answer", channel=RESUME)])
    await journal.save_writes(TENANT, key("01"), [asking("result", task="b", channel="x")])
    assert await journal.index.now(TENANT) == {}
    await saved(journal, "02", "01")
    assert await due_keys(journal) == ["t:02"]


async def test_questions_of_several_tasks_are_found_and_later_ones_too(
    journal: Journal, clock: Clock
) -> None:
    await saved(journal, "01")
    questions = [asking("Publish?", task="a"), asking({"choose": ["otter", "seal"]}, task="b")]
    await journal.save_writes(TENANT, key("01"), questions)
    await index(journal)
    for word in ("publish", "otter", "walrus"):
        assert await look(journal, word) == [key("01")]
    assert await look(journal, "1f" * 16) == []
    clock.advance(1)
    await journal.save_writes(TENANT, key("01"), [asking("Translate?", task="a")])
    await index(journal)
    assert await look(journal, "translate") == [key("01")]
    assert await look(journal, "publish") == []
    assert await look(journal, "otter") == [key("01")]


async def test_a_long_question_is_found_by_its_latest_part(journal: Journal) -> None:
    await saved(journal, "01")
    long = "begin " + "word " * (10 * KIB) + "decide"
    await journal.save_writes(TENANT, key("01"), [asking(long)])
    [due] = (await journal.index.take(10)).due
    assert (due.truncated, due.words_cut) == (True, True)
    await index(journal)
    assert await look(journal, "decide") == [key("01")]
    assert await look(journal, "begin") == []


@pytest.mark.parametrize("hidden", [True, False])
async def test_questions_are_found_where_threads_are_gone_through(
    journal: Journal, hidden: bool
) -> None:
    await saved(journal, "01")
    await saved(journal, "02", "01")
    await journal.save_writes(TENANT, key("02"), [asking("Publish?")])
    if hidden:
        await make_searchable(journal, "t", False)
        await index(journal)
        assert await look(journal, "publish") == []
        await make_searchable(journal, "t", True)
    else:
        await journal.removal.prune_thread(TENANT, "t", PruneStrategy.KEEP_LATEST)
    await index(journal)
    assert await look(journal, "publish") == [key("02")]


async def test_a_label_is_found_until_it_is_cleared(journal: Journal) -> None:
    await saved(journal, "01")
    await journal.save_writes(TENANT, key("01"), [asking("Publish?")])
    await index(journal)
    await journal.set_label(TENANT, key("01"), "before the  rewrite")
    await index(journal)
    [result] = await results_of(journal, '"before the rewrite"')
    assert result.content == 'label: before the rewrite\nasks: Publish?\n{"animal":"walrus 01"}'
    await journal.set_label(TENANT, key("01"), "")
    await index(journal)
    assert await look(journal, "rewrite") == []
    assert await look(journal, "publish walrus") == [key("01")]


async def test_questions_are_embedded_and_a_label_does_not_displace_the_state(
    journal: Journal,
) -> None:
    for checkpoint_id in ("01", "02"):
        await saved(journal, checkpoint_id)
    await journal.save_writes(TENANT, key("01"), [asking("Publish?")])
    await journal.set_label(TENANT, key("02"), "gold")
    await index(journal)
    assert [document.text for document in await journal.index.unembedded(10)] == [
        "asks: Publish?",
        'label: gold\n{"animal":"walrus 02"}',
    ]
