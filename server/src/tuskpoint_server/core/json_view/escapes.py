"""Values that JSON cannot express, their escapes, and the bounds of the view."""

from __future__ import annotations

import json
import math
import re
from base64 import b64encode
from collections.abc import Sequence
from datetime import UTC, datetime

from ..limits import KIB, MIB

Json = None | bool | int | float | str | list["Json"] | dict[str, "Json"]
"""A value that `json.dumps` writes unchanged."""

MAX_DEPTH = 64
"""Levels of arrays, objects and extensions that are shown; deeper levels are `$too_deep`."""

MAX_ENCODED = 4 * MIB  # largest value, in encoded bytes, that is decoded; a larger one is `$opaque`
MAX_TEXT = 4 * MIB  # longest text of one value, in bytes; a value that takes more is `$opaque`

ITEM_COST = 8  # bytes that every item counts besides its content, which bounds the number of items

PREVIEW = 1 * KIB  # bytes that are shown of a value that cannot be decoded

_HALVES = re.compile("[\ud800-\udfff]")  # of surrogate pairs

MAX_EXACT = 2**53 - 1
"""Greatest integer below which every double is exact; greater integers are `$int`."""


class MalformedError(Exception):
    """The bytes are not a value of their type."""


class ViewTooLargeError(Exception):
    """The text exceeds its bound."""


class ViewBounds:
    """Bytes left for the text of one value, and whether the view was cut for its depth."""

    __slots__ = ("cut", "left")

    def __init__(self, left: int) -> None:
        self.left = left
        self.cut = False

    def take(self, held: int = 0) -> None:
        """Count an item with this number of bytes."""
        self.left -= ITEM_COST + held
        if self.left < 0:
            raise ViewTooLargeError

    def base64(self, data: bytes) -> str:
        """Count an item and return the item in base64 with padding (RFC 4648, section 4)."""
        self.take(len(data) // 3 * 4)
        return b64encode(data).decode("ascii")

    def too_deep(self, what: str) -> Json:
        """Return the escape of an array, object or extension below `MAX_DEPTH`."""
        self.cut = True
        return {"$too_deep": what}


def integer(number: int) -> Json:
    """Return an integer, escaped if a reader with doubles would change the integer."""
    if -MAX_EXACT <= number <= MAX_EXACT:
        return number
    return {"$int": str(number)}


def escape_float(number: float) -> Json:
    """Return a floating-point number, escaped unless finite."""
    return number if math.isfinite(number) else {"$float": json.dumps(number)}


def mapping(pairs: Sequence[tuple[Json, Json]]) -> dict[str, Json]:
    """Return a map as an object, or as `$map` if its keys are not distinct Unicode strings.

    A key that starts with "$" gets another "$".
    """
    shown: dict[str, Json] = {}
    for key, value in pairs:
        if not isinstance(key, str) or not is_unicode(key):
            break
        shown[f"${key}" if key.startswith("$") else key] = value
    else:
        if len(shown) == len(pairs):
            return shown
    return {"$map": [[key, value] for key, value in pairs]}


def is_unicode(text: str) -> bool:
    """Return whether a text has no half of a surrogate pair."""
    return text.isascii() or not _HALVES.search(text)


def escapes_of(shown: dict[str, Json]) -> set[str]:
    """Return the keys that mark an object as an escape; none for an object of the agent."""
    return {key for key in shown if key.startswith("$") and not key.startswith("$$")}


def timestamp(seconds: int, nanoseconds: int) -> Json:
    """Return a time in UTC (RFC 3339, nanoseconds)."""
    try:
        moment = datetime.fromtimestamp(seconds, UTC).replace(tzinfo=None)
    except (ValueError, OverflowError, OSError):
        raise MalformedError("a time outside the years 1 to 9999") from None
    if nanoseconds >= 1_000_000_000:
        raise MalformedError("a time with more than 999,999,999 nanoseconds")
    return {"$timestamp": f"{moment.isoformat(timespec='seconds')}.{nanoseconds:09}Z"}


def escape_opaque(kind: str, data: bytes, problem: str = "") -> Json:
    """Return the escape of a whole value; without a problem, its type is never opened."""
    shown: dict[str, Json] = {"$opaque": kind, "$size": len(data)}
    if problem:
        shown["$problem"] = problem
    if problem == "malformed":
        shown["$bytes"] = b64encode(data[:PREVIEW]).decode("ascii")
    return shown
