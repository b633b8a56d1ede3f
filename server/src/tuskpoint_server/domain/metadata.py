"""Metadata and filters: JSON objects, parsed for structure and never rebuilt."""

from __future__ import annotations

import json
from collections.abc import Mapping

from .errors import Reason, Refusal, Violation
from .limits import LIMITS
from .model import Metadata

_NUMBER = "a number"
_KINDS = {list: "an array", str: "a string", int: _NUMBER, float: _NUMBER, bool: "true or false"}


def _not_json(field: str, problem: str) -> Refusal:
    violation = Violation(field, f"must be a JSON object in UTF-8: {problem}")
    return Refusal(Reason.METADATA_NOT_JSON, violations=(violation,), field=field, problem=problem)


def _refuse_constant(name: str) -> object:
    raise ValueError(f"{name} is not JSON")


def parse_object(raw: bytes, field: str) -> dict[str, object]:
    """Parse a JSON object in UTF-8; empty input is `{}`.

    Raises:
        Refusal: `METADATA_NOT_JSON` if it is anything else, `NaN` and `Infinity` included.
    """
    if not raw:
        return {}
    try:
        parsed = json.loads(raw.decode("utf-8"), parse_constant=_refuse_constant)
    except ValueError as error:
        raise _not_json(field, str(error)) from None
    except RecursionError:
        raise _not_json(field, "it is nested too deeply") from None
    if not isinstance(parsed, dict):
        raise _not_json(field, f"it is {_KINDS.get(type(parsed), 'null')}")
    return parsed


def parse_metadata(raw: bytes, field: str) -> Metadata:
    """Parse metadata and pick out what the service reads.

    Raises:
        Refusal: `METADATA_NOT_JSON`.
    """
    parsed = parse_object(raw, field)
    parents = parsed.get("parents")
    root_id = parents.get("") if isinstance(parents, dict) else None
    return Metadata(
        raw=raw or b"{}",
        run_id=_identifier(parsed.get("run_id"), LIMITS.max_run_id),
        root_id=_identifier(root_id, LIMITS.max_checkpoint_id),
    )


def _identifier(found: object, maximum: int) -> str:
    """Return what can be an identifier: a string that a request could name, else empty."""
    if not isinstance(found, str) or "\0" in found:
        return ""
    try:
        return found if len(found.encode()) <= maximum else ""
    except UnicodeEncodeError:  # half of a surrogate pair, which JSON can spell
        return ""


def matches(metadata: bytes, wanted: dict[str, object]) -> bool:
    """Tell whether metadata has every wanted key with an equal value.

    Values are compared whole, by the equality of Python (`True` equals `1`); a missing
    key does not equal null.
    """
    parsed = json.loads(metadata) if wanted else {}
    return all(key in parsed and parsed[key] == value for key, value in wanted.items())


def matches_typed(metadata: bytes, wanted: Mapping[str, object]) -> bool:
    """Tell whether metadata has every wanted top-level key with an equal value of its type.

    Types are those of JSON: `1` equals `1.0`, and `true` does not equal `1`. Arrays and
    objects are compared whole, in depth.
    """
    parsed = json.loads(metadata) if wanted else {}
    return all(key in parsed and _equal_typed(parsed[key], value) for key, value in wanted.items())


def _equal_typed(one: object, other: object) -> bool:
    pairs = [(one, other)]  # no recursion: both may be nested as deep as JSON may be
    while pairs:
        left, right = pairs.pop()
        if isinstance(left, dict) and isinstance(right, dict):
            if left.keys() != right.keys():
                return False
            pairs += [(value, right[key]) for key, value in left.items()]
        elif isinstance(left, list) and isinstance(right, list):
            if len(left) != len(right):
                return False
            pairs += zip(left, right, strict=True)
        elif isinstance(left, bool) is not isinstance(right, bool) or left != right:
            return False
    return True
