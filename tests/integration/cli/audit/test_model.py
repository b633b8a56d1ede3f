"""An audit passes certified checkpoints and nothing else, after any history of a journal."""

from __future__ import annotations

import asyncio
import hashlib
from collections import defaultdict
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.integration.archive.recover.recovered import recovered_house
from tests.integration.cli.audit import kit
from tests.kit.archives import House, house, keys_of
from tests.kit.blobs.epoch_store import EpochStore
from tests.kit.blobs.stores import MemoryStore
from tests.kit.drafts import TENANT, draft, key, write
from tests.kit.epochs import Years, years
from tests.kit.histories import STEPS, History, live, store_of
from tests.kit.journal import Clock
from tuskpoint.audit.formats.stored import Location
from tuskpoint.audit.sources import BlobMissingError, FetchedBytes, Traffic
from tuskpoint_server.archive.formats.manifests import ManifestEntry, fold
from tuskpoint_server.archive.formats.records import Record
from tuskpoint_server.archive.rows import recorded
from tuskpoint_server.core.errors import Refusal
from tuskpoint_server.features.lineage.lineage import LineageRows


class MemorySource:
    """The blobs of a store in memory."""

    kind = "memory"
    ids_are_hashes = False
    places = ()
    remarks = ()

    def __init__(self, store: MemoryStore | EpochStore) -> None:
        self._store = store
        self.traffic = Traffic()

    async def fetch(self, location: Location, max_bytes: int) -> FetchedBytes:
        sha256 = bytes.fromhex(location.identifier or location.sha256)
        if isinstance(self._store, MemoryStore):
            member = self._store.packs.get(location.blob_id, {}).get(sha256)
            member = None if sha256 in self._store.lost else member
        elif location.blob_id in self._store.live():
            member = self._store.quilts[location.blob_id].members.get(sha256)
        else:
            member = None
        if member is None:
            raise BlobMissingError
        return FetchedBytes(member.data, hashlib.sha256(member.data).hexdigest())

    async def members(self, blob_id: str) -> None:
        return None

    async def close(self) -> None:
        return


async def audited(home: House, store: MemoryStore | EpochStore, history: int = 0) -> kit.Audited:
    """Audit the newest catalog of a journal."""
    known = await home.archive.catalog(TENANT)
    assert known is not None
    at = known.location
    root = Location(at.blob_id, at.identifier, at.sha256.hex(), at.size)
    return await kit.audited_catalog(MemorySource(store), root, history=history)


async def check(home: House, store: MemoryStore) -> None:
    """Compare an audit with the journal, all of whose changes are certified or in a gap."""
    left_out = await home.ask(
        "SELECT t.thread_id, h.checkpoint_ns, h.checkpoint_id FROM holes AS h"
        " JOIN threads AS t ON t.number = h.thread WHERE h.segment IS NULL"
    )
    outcome = await audited(home, store, history=1000)
    assert outcome.result == ("INCOMPLETE" if left_out else "PASS"), outcome.problems
    listed = {
        (item.thread_id, item.checkpoint_ns, item.checkpoint_id): item.verdict.value
        for item in outcome.findings.items
        if item.kind == "checkpoint"
    }
    expected = {
        (key.thread_id, key.checkpoint_ns, key.checkpoint_id): "PASS"
        for [name] in await home.ask("SELECT thread_id FROM threads WHERE NOT deleted")
        for key in await keys_of(home, str(name))
    }
    gaps = dict.fromkeys([(str(a), str(b), str(c)) for a, b, c in left_out], "GAP")
    assert listed == expected | gaps
    facts = outcome.findings.facts
    assert facts["history"] == facts["number"] - 1


class Auditing(History):
    """Audits after each flush, and once more after a recovered journal has continued."""

    async def flush(self) -> None:
        try:
            await self.house.flush()
        except Refusal:
            assert self.blocked
        if await self.house.archive.catalog(TENANT) is not None:
            await check(self.house, self.store)


def audit(seed: int, steps: list[str], way: str) -> None:
    asyncio.run(
        live(Auditing(seed, store_of(way)), [*steps, "flush"], standalone=way == "standalone")
    )


histories = st.lists(st.sampled_from(STEPS), min_size=5, max_size=30)
thorough = settings(deadline=None, suppress_health_check=list(HealthCheck))


@settings(thorough, max_examples=10)
@given(seed=st.integers(0, 1 << 30), steps=histories)
def test_certified_checkpoints_pass(seed: int, steps: list[str]) -> None:
    audit(seed, steps, "whole")


@pytest.mark.parametrize("way", ["small puts", "standalone"])
@settings(thorough, max_examples=6)
@given(seed=st.integers(0, 1 << 30), steps=histories)
def test_certified_checkpoints_pass_however_they_are_stored(
    way: str, seed: int, steps: list[str]
) -> None:
    audit(seed, steps, way)


@pytest.mark.parametrize("lost", ["bytes", "blob"])
def test_a_damaged_member_fails_only_the_checkpoints_that_need_it(
    tmp_path: Path, lost: str
) -> None:
    asyncio.run(damage_each(tmp_path, lost))


