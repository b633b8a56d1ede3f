"""Calls and streams are spread over the servers of a target, and survive the loss of a server."""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
import trustme

from tests.kit.servers.certificates import party
from tests.kit.servers.processes import unused_port
from tests.unit.client.calls.test_streams import event
from tests.unit.client.exchange.kit import Client, off_loop, save
from tests.unit.client.exchange.server import ExchangeServer, answer_to
from tests.unit.client.faces import Face
from tests.unit.client.scripted_services import (
    WAIT_SECONDS,
    Hold,
    Refuse,
    ScriptedServices,
    serving,
)
from tuskpoint import Unavailable
from tuskpoint._transport.methods import GET_SERVER_INFO
from tuskpoint._transport.retry import RetryPolicy
from tuskpoint._transport.settings.options import Options
from tuskpoint._transport.settings.security import Security
from tuskpoint.v1.admin_service_pb2 import GetServerInfoRequest, GetServerInfoResponse

GONE = Refuse(grpc.StatusCode.UNAVAILABLE, "DRAINING")


class Version(ScriptedServices):
    """A server that answers every unary call with its version."""

    def __init__(self, version: str) -> None:
        super().__init__()
        self._version = version

    def _unary(self, name: str) -> Any:
        return lambda *_: GetServerInfoResponse(version=self._version)


def calling(kind: str, target: str, **security: Any) -> Client:
    """Return a client that does not retry calls."""
    once = RetryPolicy(max_attempts=1)
    return Client(kind, Options(target, retry=once, security=Security.of(target, **security)))


async def take_turns(client: Client, *expected: str) -> None:
    """Call until as many calls in a row as there are servers reached each expected server once."""
    versions: list[str] = []
    async with asyncio.timeout(WAIT_SECONDS):
        while sorted(versions[-len(expected) :]) != sorted(expected):
            try:
                answer = await client.start("unary", GET_SERVER_INFO, GetServerInfoRequest())
                versions.append(answer.version)
            except Unavailable:
                versions.append("")


def address() -> str:
    return f"127.0.0.1:{unused_port()}"


@pytest.mark.parametrize("kind", ["sync", "async"])
async def test_servers_take_turns_except_one_that_is_gone_until_it_is_back(kind: str) -> None:
    first, second = address(), address()
    client = calling(kind, f"{first},{second}")
    with serving(Version("1"), address=first):
        with serving(Version("2"), address=second):
            await take_turns(client, "1", "2")
        await take_turns(client, "1", "1", "1", "1")
        with serving(Version("3"), address=second):
            await take_turns(client, "1", "3")
    await client.aclose()


async def test_the_addresses_of_a_name_take_turns() -> None:
    port = unused_port()
    with (
        naming("127.0.0.1", "127.0.0.2") as names,
        serving(Version("1"), address=f"127.0.0.1:{port}"),
        serving(Version("2"), address=f"127.0.0.2:{port}"),
    ):
        client = calling("async", f"dns://{names}/agents.example:{port}")
        await take_turns(client, "1", "2")
        await client.aclose()


async def test_each_server_of_a_list_has_a_certificate_for_its_own_name(tmp_path: Path) -> None:
    ca = trustme.CA()
    address_party, name_party = (
        party(tmp_path / "1", "127.0.0.1", ca),
        party(tmp_path / "2", "localhost", ca),
    )
    with (
        serving(Version("1"), credentials=address_party.server()) as first,
        serving(Version("2"), credentials=name_party.server()) as second,
    ):
        second = second.replace("127.0.0.1", "localhost")
        client = calling("async", f"{first},{second}", ca_file=address_party.ca_file)
        await take_turns(client, "1", "2")
        await client.aclose()


@pytest.mark.parametrize("kind", ["sync", "async"])
async def test_a_watch_continues_on_another_server_after_its_last_event(kind: str) -> None:
    first, second = address(), address()
    before, after, again, ending = ScriptedServices(), ScriptedServices(), Hold(), ExitStack()
    before.on("WatchThread", event(1), event(2), GONE)
    before.on("WatchThread", again)
    after.on("WatchThread", event(3), Hold())
    ending.enter_context(serving(before, address=first))
    face = Face(kind, f"{first},{second}")
    watch = asyncio.create_task(face.take("watch", 3, "t"))
    await off_loop(again.arrived.wait)
    with serving(after, address=second):
        await off_loop(ending.close)
        assert [event.seq for event in await watch] == [1, 2, 3]
        await face.aclose()
    assert [request.cursor for request in after.requests] == [b"c2"]


@pytest.mark.parametrize("kind", ["sync", "async"])
async def test_calls_without_an_answer_are_sent_again_to_another_server(kind: str) -> None:
    first, second = address(), address()
    before, after, ending = ExchangeServer(), ExchangeServer(), ExitStack()
    ending.enter_context(before.serving(first))
    client = Client(kind, Options(f"{first},{second}"))
    saved = client.start("save_checkpoint", save("1"))
    stream = await off_loop(before.accept)
    begun = await off_loop(stream.receive)
    answered = client.start("save_checkpoint", save("2"))
    (frame,) = await off_loop(stream.frames, 1)
    stream.send(answer_to(frame))
    await answered
    got = client.start("get_checkpoint", save("2").checkpoint.ref)
    await off_loop(stream.frames, 1)
    with after.serving(second):
        await off_loop(ending.close)
        stream = await off_loop(after.accept)
        resumed = await off_loop(stream.receive)
        assert resumed.hello.session == begun.hello.session
        assert resumed.hello.attempt > begun.hello.attempt
        assert [frame.WhichOneof("call") for frame in resumed.frames] == ["save", "get"]
        stream.send(*map(answer_to, resumed.frames))
        await asyncio.gather(saved, got)
        await client.aclose()


@contextmanager
def naming(*addresses: str) -> Iterator[str]:
    """Run a DNS server that resolves each name to IPv4 addresses; return its address."""
    with socket.socket(type=socket.SOCK_DGRAM) as bound:
        bound.bind(("127.0.0.1", 0))
        done = threading.Event()

        def answer() -> None:
            while not done.is_set():
                query, client = bound.recvfrom(512)
                question = query[12 : query.index(b"\0", 12) + 5]
                wants_v4 = question[-4:-2] == b"\0\1"
                records = [
                    b"\xc0\x0c" + struct.pack(">HHIH", 1, 1, 0, 4) + socket.inet_aton(address)
                    for address in addresses
                    if wants_v4
                ]
                counts = struct.pack(">HHHHH", 0x8180, 1, len(records), 0, 0)
                bound.sendto(query[:2] + counts + question + b"".join(records), client)

        thread = threading.Thread(target=answer)
        thread.start()
        place = "{}:{}".format(*bound.getsockname())
        try:
            yield place
        finally:
            done.set()
            bound.sendto(bytes(17), bound.getsockname())
            thread.join()
