"""Spelling of times, sizes and texts for people. Pure."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

_SHORT_ID = 18  # the three groups of a UUIDv6 that contain its time, to 100 nanoseconds
_UUID = 36
_JOINER = "\u200d"  # joins the parts of an emoji
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")
_MINUTE, _HOUR, _DAY = 60, 3600, 86400


def now() -> datetime:
    """Return the current time, aware."""
    return datetime.now(UTC)


def ago(moment: datetime | None, at: datetime | None = None) -> str:
    """Return the distance of a time in words, past or future; empty for no time.

    Args:
        moment: The time.
        at: Reference time. Default: now.
    """
    if moment is None:
        return ""
    seconds = ((at or now()) - moment).total_seconds()
    if abs(seconds) >= 30 * _DAY:
        return moment.astimezone().strftime("%Y-%m-%d")
    return _away(seconds)


class Times:
    """Spelling of the times of one list as distances in words.

    If two lines would have the same words, the time itself follows.

    Args:
        moments: Times of all lines.
        at: Reference time. Default: now.
    """

    def __init__(self, moments: Iterable[datetime | None], at: datetime | None = None) -> None:
        self._at = at or now()
        known = [moment for moment in moments if moment is not None]
        self._has_time = len({ago(moment, self._at) for moment in known}) < len(known)

    def text(self, moment: datetime | None) -> str:
        """Return one of the times in words; empty for no time."""
        relative = ago(moment, self._at)
        if moment is None or not self._has_time:
            return relative
        local = moment.astimezone()
        time = f"{local:%H:%M:%S}"
        day = f"{local:%Y-%m-%d}"
        if relative == day:
            return f"{day} {time}"
        is_today = local.date() == self._at.astimezone().date()
        return f"{relative}, {time}" if is_today else f"{relative}, {day} {time}"


def _away(seconds: float) -> str:
    """Return a distance of time in words; negative seconds are in the future."""
    if abs(seconds) < _MINUTE:
        return "just now" if seconds > -1 else "in a moment"
    length = span(timedelta(seconds=abs(seconds)))
    return f"{length} ago" if seconds > 0 else f"in {length}"


def span(length: timedelta) -> str:
    """Return a duration in its largest whole unit."""
    seconds = length.total_seconds()
    if seconds < _MINUTE:
        return f"{seconds:g} s"
    if seconds < _HOUR:
        return f"{int(seconds // _MINUTE)} min"
    if seconds < _DAY:
        return f"{int(seconds // _HOUR)} h"
    return f"{int(seconds // _DAY)} d"


def moment(time: datetime | None, at: datetime | None = None) -> str:
    """Return a time in this machine's time zone, to the second, and its distance in words.

    Args:
        time: The time; `None` returns "never".
        at: Reference time. Default: now.
    """
    if time is None:
        return "never"
    seconds = ((at or now()) - time).total_seconds()
    return f"{time.astimezone():%Y-%m-%d %H:%M:%S} ({_away(seconds)})"


def size(count: int) -> str:
    """Return a number of bytes in a unit that leaves few digits."""
    amount = float(count)
    for unit in _UNITS[:-1]:
        if amount < 1024:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{amount:.1f} {_UNITS[-1]}"


def counted(count: int, noun: str) -> str:
    """Return a number with its noun: "1 checkpoint", "2,000 checkpoints"."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def plain(text: str) -> str:
    """Return a text on one line and without characters that control a terminal.

    Agents write names, labels and summaries. Control characters in them, and characters that change
    the direction of writing, are shown as escapes.
    """
    if text.isprintable():
        return text
    return "".join(
        character if character.isprintable() else _visible(character) for character in text
    )


def _visible(character: str) -> str:
    if character == _JOINER:
        return character
    if character.isspace():
        return " "
    return character.encode("unicode_escape").decode()


def shell_word(text: str) -> str:
    """Return a text as one word of a shell's line, without characters that control a terminal."""
    if text.isprintable():
        return shlex.quote(text)
    return f"$'{''.join(map(_in_shell, text))}'"


def _in_shell(character: str) -> str:
    if character in "\\'":
        return f"\\{character}"
    if character.isprintable():
        return character
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x80 else f"\\U{code:08x}"


def short_id(checkpoint_id: str) -> str:
    """Return the part of a checkpoint's ID that is unique in its thread.

    For a UUIDv6 that part is its time. Any other ID is returned whole.
    """
    is_uuid6 = (
        len(checkpoint_id) == _UUID
        and checkpoint_id[14] == "6"
        and [checkpoint_id[place] for place in (8, 13, 18, 23)] == ["-"] * 4
    )
    return checkpoint_id[:_SHORT_ID] if is_uuid6 else checkpoint_id


def compact(value: Any) -> str:
    """Return a value as JSON on one line."""
    return json.dumps(value, ensure_ascii=False, separators=(", ", ": "))


def value_lines(value: Any, width: int) -> list[str]:
    """Return a value as JSON: on one line if no wider than `width`, else indented."""
    line = plain(compact(value))
    if len(line) <= width or not isinstance(value, dict | list):
        return [line]
    return [plain(part) for part in json.dumps(value, ensure_ascii=False, indent=2).split("\n")]
