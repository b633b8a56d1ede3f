"""The emulator's ledger answers stores as Walrus does, and forgets what has ended."""

from __future__ import annotations

import re
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuskpoint_emulators.walrus.blob_id import fast_blob_id, to_text
from tuskpoint_emulators.walrus.chain import base58
from tuskpoint_emulators.walrus.clock import EpochClock
from tuskpoint_emulators.walrus.geometry import (
    MAINNET,
    MAX_SYMBOL_BYTES,
    BlobTooLarge,
    Geometry,
    Prices,
    units,
)
from tuskpoint_emulators.walrus.results import ReuseStorage, StoreResult
from tuskpoint_emulators.walrus.state import (
    AfterStore,
    BlobForbidden,
    BlobNotFound,
    EpochsOutOfRange,
    Ledger,
    ObjectNotFound,
    OutOfWal,
    ShareNeedsPermanent,
    StoreFailed,
    StoreOptions,
)

DATA = b"what is stored"
ID = fast_blob_id(DATA)
TEXT = to_text(ID)
ENCODED = 66_034_000
UNITS = 63
FROM_SCRATCH = "registerFromScratch"


def ledger_at(epoch: int = 100, **settings: Any) -> Ledger:
    return Ledger(clock=EpochClock(epoch), **settings)


def put(ledger: Ledger, epochs: int = 5, data: bytes = DATA, **options: Any) -> dict[str, Any]:
    """Store and return the answer as JSON."""
    return stored(ledger, epochs, data, **options).to_json()


def stored(ledger: Ledger, epochs: int = 5, data: bytes = DATA, **options: Any) -> StoreResult:
    return ledger.store(fast_blob_id(data), data, StoreOptions(epochs=epochs, **options))


def operation_of(answer: dict[str, Any]) -> str:
    (name,) = answer["newlyCreated"]["resourceOperation"]
    return str(name)


# --- sizes and prices -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("size", "symbol", "encoded", "billed_units"),
    [
        (0, 2, 66_034_000, 63),
        (1, 2, 66_034_000, 63),
        (445_556, 2, 66_034_000, 63),
        (445_557, 4, 68_036_000, 65),
        (1 << 20, 6, 70_038_000, 67),
        (1_782_224, 8, 72_040_000, 69),
        (10 << 20, 48, 112_080_000, 107),
        (100 << 20, 472, 536_504_000, 512),
        (1 << 30, 4820, 4_888_852_000, 4663),
    ],
)
def test_sizes_on_mainnet(size: int, symbol: int, encoded: int, billed_units: int) -> None:
    assert MAINNET.symbol_bytes(size) == symbol
    assert MAINNET.encoded_bytes(size) == encoded
    assert units(encoded) == billed_units


def test_shape_of_networks() -> None:
    shapes = {n: (Geometry(n).rows, Geometry(n).columns) for n in (4, 7, 10, 100, 1000)}
    assert shapes == {4: (2, 3), 7: (3, 5), 10: (4, 7), 100: (34, 67), 1000: (334, 667)}


def test_largest_blobs() -> None:
    assert MAINNET.max_blob_bytes == 14_599_533_452
    assert Geometry(10).max_blob_bytes == 1_834_952
    assert MAINNET.symbol_bytes(MAINNET.max_blob_bytes) == MAX_SYMBOL_BYTES
    with pytest.raises(BlobTooLarge):
        MAINNET.encoded_bytes(MAINNET.max_blob_bytes + 1)


@pytest.mark.parametrize("shards", [-1, 0, 3, 1001])
def test_no_such_network(shards: int) -> None:
    with pytest.raises(ValueError, match="shards"):
        Geometry(shards)


def test_price_of_a_store() -> None:
    ledger = ledger_at(prices=Prices(storage=7, write=3), balance=1_000_000)
    answer = put(ledger, epochs=4)
    assert answer["newlyCreated"]["cost"] == UNITS * (7 * 4 + 3)
    assert ledger.balance == 1_000_000 - UNITS * 31
    assert ledger.statistics.cost == UNITS * 31


# --- the answers ----------------------------------------------------------------------------------


