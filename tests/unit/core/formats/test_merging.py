"""Runs are merged in bounded steps, and manifests stay the same."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.unit.core.formats.log import Log, saved
from tests.unit.core.formats.store import Tenant
from tuskpoint_server.archive.formats import catalogs, runs
from tuskpoint_server.archive.formats.catalogs import (
    FAN_OUT,
    STEP_BYTES,
    LiveRuns,
    advance,
    decode_catalog,
    encode_catalog,
    read_thread,
    read_threads,
    relocate_members,
    without_threads,
)
from tuskpoint_server.archive.formats.manifests import fold
from tuskpoint_server.archive.formats.records import EndRecord, Record, RemovalRecord
from tuskpoint_server.archive.formats.runs import RunPut, members_of, store_records
from tuskpoint_server.core.errors import Reason, Refusal
from tuskpoint_server.core.model import BlobLocation

KEYS = [("", "a"), ("", "b"), ("", "c"), ("sub", "a")]


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make pages, leaves, branches and steps so small that merges last many flushes."""
    monkeypatch.setattr(runs, "PAGE_BYTES", 600)
    monkeypatch.setattr(runs, "LEAF_BYTES", 2_000)
    monkeypatch.setattr(runs, "BRANCH_RUNS", 3)
    monkeypatch.setattr(catalogs, "BRANCH_RUNS", 3)
    monkeypatch.setattr(catalogs, "STEP_BYTES", 1_500)


def change(log: Log, chance: random.Random) -> None:
    """Change a thread at random."""
    key = chance.choice(KEYS)
    steps: list[tuple[int, Callable[[], None]]] = [
        (30, lambda: log.save(key)),
        (20, lambda: log.write(key)),
        (8, lambda: log.remove(key)),
        (3, lambda: log.fail(key)),
        (6, lambda: log.fill(key)),
        (1, lambda: log.end(key[1])),
        (2, lambda: log.set_agent(key[1])),
        (1, log.hand_off),
        (3, log.relocate),
        (1, log.recover),
    ]
    chance.choices([step for _, step in steps], [weight for weight, _ in steps])[0]()


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("seed", range(2))
async def test_manifests_stay_what_was_flushed_however_runs_are_merged(seed: int) -> None:
    chance = random.Random(seed)
    logs = [Log(f"t{number}") for number in range(6)]
    run_counts = [0] * len(logs)
    tenant = Tenant()
    unfinished = 0
    for number in range(250):
        flushed: list[Record] = []
        for place in chance.sample(range(len(logs)), chance.randint(0, 3)):
            log = logs[place]
            while len(log.runs) == run_counts[place]:
                change(log, chance)
                log.flush()
            # If a thread flushed more than once, the further runs are stored with the next flushes.
            flushed += log.runs[run_counts[place]]
            run_counts[place] += 1
        await tenant.flush(flushed)
        unfinished += bool(tenant.runs.merges)
        if number % 25 == 0:
            await compare(tenant, logs, run_counts)
    for place, log in enumerate(logs):
        for run in log.runs[run_counts[place] :]:
            await tenant.flush(run)
    await compare(tenant, logs, [len(log.runs) for log in logs])
    for log in logs:
        records = await read_thread(tenant.runs, log.thread_id, tenant.members.fetch)
        log.expected.matches(fold(log.thread_id, records))
    assert unfinished > 50
    assert len(tenant.runs.levels) > 2


async def compare(tenant: Tenant, logs: list[Log], run_counts: list[int]) -> None:
    """Compare the records that are read with the flushed records, by thread and side by side."""
    together = {
        thread_id: fold(thread_id, records)
        async for thread_id, records in read_threads(tenant.runs, tenant.members.fetch)
    }
    for log, flushed in zip(logs, run_counts, strict=True):
        expected = fold(log.thread_id, [record for run in log.runs[:flushed] for record in run])
        records = await read_thread(tenant.runs, log.thread_id, tenant.members.fetch)
        assert fold(log.thread_id, records) == expected
        if log.thread_id in together:
            assert together[log.thread_id] == expected
        else:
            assert not records


