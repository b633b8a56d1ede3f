"""Counts of requests and costs."""

from __future__ import annotations

from dataclasses import dataclass, field

from ..encoding.geometry import units
from .results import Json


@dataclass(slots=True)
class Statistics:
    """Counters since the start of the ledger. Replace the object to reset the counters.

    Attributes:
        puts: Answered stores, by the answer's key ("newlyCreated", ...).
        failed_puts: Stores that the chain or the wallet refused.
        received_bytes: Content of all stores, in bytes before encoding.
        registrations: New registrations; each was billed.
        billed_bytes: Encoded size of the new registrations.
        billed_units: Encoded sizes in units of 1 MiB, each rounded up.
        cost: FROST spent, extensions included.
        reads: Reads by route.
        sent_bytes: Content sent to readers, by route.
    """

    puts: dict[str, int] = field(default_factory=dict)
    failed_puts: int = 0
    received_bytes: int = 0
    registrations: int = 0
    billed_bytes: int = 0
    billed_units: int = 0
    cost: int = 0
    reads: dict[str, int] = field(default_factory=dict)
    sent_bytes: dict[str, int] = field(default_factory=dict)

    def count_put(self, key: str) -> None:
        """Count a store's answer by its key."""
        self.puts[key] = self.puts.get(key, 0) + 1

    def count_registration(self, encoded_bytes: int) -> None:
        """Count a new registration and its bill."""
        self.registrations += 1
        self.billed_bytes += encoded_bytes
        self.billed_units += units(encoded_bytes)

    def count_read(self, route: str, sent: int) -> None:
        """Count a read of a route and the sent bytes of content."""
        self.reads[route] = self.reads.get(route, 0) + 1
        self.sent_bytes[route] = self.sent_bytes.get(route, 0) + sent

    def to_json(self) -> Json:
        """Return everything as one JSON object, in camelCase."""
        return {
            "puts": dict(self.puts),
            "failedPuts": self.failed_puts,
            "receivedBytes": self.received_bytes,
            "registrations": self.registrations,
            "billedBytes": self.billed_bytes,
            "billedUnits": self.billed_units,
            "cost": self.cost,
            "reads": dict(self.reads),
            "sentBytes": dict(self.sent_bytes),
        }