def test_first_store() -> None:
    ledger = ledger_at()
    answer = put(ledger)
    created = answer["newlyCreated"]
    blob_object = created["blobObject"]
    assert answer == {
        "newlyCreated": {
            "blobObject": {
                "id": blob_object["id"],
                "registeredEpoch": 100,
                "blobId": TEXT,
                "size": len(DATA),
                "encodingType": "RS2",
                "certifiedEpoch": None,
                "storage": {
                    "id": blob_object["storage"]["id"],
                    "startEpoch": 100,
                    "endEpoch": 105,
                    "storageSize": ENCODED,
                },
                "deletable": True,
            },
            "resourceOperation": {FROM_SCRATCH: {"encodedLength": ENCODED, "epochsAhead": 5}},
            "cost": UNITS * (100_000 * 5 + 20_000),
        }
    }
    assert re.fullmatch(r"0x[0-9a-f]{64}", blob_object["id"])
    assert blob_object["storage"]["id"] != blob_object["id"]
    assert ledger.read(ID).data == DATA


def test_event_of_what_is_already_certified() -> None:
    ledger = ledger_at()
    put(ledger, permanent=True)
    answer = put(ledger, permanent=True)
    event = answer["alreadyCertified"]["event"]
    assert answer == {"alreadyCertified": {"blobId": TEXT, "endEpoch": 105, "event": event}}
    assert set(event) == {"txDigest", "eventSeq"}
    assert event["eventSeq"] == "0"
    assert re.fullmatch(r"[1-9A-HJ-NP-Za-km-z]{43,44}", event["txDigest"])


def test_base58() -> None:
    assert base58(b"Hello World!") == "2NEpo7TZRRrLZSi2U"
    assert base58(b"\0\0(\x7f\xb4\xcd") == "11233QC4"


# --- what a store finds (permanent, deletable, force) ---------------------------------------------


def test_permanent_found_permanent_for_as_long() -> None:
    ledger = ledger_at()
    put(ledger, 5, permanent=True)
    cost = ledger.statistics.cost
    for epochs in (5, 4, 1):
        assert put(ledger, epochs, permanent=True)["alreadyCertified"]["endEpoch"] == 105
    assert ledger.statistics.cost == cost
    assert len(ledger.objects(ID)) == 1


def test_permanent_found_permanent_of_someone_else() -> None:
    ledger = ledger_at()
    put(ledger, 5, permanent=True, send_object_to="0xsomeone")
    assert "event" in put(ledger, 5, permanent=True)["alreadyCertified"]


def test_permanent_found_permanent_but_shorter() -> None:
    ledger = ledger_at()
    first = put(ledger, 5, permanent=True)
    second = put(ledger, 6, permanent=True)
    assert operation_of(second) == FROM_SCRATCH
    assert second["newlyCreated"]["cost"] > first["newlyCreated"]["cost"]
    assert second["newlyCreated"]["blobObject"]["storage"]["endEpoch"] == 106
    # The blob now lasts as long as the longer object; that one is what is found next.
    assert put(ledger, 5, permanent=True)["alreadyCertified"]["endEpoch"] == 106


def test_permanent_found_shorter_because_time_passed() -> None:
    ledger = ledger_at()
    put(ledger, 5, permanent=True)
    ledger.advance()
    assert operation_of(put(ledger, 5, permanent=True)) == FROM_SCRATCH


def test_permanent_found_only_deletable() -> None:
    ledger = ledger_at()
    put(ledger, 50)
    assert operation_of(put(ledger, 5, permanent=True)) == FROM_SCRATCH


def test_deletable_ends_do_not_count_for_permanent() -> None:
    ledger = ledger_at()
    put(ledger, 5, permanent=True)
    put(ledger, 50)
    assert put(ledger, 5, permanent=True)["alreadyCertified"]["endEpoch"] == 105
    assert operation_of(put(ledger, 6, permanent=True)) == FROM_SCRATCH


def test_permanent_found_only_registered() -> None:
    ledger = ledger_at()
    ledger.register(ID, DATA, StoreOptions(epochs=5, permanent=True))
    assert operation_of(put(ledger, 5, permanent=True)) == FROM_SCRATCH


@pytest.mark.parametrize("permanent_before", [False, True])
def test_deletable_is_charged_every_time(permanent_before: bool) -> None:
    ledger = ledger_at()
    put(ledger, 50, permanent=permanent_before)
    answers = [put(ledger, 5) for _ in range(3)]
    assert [operation_of(answer) for answer in answers] == [FROM_SCRATCH] * 3
    assert len({answer["newlyCreated"]["blobObject"]["id"] for answer in answers}) == 3
    assert {answer["newlyCreated"]["blobObject"]["blobId"] for answer in answers} == {TEXT}
    assert ledger.statistics.registrations == 4


