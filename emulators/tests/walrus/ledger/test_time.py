"""The emulator's ledger drops ended blobs, by epochs and by wall time."""

from __future__ import annotations

import sys

import pytest

from emulators.tests.walrus.ledger.kit import (
    DATA,
    ENCODED,
    FROM_SCRATCH,
    ID,
    ledger_at,
    operation_of,
    put,
)
from tuskpoint_emulators.walrus.ledger.clock import EpochClock
from tuskpoint_emulators.walrus.ledger.state import BlobNotFound, Ledger, StoreOptions


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
    # A visible blob stays visible, even if the next store is slow.
    ledger.store(ID, DATA, StoreOptions(), visible_after_s=3)
    assert ledger.read(ID).data == DATA


def test_clocks_refuse_nonsense() -> None:
    with pytest.raises(ValueError, match="epoch"):
        EpochClock(epoch_s=0)
    with pytest.raises(ValueError, match="epochs"):
        EpochClock().advance(-1)
