"""Every method of the contract gives the same answers over gRPC and over HTTP."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import grpc
import httpx
from google.protobuf import message_factory
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message import Message

from tests.integration.access.tenant_kit import METHODS, Tenant, furnish
from tests.integration.access.tenant_probes import NOBODYS, OWN, Names, Request, probes
from tests.integration.access.tls_kit import write_tokens
from tests.integration.web.web_kit import (
    PLAIN,
    WIRES,
    GrpcCaller,
    HttpCaller,
    contract,
    http_client,
)
from tests.kit.messages import ReportedError, reported
from tuskpoint._transport import methods
from tuskpoint.v1 import checkpoint_service_pb2 as pb
from tuskpoint.v1.handoff_service_pb2 import AdoptHandoffRequest
from tuskpoint_server.api.server.server import Server
from tuskpoint_server.commands import serve
from tuskpoint_server.config.settings import Config
from tuskpoint_server.core.credentials import Grant, Scope

GRPC = "grpc"
HTTP_WAYS = (*WIRES, PLAIN)
WAYS = (GRPC, *map(str, HTTP_WAYS))
Calls = GrpcCaller | HttpCaller

# Fields that differ between tenants with equal data: times, hashes over times, sizes of compressed
# data, figures of the server, statistics of the index.
_UNSTEADY = re.compile(
    r'\n *"(ts|\w+_time|\w*blob_id|identifier|receipt|signature|\w*sha256|\w+_bytes|distance'
    r'|duration|vectors|\w*indexed_checkpoints)": .*|,$',
    re.MULTILINE,
)
_TIME = re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+Z")
_HEX = re.compile(r"[0-9a-f]{16,}")


class HttpTenant(Tenant):
    """A tenant that calls over HTTP."""

    def __init__(
        self, channel: grpc.aio.Channel, target: str, token: str, caller: HttpCaller
    ) -> None:
        super().__init__(channel, target, token)
        self._caller = caller

    async def call(self, path: str, request: Request) -> list[Message]:
        return await self._caller.call(path, request if isinstance(request, list) else [request])


@asynccontextmanager
async def running(
    directory: Path, grants: Sequence[Grant]
) -> AsyncIterator[tuple[Server, grpc.aio.Channel, httpx.AsyncClient, Mapping[str, str]]]:
    """Run a server that requires tokens; yield it, a client of each kind, and the tokens."""
    tokens = write_tokens(directory / "tokens.toml", grants)
    config = Config(
        trail="off",
        listen="127.0.0.1:0",
        http_listen="127.0.0.1:0",
        data_dir=directory / "data",
        tokens=directory / "tokens.toml",
        flush_interval=3600,
        webhooks=directory / "webhooks.toml",
    )
    (directory / "secret").write_text("whsec_" + "A" * 44)
    (directory / "webhooks.toml").write_text(
        '[[webhook]]\nname = "owners-agent"\nurl = "https://hooks.invalid/"\n'
        'events = ["thread.certified"]\nagents = ["nobody"]\nsecret_file = "secret"\n'
    )
    async with (
        serve.running_server(config) as server,
        http_client(server.http_url) as http,
        grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel,
    ):
        yield server, channel, http, tokens


def test_every_method_has_an_example() -> None:
    assert probes(NOBODYS).keys() == contract().keys() == METHODS.keys()


async def all_heard(tenant: Tenant) -> dict[str, str]:
    """Make every call with unknown names and with the tenant's own names; return the answers."""
    names = await furnish(tenant)
    await tenant.client.save(OWN, {"plan": ["look around"]}, vector=[0, 1])
    descriptor = await tenant.client.handoff(OWN)
    fields = asdict(descriptor)
    del fields["handoff_id"]  # of the offer, not of the descriptor
    adopt = AdoptHandoffRequest(descriptor=fields, new_thread_id="adopted")
    calls: list[tuple[str, str, Request, Names]] = [
        ("of nobody", methods.ADOPT_HANDOFF.path, adopt, names)
    ]
    for whose, probe_names in (
        ("of nobody", replace(NOBODYS, cursor=names.cursor)),
        ("its own", names),
    ):
        for path, requests in probes(probe_names).items():
            if path == methods.PREVIEW_RETENTION.path:
                requests = requests[:1]  # the second request asks for an age of seconds
            calls += [(whose, path, request, probe_names) for request in requests]
    heard = {}
    for number, (whose, path, request, probe_names) in enumerate(calls):
        answer = _UNSTEADY.sub("", await tenant.heard(path, request, probe_names))
        heard[f"{path} {whose} {number}"] = _TIME.sub("<time>", _HEX.sub("<hex>", answer))
    return heard


