"""What was asked of the relayer and what it remembers."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True)
class Statistics:
    """Counters since the relayer began.

    Attributes:
        requests: Requests by method, route and outcome.
        calls: Calls by operation that were let in: signed well and within the limits.
        points: Points that those took, by operation, whether limits hold or not.
        accepted: Texts that were accepted, by text: each is a job of its own.
        stored: Texts that came to be stored, by text: more than one is a duplicate.
    """

    requests: Counter[str] = field(default_factory=Counter)
    calls: Counter[str] = field(default_factory=Counter)
    points: Counter[str] = field(default_factory=Counter)
    accepted: Counter[str] = field(default_factory=Counter)
    stored: Counter[str] = field(default_factory=Counter)

    @property
    def duplicates(self) -> dict[str, int]:
        """How often each text is stored that is stored more than once."""
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
