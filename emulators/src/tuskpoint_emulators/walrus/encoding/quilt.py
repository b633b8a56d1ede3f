"""Quilts, version 1: many patches in one blob of 334 rows by 667 columns.

The layout does not depend on the number of shards: it is always the layout of 1000 shards, so
that ranges, limits and raw reads equal Walrus's.

A quilt begins with its index, patches follow, sorted by identifier bytes; each takes whole
columns, filled from top to bottom. The blob holds the matrix row by row.
"""

from __future__ import annotations

import base64
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from . import bcs
from .blob_id import ID_BYTES, decode_unpadded
from .geometry import MAINNET, MAX_SYMBOL_BYTES

ROWS = MAINNET.rows
COLUMNS = MAINNET.columns

MAX_FILES = COLUMNS - 1
MAX_INDEX_COLUMNS = 10
MAX_IDENTIFIER_BYTES = 65_535
MAX_TAGS_BYTES = 65_535
MAX_PATCH_BYTES = 2**32 - 1

PATCH_ID_BYTES = 37
PATCH_ID_CHARACTERS = 50

_VERSION = 1
_HAS_TAGS = 1
_INDEX_PREFIX_BYTES = 5


class QuiltRefusedError(ValueError):
    """The files cannot be a quilt. The message names the broken rule."""


class NoFiles(QuiltRefusedError):
    """The quilt has no file."""


class TooManyFiles(QuiltRefusedError):
    """The files are more than the columns beside the index."""


class InvalidIdentifier(QuiltRefusedError):
    """The identifier is empty or too long, ends in whitespace, or has control characters."""


class DuplicateIdentifier(QuiltRefusedError):
    """Two files have the same identifier."""


class TagsTooLarge(QuiltRefusedError):
    """The tags serialize to more than 65,535 bytes."""


class ContentTooLarge(QuiltRefusedError):
    """A file, or all files together, exceed the size of a quilt."""


class NotAQuilt(ValueError):
    """The bytes are not a quilt, or the range of columns is not a patch."""


class PatchNotFound(LookupError):
    """The quilt has no patch with the identifier."""


class MalformedPatchId(ValueError):
    """The text is not 50 characters of URL-safe base64."""


@dataclass(frozen=True, slots=True)
class QuiltFile:
    """A file of a quilt: identifier, content and tags."""

    identifier: str
    content: bytes
    tags: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True)
class PatchEntry:
    """One line of a quilt's index: the columns `start` (inclusive) to `end` (exclusive)."""

    identifier: str
    start: int
    end: int
    tags: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Patch:
    """A patch that was read from a quilt."""

    identifier: str
    content: bytes
    tags: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Quilt:
    """An encoded quilt.

    Attributes:
        data: The bytes of the blob.
        symbol_bytes: Size of a symbol.
        entries: The index, sorted by identifier bytes.
    """

    data: bytes
    symbol_bytes: int
    entries: tuple[PatchEntry, ...]


@dataclass(frozen=True, slots=True)
class PatchId:
    """The parts of a patch ID. The patch may not exist.

    Attributes:
        quilt_id: The 32 bytes of the quilt's blob ID.
        version: Quilt version; 1 is the only one.
        start: First column.
        end: Column after the last.
    """

    quilt_id: bytes
    version: int
    start: int
    end: int


# --- writing --------------------------------------------------------------------------------------


