"""Quilts, version 1: many patches in one blob, in the layout of the Walrus core crate.

A quilt is a matrix of 334 rows and 667 columns of symbols, stored row by row. Patches
fill whole columns, each column from top to bottom. The first columns hold the index:

    0x01, length (u32), list of (end column (u16), identifier, tags)

and a patch begins where the one before it ends:

    0x01, length of the rest after the header (u32), flags (bit 0: tags),
    length of the identifier (u16), identifier, [length of the tags (u16), tags,] data

Numbers are little-endian; list, identifiers and tags are in BCS (a length in ULEB128
before the elements). Pure functions.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from io import BytesIO

ROWS = 334  # primary source symbols: the 1000 shards minus twice the tolerated faults
COLUMNS = 667  # secondary source symbols: the 1000 shards minus the tolerated faults
SYMBOLS = ROWS * COLUMNS
MAX_PATCHES = COLUMNS - 1
_MAX_SYMBOL_BYTES = 65_534
_MAX_INDEX_COLUMNS = 10
_MAX_IDENTIFIER_BYTES = 65_535
_VERSION = 1
_HEADER_BYTES = 6
_HAS_TAGS = 1
# symbols below this size are gathered byte by byte of the symbol, others row by row
_STRIDES_BELOW = 24


@dataclass(frozen=True, slots=True)
class Patch:
    """Patch of a quilt: its name, unique in the quilt, its tags, its bytes."""

    identifier: str
    tags: Mapping[str, str] = field(default_factory=dict)
    data: bytes = b""


def is_identifier(name: str) -> bool:
    """Return whether a name is a valid identifier."""
    return (
        name[:1].isalnum()
        and name == name.rstrip()
        and not any(ord(char) < 0x20 or 0x7F <= ord(char) < 0xA0 for char in name)
        and len(name.encode("utf-8", "surrogatepass")) <= _MAX_IDENTIFIER_BYTES
    )


def quilt_bytes(patches: Iterable[tuple[str, Mapping[str, str], int]]) -> int:
    """Return the size of the blob for patches, given name, tags and data size of each patch.

    A large patch beside many small ones makes the quilt larger than their sum: all columns have the
    same height, and a column has bytes of one patch only.
    """
    index = 1 + 4
    sizes = []
    for identifier, tags, size in patches:
        name = _text_bytes(identifier)
        tagged = _tags_bytes(tags)
        index += 2 + name + tagged
        sizes.append(_HEADER_BYTES + 2 + name + (2 + tagged if tags else 0) + size)
    if not 1 <= len(sizes) <= MAX_PATCHES:
        raise ValueError(f"a quilt holds 1 to {MAX_PATCHES} patches, not {len(sizes)}")
    index += _uleb_bytes(len(sizes))

    def fits(half_symbol: int) -> bool:
        height = ROWS * 2 * half_symbol
        columns = -(-index // height)
        return (
            columns <= _MAX_INDEX_COLUMNS
            and columns + sum(-(-size // height) for size in sizes) <= COLUMNS
        )

    halves = range(1, _MAX_SYMBOL_BYTES // 2 + 1)
    place = bisect_left(halves, True, key=fits)
    if place == len(halves):
        raise ValueError("the patches are larger than any quilt")
    return SYMBOLS * 2 * halves[place]


def _text_bytes(text: str) -> int:
    size = len(text.encode())
    return _uleb_bytes(size) + size


def _tags_bytes(tags: Mapping[str, str]) -> int:
    return _uleb_bytes(len(tags)) + sum(
        _text_bytes(key) + _text_bytes(value) for key, value in tags.items()
    )


def _uleb_bytes(number: int) -> int:
    return -(-max(1, number.bit_length()) // 7)


def parse_quilt(raw: bytes) -> list[Patch]:
    """Return the patches of a raw quilt, in the quilt's order; check every length before use."""
    _require(bool(raw) and len(raw) % (2 * SYMBOLS) == 0)
    start, entries = _read_index(raw)
    patches: dict[str, Patch] = {}
    for end, identifier, tags in entries:
        _require(start < end <= COLUMNS and identifier not in patches)
        patches[identifier] = _read_patch(_columns(raw, start, end), identifier, tags)
        start = end
    return list(patches.values())


def _require(holds: bool) -> None:
    if not holds:
        raise ValueError(f"it is not a quilt of version {_VERSION}")


def _columns(raw: bytes, start: int, end: int) -> bytes:
    """Return the bytes of the columns from `start` up to, but not including, `end`."""
    symbol = len(raw) // SYMBOLS
    row = COLUMNS * symbol
    columns: list[bytes | bytearray] = []
    for first in range(start * symbol, end * symbol, symbol):
        if symbol >= _STRIDES_BELOW:
            columns.append(
                b"".join([raw[offset : offset + symbol] for offset in range(first, len(raw), row)])
            )
            continue
        column = bytearray(ROWS * symbol)
        for byte in range(symbol):
            column[byte::symbol] = raw[first + byte :: row]
        columns.append(column)
    return b"".join(columns)


def _read_index(raw: bytes) -> tuple[int, list[tuple[int, str, dict[str, str]]]]:
    """Return the number of columns that the index fills, and its entries."""
    head = _QuiltBytes(_columns(raw, 0, 1))
    _require(head.number(1) == _VERSION)
    size = 1 + 4 + head.number(4)
    column_count = -(-size // (len(raw) // COLUMNS))
    _require(column_count <= _MAX_INDEX_COLUMNS)
    index = _QuiltBytes(_columns(raw, 0, column_count)[1 + 4 : size])
    count = index.length()
    _require(1 <= count <= MAX_PATCHES)
    entries = [(index.number(2), index.text(), index.tags()) for _ in range(count)]
    _require(not index.read())
    return column_count, entries


def _read_patch(content: bytes, identifier: str, tags: dict[str, str]) -> Patch:
    header = _QuiltBytes(content)
    _require(header.number(1) == _VERSION)
    size = header.number(4)
    flags = header.number(1)
    body = _QuiltBytes(header.take(size))
    name = _QuiltBytes(body.take(body.number(2)))
    _require(name.text() == identifier and not name.read())
    if flags & _HAS_TAGS:
        tagged = _QuiltBytes(body.take(body.number(2)))
        _require(tagged.tags() == tags and not tagged.read())
    return Patch(identifier, tags, body.read())


class _QuiltBytes(BytesIO):
    """Reader that never reads past the end."""

    def take(self, size: int) -> bytes:
        data = self.read(size)
        _require(len(data) == size)
        return data

    def number(self, size: int) -> int:
        return int.from_bytes(self.take(size), "little")

    def length(self) -> int:
        """Return the next ULEB128 number; refuse more than 32 bits or a longer form than needed."""
        number, shift, byte = 0, 0, 0x80
        while byte >= 0x80:
            byte = self.number(1)
            number |= (byte & 0x7F) << shift
            shift += 7
            _require(number < 1 << 32 and shift <= 35)
        _require(byte > 0 or shift == 7)
        return number

    def text(self) -> str:
        return self.take(self.length()).decode()  # invalid UTF-8 raises a ValueError too

    def tags(self) -> dict[str, str]:
        return {self.text(): self.text() for _ in range(self.length())}
