"""An emulated Walrus as a measure sees it, and what Walrus charges for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Self

import httpx

PUT_SECONDS = 5.0
"""What a PUT takes: Walrus needs 3 to 25 s, whatever the size up to about 10 MB."""

EPOCHS = 5
_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Bill:
    """What a publisher has stored and charged for.

    Attributes:
        puts: PUTs that were answered with success.
        billed_bytes: Encoded size of the blobs that were charged for.
    """

    puts: int
    billed_bytes: int


@dataclass(frozen=True, slots=True)
class Walrus:
    """A running emulator.

    Attributes:
        url: Where its publisher and its aggregator are reached.
    """

    url: str
    _http: httpx.Client

    @classmethod
    @contextmanager
    def reached(cls, url: str) -> Iterator[Self]:
        """Keep connections to an emulator at hand."""
        with httpx.Client(base_url=url, timeout=_SECONDS, trust_env=False) as http:
            yield cls(url, http)

    @property
    def settings(self) -> Mapping[str, str]:
        """What makes a server of TuskPoint store there."""
        return {
            "TUSKPOINT_WALRUS_PUBLISHER_URL": self.url,
            "TUSKPOINT_WALRUS_AGGREGATOR_URL": self.url,
            "TUSKPOINT_WALRUS_EPOCHS": str(EPOCHS),
            "TUSKPOINT_PUBLIC": "true",
        }

    def bill(self) -> Bill:
        """Return what it has stored and charged for so far."""
        ledger = self._ledger()
        return Bill(sum(ledger["puts"].values()), ledger["billedBytes"])

    def reads(self) -> int:
        """Return how many reads it has answered so far."""
        return sum(self._ledger()["reads"].values())

    def put(self, data: bytes) -> int:
        """Store a blob as a plain client does; return the encoded bytes that are charged for."""
        answer = self._http.put("/v1/blobs", params={"epochs": EPOCHS}, content=data)
        stored: dict[str, Any] = answer.raise_for_status().json()
        operation = stored["newlyCreated"]["resourceOperation"]
        encoded: int = operation["registerFromScratch"]["encodedLength"]
        return encoded

    def _ledger(self) -> dict[str, Any]:
        answer = self._http.get("/emulator/statistics").raise_for_status()
        ledger: dict[str, Any] = answer.json()["ledger"]
        return ledger


def encoded_bytes(size: int) -> int:
    """Return what Walrus charges for a blob, by its size in bytes.

    From the encoding's configuration, `crates/walrus-core/src/encoding/config.rs` of
    MystenLabs/walrus: a matrix of 334 x 667 symbols of an even size; each of 1000 shards
    keeps a row, a column and the metadata.
    """
    symbol = -(-max(size, 1) // (334 * 667))
    symbol += symbol % 2
    return 1000 * (64 * 1000 + 32) + 1000 * (334 + 667) * symbol
