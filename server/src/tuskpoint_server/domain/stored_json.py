"""JSON as it is stored: records, indexes of runs, catalogs, manifests, lists of parts.

UTF-8, snake_case keys in ascending order, no white space, hashes as lowercase hex: equal
content has equal bytes and so an equal hash. What is read is checked field by field, because
a hash proves who wrote the bytes, not that they make sense.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from .digests import DIGEST_BYTES
from .errors import Reason, Refusal
from .model import BlobLocation

JsonObject = dict[str, object]

FORMAT_VERSION = 2
"""Version of every stored format."""

MAX_NUMBER = (1 << 63) - 1
"""The greatest number that is read: every database and language holds it."""

_ENCODE = json.JSONEncoder(
    ensure_ascii=False, sort_keys=True, separators=(",", ":"), allow_nan=False
).encode


def dump(content: Mapping[str, object]) -> bytes:
    """Return the canonical bytes."""
    return _ENCODE(content).encode()


def malformed(name: str, problem: str) -> Refusal:
    """Return the refusal of stored bytes that cannot be understood; `name` is their blob ID."""
    return Refusal(Reason.BLOB_MALFORMED, blob_id=name, problem=problem)


class Fields:
    """Typed access to a parsed JSON object.

    Every method raises `Refusal` (`BLOB_MALFORMED`) if the field is missing or of another
    type.
    """

    __slots__ = ("_content", "_name")

    def __init__(self, content: object, name: str) -> None:
        if type(content) is not dict:
            raise malformed(name, "an object was expected")
        self._content = content
        self._name = name

    @classmethod
    def parse(cls, data: bytes | str, name: str) -> Fields:
        """Parse one object, JSON in UTF-8."""
        try:
            text = data if isinstance(data, str) else data.decode("utf-8")
            content = json.loads(text, object_pairs_hook=_distinct)
            if "\\u" in text:
                _ENCODE(content).encode()  # half a surrogate pair is no text
        except (ValueError, RecursionError):
            raise malformed(name, "it is not JSON in UTF-8, or has a key twice") from None
        return cls(content, name)

    @classmethod
    def document(cls, data: bytes, name: str, kind: str) -> Fields:
        """Parse the bytes of a document and check its `format_version` and `kind`."""
        fields = cls.parse(data, name)
        version = fields.number("format_version")
        if version != FORMAT_VERSION:
            raise fields.fail(f"format_version is {version} and only {FORMAT_VERSION} is known")
        found = fields.text("kind")
        if found != kind:
            raise fields.fail(f"it is of kind '{found[:40]}' where '{kind}' was expected")
        return fields

    def fail(self, problem: str) -> Refusal:
        """Return the refusal that names this blob."""
        return malformed(self._name, problem)

    def __contains__(self, key: str) -> bool:
        return key in self._content

    def has(self, key: str) -> bool:
        """Return whether a field is there and not null."""
        return self._content.get(key) is not None

    def text(self, key: str) -> str:
        """Return a string."""
        found = self._content.get(key)
        if type(found) is not str:
            raise self.fail(f"'{key}' is missing or no text")
        return found

    def name(self, key: str) -> str:
        """Return a string that is not empty."""
        found = self.text(key)
        if not found:
            raise self.fail(f"'{key}' is empty")
        return found

    def optional_text(self, key: str) -> str:
        """Return a string, empty if the field is missing."""
        return self.text(key) if key in self._content else ""

    def number(self, key: str) -> int:
        """Return an integer from 0 to `MAX_NUMBER`."""
        found = self._content.get(key)
        if type(found) is not int or not 0 <= found <= MAX_NUMBER:
            raise self.fail(f"'{key}' is missing or no count")
        return found

    def flag(self, key: str) -> bool:
        """Return a boolean."""
        found = self._content.get(key)
        if type(found) is not bool:
            raise self.fail(f"'{key}' is missing or no boolean")
        return found

    def sha256(self, key: str) -> bytes:
        """Return a hash that is written as lowercase hex."""
        return self._hash(self._content.get(key), key)

    def sha256s(self, key: str) -> tuple[bytes, ...]:
        """Return a list of hashes."""
        return tuple(self._hash(one, key) for one in self._list(key))

    def texts(self, key: str) -> tuple[str, ...]:
        """Return a list of strings."""
        found = []
        for one in self._list(key):
            if type(one) is not str:
                raise self.fail(f"'{key}' holds something that is no text")
            found.append(one)
        return tuple(found)

    def child(self, key: str) -> Fields:
        """Return a nested object."""
        return Fields(self._content.get(key), self._name)

    def children(self, key: str) -> list[Fields]:
        """Return a list of nested objects."""
        return [Fields(one, self._name) for one in self._list(key)]

    def location(self) -> BlobLocation:
        """Return this object as a location."""
        return BlobLocation(
            sha256=self.sha256("sha256"),
            size=self.number("size_bytes"),
            blob_id=self.text("blob_id"),
            identifier=self.text("identifier"),
        )

    def optional_location(self, key: str) -> BlobLocation | None:
        """Return a nested location, or `None` if it is null or missing."""
        return self.child(key).location() if self.has(key) else None

    def _list(self, key: str) -> list[object]:
        found = self._content.get(key)
        if type(found) is not list:
            raise self.fail(f"'{key}' is missing or no list")
        return found

    def _hash(self, spelled: object, key: str) -> bytes:
        if type(spelled) is str and len(spelled) == 2 * DIGEST_BYTES:
            try:
                digest = bytes.fromhex(spelled)
            except ValueError:
                digest = b""
            if digest.hex() == spelled:
                return digest
        raise self.fail(f"'{key}' is missing or no SHA-256 in lowercase hex")


def _distinct(pairs: list[tuple[str, object]]) -> JsonObject:
    content = dict(pairs)
    if len(content) < len(pairs):
        raise ValueError("a key comes twice")
    return content
