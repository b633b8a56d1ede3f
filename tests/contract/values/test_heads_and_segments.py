"""An answer names the segments of a checkpoint, so a checkpoint with segments is not in memory."""

from __future__ import annotations

import pytest

from tests.kit.drafts import TENANT, key, write
from tests.kit.heads import check_heads, in_memory, small
from tests.kit.values import Home
from tuskpoint_server.features.lineage.lineage import LineageRows


@pytest.fixture(autouse=True)
def still(home: Home) -> None:
    """Keep heads from growing too old while a slow machine runs a test."""
    home.database.heads.now_s = lambda: 0.0


async def write_to(home: Home, checkpoint_id: str, thread: str = "t") -> None:
    drafts = [write("x", b"late")]
    await home.checkpoints.save_writes(TENANT, key(checkpoint_id, thread), drafts)


async def learn(home: Home, thread: str = "t") -> None:
    """Load the latest checkpoint, so that all its values are in memory."""
    assert await small(home.checkpoints, TENANT, key("", thread)) is not None


async def test_late_writes_of_a_certified_checkpoint(home: Home) -> None:
    await home.save("a", {"x": b"1"})
    assert await in_memory(home.database, TENANT, key("")) is not None
    await home.certify()
    await write_to(home, "a")
    await learn(home)
    assert await in_memory(home.database, TENANT, key("")) is None
    await home.save("b", {"x": b"2"}, parent="a")
    assert await check_heads(home.database, TENANT, [("t", "")]) == [key("b")]


async def test_a_certified_checkpoint_that_is_saved_again(home: Home) -> None:
    await home.save("a", {"x": b"1"}, writes=[write("x", b"early")])
    await home.certify()
    await home.save("a", {"x": b"2"})
    await learn(home)
    assert await check_heads(home.database, TENANT, [("t", "")]) == []


async def test_writes_of_a_copy_of_a_certified_checkpoint(home: Home) -> None:
    await home.save("a", {"x": b"1"})
    await home.certify()
    await LineageRows(home.database).copy_thread(TENANT, "t", "copy", "")
    await write_to(home, "a", "copy")
    await learn(home, "copy")
    assert await check_heads(home.database, TENANT, [("copy", "")]) == []
    await home.save("b", {"x": b"2"}, parent="a", thread="copy")
    assert await check_heads(home.database, TENANT, [("copy", "")]) == [key("b", "copy")]
