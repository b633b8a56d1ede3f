"""A ledger, and stores of one blob."""

from __future__ import annotations

from typing import Any

from tuskpoint_emulators.walrus.encoding.blob_id import fast_blob_id, to_text
from tuskpoint_emulators.walrus.ledger.clock import EpochClock
from tuskpoint_emulators.walrus.ledger.results import StoreResult
from tuskpoint_emulators.walrus.ledger.state import Ledger, StoreOptions

DATA = b"what is stored"
ID = fast_blob_id(DATA)
TEXT = to_text(ID)
ENCODED = 66_034_000
UNITS = 63
FROM_SCRATCH = "registerFromScratch"


def ledger_at(epoch: int = 100, **settings: Any) -> Ledger:
    return Ledger(clock=EpochClock(epoch), **settings)


def put(ledger: Ledger, epochs: int = 5, data: bytes = DATA, **options: Any) -> dict[str, Any]:
    """Store a blob and return the answer as JSON."""
    return stored(ledger, epochs, data, **options).to_json()


def stored(ledger: Ledger, epochs: int = 5, data: bytes = DATA, **options: Any) -> StoreResult:
    return ledger.store(fast_blob_id(data), data, StoreOptions(epochs=epochs, **options))


def operation_of(answer: dict[str, Any]) -> str:
    (name,) = answer["newlyCreated"]["resourceOperation"]
    return str(name)
