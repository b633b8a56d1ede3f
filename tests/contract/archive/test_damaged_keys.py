"""Checkpoints are not called sound if the key of a segment does not open in a sealed journal.

The blob exists, and only the catalog still leads to its key. A key that was destroyed because its
thread ended is not damage.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from sqlalchemy import text

from tests.contract.archive.renew.test_losses import metric
from tests.kit.archives import KEYS, House, check_certified, grow, house
from tests.kit.blobs.stores import MemoryStore
from tests.kit.drafts import TENANT, draft, key, refused
from tests.kit.journal import seals
from tuskpoint_server.archive.renew.repair import Round
from tuskpoint_server.core.errors import Reason
from tuskpoint_server.core.threads import VerdictKind
from tuskpoint_server.journal.database.unit_of_work import UnitOfWork

DAMAGED_KEYS = "tuskpoint.journal.damaged_keys"


@pytest.fixture
def meter() -> InMemoryMetricReader:
    return InMemoryMetricReader()


@pytest.fixture
async def home(tmp_path: Path, meter: InMemoryMetricReader) -> AsyncIterator[House]:
    """A sealed journal whose thread "t" has three segments; segments of "fork" name the first."""
    meters = MeterProvider([meter])
    async with house(
        tmp_path, MemoryStore(), keys=KEYS, open_key=seals, meters=meters
    ) as opened_house:
        for number in range(3):
            await grow(opened_house, 1, start=number)
            await opened_house.flush()
        await opened_house.journal.lineage.fork(TENANT, key("0000"), "fork", "")
        await opened_house.flush()
        yield opened_house


async def damage(home: House, seq: int) -> None:
    """Replace the key of the segment with a change by the key of another member."""
    other = "(SELECT key FROM members WHERE kind = 'catalog')"
    await edit(
        home, f"UPDATE members SET key = {other} WHERE kind = 'segment' AND last_seq = {seq}"
    )


async def edit(home: House, statement: str) -> None:
    """Change a row behind the server's back."""

    def run(batch: UnitOfWork) -> None:
        assert batch.connection.execute(text(statement)).rowcount == 1

    home.journal.is_edited = True
    await home.journal.database.transact(run)


async def rebuild(home: House) -> None:
    """Rebuild the newest catalog from the journal, as after a loss of its runs."""
    flusher = home.archive._flusher(TENANT)
    async with flusher.turn:
        await flusher.flush.settle()
        await home.archive.lifetime.repair.rebuild(flusher)


async def test_a_rebuilt_catalog_has_a_gap_where_a_key_does_not_open(
    home: House, meter: InMemoryMetricReader, caplog: pytest.LogCaptureFixture
) -> None:
    await damage(home, 2)
    await rebuild(home)
    assert "thread 't' of tenant default" in caplog.text
    assert "does not open" in caplog.text
    assert metric(meter, DAMAGED_KEYS) == 1
    status = await home.archive.status(TENANT)
    assert [gap.checkpoint_id for gap in status.first_gaps] == ["0001"]
    assert [gap.checkpoint_id for gap in (await home.manifest()).gaps] == ["0001"]
    assert await check_certified(home, gaps=True) == 3
    await home.flush()  # a gap is stored again from the journal
    assert (await home.archive.status(TENANT)).gaps == 0
    assert await check_certified(home) == 4


async def test_a_copy_whose_segment_does_not_open_is_a_gap_too(home: House) -> None:
    await damage(home, 1)
    await rebuild(home)
    status = await home.archive.status(TENANT)
    assert {gap.thread_id for gap in status.first_gaps} == {"t", "fork"}
    await home.flush()
    assert await check_certified(home) == 4


async def test_a_copy_is_stored_itself_if_the_key_of_its_segment_does_not_open(home: House) -> None:
    await damage(home, 1)
    await home.journal.lineage.fork(TENANT, key("0000"), "other", "")
    refusal = await refused(home.flush(), Reason.CERTIFICATION_FAILED)
    assert "does not open in the journal" in str(refusal)
    await home.flush()
    assert "0000" in {place[1] for place in (await home.manifest("other")).entries}
    known = await home.manifest("other")
    assert known.needed() <= known.members.keys()


