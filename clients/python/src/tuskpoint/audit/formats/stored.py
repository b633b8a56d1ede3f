"""Stored JSON, read field by field, and the location of stored bytes. See docs/storage.md."""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, TypeVar

FORMAT_VERSION = 2
MAX_COUNT = (1 << 63) - 1
"""Bound on a number: JSON has no bound, and other readers have one."""

MOST_PARTS = 4096
_MOST_REPEATS = 16
MEMBER_BYTES = 64 << 20
"""Bound on stored bytes that are read at once, eight times the most that this service writes."""

_T = TypeVar("_T")
_HEX_32_BYTES = re.compile(r"[0-9a-f]{64}")


class MalformedError(Exception):
    """Stored bytes are malformed. The text has the reason, for people."""


@dataclass(frozen=True, slots=True)
class Location:
    """The location of stored bytes, and their expected hash.

    Attributes:
        blob_id: The blob or quilt.
        identifier: Patch of the quilt; empty if the blob is stored alone.
        sha256: SHA-256 of the bytes in lowercase hex; empty if unknown.
        size_bytes: Number of bytes; `None` if unknown.
        key: Key of sealed bytes; empty for bytes that are not sealed, and for roots.
        sealed: Whether the bytes must be sealed, even if the key is unknown.
    """

    blob_id: str
    identifier: str = ""
    sha256: str = ""
    size_bytes: int | None = None
    key: bytes = field(default=b"", compare=False, repr=False)
    sealed: bool = field(default=False, compare=False)


def is_sha256(text: object) -> bool:
    """Return whether a value is a SHA-256 in lowercase hex."""
    return isinstance(text, str) and _HEX_32_BYTES.fullmatch(text) is not None


class Fields:
    """Typed access to a stored JSON object.

    Each method raises `MalformedError` if a field is missing or has another type.

    Args:
        content: The object.
        holder: Blob with the object. A location without a blob means this blob.
    """

    __slots__ = ("_content", "_holder")

    def __init__(self, content: object, holder: str) -> None:
        if not isinstance(content, dict):
            raise MalformedError("an object was expected")
        self._content: dict[str, Any] = content
        self._holder = holder

    @classmethod
    def parse(cls, data: bytes | str, holder: str) -> Fields:
        """Return the object in JSON text, which must be UTF-8 without duplicate keys."""
        try:
            text = data if isinstance(data, str) else data.decode()
            content = json.loads(text, object_pairs_hook=_unique, parse_constant=_no_constant)
            if "\\u" in text:  # half a surrogate pair is not text
                json.dumps(content, ensure_ascii=False).encode()
        except (ValueError, RecursionError):
            raise MalformedError("it is not JSON in UTF-8, or has a key twice") from None
        return cls(content, holder)

    @classmethod
    def document(cls, data: bytes, kind: str, holder: str) -> Fields:
        """Return the object of a document, after a check of `format_version` and `kind`."""
        fields = cls.parse(data, holder)
        version, actual_kind = fields.count("format_version"), fields.text("kind")
        if version != FORMAT_VERSION:
            raise MalformedError(f"format_version is {version} and only {FORMAT_VERSION} is known")
        if actual_kind != kind:
            raise MalformedError(f"it is of kind '{actual_kind[:40]}' where a {kind} was expected")
        return fields

    def has(self, key: str) -> bool:
        """Return whether a field exists and is not null."""
        return self._content.get(key) is not None

    def text(self, key: str) -> str:
        """Return a text."""
        return self._typed(key, str)

    def name(self, key: str) -> str:
        """Return a text that is not empty."""
        if text := self._typed(key, str):
            return text
        raise MalformedError(f"'{key}' is empty")

    def count(self, key: str) -> int:
        """Return a number that is whole, not negative, and not above `MAX_COUNT`."""
        number = self._typed(key, int)
        if not 0 <= number <= MAX_COUNT:
            raise MalformedError(f"'{key}' is not a count")
        return number

    def flag(self, key: str) -> bool:
        """Return a boolean."""
        return self._typed(key, bool)

    def sha256(self, key: str) -> str:
        """Return a hash in lowercase hex."""
        digest = self._content.get(key)
        if not isinstance(digest, str) or not is_sha256(digest):
            raise MalformedError(f"'{key}' is missing or not a SHA-256 in lowercase hex")
        return digest

    def sha256s(self, key: str) -> tuple[str, ...]:
        """Return a list of hashes."""
        hashes = self._typed(key, list)
        if not all(map(is_sha256, hashes)):
            raise MalformedError(f"'{key}' holds something that is not a SHA-256")
        return tuple(hashes)

    def position(self, key: str) -> tuple[str, ...]:
        """Return a position in a run: four texts."""
        texts = self._typed(key, list)
        if [type(text) for text in texts] != [str] * 4:
            raise MalformedError(f"'{key}' is not a position in a run")
        return tuple(texts)

    def child(self, key: str) -> Fields:
        """Return an object."""
        return Fields(self._content.get(key), self._holder)

    def children(self, key: str) -> list[Fields]:
        """Return the objects of a list."""
        return [Fields(child, self._holder) for child in self._typed(key, list)]

    def location(self) -> Location:
        """Return this object as a location."""
        return Location(
            self.text("blob_id") or self._holder,
            self.text("identifier"),
            self.sha256("sha256"),
            self.count("size_bytes"),
            self._key(),
        )

    def _key(self) -> bytes:
        key = self._content.get("key", "")
        if not isinstance(key, str) or (key and not _HEX_32_BYTES.fullmatch(key)):
            raise MalformedError("'key' is not 32 bytes in lowercase hex")
        return bytes.fromhex(key)

    def _typed(self, key: str, kind: type[_T]) -> _T:
        value = self._content.get(key)
        if type(value) is not kind:
            raise MalformedError(f"'{key}' is missing or not of type {kind.__name__}")
        return value


