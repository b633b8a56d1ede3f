"""Events of threads reach webhooks, in order, at least once, signed; whatever the receiver does."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from aiohttp import web
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from standardwebhooks import Webhook as Verifier

from tests.kit.messages import FIRST, SECOND, ref, refused, save_request, write
from tests.kit.servers.processes import ServerProcess
from tests.kit.servers.webhook_receiver import Post, Receiver, receiving
from tuskpoint.aio import AsyncClient
from tuskpoint.v1 import checkpoint_service_pb2 as pb
from tuskpoint.v1 import effect_service_pb2 as epb
from tuskpoint.v1 import thread_service_pb2 as tpb
from tuskpoint.v1 import value_pb2
from tuskpoint.v1 import webhook_service_pb2 as wpb
from tuskpoint.v1.effect_service_pb2_grpc import EffectServiceStub
from tuskpoint.v1.webhook_service_pb2_grpc import WebhookServiceStub
from tuskpoint_server.config.settings import Config
from tuskpoint_server.features.webhooks import posting, sending

if TYPE_CHECKING:
    import grpc

    from tuskpoint.v1.checkpoint_service_pb2_grpc import CheckpointServiceAsyncStub
    from tuskpoint.v1.thread_service_pb2_grpc import ThreadServiceAsyncStub
    from tuskpoint.v1.webhook_service_pb2_grpc import WebhookServiceAsyncStub
    from tuskpoint_server.api.server.server import Server

SECRET = "whsec_" + base64.b64encode(bytes(range(32))).decode()
OLD_SECRET = "whsec_" + base64.b64encode(b"o" * 24).decode()
SEED = b"s" * 32
ALL_EVENTS = (
    '["thread.waiting", "thread.failed", "thread.certified", "handoff.offered", "lease.taken_over",'
    ' "effect.unknown"]'
)


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    async with receiving() as running:
        yield running


def webhook_file(folder: Path, url: str, *, events: str = ALL_EVENTS, more: str = "") -> Path:
    """Write a file with one webhook and its secrets."""
    seed = "whsk_" + base64.b64encode(SEED).decode()
    (folder / "ops.secret").write_text(f"{SECRET}\n{OLD_SECRET}\n{seed}\n")
    file = folder / "webhooks.toml"
    file.write_text(
        'console_url = "https://console.example.com/"\n'
        f'[[webhook]]\nname = "ops"\nurl = "{url}"\nevents = {events}\n'
        f'secret_file = "ops.secret"\nallow_private = true\n{more}\n'
    )
    return file


@pytest.fixture
def config(tmp_path: Path, config: Config, receiver: Receiver) -> Config:
    """Settings of a server with one webhook."""
    file = webhook_file(tmp_path, receiver.url, more=OTHER_TENANT)
    return config.model_copy(update={"webhooks": file})


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Repeat failed attempts at once."""
    monkeypatch.setattr(posting, "FIRST_RETRY_S", 0.02)
    monkeypatch.setattr(posting, "GATHER_S", 0.01)


@pytest.fixture
def webhooks(grpc_channel: grpc.aio.Channel) -> WebhookServiceAsyncStub:
    return WebhookServiceStub(grpc_channel)


OTHER_TENANT = """
[[webhook]]
name = "theirs"
url = "https://hooks.example.com/"
events = ["thread.waiting"]
secret_file = "ops.secret"
tenant = "other"
"""


def question(text: str, task: str = "task") -> value_pb2.PendingWrite:
    """Return the write of a LangGraph interrupt that asks a person."""
    data = b'[{"value": "%b", "id": "i1"}]' % text.encode()
    return write(task, "__interrupt__", value=value_pb2.Value(type="json", data=data))


async def ask(
    checkpoints: CheckpointServiceAsyncStub, thread_id: str, text: str, checkpoint_id: str = FIRST
) -> None:
    """Save a checkpoint whose task waits for a person."""
    await checkpoints.SaveCheckpoint(
        save_request(checkpoint_id, thread_id=thread_id, agent_id="planner")
    )
    await checkpoints.SaveWrites(
        pb.SaveWritesRequest(ref=ref(checkpoint_id, thread_id), writes=[question(text)])
    )


async def events(
    webhooks: WebhookServiceAsyncStub, *, parked_only: bool = False
) -> list[wpb.Delivery]:
    """Return the events that the webhook has not accepted."""
    request = wpb.ListDeliveriesRequest(webhook="ops", parked_only=parked_only)
    return list((await webhooks.ListDeliveries(request)).deliveries)


