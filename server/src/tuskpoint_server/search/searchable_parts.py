"""Searchable part of a value: its JSON view without what nobody searches for.

`part_of_view` builds the part from a view. `read_part` builds the same part from the bytes of a
value, in a third of the time, and is used for every checkpoint. It leaves rare content to the view.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any

from ..core.json_view.escapes import (
    MAX_DEPTH,
    MAX_EXACT,
    Json,
    MalformedError,
    escapes_of,
    is_unicode,
)
from ..core.json_view.msgpack_reader import (
    ARRAY,
    BINARY,
    DELTA_SNAPSHOT,
    EXTENSIONS,
    FLOAT,
    INTEGER,
    MAP,
    METHOD,
    NUMPY,
    PLAIN,
    POSITIONAL,
    SINGLE,
    STRING,
    TIMESTAMP,
    MsgpackReader,
)
from ..core.json_view.views import JsonPairs, parse_json
from ..core.model import Value

ROOM_OF_BYTE = 10
"""Most bytes of a view that one byte of a value can produce, unless `RareItemError` is raised.

An item of one byte produces 8 bytes, and a byte of binary content 4/3.
"""

_NOT_TEXT = frozenset({"$bytes", "$bytearray", "$string", "$ext", "$opaque", "$too_deep"})
"""Escapes without text to search for; binary values are base64 in them."""

_OF_CODE = frozenset({"$type", "$method"})  # escapes that name types and methods
_LONGEST_WORD = 128
_STRETCH = _LONGEST_WORD // 2
_NO_WORD = re.compile(rf"[A-Za-z0-9+/=_-]{{{_LONGEST_WORD + 1},}}")
"""A longer run without a space is not a word: messages contain images as base64."""

_CONTROL = re.compile(r"[\x00-\x08\x0e-\x1b]")  # control characters that are not white space


_SHORT_STRINGS = {0xA0 + size: 1 + size for size in range(32)}
"""Size of a short string in msgpack, by its first byte."""

_EMPTY_ITEMS = frozenset(b"\x80\x90\xa0\xc0")
"""One-byte msgpack items without text: an object, an array, a string, and nil."""

_UNUSED = 0xC1  # starts no item

_VIEWED_EXTENSIONS = frozenset({POSITIONAL, NUMPY, TIMESTAMP % 256})
"""Codes of known extensions, as bytes, that need the view: each has a form of its own."""


class RareItemError(Exception):
    """The value contains an item that only its view shows."""


def has_text(part: Json) -> bool:
    """Return whether a part has text to search for; 0 and `false` count as text."""
    return bool(part) or (part is not None and part not in ("", [], {}))


def encodable_text(text: str) -> str:
    """Return a text with a question mark for each half of a surrogate pair."""
    return text.encode(errors="replace").decode()


def spaced(text: str) -> str:
    """Return the words of a text with a space between two: JSON writes a line break as a letter."""
    # Printable text has no control characters, no surrogates, and no white space except spaces.
    if not text.isprintable():
        if not text.isascii():
            text = encodable_text(text)
        text = " ".join(_CONTROL.sub(" ", text).split())
    elif "  " in text or text[:1] == " " or text[-1:] == " ":
        text = " ".join(text.split())
    if len(text) > _LONGEST_WORD and _may_hold_long_run(text):
        text = " ".join(_NO_WORD.sub(" ", text).split())
    return text


def _may_hold_long_run(text: str) -> bool:
    """Return whether a stretch lacks a space, as in every run longer than `_LONGEST_WORD`."""
    last = len(text) - _STRETCH
    return any(text.find(" ", at, at + _STRETCH) < 0 for at in range(0, last + 1, _STRETCH))


def part_of_view(view: Json, excluded: frozenset[str]) -> Json:
    """Return the searchable part of a view."""
    if isinstance(view, str):
        return spaced(view)
    if isinstance(view, list):
        return [part for item in view if has_text(part := part_of_view(item, excluded))]
    if isinstance(view, dict):
        return _part_of_object(view, excluded)
    return view


def _part_of_object(view: dict[str, Json], excluded: frozenset[str]) -> Json:
    escapes = escapes_of(view)
    if escapes & _NOT_TEXT:
        return None
    for escape in escapes - _OF_CODE:
        content = view[escape]
        if escape == "$map" and isinstance(content, list):
            pairs = [pair for pair in content if isinstance(pair, list)]
            content = [
                pair for pair in pairs if not isinstance(pair[0], str) or pair[0] not in excluded
            ]
        return part_of_view(content, excluded)
    members: dict[str, Json] = {}
    for key, item in view.items():
        # In a view, an agent's own names that start with "$" have an additional "$".
        name = key.removeprefix("$")
        if key in escapes or name in excluded:
            continue
        part = part_of_view(item, excluded)
        if has_text(part):
            members[name] = part
    return members


def read_part(value: Value, excluded: frozenset[str]) -> Json:
    """Return what `part_of_view` returns for the view of a value, if the view has enough room.

    Raises:
        RareItemError: Only the view shows the value's content.
    """
    try:
        if value.type == "msgpack":
            return _read_msgpack(value.data, excluded)
        if value.type == "json":
            return _part_of_parsed(parse_json(value.data), 0, excluded)
    except (MalformedError, RecursionError):
        pass
    return None


def _read_msgpack(data: bytes, excluded: frozenset[str]) -> Json:
    reader = _PartReader(data, excluded)
    part = reader.item(0)
    if reader.at != len(data):
        raise MalformedError("bytes after the item")
    return part


class _PartReader(MsgpackReader):
    """Reads the searchable parts of items. Methods may raise `RareItemError`."""

    __slots__ = ("_excluded",)

    def __init__(self, data: bytes, excluded: frozenset[str]) -> None:
        super().__init__(data)
        self._excluded = excluded

    def item(self, depth: int) -> Json:
        """Return the part of the next item, which is `depth` levels deep."""
        kind, number = self.head()
        if kind == STRING:
            return _text_in(self.take(number))
        if kind == INTEGER:
            return number if -MAX_EXACT <= number <= MAX_EXACT else str(number)
        if kind == FLOAT:
            return number if math.isfinite(number) else json.dumps(number)
        if kind == PLAIN:
            plain: bool | None = number
            return plain
        if kind == BINARY:
            self.go_past(number)
            return None
        if depth >= MAX_DEPTH:
            raise RareItemError
        if kind == MAP:
            return self._members(number, depth + 1)
        if kind == ARRAY:
            return [part for _ in range(number) if has_text(part := self.item(depth + 1))]
        return self._extension(number, depth + 1)

    def _members(self, size: int, depth: int) -> dict[str, Json]:
        """Return the parts of members that are neither empty nor excluded."""
        # Short strings and empty items are read inline: a call for each would double the time.
        data, end, excluded = self.data, self.end, self._excluded
        members: dict[str, Json] = {}
        keys = set[bytes]()
        for _ in range(size):
            at = self.at
            if at < end and data[at] in _SHORT_STRINGS:
                begin, at = at + 1, at + _SHORT_STRINGS[data[at]]
                key = data[begin:at]
            else:
                key, at = self._name(), self.at
            keys.add(key)
            name = "" if key.isascii() else _decoded(key)
            first = data[at] if at < end else _UNUSED
            if first in _EMPTY_ITEMS:
                self.at = at + 1
                continue
            if first in _SHORT_STRINGS:
                self.at = at + _SHORT_STRINGS[first]
                part: Json = _text_in(data[at + 1 : self.at])
            else:
                self.at = at
                part = self.item(depth)
            if (part or has_text(part)) and (name := name or key.decode()) not in excluded:
                members[name] = part
        if self.at > end:
            raise MalformedError("the bytes end too early")
        if len(keys) < size:
            raise RareItemError
        return members

    def _extension(self, size: int, depth: int) -> Json:
        begin, outer = self.at + 1, self.end
        end = begin + size
        if end > outer:
            raise MalformedError("the bytes end too early")
        code = self.data[self.at]
        if code in _VIEWED_EXTENSIONS:
            raise RareItemError
        if code not in EXTENSIONS:
            self.at = end
            return None
        self.at, self.end = begin, end
        try:
            part = self._payload(code, depth)
        except MalformedError:
            raise RareItemError from None
        if self.at != end:
            raise RareItemError
        self.end = outer
        return part

    def _payload(self, code: int, depth: int) -> Json:
        """Return the part of the content of an extension of LangGraph."""
        if code == DELTA_SNAPSHOT:
            part = self.item(depth)
            return {"value": part} if has_text(part) and "value" not in self._excluded else {}
        size = self.array_size()
        self._skip_name()
        self._skip_name()
        if code in (SINGLE, METHOD):
            part = self.item(depth)
            if code == METHOD:
                self._skip_name()
            if size != (4 if code == METHOD else 3):
                raise RareItemError
            return part
        if size not in (3, 4):
            raise RareItemError
        before = self.at
        kind, count = self.head()
        if kind == MAP:
            part = self._members(count, depth)
        else:
            self.at = before
            part = self.item(depth)
        if size == 4:
            self._skip_method()
        return part

    def _skip_name(self) -> None:
        name = self._name()
        if not name.isascii():
            _decoded(name)

    def _skip_method(self) -> None:
        at = self.at
        size = _SHORT_STRINGS.get(self.data[at], 0) if at < self.end else 0
        if size:
            self.at = at + size
        else:
            self.skip()

    def _name(self) -> bytes:
        """Return the string that must come next."""
        at = self.at
        size = _SHORT_STRINGS.get(self.data[at], 0) if at < self.end else 0
        if size:
            self.go_past(size)
            return self.data[at + 1 : self.at]
        kind, length = self.head()
        if kind != STRING:
            raise RareItemError
        return self.take(length)


def _text_in(text: bytes) -> str | None:
    try:
        return spaced(text.decode())
    except UnicodeDecodeError:
        return None


def _decoded(name: bytes) -> str:
    try:
        return name.decode()
    except UnicodeDecodeError:
        raise RareItemError from None


def _part_of_parsed(parsed: Any, depth: int, excluded: frozenset[str]) -> Json:
    """Return the part of a value that `parse_json` returned."""
    if isinstance(parsed, str):
        return spaced(parsed)
    if isinstance(parsed, dict):  # a parsed object is the escape of a number
        [number] = parsed.values()
        return spaced(number)
    if not isinstance(parsed, list):
        plain: bool | int | float | None = parsed
        return plain
    if depth >= MAX_DEPTH:
        return None
    if not isinstance(parsed, JsonPairs):
        parts = (_part_of_parsed(item, depth + 1, excluded) for item in parsed)
        return [part for part in parts if has_text(part)]
    names = {name for name, _ in parsed if is_unicode(name)}
    if len(names) < len(parsed):
        raise RareItemError
    members: dict[str, Json] = {}
    for name, item in parsed:
        if name not in excluded and has_text(part := _part_of_parsed(item, depth + 1, excluded)):
            members[name] = part
    return members
