"""Values that a call needs and the journal lacks: evicted or damaged values.

The call is repeated with values from segments (`completing`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from ...core.model import BlobLocation, CheckpointKey, Damage, Value

SuppliedValues = Mapping[bytes, Value]
"""Values by digest, read from segments after `ValuesEvictedError`."""

NOTHING: SuppliedValues = {}


class ValuesEvictedError(Exception):
    """Needed values were evicted, with the segments that have them; nothing is stored."""

    def __init__(self, digests: Collection[bytes], places: Iterable[BlobLocation]) -> None:
        self.digests = frozenset(digests)
        self.places = tuple(dict.fromkeys(places))
        super().__init__(f"{len(self.digests)} values were evicted")


class ValuesDamagedError(Exception):
    """Needed values are damaged in the journal; nothing is stored.

    Attributes:
        key: A checkpoint that needs one of the values.
        damages: The damaged values.
    """

    def __init__(self, key: CheckpointKey, damages: Collection[Damage]) -> None:
        self.key = key
        self.damages = tuple(damages)
        super().__init__(f"{len(self.damages)} values are damaged")


def size_of(supplied: SuppliedValues) -> int:
    """Return the bytes of read values, for the bound of a batch."""
    return sum(len(value.data) for value in supplied.values())
