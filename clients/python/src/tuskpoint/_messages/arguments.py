"""Checks and encoding of the arguments of the clients' methods. Pure."""

from __future__ import annotations

import json
import math
from array import array
from collections.abc import Collection, Iterable, Mapping, Set
from numbers import Real
from typing import Any, SupportsFloat, TypeVar

from ..errors import InvalidRequest, InvalidType

RefusedT = TypeVar("RefusedT", bound=InvalidRequest)

Vector = Iterable[SupportsFloat]
"""Vector: a list or tuple of numbers, an `array.array`, a NumPy array or a tensor."""


def components(what: str, vector: Vector) -> array[float]:
    """Return the components of a vector as 32-bit floats, the form that is sent.

    Args:
        what: Name of the argument, for the error.
        vector: The vector.

    Raises:
        InvalidRequest: The vector is not a sequence of numbers, it is empty, or a component is
            not finite or does not fit into 32 bits.
    """
    numbers = _listed(what, vector)
    if not numbers:
        raise invalid_field(what, "it must have at least one component")
    if not {*map(type, numbers)} <= {float, int}:
        _check_numbers(what, numbers)
    try:
        floats = array("f", map(float, numbers))
    except OverflowError as error:
        raise invalid_field(what, f"a component does not fit into 32 bits: {error}") from error
    if not all(map(math.isfinite, floats)):
        position = [*map(math.isfinite, floats)].index(False)
        component = numbers[position]
        raise invalid_field(
            what, f"component {position} is {component!r:.80}, which is not finite in 32 bits"
        )
    return floats


def _check_numbers(what: str, numbers: list[Any]) -> None:
    for position, component in enumerate(numbers):
        # Python counts bool as a number; in a vector a bool is a mistake.
        if isinstance(component, bool) or not isinstance(component, Real):
            raise invalid_field(
                what, f"component {position} must be a number, not {component!r:.80}"
            )


def _listed(what: str, vector: Vector) -> list[Any]:
    # `tolist` of arrays and tensors returns Python's own numbers in one call.
    tolist = getattr(vector, "tolist", None)
    numbers = tolist() if callable(tolist) else vector
    if isinstance(numbers, Mapping | Set | str | bytes | bytearray) or not isinstance(
        numbers, Iterable
    ):
        raise wrong_type(what, f"it must be a sequence of numbers, not {type(vector).__name__}")
    return list(numbers)


def encode_state(state: Mapping[str, Any], *, strict: bool = False) -> dict[str, bytes]:
    """Return each value of a state as JSON text.

    Args:
        state: Maps channels to values.
        strict: Whether to refuse tuples. Otherwise tuples come back as lists.

    Raises:
        InvalidRequest: The state is not a mapping, a value cannot be written as JSON (the message
            has the path of the part), or a key is not a channel name.
    """
    if not isinstance(state, Mapping):
        raise wrong_type("state", f"it must be a mapping, not {type(state).__name__}")
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


def check_text(what: str, text: object) -> None:
    """Check that an argument is a text that can be sent.

    Raises:
        InvalidRequest: The argument is not such a text. The message names it by `what`.
    """
    if not isinstance(text, str):
        raise wrong_type(what, f"it must be a string, not {text!r:.80}")
    if not is_unicode(text):
        raise invalid_field(what, "it has half of a surrogate pair, which UTF-8 cannot encode")


def check_texts(**texts: object) -> None:
    """Check that arguments are texts that can be sent.

    Raises:
        InvalidRequest: An argument is not such a text. The message has its name.
    """
    for what, text in texts.items():
        check_text(what, text)


def check_given_texts(**texts: object) -> None:
    """Check that arguments are texts that can be sent, or `None` for no text.

    Raises:
        InvalidRequest: An argument is not such a text. The message has its name.
    """
    for what, text in texts.items():
        if text is not None:
            check_text(what, text)


def checked_texts(what: str, texts: str | Iterable[str]) -> list[str]:
    """Return one text or several as a list, after a check that they can be sent.

    Raises:
        InvalidRequest: The argument is neither a text nor texts. The message names it by `what`.
    """
    if isinstance(texts, str):
        texts = [texts]
    if not isinstance(texts, Iterable):
        raise wrong_type(what, f"it must be strings, not {texts!r:.80}")
    names = list(texts)
    for number, text in enumerate(names):
        check_text(f"{what}[{number}]", text)
    return names


def encode_json(what: str, value: Any, *, strict: bool = False) -> bytes:
    """Return a value as compact JSON in UTF-8.

    Python's `json` converts keys of mappings to strings; this function refuses such keys.

    Args:
        what: Name of the value, for the error.
        value: The value.
        strict: Whether to refuse tuples. Otherwise tuples come back as lists.

    Raises:
        InvalidRequest: The value cannot be written as JSON. The message has the path of the part.
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
    """Return whether JSON that was written from a value reads back as the same value.

    Each save calls this function, so it checks types only; `_refused_part` checks the rest.
    """
    waiting = [value]
    for node in waiting:  # grows while the loop runs
        if type(node) is dict:
            if not _KEYS.issuperset(map(type, node)):
                return False
            parts: Collection[Any] = node.values()
        elif type(node) is list:
            parts = node
        elif type(node) in _SCALARS:
            continue
        else:
            return False
        if not _SCALARS.issuperset(map(type, parts)):
            waiting.extend(parts)
    return True


_Path = tuple[Any, Any] | None  # path of the value that contains a part, and the part's key


def _refused_part(
    value: Any, failure: Exception | None, *, strict: bool
) -> tuple[_Path, str] | None:
    """Return the path and the problem of a part that JSON cannot express, or `None`.

    Args:
        value: The value.
        failure: Error of the attempt to write the value.
        strict: Whether a tuple is refused.
    """
    waiting: list[tuple[_Path, Any]] = [(None, value)]
    seen: set[int] = set()  # a value may contain itself
    for path, node in waiting:  # grows while the loop runs
        parts: Iterable[tuple[Any, Any]] = ()
        if isinstance(node, dict):
            for key in node:
                if not isinstance(key, str):
                    return path, f"the key {key!r:.80} is not a string, as keys in JSON are"
            parts = node.items()
        elif isinstance(node, list | tuple):
            if strict and isinstance(node, tuple):
                return path, "it is a tuple, which would come back as a list"
            parts = enumerate(node)
        elif failure is not None and not _is_scalar(node):
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
    """Return whether a value is a scalar of JSON, which contains no other values."""
    if isinstance(part, str):
        return is_unicode(part)
    if isinstance(part, float):
        return math.isfinite(part)
    return part is None or isinstance(part, int)


def invalid_field(field_name: str, problem: str) -> InvalidRequest:
    """Return the error for an argument that can never be valid."""
    return _refused(InvalidRequest, field_name, problem)


def wrong_type(field_name: str, problem: str) -> InvalidType:
    """Return the error for an argument of the wrong type."""
    return _refused(InvalidType, field_name, problem)


def _refused(kind: type[RefusedT], field_name: str, problem: str) -> RefusedT:
    return kind(
        f"{field_name}: {problem}",
        status="INVALID_ARGUMENT",
        reason="INVALID_FIELD",
        metadata={"field": field_name},
        violations=[(field_name, problem)],
    )
