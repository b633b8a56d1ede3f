"""The shape and the price of an encoded blob: shards, rows, columns, symbols, billed units."""

from __future__ import annotations

from dataclasses import dataclass

MAINNET_SHARDS = 1000

UNIT_BYTES = 1024 * 1024
"""Storage is sold in units of 1 MiB of encoded size, rounded up."""

MAX_SYMBOL_BYTES = 65_534
"""A symbol's size is an even number that fits 16 bits."""

_DIGEST_BYTES = 32
_SLIVER_PAIR_BYTES = 2 * _DIGEST_BYTES


class BlobTooLarge(ValueError):
    """A blob that its number of shards cannot encode."""


@dataclass(frozen=True, slots=True)
class Geometry:
    """The shape of every blob of a network with this many shards.

    A blob fills a matrix of `rows` times `columns` symbols, row by row; encoding extends it
    to `n_shards` times `n_shards`.

    Attributes:
        n_shards: Shards of the network, at least 4.
    """

    n_shards: int = MAINNET_SHARDS

    def __post_init__(self) -> None:
        if not 4 <= self.n_shards <= MAINNET_SHARDS:
            raise ValueError(f"{self.n_shards} shards: between 4 and {MAINNET_SHARDS} make sense")

    @property
    def faulty(self) -> int:
        """Shards that may be faulty: fewer than a third."""
        return (self.n_shards - 1) // 3

    @property
    def rows(self) -> int:
        """Rows of the source matrix: source symbols of a column."""
        return self.n_shards - 2 * self.faulty

    @property
    def columns(self) -> int:
        """Columns of the source matrix: source symbols of a row."""
        return self.n_shards - self.faulty

    @property
    def source_symbols(self) -> int:
        """Symbols of the source matrix."""
        return self.rows * self.columns

    @property
    def max_blob_bytes(self) -> int:
        """Size of the largest blob."""
        return self.source_symbols * MAX_SYMBOL_BYTES

    def symbol_bytes(self, length: int) -> int:
        """Return the size of a symbol of a blob of `length` bytes: even, at least 2.

        Raises:
            BlobTooLarge: `length` is above `max_blob_bytes`.
        """
        size = -(-max(length, 1) // self.source_symbols)
        size += size % 2
        if size > MAX_SYMBOL_BYTES:
            raise BlobTooLarge(
                f"a blob of {length} bytes is above the {self.max_blob_bytes} bytes "
                f"that {self.n_shards} shards encode"
            )
        return size

    def encoded_bytes(self, length: int) -> int:
        """Return the bytes that a blob of `length` bytes takes on all shards, which are billed.

        Each shard keeps the metadata (a pair of digests for every shard, and the blob ID),
        one row and one column.

        Raises:
            BlobTooLarge: `length` is above `max_blob_bytes`.
        """
        metadata = self.n_shards * _SLIVER_PAIR_BYTES + _DIGEST_BYTES
        slivers = (self.rows + self.columns) * self.symbol_bytes(length)
        return self.n_shards * (metadata + slivers)


MAINNET = Geometry(MAINNET_SHARDS)


def units(encoded_bytes: int) -> int:
    """Return the billed units of an encoded size."""
    return -(-encoded_bytes // UNIT_BYTES)


@dataclass(frozen=True, slots=True)
class Prices:
    """Prices of a unit, in FROST (1e-9 WAL). The defaults are round figures, not real prices.

    Attributes:
        storage: Price of one unit for one epoch.
        write: Price of one unit, paid once, when a blob is registered.
    """

    storage: int = 100_000
    write: int = 20_000

    def of_storage(self, encoded_bytes: int, epochs: int) -> int:
        """Return the price of storage alone, which an extension pays."""
        return units(encoded_bytes) * self.storage * epochs

    def of_write(self, encoded_bytes: int) -> int:
        """Return the price of registering a blob in paid storage."""
        return units(encoded_bytes) * self.write

    def of_store(self, encoded_bytes: int, epochs: int) -> int:
        """Return the price of a new registration in new storage."""
        return self.of_storage(encoded_bytes, epochs) + self.of_write(encoded_bytes)
