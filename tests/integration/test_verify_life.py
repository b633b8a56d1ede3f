"""Threads that change while they are verified, and what stores make of what they keep."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from tests.kit.member_file import MemberFile
from tuskpoint_emulators.walrus.faults import Fault, FaultKind, Operation
from tuskpoint_emulators.walrus.server import WalrusEmulator
from tuskpoint_server.archive import verifying
from tuskpoint_server.blobs.api import Progress, StoreLimits
from tuskpoint_server.blobs.walrus.settings import WalrusSettings
from tuskpoint_server.blobs.walrus.store import WalrusStore
from tuskpoint_server.domain.errors import Reason, Refusal
from tuskpoint_server.domain.manifest import SEGMENT_RECORDS
from tuskpoint_server.domain.model import BlobLocation, PruneStrategy
from tuskpoint_server.domain.parts import decode_parts, is_part_list
from tuskpoint_server.domain.verification import VerdictKind
from tuskpoint_server.journal import archive_blobs, rehydrating

from .archive_kit import TENANT, FilePerMember, Kit, open_kit, write
from .quilt_store import QuiltStore
from .recovery_kit import flush, recovered_kit
from .test_archive_telemetry import readings
from .verify_kit import segment_files, verify

PASS, FAIL = VerdictKind.PASS, VerdictKind.FAIL
UNVERIFIED, RETRACTED = VerdictKind.UNVERIFIED, VerdictKind.RETRACTED


async def kinds(kit: Kit, thread_id: str = "t") -> dict[str, VerdictKind]:
    """Verify a thread whose chain must hold; return the verdicts by checkpoint ID."""
    verdicts, total = await verify(kit, thread_id)
    assert total.chain_problem == ""
    assert total.counts == Counter(verdict.kind for verdict in verdicts)
    return {verdict.key.checkpoint_id: verdict.kind for verdict in verdicts}


# --- changes meanwhile ---------------------------------------------------------------------


class InterruptedStore(FilePerMember):
    """A directory in which something happens right before a read."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.root = root
        self._pending: dict[bytes, Callable[[], Awaitable[object]]] = {}

    def before(self, location: BlobLocation, happens: Callable[[], Awaitable[object]]) -> None:
        """Let something happen before this is read for the next time."""
        self._pending[location.sha256] = happens

    async def get(self, location: BlobLocation, *, progress: Progress | None = None) -> bytes:
        happens = self._pending.pop(location.sha256, None)
        if happens is not None:
            await happens()
        return await super().get(location, progress=progress)

    def lapse(self, location: BlobLocation) -> None:
        """Remove a blob, as the end of its time would."""
        MemberFile.at(self.root, location).unlink()


@asynccontextmanager
async def interrupted(root: Path) -> AsyncIterator[tuple[Kit, InterruptedStore]]:
    """A kit with three certified checkpoints."""
    store = InterruptedStore(root / "blobs")
    async with open_kit(root, store=store) as kit:
        for number in (1, 2, 3):
            await kit.save(f"{number}", f"{number - 1}" if number > 1 else "")
        await flush(kit)
        yield kit, store


async def head_of(kit: Kit) -> BlobLocation:
    head = await kit.archive.manifest_head(TENANT, "t")
    assert head is not None
    return head.location


async def test_a_head_that_moved_and_lapsed_is_no_broken_chain(tmp_path: Path) -> None:
    async with interrupted(tmp_path) as (kit, store):
        head = await head_of(kit)

        async def go_on() -> None:
            await kit.save("4", "3")
            await flush(kit)
            store.lapse(head)

        store.before(head, go_on)
        assert await kinds(kit) == {"1": PASS, "2": PASS, "3": PASS, "4": PASS}


