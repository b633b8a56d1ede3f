"""Times as people type them. Pure."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

_LENGTH = re.compile(r"([1-9][0-9]{0,9})([smhd])")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


def length_of(text: object) -> timedelta:
    """Return a length of time.

    Raises:
        ValueError: It is no text, or no length of time.
    """
    match = _LENGTH.fullmatch(text) if isinstance(text, str) else None
    if match is not None:
        try:
            return timedelta(**{_UNITS[match[2]]: int(match[1])})
        except OverflowError:
            raise ValueError(f"{text!r} is too long a time") from None
    raise ValueError(f"{text!r} is not a time such as 45s, 30m, 12h or 90d")


def time_of(text: str, now: datetime) -> datetime:
    """Return the time that lies this long before now, or that is written in ISO 8601.

    Without a time zone it is in that of this machine.

    Raises:
        ValueError: The text is neither, or the time is before the year 1.
    """
    try:
        if _LENGTH.fullmatch(text):
            return now - length_of(text)
        return datetime.fromisoformat(text).astimezone(UTC)
    except (ValueError, OverflowError):
        raise ValueError(f"{text!r} is not a time such as 12h, 7d or 2026-03-01T09:30") from None
