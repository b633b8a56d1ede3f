"""Tokens of OpenID Connect issuers survive key rotation and outages; bad tokens are refused."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import grpc
import jwt
import pytest
from aiohttp import web
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from tests.integration.access.tls_kit import bearer
from tests.kit.messages import FIRST, ReportedError, ref, refused, reported, save_request
from tuskpoint import AsyncClient
from tuskpoint.v1 import checkpoint_service_pb2 as pb
from tuskpoint.v1.checkpoint_service_pb2_grpc import CheckpointServiceStub
from tuskpoint.v1.history_service_pb2 import WatchThreadRequest
from tuskpoint.v1.history_service_pb2_grpc import HistoryServiceStub
from tuskpoint_server.auth import access, oidc
from tuskpoint_server.commands import serve
from tuskpoint_server.config.settings import Config

RSA = {name: rsa.generate_private_key(65537, 2048) for name in ("first", "second")}
EC = ec.generate_private_key(ec.SECP256R1())


@dataclass
class Provider:
    """An issuer that publishes its keys."""

    url: str = ""
    keys: dict[str, Any] = field(default_factory=lambda: {"first": RSA["first"], "curve": EC})
    named: str = ""  # issuer in its metadata document, if it is another issuer
    is_down: bool = False
    reads: int = 0

    def published(self) -> list[dict[str, Any]]:
        return [
            json.loads(_algorithm(key).to_jwk(key.public_key())) | {"kid": name, "use": "sig"}
            for name, key in self.keys.items()
        ]

    async def describe(self, request: web.Request) -> web.Response:
        if self.is_down:
            return web.Response(status=503)
        return web.json_response({"issuer": self.named or self.url, "jwks_uri": f"{self.url}/keys"})

    async def list_keys(self, request: web.Request) -> web.Response:
        self.reads += 1
        symmetric = {"kty": "oct", "kid": "shared", "k": "c2VjcmV0LXNlY3JldC1zZWNyZXQtc2VjcmV0"}
        return web.json_response({"keys": [*self.published(), symmetric, {"kty": "?"}, 7]})

    def token(self, kid: str = "first", *, key: Any = None, **claims: Any) -> str:
        """Issue a token; claims that are `None` are left out."""
        made = {
            "iss": self.url,
            "aud": "tuskpoint",
            "sub": "agent-7",
            "exp": datetime.now(UTC) + timedelta(minutes=5),
            "org": "acme",
            "scope": "read write openid",
            **claims,
        }
        key = key or RSA.get(kid) or EC
        algorithm = "ES256" if key is EC else "HS256" if isinstance(key, bytes) else "RS256"
        present = {name: value for name, value in made.items() if value is not None}
        return jwt.encode(present, key, algorithm, {"kid": kid})


def _algorithm(key: Any) -> Any:
    return jwt.algorithms.ECAlgorithm if key is EC else jwt.algorithms.RSAAlgorithm


@pytest.fixture
async def provider() -> AsyncIterator[Provider]:
    issuer, program = Provider(), web.Application()
    program.router.add_get("/.well-known/openid-configuration", issuer.describe)
    program.router.add_get("/keys", issuer.list_keys)
    runner = web.AppRunner(program)
    await runner.setup()
    await (site := web.TCPSite(runner, "127.0.0.1", 0)).start()
    assert site._server is not None
    sockets = site._server.sockets  # type: ignore[attr-defined]
    issuer.url = f"http://127.0.0.1:{sockets[0].getsockname()[1]}"
    yield issuer
    await runner.cleanup()


ENTRY = '[[issuer]]\nurl = "{url}"\naudience = "tuskpoint"\n'
CLAIMS = ENTRY + 'tenant_claim = "org"\nscope_claim = "scope"\n'
FIXED = ENTRY + 'tenant = "acme"\nscopes = ["read"]\n'


@pytest.fixture
def token_file(tmp_path: Path, provider: Provider) -> Path:
    file = tmp_path / "tokens.toml"
    file.write_text(CLAIMS.format(url=provider.url), "utf-8")
    return file


@pytest.fixture
def config(tmp_path: Path, token_file: Path) -> Config:
    return Config(
        listen="127.0.0.1:0", data_dir=tmp_path / "data", flush_interval=3600, tokens=token_file
    )


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access, "LOOK_SECONDS", 0.01)
    monkeypatch.setattr(oidc, "RETRY_SECONDS", 0.05)


Save = Callable[[str], Awaitable[object]]


@pytest.fixture
def save(grpc_channel: grpc.aio.Channel) -> Save:
    stub = CheckpointServiceStub(grpc_channel)
    return lambda token: stub.SaveCheckpoint(save_request(), metadata=bearer(token))


async def settled(call: Callable[[], Awaitable[object]]) -> ReportedError | None:
    """Call until the issuer's keys are known; return the reason of the refusal, if any."""
    async with asyncio.timeout(20):
        while True:
            try:
                await call()
            except grpc.aio.AioRpcError as error:
                if "the keys of its issuer are not known yet" not in (error.details() or ""):
                    return reported(error)
                await asyncio.sleep(0.01)
            else:
                return None


async def until(happened: Callable[[], bool]) -> None:
    for _ in range(2000):
        if happened():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("it does not happen")


