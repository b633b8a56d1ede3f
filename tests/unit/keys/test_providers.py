"""All key providers keep one contract: a file, a variable, a command, Vault, AWS KMS."""

from __future__ import annotations

import base64
import os
import shlex
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import boto3
import pytest
from aiohttp import web
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from moto import mock_aws
from moto.kms.models import kms_backends

from tuskpoint_server.__main__ import main as tuskpoint_server
from tuskpoint_server.core.errors import Reason, Refusal
from tuskpoint_server.keys.aws import AwsKeys
from tuskpoint_server.keys.command import CommandKeys
from tuskpoint_server.keys.local import LocalKeys, parse_keys
from tuskpoint_server.keys.provider import KeyProvider
from tuskpoint_server.keys.vault import VaultKeys

KEY = bytes(range(32))
ACCOUNT_ID = "123456789012"  # the account of moto
TOKEN = "hvs.CAESIJ-secret-of-the-test"
SECRET = "AKIAIOSFODNN7EXAMPLE"


@dataclass
class Case:
    """A provider, and the events of its keys; `None`: the provider does not have this event."""

    open: Callable[[], KeyProvider]
    rotate: Callable[[], object]
    lose: Callable[[], object]  # loses the key that wraps
    fail: Callable[[], object] | None = None
    recover: Callable[[], object] = lambda: None
    rotates_by_itself: bool = False  # rotation has no visible time


@asynccontextmanager
async def file(folder: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Case]:
    path = folder / "keys"
    tuskpoint_server(["keys", "create", str(path)])

    def lose() -> None:
        path.unlink()
        tuskpoint_server(["keys", "create", str(path)])

    yield Case(
        lambda: LocalKeys.of_file(path),
        lambda: tuskpoint_server(["keys", "rotate", str(path)]),
        lose,
    )


@asynccontextmanager
async def variable(folder: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Case]:
    keys = [base64.b64encode(os.urandom(32)).decode()]

    def lose() -> None:
        keys[:] = [base64.b64encode(os.urandom(32)).decode()]

    def rotate() -> None:
        keys.insert(0, base64.b64encode(os.urandom(32)).decode())

    yield Case(lambda: LocalKeys(parse_keys(" ".join(keys))), rotate, lose)


PROGRAM = """
import base64, pathlib, sys, os
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
folder, verb = pathlib.Path(sys.argv[1]), sys.argv[2]
if (folder / "down").exists():
    sys.exit("the service is closed")
data = base64.b64decode(sys.stdin.readline())
tenant, nonce = os.environ["TUSKPOINT_TENANT"].encode(), bytes(12)
key = (folder / "key").read_bytes()
cipher = AESGCM(key)
act = cipher.encrypt if verb == "wrap" else cipher.decrypt
made = act(nonce, data, tenant)
print(base64.b64encode(made).decode())
"""


@asynccontextmanager
async def command(folder: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Case]:
    (folder / "key").write_bytes(os.urandom(32))
    line = shlex.join([sys.executable, "-c", PROGRAM, str(folder)])
    yield Case(
        lambda: CommandKeys(line),
        lambda: None,
        lambda: (folder / "key").write_bytes(os.urandom(32)),
        (folder / "down").touch,
        (folder / "down").unlink,
        rotates_by_itself=True,
    )


class Transit:
    """A stand-in for Vault's Transit engine: one key with its versions."""

    def __init__(self) -> None:
        self.versions = {1: os.urandom(32)}
        self.is_down = False

    def rotate(self) -> None:
        self.versions[max(self.versions) + 1] = os.urandom(32)

    def lose(self) -> None:
        self.rotate()
        latest = max(self.versions)
        self.versions = {latest: self.versions[latest]}

    async def answer(self, request: web.Request) -> web.Response:
        if self.is_down:
            return refuse(503, "Vault is sealed")
        if request.headers.get("X-Vault-Token") != TOKEN:
            return refuse(403, f"permission denied for {TOKEN}")
        if request.match_info["name"] != "tuskpoint":
            return refuse(400, "encryption key not found")
        body = await request.json()
        aad = base64.b64decode(body["associated_data"])
        if request.match_info["verb"] == "encrypt":
            version = max(self.versions)
            nonce = os.urandom(12)
            plain = base64.b64decode(body["plaintext"])
            sealed = nonce + AESGCM(self.versions[version]).encrypt(nonce, plain, aad)
            text = f"vault:v{version}:{base64.b64encode(sealed).decode()}"
            return web.json_response({"data": {"ciphertext": text, "key_version": version}})
        parts = body["ciphertext"].split(":")
        if len(parts) != 3 or parts[0] != "vault" or not parts[1][1:].isdigit():
            return refuse(400, "invalid ciphertext: no prefix")
        key = self.versions.get(int(parts[1][1:]))
        if key is None:
            return refuse(400, "ciphertext or signature version is disallowed by policy (too old)")
        try:
            sealed = base64.b64decode(parts[2])
            plain = AESGCM(key).decrypt(sealed[:12], sealed[12:], aad)
        except (InvalidTag, ValueError):
            return refuse(400, "cipher: message authentication failed")
        return web.json_response({"data": {"plaintext": base64.b64encode(plain).decode()}})


