"""Values of interop scenarios: fills in variables and generated values, and matches results.

`scenarios/README.md` defines the forms.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping
from typing import Any

_WHOLE = re.compile(r"\$([a-z_]+)")
_INSIDE = re.compile(r"\$\$|\$\{([a-z_]+)\}")

Json = Any
"""A value that `json.loads` returns."""


class Mismatch(Exception):
    """A result differs from the expected one; the text says where and how."""


def fill(value: Json, variables: Mapping[str, Json]) -> Json:
    """Return a value with its variables and generated values filled in.

    Raises:
        KeyError: The value names an unknown variable.
    """
    if isinstance(value, str):
        return _fill_text(value, variables)
    if isinstance(value, list):
        return [fill(item, variables) for item in value]
    if isinstance(value, dict):
        match value:
            case {"$text": {"of": unit, "times": times}}:
                return fill(unit, variables) * times
            case {"$base64": {"of": unit, "times": times}}:
                return base64.b64encode(bytes.fromhex(unit) * times).decode()
            case {"$json_base64": inner}:
                text = json.dumps(fill(inner, variables), ensure_ascii=False, separators=(",", ":"))
                return base64.b64encode(text.encode()).decode()
        return {key: fill(item, variables) for key, item in value.items()}
    return value


def _fill_text(text: str, variables: Mapping[str, Json]) -> Json:
    whole = _WHOLE.fullmatch(text)
    if whole is not None:
        return variables[whole[1]]
    return _INSIDE.sub(lambda match: variables[match[1]] if match[1] else "$", text)


def at(result: Json, path: str) -> Json:
    """Return the value at a path such as "checkpoint.ref" or "0.thread_id"; an empty path means
    all."""
    for step in path.split(".") if path else ():
        result = result[int(step)] if isinstance(result, list) else result[step]
    return result


def check(expected: Json, actual: Json, where: str = "result") -> None:
    """Return if a result matches.

    Raises:
        Mismatch: The result does not match.
    """
    if isinstance(expected, dict):
        _check_object(expected, actual, where)
    elif isinstance(expected, list):
        if not isinstance(actual, list) or len(actual) != len(expected):
            raise Mismatch(f"{where} is {_shown(actual)}, not a list of {len(expected)}")
        for index, (wanted, got) in enumerate(zip(expected, actual, strict=True)):
            check(wanted, got, f"{where}.{index}")
    elif isinstance(expected, bool) != isinstance(actual, bool) or expected != actual:
        raise Mismatch(f"{where} is {_shown(actual)}, not {_shown(expected)}")


def _check_object(expected: dict[str, Json], actual: Json, where: str) -> None:
    match expected:
        case {"$any": True}:
            return
        case {"$length": length}:
            if not isinstance(actual, (list, str, dict)) or len(actual) != length:
                raise Mismatch(f"{where} is {_shown(actual)}, not of length {length}")
        case {"$contains": wanted}:
            if not _contains(actual, wanted, where):
                raise Mismatch(f"{where} is {_shown(actual)}, without {_shown(wanted)}")
        case {"$not": unwanted}:
            if _matches(unwanted, actual, where):
                raise Mismatch(f"{where} is {_shown(actual)}")
        case _:
            if not isinstance(actual, dict):
                raise Mismatch(f"{where} is {_shown(actual)}, not an object")
            for key, wanted in expected.items():
                _check_key(key, wanted, actual, where)


def _check_key(key: str, wanted: Json, actual: dict[str, Json], where: str) -> None:
    if wanted == {"$absent": True}:
        if key in actual:
            raise Mismatch(f"{where}.{key} is {_shown(actual[key])} and should be absent")
    elif key not in actual:
        raise Mismatch(f"{where}.{key} is absent")
    else:
        check(wanted, actual[key], f"{where}.{key}")


def _contains(actual: Json, wanted: Json, where: str) -> bool:
    if isinstance(actual, str):
        return isinstance(wanted, str) and wanted in actual
    return isinstance(actual, list) and any(_matches(wanted, item, where) for item in actual)


def _matches(wanted: Json, actual: Json, where: str) -> bool:
    try:
        check(wanted, actual, where)
    except Mismatch:
        return False
    return True


def _shown(value: Json) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 300 else text[:300] + "..."
