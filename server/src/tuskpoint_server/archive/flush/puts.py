"""What goes into one put: segments within the limits of the blob store.

Pure and synchronous.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence

from ...blobs.api import Member, StoreLimits
from ...domain.formats.stored_json import MEMBER_BYTES, Kind
from ...domain.values import blob_digest
from .building import BuiltSegment


def part_bytes(limits: StoreLimits) -> int:
    """Return the bytes that a member has at most."""
    return min(MEMBER_BYTES, limits.max_member_bytes or MEMBER_BYTES)


def fits(members: Iterable[Member], limits: StoreLimits) -> bool:
    """Return whether one put can hold all of these members."""
    return limits.hold([len(member.data) for member in members])


def grouped(members: Iterable[Member], limits: StoreLimits) -> list[list[Member]]:
    """Distribute members over puts; those of like size go together.

    A store may bill all members of a put by the largest.
    """
    ordered = sorted(members, key=lambda member: (len(member.data), member.sha256))
    groups: list[list[Member]] = []
    while ordered:
        sizes = [len(member.data) for member in ordered]
        longest = len(sizes)
        if limits.max_members is not None:
            longest = min(longest, max(1, limits.max_members))

        def is_over(count: int, sizes: Sequence[int] = sizes) -> bool:
            return not limits.hold(sizes[:count])

        count = max(1, bisect_right(range(1, longest + 1), False, key=is_over))
        groups.append(ordered[:count])
        ordered = ordered[count:]
    return groups


def pieces(segment: BuiltSegment) -> list[Member]:
    """Return what is stored of a segment before its list of parts, if it has one."""
    if not segment.parts:
        return [Member(segment.sha256, segment.data, Kind.SEGMENT.value)]
    return [Member(blob_digest(part), part, Kind.PART.value) for part in segment.parts]
