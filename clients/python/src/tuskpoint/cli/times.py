"""Times in the form in which people type them. Pure."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

_LENGTH = re.compile(r"([1-9][0-9]{0,9})([smhd])")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


def length_of(text: object) -> timedelta:
    """Return a typed duration.

    Raises:
        ValueError: The value is not a text, or not a duration.
    """
    match = _LENGTH.fullmatch(text) if isinstance(text, str) else None
    if match is not None:
        try:
            return timedelta(**{_UNITS[match[2]]: int(match[1])})
        except OverflowError:
            raise ValueError(f"{text!r} is too long a time") from None
    raise ValueError(f"{text!r} is not a time such as 45s, 30m, 12h or 90d")


def time_of(text: str, now: datetime) -> datetime:
    """Return a time from its distance before now, or from ISO 8601.

    A time without a time zone is in this machine's time zone.

    Raises:
        ValueError: The text is neither, or the time is before the year 1.
    """
    try:
        if _LENGTH.fullmatch(text):
            return now - length_of(text)
        return datetime.fromisoformat(text).astimezone(UTC)
    except (ValueError, OverflowError):
        raise ValueError(f"{text!r} is not a time such as 12h, 7d or 2026-03-01T09:30") from None