async def test_answers_and_refusals_are_the_same(tmp_path: Path) -> None:
    grants = [Grant(way, way, frozenset(Scope)) for way in WAYS]
    async with running(tmp_path, grants) as (server, channel, http, tokens):
        target = f"127.0.0.1:{server.port}"
        tenants = [Tenant(channel, target, tokens[GRPC])]
        for wire in HTTP_WAYS:
            token = tokens[str(wire)]
            tenants.append(HttpTenant(channel, target, token, HttpCaller(http, wire, token)))
        try:
            over_grpc, *over_http = await asyncio.gather(*map(all_heard, tenants))
        finally:
            await asyncio.gather(*(tenant.client.aclose() for tenant in tenants))
    for way, heard in zip(HTTP_WAYS, over_http, strict=True):
        assert heard.keys() == over_grpc.keys()
        for what, answer in heard.items():
            assert answer == over_grpc[what], f"{what} over {way}"
    answered = {what.split()[0] for what, answer in over_grpc.items() if answer.startswith("[")}
    assert answered == contract().keys(), "of each method at least one call succeeds"


Outcome = list[Message] | ReportedError


async def outcome(calls: Calls, path: str, request: Request | bytes) -> Outcome:
    try:
        return await calls.call(path, request if isinstance(request, list) else [request])
    except grpc.aio.AioRpcError as error:
        return reported(error)


def spoiled(path: str, method: MethodDescriptor) -> Any:
    """Return a request whose texts contain a forbidden character."""
    if path == methods.EXCHANGE.path:
        return [pb.ExchangeRequest(frames=[pb.Frame(id=1)])]
    request: Any = message_factory.GetMessageClass(method.input_type)()
    for field in method.input_type.fields:
        if field.type == field.TYPE_STRING and field.is_repeated:
            getattr(request, field.name).append("\0")
        elif field.type == field.TYPE_STRING:
            setattr(request, field.name, "\0")
        elif field.name == "ref":
            request.ref.thread_id = "\0"
    return request


WITHOUT_TEXTS = {
    methods.LIST_WEBHOOKS.path,
    methods.GET_SERVER_INFO.path,
    methods.GET_ARCHIVE_STATUS.path,
    methods.FLUSH.path,
    methods.ACCEPT_CLOCK.path,
    methods.PREVIEW_RETENTION.path,
    methods.LIST_ITEM_NAMESPACES.path,
}


async def test_every_method_refuses_alike(tmp_path: Path) -> None:
    grants = (
        Grant("full", "full", frozenset(Scope)),
        Grant("powerless", "powerless", frozenset({Scope.HANDOFF})),
    )
    nothing = b"\xff\xff\xff"
    async with running(tmp_path, grants) as (server, channel, http, tokens):

        async def compare(token: str | None, path: str, request: Request | bytes) -> ReportedError:
            expected = await outcome(GrpcCaller(channel, token), path, request)
            for wire in HTTP_WAYS:
                actual = await outcome(HttpCaller(http, wire, token), path, request)
                if request is nothing and wire.codec == "json" and token is not None:
                    assert isinstance(actual, ReportedError)
                    assert isinstance(expected, ReportedError)
                    # The message about malformed JSON differs between formats.
                    actual = replace(actual, message=expected.message, metadata=expected.metadata)
                assert actual == expected, f"{path} over {wire}"
            assert isinstance(expected, ReportedError), f"{path} was not refused"
            return expected

        for path, method in contract().items():
            example = probes(NOBODYS)[path][0]
            for token in (None, tokens["full"] + "x"):
                for request in (example, nothing):
                    answer = await compare(token, path, request)
                    assert answer.reason == "CREDENTIAL_INVALID"
            if path != methods.EXCHANGE.path:  # its frames need scopes, the stream does not
                for request in (example, nothing):
                    answer = await compare(tokens["powerless"], path, request)
                    assert answer.reason == "SCOPE_MISSING"
            answer = await compare(tokens["full"], path, nothing)
            assert (answer.reason, answer.fields) == ("INVALID_FIELD", ("request",))
            if path not in WITHOUT_TEXTS:
                answer = await compare(tokens["full"], path, spoiled(path, method))
                assert answer.code is grpc.StatusCode.INVALID_ARGUMENT, path
        await server.pipeline.drain(0)
        for path in contract():
            answer = await compare(tokens["full"], path, probes(NOBODYS)[path][0])
            assert answer.reason == "DRAINING"