async def test_a_checkpoint_that_is_stored_anew_meanwhile(tmp_path: Path) -> None:
    async with interrupted(tmp_path) as (kit, store):
        [envelope] = (await kit.entry("2")).envelopes

        async def save_anew() -> None:
            await kit.save("2", "1", content=b"anew")
            await flush(kit)
            store.lapse(envelope)

        store.before(envelope, save_anew)
        assert await kinds(kit) == {"1": PASS, "2": PASS, "3": PASS}


async def test_a_checkpoint_that_changes_meanwhile(tmp_path: Path) -> None:
    async with interrupted(tmp_path) as (kit, store):
        [envelope] = (await kit.entry("2")).envelopes

        async def save_anew() -> None:
            await kit.save("2", "1", content=b"anew")

        store.before(envelope, save_anew)
        assert await kinds(kit) == {"1": PASS, "2": PASS, "3": PASS}, "as when they were read"
        assert await kinds(kit) == {"1": PASS, "2": UNVERIFIED, "3": PASS}


@pytest.mark.parametrize("flushed", [False, True])
async def test_a_checkpoint_that_is_deleted_meanwhile(tmp_path: Path, flushed: bool) -> None:
    async with interrupted(tmp_path) as (kit, store):
        [envelope] = (await kit.entry("1")).envelopes

        async def prune() -> None:
            await kit.journal.prune_thread(TENANT, "t", PruneStrategy.KEEP_LATEST)
            if flushed:
                await flush(kit)
            store.lapse(envelope)

        store.before(envelope, prune)
        found = await kinds(kit)
        assert (found["1"], found["3"]) == (RETRACTED, PASS)
        assert FAIL not in found.values()


async def test_a_thread_that_is_deleted_meanwhile(tmp_path: Path) -> None:
    async with interrupted(tmp_path) as (kit, store):
        stored = [(await kit.entry(f"{number}")).envelopes[0] for number in (1, 2, 3)]

        async def delete() -> None:
            await kit.journal.delete_thread(TENANT, "t")
            await kit.save("2", thread_id="t")
            await flush(kit)
            for envelope in stored:
                store.lapse(envelope)

        store.before(stored[0], delete)
        assert await kinds(kit) == {"1": RETRACTED, "2": RETRACTED, "3": RETRACTED}
        assert await kinds(kit) == {"2": PASS}


async def test_a_blob_that_is_given_up_meanwhile(tmp_path: Path) -> None:
    async with interrupted(tmp_path) as (kit, store):
        entry = await kit.entry("2")
        [envelope] = entry.envelopes

        async def give_up() -> None:
            await kit.journal.transact(
                lambda connection: rehydrating.store_anew(
                    connection, TENANT, entry.key, entry.incarnation, 1
                )
            )
            store.lapse(envelope)

        store.before(envelope, give_up)
        assert await kinds(kit) == {"1": PASS, "2": UNVERIFIED, "3": PASS}
        # Built from the same content, the envelope is the same: the flush stores it again.
        await flush(kit)
        assert await kinds(kit) == {"1": PASS, "2": PASS, "3": PASS}


async def test_a_blob_that_moves(tmp_path: Path) -> None:
    """Manifests name a place as a hint; the journal's record of it stands above."""
    store = QuiltStore(StoreLimits())
    async with open_kit(tmp_path, store=store) as kit:
        for number in range(SEGMENT_RECORDS + 2):
            await kit.save(f"{number:02}")
        await flush(kit)
        await kit.save("99")
        await flush(kit)
        [envelope] = (await kit.entry("01")).envelopes
        quilt = store.blobs.pop(envelope.blob_id)
        assert len(quilt) > SEGMENT_RECORDS + 2, "the first segment lies there too"
        store.blobs["moved"] = quilt
        _, total = await verify(kit)
        assert total.counts == {FAIL: SEGMENT_RECORDS + 2, PASS: 1}
        assert envelope.blob_id in total.chain_problem
        moved = [
            BlobLocation(bytes.fromhex(identifier), 0, "moved", identifier) for identifier in quilt
        ]
        await kit.journal.transact(
            lambda connection: archive_blobs.move(connection, TENANT, envelope.blob_id, moved)
        )
        assert Counter((await kinds(kit)).values()) == {PASS: SEGMENT_RECORDS + 3}


