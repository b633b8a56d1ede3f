"""Arguments of the clients' methods: checks and encoding. Pure."""

from __future__ import annotations

import json
import math
from array import array
from collections.abc import Iterable, Mapping, Set
from numbers import Real
from typing import Any, SupportsFloat

from ..errors import InvalidRequest

Vector = Iterable[SupportsFloat]
"""A vector: a list or tuple of numbers, an `array.array`, a NumPy array, a tensor."""


def components(what: str, vector: Vector) -> array[float]:
    """Return the components of a vector as 32-bit floats, the form that is sent.

    Args:
        what: Name of the argument, for the error.
        vector: The vector.

    Raises:
        InvalidRequest: The vector is not a sequence of numbers, it is empty, or a component is
            not finite or does not fit into 32 bits.
    """
    given = _listed(what, vector)
    if not given:
        raise invalid_field(what, "it must have at least one component")
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
        # Python counts bool as a number; here it is a mistake.
        if isinstance(one, bool) or not isinstance(one, Real):
            raise invalid_field(what, f"component {position} must be a number, not {one!r:.80}")


def _listed(what: str, vector: Vector) -> list[Any]:
    # `tolist` of arrays and tensors returns Python's own numbers in one call.
    tolist = getattr(vector, "tolist", None)
    given = tolist() if callable(tolist) else vector
    if isinstance(given, Mapping | Set | str | bytes | bytearray) or not isinstance(
        given, Iterable
    ):
        raise invalid_field(what, f"it must be a sequence of numbers, not {type(vector).__name__}")
    return list(given)


def encode_state(state: Mapping[str, Any]) -> dict[str, bytes]:
    """Return each value of a state as JSON text.

    JSON's rules apply: tuples become lists, and keys of inner mappings become strings.

    Raises:
        InvalidRequest: The state is not a mapping, a value cannot be written as JSON, or a key is
            not a channel name.
    """
    if not isinstance(state, Mapping):
        raise invalid_field("state", f"it must be a mapping, not {type(state).__name__}")
    if not all(map(_is_name, state)):
        raise invalid_field("state", "its keys must be strings that are not empty")
    return {name: encode_json(f"state[{name!r}]", value) for name, value in state.items()}


def _is_name(key: object) -> bool:
    return isinstance(key, str) and key != "" and is_unicode(key)


def is_unicode(text: str) -> bool:
    """Return whether a text can be encoded: UTF-8 has no form for half of a surrogate pair."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def check_text(what: str, given: object) -> None:
    """Check that an argument is a text that can be sent.

    Raises:
        InvalidRequest: It is not; `what` names it in the message.
    """
    if not isinstance(given, str):
        raise invalid_field(what, f"it must be a string, not {given!r:.80}")
    if not is_unicode(given):
        raise invalid_field(what, "it has half of a surrogate pair, which UTF-8 cannot encode")


def encode_json(what: str, value: Any) -> bytes:
    """Return a value as compact JSON in UTF-8.

    Raises:
        InvalidRequest: It cannot be written as JSON; `what` names it in the message.
    """
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        return text.encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise invalid_field(what, f"it cannot be written as JSON: {error}") from error


def invalid_field(field_name: str, problem: str) -> InvalidRequest:
    """Return the error for an argument that is never valid."""
    return InvalidRequest(
        f"{field_name}: {problem}",
        status="INVALID_ARGUMENT",
        reason="INVALID_FIELD",
        metadata={"field": field_name},
        violations=[(field_name, problem)],
    )
