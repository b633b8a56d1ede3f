"""TLS on real sockets trusts the right certificates, and its errors name the cause."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Any

import pytest

from tests.kit.servers.certificates import Party, party
from tests.unit.client.faces import Face
from tests.unit.client.scripted_services import ScriptedServices, serving
from tuskpoint import Client, TlsMismatch, Unavailable
from tuskpoint.v1.admin_service_pb2 import GetServerInfoResponse

INFO = GetServerInfoResponse(version="9.9")
SOON_S = 2.0  # longer than a handshake on any machine
NEVER_S = 3600.0  # a test that waits this long fails


@pytest.fixture(scope="module")
def us(tmp_path_factory: pytest.TempPathFactory) -> Party:
    return party(tmp_path_factory.mktemp("us") / "x", "127.0.0.1")


@pytest.fixture(scope="module")
def others(tmp_path_factory: pytest.TempPathFactory) -> Party:
    return party(tmp_path_factory.mktemp("others") / "x", "elsewhere.example.com")


@pytest.fixture
def services() -> ScriptedServices:
    made = ScriptedServices()
    for _ in range(8):
        made.on("GetServerInfo", INFO)
    return made


async def test_two_authorities_never_share_a_channel(
    services: ScriptedServices, us: Party, others: Party
) -> None:
    with serving(services, credentials=us.server()) as target:
        trusting = Client(target, ca_file=us.ca_file)
        doubting = Client(target, ca_file=others.ca_file, timeout_s=NEVER_S)
        assert (await asyncio.to_thread(trusting.info)).version == "9.9"
        with pytest.raises(TlsMismatch):
            await asyncio.to_thread(doubting.info)
        assert (await asyncio.to_thread(trusting.info)).version == "9.9"
        trusting.close()
        doubting.close()


@pytest.mark.parametrize("kind", ["sync", "async"])
async def test_a_server_that_asks_for_a_certificate_gets_one(
    services: ScriptedServices, us: Party, others: Party, kind: str
) -> None:
    with serving(services, credentials=us.server(clients=others.ca_file)) as target:
        shown: dict[str, Any] = {"cert_file": others.cert_file, "key_file": others.key_file}
        face = Face(kind, target, ca_file=us.ca_file, **shown)
        assert (await face.call("info")).version == "9.9"
        await face.aclose()


# Server credentials; client arguments; words of the error, which say what to do.
MISMATCHES: list[tuple[str, Callable[[Party, Party], Any], Callable[[Party, Party], Any], str]] = [
    (
        "an authority that is not trusted",
        lambda us, others: us.server(),
        lambda us, others: {"ca_file": others.ca_file},
        "not trusted.*ca_file.*TUSKPOINT_CA_FILE",
    ),
    (
        "the system's authorities, which did not sign it",
        lambda us, others: us.server(),
        lambda us, others: {"tls": True},
        "not trusted.*ca_file.*TUSKPOINT_CA_FILE",
    ),
    (
        "a certificate for another name",
        lambda us, others: others.server(),
        lambda us, others: {"ca_file": others.ca_file},
        "other names",
    ),
    (
        "TLS to a server without",
        lambda us, others: None,
        lambda us, others: {"tls": True},
        "does not speak TLS.*TUSKPOINT_TLS=0",
    ),
    (
        "plaintext to a server with TLS",
        lambda us, others: us.server(),
        lambda us, others: {},
        "if it speaks TLS.*TUSKPOINT_CA_FILE",
    ),
    (
        "no certificate for a server that asks for one",
        lambda us, others: us.server(clients=others.ca_file),
        lambda us, others: {"ca_file": us.ca_file},
        "client certificate.*cert_file.*TUSKPOINT_CERT_FILE",
    ),
    (
        "a certificate that the server does not trust",
        lambda us, others: us.server(clients=us.ca_file),
        lambda us, others: {
            "ca_file": us.ca_file,
            "cert_file": others.cert_file,
            "key_file": others.key_file,
        },
        "client certificate.*cert_file.*TUSKPOINT_CERT_FILE",
    ),
]


# The other hints are guesses: a server that stops closes connections too.
CERTAIN = {hint for *_, hint in MISMATCHES[:4]}


@pytest.mark.parametrize("kind", ["sync", "async"])
@pytest.mark.parametrize(
    ("serve", "given", "hint"),
    [case[1:] for case in MISMATCHES],
    ids=[case[0] for case in MISMATCHES],
)
async def test_a_mismatch_is_unavailable_with_its_likely_cause(
    services: ScriptedServices,
    us: Party,
    others: Party,
    kind: str,
    serve: Any,
    given: Any,
    hint: str,
) -> None:
    is_certain = hint in CERTAIN
    with serving(services, credentials=serve(us, others)) as target:
        face = Face(kind, target, timeout_s=NEVER_S if is_certain else SOON_S, **given(us, others))
        with pytest.raises(Unavailable, match=hint) as caught:
            await face.call("info")
        await face.aclose()
    assert type(caught.value) is (TlsMismatch if is_certain else Unavailable)
    assert (caught.value.status, caught.value.reason) == ("UNAVAILABLE", "")
    assert target in caught.value.message
    assert caught.value.message.splitlines() == [caught.value.message]


@pytest.mark.parametrize("kind", ["sync", "async"])
async def test_a_stream_that_no_retry_can_open_ends_at_once(
    services: ScriptedServices, us: Party, others: Party, kind: str
) -> None:
    with serving(services, credentials=us.server()) as target:
        face = Face(kind, target, ca_file=others.ca_file, timeout_s=NEVER_S)
        with pytest.raises(TlsMismatch, match="not trusted"):
            await face.call("save", "t", {"n": 1}, parent="")
        with pytest.raises(TlsMismatch, match="not trusted"):
            await face.take("watch", 1, "t")
        await face.aclose()


@pytest.mark.parametrize("kind", ["sync", "async"])
async def test_a_broken_handshake_is_tried_again(
    services: ScriptedServices, us: Party, kind: str
) -> None:
    """A restarting server, or a proxy in front of one, breaks handshakes."""
    with socket.create_server(("127.0.0.1", 0)) as ending:
        target = f"127.0.0.1:{ending.getsockname()[1]}"
        face = Face(kind, target, ca_file=us.ca_file)
        waiting = asyncio.create_task(face.call("info"))
        connection, _ = await asyncio.to_thread(ending.accept)
        connection.close()
    with serving(services, credentials=us.server(), address=target):
        assert (await waiting).version == "9.9"
        await face.aclose()


async def test_of_several_servers_another_one_may_be_trusted(
    services: ScriptedServices, us: Party, others: Party
) -> None:
    with (
        serving(services, credentials=us.server()) as ours,
        serving(ScriptedServices(), credentials=others.server()) as theirs,
        Client(f"{theirs},{ours}", ca_file=us.ca_file) as client,
    ):
        for _ in range(4):
            assert (await asyncio.to_thread(client.info)).version == "9.9"
