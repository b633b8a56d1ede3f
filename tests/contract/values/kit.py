"""Helpers for tests of evicted and removed values."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from tests.kit.values import LATER_US, PLENTY, Home, text
from tuskpoint_server.archive.evict.eviction import evict_family
from tuskpoint_server.core.model import Value
from tuskpoint_server.journal.removal.garbage_collection import FreedValues, remove_unneeded

BASE = text(1, 8_000)
"""A keyframe: similar values become patches."""


async def written(home: Home, checkpoint_id: str) -> list[Value]:
    return [write.value for write in (await home.load(checkpoint_id)).writes]


async def nothing() -> None:
    """Let a step of a pass go by."""


async def evict(home: Home, family: int) -> FreedValues:
    """Evict all values that a family can spare."""
    return await evict_family(home.database, family, LATER_US, PLENTY)


async def mark(home: Home, family: int) -> FreedValues:
    """Remove the values that nothing in a family needs."""
    return await remove_unneeded(home.database, family)


async def during(
    home: Home,
    run: Callable[[Home, int], Awaitable[FreedValues]],
    *works: Callable[[], Awaitable[object]],
) -> FreedValues:
    """Run a pass over a family, and do one of these works before each of its steps."""
    left, family = list(works), await home.family()

    async def between() -> None:
        if left:
            await left.pop(0)()

    home.database.between = between
    try:
        outcome = await run(home, family)
    finally:
        home.database.between = None
    assert not left
    return outcome


async def check_evicted_keyframe(evicting: Home, saving: Home) -> None:
    """Check that no save makes a patch on a keyframe that the other server evicted."""
    await saving.save("a", {"x": BASE})
    await saving.save("b", {"x": BASE + b"1"}, parent="a")
    await saving.save("c", {"y": b"2"}, parent="b")
    await saving.certify()
    assert (await evicting.evict()).values == 2
    await saving.save("d", {"x": BASE + b"2"}, parent="c")
    await saving.check_groups()
    assert await saving.data("d") == {"x": BASE + b"2"}