async def test_nothing_fails_while_a_writer_and_flushes_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verifying, "PAGE_CHECKPOINTS", 3)
    monkeypatch.setattr(verifying, "BATCH_ENVELOPES", 2)
    done = asyncio.Event()

    async def change(kit: Kit) -> None:
        number = 100
        while not done.is_set():
            number += 1
            await kit.save(f"{number}", f"{number - 1}", metadata={"run_id": f"r{number % 3}"})
            await kit.save_writes(f"{number - 2}", write(b"%d" % number, idx=number))
            if number % 7 == 0:
                await kit.save("100", content=b"%d" % number)
            if number % 31 == 0:
                await kit.journal.delete_runs(TENANT, ["r0"])
            if number % 97 == 0:
                await kit.journal.prune_thread(TENANT, "t", PruneStrategy.KEEP_LATEST)

    async def certify(kit: Kit) -> None:
        while not done.is_set():
            await kit.archive.certify_all(TENANT)

    async with open_kit(tmp_path) as kit:
        await kit.save("100")
        await kit.save("101", "100")
        await flush(kit)
        working = [asyncio.create_task(change(kit)), asyncio.create_task(certify(kit))]
        seen: Counter[VerdictKind] = Counter()
        try:
            for _ in range(20):
                seen.update((await kinds(kit)).values())
        finally:
            done.set()
            await asyncio.gather(*working)
        assert seen[PASS] > 0
        assert seen[FAIL] == 0
        await flush(kit)
        assert set((await kinds(kit)).values()) <= {PASS, RETRACTED}


# --- what is read --------------------------------------------------------------------------


async def test_an_envelope_in_parts(tmp_path: Path) -> None:
    store = QuiltStore()
    async with open_kit(tmp_path, store=store) as kit:
        await kit.save("1", content=random.Random(1).randbytes(30_000))
        await kit.save("2", "1")
        await flush(kit)
        assert await kinds(kit) == {"1": PASS, "2": PASS}
        [envelope] = (await kit.entry("1")).envelopes
        listed = await store.get(envelope)
        assert is_part_list(listed)
        part = decode_parts(listed, envelope, 1 << 20).parts[2]
        whole, kind = store.blobs[part.blob_id][part.identifier]
        store.blobs[part.blob_id][part.identifier] = (whole[1:], kind)
        verdicts, total = await verify(kit)
        assert [verdict.kind for verdict in verdicts] == [FAIL, PASS]
        assert verdicts[0].location == part
        assert verdicts[0].actual_sha256 not in (b"", part.sha256)
        del store.blobs[part.blob_id][part.identifier]
        verdicts, total = await verify(kit)
        assert (verdicts[0].kind, verdicts[0].actual_sha256) == (FAIL, b"")
        assert total.ok is False


async def test_a_recovered_thread_is_verified(tmp_path: Path) -> None:
    async with open_kit(tmp_path) as kit:
        for number in range(3):
            await kit.save(f"{number}", writes=(write(b"w"),), label=f"{number}")
        await flush(kit)
        await kit.save_writes("1", write(b"late", task="u"))
        await kit.journal.prune_thread(TENANT, "t", PruneStrategy.KEEP_LATEST)
        catalog = await flush(kit)
        async with recovered_kit(tmp_path / "new", kit, catalog) as found:
            expected = {"0": RETRACTED, "1": RETRACTED, "2": PASS}
            assert await kinds(found) == expected
            await found.save("3", "2")
            await flush(found)
            assert await kinds(found) == {**expected, "3": PASS}


