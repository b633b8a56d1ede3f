"""Mutations of inputs: of the bytes alone, and of the JSON or the protobuf message in them.

A random change of bytes seldom leaves valid JSON, or a message whose lengths fit. So the mutations
also parse an input, change one place, and serialize the result.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from enum import Enum
from random import Random
from typing import Any

Mutate = Callable[[bytes, Random], bytes]

_DEEP = 3000  # levels that no recursive parser survives
_VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, 1, -1, 7, 255, 2**31, 2**32, 2**53, 2**63 - 1, 2**63, 2**64, -(2**63)),
    *(0.5, 1e300, float("nan"), float("inf"), "", "a", "\0", "\ud800", "ä", "x" * 300, "0" * 64),
    *([], {}, [[]], [{}], {"": None}, {"kind": "end"}, "1970-01-01T00:00:00Z", "https://[", "://"),
)
_NUMBERS = (0, 1, 2, 127, 128, 2**31 - 1, 2**31, 2**32 - 1, 2**63 - 1, 2**63, 2**64 - 1)
_VARINT, _EIGHT_BYTES, _LENGTH, _FOUR_BYTES = 0, 1, 2, 5
_Field = tuple[int, int, Any]  # field number, wire type, and value: an int, or bytes


class Form(Enum):
    """Form of a target's inputs."""

    BYTES = "bytes"
    JSON = "json"
    LINES = "lines"
    """JSON on every line."""
    MESSAGE = "message"
    """A protobuf message."""


def mutated(data: bytes, form: Form, random: Random, bytewise: Mutate | None = None) -> bytes:
    """Return an input with one change or a few changes.

    Args:
        data: The input.
        form: The form that is parsed; half of the changes are of the bytes alone.
        random: Makes the choices.
        bytewise: Changes the bytes; `None`: the function of this module.
    """
    bytewise = bytewise or of_bytes
    structured = _STRUCTURED.get(form)
    for _ in range(random.choice((1, 1, 2, 4))):
        changed = structured(data, random) if structured and random.random() < 0.5 else None
        data = bytewise(data, random) if changed is None else changed
    return data


def of_bytes(data: bytes, random: Random) -> bytes:
    """Flip a bit, or cut off, insert, overwrite, remove or duplicate a stretch of bytes."""
    at = random.randrange(len(data) + 1)
    end = min(len(data), at + random.choice((1, 2, 4, 8, random.randrange(1, len(data) + 2))))
    stretch = data[at:end]
    match random.randrange(7):
        case 0 if stretch:
            return data[:at] + bytes((data[at] ^ 1 << random.randrange(8),)) + data[at + 1 :]
        case 1:
            return data[:at]
        case 2:
            return data[:at] + random.randbytes(random.randrange(1, 9)) + data[at:]
        case 3:
            return data[:at] + random.randbytes(len(stretch)) + data[end:]
        case 4:
            return data[:at] + data[end:]
        case 5:
            return data[:at] + stretch * random.choice((2, 2, 3, 50)) + data[end:]
        case _:
            number = random.choice(_NUMBERS).to_bytes(8, "little")[: random.choice((1, 2, 4, 8))]
            return data[:at] + number + data[at + len(number) :]


def of_json(data: bytes, random: Random) -> bytes | None:
    """Change one place of a JSON text; return `None` if the bytes are not JSON."""
    try:
        content = json.loads(data)
        if random.randrange(50) == 0:
            return _too_deep(data, random)
        changed = _at_some_place(content, random)
        return json.dumps(changed, ensure_ascii=random.random() < 0.5).encode()
    except (ValueError, RecursionError):
        return None


def of_lines(data: bytes, random: Random) -> bytes | None:
    """Change, duplicate, remove or move one line of JSON; return `None` if the line is not JSON."""
    lines = data.split(b"\n")
    at = random.randrange(len(lines))
    match random.randrange(5):
        case 0:
            lines.insert(at, lines[at])
        case 1:
            del lines[at]
        case 2:
            lines.insert(random.randrange(len(lines)), lines.pop(at))
        case _:
            changed = of_json(lines[at], random)
            if changed is None:
                return None
            lines[at] = changed
    return b"\n".join(lines)