@pytest.mark.parametrize("permanent", [False, True])
def test_force_always_certifies_anew(permanent: bool) -> None:
    ledger = ledger_at(after_store=AfterStore.KEEP)
    put(ledger, 50, permanent=permanent)
    for reuse in (False, True):
        answer = put(ledger, 5, permanent=permanent, force=True, reuse_resources=reuse)
        assert operation_of(answer) == FROM_SCRATCH


def test_force_with_reuse_takes_what_is_only_registered() -> None:
    ledger = ledger_at(after_store=AfterStore.KEEP)
    registered = ledger.register(ID, DATA, StoreOptions(epochs=5, permanent=True))
    answer = put(ledger, 5, permanent=True, force=True, reuse_resources=True)
    assert operation_of(answer) == "reuseRegistration"
    assert answer["newlyCreated"]["blobObject"]["id"] == registered.id


# --- what a store finds (reuse_resources) ---------------------------------------------------------


def test_reuse_of_a_certified_object_that_is_long_enough() -> None:
    ledger = ledger_at(after_store=AfterStore.KEEP)
    owned = put(ledger, 5)["newlyCreated"]["blobObject"]["id"]
    answer = put(ledger, 5, reuse_resources=True)
    assert answer == {"alreadyCertified": {"blobId": TEXT, "object": owned, "endEpoch": 105}}


@pytest.mark.parametrize("permanent", [False, True])
def test_reuse_of_a_certified_object_that_is_too_short(permanent: bool) -> None:
    ledger = ledger_at(after_store=AfterStore.KEEP)
    owned = put(ledger, 5, permanent=permanent)["newlyCreated"]["blobObject"]["id"]
    ledger.advance(2)
    answer = put(ledger, 5, permanent=permanent, reuse_resources=True)["newlyCreated"]
    assert answer["resourceOperation"] == {
        "reuseAndExtend": {"encodedLength": ENCODED, "epochsExtended": 2}
    }
    assert answer["blobObject"]["id"] == owned
    assert answer["blobObject"]["certifiedEpoch"] == 100
    assert answer["blobObject"]["storage"]["endEpoch"] == 107
    assert answer["cost"] == UNITS * 100_000 * 2
    assert len(ledger.objects(ID)) == 1
    assert ledger.read(ID).end_epoch == 107


def test_reuse_of_a_registration_that_is_long_enough() -> None:
    ledger = ledger_at()
    owned = ledger.register(ID, DATA, StoreOptions(epochs=5))
    answer = put(ledger, 5, reuse_resources=True)["newlyCreated"]
    assert answer["resourceOperation"] == {"reuseRegistration": {"encodedLength": ENCODED}}
    assert (answer["blobObject"]["id"], answer["cost"]) == (owned.id, 0)
    assert answer["blobObject"]["certifiedEpoch"] is None
    assert ledger.read(ID).data == DATA


def test_reuse_of_a_registration_that_is_too_short() -> None:
    ledger = ledger_at()
    owned = ledger.register(ID, DATA, StoreOptions(epochs=5))
    answer = put(ledger, 8, reuse_resources=True)["newlyCreated"]
    assert answer["resourceOperation"] == {
        "reuseAndExtendNonCertified": {"encodedLength": ENCODED, "epochsExtended": 3}
    }
    assert answer["blobObject"]["id"] == owned.id
    assert answer["blobObject"]["certifiedEpoch"] is None
    assert answer["blobObject"]["storage"]["endEpoch"] == 108
    assert answer["cost"] == UNITS * 100_000 * 3


def test_reuse_of_storage_that_a_deleted_object_left() -> None:
    ledger = ledger_at(after_store=AfterStore.KEEP)
    ledger.delete_object(put(ledger, 9)["newlyCreated"]["blobObject"]["id"])
    other = b"something else"
    too_long = stored(ledger, 10, other, reuse_resources=True)
    assert operation_of(too_long.to_json()) == FROM_SCRATCH
    answer = put(ledger, 5, b"a third thing", reuse_resources=True)["newlyCreated"]
    assert answer["resourceOperation"] == ReuseStorage(ENCODED).to_json()
    assert answer["cost"] == UNITS * 20_000
    assert answer["blobObject"]["storage"]["endEpoch"] == 109
    assert operation_of(put(ledger, 5, b"a fourth", reuse_resources=True)) == FROM_SCRATCH


