"""The audit trail in the journal has batches in order, each linked to the previous batch."""

from __future__ import annotations

import asyncio
import hashlib
import json
from pathlib import Path

from tests.contract.removal.rows import ids
from tests.kit.drafts import TENANT, draft
from tests.kit.journal import Clock, Journal, opened, save
from tuskpoint_server.features.checkpoints.listed_threads import ThreadQuery
from tuskpoint_server.features.trail.trail_rows import THREAD, TrailBatch, TrailRows


def linked(batches: list[TrailBatch]) -> list[object]:
    """Check the links of a whole trail; return the entries."""
    entries, last = [], ""
    for batch in batches:
        document = json.loads(batch.content)
        assert document["previous"] == last
        last = hashlib.sha256(batch.content).hexdigest()
        entries += document["entries"]
    return entries


async def test_batches_are_linked_and_read_in_pages(journal: Journal) -> None:
    trail = TrailRows(journal.database)
    for number in range(5):
        await trail.append(TENANT, [{"n": number}])
    await trail.append("other", [{"n": "theirs"}])
    first = await trail.read(TENANT, "", 3)
    rest = await trail.read(TENANT, first[-1].batch_id, 3)
    assert linked([*first, *rest]) == [{"n": number} for number in range(5)]
    assert linked(await trail.read("other", "", 9)) == [{"n": "theirs"}]
    assert not any(batch.certified for batch in first)


async def test_appends_at_once_are_ordered(journal: Journal, tmp_path: Path, clock: Clock) -> None:
    """Appends of several servers are ordered too, where servers share a journal."""
    trails = [TrailRows(journal.database)]
    if journal.database.backend == "postgresql":
        async with opened(tmp_path, clock) as other:
            await append_at_once([*trails, TrailRows(other.database)])
    else:
        await append_at_once(trails)
    entries = linked(await trails[0].read(TENANT, "", 1000))
    assert sorted(map(str, entries)) == sorted(str({"n": number}) for number in range(40))


async def append_at_once(trails: list[TrailRows]) -> None:
    await asyncio.gather(
        *(trails[number % len(trails)].append(TENANT, [{"n": number}]) for number in range(40))
    )


async def test_users_do_not_see_its_thread(journal: Journal) -> None:
    await save(journal, draft("a"))
    await TrailRows(journal.database).append(TENANT, [{"n": 1}])
    listed = await journal.list_threads(TENANT, ThreadQuery(), "", 10)
    assert [thread.thread_id for thread in listed] == ["t"]
    assert len(await ids(journal, THREAD)) == 1
