"""What a schedule ends with that broke a promise."""

from __future__ import annotations


class Violation(AssertionError):
    """A promise was broken."""


def check(holds: bool, *what: object) -> None:
    """Raise a violation unless something holds."""
    if not holds:
        raise Violation(" ".join(str(part)[:600] for part in what))