async def test_a_question_and_a_failure_are_posted_signed(
    checkpoints: CheckpointServiceAsyncStub,
    webhooks: WebhookServiceAsyncStub,
    receiver: Receiver,
) -> None:
    await ask(checkpoints, "t/1", "Publish?")
    [post] = await receiver.wait_for(1)
    for secret in (SECRET, OLD_SECRET):
        Verifier(secret).verify(post.body, post.headers)
    assert_signed_by_seed(post)
    assert post.content["type"] == "thread.waiting"
    assert post.content["data"] == {
        "tenant": "default",
        "thread_id": "t/1",
        "agent_id": "planner",
        "seq": 2,
        "checkpoint_id": FIRST,
        "is_latest": True,
        "question": {"interrupt_id": "i1", "node": "", "text": "Publish?"},
        "url": "https://console.example.com/thread?id=t%2F1",
    }
    failure = value_pb2.Value(type="json", data=b'"PaymentRefused: card 42"')
    await checkpoints.SaveWrites(
        pb.SaveWritesRequest(
            ref=ref(FIRST, "t/1"), writes=[write("other", "__error__", value=failure)]
        )
    )
    posts = await receiver.wait_for(2)
    assert posts[1].content["type"] == "thread.failed"
    assert "failure" in posts[1].content["data"]
    assert posts[0].message_id != posts[1].message_id
    while await events(webhooks):  # the time limit of the test ends this loop
        pass
    [status] = (await webhooks.ListWebhooks(wpb.ListWebhooksRequest())).webhooks
    assert (status.name, status.waiting, status.parked, status.last_error) == ("ops", 0, 0, "")
    assert status.origin == receiver.url.removesuffix("/hook")


def assert_signed_by_seed(post: Post) -> None:
    """Check the signature by the Ed25519 key, whose public half a receiver has."""
    [signature] = [
        part.removeprefix("v1a,")
        for part in post.headers["webhook-signature"].split()
        if part.startswith("v1a,")
    ]
    signed = f"{post.message_id}.{post.headers['webhook-timestamp']}.".encode() + post.body
    key = Ed25519PrivateKey.from_private_bytes(SEED).public_key()
    key.verify(base64.b64decode(signature), signed)


async def test_an_offer_and_a_take_over_are_posted(
    server: Server, checkpoints: CheckpointServiceAsyncStub, receiver: Receiver
) -> None:
    async with AsyncClient(f"127.0.0.1:{server.port}") as client:
        await client.save("t", {"a": 1}, agent_id="planner")
        await client.handoff("t", to_agent="writer")
        [post] = await receiver.wait_for(1)
        assert post.content["type"] == "handoff.offered"
        offer = post.content["data"]["handoff"]
        assert (offer["to_agent"], offer["state"]) == ("writer", "offered")
        await client.acquire_lease("t", owner="one")
        await client.acquire_lease("t", owner="two", on_busy="take_over")
        posts = await receiver.wait_for(2)
        assert posts[1].content["type"] == "lease.taken_over"
        assert posts[1].content["data"]["lease"] == {"owner": "two"}


async def test_an_unknown_effect_is_posted_when_its_time_is_over(
    grpc_channel: grpc.aio.Channel, checkpoints: CheckpointServiceAsyncStub, receiver: Receiver
) -> None:
    effects = EffectServiceStub(grpc_channel)
    for key in ("charge", "mail"):
        begun = await effects.BeginEffect(
            epb.BeginEffectRequest(
                thread_id="t", key=key, request_id=key, owner="worker-7", timeout={"seconds": 1}
            )
        )
        assert begun.run
    await effects.CompleteEffect(
        epb.CompleteEffectRequest(
            thread_id="t", key="mail", idempotency_key=begun.effect.idempotency_key
        )
    )
    await ask(checkpoints, "t", "Publish?")  # the effects hold it up for no time
    posts = await receiver.wait_for(2)
    assert [post.content["type"] for post in posts] == ["thread.waiting", "effect.unknown"]
    effect = posts[1].content["data"]["effect"]
    assert (effect["key"], effect["attempt"], effect["owner"]) == ("charge", 1, "worker-7")


