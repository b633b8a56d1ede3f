"""Arguments of the clients' methods: checks and encoding. Pure."""

from __future__ import annotations

import json
import math
from array import array
from collections.abc import Collection, Iterable, Mapping, Set
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


def encode_state(state: Mapping[str, Any], *, strict: bool = False) -> dict[str, bytes]:
    """Return each value of a state as JSON text.

    Args:
        state: Channel to value.
        strict: Whether to refuse tuples, which come back as lists.

    Raises:
        InvalidRequest: The state is not a mapping, a value cannot be written as JSON (the message
            has the path of the part), or a key is not a channel name.
    """
    if not isinstance(state, Mapping):
        raise invalid_field("state", f"it must be a mapping, not {type(state).__name__}")
    if not all(map(_is_name, state)):
        raise invalid_field("state", "its keys must be strings that are not empty")
    return {
        name: encode_json(f"state[{name!r}]", value, strict=strict) for name, value in state.items()
    }


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


def encode_json(what: str, value: Any, *, strict: bool = False) -> bytes:
    """Return a value as compact JSON in UTF-8.

    Python's `json` makes strings of the keys of mappings that are none; here they are refused.

    Args:
        what: Name of the value, for the error.
        value: The value.
        strict: Whether to refuse tuples, which come back as lists.

    Raises:
        InvalidRequest: It cannot be written as JSON. The message has the path of the part.
    """
    failure = None
    data = b""
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        data = text.encode()
        if _is_plain(value):
            return data
    except (TypeError, ValueError, RecursionError) as error:
        failure = error
    refused = _refused_part(value, failure, strict=strict)
    if refused is not None:
        path, problem = refused
        raise invalid_field(f"{what}{_shown(path)}", problem) from failure
    return data


_SCALARS = frozenset((str, int, float, bool, type(None)))
_KEYS = frozenset((str,))


def _is_plain(value: Any) -> bool:
    """Return whether a value that JSON could hold is read as it was written.

    Every save pays for this, so it looks at types only; `_refused_part` looks closer.
    """
    waiting = [value]
    for one in waiting:  # grows meanwhile
        if type(one) is dict:
            if not _KEYS.issuperset(map(type, one)):
                return False
            parts: Collection[Any] = one.values()
        elif type(one) is list:
            parts = one
        elif type(one) in _SCALARS:
            continue
        else:
            return False
        if not _SCALARS.issuperset(map(type, parts)):
            waiting.extend(parts)
    return True


_Path = tuple[Any, Any] | None  # of a part: the path of the value that holds it, and its key there


def _refused_part(
    value: Any, failure: Exception | None, *, strict: bool
) -> tuple[_Path, str] | None:
    """Return the path and the problem of a part that JSON cannot express; `None` for none.

    Args:
        value: The value.
        failure: The error with which it could not be written.
        strict: Whether a tuple is such a part.
    """
    waiting: list[tuple[_Path, Any]] = [(None, value)]
    seen: set[int] = set()  # a value may hold itself
    for path, one in waiting:  # grows meanwhile
        parts: Iterable[tuple[Any, Any]] = ()
        if isinstance(one, dict):
            for key in one:
                if not isinstance(key, str):
                    return path, f"the key {key!r:.80} is not a string, as keys in JSON are"
            parts = one.items()
        elif isinstance(one, list | tuple):
            if strict and isinstance(one, tuple):
                return path, "it is a tuple, which would come back as a list"
            parts = enumerate(one)
        elif failure is not None and not _is_scalar(one):
            return path, f"it cannot be written as JSON: {failure}"
        for key, part in parts:
            if isinstance(part, dict | list | tuple):
                if id(part) not in seen:
                    seen.add(id(part))
                    waiting.append(((path, key), part))
            elif failure is not None:
                waiting.append(((path, key), part))
    return None if failure is None else (None, f"it cannot be written as JSON: {failure}")


def _shown(path: _Path) -> str:
    keys = []
    while path is not None:
        path, key = path
        keys.append(f"[{key!r}]")
    return "".join(reversed(keys))


def _is_scalar(part: object) -> bool:
    """Return whether JSON has this value, which holds no others."""
    if isinstance(part, str):
        return is_unicode(part)
    if isinstance(part, float):
        return math.isfinite(part)
    return part is None or isinstance(part, int)


def invalid_field(field_name: str, problem: str) -> InvalidRequest:
    """Return the error for an argument that is never valid."""
    return InvalidRequest(
        f"{field_name}: {problem}",
        status="INVALID_ARGUMENT",
        reason="INVALID_FIELD",
        metadata={"field": field_name},
        violations=[(field_name, problem)],
    )
