"""The Walrus store follows Walrus's rules, payments and epochs on the emulator."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from tests.kit.blobs.stores import many, member
from tests.kit.blobs.walrus_stores import SECRET, EmulatorKit
from tests.kit.drafts import refused
from tuskpoint_emulators.walrus.encoding.geometry import MAINNET
from tuskpoint_emulators.walrus.faults import Fault, FaultKind, Operation, Stage
from tuskpoint_emulators.walrus.requests.auth import AuthSettings
from tuskpoint_emulators.walrus.requests.cdn import CdnSettings
from tuskpoint_emulators.walrus.server import WalrusEmulator
from tuskpoint_server.blobs.api import BlobMember
from tuskpoint_server.blobs.walrus.store import (
    MAX_MEMBER_BYTES,
    MAX_MEMBERS,
)
from tuskpoint_server.core.errors import Reason


@pytest.fixture
async def kit() -> AsyncIterator[EmulatorKit]:
    kit = EmulatorKit()
    yield kit
    await kit.end()


async def test_whole_way_of_a_pack(kit: EmulatorKit) -> None:
    emulator = await kit.emulator()
    store = kit.store(emulator)
    members = [*many(30, "segment"), member(b"", "catalog"), member(b"plain")]
    receipt = await store.put(members)
    [blob] = receipt.blobs
    assert blob.billed_bytes == emulator.ledger.statistics.billed_bytes == MAINNET.encoded_bytes(1)
    assert blob.cost == emulator.ledger.statistics.cost > 0
    assert blob.end_epoch == emulator.ledger.clock.epoch + 5
    assert blob.object_id
    assert await store.get_many(receipt.locations) == [each.data for each in members]
    assert [await store.get(place) for place in receipt.locations] == [
        each.data for each in members
    ]
    listed = await store.list_blob(blob.blob_id)
    assert {item.location.sha256: item.kind for item in listed} == {
        each.sha256: each.kind for each in members
    }


@pytest.mark.parametrize(
    "members",
    [
        many(MAX_MEMBERS, "segment"),
        [member(bytes(MAX_MEMBER_BYTES)), *many(20)],
    ],
    ids=["members", "bytes"],
)
async def test_limits_are_those_of_walrus(kit: EmulatorKit, members: list[BlobMember]) -> None:
    emulator = await kit.emulator()
    store = kit.store(emulator)
    receipt = await store.put(members)
    assert await store.get_many(receipt.locations) == [each.data for each in members]
    [blob] = receipt.blobs
    assert blob.billed_bytes == emulator.ledger.statistics.billed_bytes


async def test_largest_member_fits_a_blob_of_its_own(kit: EmulatorKit) -> None:
    emulator = await kit.emulator()
    store = kit.store(emulator)
    largest = member(bytes(MAX_MEMBER_BYTES))
    [location] = (await store.put([largest, member(b"")], standalone=True)).locations[:1]
    assert location.identifier == ""
    assert await store.get(location) == largest.data
    [listed] = await store.list_blob(location.blob_id)
    assert listed.location.sha256 == largest.sha256


STORE_FAULTS = {
    "dropped": Fault(kind=FaultKind.DROP),
    "dropped when paid": Fault(kind=FaultKind.DROP, stage=Stage.REGISTERED),
    "dropped when stored": Fault(kind=FaultKind.DROP, stage=Stage.CERTIFIED),
    "cut when stored": Fault(kind=FaultKind.CUT, stage=Stage.CERTIFIED),
    "unconfirmed": Fault(kind=FaultKind.REFUSE, status=504, stage=Stage.REGISTERED),
    "unconfirmed, yet stored": Fault(kind=FaultKind.REFUSE, status=504, stage=Stage.CERTIFIED),
    "internal, yet stored": Fault(kind=FaultKind.REFUSE, status=500, stage=Stage.CERTIFIED),
    "busy": Fault(kind=FaultKind.REFUSE, status=429),
    "gateway, yet stored": Fault(kind=FaultKind.GATEWAY, status=502, stage=Stage.CERTIFIED),
    "error in a 200": Fault(kind=FaultKind.ERROR_RESULT, stage=Stage.REGISTERED),
    "out of WAL": Fault(kind=FaultKind.OUT_OF_WAL),
    "hidden": Fault(kind=FaultKind.HIDE, hidden_reads=5),
}


@pytest.mark.parametrize("standalone", [False, True], ids=["quilt", "standalone"])
@pytest.mark.parametrize("fault", STORE_FAULTS.values(), ids=STORE_FAULTS)
async def test_store_survives_a_fault(kit: EmulatorKit, fault: Fault, standalone: bool) -> None:
    emulator = await kit.emulator()
    store = kit.store(emulator)
    emulator.faults.add(Operation.PUT_BLOB if standalone else Operation.PUT_QUILT, fault)
    [location] = (await store.put([member(b"content")], standalone=standalone)).locations
    assert await store.get(location) == b"content"
    certified = fault.stage is Stage.CERTIFIED or fault.kind is FaultKind.HIDE
    if certified:  # the second put found the blob of the first put
        assert emulator.ledger.statistics.billed_bytes == MAINNET.encoded_bytes(1)


READ_FAULTS = {
    "dropped": Fault(kind=FaultKind.DROP),
    "cut": Fault(kind=FaultKind.CUT),
    "short": Fault(kind=FaultKind.SHORT),
    "corrupt": Fault(kind=FaultKind.CORRUPT),
    "unavailable": Fault(kind=FaultKind.REFUSE, status=503),
    "busy": Fault(kind=FaultKind.REFUSE, status=429),
    "gateway": Fault(kind=FaultKind.GATEWAY, status=502),
}


async def test_many_faults_at_once(kit: EmulatorKit) -> None:
    first, second = await kit.emulator(seed=7), await kit.emulator()
    faults = first.faults
    for fault in STORE_FAULTS.values():
        if fault.kind is not FaultKind.OUT_OF_WAL:
            faults.add_chance(Operation.PUT_QUILT, fault, 0.03)
    for fault in READ_FAULTS.values():
        faults.add_chance(Operation.GET_PATCH, fault, 0.03)
        faults.add_chance(Operation.GET_BLOB, fault, 0.03)
    store = kit.store(first, second, put_budget_s=1e6, get_budget_s=1e6)

    async def put_and_read(number: int) -> None:
        members = [member(b"%d of %d" % (each, number)) for each in range(10)]
        receipt = await store.put(members)
        assert await store.get_many(receipt.locations) == [each.data for each in members]
        assert await store.get(receipt.locations[4]) == members[4].data

    await asyncio.gather(*(put_and_read(number) for number in range(25)))
    assert sum(faults.injected.values()) > 10


async def test_renewal_outlives_the_first_end(kit: EmulatorKit) -> None:
    emulator = await kit.emulator()
    store = kit.store(emulator, epochs=3)
    quilt = await store.put(many(5, "segment"))
    alone = await store.put([member(b"alone")], standalone=True)
    emulator.ledger.advance(2)
    for receipt in (quilt, alone):
        renewed = await store.renew(receipt.blobs[0].blob_id)
        assert renewed.blobs[0].blob_id == receipt.blobs[0].blob_id
        assert renewed.blobs[0].end_epoch == emulator.ledger.clock.epoch + 3
        assert renewed.blobs[0].billed_bytes > 0
        assert set(renewed.locations) == set(receipt.locations)
    emulator.ledger.advance(2)
    assert await store.get(quilt.locations[4]) == b"member 4"
    assert await store.get(alone.locations[0]) == b"alone"
    [kind] = {listed.kind for listed in await store.list_blob(quilt.blobs[0].blob_id)}
    assert kind == "segment"
    emulator.ledger.advance(1)
    later = kit.store(emulator)
    await refused(later.get(quilt.locations[4]), Reason.BLOB_NOT_FOUND)
    await refused(later.list_blob(alone.blobs[0].blob_id), Reason.BLOB_NOT_FOUND)


async def test_an_empty_wallet_is_reported(kit: EmulatorKit) -> None:
    emulator = await kit.emulator(balance=0)
    refusal = await refused(kit.store(emulator).put(many(1)), Reason.BLOB_UNAVAILABLE)
    assert "WAL" in refusal.message


async def test_publisher_that_asks_for_tokens(kit: EmulatorKit) -> None:
    emulator = await kit.emulator(
        auth=AuthSettings(secret=SECRET, expiring_s=60, verify_upload=True)
    )
    store = kit.store(emulator, jwt_secret=SECRET, send_object_to="0x" + "AB" * 32)
    emulator.faults.add(
        Operation.PUT_QUILT,
        Fault(kind=FaultKind.DROP, stage=Stage.CERTIFIED),
        Fault(kind=FaultKind.REFUSE, status=504),
    )
    for members in (many(3), [member(bytes(3 << 20))], many(MAX_MEMBERS)):
        receipt = await store.put(members)
        await store.put(members[:1], standalone=True)
        assert await store.get(receipt.locations[0]) == members[0].data
    for settings, problem in (
        ({}, "whether it requires tokens"),
        ({"jwt_secret": SECRET[::-1]}, "JWT secret"),
        ({"jwt_secret": SECRET, "jwt_lifetime_s": 61}, "JWT secret, algorithm and lifetime"),
    ):
        refusal = await refused(
            kit.store(emulator, **settings).put(many(4)), Reason.BLOB_UNAVAILABLE
        )
        assert problem in refusal.message


async def test_cache_that_holds_an_earlier_absence(kit: EmulatorKit) -> None:
    emulator = await kit.emulator(cdn=CdnSettings())
    store = kit.store(emulator)
    sample = member(b"content")
    for standalone in (False, True):
        # Before the upload, only a client that stored the blob elsewhere knows the ID.
        elsewhere = WalrusEmulator()
        async with elsewhere:
            [location] = (await kit.store(elsewhere).put([sample], standalone=standalone)).locations
        await refused(store.get(location), Reason.BLOB_NOT_FOUND)
        assert (await store.put([sample], standalone=standalone)).locations == (location,)
        assert await store.get(location) == b"content"
        await refused(kit.store(emulator).get(location), Reason.BLOB_NOT_FOUND)
