"""Retention is set, read, certified and carried out on a real server."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import grpc
import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from google.protobuf.duration_pb2 import Duration

from tests.kit.messages import refused
from tuskpoint import AsyncClient, Client, Receipt, RetentionRule
from tuskpoint.errors import InvalidRequest, NotFound
from tuskpoint.v1 import thread_service_pb2 as pb
from tuskpoint_server.api.server.server import Server
from tuskpoint_server.auth import access
from tuskpoint_server.commands import serve
from tuskpoint_server.config.settings import Config

if TYPE_CHECKING:
    from tuskpoint.v1.thread_service_pb2_grpc import ThreadServiceAsyncStub


async def test_thread_has_its_retention(server: Server) -> None:
    async with AsyncClient(f"127.0.0.1:{server.port}") as client:
        await client.save("t", {"n": 1})
        assert (await client.thread("t")).retention is None
        await client.set_retention("t", timedelta(days=30))
        assert (await client.thread("t")).retention == timedelta(days=30)
        assert [thread.retention async for thread in client.threads()] == [timedelta(days=30)]
        await client.set_retention("t", None)
        assert (await client.thread("t")).retention is None


def test_blocking_client_sets_it_too(config: Config) -> None:
    async def run() -> None:
        async with serve.running_server(config) as server:
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
    assert serve.RETENTION_SECONDS <= 25, "the documentation says within half a minute"
    monkeypatch.setattr(serve, "RETENTION_SECONDS", 0.02)
    async with (
        serve.running_server(config) as server,
        AsyncClient(f"127.0.0.1:{server.port}") as client,
    ):
        for thread_id in ("kept", "short", "long"):
            await client.save(thread_id, {"n": 1})
        await client.set_retention("short", timedelta(seconds=1))
        await client.set_retention("long", timedelta(days=1))
        left = {"kept", "short", "long"}
        while "short" in left:
            left = {thread.thread_id async for thread in client.threads()}
        assert left == {"kept", "long"}
        with pytest.raises(NotFound):
            await client.thread("short")


async def test_the_rules_of_the_file_are_applied_and_read_again(
    config: Config, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert serve.RULES_SECONDS <= 300, "the contract says at least once in 10 minutes"
    monkeypatch.setattr(serve, "RULES_SECONDS", 0.02)
    monkeypatch.setattr(access, "LOOK_SECONDS", 0.02)
    file = tmp_path / "rules.toml"
    file.write_text('[[retention]]\ntenant = "*"\nthread = "one"\nkeep_last = 2\n')
    with_rules = config.model_copy(update={"retention_file": file})
    async with (
        serve.running_server(with_rules) as server,
        AsyncClient(f"127.0.0.1:{server.port}") as client,
    ):
        for thread_id in ("one", "two"):
            for number in range(4):
                await client.save(thread_id, {"n": number})
        while (await client.thread("one")).checkpoint_count > 2:
            pass
        assert (await client.preview_retention()).threads == 0
        preview = await client.preview_retention([RetentionRule(thread_id="two", keep_last=1)])
        assert [(effect.thread_id, effect.checkpoints) for effect in preview.effects] == [
            ("two", 3)
        ]
        assert preview.total.journal_bytes > 0
        assert (await client.thread("two")).checkpoint_count == 4
        file.write_text('[[retention]]\ntenant = "default"\ndelete_after = "1s"\n')
        while [thread async for thread in client.threads()]:
            pass


async def test_an_erasure_has_a_receipt(server: Server) -> None:
    async with AsyncClient(f"127.0.0.1:{server.port}") as client:
        for thread_id in ("person", "person too"):
            await client.save(thread_id, {"n": 1}, metadata={"user_id": "u-42"})
        await client.fork("person", new_thread_id="copy")
        snapshot = await client.create_snapshot("person too")
        receipt = await client.erase(["person", "never was", "person too"])
        status, info = await client.status(), await client.info()
        assert receipt.document["threads"] == [
            {"thread_id": "person", "incarnation": 1, "checkpoints": 1},
            {"thread_id": "never was", "incarnation": None, "checkpoints": 0},
            {"thread_id": "person too", "incarnation": 1, "checkpoints": 1},
        ]
        left = {"threads": ["copy"], "snapshots": [snapshot.snapshot_id]}
        assert receipt.document["left"] == left
        assert status.catalog is not None
        assert receipt.document["catalog"]["sha256"] == status.catalog.sha256
        assert receipt.signer == info.signers[0]
        check(receipt)
        with pytest.raises(InvalidSignature):
            check(Receipt(receipt.content.replace("u", "v"), receipt.signer, receipt.signature))
        with pytest.raises(NotFound):
            await client.thread("person")
        for bad in ([], ["a", ""], [str(number) for number in range(1001)]):
            with pytest.raises(InvalidRequest):
                await client.erase(bad)


def check(receipt: Receipt) -> None:
    signed = b"tuskpoint receipt v1\n" + receipt.content.encode()
    public = Ed25519PublicKey.from_public_bytes(bytes.fromhex(receipt.signer))
    public.verify(bytes.fromhex(receipt.signature), signed)


BAD_RULES = [
    (pb.RetentionRule(), "rules[0]"),
    (pb.RetentionRule(keep_for=Duration(nanos=1), keep_last=1), "rules[0].keep_for"),
    (pb.RetentionRule(delete_after=Duration(seconds=-1)), "rules[0].delete_after"),
]


async def test_bad_rules_are_refused(threads: ThreadServiceAsyncStub) -> None:
    for rule, field in BAD_RULES:
        answer = await refused(threads.PreviewRetention(pb.PreviewRetentionRequest(rules=[rule])))
        assert answer.code == grpc.StatusCode.INVALID_ARGUMENT
        assert field in answer.fields
    rule = pb.RetentionRule(keep_last=1)
    for rules in ([rule, rule], [rule] * 101):
        answer = await refused(threads.PreviewRetention(pb.PreviewRetentionRequest(rules=rules)))
        assert answer.code == grpc.StatusCode.INVALID_ARGUMENT
