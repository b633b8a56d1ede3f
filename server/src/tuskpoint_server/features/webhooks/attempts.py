"""The outcome of an attempt to post an event."""

from __future__ import annotations

from typing import NamedTuple


class Attempt(NamedTuple):
    """The outcome of an attempt."""

    status: int = 0  # of the answer; 0 without an answer
    problem: str = ""  # for people; empty if the webhook accepted the payload
    retry_after_s: float = 0.0  # seconds that the webhook asked to wait
    is_final: bool = False  # whether the webhook asked for no further attempts
    seconds: float = 0.0

    @property
    def accepted(self) -> bool:
        """Whether the webhook accepted the payload."""
        return not self.problem
