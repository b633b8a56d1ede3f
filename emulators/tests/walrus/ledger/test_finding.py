"""A store pays only if the emulator's ledger has nothing to reuse."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

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
    stored,
)
from tuskpoint_emulators.walrus.ledger.results import ReuseStorage
from tuskpoint_emulators.walrus.ledger.state import AfterStore, BlobNotFound, StoreOptions

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
        {"first": {"permanent": True}},  # kept, but not of the requested kind
        {"first": {"epochs": 1}, "advance": 1},
    ],
    ids=["moved", "burnt", "sent", "shared", "permanent", "ended"],
)
def test_reuse_finds_nothing_that_the_sub_wallet_does_not_own(settings: dict[str, Any]) -> None:
    ledger = ledger_at(**{"after_store": AfterStore.KEEP} | settings.get("ledger", {}))
    put(ledger, **settings.get("first", {}))
    ledger.advance(settings.get("advance", 0))
    assert operation_of(put(ledger, reuse_resources=True)) == FROM_SCRATCH


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
            # In each case the blob lasts for the requested epochs.
            assert end >= ledger.clock.epoch + step.epochs
            latest = max(latest, end)
        if latest > ledger.clock.epoch:
            assert ledger.read(ID).end_epoch == latest
            assert ledger.blob_ids() == (ID,)
        else:
            with pytest.raises(BlobNotFound):
                ledger.read(ID)
