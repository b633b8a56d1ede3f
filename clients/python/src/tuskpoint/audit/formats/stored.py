"""Stored JSON, read field by field, and where stored bytes lie. See docs/storage.md."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, TypeVar

FORMAT_VERSION = 1
MAX_COUNT = (1 << 63) - 1
"""No reader takes a greater number: JSON has no bound, and what counts with it does."""

_T = TypeVar("_T")
_SHA256 = re.compile(r"[0-9a-f]{64}")


class Malformed(Exception):
    """Stored bytes that are not what they should be; the text says why, for people."""


@dataclass(frozen=True, slots=True)
class Location:
    """Where stored bytes lie, and what they are trusted by.

    Attributes:
        blob_id: The blob or quilt. In a reference empty means: where the reference stands.
        identifier: Patch of the quilt; empty if the blob is stored alone.
        sha256: SHA-256 of the exact bytes in lowercase hex; empty if it is not known.
        size_bytes: Number of bytes; `None` if it is not known.
    """

    blob_id: str
    identifier: str = ""
    sha256: str = ""
    size_bytes: int | None = None

    def seen_from(self, holder: str) -> Location:
        """Return it with "this quilt" replaced by the blob that holds the reference."""
        return self if self.blob_id else replace(self, blob_id=holder)


def is_sha256(text: str) -> bool:
    """Tell whether a text is a SHA-256 in lowercase hex."""
    return _SHA256.fullmatch(text) is not None


class Fields:
    """Typed access to a JSON object that was stored.

    Every method raises `Malformed` if a field is missing or of another type.
    """

    __slots__ = ("_content",)

    def __init__(self, content: object) -> None:
        if not isinstance(content, dict):
            raise Malformed("an object was expected")
        self._content: dict[str, Any] = content

    @classmethod
    def parse(cls, data: bytes) -> Fields:
        """Return the object in stored bytes, after checking `format_version`."""
        fields = cls(parse_json(data))
        version = fields.count("format_version")
        if version != FORMAT_VERSION:
            raise Malformed(f"format_version is {version} and only {FORMAT_VERSION} is known")
        return fields

    def has(self, key: str) -> bool:
        """Tell whether a field is there and not null."""
        return self._content.get(key) is not None

    def text(self, key: str, default: str | None = None) -> str:
        """Return a text."""
        found = self._typed(key, str, default)
        if not _is_unicode(found):
            raise Malformed(f"'{key}' cannot be written in UTF-8")
        return found

    def count(self, key: str, default: int | None = None) -> int:
        """Return a number that is whole, not negative, and not above `MAX_COUNT`."""
        found = self._typed(key, int, default)
        if isinstance(found, bool) or not 0 <= found <= MAX_COUNT:
            raise Malformed(f"'{key}' is not a count")
        return found

    def flag(self, key: str, default: bool | None = None) -> bool:
        """Return true or false."""
        return self._typed(key, bool, default)

    def object(self, key: str) -> dict[str, Any]:
        """Return an object as it is."""
        found = self._typed(key, dict, None)
        try:
            written = json.dumps(found, ensure_ascii=False, allow_nan=False)
        except ValueError:  # 1e999 is read as infinity
            raise Malformed(f"'{key}' holds a number that is too large") from None
        if not _is_unicode(written):
            raise Malformed(f"'{key}' cannot be written in UTF-8")
        return found

    def child(self, key: str) -> Fields:
        """Return an object."""
        return Fields(self._content.get(key))

    def children(self, key: str) -> Iterator[Fields]:
        """Yield the objects of a list."""
        for item in self._typed(key, list, None):
            yield Fields(item)

    def rows(self, key: str) -> Iterator[list[Fields]]:
        """Yield the lists of objects of a list."""
        for row in self._typed(key, list, None):
            if not isinstance(row, list):
                raise Malformed(f"'{key}' is not a list of lists")
            yield [Fields(item) for item in row]

    def sha256(self, key: str) -> str:
        """Return a hash in lowercase hex."""
        found = self.text(key)
        if not is_sha256(found):
            raise Malformed(f"'{key}' is not a SHA-256 in lowercase hex")
        return found

    def location(self, holder: str) -> Location:
        """Return this object as a location, as seen from the blob that holds it."""
        return Location(
            blob_id=self.text("blob_id", ""),
            identifier=self.text("identifier", ""),
            sha256=self.sha256("sha256"),
            size_bytes=self.count("size_bytes"),
        ).seen_from(holder)

    def optional_location(self, key: str, holder: str) -> Location | None:
        """Return a location, or `None` if the field is null or missing."""
        return self.child(key).location(holder) if self.has(key) else None

    def _typed(self, key: str, kind: type[_T], default: _T | None) -> _T:
        found = self._content.get(key, default)
        if not isinstance(found, kind):
            raise Malformed(f"'{key}' is missing or not of type {kind.__name__}")
        return found


def parse_json(data: bytes) -> object:
    """Return what JSON in UTF-8 says.

    Raises:
        Malformed: It is none, has a key twice, or numbers that JSON does not have.
    """
    try:
        return json.loads(
            data.decode("utf-8"), object_pairs_hook=_unique, parse_constant=_no_constant
        )
    except (ValueError, RecursionError):
        raise Malformed("it is not JSON in UTF-8") from None


def _is_unicode(text: str) -> bool:
    """Tell whether a text has no half of a surrogate pair, which escapes in JSON can make."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    named = dict(pairs)
    if len(named) != len(pairs):
        raise ValueError("a key comes twice")
    return named


def _no_constant(name: str) -> object:
    raise ValueError(f"{name} is not JSON")


# --- lists of parts --------------------------------------------------------------------

MOST_PARTS = 4096
"""No list of this service has as many."""


@dataclass(frozen=True, slots=True)
class PartList:
    """The parts of some bytes, in order, and what they make together."""

    sha256: str
    size_bytes: int
    parts: tuple[Location, ...]


def is_part_list(data: bytes) -> bool:
    """Tell a list of parts from what would stand in its place without parts, which is gzip."""
    return data.startswith(b"{")


def read_part_list(data: bytes, holder: str, max_bytes: int) -> PartList:
    """Return a list of parts.

    Args:
        data: The stored bytes.
        holder: Blob that they lie in.
        max_bytes: Bound on what the parts make together.

    Raises:
        Malformed: It is none, or its sizes do not add up.
    """
    fields = Fields.parse(data)
    if fields.text("kind") != "parts":
        raise Malformed("it is not a list of parts")
    parts = tuple(part.location(holder) for part in fields.children("parts"))
    size = fields.count("size_bytes")
    if size > max_bytes:
        raise Malformed(f"its parts make more than {max_bytes} bytes")
    if len(parts) > MOST_PARTS:
        raise Malformed(f"it has more than {MOST_PARTS} parts")
    if sum(part.size_bytes or 0 for part in parts) != size:
        raise Malformed(f"its parts do not make up {size} bytes")
    return PartList(fields.sha256("sha256"), size, parts)