def live_runs(tenant: Tenant) -> int:
    return len(tenant.runs.oldest_first())


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize(("flushes", "burst"), [(600, 1), (150, 40)])
async def test_live_runs_and_rewritten_bytes_are_bounded_over_hundreds_of_flushes(
    flushes: int, burst: int
) -> None:
    chance = random.Random(burst)
    tenant = Tenant()
    written = rewritten = largest = 0
    for number in range(flushes):
        many = burst if number % 100 < 8 else 1
        records: list[Record] = [
            saved(f"t{chance.randrange(400):03}", number * 100 + index) for index in range(many)
        ]
        await tenant.flush(records)
        size = tenant.runs.levels[0][-1].plain_bytes
        written, largest = written + size, max(largest, size)
        rewritten += tenant.last.read_bytes
        levels = len(tenant.runs.levels)
        # A step stops at the first position after its bound.
        bound = levels * (max(STEP_BYTES, 2 * largest) + 2 * largest)
        assert tenant.last.read_bytes <= bound, number
        assert all(len(level) <= 2 * FAN_OUT for level in tenant.runs.levels), number
    levels = len(tenant.runs.levels)
    assert levels <= 4  # 8 ** 4 flushes would need 5 levels
    assert live_runs(tenant) <= 2 * FAN_OUT * levels
    assert rewritten <= levels * written
    threads = [thread async for thread in read_threads(tenant.runs, tenant.members.fetch)]
    assert sum(len(records) for _, records in threads) == sum(
        burst if number % 100 < 8 else 1 for number in range(flushes)
    )


@pytest.mark.usefixtures("small")
async def test_members_that_no_run_consists_of_are_named_as_dropped() -> None:
    tenant = Tenant()
    there: set[bytes] = set()
    for number in range(200):
        before = set(tenant.members.stored)
        await tenant.flush([saved(f"t{number % 30:02}", number), saved("t", number)])
        there |= set(tenant.members.stored) - before
        dropped = {place.sha256 for place in tenant.last.dropped}
        assert dropped <= there
        there -= dropped
        if number % 20 == 0:
            assert there == await live_members(tenant)
    assert there == await live_members(tenant)


async def live_members(tenant: Tenant) -> set[bytes]:
    refs = tenant.runs.oldest_first() + [
        ref for merge in tenant.runs.merges for height in merge.made for ref in height
    ]
    return {place.sha256 for ref in refs for place in await members_of(ref, tenant.members.fetch)}


@pytest.mark.usefixtures("small")
async def test_removed_checkpoints_leave_the_runs() -> None:
    tenant = Tenant()
    for number in range(1, 1_200, 2):
        removal = RemovalRecord("t", 1, 1, number + 1, "", f"c{number - 20:04}")
        await tenant.flush([saved("t", number), removal])
    records = sum(ref.records for ref in tenant.runs.oldest_first())
    assert records < 600  # of 1,200 records; 10 checkpoints live
    manifest = fold("t", await read_thread(tenant.runs, "t", tenant.members.fetch))
    assert len(manifest.entries) == 10


async def test_a_small_merge_is_over_in_one_step() -> None:
    tenant = Tenant()
    for number in range(FAN_OUT + 1):
        assert [len(level) for level in tenant.runs.levels] == ([number] if number else [])
        await tenant.flush([saved(f"t{number}", number)])
    # The flush that finds eight runs merges them.
    assert [len(level) for level in tenant.runs.levels] == [1, 1]
    assert not tenant.runs.merges
    assert tenant.runs.levels[1][0].records == FAN_OUT
    assert len(tenant.last.dropped) == FAN_OUT


async def test_a_flush_without_records_takes_merges_further() -> None:
    tenant = Tenant()
    for number in range(FAN_OUT):
        await tenant.flush([saved("t", number)])
    await tenant.flush([])
    assert [len(level) for level in tenant.runs.levels] == [0, 1]
    assert len(await read_thread(tenant.runs, "t", tenant.members.fetch)) == FAN_OUT


