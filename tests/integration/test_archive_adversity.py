"""Flushes in bad company: load that never ends, changes in between, damage, other settings."""

from __future__ import annotations

import gzip
import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import delete, insert

from tests.integration.archive_kit import TENANT, open_kit, write
from tests.integration.quilt_store import LIMITS, QuiltStore
from tests.integration.test_archive_packs import stored_everywhere
from tuskpoint_server.archive import encoding
from tuskpoint_server.archive.spool import Spool
from tuskpoint_server.blobs.api import Member, Receipt, StoreLimits
from tuskpoint_server.domain.catalog import Merge, Runs, encode_page
from tuskpoint_server.domain.digests import value_digest
from tuskpoint_server.domain.envelope import Envelope, encode_envelope
from tuskpoint_server.domain.errors import Reason, Refusal
from tuskpoint_server.domain.model import CheckpointKey, Value
from tuskpoint_server.journal import (
    archive_certify,
    archive_dirty,
    archive_packs,
    archive_status,
)
from tuskpoint_server.journal.archive_merges import merge_steps
from tuskpoint_server.journal.schema import contents, manifests

ROUNDS = 30
"""Puts during which changes keep coming; whoever waits must not wait for their end."""


class BusyStore(QuiltStore):
    """While it stores, others go on."""

    def __init__(
        self, meanwhile: Callable[[], Awaitable[object]], limits: StoreLimits = LIMITS
    ) -> None:
        super().__init__(limits)
        self._meanwhile = meanwhile
        self.rounds = 0

    async def put(self, members: Sequence[Member], *, apart: bool = False) -> Receipt:
        self.rounds += 1
        if self.rounds <= ROUNDS:
            await self._meanwhile()
        return await super().put(members, apart=apart)


def key(checkpoint_id: str, thread_id: str = "t") -> CheckpointKey:
    return CheckpointKey(thread_id, "", checkpoint_id)


async def test_waiter_is_served_while_more_keeps_coming_than_a_put_holds(tmp_path: Path) -> None:
    """A pack of everything never fits; what was stored before has to be told all the same."""
    noise = random.Random(11)
    number = 0

    async def save_more() -> None:
        nonlocal number
        for _ in range(8):
            number += 1
            await kit.save(f"{number:04}", content=noise.randbytes(7_000))

    store = BusyStore(save_more, replace(LIMITS, max_put_bytes=40_000))
    async with open_kit(tmp_path, store=store) as kit:
        await save_more()
        await kit.archive.certify(TENANT, key("0001"), 1)
        assert store.rounds <= 4  # its envelope, perhaps others, and the catalog


async def test_checkpoint_that_keeps_getting_writes_holds_nobody_up(tmp_path: Path) -> None:
    number = 0

    async def write_more() -> None:
        nonlocal number
        number += 1
        await kit.save_writes("hot", write(b"%d" % number, idx=number))

    store = BusyStore(write_more)
    async with open_kit(tmp_path, store=store, apart=True) as kit:
        await kit.save("hot")
        await kit.save("quiet", "hot")
        await kit.archive.certify(TENANT, key("quiet"), 1)
        assert store.rounds < ROUNDS
        await kit.archive.certify(TENANT, key("hot"), 1)
        await kit.archive.certify_all(TENANT)
        assert store.rounds < ROUNDS
        store.rounds = ROUNDS
        await kit.archive.certify_all(TENANT)
        await stored_everywhere(kit, {("t", "hot"): b"state", ("t", "quiet"): b"state"})


async def test_checkpoint_that_keeps_being_saved_again_holds_nobody_up(tmp_path: Path) -> None:
    number = 0

    async def save_again() -> None:
        nonlocal number
        number += 1
        await kit.save("hot", content=b"%d" % number)

    store = BusyStore(save_again)
    async with open_kit(tmp_path, store=store, apart=True) as kit:
        await kit.save("hot")
        await kit.save("quiet", "hot")
        await kit.archive.certify(TENANT, key("quiet"), 1)
        assert store.rounds < ROUNDS
        store.rounds = ROUNDS
        await kit.archive.certify_all(TENANT)
        await stored_everywhere(kit, {("t", "hot"): b"%d" % number, ("t", "quiet"): b"state"})


async def test_pack_over_the_limits_of_another_start_is_packed_anew(tmp_path: Path) -> None:
    store = QuiltStore()
    saved = {("t", f"{n:02}"): b"content %d" % n for n in range(30)}
    async with open_kit(tmp_path, store=store) as kit:
        for (_, checkpoint_id), content in saved.items():
            await kit.save(checkpoint_id, content=content)
        store.refuse = lambda _: True
        with pytest.raises(Refusal):
            await kit.archive.certify_all(TENANT)
        assert await kit.journal.query(archive_packs.unfinished) != []
    async with open_kit(tmp_path, store=QuiltStore(replace(LIMITS, max_members=6))) as kit:
        await kit.archive.certify_all(TENANT)
        await stored_everywhere(kit, saved)