def encode(files: Sequence[QuiltFile]) -> Quilt:
    """Encode files as a quilt. The same files, in any order, give the same bytes.

    Raises:
        QuiltRefusedError: One of its subclasses.
    """
    if not files:
        raise NoFiles("a quilt holds at least one file")
    for file in files:
        check_identifier(file.identifier)
    ordered = sorted(files, key=lambda file: file.identifier.encode())
    for before, after in pairwise(ordered):
        if before.identifier == after.identifier:
            raise DuplicateIdentifier(f"two files are named {after.identifier!r}")
    if len(ordered) > MAX_FILES:
        raise TooManyFiles(f"{len(ordered)} files are more than {MAX_FILES}")

    patches = [_patch(file) for file in ordered]
    index_bytes = len(_index(ordered, [0] * len(ordered)))
    symbol = _symbol_bytes(index_bytes, [len(patch) for patch in patches])
    column = ROWS * symbol

    entries_ = []
    matrix = bytearray(COLUMNS * column)
    start = -(-index_bytes // column)
    for file, patch in zip(ordered, patches, strict=True):
        end = start - (-len(patch) // column)
        matrix[start * column : start * column + len(patch)] = patch
        entries_.append(PatchEntry(file.identifier, start, end, dict(file.tags or {})))
        start = end
    matrix[:index_bytes] = _index(ordered, [entry.end for entry in entries_])
    by_columns = np.frombuffer(matrix, dtype=np.uint8).reshape(COLUMNS, ROWS, symbol)
    return Quilt(by_columns.swapaxes(0, 1).tobytes(), symbol, tuple(entries_))


def check_identifier(identifier: str) -> None:
    """Check the identifier of a patch.

    Raises:
        InvalidIdentifier: A patch cannot have this identifier.
    """
    try:
        size = len(identifier.encode())
    except UnicodeEncodeError as broken:
        raise InvalidIdentifier("an identifier is not Unicode text") from broken
    if not size:
        raise InvalidIdentifier("an identifier is empty")
    # The limit applies to the serialized form, which has its length as a prefix.
    if size > MAX_IDENTIFIER_BYTES or len(bcs.string(identifier)) >= MAX_IDENTIFIER_BYTES:
        raise InvalidIdentifier(f"an identifier is too long: {size} bytes")
    if identifier.rstrip() != identifier:
        raise InvalidIdentifier(f"an identifier has trailing whitespace: {identifier!r}")
    if any(unicodedata.category(character) == "Cc" for character in identifier):
        raise InvalidIdentifier(f"an identifier has control characters: {identifier!r}")


def _patch(file: QuiltFile) -> bytes:
    identifier = bcs.string(file.identifier)
    body = len(identifier).to_bytes(2, "little") + identifier
    if file.tags:
        tags = bcs.string_map(file.tags)
        if len(tags) > MAX_TAGS_BYTES:
            raise TagsTooLarge(f"the tags of {file.identifier!r} take {len(tags)} bytes")
        body += len(tags).to_bytes(2, "little") + tags
    length = len(body) + len(file.content)
    if length > MAX_PATCH_BYTES:
        raise ContentTooLarge(f"{file.identifier!r} takes {length} bytes")
    mask = _HAS_TAGS if file.tags else 0
    header = bytes([_VERSION]) + length.to_bytes(4, "little") + bytes([mask])
    return header + body + file.content


def _index(files: Sequence[QuiltFile], ends: Sequence[int]) -> bytes:
    body = bcs.count(len(files)) + b"".join(
        end.to_bytes(2, "little") + bcs.string(file.identifier) + bcs.string_map(file.tags or {})
        for file, end in zip(files, ends, strict=True)
    )
    return bytes([_VERSION]) + len(body).to_bytes(4, "little") + body


def _symbol_bytes(index_bytes: int, patch_bytes: Sequence[int]) -> int:
    """Return the smallest even symbol size with which all files fit, by bisection."""
    low, high = 1, MAX_SYMBOL_BYTES // 2 + 1
    while low < high:
        middle = (low + high) // 2
        if _fits(2 * middle * ROWS, index_bytes, patch_bytes):
            high = middle
        else:
            low = middle + 1
    if 2 * low > MAX_SYMBOL_BYTES:
        raise ContentTooLarge(f"{sum(patch_bytes)} bytes are more than a quilt holds")
    return 2 * low


def _fits(column: int, index_bytes: int, patch_bytes: Sequence[int]) -> bool:
    index_columns = -(-index_bytes // column)
    patch_columns = sum(-(-size // column) for size in patch_bytes)
    return index_columns <= MAX_INDEX_COLUMNS and index_columns + patch_columns <= COLUMNS


# --- reading --------------------------------------------------------------------------------------


def entries(data: bytes) -> tuple[PatchEntry, ...]:
    """Return the index of a quilt.

    Raises:
        NotAQuilt: The bytes have no index.
    """
    return tuple(_opened(data).values())


def read_by_identifier(data: bytes, identifier: str) -> Patch:
    """Return the patch with an identifier.

    Raises:
        NotAQuilt: The bytes are not a quilt.
        PatchNotFound: The quilt has no such patch.
    """
    entry = _opened(data).get(identifier)
    if entry is None:
        raise PatchNotFound(f"no patch {identifier!r}")
    return read_by_range(data, entry.start, entry.end)


def read_by_range(data: bytes, start: int, end: int) -> Patch:
    """Return the patch in a range of columns.

    Raises:
        NotAQuilt: The bytes are not a quilt, or the range is not a patch.
    """
    if not 0 <= start < end <= COLUMNS:
        raise NotAQuilt(f"columns {start} to {end} are none")
    reader = bcs.Reader(_columns(data, start, end))
    try:
        if reader.number(1) != _VERSION:
            raise NotAQuilt(f"no patch begins at column {start}")
        length = reader.number(4)
        mask = reader.number(1)
        body = bcs.Reader(reader.take(length))
        identifier = bcs.Reader(body.take(body.number(2))).string()
        tags = {}
        if mask & _HAS_TAGS:
            tags = bcs.Reader(body.take(body.number(2))).string_map()
        return Patch(identifier, body.rest(), tags)
    except bcs.MalformedError as broken:
        raise NotAQuilt(f"columns {start} to {end} hold no patch: {broken}") from broken


def _opened(data: bytes) -> dict[str, PatchEntry]:
    """Return the index by identifier; the first of two equal identifiers counts."""
    column = ROWS * MAINNET.symbol_bytes(len(data))
    try:
        prefix = bcs.Reader(_columns(data, 0, 1)[:_INDEX_PREFIX_BYTES])
        if prefix.number(1) != _VERSION:
            raise NotAQuilt("the bytes are not a quilt of version 1")
        size = _INDEX_PREFIX_BYTES + prefix.number(4)
        columns = -(-size // column)
        if columns > MAX_INDEX_COLUMNS:
            raise NotAQuilt(f"an index of {size} bytes is none")
        reader = bcs.Reader(_columns(data, 0, columns)[_INDEX_PREFIX_BYTES:size])
        by_identifier: dict[str, PatchEntry] = {}
        start = columns
        for _ in range(reader.count()):
            end = reader.number(2)
            identifier = reader.string()
            by_identifier.setdefault(
                identifier, PatchEntry(identifier, start, end, reader.string_map())
            )
            start = end
    except bcs.MalformedError as broken:
        raise NotAQuilt(f"the bytes hold no index: {broken}") from broken
    return by_identifier


def _columns(data: bytes, start: int, end: int) -> bytes:
    """Return whole columns, top to bottom, after padding the blob to the matrix."""
    symbol = MAINNET.symbol_bytes(len(data))
    padded = data.ljust(ROWS * COLUMNS * symbol, b"\0")
    matrix = np.frombuffer(padded, dtype=np.uint8).reshape(ROWS, COLUMNS, symbol)
    return matrix[:, start:end].swapaxes(0, 1).tobytes()


# --- patch IDs ------------------------------------------------------------------------------------


def patch_id(quilt_id: bytes, start: int, end: int) -> str:
    """Return the patch ID of a range of columns: 50 characters."""
    place = bytes([_VERSION]) + start.to_bytes(2, "little") + end.to_bytes(2, "little")
    return base64.urlsafe_b64encode(quilt_id + place).rstrip(b"=").decode()


def parse_patch_id(text: str) -> PatchId:
    """Parse a patch ID.

    Raises:
        MalformedPatchId: Wrong length, padding, or other characters.
    """
    decoded = decode_unpadded(text) if len(text) == PATCH_ID_CHARACTERS else None
    if decoded is None or len(decoded) != PATCH_ID_BYTES:
        raise MalformedPatchId(f"not {PATCH_ID_CHARACTERS} characters of URL-safe base64: {text!r}")
    place = bcs.Reader(decoded[ID_BYTES:])
    return PatchId(decoded[:ID_BYTES], place.number(1), place.number(2), place.number(2))