@pytest.mark.parametrize(
    "settings",
    [
        {"ledger": {"after_store": AfterStore.MAIN_WALLET}},
        {"ledger": {"after_store": AfterStore.BURN}},
        {"first": {"send_object_to": "0xsomeone"}},
        {"first": {"permanent": True, "share": True}},
        {"first": {"permanent": True}},  # kept, but not of the kind that is asked for
        {"first": {"epochs": 1}, "advance": 1},
    ],
    ids=["moved", "burnt", "sent", "shared", "permanent", "ended"],
)
def test_reuse_finds_nothing_that_the_sub_wallet_does_not_own(settings: dict[str, Any]) -> None:
    ledger = ledger_at(**{"after_store": AfterStore.KEEP} | settings.get("ledger", {}))
    put(ledger, **settings.get("first", {}))
    ledger.advance(settings.get("advance", 0))
    assert operation_of(put(ledger, reuse_resources=True)) == FROM_SCRATCH


# --- what becomes of the object -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("after_store", "options", "owner"),
    [
        (AfterStore.MAIN_WALLET, {}, "main_wallet"),
        (AfterStore.KEEP, {}, "sub_wallet"),
    ],
)
def test_owner(after_store: AfterStore, options: dict[str, Any], owner: str) -> None:
    ledger = ledger_at(after_store=after_store)
    put(ledger, **options)
    assert ledger.objects(ID)[0].owner == getattr(ledger, owner)


def test_object_sent_to_an_address() -> None:
    ledger = ledger_at()
    put(ledger, send_object_to="0xabc")
    assert ledger.objects(ID)[0].owner == "0xabc"


def test_shared_object() -> None:
    ledger = ledger_at()
    created = put(ledger, permanent=True, share=True)["newlyCreated"]
    shared = created["sharedBlobObject"]
    assert shared != created["blobObject"]["id"]
    assert ledger.object_by_id(shared).id == created["blobObject"]["id"]
    assert ledger.read_object(shared)[1].data == DATA


def test_only_permanent_blobs_are_shared() -> None:
    ledger = ledger_at()
    with pytest.raises(ShareNeedsPermanent):
        put(ledger, share=True)
    assert ledger.statistics.cost == 0


def test_burnt_object_leaves_the_content() -> None:
    ledger = ledger_at(after_store=AfterStore.BURN)
    burnt = put(ledger)["newlyCreated"]["blobObject"]["id"]
    with pytest.raises(ObjectNotFound):
        ledger.object_by_id(burnt)
    with pytest.raises(ObjectNotFound):
        ledger.extend_object(burnt, 1)
    assert ledger.read(ID).data == DATA
    ledger.advance(5)
    with pytest.raises(BlobNotFound):
        ledger.read(ID)


def test_attributes() -> None:
    ledger = ledger_at()
    ledger.store(ID, DATA, StoreOptions(), is_quilt=True, attributes={"content-type": "text/plain"})
    (held,) = ledger.objects(ID)
    assert held.attributes == {"_walrusBlobType": "quilt", "content-type": "text/plain"}
    assert ledger.read(ID).is_quilt


# --- refusals -------------------------------------------------------------------------------------


@pytest.mark.parametrize("epochs", [0, 54])
def test_epochs_out_of_range(epochs: int) -> None:
    ledger = ledger_at()
    with pytest.raises(EpochsOutOfRange):
        put(ledger, epochs)
    assert ledger.statistics.cost == 0
    assert ledger.statistics.failed_puts == 1


@pytest.mark.parametrize("epochs", [1, 53])
def test_epochs_in_range(epochs: int) -> None:
    assert operation_of(put(ledger_at(), epochs)) == FROM_SCRATCH


def test_out_of_wal() -> None:
    price = Prices().of_store(ENCODED, 5)
    ledger = ledger_at(balance=2 * price - 1)
    put(ledger, 5)
    with pytest.raises(OutOfWal):
        put(ledger, 5)
    assert ledger.balance == price - 1
    assert len(ledger.objects(ID)) == 1
    ledger.balance = price
    put(ledger, 5)
    assert ledger.balance == 0