async def test_a_damaged_input_stops_a_merge_and_changes_nothing() -> None:
    tenant = Tenant()
    for number in range(FAN_OUT):
        await tenant.flush([saved("t", number)])
    lost = tenant.runs.levels[0][3].location.sha256
    blob_id, _ = tenant.members.stored[lost]

    async def fetch(location: object) -> bytes:
        if location == tenant.runs.levels[0][3].location:
            return b"damaged"
        return await tenant.members.fetch(location)  # type: ignore[arg-type] # a location

    before = tenant.runs
    with pytest.raises(Refusal) as refused:
        await advance(tenant.runs, None, fetch, RunPut(1, 99, tenant.members.store))
    assert refused.value.reason is Reason.BLOB_MALFORMED
    assert refused.value.metadata["blob_id"] == blob_id
    assert tenant.runs == before


def test_no_records_make_no_run() -> None:
    assert store_records([], RunPut(1, 1, lambda data: pytest.fail("it was stored"))) is None
    assert LiveRuns().oldest_first() == []


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("share", [0.2, 1.0])
async def test_runs_whose_members_were_moved_say_the_same(share: float) -> None:
    chance = random.Random(5)
    tenant = Tenant()
    for number in range(40):
        await tenant.flush([saved(f"t{number:02}", seq) for seq in range(1, 20)])
    members = tenant.members
    before = [record async for record in read_threads(tenant.runs, members.fetch)]
    places = {}
    for ref in tenant.runs.oldest_first():
        for place in await members_of(ref, members.fetch):
            if chance.random() < share:
                places[place.sha256] = replace(place, blob_id="dense")
    for sha256 in places:
        members.stored[sha256] = ("dense", members.stored[sha256][1])
    old = {place.sha256: place for place in places.values()}

    async def fetch(location: BlobLocation) -> bytes:
        return members.stored[location.sha256][1]

    members.puts += 1
    put = RunPut(1, 999, members.store)
    moved, replaced = await relocate_members(tenant.runs, places, fetch, put)
    catalog = encode_catalog(replace(tenant.catalog, runs=moved))
    moved = decode_catalog(catalog, f"put {members.puts}").runs
    kept = {
        place.sha256
        for ref in moved.oldest_first()
        for place in await members_of(ref, members.fetch)
    }
    assert kept.isdisjoint(replaced)
    assert old.keys() - kept <= set(replaced)
    after = [record async for record in read_threads(moved, members.fetch)]
    assert [name for name, _ in after] == [name for name, _ in before]
    assert [len(records) for _, records in after] == [len(records) for _, records in before]
    assert any(ref.height for ref in moved.oldest_first())


@pytest.mark.usefixtures("small")
async def test_nothing_is_left_of_ended_threads_and_the_others_say_the_same() -> None:
    tenant = Tenant()
    for number in range(40):
        names = [f"t{number:02}", "often", f"u{number % 7}"]
        await tenant.flush([saved(name, 40 * number + seq) for name in names for seq in range(9)])
    members = tenant.members
    before = {name: records async for name, records in read_threads(tenant.runs, members.fetch)}
    ended = {
        name: EndRecord(name, max(record.incarnation for record in before[name]), 1, 9999, "")
        for name in ("t05", "t39", "often", "u3")
    }
    old = [ref.location.sha256 for ref in tenant.runs.oldest_first()]
    members.puts += 1
    put = RunPut(1, 999, members.store)
    runs, replaced = await without_threads(tenant.runs, ended, members.fetch, put)
    catalog = encode_catalog(replace(tenant.catalog, runs=runs))
    runs = decode_catalog(catalog, f"put {members.puts}").runs
    after = {name: records async for name, records in read_threads(runs, members.fetch)}
    for name, records in before.items():
        if name in ended:
            assert all(isinstance(record, EndRecord) for record in after.get(name, ()))
        else:
            assert after[name] == records
    kept = {
        place.sha256
        for ref in runs.oldest_first()
        for place in await members_of(ref, members.fetch)
    }
    assert kept.isdisjoint(replaced)
    assert set(old) - kept <= set(replaced)
    assert [len(level) for level in runs.levels] == [len(level) for level in tenant.runs.levels]
