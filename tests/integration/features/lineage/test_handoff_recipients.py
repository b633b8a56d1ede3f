"""Only the recipient's server opens a hand-off that is sealed to it, over any channel."""

from __future__ import annotations

import asyncio
import base64
import shutil
import subprocess
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import grpc
import pyrage
import pytest

from tests.integration.access.tls_kit import write_tokens
from tests.integration.features.lineage.handoff_kit import (
    Side,
    blob_file,
    changed,
    content,
    kept,
    naming,
    save_run,
)
from tests.integration.features.lineage.handoff_servers import side
from tests.kit.databases import journal_of
from tests.kit.messages import SECOND, refused
from tuskpoint import AsyncClient, PreconditionFailed
from tuskpoint.v1 import admin_service_pb2 as admin_pb
from tuskpoint_server.__main__ import main as tuskpoint_server
from tuskpoint_server.archive.formats.sealing import open_member
from tuskpoint_server.commands import serve
from tuskpoint_server.config.settings import Config
from tuskpoint_server.core.credentials import Grant, Scope
from tuskpoint_server.core.model import BlobLocation
from tuskpoint_server.keys import key_file

Code = grpc.StatusCode


class House:
    """Servers that share a blob directory; each has its own keys and data directory."""

    def __init__(self, root: Path, stack: AsyncExitStack) -> None:
        self.root = root
        self._stack = stack

    async def open(self, name: str, *, seals: bool = True, **settings: Any) -> Side:
        keys = self.root / f"{name}.keys"
        if seals and not keys.exists():
            key_file.make(keys)
        if seals:
            settings["key_file"] = keys
        place = {"data_dir": self.root / name, "blob_dir": self.root / "blobs"}
        return await self._stack.enter_async_context(side(**place, **settings))

    def identity(self, name: str) -> Path:
        """Create a file of identities, or put a new identity first in it; return the identity."""
        file = self.root / f"{name}.identity"
        assert tuskpoint_server(["keys", "identity", str(file)]) == 0
        return file


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    async with AsyncExitStack() as stack:
        yield House(tmp_path, stack)


@pytest.fixture
async def giver(house: House) -> Side:
    """A server that seals, with a run to hand off."""
    running = await house.open("giver")
    await save_run(running)
    return running


@pytest.fixture
async def taker(house: House) -> Side:
    """A server with other keys, and an identity."""
    return await house.open("taker", identity=house.identity("taker"))


async def recipients(running: Side) -> list[str]:
    return list((await running.admin.GetServerInfo(admin_pb.GetServerInfoRequest())).recipients)


async def test_only_the_recipients_server_opens_what_it_gets(
    house: House, giver: Side, taker: Side
) -> None:
    [public] = await recipients(taker)
    descriptor = await giver.hand_off(recipient=public)
    assert descriptor.key == ""
    frames = await taker.adopt(descriptor)
    assert frames[-1].adoption.verified
    assert frames[-1].adoption.signer == descriptor.signer
    assert content(await taker.load(SECOND, "adopted")) == content(await giver.load(SECOND))

    stranger = await house.open("stranger", identity=house.identity("stranger"))
    [other] = await recipients(stranger)
    assert other != public
    reported = await stranger.refuses(descriptor)
    assert (reported.code, reported.reason) == (Code.FAILED_PRECONDITION, "KEY_MISSING")
    assert f"sealed to another recipient than {other}" in reported.message

    assert await recipients(giver) == []
    reported = await giver.refuses(descriptor)
    assert (reported.code, reported.reason) == (Code.FAILED_PRECONDITION, "KEY_MISSING")
    assert "this server has no identity" in reported.message


async def test_the_same_checkpoint_is_stored_once_for_all_recipients(
    giver: Side, taker: Side
) -> None:
    [public] = await recipients(taker)
    plain = await giver.hand_off()
    first = await giver.hand_off(recipient=public, request_id="one")
    again = await giver.hand_off(recipient=public)
    assert {descriptor.blob_id for descriptor in (plain, first, again)} == {plain.blob_id}
    assert len(kept(giver)) == 1
    assert plain.sealed_key == ""
    assert first.sealed_key != again.sealed_key
    assert await giver.hand_off(recipient=public, request_id="one") == first
    for include_key in (False, True):
        reported = await refused(giver.hand_off(request_id="one", include_key=include_key))
        assert reported.reason == "REQUEST_ID_REUSED"
    for number, descriptor in enumerate((first, again)):
        await taker.adopt(descriptor, f"adopted {number}")