def test_out_of_wal_does_not_touch_what_is_free() -> None:
    ledger = ledger_at(balance=Prices().of_store(ENCODED, 5))
    put(ledger, 5, permanent=True)
    assert ledger.balance == 0
    assert "alreadyCertified" in put(ledger, 5, permanent=True)


def test_blocked() -> None:
    ledger = ledger_at()
    put(ledger)
    ledger.block(ID)
    answer = put(ledger, permanent=True, force=True)
    assert set(answer) == {"error"}
    assert answer["error"]["blobId"] == TEXT
    assert set(answer["error"]) == {"blobId", "failurePhase", "errorMsg"}
    with pytest.raises(BlobForbidden):
        ledger.read(ID)
    ledger.unblock(ID)
    assert ledger.read(ID).data == DATA


def test_marked_invalid() -> None:
    ledger = ledger_at()
    ledger.mark_invalid(ID)
    answer = put(ledger, permanent=True)
    assert set(answer["markedInvalid"]) == {"blobId", "event"}
    with pytest.raises(BlobNotFound):
        ledger.read(ID)


# --- time -----------------------------------------------------------------------------------------


def test_gone_at_the_start_of_the_end_epoch() -> None:
    ledger = ledger_at()
    put(ledger, 2)
    ledger.advance()
    assert ledger.read(ID).end_epoch == 102
    ledger.advance()
    with pytest.raises(BlobNotFound):
        ledger.read(ID)
    assert ledger.blob_ids() == ()
    assert ledger.objects(ID) == ()


def test_the_latest_end_of_any_object_counts() -> None:
    ledger = ledger_at()
    put(ledger, 2)
    put(ledger, 9)
    put(ledger, 4, permanent=True)
    ledger.advance(8)
    assert ledger.read(ID).data == DATA
    ledger.advance()
    with pytest.raises(BlobNotFound):
        ledger.read(ID)


def test_stored_again_after_its_end() -> None:
    ledger = ledger_at()
    put(ledger, 1, permanent=True)
    ledger.advance()
    assert operation_of(put(ledger, 1, permanent=True)) == FROM_SCRATCH
    assert ledger.read(ID).end_epoch == 102


def test_a_registration_alone_is_not_readable() -> None:
    ledger = ledger_at()
    ledger.register(ID, DATA, StoreOptions(epochs=5))
    assert ledger.statistics.billed_bytes == ENCODED
    with pytest.raises(BlobNotFound):
        ledger.read(ID)
    assert ledger.blob_ids() == ()


def test_epochs_by_wall_time() -> None:
    seconds = 0.0
    clock = EpochClock(7, epoch_s=10, now=lambda: seconds)
    ledger = Ledger(clock=clock)
    put(ledger, 2)
    seconds = 19.9
    assert clock.epoch == 8
    assert ledger.read(ID).data == DATA
    seconds = 20.0
    assert clock.epoch == 9
    with pytest.raises(BlobNotFound):
        ledger.read(ID)
    assert ledger.advance(3) == 12


def test_content_that_ended_by_wall_time_is_let_go() -> None:
    seconds = 0.0
    ledger = Ledger(clock=EpochClock(epoch_s=10, now=lambda: seconds))
    content = bytes(bytearray(DATA))
    before = sys.getrefcount(content)
    ledger.store(ID, content, StoreOptions())
    assert sys.getrefcount(content) > before
    seconds = 10.0
    put(ledger, 1, b"the next store")
    assert sys.getrefcount(content) == before


def test_delayed_visibility() -> None:
    seconds = 0.0
    ledger = Ledger(clock=EpochClock(now=lambda: seconds))
    ledger.store(ID, DATA, StoreOptions(), visible_after_s=3)
    with pytest.raises(BlobNotFound):
        ledger.read(ID)
    seconds = 3.0
    assert ledger.read(ID).data == DATA
    # What can be seen stays so, however slow the next store.
    ledger.store(ID, DATA, StoreOptions(), visible_after_s=3)
    assert ledger.read(ID).data == DATA


def test_clocks_refuse_nonsense() -> None:
    with pytest.raises(ValueError, match="epoch"):
        EpochClock(epoch_s=0)
    with pytest.raises(ValueError, match="epochs"):
        EpochClock().advance(-1)


# --- what owners do on the chain ------------------------------------------------------------------


