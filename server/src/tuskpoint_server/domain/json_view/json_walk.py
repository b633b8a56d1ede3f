"""Values of type `json`: the same escapes, so that a view reads in one way only."""

from __future__ import annotations

import json
import math
import re
from typing import Any

from .escapes import (
    ITEM_COST,
    MAX_DEPTH,
    Bounds,
    Json,
    MalformedError,
    TooLargeError,
    floating,
    integer,
    mapping,
)

_SAFE_DIGITS = 15  # digits of an integer that is exact in any case

_STRING = re.compile(rb'"(?:[^"\\]++|\\.)*+"?', re.DOTALL)
"""A string in a JSON text. Matches at every quotation mark, so that no text takes long."""


class _Pairs(list[tuple[str, Any]]):
    """The members of an object in their order, however often a key stands there."""

    __slots__ = ()


class _Done:
    """Something that needs no more walking."""

    __slots__ = ("shown",)

    def __init__(self, shown: Json) -> None:
        self.shown = shown


def walk(data: bytes, bounds: Bounds) -> Json:
    """Return the view of a JSON text in UTF-8; `NaN` and `Infinity` are taken.

    Raises:
        MalformedError: It is not one.
        RecursionError: It is nested past what the parser takes.
        TooLargeError: The text is too long.
    """
    if _exceeds(data, bounds.left // ITEM_COST):
        raise TooLargeError
    try:
        parsed = json.loads(
            data.decode(),
            object_pairs_hook=_Pairs,
            parse_int=_integer,
            parse_float=_number,
            parse_constant=_CONSTANTS.__getitem__,
        )
    except ValueError:
        raise MalformedError("no JSON in UTF-8") from None
    return _walk(parsed, 0, bounds)


def _exceeds(data: bytes, items: int) -> bool:
    """Tell whether a text has more items than these, before objects are made of them."""
    # Commas may stand in strings. Looking for these costs less than parsing does.
    return data.count(b",") >= items and _STRING.sub(b"", data).count(b",") >= items


def _walk(parsed: Any, depth: int, bounds: Bounds) -> Json:
    if isinstance(parsed, str):
        bounds.take(len(parsed))
        return parsed
    bounds.take()
    if isinstance(parsed, _Done):
        return parsed.shown
    if not isinstance(parsed, list):
        plain: bool | int | float | None = parsed
        return plain
    if depth >= MAX_DEPTH:
        return bounds.too_deep("object" if isinstance(parsed, _Pairs) else "array")
    if not isinstance(parsed, _Pairs):
        return [_walk(item, depth + 1, bounds) for item in parsed]
    pairs: list[tuple[Json, Json]] = []
    for key, value in parsed:
        bounds.take(len(key))
        pairs.append((key, _walk(value, depth + 1, bounds)))
    return mapping(pairs)


def _integer(literal: str) -> int | _Done:
    """Take an integer of any length. A long one is never made a number: that takes long."""
    if len(literal) <= _SAFE_DIGITS:
        return int(literal)
    if len(literal) > _SAFE_DIGITS + 2:
        return _Done({"$int": literal})
    return _Done(integer(int(literal)))


def _number(literal: str) -> float | _Done:
    """Take a number with a fraction or an exponent as a double, as most readers do."""
    number = float(literal)
    return number if math.isfinite(number) else _Done({"$number": literal})


_CONSTANTS = {name: _Done(floating(float(name))) for name in ("NaN", "Infinity", "-Infinity")}
"""Shared, since a text may hold a million of them."""
