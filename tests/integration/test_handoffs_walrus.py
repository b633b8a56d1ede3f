"""Hand-offs over Walrus, as the emulator keeps it: blobs of their own, parts, epochs."""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import json
import os
import re
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import httpx
import pytest
from google.protobuf.json_format import MessageToDict

from emulators.tests.walrus.peer import until
from tests.integration.archive_kit import TENANT
from tests.integration.epoch_kit import EPOCH_S, EPOCH_US, EpochKit, open_epochs
from tuskpoint.v1 import checkpoint_pb2, handoff_pb2
from tuskpoint.v1 import handoff_service_pb2 as pb
from tuskpoint_emulators.walrus.blob_id import from_text
from tuskpoint_emulators.walrus.faults import Fault, FaultKind, Operation
from tuskpoint_emulators.walrus.server import WalrusEmulator
from tuskpoint_server.archive.handoffs import HandoffStore, StoredBundle
from tuskpoint_server.blobs.api import Member
from tuskpoint_server.blobs.walrus.pricing import encoded_bytes
from tuskpoint_server.blobs.walrus.settings import WalrusSettings
from tuskpoint_server.blobs.walrus.store import WalrusStore
from tuskpoint_server.domain.bundle import decode_bundle
from tuskpoint_server.domain.errors import Reason, Refusal
from tuskpoint_server.domain.lineage import Closure
from tuskpoint_server.domain.model import CheckpointKey
from tuskpoint_server.journal.handoffs import Handoffs
from tuskpoint_server.journal.lineage_calls import Lineage

from .handoff_kit import Side, content, incompressible, save_run
from .handoff_servers import side
from .messages import FIRST, SECOND, THREAD, refused

EPOCHS = 3
MIB = 1 << 20
LARGE = 20 * MIB

Code = grpc.StatusCode


@pytest.fixture
async def emulator() -> AsyncIterator[WalrusEmulator]:
    async with WalrusEmulator() as running:
        yield running


@pytest.fixture
async def store(emulator: WalrusEmulator) -> AsyncIterator[WalrusStore]:
    async def no_pause(_: float) -> None:
        pass

    settings = WalrusSettings(
        publishers=(emulator.url,), aggregators=(emulator.url,), epochs=EPOCHS, epoch_s=EPOCH_S
    )
    opened = WalrusStore(settings, sleep=no_pause)
    yield opened
    await opened.close()


@pytest.fixture
async def sides(tmp_path: Path, emulator: WalrusEmulator) -> AsyncIterator[tuple[Side, Side]]:
    """Two servers that have nothing in common but Walrus."""
    walrus = {
        "walrus_publisher_url": (emulator.url,),
        "walrus_aggregator_url": (emulator.url,),
    }
    async with (
        side(tmp_path / "giver", **walrus) as giver,
        side(tmp_path / "taker", **walrus) as taker,
    ):
        yield giver, taker


async def fetched(emulator: WalrusEmulator, blob_id: str) -> bytes:
    """Fetch a blob as anybody can."""
    async with httpx.AsyncClient(trust_env=False) as client:
        answer = await client.get(f"{emulator.url}/v1/blobs/{blob_id}")
    assert answer.status_code == 200
    return answer.content


# --- over the wire ---------------------------------------------------------------------


async def test_two_servers_share_nothing_but_walrus(
    sides: tuple[Side, Side], emulator: WalrusEmulator
) -> None:
    giver, taker = sides
    await save_run(giver)
    descriptor = await giver.hand_off()
    stored = await fetched(emulator, descriptor.blob_id)
    assert hashlib.sha256(stored).hexdigest() == descriptor.blob_sha256
    message = handoff_pb2.HandoffBundle.FromString(gzip.decompress(stored))
    assert message.ref.checkpoint_id == SECOND

    adoption = (await taker.adopt(descriptor))[-1].adoption
    assert adoption.blob_id not in ("", descriptor.blob_id)
    assert content(await taker.load("", "adopted")) == content(await giver.load(SECOND))
    assert await taker.history(SECOND, "adopted", "log") == await giver.history(
        SECOND, THREAD, "log"
    )
    proven = await taker.load("", "adopted", source=checkpoint_pb2.SOURCE_BLOB)
    assert proven.location.blob_id == adoption.blob_id