def test_extending_costs_storage_only() -> None:
    ledger = ledger_at()
    held = put(ledger, 5, permanent=True)["newlyCreated"]["blobObject"]["id"]
    cost = ledger.statistics.cost
    assert ledger.extend_object(held, 3).end_epoch == 108
    assert ledger.statistics.cost - cost == UNITS * 100_000 * 3
    assert ledger.read(ID).end_epoch == 108
    with pytest.raises(EpochsOutOfRange):
        ledger.extend_object(held, 46)
    assert ledger.extend_object(held, 45).end_epoch == 153


def test_only_certified_objects_are_extended() -> None:
    ledger = ledger_at()
    held = ledger.register(ID, DATA, StoreOptions(epochs=5))
    with pytest.raises(StoreFailed):
        ledger.extend_object(held.id, 1)


def test_deleting_the_last_object_takes_the_content() -> None:
    ledger = ledger_at()
    held = [put(ledger)["newlyCreated"]["blobObject"]["id"] for _ in range(2)]
    ledger.delete_object(held[0])
    assert ledger.read(ID).data == DATA
    ledger.delete_object(held[1])
    with pytest.raises(BlobNotFound):
        ledger.read(ID)
    with pytest.raises(ObjectNotFound):
        ledger.delete_object(held[1])


def test_permanent_objects_are_not_deleted() -> None:
    ledger = ledger_at()
    held = put(ledger, permanent=True)["newlyCreated"]["blobObject"]["id"]
    with pytest.raises(StoreFailed):
        ledger.delete_object(held)
    assert ledger.read(ID).data == DATA


def test_unknown_object() -> None:
    with pytest.raises(ObjectNotFound):
        ledger_at().read_object("0x" + "0" * 64)


def test_tampering() -> None:
    ledger = ledger_at()
    put(ledger, permanent=True)
    ledger.tamper(ID, b"something else")
    assert ledger.read(ID).data == b"something else"
    with pytest.raises(BlobNotFound):
        ledger.tamper(fast_blob_id(b"unknown"), b"")


# --- counting -------------------------------------------------------------------------------------


def test_statistics() -> None:
    ledger = ledger_at(prices=Prices(storage=1, write=1))
    put(ledger, 1, permanent=True)
    put(ledger, 1, permanent=True)
    put(ledger, 2, bytes(445_557))
    with pytest.raises(EpochsOutOfRange):
        put(ledger, 0, b"refused")
    ledger.statistics.count_read("/v1/blobs", 10)
    ledger.statistics.count_read("/v1/blobs", 5)
    assert ledger.statistics.to_json() == {
        "puts": {"newlyCreated": 2, "alreadyCertified": 1},
        "failedPuts": 1,
        "receivedBytes": 2 * len(DATA) + 445_557 + len(b"refused"),
        "registrations": 2,
        "billedBytes": 66_034_000 + 68_036_000,
        "billedUnits": 63 + 65,
        "cost": 63 * 2 + 65 * 3,
        "reads": {"/v1/blobs": 2},
        "sentBytes": {"/v1/blobs": 15},
    }


# --- any history ----------------------------------------------------------------------------------

requests = st.builds(
    StoreOptions,
    epochs=st.integers(1, 6),
    permanent=st.booleans(),
    force=st.booleans(),
    reuse_resources=st.booleans(),
)
steps = st.lists(st.one_of(requests, st.integers(1, 3)), max_size=25)


@given(steps, st.sampled_from(AfterStore))
def test_any_history_of_one_blob(history: list[Any], after_store: AfterStore) -> None:
    ledger = ledger_at(after_store=after_store)
    latest = 0
    for step in history:
        if isinstance(step, int):
            ledger.advance(step)
        else:
            cost = ledger.statistics.cost
            answer = ledger.store(ID, DATA, step).to_json()
            (key,) = answer
            if key == "newlyCreated":
                end = answer[key]["blobObject"]["storage"]["endEpoch"]
                assert answer[key]["cost"] == ledger.statistics.cost - cost
            else:
                end = answer[key]["endEpoch"]
                assert ledger.statistics.cost == cost
                assert not step.force
                assert step.permanent or step.reuse_resources
            # Whatever was found, the blob lasts for as long as was asked.
            assert end >= ledger.clock.epoch + step.epochs
            latest = max(latest, end)
        if latest > ledger.clock.epoch:
            assert ledger.read(ID).end_epoch == latest
            assert ledger.blob_ids() == (ID,)
        else:
            with pytest.raises(BlobNotFound):
                ledger.read(ID)
