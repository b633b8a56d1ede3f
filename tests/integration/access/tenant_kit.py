"""Two tenants on one server, and readers of all that their calls return."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import grpc
from google.protobuf import json_format
from google.protobuf.descriptor_pool import Default
from google.protobuf.message import Message

from tests.integration.access.tenant_probes import Names, Request
from tests.integration.access.tls_kit import bearer, write_tokens
from tests.kit.databases import journal_of
from tests.kit.messages import channel, ref, reported, save_request, write
from tuskpoint import AsyncClient, ItemChange
from tuskpoint._transport import methods
from tuskpoint._transport.methods import Method
from tuskpoint.v1 import admin_service_pb2 as admin
from tuskpoint.v1 import checkpoint_pb2
from tuskpoint.v1 import checkpoint_service_pb2 as cpb
from tuskpoint.v1 import effect_service_pb2 as effects
from tuskpoint.v1 import snapshot_service_pb2 as snapshots
from tuskpoint.v1 import store_service_pb2 as store
from tuskpoint.v1 import thread_service_pb2 as threads
from tuskpoint_server.commands import serve
from tuskpoint_server.config.settings import Config
from tuskpoint_server.core.credentials import Grant, Scope

METHODS = {method.path: method for method in vars(methods).values() if isinstance(method, Method)}
ALL_BUT_ADMIN = frozenset(Scope) - {Scope.ADMIN}
GRANTS = (
    Grant("owner", "acme", frozenset(Scope)),
    Grant("stranger", "other", ALL_BUT_ADMIN),
    Grant("operator", "other", frozenset(Scope)),
)
WAIT_S = 20

_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
# Fields that differ from call to call, or are opaque to every caller.
_UNSTEADY = {
    "acquire_time", "attempt_time", "catalog", "catalog_blob_id", "create_time", "cursor",
    "end_time", "expire_time", "fence", "idempotency_key", "lease_id", "location", "start_time",
    "time", "update_time",
}  # fmt: skip


class Tenant:
    """The calls of a tenant with one of its credentials."""

    def __init__(self, channel: grpc.aio.Channel, target: str, token: str) -> None:
        self.client = AsyncClient(target, token=token)
        self._channel = channel
        self._metadata = bearer(token)

    async def call(self, path: str, request: Request) -> list[Message]:
        """Make a call of any shape; return its answers, one answer if the call is unary."""
        method = METHODS[path]
        service, name = path[1:].split("/")
        described = Default().FindServiceByName(service).methods_by_name[name]
        shape = "_".join(
            "stream" if streams else "unary"
            for streams in (described.client_streaming, described.server_streaming)
        )
        make = getattr(self._channel, shape)(
            path,
            request_serializer=method.request.SerializeToString,
            response_deserializer=method.answer.FromString,
        )
        payload = iter(request) if isinstance(request, list) else request
        answer = make(payload, metadata=self._metadata, timeout=WAIT_S)
        if not described.server_streaming:
            return [await answer]
        answers = []
        async for message in answer:
            answers.append(message)
            if path in (methods.WATCH_THREAD.path, methods.WATCH_HANDOFFS.path):
                answer.cancel()
                break  # the stream has no end
        return answers

    async def heard(self, path: str, request: Request, names: Names) -> str:
        """Return all that a call returns, without the names."""
        try:
            answers = [
                _steady(
                    json_format.MessageToDict(
                        message,
                        preserving_proto_field_name=True,
                        always_print_fields_with_no_presence=True,
                    )
                )
                for message in await self.call(path, request)
            ]
            said = json.dumps(answers, indent=1)
        except grpc.aio.AioRpcError as error:
            said = repr(reported(error))
        for field in fields(names):
            value = getattr(names, field.name)
            text = value.decode("latin-1") if isinstance(value, bytes) else value
            said = said.replace(text, f"<{field.name}>") if text else said
        return _UUID.sub("<id>", said.replace(names.digest.hex(), "<digest>"))

    async def belongings(self) -> str:
        """Return all that the tenant has, as JSON."""
        everything: list[tuple[str, Request]] = [
            (methods.LIST_THREADS.path, threads.ListThreadsRequest(page_size=1000)),
            (
                methods.LIST_CHECKPOINTS.path,
                cpb.ListCheckpointsRequest(view=checkpoint_pb2.VIEW_FULL),
            ),
            (methods.LIST_SNAPSHOTS.path, snapshots.ListSnapshotsRequest(page_size=1000)),
            (methods.SEARCH_ITEMS.path, store.SearchItemsRequest(limit=1000)),
            (methods.GET_ARCHIVE_STATUS.path, admin.GetArchiveStatusRequest()),
        ]
        for thread_id in [thread.thread_id async for thread in self.client.list_threads()]:
            everything += [
                (methods.GET_THREAD.path, threads.GetThreadRequest(thread_id=thread_id)),
                (methods.GET_MANIFEST.path, threads.GetManifestRequest(thread_id=thread_id)),
                (methods.GET_LINEAGE.path, threads.GetLineageRequest(thread_id=thread_id)),
                (methods.VERIFY_THREAD.path, threads.VerifyThreadRequest(thread_id=thread_id)),
            ]
        answers = [
            json_format.MessageToDict(message, preserving_proto_field_name=True)
            for path, request in everything
            for message in await self.call(path, request)
        ]
        for answer in answers:
            for figure in ("journal_bytes", "spool_bytes", "cache_bytes"):
                answer.pop(figure, None)  # figures of the server, not of the tenant
        return json.dumps(answers, indent=1, sort_keys=True)


def _steady(thing: Any) -> Any:
    """Return a message without the fields that differ from call to call."""
    if isinstance(thing, dict):
        return {key: _steady(value) for key, value in thing.items() if key not in _UNSTEADY}
    return [_steady(value) for value in thing] if isinstance(thing, list) else thing


@dataclass(frozen=True)
class House:
    """A server with two tenants.

    Attributes:
        target: Address of the server.
        blobs: Blob store of the server.
        data_dir: Data directory of the server.
        owner: Credential of the tenant `acme` with all scopes.
        stranger: Credential of the tenant `other` with all scopes but `admin`.
        operator: Credential of the tenant `other` with all scopes.
    """

    target: str
    blobs: Path
    data_dir: Path
    owner: Tenant
    stranger: Tenant
    operator: Tenant


@asynccontextmanager
async def house(directory: Path, **settings: Any) -> AsyncIterator[House]:
    """Run a server with two tenants; an earlier server's data in the directory is used."""
    tokens = _tokens(directory)
    config = Config(
        trail="off",  # the trail would change a tenant's data while no test calls
        listen="127.0.0.1:0",
        data_dir=directory / "data",
        journal=journal_of(directory / "data"),
        tokens=directory / "tokens.toml",
        flush_interval=3600,
        **settings,
    )
    async with serve.running_server(config) as server:
        target = f"127.0.0.1:{server.port}"
        options = [("grpc.max_receive_message_length", 8 * 1024 * 1024)]
        async with grpc.aio.insecure_channel(target, options=options) as channel:
            tenants = [Tenant(channel, target, tokens[grant.name]) for grant in GRANTS]
            try:
                yield House(target, config.blob_directory, config.data_dir, *tenants)
            finally:
                for tenant in tenants:
                    await tenant.client.aclose()


