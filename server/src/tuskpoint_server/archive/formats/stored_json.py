"""Stored JSON (records, catalogs, manifests), members, and lists of parts.

The JSON is UTF-8 with snake_case keys in ascending order, no white space, and hashes as lowercase
hex: equal content has equal bytes and so an equal hash. Decoding checks every field.

Members are stored bytes that are named by their SHA-256. Larger content is cut into parts, and a
list of the parts is stored in its place.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from enum import StrEnum
from typing import Any

from ...core.errors import Reason, Refusal, malformed_bytes
from ...core.limits import MAX_MEMBER_READ
from ...core.model import BlobLocation
from ...core.values import DIGEST_BYTES, blob_digest

JsonObject = dict[str, object]
FORMAT_VERSION = 2  # version of every stored format
# greatest number that is accepted: every database and language can represent it
MAX_NUMBER = (1 << 63) - 1
MEMBER_BYTES = 8 << 20  # largest member in bytes; larger content is stored in parts
MAX_PARTS = 4096
MAX_REPEATS = 16
"""Most times that a list may name the same part, which is fetched once."""

_ENCODE = json.JSONEncoder(
    ensure_ascii=False, sort_keys=True, separators=(",", ":"), allow_nan=False
).encode


class Kind(StrEnum):
    """Kind of a member's content; also the member's tag in a quilt, where it is only a hint."""

    SEGMENT = "segment"
    PARTS = "parts"  # list of the parts of a segment or a manifest
    PART = "part"
    RUN = "run"
    CATALOG = "catalog"
    MANIFEST = "manifest"  # folded manifest of one thread


def dump(content: Mapping[str, object]) -> bytes:
    """Return the canonical bytes of an object."""
    return _ENCODE(content).encode()


def dump_document(kind: Kind, content: Mapping[str, object]) -> bytes:
    """Return the canonical bytes of a document, for `Fields.document`."""
    return dump({"format_version": FORMAT_VERSION, "kind": kind.value, **content})


class Fields:
    """Typed access to a parsed JSON object of the blob with the ID `name`.

    Every method refuses (`BLOB_MALFORMED`) a field that is missing or has another type.
    """

    __slots__ = ("_content", "_name")

    def __init__(self, content: object, name: str) -> None:
        if type(content) is not dict:
            raise malformed_bytes(name, "an object was expected")
        self._content = content
        self._name = name

    @classmethod
    def parse(cls, data: bytes | str, name: str) -> Fields:
        """Parse one object, JSON in UTF-8."""
        try:
            text = data if isinstance(data, str) else data.decode("utf-8")
            content = json.loads(text, object_pairs_hook=_object_of_pairs)
            if "\\u" in text:
                # encoding fails for half a surrogate pair, which is not valid text
                _ENCODE(content).encode()
        except (ValueError, RecursionError):
            raise malformed_bytes(name, "it is not JSON in UTF-8, or has a key twice") from None
        return cls(content, name)

    @classmethod
    def document(cls, data: bytes, name: str, kind: str) -> Fields:
        """Parse the bytes of a document and check its `format_version` and `kind`."""
        stored = cls.parse(data, name)
        version = stored.number("format_version")
        if version != FORMAT_VERSION:
            raise stored.fail(f"format_version is {version} and only {FORMAT_VERSION} is known")
        stored_kind = stored.text("kind")
        if stored_kind != kind:
            raise stored.fail(f"it is of kind '{stored_kind[:40]}' where '{kind}' was expected")
        return stored

    def fail(self, problem: str) -> Refusal:
        """Return a refusal that names the blob."""
        return malformed_bytes(self._name, problem)

    def __contains__(self, key: str) -> bool:
        return key in self._content

    def has(self, key: str) -> bool:
        """Return whether a field is present and not null."""
        return self._content.get(key) is not None

    def text(self, key: str) -> str:
        """Return a string."""
        text = self._content.get(key)
        if type(text) is not str:
            raise self.fail(f"'{key}' is missing or no text")
        return text

    def name(self, key: str) -> str:
        """Return a string that is not empty."""
        text = self.text(key)
        if not text:
            raise self.fail(f"'{key}' is empty")
        return text

    def number(self, key: str) -> int:
        """Return an integer from 0 to `MAX_NUMBER`."""
        number = self._content.get(key)
        if type(number) is not int or not 0 <= number <= MAX_NUMBER:
            raise self.fail(f"'{key}' is missing or no count")
        return number

    def flag(self, key: str) -> bool:
        """Return a boolean."""
        flag = self._content.get(key)
        if type(flag) is not bool:
            raise self.fail(f"'{key}' is missing or no boolean")
        return flag

    def sha256(self, key: str) -> bytes:
        """Return a hash that is stored as lowercase hex."""
        return self._hash(self._content.get(key), key)

    def sha256s(self, key: str) -> tuple[bytes, ...]:
        """Return a list of hashes."""
        return tuple(self._hash(item, key) for item in self._list(key))

    def texts(self, key: str) -> tuple[str, ...]:
        """Return a list of strings."""
        texts = []
        for text in self._list(key):
            if type(text) is not str:
                raise self.fail(f"'{key}' holds something that is not a text")
            texts.append(text)
        return tuple(texts)

    def child(self, key: str) -> Fields:
        """Return a nested object."""
        return Fields(self._content.get(key), self._name)

    def children(self, key: str) -> list[Fields]:
        """Return a list of nested objects."""
        return [Fields(content, self._name) for content in self._list(key)]

    def settled(self) -> BlobLocation:
        """Return the object as a location, with "this quilt" replaced by this blob."""
        return BlobLocation(
            sha256=self.sha256("sha256"),
            size=self.number("size_bytes"),
            blob_id=self.text("blob_id") or self._name,
            identifier=self.text("identifier"),
            key=self.sha256("key") if "key" in self else b"",  # a key has as many bytes as a hash
        )

    def _list(self, key: str) -> list[object]:
        items = self._content.get(key)
        if type(items) is not list:
            raise self.fail(f"'{key}' is missing or no list")
        return items

    def _hash(self, text: object, key: str) -> bytes:
        if type(text) is str and len(text) == 2 * DIGEST_BYTES:
            try:
                digest = bytes.fromhex(text)
            except ValueError:
                digest = b""
            if digest.hex() == text:
                return digest
        raise self.fail(f"'{key}' is missing or no SHA-256 in lowercase hex")


def _object_of_pairs(pairs: list[tuple[str, object]]) -> JsonObject:
    content = dict(pairs)
    if len(content) < len(pairs):
        raise ValueError("a key comes twice")
    return content


STORED_NAMES = {
    "size": "size_bytes",
    "parent_id": "parent_checkpoint_id",
    "metadata": "metadata_json",
    "created_us": "create_time_us",
}
"""Names in stored JSON of fields that have another name in code."""


def row_json(row: Any) -> JsonObject:
    """Return the stored form of a dataclass. An empty `blob_id` means "this quilt"."""
    content: JsonObject = {}
    for field in fields(row):
        value = getattr(row, field.name)
        if field.name in ("location", "runs"):
            content.update(row_json(value))  # the fields are merged into the object
        elif field.name == "key" and not value:
            continue
        else:
            content[STORED_NAMES.get(field.name, field.name)] = _to_json(value)
    return content


def _to_json(value: object) -> object:
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, tuple):
        items = map(_to_json, value)  # runs are the only lists inside a list
        return [{"runs": item} if isinstance(item, list) else item for item in items]
    return row_json(value) if is_dataclass(value) else value


def settle_location(location: BlobLocation, holder: str) -> BlobLocation:
    """Return a location with "this quilt" replaced by the blob that held the reference."""
    return location if location.blob_id else replace(location, blob_id=holder)


@dataclass(frozen=True, slots=True)
class PartList:
    """Parts of some bytes, in order, and the size and hash of the joined bytes."""

    sha256: bytes
    size: int
    parts: tuple[BlobLocation, ...]


def encode_parts(data: bytes, parts: Sequence[BlobLocation]) -> bytes:
    """Return the stored form of the list of parts of `data`."""
    part_list = PartList(blob_digest(data), len(data), tuple(parts))
    return dump_document(Kind.PARTS, row_json(part_list))


def is_part_list(data: bytes) -> bool:
    """Return whether stored bytes are a list of parts; a segment starts with other bytes."""
    return data.startswith(b"{")


def decode_parts(data: bytes, location: BlobLocation, max_bytes: int) -> PartList:
    """Return the list of parts at a location; refuse parts of more than `max_bytes` together."""
    stored = Fields.document(data, location.blob_id, Kind.PARTS)
    parts = tuple(part.settled() for part in stored.children("parts"))
    size = stored.number("size_bytes")
    if len(parts) > MAX_PARTS:
        raise stored.fail(f"it has more than {MAX_PARTS} parts")
    counts = Counter(part.sha256 for part in parts)
    if any(count > MAX_REPEATS for count in counts.values()):
        raise stored.fail(f"it names a part more than {MAX_REPEATS} times")
    if len(set(parts)) != len(counts):
        raise stored.fail("it names a part with two sizes or at two places")
    if not all(0 < part.size <= MAX_MEMBER_READ for part in parts):
        raise stored.fail(f"it has a part of no bytes, or of more than {MAX_MEMBER_READ}")
    if size > max_bytes or sum(part.size for part in parts) != size:
        raise stored.fail(f"its parts do not make up {size} bytes, or more than {max_bytes}")
    return PartList(stored.sha256("sha256"), size, parts)


def join_parts(listed: PartList, parts: Sequence[bytes], name: str) -> bytes:
    """Join parts; refuse other bytes with `BLOB_MALFORMED` or `BLOB_HASH_MISMATCH`."""
    data = b"".join(parts)
    if len(data) != listed.size:
        raise malformed_bytes(
            name, f"its parts have {len(data)} bytes where {listed.size} were listed"
        )
    actual, expected = blob_digest(data).hex(), listed.sha256.hex()
    if actual != expected:
        raise Refusal(Reason.BLOB_HASH_MISMATCH, blob_id=name, expected=expected, actual=actual)
    return data