async def test_evicted_content_without_a_key_is_a_gap_that_stays(
    home: House, caplog: pytest.LogCaptureFixture
) -> None:
    assert await home.evict() > 0
    await damage(home, 2)
    await rebuild(home)
    refusal = await refused(home.flush(), Reason.CERTIFICATION_FAILED)
    assert "checkpoint '0001'" in str(refusal)
    assert "does not open" in caplog.text


async def test_evicted_content_without_a_key_is_told_as_lost(
    home: House, caplog: pytest.LogCaptureFixture
) -> None:
    """No call waits for a key that no store can return, as for a blob that is about to expire."""
    assert await home.evict() > 0
    await damage(home, 2)
    [[segment]] = await home.ask(
        "SELECT sha256 FROM members WHERE kind = 'segment' AND last_seq = 2"
    )
    flusher, done = home.archive._flusher(TENANT), Round()
    await home.archive.lifetime.repair.store_again(flusher, {segment}, done)
    assert (done.lost, done.waits) == (1, False)
    assert "LOST: checkpoint '0001'" in caplog.text


async def test_a_checkpoint_whose_segment_is_not_recorded_is_a_gap_too(home: House) -> None:
    await edit(home, "DELETE FROM members WHERE kind = 'segment' AND last_seq = 2")
    await rebuild(home)
    status = await home.archive.status(TENANT)
    assert [gap.checkpoint_id for gap in status.first_gaps] == ["0001"]
    await home.flush()
    assert await check_certified(home) == 4


async def test_nothing_is_evicted_into_a_segment_whose_key_does_not_open(home: House) -> None:
    await grow(home, 1, start=3)
    await home.flush()
    await damage(home, 2)
    await home.evict()
    gone = await home.ask("SELECT DISTINCT segment FROM contents WHERE segment IS NOT NULL")
    [[segment]] = await home.ask(
        "SELECT sha256 FROM members WHERE kind = 'segment' AND last_seq = 2"
    )
    assert gone
    assert (segment,) not in gone


async def test_a_verification_names_the_segment(home: House) -> None:
    await damage(home, 2)
    verification = await home.archive.verification(TENANT, "t")
    assert verification is not None
    verdicts = {
        verdict.key.checkpoint_id: verdict.kind async for verdict in verification.verdicts()
    }
    assert verdicts == {
        "0000": VerdictKind.PASS,
        "0001": VerdictKind.FAIL,
        "0002": VerdictKind.PASS,
    }
    [problem] = await verification.journal_problems()
    assert "does not open" in problem
    assert "segment" in problem


async def test_a_verification_of_a_copy_names_the_segment_of_its_source(home: House) -> None:
    await damage(home, 1)
    verification = await home.archive.verification(TENANT, "fork")
    assert verification is not None
    assert [verdict.kind async for verdict in verification.verdicts()] == [VerdictKind.FAIL]
    [problem] = await verification.journal_problems()
    assert "does not open" in problem


async def test_keys_that_ended_with_their_thread_are_no_damage(
    home: House, meter: InMemoryMetricReader, caplog: pytest.LogCaptureFixture
) -> None:
    await home.journal.removal.delete_thread(TENANT, "t")
    await home.flush()
    await home.journal.save_checkpoint(TENANT, draft("0009", "", {"x": b"again"}))
    await home.flush()
    destroyed = await home.ask("SELECT 1 FROM members WHERE kind = 'segment' AND key IS NULL")
    assert len(destroyed) == 2, "the fork needs the first segment"
    with caplog.at_level(logging.ERROR):
        caplog.clear()
        await rebuild(home)
    assert "does not open" not in caplog.text
    assert metric(meter, DAMAGED_KEYS) == 0
    assert await check_certified(home) == 2
    for name in ("t", "fork"):
        verification = await home.archive.verification(TENANT, name)
        assert verification is not None
        assert {verdict.kind async for verdict in verification.verdicts()} == {VerdictKind.PASS}
        assert await verification.journal_problems() == ()