async def test_final_pack_whose_segments_were_lost_is_packed_anew(tmp_path: Path) -> None:
    """They lay in blobs that ended while the server was down."""
    store = QuiltStore()
    saved = {(f"t{n:02}", "1"): b"content %d" % n for n in range(40)}
    async with open_kit(tmp_path, store=store) as kit:
        for (thread_id, checkpoint_id), content in saved.items():
            await kit.save(checkpoint_id, thread_id=thread_id, content=content)
        store.refuse = lambda members: any(member.kind == "catalog" for member in members)
        with pytest.raises(Refusal):
            await kit.archive.certify_all(TENANT)
    store.refuse = lambda _: False
    for blob_id in [one for one, held in store.blobs.items() if "segment" in str(held.values())]:
        del store.blobs[blob_id]
    async with open_kit(tmp_path, store=store) as kit:
        await kit.archive.certify_all(TENANT)
        await stored_everywhere(kit, saved)


async def test_pack_that_was_read_back_before_a_restart_is_read_once_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its blob may have ended while the server was down."""
    store = QuiltStore()

    def fail(*_: object) -> None:
        raise Refusal(Reason.JOURNAL_UNAVAILABLE, problem="as told")

    async with open_kit(tmp_path, store=store) as kit:
        await kit.save("1")
        with monkeypatch.context() as patched:
            patched.setattr(archive_certify, "certify", fail)
            with pytest.raises(Refusal):
                await kit.archive.certify_all(TENANT)
            await kit.archive.stop()
    store.blobs.clear()
    async with open_kit(tmp_path, store=store) as kit:
        await kit.archive.certify(TENANT, key("1"), 1)
        await stored_everywhere(kit, {("t", "1"): b"state"})


async def test_addenda_are_recorded_once_although_their_pack_settles_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = QuiltStore()
    async with open_kit(tmp_path, store=store, apart=True) as kit:
        await kit.save("1")
        await kit.archive.certify_all(TENANT)
        await kit.save_writes("1", write(b"late"))
        failures = iter([OSError("no")])
        remove = Spool.remove

        def fail_once(spool: Spool, name: str) -> None:
            for failure in failures:
                raise failure
            remove(spool, name)

        monkeypatch.setattr(Spool, "remove", fail_once)
        with pytest.raises(OSError, match="no"):
            await kit.archive.certify_all(TENANT)
        await kit.archive.certify_all(TENANT)
        assert len((await kit.entry("1")).envelopes) == 2
        await stored_everywhere(kit, {("t", "1"): b"state"})


@pytest.mark.parametrize("apart", [False, True])
async def test_checkpoint_that_cannot_be_built_is_set_aside_and_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, apart: bool
) -> None:
    def refuse_bad(envelope: Envelope) -> bytes:
        if envelope.key.checkpoint_id == "bad":
            raise ValueError("cannot be serialized")
        return encode_envelope(envelope)

    async with open_kit(tmp_path, store=QuiltStore(), apart=apart) as kit:
        await kit.save("bad")
        await kit.save("good", "bad")
        with monkeypatch.context() as patched:
            patched.setattr(encoding, "encode_envelope", refuse_bad)
            await kit.archive.certify(TENANT, key("good"), 1)
            with pytest.raises(Refusal) as refused:
                await kit.archive.certify(TENANT, key("bad"), 1)
            assert refused.value.reason is Reason.CERTIFICATION_FAILED
            with pytest.raises(Refusal) as refused:
                await kit.archive.certify_all(TENANT)
            assert refused.value.reason is Reason.CERTIFICATION_FAILED
            status = await kit.archive.status(TENANT)
            assert "'bad'" in status.last_error
            assert status.backlog_checkpoints == 1
        await kit.archive.certify_all(TENANT)
        assert (await kit.archive.status(TENANT)).last_error == ""
        await stored_everywhere(kit, {("t", "bad"): b"state", ("t", "good"): b"state"})


async def test_checkpoint_whose_content_is_lost_is_set_aside_until_it_is_saved_again(
    tmp_path: Path,
) -> None:
    async with open_kit(tmp_path, store=QuiltStore()) as kit:
        await kit.save("bad", content=b"lost")
        await kit.save("good", "bad", content=b"kept")
        lost = value_digest(Value("msgpack", b"lost"))
        await kit.journal.transact(
            lambda connection: connection.execute(delete(contents).where(contents.c.digest == lost))
        )
        await kit.archive.certify(TENANT, key("good"), 1)
        with pytest.raises(Refusal):
            await kit.archive.certify_all(TENANT)
        await kit.save("bad", content=b"sent anew")
        await kit.archive.certify_all(TENANT)
        await stored_everywhere(kit, {("t", "bad"): b"sent anew", ("t", "good"): b"kept"})


@pytest.mark.parametrize("apart", [False, True])
async def test_checkpoint_that_the_store_rejects_is_found_and_set_aside(
    tmp_path: Path, *, apart: bool
) -> None:
    def is_bad(member: Member) -> bool:
        return member.kind == "envelope" and b"forbidden" in gzip.decompress(member.data)

    store = QuiltStore()
    saved = {("t", f"{n:02}"): b"content %d" % n for n in range(20)}
    async with open_kit(tmp_path, store=store, apart=apart) as kit:
        for (_, checkpoint_id), content in saved.items():
            await kit.save(checkpoint_id, content=content)
            if checkpoint_id == "07":
                await kit.save("bad", content=b"forbidden")
        store.reject = lambda members: any(map(is_bad, members))
        for _, checkpoint_id in saved:
            await kit.archive.certify(TENANT, key(checkpoint_id), 1)
        await stored_everywhere(kit, saved)
        with pytest.raises(Refusal) as refused:
            await kit.archive.certify(TENANT, key("bad"), 1)
        assert refused.value.reason is Reason.CERTIFICATION_FAILED
        assert "'bad'" in (await kit.archive.status(TENANT)).last_error
        store.reject = lambda _: False
        await kit.archive.certify_all(TENANT)
        await stored_everywhere(kit, saved | {("t", "bad"): b"forbidden"})


async def test_deletion_makes_room_in_a_full_backlog_while_the_store_is_down(
    tmp_path: Path,
) -> None:
    store = QuiltStore()
    store.refuse = lambda _: True
    async with open_kit(
        tmp_path, store=store, soft_limit_bytes=20_000, hard_limit_bytes=50_000
    ) as kit:
        for number in range(6):
            await kit.save(f"{number}", content=b"%d" % number * 10_000)
        with pytest.raises(Refusal) as refused:
            kit.archive.admit(TENANT)
        assert refused.value.reason is Reason.BACKLOG_FULL
        await kit.journal.delete_thread(TENANT, "t")
        for _ in range(2):  # the first may have begun before the deletion
            with pytest.raises(Refusal):
                await kit.archive.certify_all(TENANT)
        kit.archive.admit(TENANT)


async def test_thread_of_which_nothing_was_told_leaves_nothing_waiting(tmp_path: Path) -> None:
    async with open_kit(tmp_path) as kit:
        await kit.save("1", metadata={"run_id": "r"})
        await kit.journal.set_retention(TENANT, "t", 60)
        await kit.journal.delete_runs(TENANT, ["r"])
        await kit.archive.certify_all(TENANT)
        waiting, oldest_us, tenants = await kit.journal.query(
            lambda connection: (
                archive_status.backlog(connection, TENANT),
                archive_status.oldest_waiting_us(connection, TENANT),
                archive_status.waiting_tenants(connection),
            )
        )
        assert (waiting.others, oldest_us, tenants) == (0, None, [])


async def test_pages_of_a_merge_fit_beside_the_catalog_however_long_the_names(
    tmp_path: Path,
) -> None:
    runs = Runs((), {0: Merge(9, (1,))}, 10)
    heads = [
        {
            "tenant": TENANT,
            "thread_id": f"{number:04}".ljust(512, "n"),
            "incarnation": 1,
            "generation": 1,
            "segment": 0,
            "records": 1,
            "open_segment": b"",
            "sha256": b"",
            "run": 1,
            "ended": True,
            "certified_us": 1,
        }
        for number in range(300)
    ]
    async with open_kit(tmp_path, start=False) as kit:
        await kit.journal.transact(lambda connection: connection.execute(insert(manifests), heads))
        for room, done in ((50_000, False), (0, False), (1 << 20, True)):
            [step] = await kit.journal.query(
                lambda connection, room=room: list(  # type: ignore[misc]
                    merge_steps(connection, TENANT, runs, 1000, room)
                )
            )
            assert len(encode_page(step.heads)) <= max(room, 1000)
            assert step.done is done
            assert 0 < len(step.heads) <= len(heads)


async def test_copy_of_a_thread_with_many_addenda_is_told_in_packs_that_fit(
    tmp_path: Path,
) -> None:
    """The new segments of one thread go into one pack: they refer to "this quilt"."""
    store = QuiltStore(replace(LIMITS, max_members=4, puts_at_once=16))
    saved = {("copy", f"{n:03}"): b"%d" % n for n in range(120)}
    async with open_kit(tmp_path, store=store) as kit:
        for (_, checkpoint_id), content in saved.items():
            await kit.save(checkpoint_id, content=content)
        for round_number in range(3):
            await kit.archive.certify_all(TENANT)
            for _, checkpoint_id in saved:
                await kit.save_writes(checkpoint_id, write(b"late", idx=round_number))
        await kit.archive.certify_all(TENANT)
        await kit.journal.copy_thread(TENANT, "t", "copy", "")
        await kit.archive.certify_all(TENANT)
        await stored_everywhere(kit, saved)


async def test_what_a_flush_reads_is_bounded_with_the_writes_of_copies(tmp_path: Path) -> None:
    bounds = archive_dirty.Bounds(100, 5_000)
    async with open_kit(tmp_path, start=False) as kit:
        for number in range(5):
            await kit.save(f"{number}", writes=(write(b"w" * 2_000),))
        await kit.journal.copy_thread(TENANT, "t", "copy", "")
        await kit.journal.delete_thread(TENANT, "t")
        filled, gathered = await kit.journal.query(
            lambda connection: (
                archive_dirty.collect_envelopes(connection, TENANT, bounds),
                archive_dirty.gather(connection, TENANT, bounds),
            )
        )
        assert len(filled.checkpoints) == len(gathered.found) == 2