async def test_the_sealed_key_opens_with_the_program_age(
    house: House, giver: Side, taker: Side
) -> None:
    if (age := shutil.which("age")) is None:
        pytest.skip("the program age is not installed; apt-get install age")
    [public] = await recipients(taker)
    descriptor = await giver.hand_off(recipient=public)
    sealed = house.root / "sealed"
    sealed.write_bytes(base64.b64decode(descriptor.sealed_key))
    decrypt = [age, "--decrypt", "--identity", str(house.root / "taker.identity"), str(sealed)]
    done = await asyncio.to_thread(subprocess.run, decrypt, capture_output=True, check=True)
    with_key = await giver.hand_off(include_key=True)
    assert done.stdout.decode() == with_key.key


async def test_a_replaced_identity_still_opens_and_the_new_one_is_named_first(
    house: House,
) -> None:
    giver, file = await house.open("giver"), house.identity("taker")
    await save_run(giver)
    async with AsyncExitStack() as before:
        taker = await House(house.root, before).open("taker", identity=file)
        [old] = await recipients(taker)
    assert house.identity("taker") == file
    taker = await house.open("taker", identity=file)
    new, still = await recipients(taker)
    assert (new != old, still) == (True, old)
    for number, public in enumerate((old, new)):
        await taker.adopt(await giver.hand_off(recipient=public), f"adopted {number}")


async def test_a_changed_sealed_key_is_refused_and_nothing_is_written(
    giver: Side, taker: Side
) -> None:
    [public] = await recipients(taker)
    descriptor = await giver.hand_off(recipient=public)
    sealed = bytearray(base64.b64decode(descriptor.sealed_key))
    sealed[-1] ^= 1
    reported = await taker.refuses(
        changed(descriptor, sealed_key=base64.b64encode(sealed).decode())
    )
    assert (reported.code, reported.reason) == (Code.FAILED_PRECONDITION, "KEY_MISSING")

    def sealed_for_taker(text: bytes) -> str:
        to = pyrage.x25519.Recipient.from_str(public)
        return base64.b64encode(pyrage.encrypt(text, [to])).decode()

    reported = await taker.refuses(changed(descriptor, sealed_key=sealed_for_taker(b"no key")))
    assert (reported.code, reported.reason) == (Code.DATA_LOSS, "KEY_WRONG")
    reported = await taker.refuses(changed(descriptor, sealed_key=sealed_for_taker(b"ab" * 32)))
    assert (reported.code, reported.reason) == (Code.DATA_LOSS, "BLOB_MALFORMED")
    reported = await taker.refuses(changed(descriptor, sealed_key=""))
    assert (reported.code, reported.reason) == (Code.FAILED_PRECONDITION, "KEY_MISSING")


async def test_with_a_sealed_key_nothing_unsealed_is_adopted(giver: Side, taker: Side) -> None:
    [public] = await recipients(taker)
    descriptor = await giver.hand_off(recipient=public)
    with_key = await giver.hand_off(include_key=True)
    data = blob_file(giver, descriptor.blob_id).read_bytes()
    plain = open_member(data, BlobLocation(b"", 0, "", key=bytes.fromhex(with_key.key)))
    named = naming(giver, descriptor, plain)
    assert (await taker.adopt(changed(named, sealed_key="")))[-1].adoption.verified
    reported = await taker.refuses(named, "another")
    assert (reported.code, reported.reason) == (Code.DATA_LOSS, "BLOB_MALFORMED")
    assert "is not sealed" in reported.message


