"""Counts of requests and memories."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True)
class Statistics:
    """Counters since the relayer started.

    Attributes:
        requests: Requests by method, route and outcome.
        calls: Admitted calls by operation: with a valid signature and within the limits.
        points: Points that admitted calls took, by operation, also while limits are off.
        accepted: Accepted texts, by text; each acceptance is a job of its own.
        stored: Stored texts, by text; more than one is a duplicate.
    """

    requests: Counter[str] = field(default_factory=Counter)
    calls: Counter[str] = field(default_factory=Counter)
    points: Counter[str] = field(default_factory=Counter)
    accepted: Counter[str] = field(default_factory=Counter)
    stored: Counter[str] = field(default_factory=Counter)

    @property
    def duplicates(self) -> dict[str, int]:
        """The texts that are stored more than once, with their counts."""
        return {text: count for text, count in self.stored.items() if count > 1}

    def to_json(self) -> dict[str, Any]:
        """Return everything as one JSON object."""
        return {
            "requests": dict(sorted(self.requests.items())),
            "calls": dict(sorted(self.calls.items())),
            "points": dict(sorted(self.points.items())),
            "points_spent": self.points.total(),
            "accepted": dict(self.accepted),
            "stored": dict(self.stored),
        }
