"""What goes into one put: members within the limits of the blob store.

Pure and synchronous; what goes through many members runs in a worker thread.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from ..blobs.api import Member, StoreLimits
from ..domain.digests import blob_digest
from ..domain.model import BlobLocation
from ..domain.parts import cut, encode_parts
from .building import PART
from .encoding import EncodedCheckpoint

_T = TypeVar("_T")

_CATALOG_MEMBERS = 24
_CATALOG_SHARE = 4


def room_beside_catalog(max_members: int) -> int:
    """Return how many members of a pack are free for envelopes and segments.

    The others are kept for the catalog, its pages and their indexes.
    """
    return max(1, max_members - min(_CATALOG_MEMBERS, max_members // _CATALOG_SHARE))


def fits(members: Sequence[Member], limits: StoreLimits) -> bool:
    """Tell whether one put can hold all of these members."""
    return limits.hold([len(member.data) for member in members])


def grouped(units: Iterable[Sequence[Member]], limits: StoreLimits) -> list[list[Member]]:
    """Distribute members over puts; those of a unit stay together, in order.

    A unit that is larger than a put makes one of its own.
    """
    listed = list(units)
    groups = _groups(listed, [[len(one.data) for one in unit] for unit in listed], limits)
    return [[member for unit in group for member in unit] for group in groups]


def checkpoints_grouped(
    encoded: Iterable[EncodedCheckpoint], limits: StoreLimits
) -> list[list[EncodedCheckpoint]]:
    """Distribute checkpoints over puts of their envelopes.

    Those of like size go together: a store may bill all members by the largest.
    """
    ordered = sorted(encoded, key=lambda item: item.largest)
    largest = limits.max_member_bytes
    sizes = [
        # The list of the parts of a larger envelope is smaller than one of them.
        [len(data) if largest is None else min(len(data), largest) for data in item.envelopes]
        for item in ordered
    ]
    return _groups(ordered, sizes, limits)


def _groups(
    items: Sequence[_T], sizes: Sequence[Sequence[int]], limits: StoreLimits
) -> list[list[_T]]:
    """Cut items into runs, each as long as one put can hold, and of one at least."""
    groups: list[list[_T]] = []
    start = 0
    while start < len(items):
        rest = sizes[start:]

        def is_over(count: int, rest: Sequence[Sequence[int]] = rest) -> bool:
            return not limits.hold([size for item in rest[:count] for size in item])

        longest = len(rest)
        if limits.max_members is not None:
            longest = min(longest, max(1, limits.max_members))
        count = bisect_right(range(1, longest + 1), False, key=is_over)
        groups.append(list(items[start : start + max(1, count)]))
        start += max(1, count)
    return groups


# --- envelopes that are larger than a member may be ------------------------------------


@dataclass(frozen=True, slots=True)
class Cut:
    """An envelope that is larger than a member may be, and its parts."""

    data: bytes
    parts: tuple[Member, ...]


@dataclass(frozen=True, slots=True)
class PartList:
    """The stored form of a list of parts, and the hashes of the parts."""

    data: bytes
    parts: tuple[bytes, ...]


PartLists = Mapping[bytes, PartList]
"""Hash of an envelope to the list that is stored in its place."""


def cut_larger(encoded: Iterable[EncodedCheckpoint], largest: int) -> dict[bytes, Cut]:
    """Cut the envelopes that are larger than this, by hash."""
    return {
        blob_digest(data): Cut(
            data, tuple(Member(blob_digest(part), part, PART) for part in cut(data, largest))
        )
        for item in encoded
        for data in item.envelopes
        if len(data) > largest
    }


def part_lists(
    cuts: Mapping[bytes, Cut], locations: Mapping[bytes, BlobLocation]
) -> dict[bytes, PartList]:
    """Return what stands in the place of cut envelopes, by their hash.

    Args:
        cuts: The envelopes, by hash.
        locations: Where the parts lie, by hash.
    """
    return {
        sha256: PartList(
            encode_parts(one.data, [locations[member.sha256] for member in one.parts]),
            tuple(member.sha256 for member in one.parts),
        )
        for sha256, one in cuts.items()
    }
