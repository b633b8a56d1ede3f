"""An emulated Walrus for measures, and Walrus's charges."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Self

import httpx

PUT_SECONDS = 5.0
"""Seconds of a PUT: Walrus needs 3 to 25 s for any size up to about 10 MB."""

EPOCHS = 5
_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Bill:
    """Counts and charges of a publisher.

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
        url: The URL of its publisher and its aggregator.
    """

    url: str
    _http: httpx.Client

    @classmethod
    @contextmanager
    def reached(cls, url: str) -> Iterator[Self]:
        """Keep connections to an emulator open inside the context."""
        with httpx.Client(base_url=url, timeout=_SECONDS, trust_env=False) as http:
            yield cls(url, http)

    @property
    def settings(self) -> Mapping[str, str]:
        """The settings with which a TuskPoint server stores in the emulator."""
        return {
            "TUSKPOINT_WALRUS_PUBLISHER_URL": self.url,
            "TUSKPOINT_WALRUS_AGGREGATOR_URL": self.url,
            "TUSKPOINT_WALRUS_EPOCHS": str(EPOCHS),
            "TUSKPOINT_PUBLIC": "true",
        }

    def bill(self) -> Bill:
        """Return the present bill."""
        ledger = self._ledger()
        return Bill(sum(ledger["puts"].values()), ledger["billedBytes"])

    def reads(self) -> int:
        """Return the number of answered reads."""
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
    """Return the encoded bytes of a blob, which Walrus charges, by its size in bytes.

    From the encoding's configuration, `crates/walrus-core/src/encoding/config.rs` of
    MystenLabs/walrus: a matrix of 334 x 667 symbols of an even size; each of 1000 shards
    keeps a row, a column and the metadata.
    """
    symbol = -(-max(size, 1) // (334 * 667))
    symbol += symbol % 2
    return 1000 * (64 * 1000 + 32) + 1000 * (334 + 667) * symbol