async def damage_each(directory: Path, lost: str) -> None:
    """Damage each stored member of a history in turn, and audit."""
    store, clock = MemoryStore(), Clock()
    history = Auditing(7, store)
    async with house(directory, store, clock) as home:
        history.enter(home)
        for step in ("save", "inherit", "inherit", "writes", "flush", "fork", "copy", "inherit",
                     "save", "evict", "writes", "flush", "inherit", "again", "flush"):  # fmt: skip
            await history.do(step)
        assert (await audited(home, store)).result == "PASS"
        needed = 0
        for blob_id, pack in store.packs.items():
            for sha256, member in list(pack.items()):
                if lost == "blob":
                    store.lost.add(sha256)
                else:
                    data = bytearray(member.data)
                    data[len(data) // 2] ^= 1
                    pack[sha256] = type(member)(sha256, bytes(data), member.kind)
                outcome = await audited(home, store)
                store.lost.clear()
                pack[sha256] = member
                touched = [
                    item
                    for item in outcome.findings.items
                    if any(blob.expected_sha256 == sha256.hex() for blob in item.blobs)
                ]
                assert outcome.problems == touched, (blob_id, member.kind)
                needed += bool(touched)
                for item in touched:
                    [blob] = {blob for blob in item.blobs if blob.verdict != "PASS"}
                    assert blob.verdict == ("MISSING" if lost == "blob" else "FAIL")
                    assert bool(blob.actual_sha256) == (lost == "bytes")
                    assert blob.actual_sha256 != blob.expected_sha256
        assert needed > 3


async def test_later_saves_of_a_recovered_journal_pass(tmp_path: Path) -> None:
    store, clock = MemoryStore(), Clock()
    history = Auditing(3, store)
    async with house(tmp_path, store, clock) as first:
        history.enter(first)
        for step in ("save", "inherit", "writes", "fork", "flush", "delete", "save", "flush"):
            await history.do(step)
        async with recovered_house(tmp_path / "second", first) as second:
            history.enter(second)
            for step in ("save", "inherit", "again", "writes", "copy"):
                await history.do(step)
            await second.flush()
            outcome = await audited(second, store, history=1000)
            assert outcome.result == "PASS", outcome.problems
            assert outcome.findings.facts["generation"] == 2
            assert outcome.findings.facts["history"] >= 2  # a slow machine flushes in between


async def test_a_fork_names_late_writes_where_they_lie(tmp_path: Path) -> None:
    """Records of a flush, of the journal alone and of a recovery all name the writes."""
    store = MemoryStore()

    async def fork(home: House, origin: str, *targets: str) -> None:
        for target in targets:
            await LineageRows(home.journal.database).fork(TENANT, key("1", origin), target, "")
            origin = target
        await home.flush()
        outcome = await audited(home, store)
        assert outcome.result == "PASS", outcome.problems

    async with house(tmp_path, store) as first:
        await first.journal.save_checkpoint(TENANT, draft("1", "", {"x": b"x" * 2000}))
        await first.flush()
        await first.journal.save_writes(TENANT, key("1"), [write("late", b"late")])
        await first.flush()
        await fork(first, "t", "fork", "fork of a fork")
        await fork(first, "fork", "fork of what is certified")
        known = await journal_records(first)
        assert {len(entry.writes) for entry in known.values()} == {1}
        async with recovered_house(tmp_path / "second", first) as second:
            await fork(second, "fork of a fork", "another")
            assert {len(entry.writes) for entry in (await journal_records(second)).values()} == {1}


async def journal_records(home: House) -> dict[str, ManifestEntry]:
    """Return the checkpoint of each thread according to records from the journal alone."""
    records, *_ = await home.journal.database.query(
        lambda connection: recorded.records(connection, TENANT, 9, "", 100)
    )
    by_thread: dict[str, list[Record]] = defaultdict(list)
    for record in records:
        by_thread[record.thread_id].append(record)
    return {
        name: fold(name, thread_records).entries["", "1"]
        for name, thread_records in by_thread.items()
    }


async def test_runs_that_were_merged_pass(tmp_path: Path) -> None:
    store = MemoryStore()
    history = Auditing(1, store)
    async with house(tmp_path, store) as home:
        history.enter(home)
        for _ in range(40):
            await history.do("save")
            await home.flush()
        known = await home.archive.catalog(TENANT)
        assert known is not None
        assert len(known.catalog.runs.levels) > 1
        await check(home, store)


async def test_moved_checkpoints_pass_and_recorded_losses_are_gaps(
    tmp_path: Path,
) -> None:
    async with years(tmp_path, epochs=3) as time:
        await time.save("1", content=b"shared" * 700, question=b"a question")
        await time.save("2", "1", content=b"secret" * 700)
        await time.flush()
        await LineageRows(time.home.journal.database).fork(TENANT, key("1"), "fork", "")
        await time.flush()
        await time.delete("t")
        for _ in range(8):
            time.advance(0.5)
            await time.keep()
            outcome = await audited(time.home, time.store)
            assert (outcome.result, outcome.of("fork")) == ("PASS", {"1": "PASS"})
            assert outcome.of("t") == {}
        await lose_what_was_evicted(time)


async def lose_what_was_evicted(time: Years) -> None:
    await time.save("3", thread_id="u", content=b"only copy")
    await time.flush()
    await time.save("4", "3", thread_id="u", content=b"head")
    await time.flush()
    assert await time.evict() > 0
    time.store.lose(await time.blob_of("3", "u"))
    outcome = await audited(time.home, time.store)
    assert outcome.problems[0].blobs[0].role == "run", "of the flush that stored it"
    assert (outcome.result, outcome.of("u")) == ("FAIL", {"4": "PASS"})
    for _ in range(5):  # until its time has passed, the run could still come back
        time.advance(1)
        await time.keep()
    outcome = await audited(time.home, time.store)
    assert (outcome.result, outcome.of("u")) == ("INCOMPLETE", {"3": "GAP", "4": "PASS"})