@pytest.mark.parametrize("end", ["release", "take-over", "time"])
async def test_an_effect_is_posted_once_when_its_lease_ends(
    server: Server, receiver: Receiver, webhooks: WebhookServiceAsyncStub, end: str
) -> None:
    async with AsyncClient(f"127.0.0.1:{server.port}") as client:
        lease = await client.acquire_lease("t", owner="one", ttl_s=1 if end == "time" else 60)
        for key in ("charge", "mail"):
            begun = await client.begin_effect("t", key, lease_id=lease.lease_id, timeout_s=3600)
        await client.complete_effect("t", "mail", idempotency_key=begun.idempotency_key)
        if end == "release":
            await client.release_lease(lease)
        elif end == "take-over":
            await client.acquire_lease("t", owner="two", on_busy="take_over")
        else:
            await client.keep_lease(lease, ttl_s=2)  # the event is looked at before, and waits
        expected = ["effect.unknown", *(["lease.taken_over"] if end == "take-over" else [])]
        posts = await receiver.wait_for(len(expected))
        effect = posts[0].content["data"]["effect"]
        assert (effect["key"], effect["attempt"]) == ("charge", 1)
        assert (await client.get_effect("t", "charge")).state == "unknown"
        while await events(webhooks):  # the time limit of the test ends this loop
            pass
        assert [post.content["type"] for post in receiver.posts] == expected


async def test_an_attempt_that_reports_an_unknown_outcome_is_posted_once(
    server: Server, receiver: Receiver, webhooks: WebhookServiceAsyncStub
) -> None:
    async with AsyncClient(f"127.0.0.1:{server.port}") as client:
        lease = await client.acquire_lease("t", owner="one")
        begun = await client.begin_effect("t", "charge", lease_id=lease.lease_id)
        await client.fail_effect(
            "t",
            "charge",
            idempotency_key=begun.idempotency_key,
            attempt=begun.attempt,
            outcome="unknown",
        )
        await client.release_lease(lease)
        while await events(webhooks):  # the time limit of the test ends this loop
            pass
        [post] = receiver.posts
        assert post.content["type"] == "effect.unknown"


async def test_events_of_a_thread_stay_in_order_while_the_receiver_fails(
    checkpoints: CheckpointServiceAsyncStub, receiver: Receiver
) -> None:
    receiver.answer = lambda number: web.Response(status=500 if number < 3 else 204)
    for checkpoint_id, text in ((FIRST, "one"), (SECOND, "two")):
        await ask(checkpoints, "t", text, checkpoint_id)
    posts = await receiver.wait_for(5)
    ids = [post.message_id for post in posts]
    assert ids[:4] == [ids[0]] * 4
    assert [post.content["data"]["checkpoint_id"] for post in posts] == [FIRST] * 4 + [SECOND]
    times = [int(post.headers["webhook-timestamp"]) for post in posts]
    assert times == sorted(times)


async def test_a_thread_that_hangs_holds_no_other_thread_up(
    checkpoints: CheckpointServiceAsyncStub,
    receiver: Receiver,
    monkeypatch: pytest.MonkeyPatch,
    webhooks: WebhookServiceAsyncStub,
) -> None:
    monkeypatch.setattr(sending, "ATTEMPT_S", 0.3)

    class Hanging(web.StreamResponse):
        async def prepare(self, request: web.BaseRequest) -> None:
            await asyncio.sleep(3600)

    receiver.answer = lambda number: Hanging() if number == 0 else web.Response()
    await ask(checkpoints, "stuck", "one")
    await receiver.wait_for(1)
    await ask(checkpoints, "free", "two")
    posts = await receiver.wait_for(3)
    assert [post.content["data"]["thread_id"] for post in posts] == ["stuck", "free", "stuck"]
    assert posts[0].message_id == posts[2].message_id


REFUSED = [
    (web.Response(status=302, headers={"location": "http://127.0.0.1:1/"}), "redirects are not"),
    (web.Response(status=404, text="no such hook"), "it answered 404: no such hook"),
]


@pytest.mark.parametrize(("answer", "problem"), REFUSED, ids=["redirect", "not-found"])
async def test_a_refused_event_says_why(
    checkpoints: CheckpointServiceAsyncStub,
    webhooks: WebhookServiceAsyncStub,
    receiver: Receiver,
    answer: web.Response,
    problem: str,
) -> None:
    receiver.answer = lambda _: web.Response(
        status=answer.status, headers=answer.headers, body=answer.body
    )
    await ask(checkpoints, "t", "one")
    await receiver.wait_for(2)
    [event] = await events(webhooks)
    assert event.attempts >= 1
    assert problem in event.last_error
    assert event.HasField("next_attempt_time")


async def test_an_endless_answer_is_not_read(
    checkpoints: CheckpointServiceAsyncStub,
    webhooks: WebhookServiceAsyncStub,
    receiver: Receiver,
) -> None:
    class Endless(web.StreamResponse):
        async def prepare(self, request: web.BaseRequest) -> None:
            await super().prepare(request)
            while True:
                await self.write(b"x" * 65536)

    receiver.answer = lambda number: Endless() if number == 0 else web.Response()
    await ask(checkpoints, "t", "one")
    await receiver.wait_for(1)
    while await events(webhooks):  # the time limit of the test ends this loop
        pass