async def test_a_bundle_that_is_larger_than_a_blob_goes_in_parts(
    sides: tuple[Side, Side], emulator: WalrusEmulator
) -> None:
    giver, taker = sides
    await save_run(giver, LARGE)
    descriptor = await giver.hand_off()
    stored = await fetched(emulator, descriptor.blob_id)
    assert hashlib.sha256(stored).hexdigest() == descriptor.blob_sha256
    listed = json.loads(stored)
    assert len(listed["parts"]) == 3
    whole = b"".join([await fetched(emulator, part["blob_id"]) for part in listed["parts"]])
    assert hashlib.sha256(whole).hexdigest() == listed["sha256"]
    assert await giver.hand_off() == descriptor

    frames = await taker.adopt(descriptor)
    counts = [frame.fetched_bytes for frame in frames if frame.stage == pb.ADOPT_STAGE_FETCHING]
    assert counts == sorted(counts)
    assert len(counts) > LARGE // MIB // 2
    assert frames[-1].fetched_bytes == len(whole)
    assert content(await taker.load("", "adopted")) == content(await giver.load(SECOND))

    emulator.ledger.tamper(from_text(listed["parts"][1]["blob_id"]), whole[: 8 * MIB])
    told = await taker.refuses(descriptor, "again")
    assert (told.code, told.reason) == (Code.DATA_LOSS, "BLOB_HASH_MISMATCH")
    assert told.metadata["expected"] == listed["parts"][1]["sha256"]


async def test_a_changed_byte_is_refused_with_both_hashes(
    sides: tuple[Side, Side], emulator: WalrusEmulator
) -> None:
    giver, taker = sides
    await save_run(giver)
    descriptor = await giver.hand_off()
    stored = bytearray(await fetched(emulator, descriptor.blob_id))
    stored[20] ^= 1
    emulator.ledger.tamper(from_text(descriptor.blob_id), bytes(stored))
    told = await taker.refuses(descriptor)
    assert (told.code, told.reason) == (Code.DATA_LOSS, "BLOB_HASH_MISMATCH")
    assert told.metadata["expected"] == descriptor.blob_sha256
    assert told.metadata["actual"] == hashlib.sha256(stored).hexdigest()


async def test_a_blob_of_another_network_says_so(sides: tuple[Side, Side], tmp_path: Path) -> None:
    _, taker = sides
    async with side(tmp_path / "elsewhere") as elsewhere:
        await save_run(elsewhere)
        descriptor = await elsewhere.hand_off()
    told = await taker.refuses(descriptor)
    assert (told.code, told.reason) == (Code.NOT_FOUND, "BLOB_NOT_FOUND")
    assert told.metadata == {"blob_id": descriptor.blob_id, "backend": "walrus"}
    assert "'walrus'" in told.message


async def test_a_quilt_is_no_bundle(sides: tuple[Side, Side], emulator: WalrusEmulator) -> None:
    giver, taker = sides
    await save_run(giver)
    await giver.flush()
    descriptor = await giver.hand_off()
    quilt_id = (await giver.load(SECOND)).location.blob_id
    assert quilt_id != descriptor.blob_id
    raw = await fetched(emulator, quilt_id)
    descriptor.blob_id, descriptor.blob_sha256 = quilt_id, hashlib.sha256(raw).hexdigest()
    told = await taker.refuses(descriptor)
    assert (told.code, told.reason) == (Code.DATA_LOSS, "BLOB_MALFORMED")


async def test_what_walrus_refuses_is_not_handed_off(
    sides: tuple[Side, Side], emulator: WalrusEmulator
) -> None:
    giver, _ = sides
    await save_run(giver)
    emulator.faults.add(Operation.PUT_BLOB, Fault(kind=FaultKind.REFUSE, status=451))
    told = await refused(giver.hand_off(request_id="r"))
    assert (told.code, told.reason) == (Code.FAILED_PRECONDITION, "BLOB_REJECTED")
    assert (await giver.hand_off(request_id="r")).blob_id


# --- without a server ------------------------------------------------------------------

HANDBOOK = Path(__file__).parents[2] / "docs" / "handoff.md"
TOOLS = ("bash", "curl", "jq", "sha256sum")


