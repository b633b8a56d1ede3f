from __future__ import annotations

import pytest

from tests.kit.drafts import Reference, by_digest, channel, refused
from tests.kit.values import Home
from tuskpoint.v1 import value_pb2
from tuskpoint_server.domain.errors import Reason

INHERIT = Reference.INHERIT


@pytest.mark.parametrize("sent", [channel("x", INHERIT), by_digest("x", b"1")])
async def test_a_head_that_was_none_gives_no_evicted_value(
    home: Home, sent: value_pb2.Channel
) -> None:
    await home.save("a", {"x": b"1"})
    await home.save("b", {"x": b"2"}, parent="a")
    await home.certify()
    await home.evict()
    await home.remove("b")
    await refused(home.save("c", (sent,), parent="a"), Reason.VALUES_MISSING)
    await home.save("c", {"x": b"1"}, parent="a")
    assert await home.here("c") == {"x"}


async def test_the_head_of_a_copy_gives_no_evicted_value(home: Home) -> None:
    await home.save("a", {"x": b"1"})
    await home.save("b", {"x": b"2"}, parent="a")
    await home.certify()
    await home.evict()
    await home.fork("t", "a", "u")
    await refused(
        home.save("c", (channel("x", INHERIT),), parent="a", thread="u"), Reason.VALUES_MISSING
    )
    await home.save("c", {"x": b"1"}, parent="a", thread="u")
    assert await home.here("c", "u") == {"x"}
