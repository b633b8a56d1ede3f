"""The emulator's ledger answers stores as Walrus does, and refuses what Walrus refuses."""

from __future__ import annotations

import re

import pytest

from emulators.tests.walrus.ledger.kit import (
    DATA,
    ENCODED,
    FROM_SCRATCH,
    ID,
    TEXT,
    UNITS,
    ledger_at,
    operation_of,
    put,
)
from tuskpoint_emulators.walrus.ledger.chain import base58
from tuskpoint_emulators.walrus.ledger.state import BlobForbidden, BlobNotFound, EpochsOutOfRange


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