async def test_claims_decide_tenant_and_scopes(
    save: Save, grpc_channel: grpc.aio.Channel, provider: Provider
) -> None:
    for kid in ("first", "curve"):
        token = provider.token(kid)
        assert await settled(lambda token=token: save(token)) is None  # type: ignore[misc]
    request, stub = pb.GetCheckpointRequest(ref=ref(FIRST)), CheckpointServiceStub(grpc_channel)
    loaded = await stub.GetCheckpoint(request, metadata=bearer(provider.token()))
    assert loaded.checkpoint.ref.checkpoint_id == FIRST
    other = provider.token(org="other", scope=["read"])
    missing = await settled(lambda: stub.GetCheckpoint(request, metadata=bearer(other)))
    assert missing is not None
    assert missing.reason == "CHECKPOINT_NOT_FOUND"
    denied = await settled(lambda: save(other))
    assert denied is not None
    assert (denied.reason, denied.metadata["scope"]) == ("SCOPE_MISSING", "write")


def past() -> datetime:
    return datetime.now(UTC) - timedelta(minutes=2)


@pytest.mark.parametrize(
    ("claims", "advice"),
    [
        ({"exp": "past"}, "it has expired"),
        ({"exp": None}, "is not valid"),
        ({"aud": "another"}, "it is for another audience"),
        ({"aud": None}, "is not valid"),
        ({"iss": "https://elsewhere.example"}, "is not valid"),
        ({"org": None}, "its claim 'org' names no tenant"),
        ({"org": "../x"}, "its claim 'org' names no tenant"),
        ({"scope": "openid"}, "its claim 'scope' names no scope"),
        ({"scope": {"read": 1}}, "its claim 'scope' names no scope"),
        ({"nbf": 1 << 40}, "is not valid"),
    ],
)
async def test_tokens_that_are_not_for_this_server(
    save: Save, provider: Provider, claims: dict[str, Any], advice: str
) -> None:
    token_claims: dict[str, Any] = {
        name: past() if value == "past" else value for name, value in claims.items()
    }
    denied = await settled(lambda: save(provider.token(**token_claims)))
    assert denied is not None
    assert (denied.code, denied.reason) == (grpc.StatusCode.UNAUTHENTICATED, "CREDENTIAL_INVALID")
    assert advice in denied.message


async def test_forged_tokens(save: Save, provider: Provider) -> None:
    assert await settled(lambda: save(provider.token())) is None
    public = RSA["first"].public_key().public_numbers().n.to_bytes(256, "big")
    forged = [
        provider.token("first", key=RSA["second"]),  # signed with another private key
        # signed with a key of another kind than the named key
        provider.token("curve", key=RSA["first"]),
        provider.token("first", key=public),  # with the public key as a shared secret
        provider.token("shared", key=b"secret-secret-secret-secret-secr"),
        jwt.encode({"iss": provider.url, "aud": "tuskpoint"}, "", "none"),
        provider.token()[:-6] + "AAAAAA",
        "a.b.c",
    ]
    for token in forged:
        denied = await settled(lambda token=token: save(token))  # type: ignore[misc]
        assert denied is not None, token
        assert denied.code is grpc.StatusCode.UNAUTHENTICATED


async def test_a_new_key_is_read_when_a_token_names_it_and_an_old_one_ends_its_calls(
    save: Save, grpc_channel: grpc.aio.Channel, provider: Provider
) -> None:
    old = provider.token()
    assert await settled(lambda: save(old)) is None
    request = WatchThreadRequest(thread_id="thread")
    watch = HistoryServiceStub(grpc_channel).WatchThread(request, metadata=bearer(old))
    await anext(aiter(watch))
    provider.keys = {"second": RSA["second"]}
    assert await settled(lambda: save(provider.token("second"))) is None
    ended = await refused(watch)
    assert ended.reason == "CREDENTIAL_INVALID"
    again = await settled(lambda: save(old))
    assert again is not None
    assert again.code is grpc.StatusCode.UNAUTHENTICATED


async def test_an_issuer_that_is_down_at_the_start_is_asked_again(
    provider: Provider, config: Config, caplog: pytest.LogCaptureFixture
) -> None:
    provider.is_down = True
    async with serve.running_server(config) as server:
        target = f"127.0.0.1:{server.port}"
        async with AsyncClient(target, token=provider.token()) as client:
            saving = asyncio.ensure_future(client.save("thread", {"x": 1}))
            await until(lambda: "answered 503" in caplog.text)
            provider.is_down = False
            await saving
    assert f"the keys of issuer {provider.url} cannot be read" in caplog.text


async def test_a_description_of_another_issuer_is_not_believed(
    provider: Provider, config: Config, caplog: pytest.LogCaptureFixture
) -> None:
    provider.named = "https://elsewhere.example"
    async with serve.running_server(config):
        await until(lambda: "its description is of another issuer" in caplog.text)
    assert provider.reads == 0


async def test_an_issuer_may_be_taken_out_or_get_other_grants(
    save: Save, provider: Provider, token_file: Path
) -> None:
    token = provider.token()
    assert await settled(lambda: save(token)) is None
    with token_file.open("w", encoding="utf-8") as file:
        file.write(FIXED.format(url=provider.url))
    for _ in range(2000):
        denied = await settled(lambda: save(token))
        if denied is not None and "revoked while the call ran" not in denied.message:
            break
        await asyncio.sleep(0.01)
    assert denied is not None
    assert denied.reason == "SCOPE_MISSING"
