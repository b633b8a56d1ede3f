"""Tokens and scopes admit the right calls, and end running calls in time."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import fields, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import AsyncMock

import grpc
import pytest
from google.protobuf import message_factory
from google.protobuf.descriptor import MethodDescriptor
from grpc_health.v1 import health_pb2, health_pb2_grpc  # type: ignore[import-untyped]
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from tests.integration.access.tls_kit import GRANTS, bearer, write_tokens
from tests.integration.api.shapes import (
    SHAPES,
    Behavior,
    end_of,
    pipeline_of,
    serving,
    start_call,
)
from tests.kit.contract_files import FILES
from tests.kit.messages import (
    FIRST,
    SECOND,
    THREAD,
    ReportedError,
    ref,
    refused,
    reported,
    save_request,
)
from tuskpoint.v1 import (
    admin_service_pb2,
    history_service_pb2,
    thread_service_pb2,
)
from tuskpoint.v1 import checkpoint_service_pb2 as pb
from tuskpoint.v1.admin_service_pb2_grpc import AdminServiceStub
from tuskpoint.v1.checkpoint_service_pb2_grpc import CheckpointServiceStub
from tuskpoint.v1.history_service_pb2_grpc import HistoryServiceStub
from tuskpoint.v1.thread_service_pb2_grpc import ThreadServiceStub
from tuskpoint_server.api.admin import AdminServicer
from tuskpoint_server.api.middleware import guessing
from tuskpoint_server.api.middleware.authentication import Authentication
from tuskpoint_server.api.middleware.pipeline import Call
from tuskpoint_server.api.middleware.policy import POLICY
from tuskpoint_server.api.middleware.telemetry import Telemetry
from tuskpoint_server.api.server.server import Server
from tuskpoint_server.archive.archive import ArchiveStatus
from tuskpoint_server.auth import access
from tuskpoint_server.config.settings import Config
from tuskpoint_server.core.credentials import EVERYTHING, Credentials, Grant, Scope, token_digest

LACKING = [Grant(f"no {scope}", "default", frozenset(Scope) - {scope}) for scope in Scope]
EXPIRED = Grant("expired", "default", frozenset(Scope), datetime(2020, 1, 1, tzinfo=UTC))
Metadata = Sequence[tuple[str, str]]


@pytest.fixture(autouse=True)
def quick_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access, "LOOK_SECONDS", 0.01)


@pytest.fixture
def token_file(tmp_path: Path) -> Path:
    return tmp_path / "tokens.toml"


@pytest.fixture
def tokens(token_file: Path) -> dict[str, str]:
    return write_tokens(token_file, [*GRANTS, *LACKING, EXPIRED])


@pytest.fixture
def config(tmp_path: Path, token_file: Path, tokens: dict[str, str]) -> Config:
    """Settings of a server that requires tokens, in plaintext on loopback."""
    return Config(
        listen="127.0.0.1:0", data_dir=tmp_path / "data", flush_interval=3600, tokens=token_file
    )


async def save(channel: grpc.aio.Channel, metadata: Metadata) -> None:
    await CheckpointServiceStub(channel).SaveCheckpoint(save_request(), metadata=metadata)


async def load(channel: grpc.aio.Channel, metadata: Metadata) -> Any:
    request = pb.GetCheckpointRequest(ref=ref(FIRST))
    return await CheckpointServiceStub(channel).GetCheckpoint(request, metadata=metadata)


async def test_a_token_reaches_its_tenant_and_no_other(
    grpc_channel: grpc.aio.Channel, tokens: dict[str, str]
) -> None:
    await save(grpc_channel, bearer(tokens["writer"]))
    loaded = await load(grpc_channel, bearer(tokens["reader"]))
    assert loaded.checkpoint.ref.checkpoint_id == FIRST
    answer = await refused(load(grpc_channel, bearer(tokens["stranger"])))
    assert (answer.code, answer.reason) == (grpc.StatusCode.NOT_FOUND, "CHECKPOINT_NOT_FOUND")


async def test_storing_a_manifest_takes_the_scope_to_write(
    grpc_channel: grpc.aio.Channel, tokens: dict[str, str]
) -> None:
    await save(grpc_channel, bearer(tokens["writer"]))
    admin = AdminServiceStub(grpc_channel)
    await admin.Flush(admin_service_pb2.FlushRequest(), metadata=bearer(tokens["no write"]))
    threads = ThreadServiceStub(grpc_channel)
    request = thread_service_pb2.GetManifestRequest(thread_id=THREAD)
    await threads.GetManifest(request, metadata=bearer(tokens["reader"]))
    request.store = True
    answer = await refused(threads.GetManifest(request, metadata=bearer(tokens["reader"])))
    assert (answer.code, answer.reason) == (grpc.StatusCode.PERMISSION_DENIED, "SCOPE_MISSING")
    assert answer.metadata["scope"] == "write"
    stored = await threads.GetManifest(request, metadata=bearer(tokens["no admin"]))
    assert stored.manifest.blob_id


NOT_ACCEPTED: list[list[tuple[str, Any]]] = [
    [],
    [("authorization", "")],
    [("authorization", "Bearer")],
    [("authorization", "Bearer ")],
    [("authorization", "Bearer tusk_not-known")],
    [("authorization", "Basic {writer}")],
    [("authorization", "{writer}")],
    [("authorization", "Bearer {writer} {writer}")],
    [("authorization", "Bearer {writer}, Bearer {reader}")],
    [("authorization", "Bearer {writer}!")],
    [("authorization", "Bearer {expired}")],
    [("authorization", "Bearer {writer}"), ("authorization", "Bearer {writer}")],
    [("authorization-bin", b"Bearer {writer}")],
    [("token", "{writer}")],
]


async def test_a_call_without_a_valid_token_is_refused(
    grpc_channel: grpc.aio.Channel, tokens: dict[str, str]
) -> None:
    for metadata in NOT_ACCEPTED:
        sent = [
            (name, text.format(**tokens) if isinstance(text, str) else text)
            for name, text in metadata
        ]
        answer = await refused(load(grpc_channel, sent))
        assert (answer.code, answer.reason, answer.metadata) == (
            grpc.StatusCode.UNAUTHENTICATED,
            "CREDENTIAL_INVALID",
            {},
        ), metadata
        assert tokens["writer"] not in answer.message


async def test_the_scheme_is_compared_without_case(
    grpc_channel: grpc.aio.Channel, tokens: dict[str, str]
) -> None:
    await save(grpc_channel, (("authorization", f"bEARER  {tokens['writer']}"),))


def reason_of(
    channel: grpc.Channel, method: MethodDescriptor, metadata: Metadata
) -> ReportedError | None:
    """Call a method with an empty request; return the reason of its refusal, if it is refused.

    The channel blocks: `grpc.aio` replaces the status of a stream that is refused while its first
    message is being written.
    """
    client = "stream" if method.client_streaming else "unary"
    make: Any = getattr(channel, f"{client}_{'stream' if method.server_streaming else 'unary'}")
    request = message_factory.GetMessageClass(method.input_type)
    answer = message_factory.GetMessageClass(method.output_type)
    call = make(
        f"/{method.containing_service.full_name}/{method.name}",
        request.SerializeToString,
        answer.FromString,
    )
    try:
        made = call(iter([request()]) if method.client_streaming else request(), metadata=metadata)
        if method.server_streaming:
            next(iter(made), None)  # some streams have no end
            made.cancel()
    except grpc.RpcError as error:
        return reported(error)
    return None


async def test_every_call_needs_each_of_its_scopes(server: Server, tokens: dict[str, str]) -> None:
    with grpc.insecure_channel(f"127.0.0.1:{server.port}") as channel:
        await asyncio.to_thread(check_scopes, channel, tokens)


def check_scopes(channel: grpc.Channel, tokens: dict[str, str]) -> None:
    methods = [
        method
        for file in FILES
        for service in file.DESCRIPTOR.services_by_name.values()
        for method in service.methods
    ]
    for method in methods:
        name = f"/{method.containing_service.full_name}/{method.name}"
        for scope in Scope:
            answer = reason_of(channel, method, bearer(tokens[f"no {scope}"]))
            if scope in POLICY[name]:
                assert answer is not None, name
                assert (answer.code, answer.reason, answer.metadata) == (
                    grpc.StatusCode.PERMISSION_DENIED,
                    "SCOPE_MISSING",
                    {"scope": scope, "method": name},
                )
            else:
                assert answer is None or answer.reason != "SCOPE_MISSING", name
        answer = reason_of(channel, method, ())
        assert answer is not None
        assert answer.reason == "CREDENTIAL_INVALID", name


async def test_a_missing_scope_is_reported_before_anything_is_looked_up(
    grpc_channel: grpc.aio.Channel, tokens: dict[str, str]
) -> None:
    await save(grpc_channel, bearer(tokens["writer"]))
    threads = ThreadServiceStub(grpc_channel)
    answers = [
        await refused(
            threads.DeleteThread(
                thread_service_pb2.DeleteThreadRequest(thread_id=thread),
                metadata=bearer(tokens["reader"]),
            )
        )
        for thread in (THREAD, "no such thread", "")
    ]
    assert answers[0].reason == "SCOPE_MISSING"
    assert answers[0] == answers[1] == answers[2]


async def test_everybody_may_read_the_health(grpc_channel: grpc.aio.Channel) -> None:
    health = health_pb2_grpc.HealthStub(grpc_channel)
    answer = await health.Check(health_pb2.HealthCheckRequest())
    assert answer.status == health_pb2.HealthCheckResponse.SERVING


async def test_the_sizes_of_all_tenants_are_reported_to_admin_only() -> None:
    status = ArchiveStatus(*[1] * len(fields(ArchiveStatus)))  # type: ignore[arg-type]
    status = replace(status, catalog=None, last_error="", first_gaps=(), damaged_threads=())
    admin: Any = SimpleNamespace(status=AsyncMock(return_value=(status, 1, None)))
    servicer = AdminServicer(admin, cast(Any, None))
    for grant in (EVERYTHING, *LACKING):
        call = Call("/m", None, grant=grant)  # type: ignore[arg-type]
        sees_all = int(Scope.ADMIN in grant.scopes)
        answer = await servicer.GetArchiveStatus(admin_service_pb2.GetArchiveStatusRequest(), call)
        assert (answer.journal_bytes, answer.spool_bytes, answer.cache_bytes) == (sees_all,) * 3
        assert answer.certified_checkpoints == 1


# --- changes while the server runs -----------------------------------------------------------


@asynccontextmanager
async def watching(channel: grpc.aio.Channel, token: str) -> AsyncIterator[Any]:
    """Watch the thread until its first event."""
    request = history_service_pb2.WatchThreadRequest(thread_id=THREAD)
    stream: Any = HistoryServiceStub(channel).WatchThread(request, metadata=bearer(token))
    assert (await stream.read()).HasField("event")
    yield stream
    stream.cancel()


@asynccontextmanager
async def saving(channel: grpc.aio.Channel, token: str) -> AsyncIterator[Any]:
    """Open an exchange with an answered save."""
    stream: Any = CheckpointServiceStub(channel).Exchange(metadata=bearer(token))
    await stream.write(pb.ExchangeRequest(frames=[pb.Frame(id=1, save=save_request())]))
    await stream.read()
    yield stream
    stream.cancel()


def change(file: Path, before: str, after: str) -> None:
    """Replace a text in a token file, in place."""
    text = file.read_text()
    assert before in text
    file.write_text(text.replace(before, after))


def remove_entry(file: Path, name: str) -> None:
    """Remove an entry from a token file, in one step."""
    entries = file.read_text().split("[[token]]")
    kept = [entry for entry in entries if f'name = "{name}"' not in entry]
    assert len(kept) == len(entries) - 1
    part = file.with_name("part")
    part.write_text("[[token]]".join(kept))
    os.replace(part, file)


@pytest.mark.parametrize("stream_of", [watching, saving])
async def test_streams_of_a_revoked_token_end_and_others_go_on(
    grpc_channel: grpc.aio.Channel,
    token_file: Path,
    tokens: dict[str, str],
    stream_of: Any,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")
    await save(grpc_channel, bearer(tokens["writer"]))
    async with (
        stream_of(grpc_channel, tokens["writer"]) as ending,
        watching(grpc_channel, tokens["reader"]) as going_on,
    ):
        remove_entry(token_file, "writer")
        answer = await refused(ending.read())
        assert (answer.code, answer.reason) == (
            grpc.StatusCode.UNAUTHENTICATED,
            "CREDENTIAL_INVALID",
        )
        assert "revoked while the call ran" in answer.message
        assert (await refused(load(grpc_channel, bearer(tokens["writer"])))).reason == (
            "CREDENTIAL_INVALID"
        )
        await save(grpc_channel, bearer(tokens["no read"]))
        await CheckpointServiceStub(grpc_channel).SaveCheckpoint(
            save_request(SECOND), metadata=bearer(tokens["no read"])
        )
        assert (await going_on.read()).event.checkpoint.ref.checkpoint_id == SECOND
    assert "credential 'writer' is no longer valid: 1 calls were ended" in caplog.text


async def test_a_token_that_loses_a_scope_loses_its_streams(
    grpc_channel: grpc.aio.Channel, token_file: Path, tokens: dict[str, str]
) -> None:
    await save(grpc_channel, bearer(tokens["writer"]))
    async with watching(grpc_channel, tokens["no admin"]) as ending:
        change(token_file, 'scopes = ["read", "write", "handoff"]', 'scopes = ["write"]')
        assert (await refused(ending.read())).reason == "CREDENTIAL_INVALID"
    answer = await refused(load(grpc_channel, bearer(tokens["no admin"])))
    assert answer.metadata["scope"] == "read"


async def test_a_new_token_is_accepted_without_a_restart(
    grpc_channel: grpc.aio.Channel, token_file: Path, tokens: dict[str, str]
) -> None:
    await save(grpc_channel, bearer(tokens["writer"]))
    async with watching(grpc_channel, tokens["writer"]) as ending:
        made = write_tokens(token_file, [Grant("new", "default", frozenset({Scope.READ}))])
        await refused(ending.read())
    assert (await load(grpc_channel, bearer(made["new"]))).checkpoint.ref.thread_id == THREAD


# --- the authentication layer alone ----------------------------------------------------------


@pytest.mark.parametrize("shape", SHAPES)
async def test_a_call_ends_when_its_token_expires(shape: str) -> None:
    expires = datetime.now(UTC) + timedelta(seconds=1)  # a loaded machine calls late
    grant = Grant("brief", "default", frozenset(Scope), expires)
    authentication = Authentication(Credentials({token_digest("brief"): grant}))
    behavior = Behavior("cancel")
    async with serving(behavior, pipeline_of(authentication=authentication)) as channel:
        ended = await end_of(start_call(channel, shape, metadata=bearer("brief")))
        assert behavior.left.is_set()
        again = await end_of(start_call(channel, shape, metadata=bearer("brief")))
    assert ended is not None
    assert again is not None
    assert ended.reason == again.reason == "CREDENTIAL_INVALID"
    assert "expired while the call ran" in ended.message
    assert "has expired" in again.message


async def test_running_calls_get_a_later_expiry() -> None:
    clock = [datetime(2030, 1, 1, tzinfo=UTC)]
    brief = Grant("t", "default", frozenset({Scope.READ}), clock[0] + timedelta(days=1))
    longer = Grant("t", "default", frozenset(Scope), clock[0] + timedelta(days=9))
    digest = token_digest("t")
    authentication = Authentication(Credentials({digest: brief}), now=lambda: clock[0])
    behavior = Behavior("cancel")
    async with serving(behavior, pipeline_of(authentication=authentication)) as channel:
        call = start_call(channel, "UnaryUnary", metadata=bearer("t"))
        await behavior.entered.wait()
        authentication.replace(Credentials({digest: longer}))
        clock[0] += timedelta(days=2)
        authentication.replace(Credentials({digest: longer}))
        assert not behavior.left.is_set()
        clock[0] += timedelta(days=8)
        authentication.replace(Credentials({digest: longer}))
        ended = await end_of(call)
    assert ended is not None
    assert "expired while the call ran" in ended.message


async def test_refusals_are_counted_by_their_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guessing, "time", SimpleNamespace(monotonic=lambda: 0.0))
    reader = InMemoryMetricReader()
    telemetry = Telemetry(meter_provider=MeterProvider([reader]))
    grant = Grant("t", "default", frozenset())
    authentication = Authentication(Credentials({token_digest("t"): grant}))
    pipeline = pipeline_of(telemetry, authentication, policy={})
    async with serving(Behavior("ok"), pipeline) as channel:
        unknown = [bearer(f"unknown{number}") for number in range(guessing.FREE_TOKENS + 2)]
        for metadata in ((), bearer("?"), bearer("t"), bearer("t"), *unknown):
            await end_of(start_call(channel, "UnaryUnary", metadata=metadata))
    data: Any = reader.get_metrics_data()
    counted = {
        point.attributes["reason"]: point.value
        for metric in data.resource_metrics[0].scope_metrics[0].metrics
        if metric.name == "tuskpoint.server.denied_calls"
        for point in metric.data.data_points
    }
    assert counted == {"missing": 1, "malformed": 1, "unknown": 20, "slowed": 2, "scope": 2}
