"""What Walrus bills: the size of a blob after encoding for 1000 shards.

Rules of the Walrus core crate (encoding/config.rs).
"""

from __future__ import annotations

SHARDS = 1000
ROWS = 334
"""Primary source symbols: shards less twice the faults that are survived."""

COLUMNS = 667
"""Secondary source symbols: shards less the faults that are survived."""

SYMBOLS = ROWS * COLUMNS
MAX_SYMBOL_BYTES = 65_534

_DIGEST_BYTES = 32
_METADATA_BYTES = SHARDS * (2 * _DIGEST_BYTES * SHARDS + _DIGEST_BYTES)


def symbol_bytes(size: int) -> int:
    """Return the size of a symbol of a blob of this size: even, at least 2."""
    whole = -(-max(size, 1) // SYMBOLS)
    return whole + whole % 2


def encoded_bytes(size: int) -> int:
    """Return the bytes that the shards hold of a blob of this size."""
    return _METADATA_BYTES + SHARDS * (ROWS + COLUMNS) * symbol_bytes(size)
