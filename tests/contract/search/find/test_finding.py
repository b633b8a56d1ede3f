"""A search finds live checkpoints in its scope, and treats any text as plain words."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.contract.search.kit import (
    ANYWHERE,
    ONE,
    OTHER,
    Nearest,
    drain,
    look,
    make_searchable,
    results_of,
    save,
)
from tests.kit.drafts import TENANT, draft, key
from tests.kit.journal import Clock, Journal, JournalWorld, rows_of
from tuskpoint_server.core.model import CheckpointKey
from tuskpoint_server.core.search import SearchScope, Words, one_line, pack_vector, pointer_of
from tuskpoint_server.core.threads import PruneStrategy
from tuskpoint_server.journal.sql.full_text import scope_word
from tuskpoint_server.journal.sql.schema import vectors
from tuskpoint_server.search import finding
from tuskpoint_server.search.finding import Candidate, IndexStatus, RecalledMemory, VectorRow

# --- by words ------------------------------------------------------------------------------


async def test_the_best_comes_first(journal: Journal) -> None:
    await save(journal, "01", "The writer rests.", data=b"draft")
    await save(journal, "02", "The writer drafted a letter.", data=b"nothing")
    await save(journal, "03", "Nobody rests.", data=b"nothing")
    await drain(journal)
    results = await results_of(journal, "writers drafts")
    assert [result.key for result in results] == [key("02"), key("01")]
    assert [result.summary for result in results] == [
        "The writer drafted a letter.",
        "The writer rests.",
    ]
    assert [result.content for result in results] == ["nothing", "draft"]
    assert [result.metadata for result in results] == [b"{}", b"{}"]
    assert 0 < results[0].distance < results[1].distance < 1
    assert await look(journal, "writers drafts", limit=1) == [key("02")]
    assert await look(journal, "absent") == []


async def test_phrases_must_occur_and_words_only_raise_the_rank(journal: Journal) -> None:
    await save(journal, "01", "The red fox ran.")
    await save(journal, "02", "The red fox ran home at night.")
    await save(journal, "03", "The fox was red; it ran home at night.")
    await save(journal, "04", "A red fox sleeps under a tree.")
    await drain(journal)
    assert (await look(journal, '"red fox" night home'))[0] == key("02")
    assert set(await look(journal, '"red fox" night home')) == {key("01"), key("02"), key("04")}
    assert await look(journal, '"red fox" "under a tree"') == [key("04")]
    assert set(await look(journal, "red fox")) == {
        key(checkpoint_id) for checkpoint_id in ("01", "02", "03", "04")
    }


async def test_identifiers_are_matched_whole(journal: Journal) -> None:
    await save(journal, "01", "Paid invoice PAY-1234.")
    await save(journal, "02", "Paid 1234 of them to PAY.")
    await save(journal, "03", "Paid invoice PAY-1235 with café au lait.")
    await drain(journal)
    assert await look(journal, "pay-1234") == [key("01")]
    assert await look(journal, "CAFE") == [key("03")]


async def test_nothing_to_look_for_finds_nothing(journal: Journal) -> None:
    await save(journal, "01", "saved")
    await drain(journal)
    assert await journal.finding.lexical(TENANT, Words(), ANYWHERE, 5) == []
    assert await look(journal, "t", SearchScope(thread_id="none")) == []


async def test_replaced_text_of_a_due_checkpoint_is_not_found(
    journal: Journal, clock: Clock
) -> None:
    await save(journal, "01", "apples", data=b"orchard", vector=ONE)
    await drain(journal)
    clock.advance(1)
    await save(journal, "01", "pears", data=b"garden")
    assert await look(journal, "apples") == await look(journal, "orchard") == []
    [row] = await journal.finding.scan(TENANT, 0, 10)
    [result] = await journal.finding.by_vectors(
        TENANT, Nearest(Candidate(row.number, 0.5)), ANYWHERE, 5
    )
    assert (result.summary, result.content, result.distance) == ("pears", "", 0.5)


HOSTILE = (
    '"',
    '""',
    '"unclosed',
    "'; DROP TABLE search_documents; --",
    "a NEAR b",
    "NEAR(a b, 2)",
    "a AND b OR NOT c",
    "AND",
    "sav*",
    "^saved",
    "-saved",
    "summary : saved",
    "{summary body} : saved",
    "scope : t0",
    "(saved",
    "saved + words",
    "naïve café — 你好 мир",
    "\N{GRINNING FACE}",
    '"\N{GRINNING FACE}"',
    '"saved \N{GRINNING FACE}"',
    "\x01\x02\t\r\n\x7f",
    "\N{COMBINING ACUTE ACCENT}",
    "w" * 4096,
    "w " * 2048,
    '"a" ' * 1024,
)


@pytest.fixture(scope="module")
def world(database: str) -> Iterator[JournalWorld]:
    opened = JournalWorld()
    opened.run(save(opened.journal, "01", "saved words"))
    opened.run(drain(opened.journal))
    yield opened
    opened.close()


@pytest.mark.parametrize("text", HOSTILE)
def test_no_text_is_syntax(world: JournalWorld, text: str) -> None:
    journal, reading = world.journal, world.journal.finding
    world.run(look(journal, text))
    world.run(look(journal, text, SearchScope(thread_id=text[:256])))
    raw = Words(words=(text,), phrases=(text,), identifiers=(text,))
    for words in (raw, Words(words=(text,)), Words(phrases=(text, "saved"))):
        world.run(reading.lexical(TENANT, words, ANYWHERE, 5))
    # Beside a word that occurs, the text is at most one more word.
    beside = world.run(reading.lexical(TENANT, Words(words=("saved", text)), ANYWHERE, 5))
    assert [result.key for result in beside] == [key("01")]


@settings(deadline=None)
@given(
    text=st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=40),
    words=st.lists(st.sampled_from(['"', "saved", "*", "NEAR", "(", ":", "-", "OR"]), max_size=8),
)
@example(text="", words=['"', "OR", '"'])
def test_no_text_at_all_makes_a_search_fail(
    world: JournalWorld, text: str, words: list[str]
) -> None:
    mixed = " ".join([text, *words])
    world.run(look(world.journal, mixed))
    raw = Words((mixed, *words), (mixed,), (text,))
    world.run(world.journal.finding.lexical(TENANT, raw, ANYWHERE, 5))


def test_the_word_of_a_thread_is_one_word_that_no_stemmer_cuts() -> None:
    numbers = [*range(2000), 2**62]
    words = [scope_word(number) for number in numbers]
    with closing(sqlite3.connect(":memory:")) as database:
        database.execute(
            "CREATE VIRTUAL TABLE texts USING fts5("
            "scope, tokenize='porter unicode61 remove_diacritics 2')"
        )
        database.execute("CREATE VIRTUAL TABLE tokens USING fts5vocab(texts, row)")
        database.executemany("INSERT INTO texts VALUES (?)", [(word,) for word in words])
        tokens = [row[0] for row in database.execute("SELECT term FROM tokens")]
    assert len(set(words)) == len(numbers)
    assert sorted(tokens) == sorted(words)


# --- live checkpoints ----------------------------------------------------------------------


async def everything(journal: Journal, tenant: str = TENANT) -> list[list[CheckpointKey]]:
    """Find all checkpoints: by words, by vectors and by pointers."""
    reading = journal.finding
    by_words = await look(journal, "saved", tenant=tenant, limit=100)
    rows = await reading.scan(tenant, 0, 100)
    candidates = Nearest(*(Candidate(row.number, 0.1) for row in rows))
    by_vectors = await reading.by_vectors(tenant, candidates, ANYWHERE, 100)
    recalled = [
        RecalledMemory(pointer_of(tenant, "", f"0{number}"), "saved", 0.1) for number in range(10)
    ]
    by_pointers = await reading.by_pointers(tenant, recalled, ANYWHERE, 100)
    return [
        sorted(keys, key=str)
        for keys in (
            by_words,
            [result.key for result in by_vectors],
            [result.key for result in by_pointers],
        )
    ]


async def test_a_deleted_or_hidden_checkpoint_is_not_found_from_then_on(
    journal: Journal,
) -> None:
    for thread_id in ("deleted", "kept", "silent"):
        await save(journal, "01", "saved", thread_id=thread_id, vector=ONE)
    for checkpoint_id, parent_id in (("02", ""), ("03", "02")):
        # Pruning hides the first checkpoint: the second's delta channel is rebuilt from it.
        channels = {"log": b"seed"} if not parent_id else {}
        await journal.save_checkpoint(
            TENANT,
            draft(
                checkpoint_id,
                parent_id,
                channels,
                thread_id="pruned",
                delta=("log",),
                summary="saved",
            ),
        )
    await save(journal, "04", "saved", thread_id="silent", vector=ONE)
    await drain(journal)
    with_vectors = [key("01", name) for name in ("deleted", "kept", "silent")]
    with_vectors.append(key("04", "silent"))
    all_of_them = sorted([*with_vectors, key("02", "pruned"), key("03", "pruned")], key=str)
    assert await everything(journal) == [all_of_them, with_vectors, all_of_them]
    await journal.removal.delete_thread(TENANT, "deleted")
    await make_searchable(journal, "silent", False)
    pruned = await journal.removal.prune_thread(TENANT, "pruned", PruneStrategy.KEEP_LATEST)
    assert pruned == 1
    await drain(journal)  # the remaining checkpoint got the base of its channel, and so has changed
    left = [key("01", "kept"), key("03", "pruned")]
    assert await everything(journal) == [left, left[:1], left]
    assert (await journal.finding.status(TENANT)).indexed == 6
    await journal.index.sweep()
    assert await everything(journal) == [left, left[:1], left]
    await make_searchable(journal, "silent", True)
    await drain(journal)
    assert key("04", "silent") in (await everything(journal))[0]


async def test_a_thread_that_begins_again_has_nothing_of_the_ended_one(
    journal: Journal, clock: Clock
) -> None:
    await save(journal, "01", "saved apples", data=b"saved", vector=ONE)
    await drain(journal)
    numbers = [row.number for row in await journal.finding.scan(TENANT, 0, 10)]
    await journal.removal.delete_thread(TENANT, "t")
    clock.advance(1)
    await save(journal, "01", "pears", restarts=True)
    gone = Nearest(*(Candidate(number, 0.1) for number in numbers))
    assert await journal.finding.by_vectors(TENANT, gone, ANYWHERE, 5) == []
    assert await look(journal, "saved apples") == []
    await drain(journal)
    assert await look(journal, "saved apples") == []
    assert await look(journal, "pears") == [key("01")]


async def test_tenants_do_not_see_one_another(journal: Journal) -> None:
    await save(journal, "01", "saved", vector=ONE)
    await save(journal, "01", "saved", tenant="another", thread_id="theirs", vector=(1, 2, 3))
    await drain(journal)
    assert await everything(journal) == [[key("01")]] * 3
    assert await everything(journal, "another") == [[key("01", "theirs")]] * 3
    rows = await rows_of(journal, vectors, "number")
    stolen = Nearest(*(Candidate(int(str(number)), 0.1) for (number,) in rows))
    reading = journal.finding
    assert [result.key for result in await reading.by_vectors("another", stolen, ANYWHERE, 5)] == [
        key("01", "theirs")
    ]
    pointer = [RecalledMemory(pointer_of(TENANT, "", "01"), "saved", 0.1)]
    assert await reading.by_pointers("another", pointer, ANYWHERE, 5) == []
    theirs = SearchScope(thread_id="theirs")
    assert await look(journal, "saved", theirs) == []
    assert await reading.scan_thread(TENANT, "theirs") == []


# --- scope ---------------------------------------------------------------------------------


async def save_with(
    journal: Journal, checkpoint_id: str, thread_id: str, agent_id: str, **metadata: object
) -> None:
    made = draft(
        checkpoint_id,
        thread_id=thread_id,
        agent_id=agent_id,
        metadata=metadata,
        summary="saved",
    )
    await journal.save_checkpoint(TENANT, made)


async def test_threads_and_agents_are_kept_apart(journal: Journal) -> None:
    await save_with(journal, "01", "one", "alice")
    await save_with(journal, "02", "two", "alice")
    await save_with(journal, "03", "three", "bob")
    await drain(journal)
    assert await look(journal, "saved", SearchScope(thread_id="two")) == [key("02", "two")]
    by_alice = await look(journal, "saved", SearchScope(agent_id="alice"))
    assert sorted(by_alice, key=str) == [key("01", "one"), key("02", "two")]
    assert await look(journal, "saved", SearchScope("three", "alice")) == []
    assert await look(journal, "saved", SearchScope("three", "bob")) == [key("03", "three")]
    # The internal word of a thread is not a word of a search.
    for number in range(4):
        assert await look(journal, scope_word(number)) == []


async def test_filters_compare_values_with_their_types(journal: Journal) -> None:
    values: dict[str, object] = {
        "01": True,
        "02": 1,
        "03": 1.0,
        "04": "1",
        "05": None,
        "06": {"a": [1, True]},
        "07": {"a": [1, 1]},
    }
    for checkpoint_id, value in values.items():
        await save_with(journal, checkpoint_id, "t", "", outcome=value, step=1)
    await save_with(journal, "08", "t", "", step=1)
    await drain(journal)

    async def with_filter(**wanted: object) -> list[str]:
        keys = await look(journal, "saved", SearchScope(filter=wanted))
        return sorted(key.checkpoint_id for key in keys)

    assert await with_filter(outcome=True) == ["01"]
    assert await with_filter(outcome=1) == await with_filter(outcome=1.0) == ["02", "03"]
    assert await with_filter(outcome="1") == ["04"]
    assert await with_filter(outcome=None) == ["05"]
    assert await with_filter(outcome={"a": [1, True]}) == ["06"]
    assert await with_filter(outcome=1, step=1) == ["02", "03"]
    assert await with_filter(outcome=1, step=2) == []
    assert len(await with_filter(step=1)) == 8


async def test_a_filter_finds_a_match_far_down_the_ranking(journal: Journal) -> None:
    last = 4 * finding.FIRST_PAGE
    for number in range(last):
        await save_with(journal, f"{number:03d}", "t", "", rare=number == last - 1)
    await drain(journal)
    scope = SearchScope(filter={"rare": True})
    assert await look(journal, "saved", scope, limit=1) == [key(f"{last - 1:03d}")]
    assert len(await look(journal, "saved", limit=100)) == 100


# --- by vectors ----------------------------------------------------------------------------


async def test_vectors_are_scanned_by_number_and_found_before_they_are_indexed(
    journal: Journal,
) -> None:
    reading = journal.finding
    await save(journal, "01", "saved one", vector=ONE)
    await save(journal, "02", "saved two", thread_id="other", vector=OTHER)
    first, second = await reading.scan(TENANT, 0, 10)
    assert (first.vector, second.vector) == (pack_vector(ONE), pack_vector(OTHER))
    assert await reading.scan(TENANT, 0, 1) == [first]
    assert await reading.scan(TENANT, first.number, 10) == [second]
    assert await reading.scan_thread(TENANT, "other") == [second]
    nearest = Nearest(
        Candidate(second.number, 0.25), Candidate(first.number, 0.5), Candidate(999, 0.6)
    )
    results = await reading.by_vectors(TENANT, nearest, ANYWHERE, 5)
    assert [
        (result.key, result.summary, result.content, result.distance) for result in results
    ] == [
        (key("02", "other"), "saved two", "", 0.25),
        (key("01"), "saved one", "", 0.5),
    ]
    await drain(journal, body=lambda checkpoint: "body")
    [result] = await reading.by_vectors(TENANT, nearest, ANYWHERE, 1)
    assert (result.key, result.content) == (key("02", "other"), "body")
    only = await reading.by_vectors(TENANT, nearest, SearchScope(thread_id="t"), 5)
    assert [result.key for result in only] == [key("01")]


async def test_candidates_are_read_only_as_far_as_needed(journal: Journal) -> None:
    await save(journal, "01", "saved", vector=ONE)
    [row] = await journal.finding.scan(TENANT, 0, 10)
    numbers = range(row.number, row.number + 10_000)
    candidates = Nearest(*(Candidate(number, 0.1) for number in numbers))
    assert len(await journal.finding.by_vectors(TENANT, candidates, ANYWHERE, 1)) == 1
    assert candidates.read == finding.FIRST_PAGE


async def test_a_vector_that_was_replaced_has_another_number(journal: Journal) -> None:
    reading = journal.finding
    await save(journal, "01", "saved", vector=ONE)
    [before] = await reading.scan(TENANT, 0, 10)
    await save(journal, "01", "saved", vector=OTHER)
    [after] = await reading.scan(TENANT, before.number, 10)
    assert after == VectorRow(after.number, pack_vector(OTHER))
    assert await reading.by_vectors(TENANT, Nearest(Candidate(before.number, 0)), ANYWHERE, 5) == []


# --- by pointers ---------------------------------------------------------------------------


async def test_a_memory_counts_only_with_the_checkpoints_own_summary(
    journal: Journal, clock: Clock
) -> None:
    reading = journal.finding
    await save(journal, "01", "The  writer\nstarted.", thread_id="b")
    await save(journal, "02", "Something else.")
    await drain(journal)
    clock.advance(1)
    await journal.lineage.fork(TENANT, key("01", "b"), "a", "")
    await drain(journal)
    mine, other = (pointer_of(TENANT, "", checkpoint_id) for checkpoint_id in ("01", "02"))
    own = one_line("The  writer\nstarted.")
    recalled = [
        RecalledMemory(other, "Forged.", 0.01),
        RecalledMemory(pointer_of(TENANT, "", "none"), own, 0.02),
        RecalledMemory(mine, own, 0.1),
        RecalledMemory(mine, own, 0.2),
        RecalledMemory(other, "Something else.", 0.3),
    ]
    results = await reading.by_pointers(TENANT, recalled, ANYWHERE, 10)
    assert [(result.key, result.distance) for result in results] == [
        (key("01", "a"), 0.1),
        (key("01", "b"), 0.1),
        (key("02"), 0.3),
    ]
    assert results[0].summary == "The  writer\nstarted."
    clock.advance(1)
    await save(journal, "01", "It stopped.", thread_id="a")
    still = await reading.by_pointers(TENANT, recalled, ANYWHERE, 10)
    assert [result.key for result in still] == [key("01", "b"), key("02")]
    only = await reading.by_pointers(TENANT, recalled, SearchScope(thread_id="b"), 10)
    assert [result.key for result in only] == [key("01", "b")]


# --- status --------------------------------------------------------------------------------


async def test_the_state_of_the_index_is_counted(journal: Journal, clock: Clock) -> None:
    reading = journal.finding
    assert await reading.status(TENANT) == IndexStatus()
    begun_us = clock.now_us
    await save(journal, "01", "saved", vector=ONE)
    clock.advance(1)
    await save(journal, "02", "saved")
    await save(journal, "01", "saved", tenant="another", vector=ONE)
    assert await reading.status(TENANT) == IndexStatus(2, begun_us, 0, 1)
    index = journal.index
    stretch = await index.take(1)
    await index.store(stretch, stretch.due, remember=False)
    assert await reading.status(TENANT) == IndexStatus(1, clock.now_us, 1, 1)
    await drain(journal)
    assert await reading.status(TENANT) == IndexStatus(0, None, 2, 1)


async def test_a_search_leaves_no_transaction_open(journal: Journal) -> None:
    """An open reader would keep the next search at the time of this search."""
    for number in range(3 * finding.FIRST_PAGE):
        await save(journal, f"{number:03d}", "saved")
    await drain(journal)
    for _ in range(8):
        await look(journal, "saved", limit=1)
    await journal.removal.delete_thread(TENANT, "t")
    await save(journal, "new", "saved last", thread_id="u")
    await drain(journal)
    for _ in range(8):
        assert await look(journal, "saved", limit=1) == [key("new", "u")]
