"""JSON as it is stored in blobs: manifests and catalogs.

UTF-8, sorted snake_case keys, no white space, hashes as lowercase hex: the same
content has the same bytes and so the same hash. What is read is checked field by
field, because a hash proves who wrote the bytes, not that they make sense.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TypeVar

from .digests import DIGEST_BYTES
from .errors import Reason, Refusal
from .model import BlobLocation

_T = TypeVar("_T")

JsonObject = dict[str, object]


def dump(content: Mapping[str, object]) -> bytes:
    """Return the canonical bytes."""
    return json.dumps(
        content, ensure_ascii=False, sort_keys=True, separators=(",", ":"), allow_nan=False
    ).encode()


def malformed(name: str, problem: str) -> Refusal:
    """Return the refusal of stored bytes that cannot be understood.

    Args:
        name: Blob ID, or what else names the bytes.
        problem: What is wrong.
    """
    return Refusal(Reason.BLOB_MALFORMED, blob_id=name, problem=problem)


class Reader:
    """Typed access to a parsed JSON object.

    Every method raises `Refusal` (`BLOB_MALFORMED`) if the field is missing or of another
    type.
    """

    __slots__ = ("_content", "_name")

    def __init__(self, content: object, name: str) -> None:
        if not isinstance(content, dict):
            raise malformed(name, "an object was expected")
        self._content = content
        self._name = name

    @classmethod
    def parse(cls, data: bytes, name: str, format_version: int) -> Reader:
        """Parse bytes and check their `format_version`."""
        try:
            content = json.loads(data.decode("utf-8"))
        except (ValueError, RecursionError):
            raise malformed(name, "it is not JSON in UTF-8") from None
        reader = cls(content, name)
        found = reader.number("format_version")
        if found != format_version:
            raise malformed(name, f"format_version is {found} and only {format_version} is known")
        return reader

    def fail(self, problem: str) -> Refusal:
        """Return the refusal that names this blob."""
        return malformed(self._name, problem)

    def has(self, key: str) -> bool:
        """Tell whether a field is there and not null."""
        return self._content.get(key) is not None

    def text(self, key: str, default: str | None = None) -> str:
        """Return a string."""
        return self._typed(key, str, default)

    def number(self, key: str, default: int | None = None) -> int:
        """Return an integer that is not negative."""
        found = self._typed(key, int, default)
        if isinstance(found, bool) or found < 0:
            raise self.fail(f"'{key}' is not a count")
        return found

    def numbers(self, key: str) -> list[int]:
        """Return a list of integers."""
        found = self._typed(key, list, None)
        if not all(type(item) is int for item in found):
            raise self.fail(f"'{key}' is not a list of numbers")
        return found

    def flag(self, key: str, default: bool | None = None) -> bool:
        """Return a boolean."""
        return self._typed(key, bool, default)

    def sha256(self, key: str) -> bytes:
        """Return a hash that is written as lowercase hex."""
        spelled = self.text(key)
        try:
            digest = bytes.fromhex(spelled)
        except ValueError:
            raise self.fail(f"'{key}' is not hexadecimal") from None
        if len(digest) != DIGEST_BYTES or digest.hex() != spelled:
            raise self.fail(f"'{key}' is not a SHA-256 in lowercase hex")
        return digest

    def child(self, key: str) -> Reader:
        """Return a nested object."""
        return Reader(self._content.get(key), self._name)

    def children(self, key: str) -> list[Reader]:
        """Return a list of nested objects."""
        return [Reader(item, self._name) for item in self._typed(key, list, None)]

    def lists(self, key: str) -> list[list[Reader]]:
        """Return a list of lists of nested objects."""
        outer: list[list[Reader]] = []
        for inner in self._typed(key, list, None):
            if not isinstance(inner, list):
                raise self.fail(f"'{key}' is not a list of lists")
            outer.append([Reader(item, self._name) for item in inner])
        return outer

    def object(self, key: str) -> JsonObject:
        """Return a nested object as it is."""
        return self._typed(key, dict, None)

    def location(self, key: str) -> BlobLocation:
        """Return a nested location."""
        return self.child(key).as_location()

    def optional_location(self, key: str) -> BlobLocation | None:
        """Return a nested location, or `None` if it is null or missing."""
        return self.location(key) if self.has(key) else None

    def as_location(self) -> BlobLocation:
        """Return this object as a location."""
        return BlobLocation(
            sha256=self.sha256("sha256"),
            size=self.number("size_bytes"),
            blob_id=self.text("blob_id", ""),
            identifier=self.text("identifier", ""),
        )

    def _typed(self, key: str, kind: type[_T], default: _T | None) -> _T:
        found = self._content.get(key, default)
        if not isinstance(found, kind):
            raise self.fail(f"'{key}' is missing or not of type {kind.__name__}")
        return found


def location_json(location: BlobLocation) -> JsonObject:
    """Return the stored form of a location. An empty `blob_id` means "this quilt"."""
    return {
        "sha256": location.sha256.hex(),
        "size_bytes": location.size,
        "blob_id": location.blob_id,
        "identifier": location.identifier,
    }


def resolved(location: BlobLocation, holder: str) -> BlobLocation:
    """Return a location with "this quilt" replaced by the blob that held the reference."""
    if location.blob_id or not holder:
        return location
    return BlobLocation(location.sha256, location.size, holder, location.identifier)
