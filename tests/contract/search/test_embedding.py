"""The right documents get vectors, from the right embedder, again after changes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.contract.search.kit import ONE, OTHER, drain, make_searchable, save, vectors_of
from tests.kit.drafts import TENANT, key, refused
from tests.kit.journal import Clock, Journal, opened
from tuskpoint_server.core.errors import Reason
from tuskpoint_server.core.items import ItemChange
from tuskpoint_server.core.model import View
from tuskpoint_server.core.search import pack_vector
from tuskpoint_server.journal.values.vectors import note_embedder
from tuskpoint_server.search import finding


async def embed_all(journal: Journal, embedder: str, vector: tuple[float, ...]) -> list[str]:
    """Give the same vector to every document that needs one; return the embedded texts."""
    index = journal.index
    owed = await index.unembedded(100)
    await index.embed(embedder, [(document, pack_vector(vector)) for document in owed])
    return [document.text for document in owed]


async def test_documents_with_text_and_no_vector_are_embedded(journal: Journal) -> None:
    await save(journal, "01", " A summary. ")
    await drain(journal, body=lambda due: '{"x":1}')
    await save(journal, "02", "Summary.")
    await save(journal, "03")
    await drain(journal, body=lambda due: "The plan.", planned=True)
    await save(journal, "04")
    await drain(journal, body=lambda due: "j" * 1001)
    await save(journal, "05")
    await drain(journal)
    assert [document.text for document in await journal.index.unembedded(3)] == [
        "A summary.",
        "Summary.\nThe plan.",
        "The plan.",
    ]
    assert (await embed_all(journal, "e1", ONE))[3:] == ["j" * 1000]
    assert await journal.index.unembedded(10) == []


async def test_a_vector_is_made_again_only_of_other_text(journal: Journal, clock: Clock) -> None:
    await save(journal, "01", "first", data=b"a")
    await drain(journal)
    assert await embed_all(journal, "e1", ONE) == ["first"]
    clock.advance(1)
    await save(journal, "01", "first", data=b"b")
    await drain(journal)
    assert await embed_all(journal, "e1", OTHER) == []
    clock.advance(1)
    await save(journal, "01", "second", data=b"b")
    await drain(journal)
    assert await vectors_of(journal) == {}
    assert await embed_all(journal, "e1", OTHER) == ["second"]
    assert await vectors_of(journal) == {"t:01": ("e1", pack_vector(OTHER))}


async def test_the_callers_vector_stays(journal: Journal, clock: Clock) -> None:
    await save(journal, "01", "first", vector=ONE)
    await drain(journal)
    assert await embed_all(journal, "e1", OTHER) == []
    clock.advance(1)
    await save(journal, "01", "second")
    await drain(journal)
    await save(journal, "02", "third")
    await drain(journal)
    owed = await journal.index.unembedded(10)
    await save(journal, "02", "third", vector=ONE)  # saved while the embedder works
    await journal.index.embed("e1", [(document, pack_vector(OTHER)) for document in owed])
    assert await journal.index.unembedded(10) == []
    assert await vectors_of(journal) == {
        "t:01": ("", pack_vector(ONE)),
        "t:02": ("", pack_vector(ONE)),
    }


async def test_a_vector_of_a_document_that_was_replaced_is_not_stored(
    journal: Journal, clock: Clock
) -> None:
    await save(journal, "01", "first")
    await drain(journal)
    owed = await journal.index.unembedded(10)
    clock.advance(1)
    await save(journal, "01", "second")
    await drain(journal)
    await journal.index.embed("e1", [(document, pack_vector(ONE)) for document in owed])
    assert await vectors_of(journal) == {}
    assert [document.text for document in await journal.index.unembedded(10)] == ["second"]


async def test_nothing_that_must_not_be_found_is_given_to_an_embedder(journal: Journal) -> None:
    await save(journal, "01", "secret")
    await save(journal, "01", "gone", thread_id="gone")
    await drain(journal)
    await make_searchable(journal, "t", False)
    await journal.removal.delete_thread(TENANT, "gone")
    assert await journal.index.unembedded(10) == []


async def test_copies_get_the_callers_vector_and_strangers_do_not(
    journal: Journal, clock: Clock
) -> None:
    await save(journal, "01", "origin", data=b"a", vector=ONE)
    await drain(journal)
    await embed_all(journal, "e1", OTHER)
    await journal.lineage.fork(TENANT, key("01"), "fork", "")
    await journal.lineage.copy_thread(TENANT, "t", "copy", "")
    await save(journal, "01", "another", thread_id="stranger", data=b"b")
    await save(journal, "01", "origin", tenant="other tenant", data=b"a")
    await drain(journal)
    assert await vectors_of(journal) == {
        name: ("", pack_vector(ONE)) for name in ("t:01", "fork:01", "copy:01")
    }


async def test_vectors_of_another_dimension_are_refused(journal: Journal) -> None:
    await save(journal, "01", "first", vector=ONE)
    refusal = await refused(save(journal, "02", "second", vector=(1, 2, 3)), Reason.INVALID_FIELD)
    assert "must have 2 components" in refusal.violations[0].description
    await save(journal, "03", "third")
    await drain(journal)
    owed = await journal.index.unembedded(10)
    wrong = [(document, pack_vector((1, 2, 3))) for document in owed]
    await refused(journal.index.embed("e1", wrong), Reason.INVALID_FIELD)
    assert set(await vectors_of(journal)) == {"t:01"}
    assert await journal.finding.dimension(TENANT) == 2
    assert await journal.finding.dimension("another") == 0
    await save(journal, "01", "theirs", tenant="another", vector=(1, 2, 3))
    assert await journal.finding.dimension("another") == 3


async def test_another_embedder_makes_the_vectors_anew(journal: Journal) -> None:
    index = journal.index
    await save(journal, "01", "by caller", vector=ONE)
    await save(journal, "02", "by embedder")
    await drain(journal)
    await embed_all(journal, "e1", ONE)
    assert await index.adopt_embedder("e1", 2) == 0
    assert await index.adopt_embedder("e2", 2) == 1
    assert await embed_all(journal, "e2", OTHER) == ["by embedder"]
    assert await index.adopt_embedder("e2", 3) == 2
    assert await vectors_of(journal) == {}
    assert await embed_all(journal, "e2", (1, 2, 3)) == ["by caller", "by embedder"]


# --- the dimension of an embedder -----------------------------------------------------------


async def test_from_its_adoption_on_vectors_must_be_of_the_embedders_dimension(
    tmp_path: Path,
) -> None:
    async with opened(tmp_path, Clock()) as journal:
        await save(journal, "01", "sent before", vector=ONE)
        assert await journal.index.adopt_embedder("e1", 3) == 1
    async with opened(tmp_path, Clock()) as again:  # no stored row shows it
        assert await vectors_of(again) == {}
        assert await again.finding.dimension(TENANT) == await again.finding.dimension("new") == 3
        for tenant in (TENANT, "new"):
            refusal = await refused(
                save(again, "02", "sent after", tenant=tenant, vector=ONE), Reason.INVALID_FIELD
            )
            assert "must have 3 components" in refusal.violations[0].description
            assert await again.load(tenant, key("02"), View.ENTRY) is None
        await save(again, "02", "sent after", vector=(1, 2, 3))
        assert await again.index.adopt_embedder("e2", 2) == 1
        await save(again, "03", "sent after", vector=ONE)


async def test_without_an_embedder_any_dimension_will_do_again(journal: Journal) -> None:
    index = journal.index
    await index.forget_embedder()
    await index.adopt_embedder("e1", 3)
    await index.forget_embedder()
    assert await journal.finding.dimension(TENANT) == 0
    await save(journal, "01", "saved", vector=ONE)
    assert await journal.finding.dimension(TENANT) == 2


async def test_vectors_are_dropped_in_turns_while_others_are_saved_and_copied(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Vectors that are copied between two turns must not keep the earlier dimension."""
    for number in range(4):
        await save(journal, f"0{number}", "saved", vector=ONE)
    await drain(journal)
    copied: list[int] = []

    async def copy_between(work: Any) -> Any:
        answer = await query(work)
        if not copied and isinstance(answer, list):
            copied.append(await journal.lineage.copy_thread(TENANT, "t", "copy", ""))
        return answer

    query = journal.database.query
    monkeypatch.setattr(journal.database, "query", copy_between)
    assert await journal.index.adopt_embedder("e1", 3) == 4
    assert copied == [4]
    assert await vectors_of(journal) == {}
    await drain(journal)
    assert len(await embed_all(journal, "e1", (1, 2, 3))) == 8