def instructions(emulator: WalrusEmulator) -> tuple[str, str]:
    """Return what the handbook tells people to type: for a bundle, and for its parts."""
    blocks = re.findall(r"^```\w*\n(.*?)^```$", HANDBOOK.read_text(encoding="utf-8"), re.M | re.S)
    whole, parts = (block for block in blocks if "curl " in block)
    aggregator = f"AGGREGATOR={emulator.url}\n"
    return aggregator + whole.partition("\n")[2], aggregator + parts


async def typed(commands: str, folder: Path) -> int:
    shell = await asyncio.create_subprocess_exec(
        *("bash", "-c", commands), cwd=folder, env={**os.environ, "no_proxy": "127.0.0.1"}
    )
    return await shell.wait()


@pytest.mark.skipif(not all(map(shutil.which, TOOLS)), reason=f"not all of {TOOLS} are here")
async def test_anybody_can_check_a_descriptor_by_hand(
    sides: tuple[Side, Side], emulator: WalrusEmulator, tmp_path: Path
) -> None:
    giver, _ = sides
    whole, parts = instructions(emulator)
    await save_run(giver, LARGE)
    descriptors = [await giver.hand_off(FIRST), await giver.hand_off()]
    for descriptor in descriptors:
        as_json = MessageToDict(descriptor, preserving_proto_field_name=True)
        (tmp_path / "descriptor.json").write_text(json.dumps(as_json))
        assert await typed(whole, tmp_path) == 0
    assert await typed(parts, tmp_path) == 0
    found = handoff_pb2.HandoffBundle.FromString(gzip.decompress((tmp_path / "whole").read_bytes()))
    assert found.ref.checkpoint_id == SECOND

    listed = json.loads((tmp_path / "bundle").read_bytes())
    emulator.ledger.tamper(from_text(listed["parts"][1]["blob_id"]), b"other bytes")
    assert await typed(parts, tmp_path) != 0
    emulator.ledger.tamper(from_text(descriptors[1].blob_id), b"other bytes")
    assert await typed(whole, tmp_path) != 0


# --- the store -------------------------------------------------------------------------


def _member(data: bytes) -> Member:
    return Member(hashlib.sha256(data).digest(), data)


async def closure_of(kit: EpochKit, checkpoint_id: str) -> Closure:
    found = await Lineage(kit.journal).closure(TENANT, CheckpointKey("t", "", checkpoint_id))
    assert found is not None
    return found


async def hand_off(kit: EpochKit, checkpoint_id: str) -> StoredBundle:
    closure = await closure_of(kit, checkpoint_id)
    bundle = await kit.archive.handoffs.store(closure)
    await Handoffs(kit.journal, kit.archive.expiry).keep_handoff(
        TENANT, closure.key, bundle.location, bundle.parts, bundle.blobs, "", b"", b""
    )
    return bundle


async def readable(kit: EpochKit, bundle: StoredBundle) -> bool:
    try:
        data = await kit.archive.handoffs.fetch(bundle.location, lambda count: None)
    except Refusal as refusal:
        if refusal.reason is Reason.BLOB_NOT_FOUND:
            return False
        raise
    decode_bundle(data, "")
    return True


async def test_a_store_that_is_down_is_told_and_nothing_is_kept(
    tmp_path: Path, emulator: WalrusEmulator, store: WalrusStore
) -> None:
    async with open_epochs(tmp_path, epochs=EPOCHS, blobs=store) as kit:
        await kit.save("1")
        emulator.faults.add_chance(
            Operation.PUT_BLOB, Fault(kind=FaultKind.REFUSE, status=503), 1.0
        )
        with pytest.raises(Refusal) as caught:
            await hand_off(kit, "1")
        assert caught.value.reason is Reason.BLOB_UNAVAILABLE
        assert await kit.rows() == set()