BAD_RECIPIENTS: list[dict[str, Any]] = [
    {"recipient": "age1"},
    {"recipient": "age12x0z6rxehdy5zxz38a36nyzln63ttr0r7s4xfdv3cdedmsthw5yqnugr23"},
    {"recipient": "AGE12X0Z6RXEHDY5ZXZ38A36NYZLN63TTR0R7S4XFDV3CDEDMSTHW5YQNUGR22"},
    {"recipient": "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIHsKLqeplhpW+uObz5dvMgjz1OxfM/XXUB"},
    {
        "recipient": "age12x0z6rxehdy5zxz38a36nyzln63ttr0r7s4xfdv3cdedmsthw5yqnugr22",
        "include_key": True,
    },
]
BAD_SEALED_KEYS: list[dict[str, str]] = [
    {"sealed_key": "AAA"},
    {"sealed_key": "AA-_"},
    {"sealed_key": "AAAA\n"},
    {"sealed_key": "AAAA" * 1025},
    {"sealed_key": "AAAA", "key": "ab" * 32},
]


async def test_bad_fields_are_refused(giver: Side) -> None:
    for fields in BAD_RECIPIENTS:
        reported = await refused(giver.hand_off(**fields))
        assert (reported.code, reported.reason) == (Code.INVALID_ARGUMENT, "INVALID_FIELD"), fields
        assert reported.fields == ("recipient",)
    assert kept(giver) == []
    descriptor = await giver.hand_off()
    for fields in BAD_SEALED_KEYS:
        reported = await giver.refuses(changed(descriptor, **fields))
        assert (reported.code, reported.reason) == (Code.INVALID_ARGUMENT, "INVALID_FIELD"), fields
        assert set(reported.fields) == {"descriptor.sealed_key"}


async def test_a_server_that_does_not_seal_refuses_until_it_does(house: House, taker: Side) -> None:
    """A bundle that the server stored unsealed before is not handed off to a recipient later."""
    [public] = await recipients(taker)
    async with AsyncExitStack() as before:
        giver = await House(house.root, before).open("giver", seals=False)
        await save_run(giver)
        reported = await refused(giver.hand_off(recipient=public))
        assert (reported.code, reported.reason) == (
            Code.FAILED_PRECONDITION,
            "SEALING_UNAVAILABLE",
        )
        assert "has no key provider" in reported.message
        assert kept(giver) == []
        unsealed = await giver.hand_off()
    giver = await house.open("giver")
    descriptor = await giver.hand_off(recipient=public)
    assert descriptor.blob_id != unsealed.blob_id
    await taker.adopt(descriptor)


async def test_tenants_of_one_server_do_not_open_what_is_sealed_to_another(
    tmp_path: Path,
) -> None:
    everything = frozenset(Scope)
    grants = (Grant("sender", "acme", everything), Grant("receiver", "zeta", everything))
    tokens = write_tokens(tmp_path / "tokens.toml", grants)
    key_file.make(tmp_path / "keys")
    assert tuskpoint_server(["keys", "identity", str(tmp_path / "identity")]) == 0
    data_dir = tmp_path / "data"
    config = Config(
        listen="127.0.0.1:0",
        data_dir=data_dir,
        journal=journal_of(data_dir),
        tokens=tmp_path / "tokens.toml",
        key_file=tmp_path / "keys",
        identity=tmp_path / "identity",
    )
    async with (
        serve.running_server(config) as server,
        AsyncClient(f"127.0.0.1:{server.port}", token=tokens["sender"]) as sender,
        AsyncClient(f"127.0.0.1:{server.port}", token=tokens["receiver"]) as receiver,
    ):
        await sender.save("thread", {"x": 1})
        [own], [theirs] = (await sender.info()).recipients, (await receiver.info()).recipients
        to_self = await sender.handoff("thread", recipient=own)
        with pytest.raises(PreconditionFailed, match=f"another recipient than {theirs}"):
            await receiver.adopt(to_self.to_json(), "in vain")
        assert (await sender.adopt(to_self, "again")).verified
        to_them = await sender.handoff("thread", recipient=theirs)
        assert (await receiver.adopt(to_them.to_json(), "adopted")).verified
        assert to_them.sealed_key in to_them.to_json()
