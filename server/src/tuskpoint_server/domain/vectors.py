"""Vectors as they are stored: 32-bit floats, little-endian, one after the other."""

from __future__ import annotations

import math
import sys
from array import array
from collections.abc import Iterable

COMPONENT_BYTES = 4


def pack(components: Iterable[float]) -> bytes:
    """Return a vector as it is stored; what exceeds 32 bits becomes infinite."""
    packed = array("f", components)
    if sys.byteorder == "big":
        packed.byteswap()
    return packed.tobytes()


def unpack(vector: bytes) -> list[float]:
    """Return the components of a stored vector."""
    unpacked = array("f")
    unpacked.frombytes(vector)
    if sys.byteorder == "big":
        unpacked.byteswap()
    return unpacked.tolist()


def dimension(vector: bytes) -> int:
    """Return the number of components of a stored vector."""
    return len(vector) // COMPONENT_BYTES


def problem(components: Iterable[float], maximum: int, *, zero_allowed: bool) -> str:
    """Say what is wrong with a vector, or return an empty string.

    Args:
        components: The vector.
        maximum: Most components.
        zero_allowed: Whether all of them may be 0: such a vector has no direction.
    """
    held = list(components)
    if not held:
        return "must have components"
    if len(held) > maximum:
        return f"must have at most {maximum} components, not {len(held)}"
    for number, component in enumerate(held):
        if not math.isfinite(component):
            return f"component {number} is {component}, which is not finite"
    if not zero_allowed and not any(held):
        return "must have a component that is not 0: it has no direction"
    return ""