def _tokens(directory: Path) -> Mapping[str, str]:
    directory.mkdir(exist_ok=True)
    kept = directory / "tokens.json"
    if not kept.exists():
        kept.write_text(json.dumps(write_tokens(directory / "tokens.toml", GRANTS)))
    tokens: dict[str, str] = json.loads(kept.read_text())
    return tokens


async def furnish(owner: Tenant) -> Names:
    """Give a tenant one thing of each kind, all certified; return the names."""
    client = owner.client
    content = b"what only the owner keeps"
    run = "owners-run"
    thread = "owners-thread"
    older = await client.save(thread, {"plan": ["meet"]}, agent_id="owners-agent")
    checkpoint = "1f900000-0000-6000-8000-000000000009"
    await owner.call(
        methods.SAVE_CHECKPOINT.path,
        save_request(
            checkpoint,
            [channel("content", content)],
            thread_id=thread,
            parent=older,
            metadata=json.dumps({"run_id": run}).encode(),
            agent_id="owners-agent",
            vector=[1.0, 0.0],
        ),
    )
    await client.set_label(thread, "owners-label", checkpoint_id=checkpoint)
    await owner.call(
        methods.SAVE_WRITES.path,
        cpb.SaveWritesRequest(ref=ref(checkpoint, thread), writes=[write("task", "__interrupt__")]),
    )
    await client.save(
        "owners-diary", {"current_plan": "zebras"}, summary="The owner wrote zebras.", vector=[1, 0]
    )
    await owner.call(
        methods.SAVE_WRITES.path,
        cpb.SaveWritesRequest(ref=ref(older, thread), writes=[write("task", "content")]),
    )
    deleted = await client.save("owners-old-thread", {"plan": ["forget"]})
    await client.delete("owners-old-thread")
    await owner.call(
        methods.FORK_THREAD.path,
        threads.ForkThreadRequest(
            ref=ref(checkpoint, thread), new_thread_id="owners-fork", request_id="owners-request"
        ),
    )
    snapshot = await client.create_snapshot([thread], session_id="owners-session")
    item = "owners-item"
    await client.put_items([ItemChange((item,), item, {"item": item}, ttl_s=3600)])
    lease = await client.acquire_lease("owners-leased-thread", owner="owners-agent", ttl_s=3600)
    [begun] = await owner.call(
        methods.BEGIN_EFFECT.path,
        effects.BeginEffectRequest(thread_id=thread, key="owners-effect", request_id="begin"),
    )
    assert isinstance(begun, effects.BeginEffectResponse)
    await owner.call(
        methods.FAIL_EFFECT.path,
        effects.FailEffectRequest(
            thread_id=thread,
            key="owners-effect",
            idempotency_key=begun.effect.idempotency_key,
            attempt=1,
            outcome=effects.ATTEMPT_OUTCOME_UNKNOWN,
        ),
    )
    descriptor = await client.handoff(thread, to_agent="owners-agent")
    await client.flush()
    watched = client.watch(thread, progress_s=1)
    cursor = b""
    async for event in watched:
        cursor = event.cursor
        if event.is_progress:
            break
    await watched.aclose()
    assert not (await client.search_history("zebras")).unindexed
    return Names(
        thread=thread,
        checkpoint=checkpoint,
        older=older,
        deleted_thread="owners-old-thread",
        deleted_checkpoint=deleted,
        snapshot=snapshot.snapshot_id,
        session="owners-session",
        run=run,
        label="owners-label",
        agent="owners-agent",
        request="owners-request",
        blob=descriptor.blob_id,
        content=content,
        words="The owner wrote zebras",
        item=item,
        leased="owners-leased-thread",
        lease=lease.lease_id,
        handoff=descriptor.handoff_id,
        effect="owners-effect",
        idempotency_key=begun.effect.idempotency_key,
        cursor=cursor,
    )