def of_message(data: bytes, random: Random) -> bytes | None:
    """Change one field of a protobuf message or of a nested message; return `None` for other
    bytes."""
    fields = _fields(data)
    if not fields:
        return None
    at = random.randrange(len(fields))
    number, kind, value = fields[at]
    match random.randrange(8):
        case 0:
            del fields[at]
        case 1:
            fields.insert(random.randrange(len(fields)), fields[at])
        case 2:
            fields[at:at] = [fields[at]] * random.choice((2, 40))
        case 3:
            fields.insert(random.randrange(len(fields)), fields.pop(at))
        case 4:
            fields[at] = (random.randrange(1, 20), kind, value)
        case _:
            fields[at] = (number, kind, _value(value, random))
    return b"".join(_encoded(*field) for field in fields)


_STRUCTURED: dict[Form, Callable[[bytes, Random], bytes | None]] = {
    Form.JSON: of_json,
    Form.LINES: of_lines,
    Form.MESSAGE: of_message,
}


def _at_some_place(content: Any, random: Random) -> Any:
    """Return JSON with a change at one place, mostly below the top level."""
    places = list(content) if isinstance(content, dict) else range(len(_items(content)))
    if not places or random.random() < 0.15:
        return random.choice((*_VALUES, [content], {"a": content}, [content, content]))
    at = random.choice(list(places))
    match random.randrange(8):
        case 0:
            del content[at]
        case 1 if isinstance(content, dict):
            content[random.choice((*content, "", "a", "$map"))] = content[at]
        case 1:
            content.insert(random.randrange(len(content)), content[at])
        case 2:
            other = random.choice(list(places))
            content[at], content[other] = content[other], content[at]
        case 3:
            content[at] = random.choice(_VALUES)
        case _:
            content[at] = _at_some_place(content[at], random)
    return content


def _items(content: Any) -> list[Any]:
    return content if isinstance(content, list) else []


def _too_deep(data: bytes, random: Random) -> bytes:
    """Replace a value with a value that is nested too deep."""
    opening, closing = random.choice(((b"[", b"]"), (b'{"a":', b"}")))
    value = opening * _DEEP + b"1" + closing * _DEEP
    places = [at for at, byte in enumerate(data) if byte in b":,"]
    if not places:
        return value
    at = random.choice(places) + 1
    return data[:at] + value + (b"," if data[at - 1] == ord(",") else b',"z":') + data[at:]


def _value(value: Any, random: Random) -> Any:
    if isinstance(value, int):
        return random.choice((*_NUMBERS, value + 1, value ^ 1 << random.randrange(64))) % 2**64
    changed = of_message(value, random) if random.random() < 0.7 else None
    if changed is None and value[:1] in (b"{", b"["):
        changed = of_json(value, random)
    return of_bytes(value, random) if changed is None else changed


def _fields(data: bytes) -> list[_Field]:
    """Return the fields of a message; return none if the bytes are not a message."""
    fields: list[_Field] = []
    at = 0
    try:
        while at < len(data):
            tag, at = _varint(data, at)
            kind, size = tag & 7, {_EIGHT_BYTES: 8, _FOUR_BYTES: 4}.get(tag & 7, 0)
            value: Any = 0
            if kind == _VARINT:
                value, at = _varint(data, at)
            elif kind == _LENGTH:
                size, at = _varint(data, at)
            elif not size:
                return []
            if kind != _VARINT:
                if at + size > len(data):
                    return []
                value, at = data[at : at + size], at + size
            fields.append((tag >> 3, kind, value))
    except IndexError:
        return []
    return fields


def _varint(data: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        number |= (data[at] & 0x7F) << shift
        shift, at = shift + 7, at + 1
        if data[at - 1] < 0x80:
            return number, at


def _encoded(number: int, kind: int, value: Any) -> bytes:
    tag = _number(number << 3 | kind)
    if kind == _VARINT:
        return tag + _number(value)
    content: bytes = value
    return tag + (_number(len(content)) if kind == _LENGTH else b"") + content


def _number(number: int) -> bytes:
    encoded = bytearray()
    while number >= 0x80:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)