async def test_what_cannot_be_read_back_was_not_handed_off(
    tmp_path: Path, emulator: WalrusEmulator, store: WalrusStore
) -> None:
    async with open_epochs(tmp_path, epochs=EPOCHS, blobs=store) as kit:
        await kit.save("1")
        for fault in (
            Fault(kind=FaultKind.CORRUPT),
            Fault(kind=FaultKind.SHORT),
            Fault(kind=FaultKind.REFUSE, status=404),
        ):
            emulator.faults.add_chance(Operation.GET_BLOB, fault, 1.0)
            with pytest.raises(Refusal) as caught:
                await hand_off(kit, "1")
            assert caught.value.reason is Reason.BLOB_UNAVAILABLE
            emulator.faults.clear()
        kit.blobs.change_read = lambda _, data: data + b"more"
        with pytest.raises(Refusal) as caught:
            await hand_off(kit, "1")
        assert caught.value.reason is Reason.BLOB_UNAVAILABLE
        assert "holds other bytes" in caught.value.message
        assert await kit.rows() == set()
        kit.blobs.change_read = lambda _, data: data
        assert await readable(kit, await hand_off(kit, "1"))


async def test_one_wrong_answer_of_an_aggregator_is_asked_for_again(
    tmp_path: Path, emulator: WalrusEmulator, store: WalrusStore
) -> None:
    async with open_epochs(tmp_path, epochs=EPOCHS, blobs=store) as kit:
        await kit.save("1", content=incompressible(4 * MIB))
        bundle = await hand_off(kit, "1")
        counts: list[int] = []
        emulator.faults.add(Operation.GET_BLOB, Fault(kind=FaultKind.CORRUPT))
        data = await kit.archive.handoffs.fetch(bundle.location, counts.append)
        assert hashlib.sha256(data).digest() == bundle.location.sha256
        assert counts.count(len(data)) == 2


