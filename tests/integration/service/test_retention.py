"""Retention over a real server: set, read, certified, and carried out."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration

from tests.kit.messages import refused
from tuskpoint import AsyncClient, Client
from tuskpoint.errors import InvalidRequest, NotFound
from tuskpoint.v1 import thread_service_pb2 as pb
from tuskpoint_server import app
from tuskpoint_server.config import Config
from tuskpoint_server.rpc.server.server import Server

if TYPE_CHECKING:
    from tuskpoint.v1.thread_service_pb2_grpc import ThreadServiceAsyncStub

pytestmark = pytest.mark.usefixtures("database")


async def test_thread_has_its_retention(server: Server) -> None:
    async with AsyncClient(f"127.0.0.1:{server.port}") as client:
        await client.save("t", {"n": 1})
        assert (await client.thread("t")).retention is None
        await client.set_retention("t", timedelta(days=30))
        assert (await client.thread("t")).retention == timedelta(days=30)
        assert [one.retention async for one in client.threads()] == [timedelta(days=30)]
        await client.set_retention("t", None)
        assert (await client.thread("t")).retention is None


async def test_retention_ends_with_the_incarnation(server: Server) -> None:
    async with AsyncClient(f"127.0.0.1:{server.port}") as client:
        await client.save("t", {"n": 1})
        await client.set_retention("t", timedelta(days=30))
        await client.delete("t")
        with pytest.raises(NotFound):
            await client.set_retention("t", timedelta(days=30))
        await client.save("t", {"n": 1})
        assert (await client.thread("t")).retention is None


def test_blocking_client_sets_it_too(config: Config) -> None:
    async def run() -> None:
        async with app.running(config) as server:
            address = f"127.0.0.1:{server.port}"
            await asyncio.to_thread(use, address)

    def use(address: str) -> None:
        with Client(address) as client:
            client.save("t", {"n": 1})
            client.set_retention("t", timedelta(seconds=90), durability="certified")
            assert client.thread("t").retention == timedelta(seconds=90)
            with pytest.raises(NotFound):
                client.set_retention("missing", timedelta(seconds=90))
            for bad in (timedelta(0), timedelta(seconds=-1), timedelta(milliseconds=1500)):
                with pytest.raises(InvalidRequest):
                    client.set_retention("t", bad)

    asyncio.run(run())


BAD = [
    (pb.SetRetentionRequest(), "thread_id"),
    (pb.SetRetentionRequest(thread_id="t", retention=Duration(nanos=1)), "retention"),
    (pb.SetRetentionRequest(thread_id="t", retention=Duration(seconds=-1)), "retention"),
    (pb.SetRetentionRequest(thread_id="t", retention=Duration(seconds=2**40)), "retention"),
    (pb.SetRetentionRequest(thread_id="t", durability=9), "durability"),  # type: ignore[arg-type]
]


async def test_bad_retentions_are_refused(threads: ThreadServiceAsyncStub) -> None:
    for request, field in BAD:
        answer = await refused(threads.SetRetention(request))
        assert (answer.code, answer.fields) == (grpc.StatusCode.INVALID_ARGUMENT, (field,))


async def test_certified_means_that_a_catalog_leads_to_it(server: Server) -> None:
    async with AsyncClient(f"127.0.0.1:{server.port}") as client:
        await client.save("t", {"n": 1}, durability="certified")
        before = (await client.status()).catalog
        await client.set_retention("t", timedelta(seconds=90), durability="certified")
        assert (await client.status()).catalog != before


async def test_threads_past_their_retention_are_deleted(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert app.RETENTION_SECONDS <= 25, "the documentation says within half a minute"
    monkeypatch.setattr(app, "RETENTION_SECONDS", 0.02)
    async with (
        app.running(config) as server,
        AsyncClient(f"127.0.0.1:{server.port}") as client,
    ):
        for thread_id in ("kept", "short", "long"):
            await client.save(thread_id, {"n": 1})
        await client.set_retention("short", timedelta(seconds=1))
        await client.set_retention("long", timedelta(days=1))
        left = {"kept", "short", "long"}
        while "short" in left:
            left = {one.thread_id async for one in client.threads()}
        assert left == {"kept", "long"}
        with pytest.raises(NotFound):
            await client.thread("short")