async def test_documents_are_stored_while_vectors_of_before_are_still_there(
    journal: Journal, clock: Clock
) -> None:
    await save(journal, "01", "saved", data=b"a", vector=ONE)
    await journal.lineage.fork(TENANT, key("01"), "fork", "")
    clock.advance(1)
    await journal.database.transact(
        lambda batch: note_embedder(batch.connection, "e1", 3)
    )  # and the server crashes
    await journal.lineage.fork(TENANT, key("01"), "later", "")
    assert await drain(journal) == 3
    assert set(await vectors_of(journal)) == {"t:01"}
    assert await journal.index.adopt_embedder("e1", 3) == 1
    assert await embed_all(journal, "e1", (1, 2, 3)) == ["saved"] * 3


# --- vectors of copies ---------------------------------------------------------------------


async def test_copies_keep_the_callers_vector_though_their_origin_is_deleted(
    journal: Journal, clock: Clock
) -> None:
    await save(journal, "01", "by the caller", data=b"a", vector=ONE)
    await save(journal, "02", "by the embedder", data=b"b")
    await drain(journal)
    await embed_all(journal, "e1", OTHER)
    clock.advance(1)
    await journal.lineage.fork(TENANT, key("01"), "fork", "")
    await journal.lineage.copy_thread(TENANT, "t", "copy", "")
    await drain(journal)
    await journal.removal.delete_thread(TENANT, "t")
    by_caller = {name: ("", pack_vector(ONE)) for name in ("fork:01", "copy:01")}
    assert await vectors_of(journal) == by_caller
    assert await embed_all(journal, "e1", OTHER) == ["by the embedder"]
    assert await vectors_of(journal) == {**by_caller, "copy:02": ("e1", pack_vector(OTHER))}