async def test_half_of_the_puts_are_left_to_flushes(
    tmp_path: Path, emulator: WalrusEmulator, store: WalrusStore
) -> None:
    puts = store.limits.puts_at_once
    async with open_epochs(tmp_path, epochs=EPOCHS, blobs=store) as kit:
        for number in range(puts):
            await kit.save(f"{number}")
        emulator.faults.add(Operation.PUT_BLOB, Fault(kind=FaultKind.HOLD), times=puts)
        made = [asyncio.create_task(hand_off(kit, f"{number}")) for number in range(puts)]
        async with asyncio.timeout(30):
            await until(lambda: emulator.faults.held == puts // 2)
            await kit.certify()
        assert emulator.faults.held == puts // 2
        emulator.faults.clear()
        emulator.faults.release()
        assert len({bundle.location for bundle in await asyncio.gather(*made)}) == puts


async def test_a_list_of_parts_that_lies_is_refused(store: WalrusStore) -> None:
    handoffs = HandoffStore(store)
    part = (await store.put([_member(b"x" * 100)], apart=True)).locations[0]
    for size, claimed, told in ((100, 99, "do not make up"), (99, 99, "has 100 bytes")):
        listed = json.dumps(
            {
                "format_version": 1,
                "kind": "parts",
                "sha256": part.sha256.hex(),
                "size_bytes": claimed,
                "parts": [
                    {
                        "sha256": part.sha256.hex(),
                        "size_bytes": size,
                        "blob_id": part.blob_id,
                        "identifier": "",
                    }
                ],
            }
        ).encode()
        [location] = (await store.put([_member(listed)], apart=True)).locations
        with pytest.raises(Refusal) as caught:
            await handoffs.fetch(location, lambda count: None)
        assert caught.value.reason is Reason.BLOB_MALFORMED
        assert told in caught.value.message


# --- how long they last ----------------------------------------------------------------


@pytest.mark.parametrize("size", [10, LARGE], ids=["whole", "parts"])
async def test_a_bundle_is_renewed_as_long_as_its_thread_lives(
    tmp_path: Path, emulator: WalrusEmulator, store: WalrusStore, size: int
) -> None:
    async with open_epochs(tmp_path, epochs=EPOCHS, blobs=store) as kit:
        await kit.save("1", content=incompressible(size))
        bundle = await hand_off(kit, "1")
        assert await kit.rows() == {blob.blob_id for blob in bundle.blobs}
        assert len(bundle.blobs) == (1 if size == 10 else 4)
        for _ in range(2 * EPOCHS):
            emulator.ledger.advance()
            kit.clock.now_us += EPOCH_US
            done = await kit.archive.renewer.renew_now()
            assert done.failed == 0
            assert await readable(kit, bundle)
        detail = await kit.journal.thread(TENANT, "t")
        assert detail is not None
        assert detail.expire_us is not None

        await kit.journal.delete_thread(TENANT, "t")
        for _ in range(EPOCHS + 2):
            emulator.ledger.advance()
            kit.clock.now_us += EPOCH_US
            await kit.archive.renewer.renew_now()
        assert not await readable(kit, bundle)
        assert await kit.rows() == set()


@pytest.mark.parametrize("size", [10, LARGE], ids=["whole", "parts"])
async def test_a_bundle_that_is_lost_is_told_and_given_up(
    tmp_path: Path,
    emulator: WalrusEmulator,
    store: WalrusStore,
    size: int,
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with open_epochs(tmp_path, epochs=EPOCHS, blobs=store) as kit:
        await kit.save("1", content=incompressible(size))
        bundle = await hand_off(kit, "1")
        # Nothing renews it in time, then it is gone. The clock is behind: it might be a lie.
        emulator.ledger.advance(EPOCHS)
        kit.clock.now_us += round((EPOCHS - 1.5) * EPOCH_US)
        done = await kit.archive.renewer.renew_now()
        assert (done.failed, done.bundles_lost) == (len(bundle.blobs), 0)
        assert kit.archive.renewer.failing(TENANT) == len(bundle.blobs)

        kit.clock.now_us += 2 * EPOCH_US
        done = await kit.archive.renewer.renew_now()
        assert done.bundles_lost == 1
        assert "LOST: the bundle of a hand-off of checkpoint '1'" in caplog.text
        assert kit.archive.renewer.failing(TENANT) == 0
        done = await kit.archive.renewer.renew_now()
        assert (done.failed, done.bundles_lost) == (0, 0)

        # The checkpoint is as it was; handing it off again is all it takes.
        again = await hand_off(kit, "1")
        assert again.location == bundle.location
        assert await readable(kit, again)


async def test_a_bundle_that_is_wrong_is_tried_until_its_end_and_no_longer(
    tmp_path: Path, emulator: WalrusEmulator, store: WalrusStore
) -> None:
    async with open_epochs(tmp_path, epochs=EPOCHS, blobs=store) as kit:
        await kit.save("1")
        bundle = await hand_off(kit, "1")
        emulator.ledger.tamper(from_text(bundle.location.blob_id), b"other bytes")
        emulator.ledger.advance(EPOCHS - 1)
        kit.clock.now_us += round((EPOCHS - 0.6) * EPOCH_US)
        done = await kit.archive.renewer.renew_now()
        assert (done.failed, done.bundles_lost) == (1, 0)
        assert kit.archive.renewer.failing(TENANT) == 1
        emulator.ledger.advance(1)
        kit.clock.now_us += EPOCH_US
        done = await kit.archive.renewer.renew_now()
        assert (done.failed, done.bundles_lost) == (1, 1)
        assert kit.archive.renewer.failing(TENANT) == 0


async def test_a_publisher_that_is_down_loses_no_bundle(
    tmp_path: Path, emulator: WalrusEmulator, store: WalrusStore
) -> None:
    async with open_epochs(tmp_path, epochs=EPOCHS, blobs=store) as kit:
        await kit.save("1")
        bundle = await hand_off(kit, "1")
        emulator.faults.add_chance(
            Operation.PUT_BLOB, Fault(kind=FaultKind.REFUSE, status=503), 1.0
        )
        emulator.ledger.advance(EPOCHS - 1)
        kit.clock.now_us += round((EPOCHS - 0.6) * EPOCH_US)
        done = await kit.archive.renewer.renew_now()
        assert (done.failed, done.bundles_lost) == (1, 0)
        emulator.faults.clear()
        done = await kit.archive.renewer.renew_now()
        assert (done.renewed, done.bundles_lost) == (1, 0)
        emulator.ledger.advance(EPOCHS - 1)
        assert await readable(kit, bundle)


async def test_a_bundle_of_a_few_bytes_is_billed_as_one_small_blob(
    tmp_path: Path, emulator: WalrusEmulator, store: WalrusStore
) -> None:
    async with open_epochs(tmp_path, epochs=EPOCHS, blobs=store) as kit:
        await kit.save("1")
        for _ in range(2):  # what is stored already costs nothing
            await hand_off(kit, "1")
        status = await kit.archive.status(TENANT)
        assert status.billed_bytes == emulator.ledger.statistics.billed_bytes == encoded_bytes(1)
