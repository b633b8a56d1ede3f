"""Values that a call needs and the journal does not have: evicted or damaged.

The call is made again with values that were read from segments (`completing`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from ...core.model import BlobLocation, CheckpointKey, Damage, Value

SuppliedValues = Mapping[bytes, Value]
"""Values by digest that were read from segments after `ValuesEvictedError`."""

NOTHING: SuppliedValues = {}


class ValuesEvictedError(Exception):
    """Values that are needed were evicted, and the segments that hold them; nothing is stored."""

    def __init__(self, digests: Collection[bytes], places: Iterable[BlobLocation]) -> None:
        self.digests = frozenset(digests)
        self.places = tuple(dict.fromkeys(places))
        super().__init__(f"{len(self.digests)} values were evicted")


class ValuesDamagedError(Exception):
    """Values that are needed are damaged in the journal; nothing is stored.

    Attributes:
        key: A checkpoint that needs one of them.
        damages: What is damaged.
    """

    def __init__(self, key: CheckpointKey, damages: Collection[Damage]) -> None:
        self.key = key
        self.damages = tuple(damages)
        super().__init__(f"{len(self.damages)} values are damaged")


def size_of(supplied: SuppliedValues) -> int:
    """Return the bytes of values that were read, for the bound of a batch."""
    return sum(len(value.data) for value in supplied.values())
