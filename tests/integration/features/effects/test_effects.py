"""Effects over the wire: refusals, deletion, forks, hand-offs, a killed server, a lost disk."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc
import pytest

from tests.integration.archive.test_recover_command import run_recover
from tests.integration.conftest import StartServer
from tests.integration.features.lineage.handoff_kit import CERTIFIED, Side, save_run
from tests.kit.databases import rows_of_server
from tests.kit.messages import FIRST, SECOND, THREAD, channel, ref, refused, save_request
from tuskpoint.v1 import admin_service_pb2 as admin_pb
from tuskpoint.v1 import checkpoint_pb2, value_pb2
from tuskpoint.v1 import effect_service_pb2 as pb
from tuskpoint.v1 import history_service_pb2 as history_pb
from tuskpoint.v1 import thread_service_pb2 as tpb
from tuskpoint.v1.effect_service_pb2_grpc import EffectServiceStub
from tuskpoint.v1.history_service_pb2_grpc import HistoryServiceStub
from tuskpoint_server.config.settings import Config

if TYPE_CHECKING:
    from tuskpoint.v1.admin_service_pb2_grpc import AdminServiceAsyncStub
    from tuskpoint.v1.checkpoint_service_pb2_grpc import CheckpointServiceAsyncStub
    from tuskpoint.v1.effect_service_pb2_grpc import EffectServiceAsyncStub
    from tuskpoint.v1.thread_service_pb2_grpc import ThreadServiceAsyncStub

KEY = "0" * 32
RESULT = value_pb2.Value(type="json", data=b'{"id": 7}')


@pytest.fixture
def effects(grpc_channel: grpc.aio.Channel) -> EffectServiceAsyncStub:
    return EffectServiceStub(grpc_channel)


def begin(key: str = "pay", **fields: Any) -> pb.BeginEffectRequest:
    values: dict[str, Any] = {"thread_id": THREAD, "request_id": "r", "name": "charge", **fields}
    return pb.BeginEffectRequest(key=key, **values)


def complete(effect: pb.Effect, **fields: Any) -> pb.CompleteEffectRequest:
    values = {"result": RESULT, **fields}
    return pb.CompleteEffectRequest(
        thread_id=effect.thread_id,
        key=effect.key,
        idempotency_key=effect.idempotency_key,
        **values,
    )


async def states(effects: EffectServiceAsyncStub, thread_id: str = THREAD) -> dict[str, str]:
    answer = await effects.ListEffects(pb.ListEffectsRequest(thread_id=thread_id))
    return {
        effect.key: pb.EffectState.Name(effect.state).removeprefix("EFFECT_STATE_")
        for effect in answer.effects
    }


def _bad() -> list[tuple[str, dict[str, Any], str]]:
    """Return methods with fields that replace sound ones, and the field that the answer names."""
    own = "$effects/t"
    anywhere: list[tuple[dict[str, Any], str]] = [
        ({"key": ""}, "key"),
        ({"key": "k" * 257}, "key"),
        ({"key": "\0"}, "key"),
        ({"thread_id": ""}, "thread_id"),
        ({"thread_id": own}, "thread_id"),
    ]
    bad = [
        (method, fields, field)
        for method in ("Begin", "Complete", "Fail", "Resolve", "Get")
        for fields, field in anywhere
    ]
    bad += [
        ("Begin", {"name": "n" * 257}, "name"),
        ("Begin", {"input_digest": b"d" * 65}, "input_digest"),
        ("Begin", {"checkpoint_ns": "n"}, "checkpoint_ns"),
        ("Begin", {"checkpoint_id": "c" * 129}, "checkpoint_id"),
        ("Begin", {"lease_id": "l" * 129}, "lease_id"),
        ("Begin", {"owner": "\0"}, "owner"),
        ("Begin", {"request_id": ""}, "request_id"),
        ("Begin", {"request_id": "r" * 129}, "request_id"),
        ("Begin", {"timeout": {"nanos": 1}}, "timeout"),
        ("Begin", {"timeout": {"seconds": 604_801}}, "timeout"),
        ("Begin", {"timeout": {"seconds": 1, "nanos": 10**9}}, "timeout"),
        ("Begin", {"on_unknown": 3}, "on_unknown"),
        ("Begin", {"durability": 7}, "durability"),
        ("Complete", {"idempotency_key": ""}, "idempotency_key"),
        ("Complete", {"idempotency_key": "G" * 32}, "idempotency_key"),
        ("Complete", {"result": {"data": b"1"}}, "result.type"),
        ("Fail", {"idempotency_key": "x"}, "idempotency_key"),
        ("Fail", {"attempt": 0}, "attempt"),
        ("Fail", {"outcome": 0}, "outcome"),
        ("Fail", {"outcome": 4}, "outcome"),
        ("Fail", {"error": "e" * 1025}, "error"),
        ("Resolve", {"attempt": 0}, "attempt"),
        ("Resolve", {"result": RESULT}, "result"),
        ("Resolve", {"done": True, "result": {"data": b"1"}}, "result.type"),
        ("Resolve", {"resolved_by": "\0"}, "resolved_by"),
        ("Get", {"view": checkpoint_pb2.VIEW_STEP}, "view"),
        ("Get", {"view": 9}, "view"),
        ("List", {"thread_id": own}, "thread_id"),
        ("List", {"states": [1, 5]}, "states[1]"),
        ("List", {"states": [1] * 5}, "states"),
        ("List", {"page_size": -1}, "page_size"),
    ]
    return bad


async def test_bad_input_is_refused_by_field(effects: EffectServiceAsyncStub) -> None:
    named: dict[str, Any] = {"thread_id": THREAD, "key": "pay"}
    sound: dict[str, dict[str, Any]] = {
        "Begin": {**named, "request_id": "r"},
        "Complete": {**named, "idempotency_key": KEY},
        "Fail": {**named, "idempotency_key": KEY, "attempt": 1, "outcome": 1},
        "Resolve": {**named, "attempt": 1},
        "Get": named,
        "List": {"thread_id": THREAD},
    }
    for method, fields, field in _bad():
        name = f"{method}Effect" + ("s" if method == "List" else "")
        request = getattr(pb, f"{name}Request")(**{**sound[method], **fields})
        answer = await refused(getattr(effects, name)(request))
        assert (answer.reason, answer.fields) == ("INVALID_FIELD", (field,)), (method, fields)
    large = value_pb2.Value(type="json", data=b" " * (3 << 20) + b"1")
    for request in (
        effects.CompleteEffect(
            pb.CompleteEffectRequest(**named, idempotency_key=KEY, result=large)
        ),
        effects.ResolveEffect(pb.ResolveEffectRequest(**named, attempt=1, done=True, result=large)),
    ):
        answer = await refused(request)
        assert (answer.reason, answer.metadata["limit"]) == (
            "LIMIT_EXCEEDED",
            "max_effect_result_bytes",
        )
    for call, reason in (
        (effects.GetEffect(pb.GetEffectRequest(**named)), "THREAD_NOT_FOUND"),
        (effects.ListEffects(pb.ListEffectsRequest(thread_id=THREAD)), "THREAD_NOT_FOUND"),
        (
            effects.CompleteEffect(pb.CompleteEffectRequest(**named, idempotency_key=KEY)),
            "EFFECT_NOT_FOUND",
        ),
        (effects.BeginEffect(begin(checkpoint_id=FIRST)), "CHECKPOINT_MISSING"),
    ):
        assert (await refused(call)).reason == reason
    await effects.BeginEffect(begin())
    token = pb.ListEffectsRequest(thread_id=THREAD, page_token="x")
    assert (await refused(effects.ListEffects(token))).reason == "PAGE_TOKEN_INVALID"


async def test_an_effect_from_its_begin_to_the_deletion_of_its_thread(
    effects: EffectServiceAsyncStub,
    checkpoints: CheckpointServiceAsyncStub,
    threads: ThreadServiceAsyncStub,
    admin: AdminServiceAsyncStub,
    grpc_channel: grpc.aio.Channel,
) -> None:
    begun = await effects.BeginEffect(
        begin(input_digest=b"in", owner="agent", timeout={"seconds": 5})
    )
    effect = begun.effect
    assert begun.run
    assert (effect.attempt, effect.owner, effect.input_digest) == (1, "agent", b"in")
    assert effect.expire_time.ToSeconds() - effect.attempt_time.ToSeconds() == 5
    assert not effect.HasField("end_time")
    changed = await refused(effects.BeginEffect(begin(request_id="s", input_digest=b"other")))
    assert (changed.reason, changed.metadata["recorded"]) == ("EFFECT_INPUT_CHANGED", b"in".hex())
    done = await effects.CompleteEffect(complete(effect, durability=CERTIFIED))
    assert (done.effect.result, done.durability) == (RESULT, CERTIFIED)
    status = await admin.GetArchiveStatus(admin_pb.GetArchiveStatusRequest())
    assert status.backlog_checkpoints == 0
    first = complete(effect, result=value_pb2.Value(type="json", data=b"2"))
    assert (await effects.CompleteEffect(first)).effect == done.effect
    again = await effects.BeginEffect(begin(request_id="s"))
    assert (again.run, again.effect) == (False, done.effect)
    shown = pb.GetEffectRequest(thread_id=THREAD, key="pay", view=checkpoint_pb2.VIEW_JSON)
    assert json.loads((await effects.GetEffect(shown)).effect.result.data) == {"id": 7}
    shown.view = checkpoint_pb2.VIEW_ENTRY
    assert not (await effects.GetEffect(shown)).effect.result.data

    await checkpoints.SaveCheckpoint(save_request(FIRST, [channel("x")], thread_id=THREAD))
    unknown = await effects.BeginEffect(begin("mail", checkpoint_id=FIRST))
    await effects.FailEffect(
        pb.FailEffectRequest(
            thread_id=THREAD,
            key="mail",
            attempt=1,
            idempotency_key=unknown.effect.idempotency_key,
            outcome=pb.ATTEMPT_OUTCOME_UNKNOWN,
            error="timeout",
        )
    )
    page = pb.ListEffectsRequest(thread_id=THREAD, page_size=1)
    listed = await effects.ListEffects(page)
    assert [(each.key, each.error) for each in listed.effects] == [("mail", "timeout")]
    page.page_token = listed.next_page_token
    rest = await effects.ListEffects(page)
    assert [(each.key, each.result.data) for each in rest.effects] == [("pay", b"")]
    assert rest.next_page_token == ""

    fork = tpb.ForkThreadRequest(ref=ref(FIRST), new_thread_id="fork", durability=CERTIFIED)
    await threads.ForkThread(fork)
    assert await states(effects, "fork") == {"pay": "DONE", "mail": "UNKNOWN"}
    fork.new_thread_id, fork.effects = "answers", tpb.EFFECTS_MODE_ANSWER
    await threads.ForkThread(fork)
    answer = await effects.BeginEffect(begin("other key", thread_id="answers"))
    assert (answer.run, answer.effect.result) == (False, RESULT)
    silent = await refused(effects.BeginEffect(begin("third key", thread_id="answers")))
    assert silent.reason == "EFFECT_NOT_RECORDED"
    decision = pb.ResolveEffectRequest(
        thread_id="fork", key="mail", attempt=1, done=True, result=RESULT, resolved_by="ann"
    )
    decided = (await effects.ResolveEffect(decision)).effect
    assert (decided.state, decided.resolved_by) == (pb.EFFECT_STATE_DONE, "ann")
    decision.done = False
    decision.ClearField("result")
    assert (await refused(effects.ResolveEffect(decision))).reason == "EFFECT_NOT_UNKNOWN"

    await admin.Flush(admin_pb.FlushRequest())
    verified = [
        frame async for frame in threads.VerifyThread(tpb.VerifyThreadRequest(thread_id=THREAD))
    ]
    places = {frame.verdict.ref.thread_id for frame in verified if frame.HasField("verdict")}
    assert places == {THREAD, f"$effects/{THREAD}"}
    assert (verified[-1].total.passed, verified[-1].total.failed) == (3, 0)

    changed_kind = history_pb.EVENT_KIND_EFFECT_CHANGED
    watched = history_pb.WatchThreadRequest(thread_id=THREAD, kinds=[changed_kind])
    seqs = []
    async for frame in HistoryServiceStub(grpc_channel).WatchThread(watched):
        assert (frame.event.kind, frame.event.checkpoint.ref.checkpoint_id) == (changed_kind, "")
        seqs.append(frame.event.seq)
        if len(seqs) == 4:
            break
    assert seqs == [1, 2, 4, 5]
    await threads.DeleteThread(tpb.DeleteThreadRequest(thread_id=THREAD, durability=CERTIFIED))
    gone = await refused(effects.BeginEffect(begin("new")))
    assert gone.reason == "THREAD_DELETED"
    assert (await refused(effects.GetEffect(shown))).reason == "THREAD_NOT_FOUND"
    info = await admin.GetServerInfo(admin_pb.GetServerInfoRequest())
    assert (info.limits.max_thread_effects, info.limits.max_effect_key_bytes) == (10_000, 256)
    assert "tuskpoint.v1.EffectService/BeginEffect" in info.methods


async def test_an_erasure_removes_results(
    effects: EffectServiceAsyncStub, threads: ThreadServiceAsyncStub, config: Config
) -> None:
    secret = value_pb2.Value(type="json", data=b'"the secret of an effect"' * 100)
    for thread_id in (THREAD, "kept"):
        begun = await effects.BeginEffect(begin(thread_id=thread_id))
        await effects.CompleteEffect(complete(begun.effect, result=secret))
    query = "SELECT count(*) FROM contents"
    assert rows_of_server(config.data_dir, query) == [(2,)]
    await threads.EraseThreads(tpb.EraseThreadsRequest(thread_ids=[THREAD]))
    assert rows_of_server(config.data_dir, query) == [(1,)]
    assert await states(effects, "kept") == {"pay": "DONE"}


async def test_a_second_server_adopts_effects(giver: Side, taker: Side) -> None:
    await save_run(giver)
    begun = await giver.effects.BeginEffect(begin("done", checkpoint_id=SECOND))
    await giver.effects.CompleteEffect(complete(begun.effect))
    running = await giver.effects.BeginEffect(begin("running", checkpoint_id=SECOND))
    first = await giver.hand_off()
    await giver.effects.BeginEffect(begin("later"))
    assert (await giver.hand_off()).blob_sha256 != first.blob_sha256
    await taker.adopt(first, "adopted")
    assert await states(taker.effects, "adopted") == {"done": "DONE", "running": "UNKNOWN"}
    repeat = await taker.effects.BeginEffect(begin("done", thread_id="adopted"))
    assert (repeat.run, repeat.effect.result) == (False, RESULT)
    waiting = await taker.effects.BeginEffect(begin("running", thread_id="adopted"))
    assert not waiting.run
    assert waiting.effect.idempotency_key == running.effect.idempotency_key


@pytest.mark.crash
async def test_effects_survive_a_killed_server_and_a_lost_disk(
    tmp_path: Path, start_server: StartServer
) -> None:
    def arguments(data_dir: Path) -> list[str]:
        blobs = ["--blob-dir", str(tmp_path / "blobs")]
        return ["--listen", "127.0.0.1:0", "--data-dir", str(data_dir), *blobs]

    data_dir, recovered = tmp_path / "data", tmp_path / "recovered"
    server = await start_server(*arguments(data_dir))
    async with grpc.aio.insecure_channel(server.address) as channel:
        effects = EffectServiceStub(channel)
        certified = await effects.BeginEffect(begin("certified", durability=CERTIFIED))
        await effects.CompleteEffect(complete(certified.effect, durability=CERTIFIED))
        journaled = await effects.BeginEffect(begin("journaled"))
        server.process.kill()
    await asyncio.to_thread(server.process.wait)
    server = await start_server(*arguments(data_dir))
    async with grpc.aio.insecure_channel(server.address) as channel:
        effects = EffectServiceStub(channel)
        assert await states(effects) == {"certified": "DONE", "journaled": "RUNNING"}
        assert (await effects.BeginEffect(begin("journaled"))).run
        assert not (await effects.BeginEffect(begin("journaled", request_id="other"))).run
        server.process.kill()
    await asyncio.to_thread(server.process.wait)

    pointer = (data_dir / "catalog").read_text().split()[0]
    blobs = ["--blob-dir", str(tmp_path / "blobs")]
    outcome = await run_recover("--catalog", pointer, "--data-dir", str(recovered), *blobs)
    assert outcome.code == 0, outcome.errors
    server = await start_server(*arguments(recovered))
    async with grpc.aio.insecure_channel(server.address) as channel:
        effects = EffectServiceStub(channel)
        assert (await states(effects))["certified"] == "DONE"
        # The report of an attempt whose record is lost is recorded, and the key stays the same.
        report = await effects.CompleteEffect(complete(journaled.effect))
        assert report.effect.state == pb.EFFECT_STATE_DONE
        again = await effects.BeginEffect(begin("certified", request_id="other"))
        assert (again.run, again.effect.result) == (False, RESULT)