async def test_parked_events_wait_for_a_retry(
    checkpoints: CheckpointServiceAsyncStub,
    webhooks: WebhookServiceAsyncStub,
    receiver: Receiver,
) -> None:
    receiver.answer = lambda number: web.Response(status=410 if number == 0 else 200)
    await ask(checkpoints, "t", "one")
    await ask(checkpoints, "t", "two", SECOND)
    await receiver.wait_for(2)  # the second is not held up by the parked first one
    while not (parked := await events(webhooks, parked_only=True)):
        pass
    assert [event.parked for event in parked] == [True]
    [status] = (await webhooks.ListWebhooks(wpb.ListWebhooksRequest())).webhooks
    assert (status.parked, status.last_error) == (1, "it answered 410")
    request = wpb.RetryDeliveriesRequest(webhook="ops", delivery_ids=[parked[0].delivery_id])
    assert (await webhooks.RetryDeliveries(request)).retried == 1
    posts = await receiver.wait_for(3)
    assert posts[2].message_id == posts[0].message_id == parked[0].message_id
    assert (await webhooks.RetryDeliveries(request)).retried == 0


async def test_an_event_that_fails_for_a_day_is_parked(
    checkpoints: CheckpointServiceAsyncStub,
    webhooks: WebhookServiceAsyncStub,
    receiver: Receiver,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(posting, "DAY_US", 0)
    receiver.answer = lambda _: web.Response(status=500)
    await ask(checkpoints, "t", "one")
    while not (parked := await events(webhooks, parked_only=True)):
        pass
    assert [(event.attempts, event.last_error) for event in parked] == [(1, "it answered 500")]
    assert len(receiver.posts) == 1


async def test_a_deleted_thread_leaves_no_event(
    checkpoints: CheckpointServiceAsyncStub,
    threads: ThreadServiceAsyncStub,
    webhooks: WebhookServiceAsyncStub,
    receiver: Receiver,
) -> None:
    receiver.answer = lambda _: web.Response(status=503, headers={"retry-after": "1000"})
    await ask(checkpoints, "t", "one")
    await receiver.wait_for(1)
    await threads.DeleteThread(tpb.DeleteThreadRequest(thread_id="t"))
    assert await events(webhooks) == []


async def test_a_test_is_posted_once_and_unknown_names_are_refused(
    webhooks: WebhookServiceAsyncStub, receiver: Receiver
) -> None:
    answer = await webhooks.TestWebhook(wpb.TestWebhookRequest(webhook="ops"))
    assert (answer.accepted, answer.status, answer.problem) == (True, 200, "")
    [post] = receiver.posts
    Verifier(SECRET).verify(post.body, post.headers)
    assert post.content["type"] == "test"
    receiver.answer = lambda _: web.Response(status=500)
    answer = await webhooks.TestWebhook(wpb.TestWebhookRequest(webhook="ops"))
    assert (answer.accepted, answer.status) == (False, 500)
    for call in (
        webhooks.TestWebhook(wpb.TestWebhookRequest(webhook="none")),
        webhooks.TestWebhook(wpb.TestWebhookRequest(webhook="theirs")),
        webhooks.RetryDeliveries(wpb.RetryDeliveriesRequest(webhook="theirs")),
        webhooks.ListDeliveries(wpb.ListDeliveriesRequest(webhook="theirs")),
    ):
        assert (await refused(call)).reason == "WEBHOOK_NOT_FOUND"
    empty = await refused(webhooks.TestWebhook(wpb.TestWebhookRequest()))
    assert (empty.reason, empty.metadata["field"]) == ("INVALID_FIELD", "webhook")


@pytest.mark.crash
async def test_a_server_killed_between_post_and_record_posts_again(
    tmp_path: Path, receiver: Receiver
) -> None:
    file = webhook_file(tmp_path, receiver.url, events='["thread.certified"]')
    with ServerProcess(
        tmp_path / "server", {"TUSKPOINT_WEBHOOKS": str(file), "TUSKPOINT_FLUSH_INTERVAL": "0.05"}
    ) as server:
        server.start("webhooks.before_recorded")
        async with AsyncClient(server.target) as client:
            await client.save("t", {"a": 1})
            await receiver.wait_for(1)
        await asyncio.to_thread(server.ended, 30)
        server.start()
        first, second = (await receiver.wait_for(2))[:2]
        assert first.message_id == second.message_id
        assert second.content["data"]["thread_id"] == "t"
