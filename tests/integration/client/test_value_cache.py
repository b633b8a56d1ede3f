"""A client loads a thread again without the values that it saved or loaded before."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from langgraph.checkpoint.base import ChannelVersions

from tests.interop.saver_arguments import at, made, metadata
from tests.kit.messages import incompressible
from tests.kit.servers.counting import CountingProxy, counting
from tuskpoint import AsyncClient, Client
from tuskpoint.errors import InvalidRequest
from tuskpoint.langgraph import TuskPointSaver
from tuskpoint_server.api.server.server import Server

MIB = 1024 * 1024
SMALL = 10_000  # bytes of a whole load: both directions, with all headers


@pytest.fixture
async def proxy(server: Server) -> AsyncIterator[CountingProxy]:
    async with counting(server.port) as proxy:
        yield proxy


class Moved:
    """Count of the bytes that pass a proxy during a block."""

    def __init__(self, proxy: CountingProxy) -> None:
        self._proxy = proxy
        self.bytes = 0

    def __enter__(self) -> Moved:
        self._before = self._proxy.sent + self._proxy.received
        return self

    def __exit__(self, *_: object) -> None:
        self.bytes = self._proxy.sent + self._proxy.received - self._before


def state(step: int) -> dict[str, Any]:
    """Return a state of 1 MiB; each step changes a small part of it."""
    large = {f"page {number}": incompressible(MIB // 16, str(number)) for number in range(16)}
    return {**large, "step": step}


async def test_a_saver_that_saved_a_thread_loads_it_in_few_bytes(proxy: CountingProxy) -> None:
    versions: ChannelVersions = dict.fromkeys(state(1), "1")
    async with TuskPointSaver(proxy.target) as saver:
        first = made(state(1), versions)
        config = await saver.aput(at("t"), first, metadata(1), versions)
        await saver.aput_writes(config, [("page 1", incompressible(MIB, "written"))], "task")
        with Moved(proxy) as moved:
            loaded = await saver.aget_tuple(at("t"))
        assert moved.bytes < SMALL
        assert loaded is not None
        assert loaded.checkpoint["channel_values"] == state(1)
        assert loaded.pending_writes == [("task", "page 1", incompressible(MIB, "written"))]

        changed: ChannelVersions = {"step": "2"}
        second = made(state(2), {**versions, **changed})
        await saver.aput(config, second, metadata(2), changed)
        with Moved(proxy) as moved:
            resumed = await asyncio.to_thread(saver.get_tuple, at("t"))
        assert moved.bytes < SMALL  # the sync methods have the values that the async methods saved
        assert resumed is not None
        assert resumed.checkpoint["channel_values"] == state(2)
        assert resumed.pending_writes == []


async def test_a_saver_that_loaded_a_thread_loads_it_again_in_few_bytes(
    proxy: CountingProxy,
) -> None:
    versions: ChannelVersions = dict.fromkeys(state(1), "1")
    async with TuskPointSaver(proxy.target) as saver:
        await saver.aput(at("t"), made(state(1), versions), metadata(1), versions)
    async with TuskPointSaver(proxy.target) as other:
        for is_first in (True, False):
            with Moved(proxy) as moved:
                loaded = await other.aget_tuple(at("t"))
            assert loaded is not None
            assert loaded.checkpoint["channel_values"] == state(1)
            assert (moved.bytes > MIB) == is_first


async def test_a_client_loads_what_it_saved_in_few_bytes(proxy: CountingProxy) -> None:
    values = {f"page {number}": "x" * (MIB // 16) + str(number) for number in range(16)}
    async with AsyncClient(proxy.target) as client:
        await client.save("t", values)
        await client.save("t", {**values, "step": 2})
        with Moved(proxy) as moved:
            record = await client.load("t")
        assert moved.bytes < SMALL
        assert record is not None
        assert record.state == {**values, "step": 2}
        with Moved(proxy) as moved:
            shown = await client.load("t", view="json")
        assert moved.bytes > MIB
        assert shown is not None


async def test_who_keeps_no_values_gets_all_of_them(proxy: CountingProxy) -> None:
    def load_twice() -> list[int]:
        with Client(proxy.target, value_cache_bytes=0) as client:
            client.save("t", {"page": "x" * MIB})
            sizes = []
            for _ in range(2):
                with Moved(proxy) as moved:
                    assert client.load("t") is not None
                sizes.append(moved.bytes)
            return sizes

    assert min(await asyncio.to_thread(load_twice)) > MIB


@pytest.mark.parametrize("size", [-1, 1.5, "1"])
def test_what_is_no_number_of_bytes_is_refused(size: Any) -> None:
    for make in (Client, AsyncClient, TuskPointSaver):
        with pytest.raises(InvalidRequest, match="value_cache_bytes"):
            make(value_cache_bytes=size)
