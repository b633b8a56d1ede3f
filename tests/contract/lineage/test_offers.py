"""A hand-off is offered in the inbox of its receiver, and adopted from there exactly once."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any, cast

import pytest

from tests.contract.lineage.kit import sha
from tests.kit.drafts import TENANT, draft, key, refused
from tests.kit.journal import Clock, Journal, opened, rows_of, save
from tuskpoint_server.archive.archive import Archive
from tuskpoint_server.core.errors import Reason, Refusal
from tuskpoint_server.core.lineage import Descriptor, decode_offered, encode_descriptor
from tuskpoint_server.core.model import BlobLocation, SaveOutcome
from tuskpoint_server.features.checkpoints.listed_threads import ThreadQuery
from tuskpoint_server.features.inbox.inbox import Inbox
from tuskpoint_server.features.inbox.offer_rows import Claim, OfferQuery, drop_stale
from tuskpoint_server.features.inbox.offers import KEPT_US, HandoffState, Offer, inbox_of
from tuskpoint_server.features.lineage.first_answers import request
from tuskpoint_server.features.lineage.handoff_rows import OfferDraft
from tuskpoint_server.features.lineage.snapshot_rows import SnapshotDraft
from tuskpoint_server.journal.database.database import Database
from tuskpoint_server.journal.migrations import LATEST
from tuskpoint_server.journal.removal import deletion
from tuskpoint_server.journal.sql.schema import checkpoints, requests

ODD = "ä/~$ \U0001f600 \n' --"
DAY_S = 24 * 3600


async def hand_off(
    journal: Journal, to_agent: str = "writer", thread_id: str = "t", ttl_s: float = 0
) -> str:
    """Offer the first checkpoint of a thread; return the ID of the offer."""
    blob = BlobLocation(sha(thread_id), 1, f"blob-{thread_id}")
    descriptor = Descriptor(
        *(f"{thread_id}:1", thread_id, "1", blob.blob_id, blob.sha256.hex(), to_agent),
        summary=f"Of {thread_id}.",
        key="ab" * 32,
    )
    answer = await journal.handoffs.keep_handoff(
        *(request(TENANT, "", "CreateHandoff"), key("1", thread_id), blob, []),
        encode_descriptor(descriptor),
        content_seq=1,
        draft=OfferDraft(replace(descriptor, key=""), int(ttl_s * 1e6)),
    )
    kept, handoff_id = decode_offered(answer)
    assert kept == descriptor
    return handoff_id


async def adopt(
    journal: Journal, handoff_id: str, target: str = "", request_id: str = ""
) -> SaveOutcome:
    """Adopt an offer as the service does, without the fetch of the bundle."""
    offer, first, _ = await journal.lineage.offered(TENANT, handoff_id, target, request_id)
    if first is not None:
        return first
    assert offer is not None
    assert offer.descriptor is not None
    return await claim(journal, Claim(offer.descriptor, request_id, offer), target)


async def stored(journal: Journal, handoff_id: str) -> tuple[Offer, Descriptor]:
    """Return an offer that must exist."""
    offer = await journal.offers.find(TENANT, handoff_id)
    assert offer is not None
    assert offer.descriptor is not None
    return offer, offer.descriptor


async def claim(journal: Journal, claimed: Claim, target: str = "") -> SaveOutcome:
    closure = await journal.lineage.closure(TENANT, key("1", claimed.descriptor.thread_id))
    assert closure is not None
    arguments = (claimed.descriptor.blob_sha256, target, claimed.descriptor.to_agent)
    return await journal.lineage.adopt(TENANT, closure, *arguments, claimed.request_id, claimed)


async def listed(journal: Journal, **conditions: Any) -> list[Offer]:
    return (await journal.offers.listed(TENANT, OfferQuery(**conditions), "", 1000)).offers


async def states(journal: Journal, **conditions: Any) -> list[str]:
    return [offer.state.name for offer in await listed(journal, **conditions)]


async def closed(journal: Journal, handoff_id: str, **metadata: str) -> None:
    """Check that an offer is not adopted, and why."""
    refusal = await refused(adopt(journal, handoff_id), Reason.HANDOFF_CLOSED)
    assert {"handoff_id": handoff_id, "adopted_thread_id": "", **metadata} == refusal.metadata


def differ(*journals: Journal) -> None:
    """Let no two IDs be equal, although the clock stands still."""
    bits = count()
    for journal in journals:
        journal.database.random_bits = lambda: next(bits)


@pytest.fixture(autouse=True)
async def threads(journal: Journal) -> None:
    differ(journal)
    await save(journal, draft("1"), draft("1", thread_id="other"))


async def test_an_offer_is_in_the_inbox_of_its_agent_alone(journal: Journal, clock: Clock) -> None:
    ids = [await hand_off(journal, agent) for agent in ("writer", "", ODD, "writer")]
    theirs = await hand_off(journal, "writer", "other")
    [first, second, third] = await listed(journal, to_agent="writer")
    assert [first.handoff_id, second.handoff_id, third.handoff_id] == [ids[0], ids[3], theirs]
    assert first.state is HandoffState.OFFERED
    assert (first.created_us, first.expire_us, first.closed_us) == (clock.now_us, None, None)
    assert first.descriptor is not None
    assert (first.descriptor.source, first.descriptor.key) == ("t:1", "")
    [odd] = await listed(journal, to_agent=ODD)
    assert (odd.handoff_id, odd.to_agent) == (ids[2], ODD)
    assert [offer.handoff_id for offer in await listed(journal, to_agent="")] == [ids[1]]
    assert [offer.handoff_id for offer in await listed(journal, thread_id="t")] == sorted(ids)
    assert len(await listed(journal)) == 5
    assert await listed(journal, to_agent="write") == []
    foreign = await journal.offers.listed("foreign", OfferQuery(), "", 1000)
    assert foreign.offers == []
    names = await journal.list_threads(TENANT, ThreadQuery(), "", 100)
    assert [thread.thread_id for thread in names] == ["other", "t"]


async def test_pages_have_every_offer_once(journal: Journal) -> None:
    ids = [await hand_off(journal, f"agent {number % 3}") for number in range(7)]
    await journal.offers.withdraw(TENANT, ids[2])
    inbox = Inbox(journal.offers, cast(Archive, None))
    for query in (OfferQuery(), OfferQuery(states=frozenset({HandoffState.OFFERED}))):
        pages, token = list[str](), ""
        while True:
            page = await inbox.list(TENANT, query, 2, token)
            pages += [offer.handoff_id for offer in page.offers]
            token = page.token
            if not token:
                break
            other = OfferQuery(to_agent="")
            await refused(inbox.list(TENANT, other, 2, token), Reason.PAGE_TOKEN_INVALID)
        assert pages == [name for name in sorted(ids) if name != ids[2] or not query.states]


async def test_an_offer_is_adopted_once(journal: Journal, clock: Clock) -> None:
    handoff_id = await hand_off(journal)
    calls = [adopt(journal, handoff_id, f"run {number}") for number in range(4)]
    answers = await asyncio.gather(*calls, return_exceptions=True)
    [saved] = [answer for answer in answers if isinstance(answer, SaveOutcome)]
    refusals = [answer for answer in answers if isinstance(answer, Refusal)]
    assert {refusal.reason for refusal in refusals} == {Reason.HANDOFF_CLOSED}
    [offer] = await listed(journal)
    assert (offer.state, offer.adopted, offer.closed_us) == (
        *(HandoffState.ADOPTED, saved),
        clock.now_us,
    )
    await closed(journal, handoff_id, state="ADOPTED", adopted_thread_id=saved.key.thread_id)
    found = await journal.list_threads(TENANT, ThreadQuery(agent_id="writer"), "", 100)
    assert [thread.thread_id for thread in found] == [saved.key.thread_id]


@pytest.mark.postgresql
async def test_two_servers_adopt_an_offer_once(tmp_path: Path, clock: Clock) -> None:
    async with opened(tmp_path, clock) as first, opened(tmp_path, clock) as second:
        differ(first, second)
        for number in range(12):
            handoff_id = await hand_off(first)
            calls = [
                adopt(server, handoff_id, f"{name} {number}")
                for name, server in (("a", first), ("b", second), ("c", first), ("d", second))
            ]
            if number % 3 == 0:  # and the thread ends meanwhile
                calls.append(cast(Any, second.removal.delete_thread(TENANT, "t")))
            answers = await asyncio.gather(*calls, return_exceptions=True)
            made = [answer for answer in answers if isinstance(answer, SaveOutcome)]
            assert len(made) <= 1
            refusals = [answer for answer in answers if isinstance(answer, Exception)]
            assert {getattr(refusal, "reason", refusal) for refusal in refusals} <= {
                *(Reason.HANDOFF_CLOSED, Reason.HANDOFF_NOT_FOUND)
            } or number % 3 == 0
            if number % 3:
                assert len(made) == 1
            else:
                assert await listed(first, thread_id="t") == []
                await save(first, draft("1", restarts=True))
        assert await states(second) == ["ADOPTED"] * 2


async def test_a_repeat_gets_the_first_adoption(journal: Journal) -> None:
    handoff_id = await hand_off(journal)
    saved = await adopt(journal, handoff_id, "mine", "r")
    assert await adopt(journal, handoff_id, "mine", "r") == saved
    offer, descriptor = await stored(journal, handoff_id)
    racing = Claim(descriptor, "r", replace(offer, adopted=None, state=HandoffState.OFFERED))
    assert await claim(journal, racing, "mine") == saved
    await journal.database.transact(
        lambda batch: batch.connection.execute(requests.delete())  # as in a recovered journal
    )
    assert await adopt(journal, handoff_id, "mine", "r") == saved
    assert await claim(journal, racing, "mine") == saved
    # Two workers with one rule for names must not both get the thread.
    state = {"state": "ADOPTED", "adopted_thread_id": "mine"}
    for request_id in ("", "another"):
        refusal = await refused(
            adopt(journal, handoff_id, "mine", request_id), Reason.HANDOFF_CLOSED
        )
        assert state.items() <= refusal.metadata.items()
    await refused(adopt(journal, handoff_id, "yours", "r"), Reason.REQUEST_ID_REUSED)


async def test_a_refused_adoption_leaves_the_offer_open(journal: Journal) -> None:
    handoff_id = await hand_off(journal)
    await refused(adopt(journal, handoff_id, "other"), Reason.THREAD_EXISTS)
    offer, descriptor = await stored(journal, handoff_id)
    claimed = Claim(descriptor, "", offer)
    await refused(claim(journal, claimed, "other"), Reason.THREAD_EXISTS)
    assert await states(journal) == ["OFFERED"]


async def test_unknown_offers_are_not_found(journal: Journal) -> None:
    handoff_id = await hand_off(journal)
    for tenant, name in ((TENANT, ""), (TENANT, ODD), (TENANT, "1"), ("foreign", handoff_id)):
        assert await journal.offers.find(tenant, name) is None
        await refused(journal.offers.withdraw(tenant, name), Reason.HANDOFF_NOT_FOUND)
        await refused(journal.lineage.offered(tenant, name, "", ""), Reason.HANDOFF_NOT_FOUND)


async def test_a_withdrawn_offer_stays_withdrawn(journal: Journal, clock: Clock) -> None:
    handoff_id = await hand_off(journal)
    withdrawn = await journal.offers.withdraw(TENANT, handoff_id)
    assert (withdrawn.state, withdrawn.closed_us) == (HandoffState.WITHDRAWN, clock.now_us)
    clock.advance(5)
    assert await journal.offers.withdraw(TENANT, handoff_id) == withdrawn
    await closed(journal, handoff_id, state="WITHDRAWN")
    adopted = await hand_off(journal)
    await adopt(journal, adopted)
    await refused(journal.offers.withdraw(TENANT, adopted), Reason.HANDOFF_CLOSED)


async def test_an_offer_expires(journal: Journal, clock: Clock) -> None:
    handoff_id = await hand_off(journal, ttl_s=60)
    offer, descriptor = await stored(journal, handoff_id)
    clock.advance(60)
    assert await states(journal) == ["EXPIRED"]
    assert await states(journal, states=frozenset({HandoffState.OFFERED})) == []
    expired = frozenset({HandoffState.EXPIRED})
    [shown] = await listed(journal, states=expired)
    assert shown.closed_us == shown.expire_us == clock.now_us
    await closed(journal, handoff_id, state="EXPIRED")
    await refused(claim(journal, Claim(descriptor, "", offer), "late"), Reason.HANDOFF_CLOSED)
    await refused(journal.offers.withdraw(TENANT, handoff_id), Reason.HANDOFF_CLOSED)


async def test_offers_end_with_their_thread(journal: Journal) -> None:
    handoff_id = await hand_off(journal)
    await adopt(journal, await hand_off(journal), "mine")
    await hand_off(journal, thread_id="other")
    assert await journal.removal.delete_thread(TENANT, "t") == 1
    assert await listed(journal, thread_id="t") == []
    assert await states(journal, to_agent="writer") == ["OFFERED"]
    await refused(adopt(journal, handoff_id), Reason.HANDOFF_NOT_FOUND)
    stored = await rows_of(journal, checkpoints, "metadata")
    assert not [metadata for (metadata,) in stored if b"Of t." in bytes(metadata)]
    await save(journal, draft("1", restarts=True))
    assert await listed(journal, thread_id="t") == []
    assert (await journal.lineage.lineage(TENANT, "mine", 10)) is not None


async def test_offers_of_ended_threads_do_not_survive_a_recovery(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    for thread_id in ("t", "other"):
        await hand_off(journal, thread_id=thread_id)
    kept = await hand_off(journal, "reader", "other")
    # The end of a thread can be certified before the removal of its offers.
    with monkeypatch.context() as patch:
        patch.setattr(deletion, "_drop_offers", lambda *_: None)
        await journal.removal.delete_thread(TENANT, "t")
    assert len(await listed(journal)) == 3
    assert await journal.database.transact(lambda batch: drop_stale(batch, TENANT)) == 1
    await hand_off(journal, thread_id="other")
    with monkeypatch.context() as patch:
        patch.setattr(deletion, "_drop_offers", lambda *_: None)
        await journal.removal.delete_thread(TENANT, "other")
    await save(journal, draft("1", thread_id="other", restarts=True))
    new = await hand_off(journal, "reader", "other")
    assert kept in {offer.handoff_id for offer in await listed(journal)}
    assert await journal.database.transact(lambda batch: drop_stale(batch, TENANT)) == 3
    assert [offer.handoff_id for offer in await listed(journal)] == [new]


async def test_copies_and_snapshots_offer_nothing(journal: Journal) -> None:
    handoff_id = await hand_off(journal)
    await journal.lineage.copy_thread(TENANT, "t", "copy", "")
    await journal.lineage.fork(TENANT, key("1"), "fork", "")
    snapshot = await journal.snapshots.create_snapshot(TENANT, SnapshotDraft(("t",)), "")
    restore = journal.snapshots.restore_snapshot
    await restore(TENANT, snapshot.snapshot_id, rollback=False, request_id="")
    assert [offer.handoff_id for offer in await listed(journal)] == [handoff_id]


async def test_an_adoption_by_descriptor_closes_its_oldest_offer(journal: Journal) -> None:
    ids = [await hand_off(journal) for _ in range(2)]
    _, descriptor = await stored(journal, ids[0])
    strange = replace(descriptor, summary="Changed.")
    await claim(journal, Claim(strange))
    assert await states(journal) == ["OFFERED", "OFFERED"]
    with_key = replace(descriptor, key="cd" * 32)
    saved = await claim(journal, Claim(with_key))
    assert await states(journal) == ["ADOPTED", "OFFERED"]
    assert (await stored(journal, ids[0]))[0].adopted == saved
    for _ in range(2):  # a descriptor can be adopted again, with or without an offer
        await claim(journal, Claim(descriptor))
    assert await states(journal) == ["ADOPTED", "ADOPTED"]


async def test_closed_offers_are_swept(journal: Journal, clock: Clock) -> None:
    await hand_off(journal)
    expired = await hand_off(journal, ttl_s=10 * DAY_S)
    withdrawn = await hand_off(journal, "reader")
    clock.advance(20 * DAY_S)
    await journal.offers.withdraw(TENANT, withdrawn)
    clock.advance(20 * DAY_S)
    assert await journal.offers.sweep() == 1
    assert await journal.offers.find(TENANT, expired) is None
    clock.advance(KEPT_US / 1e6)
    assert await journal.offers.sweep() == 1
    assert await states(journal) == ["OFFERED"]
    assert await journal.offers.sweep() == 0


async def test_no_offer_is_made_beside_older_servers(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Database, "oldest_writer", lambda *_: LATEST - 1)
    assert await hand_off(journal) == ""
    assert await listed(journal) == []
    monkeypatch.undo()
    assert await hand_off(journal)


async def test_search_does_not_wait_for_offers(journal: Journal) -> None:
    await journal.removal.delete_thread(TENANT, "other")
    await hand_off(journal)
    row = await journal.events.kept(TENANT, inbox_of("writer"))
    assert row is not None
    assert row.unsearchable
    assert row.unindexed_since_us is None


async def test_a_watch_tells_of_each_change(journal: Journal, clock: Clock) -> None:
    inbox = Inbox(journal.offers, cast(Archive, None))
    first = await hand_off(journal)
    await journal.offers.withdraw(TENANT, await hand_off(journal))
    expiring = await hand_off(journal, ttl_s=60)
    others = await hand_off(journal, thread_id="other")
    async with aclosing(inbox.watch(TENANT, "writer", (), 3600)) as stream:

        async def seen() -> tuple[str, str]:
            offer = await anext(stream)
            return (offer.handoff_id, offer.state.name) if offer is not None else ("", "")

        open_ones = [await seen() for _ in range(4)]
        assert open_ones[:3] == [(name, "OFFERED") for name in (first, expiring, others)]
        assert open_ones[3] == ("", "")
        await hand_off(journal, "reader")
        third = await hand_off(journal)
        assert await seen() == (third, "OFFERED")
        await adopt(journal, first, "mine")
        assert await seen() == (first, "ADOPTED")
        await journal.removal.delete_thread(TENANT, "other")
        assert await seen() == (others, "WITHDRAWN")
        clock.advance(61)
        last = await hand_off(journal)
        assert {await seen(), await seen()} == {(expiring, "EXPIRED"), (last, "OFFERED")}


async def test_a_watch_of_an_empty_inbox_learns_of_the_first_offer(journal: Journal) -> None:
    inbox = Inbox(journal.offers, cast(Archive, None))
    wanted = (HandoffState.OFFERED,)
    async with aclosing(inbox.watch(TENANT, ODD, wanted, 3600)) as stream:
        assert await anext(stream) is None
        handoff_id = await hand_off(journal, ODD)
        offer = await anext(stream)
        assert offer is not None
        assert (offer.handoff_id, offer.to_agent) == (handoff_id, ODD)
