"""The identity of a blob: 32 bytes that commit to its content and its length.

Three ways to compute it: as a network of 1000 shards does (`real`, seconds), as a network
of fewer shards does (`n=10`, milliseconds up to some MiB), or `fast`, which
costs two hashes and is not a blob ID of Walrus.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from functools import partial
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from .geometry import MAINNET_SHARDS, Geometry
from .reed_solomon import Words, recovery

Octets: TypeAlias = npt.NDArray[np.uint8]

ID_BYTES = 32
ID_CHARACTERS = 43

_ENCODING_RS2 = b"\x01"
_FAST_DOMAIN = b"tuskpoint-emulators/walrus/fast-blob-id/v1\0"
_LEAF = 0
_INNER = 1

_blake2b = partial(hashlib.blake2b, digest_size=ID_BYTES)


class MalformedBlobId(ValueError):
    """A text that is not 43 characters of URL-safe base64."""


def to_text(blob_id: bytes) -> str:
    """Return the 43 characters of URL-safe base64 without padding."""
    return base64.urlsafe_b64encode(blob_id).rstrip(b"=").decode()


def from_text(text: str) -> bytes:
    """Return the 32 bytes of a blob ID's text form.

    Raises:
        MalformedBlobId: Wrong length, padding, or other characters.
    """
    decoded = decode_unpadded(text)
    if decoded is None or len(text) != ID_CHARACTERS:
        raise MalformedBlobId(f"not {ID_CHARACTERS} characters of URL-safe base64: {text!r}")
    return decoded


def decode_unpadded(text: str) -> bytes | None:
    """Return the bytes of URL-safe base64 without padding; `None` if it is not canonical."""
    try:
        padding = "=" * (-len(text) % 4)
        decoded = base64.b64decode(text + padding, altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        return None
    return decoded if to_text(decoded) == text else None


def blob_id(data: bytes, n_shards: int = MAINNET_SHARDS) -> bytes:
    """Return the 32 bytes that identify a blob on a network of `n_shards`.

    Raises:
        BlobTooLarge: The shards cannot encode it.
    """
    return commitment(sliver_root(data, n_shards), len(data))


def commitment(root: bytes, length: int) -> bytes:
    """Return the blob ID of a root over sliver pairs and a length in bytes."""
    return _blake2b(_ENCODING_RS2 + length.to_bytes(8, "little") + root).digest()


def fast_blob_id(data: bytes) -> bytes:
    """Return 32 bytes that identify a blob in this emulator only.

    Blake2b-256 over a domain tag, the length and the SHA-256.
    """
    length = len(data).to_bytes(8, "little")
    return _blake2b(_FAST_DOMAIN + length + hashlib.sha256(data).digest()).digest()


def sliver_root(data: bytes, n_shards: int = MAINNET_SHARDS) -> bytes:
    """Return the Merkle root over the sliver pairs of a blob.

    Raises:
        BlobTooLarge: The shards cannot encode it.
    """
    geometry = Geometry(n_shards)
    leaves = _leaves(_symbols(data, geometry))
    primary = _roots(leaves)
    secondary = _roots(leaves.transpose(1, 0, 2))
    pairs = np.concatenate([primary, secondary[::-1]], axis=1)
    root: Octets = _roots(_hashed(pairs, _LEAF)[None])[0]
    return root.tobytes()


def _symbols(data: bytes, geometry: Geometry) -> Octets:
    """Return all symbols of an encoded blob: an array of n by n by symbol size."""
    size = geometry.symbol_bytes(len(data))
    padded = np.zeros(geometry.source_symbols * size, dtype=np.uint8)
    padded[: len(data)] = np.frombuffer(data, dtype=np.uint8)
    low, high = _halves(size)
    source = padded.reshape(geometry.rows, geometry.columns, size)
    words: Words = source[:, :, high].astype(np.uint16)
    words = (words << np.uint16(8)) | source[:, :, low]
    n = geometry.n_shards
    # Rows first: their recovery symbols are then extended with their columns.
    wide = np.concatenate([words, _extended(words.swapaxes(0, 1), n).swapaxes(0, 1)], axis=1)
    full = np.concatenate([wide, _extended(wide, n)], axis=0)
    symbols = np.empty((n, n, size), dtype=np.uint8)
    symbols[:, :, low] = full & 0xFF
    symbols[:, :, high] = full >> 8
    return symbols


def _halves(size: int) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """Return the positions of the low and the high bytes of a symbol's 16-bit words.

    Each 64 bytes hold 32 low ones and then their high ones; the rest splits likewise.
    """
    low: list[int] = []
    high: list[int] = []
    for start in range(0, size, 64):
        half = min(64, size - start) // 2
        low += range(start, start + half)
        high += range(start + half, start + 2 * half)
    return np.array(low, dtype=np.intp), np.array(high, dtype=np.intp)


def _extended(words: Words, n_shards: int) -> Words:
    """Return the recovery symbols along the first axis of an array of three."""
    count, lines, width = words.shape
    flat = np.ascontiguousarray(words).reshape(count, lines * width)
    return recovery(flat, n_shards - count).reshape(-1, lines, width)


def _leaves(symbols: Octets) -> Octets:
    """Return the leaf digest of every symbol: an array of n by n by 32."""
    n, _, size = symbols.shape
    if size > 2:
        return np.stack([_hashed(row, _LEAF) for row in symbols])
    # At most 65,536 different symbols have two bytes: each is hashed once.
    distinct, inverse = np.unique(
        np.ascontiguousarray(symbols).view(np.uint16).reshape(-1), return_inverse=True
    )
    digests = _hashed(distinct.view(np.uint8).reshape(-1, 2), _LEAF)
    return digests[inverse.reshape(-1)].reshape(n, n, ID_BYTES)


def _roots(nodes: Octets) -> Octets:
    """Return the Merkle root of each line of leaf digests: lines by 32.

    Equal lines, which padding makes, are hashed once.
    """
    nodes = np.ascontiguousarray(nodes)
    distinct: dict[bytes, int] = {}
    places = [
        distinct.setdefault(_blake2b(line.tobytes()).digest(), len(distinct)) for line in nodes
    ]
    _, firsts = np.unique(places, return_index=True)
    nodes = nodes[firsts]
    while nodes.shape[1] > 1:
        lines, count, _ = nodes.shape
        paired = np.zeros((lines, count + count % 2, ID_BYTES), dtype=np.uint8)
        paired[:, :count] = nodes
        pairs = paired.reshape(-1, 2 * ID_BYTES)
        nodes = _hashed(pairs, _INNER).reshape(lines, -1, ID_BYTES)
    return nodes[places, 0]


def _hashed(records: Octets, prefix: int) -> Octets:
    """Return the digest of each record behind a prefix byte."""
    count, width = records.shape
    prefixed = np.empty((count, width + 1), dtype=np.uint8)
    prefixed[:, 0] = prefix
    prefixed[:, 1:] = records
    messages: list[bytes] = prefixed.view(f"V{width + 1}").reshape(-1).tolist()
    digests = b"".join([_blake2b(message).digest() for message in messages])
    return np.frombuffer(digests, dtype=np.uint8).reshape(count, ID_BYTES)


class BlobIds:
    """Computes blob IDs in one mode. Safe to call from many threads."""

    def __init__(self, mode: str = "fast") -> None:
        """Choose the mode.

        Args:
            mode: "fast", "real", or "n=K" for K shards.

        Raises:
            ValueError: The mode is unknown.
        """
        self._mode = mode
        self._geometry = _geometry_of(mode)

    @property
    def mode(self) -> str:
        """The mode."""
        return self._mode

    def of(self, data: bytes) -> bytes:
        """Return the 32 bytes of a blob's ID. Takes seconds in the mode `real`.

        Raises:
            BlobTooLarge: The shards cannot encode it.
        """
        if self._geometry is None:
            return fast_blob_id(data)
        return blob_id(data, self._geometry.n_shards)


def _geometry_of(mode: str) -> Geometry | None:
    if mode == "fast":
        return None
    if mode == "real":
        return Geometry(MAINNET_SHARDS)
    count = mode.removeprefix("n=")
    if count == mode or not (count.isascii() and count.isdigit()):
        raise ValueError(f'a mode of blob IDs is "fast", "real" or "n=K", not {mode!r}')
    return Geometry(int(count))