def is_json_object(data: bytes) -> bool:
    """Return whether bytes are a JSON object, which metadata must be."""
    try:
        return isinstance(json.loads(data.decode(), parse_constant=_no_constant), dict)
    except (ValueError, RecursionError):
        return False


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise ValueError("a key comes twice")
    return members


def _no_constant(name: str) -> object:
    raise ValueError(f"{name} is not JSON")


# --- lists of parts --------------------------------------------------------------------


def read_part_list(
    data: bytes, holder: str, max_bytes: int
) -> tuple[str, tuple[Location, ...]] | None:
    """Return the SHA-256 of joined parts and their locations, or `None` if data lists no parts.

    Args:
        data: The stored bytes.
        holder: Blob with the bytes.
        max_bytes: Bound on the size of the joined parts.

    Raises:
        MalformedError: The list is malformed.
    """
    if not data.startswith(b"{") or b'"kind":"parts"' not in data[:64]:
        return None
    fields = Fields.document(data, "parts", holder)
    parts = tuple(part.location() for part in fields.children("parts"))
    size = fields.count("size_bytes")
    sizes = {part.sha256: part.size_bytes or 0 for part in parts}
    times = Counter(part.sha256 for part in parts)
    if any(count > _MOST_REPEATS for count in times.values()):
        raise MalformedError(f"it names a part more than {_MOST_REPEATS} times")
    if len(set(parts)) != len(sizes):
        raise MalformedError("it names a part with two sizes or at two places")
    if not all(0 < part_bytes <= MEMBER_BYTES for part_bytes in sizes.values()):
        raise MalformedError(f"it has a part of no bytes, or of more than {MEMBER_BYTES}")
    if size > max_bytes or len(parts) > MOST_PARTS:
        raise MalformedError(
            f"it has more than {MOST_PARTS} parts, or they make over {max_bytes} bytes"
        )
    if sum(part.size_bytes or 0 for part in parts) != size:
        raise MalformedError(f"its parts do not make up {size} bytes")
    return fields.sha256("sha256"), parts
