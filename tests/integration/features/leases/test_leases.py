"""Leases over the network: streams, waits, drains, refusals, and the client that holds a lease."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc
import pytest
from google.protobuf.message import Message

from tests.kit.messages import FIRST, SECOND, channel, ref, refused, reported, save_request, write
from tests.kit.servers.processes import ServerProcess
from tuskpoint import AsyncClient, Client, InvalidRequest, LeaseLost, ThreadBusy
from tuskpoint.v1 import checkpoint_service_pb2 as pb
from tuskpoint.v1 import lease_service_pb2 as leases
from tuskpoint.v1.lease_service_pb2_grpc import LeaseServiceStub
from tuskpoint.v1.thread_service_pb2 import GetThreadRequest, RollbackThreadRequest
from tuskpoint_server.api.server.server import Server

if TYPE_CHECKING:
    from tuskpoint.v1.checkpoint_service_pb2_grpc import CheckpointServiceAsyncStub
    from tuskpoint.v1.lease_service_pb2_grpc import LeaseServiceAsyncStub
    from tuskpoint.v1.thread_service_pb2_grpc import ThreadServiceAsyncStub

THREAD = "thread"
LONG_S = 60.0


@pytest.fixture
def service(grpc_channel: grpc.aio.Channel) -> LeaseServiceAsyncStub:
    return LeaseServiceStub(grpc_channel)


@pytest.fixture
async def client(server: Server) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(f"127.0.0.1:{server.port}") as opened:
        yield opened


def asking(**fields: Any) -> leases.AcquireLeaseRequest:
    return leases.AcquireLeaseRequest(**{"thread_id": THREAD, "owner": "me", **fields})


BAD: dict[str, Any] = {
    "no thread": asking(thread_id=""),
    "a thread of the server": asking(thread_id="$store/x"),
    "no owner": asking(owner=""),
    "a long owner": asking(owner="é" * 129),
    "an owner with NUL": asking(owner="a\0b"),
    "a long request": asking(request_id="r" * 129),
    "an unknown enum": asking(on_busy=9),
    "a short time": asking(ttl={"nanos": 999_999_999}),
    "a long time": asking(ttl={"seconds": 3600, "nanos": 1}),
    "a negative time": asking(ttl={"seconds": -1}),
    "a malformed time": asking(ttl={"seconds": 2, "nanos": -1}),
    "a long wait": asking(on_busy=leases.ON_BUSY_WAIT, wait={"seconds": 3601}),
    "a negative wait": asking(on_busy=leases.ON_BUSY_WAIT, wait={"nanos": -1}),
    "no lease": leases.KeepLeaseRequest(thread_id=THREAD),
    "a long lease": leases.KeepLeaseRequest(thread_id=THREAD, lease_id="1" * 129),
    "a long extension": leases.KeepLeaseRequest(
        thread_id=THREAD, lease_id="1", ttl={"seconds": 3601}
    ),
    "a release of nothing": leases.ReleaseLeaseRequest(thread_id=THREAD),
    "a release with NUL": leases.ReleaseLeaseRequest(thread_id=THREAD, lease_id="\0"),
}
"""Requests that the server refuses."""


async def test_malformed_requests_are_refused(service: LeaseServiceAsyncStub) -> None:
    calls: dict[str, Any] = {
        "AcquireLeaseRequest": service.AcquireLease,
        "KeepLeaseRequest": service.KeepLease,
        "ReleaseLeaseRequest": service.ReleaseLease,
    }
    for what, request in BAD.items():
        error = await refused(calls[request.DESCRIPTOR.name](request))
        assert error.reason == "INVALID_FIELD", what


async def test_unknown_and_malformed_leases_are_lost(
    service: LeaseServiceAsyncStub,
    checkpoints: CheckpointServiceAsyncStub,
    threads: ThreadServiceAsyncStub,
) -> None:
    """Whatever text a caller names as its lease, the call ends with a documented reason."""
    await checkpoints.SaveCheckpoint(save_request(FIRST, [channel("x")]))
    other = (await service.AcquireLease(asking(thread_id="other", owner='Zoë ☂ "\\\n'))).lease
    for lease_id in ("1", "-", "1-0", "☂", "1099511627777-", "x" * 128, other.lease_id):
        changes: list[tuple[Any, Message]] = [
            (checkpoints.SaveCheckpoint, save_request(SECOND, [channel("x")], lease_id=lease_id)),
            (
                checkpoints.SaveWrites,
                pb.SaveWritesRequest(ref=ref(FIRST), writes=[write()], lease_id=lease_id),
            ),
            (threads.RollbackThread, RollbackThreadRequest(ref=ref(FIRST), lease_id=lease_id)),
            (service.KeepLease, leases.KeepLeaseRequest(thread_id=THREAD, lease_id=lease_id)),
        ]
        for call, request in changes:
            error = await refused(call(request))
            assert (error.reason, error.metadata["lease_id"]) == ("LEASE_LOST", lease_id)
        release = leases.ReleaseLeaseRequest(thread_id=THREAD, lease_id=lease_id)
        assert not (await service.ReleaseLease(release)).released
    for lease_id in ("x" * 129, "a\0"):
        save = save_request(SECOND, [channel("x")], lease_id=lease_id)
        assert (await refused(checkpoints.SaveCheckpoint(save))).reason == "INVALID_FIELD"


async def test_a_thread_says_who_drives_it_and_hides_the_lease(
    service: LeaseServiceAsyncStub, threads: ThreadServiceAsyncStub
) -> None:
    lease = (await service.AcquireLease(asking(advisory=True, ttl={"seconds": 5}))).lease
    assert lease.lease_id.startswith(f"{lease.fence}-")
    described = (await threads.GetThread(GetThreadRequest(thread_id=THREAD))).thread
    assert described.checkpoint_count == 0
    lease.ClearField("lease_id")
    assert described.lease == lease
    assert (lease.owner, lease.advisory, lease.ttl.seconds) == ("me", True, 5)
    assert lease.expire_time.ToMicroseconds() - lease.acquire_time.ToMicroseconds() == 5_000_000


async def test_a_drain_ends_the_waits(
    server: Server, service: LeaseServiceAsyncStub, client: AsyncClient
) -> None:
    await service.AcquireLease(asking(owner="holder"))
    waiting = [
        asyncio.ensure_future(
            service.AcquireLease(
                asking(on_busy=leases.ON_BUSY_WAIT, wait={"seconds": 60}), timeout=LONG_S
            )
        )
        for _ in range(3)
    ]
    await asyncio.sleep(0)
    busy = await refused(service.AcquireLease(asking()))
    assert (busy.reason, busy.metadata["owner"]) == ("THREAD_BUSY", "holder")
    assert await server.pipeline.drain(LONG_S)
    for call in waiting:
        with pytest.raises(grpc.aio.AioRpcError) as error:
            await call
        assert reported(error.value).reason == "DRAINING"


async def test_the_client_names_its_lease_in_every_change(
    client: AsyncClient, server: Server
) -> None:
    async with AsyncClient(f"127.0.0.1:{server.port}") as other:
        async with client.lease("t", owner="first", ttl_s=1) as lease:
            first = await client.save("t", {"x": 1})
            with pytest.raises(ThreadBusy) as busy:
                await other.save("t", {"x": 2})
            assert (busy.value.owner, busy.value.retry_after_s is not None) == ("first", True)
            with pytest.raises(ThreadBusy):
                async with other.lease("t", owner="second"):
                    pass
            await asyncio.sleep(1.5)  # longer than the time of the lease
            await client.save("t", {"x": "x" * 3_000_000})  # with chunks
            await client.rollback("t", first)
            assert (await other.get_thread("t")).lease is not None
        assert (await other.get_thread("t")).lease is None
        with pytest.raises(LeaseLost):
            await client.keep_lease(lease)
        await other.save("t", {"x": 2})
        await client.save("t", {"x": 3})


async def test_a_driver_that_was_taken_over_cannot_change_the_thread(
    client: AsyncClient, server: Server
) -> None:
    async with AsyncClient(f"127.0.0.1:{server.port}") as other, client.lease("t", owner="first"):
        await client.save("t", {"x": 1})
        async with other.lease("t", owner="second", on_busy="take_over"):
            with pytest.raises(LeaseLost) as lost:
                await client.save("t", {"x": 2})
            assert lost.value.owner == "second"
        with pytest.raises(LeaseLost):  # also when nobody drives the thread
            await client.save("t", {"x": 2})
        await other.save("t", {"x": 3})
    await client.save("t", {"x": 4})


async def test_watchers_see_a_change_of_drivers(client: AsyncClient) -> None:
    lease = await client.acquire_lease("t")
    await client.save("t", {"x": 1})
    await client.release_lease(lease)
    kinds = []
    async with aclosing(client.watch("t", view="entry")) as events:
        async for event in events:
            kinds.append(event.kind)
            if len(kinds) == 3:
                break
    assert kinds == ["lease_changed", "checkpoint_saved", "lease_changed"]


async def test_a_blocking_client_waits_its_turn(client: AsyncClient, server: Server) -> None:
    def second() -> str:
        with (
            Client(f"127.0.0.1:{server.port}") as blocking,
            blocking.lease("t", owner="second", wait_s=LONG_S) as lease,
        ):
            blocking.save("t", {"x": 2})
            return lease.owner

    async with client.lease("t", owner="first"):
        waiting = asyncio.create_task(asyncio.to_thread(second))
        await client.save("t", {"x": 1})
    assert await asyncio.wait_for(waiting, LONG_S) == "second"


async def test_a_wait_continues_after_a_restart_of_the_server(tmp_path: Path) -> None:
    with ServerProcess(tmp_path, {}) as server:
        server.start()
        async with AsyncClient(server.target) as client, AsyncClient(server.target) as other:
            held = await client.acquire_lease("t", owner="first", ttl_s=3600)

            async def second() -> str:
                async with other.lease("t", owner="second", wait_s=LONG_S) as lease:
                    await other.save("t", {"x": 2})
                    return lease.owner

            waiting = asyncio.create_task(second())
            for _ in range(3):  # the wait reaches the server meanwhile
                assert (await client.get_thread("t")).lease
            assert await asyncio.to_thread(server.stop) == 0
            await asyncio.to_thread(server.start)
            with pytest.raises(ThreadBusy) as busy:
                await other.save("t", {"x": 1})
            assert busy.value.owner == "first"
            assert not waiting.done()
            await client.save("t", {"x": 1})
            assert await client.release_lease(held)
            assert await asyncio.wait_for(waiting, LONG_S) == "second"


async def test_another_process_may_use_the_lease(
    client: AsyncClient, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease = await client.acquire_lease("a:b ☂", owner="parent")
    monkeypatch.setenv("TUSKPOINT_LEASE", lease.variable)
    async with AsyncClient(f"127.0.0.1:{server.port}") as child:
        await child.save("a:b ☂", {"x": 1})
        await child.save("another", {"x": 1})
        await client.release_lease(lease)
        with pytest.raises(LeaseLost):
            await child.save("a:b ☂", {"x": 2})
    monkeypatch.setenv("TUSKPOINT_LEASE", "without-a-thread")
    with pytest.raises(InvalidRequest, match="TUSKPOINT_LEASE must be"):
        AsyncClient(f"127.0.0.1:{server.port}")


@pytest.mark.parametrize(
    "arguments",
    [{"ttl_s": 0.5}, {"ttl_s": -1}, {"ttl_s": float("nan")}, {"owner": ""}, {"on_busy": "fight"}],
)
async def test_the_client_refuses_bad_arguments(
    client: AsyncClient, arguments: dict[str, Any]
) -> None:
    with pytest.raises(InvalidRequest):
        await client.acquire_lease("t", **arguments)
