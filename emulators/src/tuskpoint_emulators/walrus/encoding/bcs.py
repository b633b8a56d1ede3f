"""The part of Binary Canonical Serialization (BCS) that quilts use.

Strings, maps of strings and unsigned numbers; see https://github.com/diem/bcs.
"""

from __future__ import annotations

from collections.abc import Mapping

_MAX_COUNT = 2**31 - 1


class MalformedError(ValueError):
    """The bytes are not the canonical form of the requested value."""


def count(number: int) -> bytes:
    """Return a length in ULEB128: seven bits a byte, lowest first."""
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


def string(text: str) -> bytes:
    """Return a string: its length in bytes, and UTF-8."""
    encoded = text.encode()
    return count(len(encoded)) + encoded


def string_map(pairs: Mapping[str, str]) -> bytes:
    """Return a map, ordered by the serialized form of its keys."""
    serialized = sorted((string(key), string(value)) for key, value in pairs.items())
    return count(len(serialized)) + b"".join(key + value for key, value in serialized)


class Reader:
    """Reads one value after another, and never past the end."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def take(self, size: int) -> bytes:
        """Return the next bytes.

        Raises:
            MalformedError: Fewer bytes are left.
        """
        end = self._at + size
        if end > len(self._data):
            raise MalformedError(f"{len(self._data)} bytes end before {end}")
        data = self._data[self._at : end]
        self._at = end
        return data

    def rest(self) -> bytes:
        """Return the unread bytes."""
        return self.take(len(self._data) - self._at)

    def number(self, size: int) -> int:
        """Return an unsigned number of `size` bytes, lowest first."""
        return int.from_bytes(self.take(size), "little")

    def count(self) -> int:
        """Return a length."""
        number = shift = 0
        while True:
            byte = self.number(1)
            number |= (byte & 0x7F) << shift
            if number > _MAX_COUNT:
                raise MalformedError("a length is too large")
            if not byte & 0x80:
                if shift and not byte:
                    raise MalformedError("a length is longer than it has to be")
                return number
            shift += 7

    def string(self) -> str:
        """Return a string."""
        encoded = self.take(self.count())
        try:
            return encoded.decode()
        except UnicodeDecodeError as broken:
            raise MalformedError("a string is not UTF-8") from broken

    def string_map(self) -> dict[str, str]:
        """Return a map."""
        pairs: dict[str, str] = {}
        for _ in range(self.count()):
            key = self.string()
            pairs[key] = self.string()
        return pairs
