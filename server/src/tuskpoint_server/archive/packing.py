"""What goes into one put: members within the limits of the blob store."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from typing import TypeVar

from ..blobs.api import Member, StoreLimits
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
