"""The emulator's ledger charges what Walrus does, and counts it."""

from __future__ import annotations

import pytest

from emulators.tests.walrus.ledger.kit import DATA, ENCODED, ID, UNITS, ledger_at, put
from tuskpoint_emulators.walrus.encoding.geometry import (
    MAINNET,
    MAX_SYMBOL_BYTES,
    BlobTooLarge,
    Geometry,
    Prices,
    units,
)
from tuskpoint_emulators.walrus.ledger.state import EpochsOutOfRange, OutOfWal


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