async def test_mismatches_are_counted(tmp_path: Path) -> None:
    reader = InMemoryMetricReader()
    async with open_kit(tmp_path, meters=MeterProvider([reader])) as kit:
        for number in range(3):
            await kit.save(f"{number}")
        await flush(kit)
        assert (await verify(kit))[1].ok
        assert "tuskpoint.archive.hash_mismatches" not in readings(reader)
        MemberFile.at(tmp_path / "blobs", (await kit.entry("1")).envelopes[0]).flip()
        head = await head_of(kit)
        [segment] = segment_files(tmp_path / "blobs", head)
        segment.flip()
        MemberFile.at(tmp_path / "blobs", (await kit.entry("2")).envelopes[0]).unlink()
        assert (await verify(kit))[1].counts == {PASS: 1, FAIL: 2}
        assert readings(reader)["tuskpoint.archive.hash_mismatches"] == [({}, 2)]


async def test_what_is_read_at_once_is_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verifying, "BATCH_ENVELOPES", 4)
    monkeypatch.setattr(verifying, "BATCH_BYTES", 3_000)
    async with open_kit(tmp_path) as kit:
        for number in range(20):
            content = random.Random(number).randbytes(4_000 if number == 9 else 400)
            await kit.save(f"{number:02}", content=content)
        await flush(kit)
        batches: list[Sequence[BlobLocation]] = []
        read = kit.blobs.get_many

        async def get_many(locations: Sequence[BlobLocation]) -> list[bytes]:
            batches.append(locations)
            return await read(locations)

        monkeypatch.setattr(kit.blobs, "get_many", get_many)
        assert (await verify(kit))[1].counts == {PASS: 20}
        assert len(batches) > 5
        for batch in batches:
            assert len(batch) <= 4
            assert len(batch) == 1 or sum(at.size for at in batch) <= 3_000


# --- Walrus --------------------------------------------------------------------------------


@pytest.fixture
async def emulator() -> AsyncIterator[WalrusEmulator]:
    async with WalrusEmulator() as running:
        yield running


@pytest.fixture
async def walrus(emulator: WalrusEmulator) -> AsyncIterator[WalrusStore]:
    async def no_pause(_: float) -> None:
        pass

    opened = WalrusStore(
        WalrusSettings(publishers=(emulator.url,), aggregators=(emulator.url,)), sleep=no_pause
    )
    yield opened
    await opened.close()


@pytest.mark.parametrize("apart", [False, True])
async def test_a_thread_on_walrus(
    tmp_path: Path, walrus: WalrusStore, emulator: WalrusEmulator, apart: bool
) -> None:
    async with open_kit(tmp_path, store=walrus, apart=apart) as kit:
        for number in range(20):
            await kit.save(f"{number:02}")
        await flush(kit)
        await kit.save_writes("07", write(b"late"))
        await flush(kit)
        assert (await verify(kit))[1].counts == {PASS: 20}
        emulator.ledger.advance(60)
        verdicts, total = await verify(kit)
        assert total.counts == {FAIL: 20}
        assert "segment 0" in total.chain_problem
        assert {verdict.actual_sha256 for verdict in verdicts} == {b""}


async def test_wrong_bytes_and_silence_on_walrus(
    tmp_path: Path, walrus: WalrusStore, emulator: WalrusEmulator
) -> None:
    async with open_kit(tmp_path, store=walrus) as kit:
        await kit.save("1")
        await flush(kit)
        corrupt = Fault(kind=FaultKind.CORRUPT)
        emulator.faults.add_chance(Operation.GET_PATCH, corrupt, 1.0)
        [verdict], total = await verify(kit)
        assert verdict.location is not None
        assert verdict.kind is FAIL
        assert verdict.actual_sha256 not in (b"", verdict.location.sha256)
        assert total.chain_problem != ""
        emulator.faults.clear()
        assert (await verify(kit))[1].ok
        emulator.faults.add_chance(Operation.GET_PATCH, replace(corrupt, kind=FaultKind.DROP), 1.0)
        with pytest.raises(Refusal) as refused:
            await verify(kit)
        assert refused.value.reason is Reason.BLOB_UNAVAILABLE
