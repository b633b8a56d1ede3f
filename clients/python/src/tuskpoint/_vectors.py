"""Vectors as callers have them: lists, arrays of any library, tensors. Pure."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Mapping, Set
from numbers import Real
from typing import Any, SupportsFloat

from ._saving import invalid_field

Vector = Iterable[SupportsFloat]
"""A vector: a list or tuple of numbers, an `array.array`, a NumPy array, a tensor."""


def components(what: str, vector: Vector) -> array[float]:
    """Return the components of a vector as 32-bit floats, which is how they are sent.

    Args:
        what: Name of the argument, for the error.
        vector: The vector.

    Raises:
        InvalidRequest: It is no sequence of numbers, it is empty, or a component is not finite
            or does not fit into 32 bits.
    """
    given = _listed(what, vector)
    if not given:
        raise invalid_field(what, "it has one component or more")
    if not {*map(type, given)} <= {float, int}:
        _check_numbers(what, given)
    try:
        packed = array("f", map(float, given))
    except OverflowError as error:
        raise invalid_field(what, f"a component does not fit into 32 bits: {error}") from error
    if not all(map(math.isfinite, packed)):
        position = [*map(math.isfinite, packed)].index(False)
        one = given[position]
        raise invalid_field(
            what, f"component {position} is {one!r:.80}, which is not finite in 32 bits"
        )
    return packed


def _check_numbers(what: str, given: list[Any]) -> None:
    for position, one in enumerate(given):
        # A boolean is a number to Python, and a mistake here.
        if isinstance(one, bool) or not isinstance(one, Real):
            raise invalid_field(what, f"component {position} is a number, not {one!r:.80}")


def _listed(what: str, vector: Vector) -> list[Any]:
    # Arrays and tensors give Python's own numbers all at once, in lists as deep as they are.
    tolist = getattr(vector, "tolist", None)
    given = tolist() if callable(tolist) else vector
    if isinstance(given, Mapping | Set | str | bytes | bytearray) or not isinstance(
        given, Iterable
    ):
        raise invalid_field(what, f"it is a sequence of numbers; {type(vector).__name__} is not")
    return list(given)
