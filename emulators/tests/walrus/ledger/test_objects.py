"""Objects on the emulator's ledger belong to the receiver of a store, who may change them."""

from __future__ import annotations

from typing import Any

import pytest

from emulators.tests.walrus.ledger.kit import DATA, ID, UNITS, ledger_at, put
from tuskpoint_emulators.walrus.encoding.blob_id import fast_blob_id
from tuskpoint_emulators.walrus.ledger.state import (
    AfterStore,
    BlobNotFound,
    EpochsOutOfRange,
    ObjectNotFound,
    ShareNeedsPermanent,
    StoreFailedError,
    StoreOptions,
)

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
    (blob_object,) = ledger.objects(ID)
    assert blob_object.attributes == {"_walrusBlobType": "quilt", "content-type": "text/plain"}
    assert ledger.read(ID).is_quilt


# --- what owners do on the chain ------------------------------------------------------------------


def test_extending_costs_storage_only() -> None:
    ledger = ledger_at()
    object_id = put(ledger, 5, permanent=True)["newlyCreated"]["blobObject"]["id"]
    cost = ledger.statistics.cost
    assert ledger.extend_object(object_id, 3).end_epoch == 108
    assert ledger.statistics.cost - cost == UNITS * 100_000 * 3
    assert ledger.read(ID).end_epoch == 108
    with pytest.raises(EpochsOutOfRange):
        ledger.extend_object(object_id, 46)
    assert ledger.extend_object(object_id, 45).end_epoch == 153


def test_only_certified_objects_are_extended() -> None:
    ledger = ledger_at()
    blob_object = ledger.register(ID, DATA, StoreOptions(epochs=5))
    with pytest.raises(StoreFailedError):
        ledger.extend_object(blob_object.id, 1)


def test_deleting_the_last_object_takes_the_content() -> None:
    ledger = ledger_at()
    object_ids = [put(ledger)["newlyCreated"]["blobObject"]["id"] for _ in range(2)]
    ledger.delete_object(object_ids[0])
    assert ledger.read(ID).data == DATA
    ledger.delete_object(object_ids[1])
    with pytest.raises(BlobNotFound):
        ledger.read(ID)
    with pytest.raises(ObjectNotFound):
        ledger.delete_object(object_ids[1])


def test_permanent_objects_are_not_deleted() -> None:
    ledger = ledger_at()
    object_id = put(ledger, permanent=True)["newlyCreated"]["blobObject"]["id"]
    with pytest.raises(StoreFailedError):
        ledger.delete_object(object_id)
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
