"""The error of a schedule that broke a promise."""

from __future__ import annotations


class Violation(AssertionError):
    """A broken promise."""


def check(holds: bool, *what: object) -> None:
    """Raise a violation unless a condition is true."""
    if not holds:
        raise Violation(" ".join(str(part)[:600] for part in what))