def refuse(status: int, error: str) -> web.Response:
    return web.json_response({"errors": [error]}, status=status)


@asynccontextmanager
async def vault(folder: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Case]:
    transit, program = Transit(), web.Application()
    program.router.add_route("*", "/v1/transit/{verb}/{name}", transit.answer)
    runner = web.AppRunner(program)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    address = runner.addresses[0]
    monkeypatch.setenv("VAULT_ADDR", f"http://127.0.0.1:{address[1]}")
    monkeypatch.setenv("VAULT_TOKEN", TOKEN)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    yield Case(
        lambda: VaultKeys("transit/tuskpoint"),
        transit.rotate,
        transit.lose,
        lambda: setattr(transit, "is_down", True),
        lambda: setattr(transit, "is_down", False),
    )
    await runner.cleanup()


@asynccontextmanager
async def aws(folder: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Case]:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", SECRET)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "any")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-central-1")
    with mock_aws():
        kms = boto3.client("kms")
        key_id = kms.create_key()["KeyMetadata"]["KeyId"]
        yield Case(
            lambda: AwsKeys(key_id),
            lambda: kms.enable_key_rotation(KeyId=key_id),
            lambda: kms_backends[ACCOUNT_ID]["eu-central-1"].keys.pop(key_id),
            rotates_by_itself=True,
        )


@pytest.fixture(
    params=[file, variable, command, vault, aws], ids=lambda provider: str(provider.__name__)
)
async def case(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Case]:
    async with AsyncExitStack() as stack:
        yield await stack.enter_async_context(request.param(tmp_path, monkeypatch))


async def refused(keys: KeyProvider, tenant: str, wrapped: bytes) -> Refusal:
    with pytest.raises(Refusal) as caught:
        await keys.unwrap(tenant, wrapped)
    for hidden in (TOKEN, SECRET, base64.b64encode(KEY).decode(), KEY.hex()):
        assert hidden not in str(caught.value)
        assert hidden not in repr(caught.value.metadata)
    return caught.value


async def test_what_is_wrapped_for_a_tenant_opens_for_it_and_for_no_other(case: Case) -> None:
    keys = case.open()
    wrapped = await keys.wrap("acme", KEY)
    assert KEY not in wrapped
    assert keys.is_current(wrapped)
    for again in (keys, case.open()):
        assert await again.unwrap("acme", wrapped) == KEY
        refusal = await refused(again, "other", wrapped)
        assert refusal.reason in (Reason.KEY_WRONG, Reason.KEY_PROVIDER_UNAVAILABLE)


async def test_what_was_changed_does_not_open(case: Case) -> None:
    keys = case.open()
    wrapped = await keys.wrap("acme", KEY)
    for place in range(len(wrapped) - 6, len(wrapped), 5):
        changed = bytearray(wrapped)
        changed[place] ^= 1
        assert (await refused(keys, "acme", bytes(changed))).reason in (
            Reason.KEY_WRONG,
            Reason.KEY_MISSING,
            Reason.KEY_PROVIDER_UNAVAILABLE,
        )
    await refused(keys, "acme", b"")


async def test_a_rotated_key_opens_what_it_wrapped_and_wraps_no_more(case: Case) -> None:
    keys = case.open()
    old = await keys.wrap("acme", KEY)
    case.rotate()
    later = case.open()
    assert await later.unwrap("acme", old) == KEY
    new = await later.wrap("acme", KEY)
    assert later.is_current(new)
    assert later.is_current(old) == case.rotates_by_itself
    assert await case.open().unwrap("acme", new) == KEY


async def test_a_lost_key_is_missing(case: Case) -> None:
    wrapped = await case.open().wrap("acme", KEY)
    case.lose()
    refusal = await refused(case.open(), "acme", wrapped)
    assert refusal.reason in (Reason.KEY_MISSING, Reason.KEY_PROVIDER_UNAVAILABLE)
    assert str(refusal)


async def test_a_service_that_is_down_is_unavailable_and_comes_back(case: Case) -> None:
    if case.fail is None:
        pytest.skip("the server has these keys itself, or another test has the failure")
    keys = case.open()
    wrapped = await keys.wrap("acme", KEY)
    case.fail()
    for tried in (keys.wrap("acme", KEY), case.open().unwrap("acme", wrapped)):
        with pytest.raises(Refusal) as caught:
            await tried
        assert caught.value.reason is Reason.KEY_PROVIDER_UNAVAILABLE
        assert caught.value.retry_after_s
    case.recover()
    assert await keys.unwrap("acme", wrapped) == KEY


def test_places_of_transit_keys() -> None:
    for place in ("", "tuskpoint", "/", "transit/"):
        with pytest.raises(ValueError, match="MOUNT/KEY"):
            VaultKeys(place)


def test_a_region_is_needed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("AWS_DEFAULT_REGION", "AWS_REGION", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    with pytest.raises(ValueError, match="region"):
        AwsKeys("alias/tuskpoint")


async def test_errors_of_kms_are_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-central-1")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", SECRET)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "any")
    refusal = await refused(AwsKeys("alias/tuskpoint"), "acme", b"x")
    assert refusal.reason is Reason.KEY_PROVIDER_UNAVAILABLE
    assert "\n" not in str(refusal)