async def test_copies_of_a_thread_that_is_not_searchable_have_no_vectors(
    journal: Journal,
) -> None:
    await save(journal, "01", "saved", vector=ONE)
    await make_searchable(journal, "t", False)
    await journal.lineage.copy_thread(TENANT, "t", "copy", "")
    await drain(journal)
    assert set(await vectors_of(journal)) == {"t:01"}


async def test_a_vector_of_a_removed_document_is_not_stored(journal: Journal, clock: Clock) -> None:
    await save(journal, "01", "saved")
    await drain(journal)
    owed = await journal.index.unembedded(10)
    await journal.removal.delete_thread(TENANT, "t")
    await journal.index.embed("e1", [(document, pack_vector(ONE)) for document in owed])
    assert await vectors_of(journal) == {}


# --- missing vectors -----------------------------------------------------------------------


async def test_checkpoints_that_wait_for_a_vector_are_counted_by_tenant(
    journal: Journal,
) -> None:
    for thread_id in ("kept", "deleted", "hidden"):
        await save(journal, "01", "said", thread_id=thread_id)
    await save(journal, "02", "said", thread_id="sent", vector=ONE)
    await save(journal, "01", thread_id="silent")
    await save(journal, "01", "said", tenant="other tenant")
    food = ItemChange(("food",), "bread", b"{}", texts=("bread",))
    await journal.items.put(TENANT, [food])
    await drain(journal)
    assert (await journal.finding.owed(TENANT)).missed == 3
    await journal.removal.delete_thread(TENANT, "deleted")
    await make_searchable(journal, "hidden", False)
    owed = await journal.finding.owed(TENANT)
    assert (len(owed.numbers), owed.more, owed.missed) == (1, False, 1)
    assert (await journal.finding.owed("other tenant")).missed == 1
    assert (await journal.finding.owed("nobody")).missed == 0
    await embed_all(journal, "e1", ONE)
    assert (await journal.finding.owed(TENANT)).missed == 0


async def test_more_owed_vectors_than_are_counted_are_never_none(
    journal: Journal,
) -> None:
    for number in range(1, 5):
        await save(journal, f"0{number}", "said")
    await save(journal, "01", "said", tenant="later")
    await drain(journal)

    async def missed(tenant: str, counted: int) -> int:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(finding, "COUNTED_OWED", counted)
            return (await journal.finding.owed(tenant)).missed

    assert await missed(TENANT, 5) == 4
    assert await missed("later", 5) == 1
    assert await missed(TENANT, 2) == 3
    assert await missed("later", 3) == 1
    assert await missed("nobody", 3) == 1
    assert await missed("nobody", 5) == 0


async def test_those_that_were_refused_are_passed_by_until_they_say_something_else(
    journal: Journal, clock: Clock
) -> None:
    for number in range(1, 5):
        await save(journal, f"0{number}", f"said {number}")
    await drain(journal)
    first, second, *_ = await journal.index.unembedded(10)
    refused = {first.place, second.place}
    assert [document.text for document in await journal.index.unembedded(2, refused)] == [
        "said 3",
        "said 4",
    ]
    clock.advance(1)
    await save(journal, "01", "said otherwise")
    await drain(journal)
    assert [document.text for document in await journal.index.unembedded(1, refused)] == [
        "said otherwise"
    ]
