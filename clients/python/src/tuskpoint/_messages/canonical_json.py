"""JSON with one text for equal values, in all languages. Pure.

The rules are the rules of RFC 8785, with two differences: an `int` has all its digits, because
integers above 2**53 are common as IDs; and keys are in the order of their code points.
"""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

# Positions of the decimal point with which ECMAScript writes a number without an exponent.
_FIRST_POINT, _LAST_POINT = -5, 21


def canonical_json(value: Any) -> str:
    """Return the canonical JSON of a value that JSON can express; a tuple counts as a list."""
    parts: list[str] = []
    pending: list[tuple[bool, Any]] = [(False, value)]  # whether the item is text already
    while pending:
        is_text, item = pending.pop()
        if is_text:
            parts.append(item)
        elif isinstance(item, float):
            parts.append(_number(item))
        elif isinstance(item, list | tuple):
            pending += _reversed("[", [[(False, member)] for member in item], "]")
        elif isinstance(item, dict):
            members = [[(True, f"{_text(key)}:"), (False, item[key])] for key in sorted(item)]
            pending += _reversed("{", members, "}")
        else:
            parts.append(_text(item))
    return "".join(parts)


def _reversed(
    opening: str, members: list[list[tuple[bool, Any]]], closing: str
) -> list[tuple[bool, Any]]:
    items: list[tuple[bool, Any]] = [(True, opening)]
    for position, member in enumerate(members):
        if position:
            items.append((True, ","))
        items += member
    items.append((True, closing))
    return items[::-1]


def _text(scalar: Any) -> str:
    return json.dumps(scalar, ensure_ascii=False)


def _number(number: float) -> str:
    """Return a number as ECMAScript writes it."""
    if number == 0:
        return "0"
    # `repr` has the shortest digits that name the number, as ECMAScript has.
    _, all_digits, exponent = Decimal(float.__repr__(abs(number))).as_tuple()
    text = "".join(map(str, all_digits))
    point = len(text) + int(exponent)  # position of the decimal point in the digits
    digits = text.rstrip("0")
    sign = "-" if number < 0 else ""
    if not _FIRST_POINT <= point <= _LAST_POINT:
        fraction = f".{digits[1:]}" if len(digits) > 1 else ""
        return f"{sign}{digits[0]}{fraction}e{point - 1:+d}"
    if point >= len(digits):
        return sign + digits.ljust(point, "0")
    if point > 0:
        return f"{sign}{digits[:point]}.{digits[point:]}"
    return f"{sign}0.{'0' * -point}{digits}"
