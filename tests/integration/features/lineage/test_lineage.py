"""Forks, rollbacks and lineage work over the network."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import grpc

from tests.kit.databases import rows_of_server
from tests.kit.messages import (
    FIRST,
    SECOND,
    THREAD,
    channel,
    collect,
    incompressible,
    ref,
    refused,
    save_request,
    write,
)
from tuskpoint.v1 import checkpoint_pb2, value_pb2
from tuskpoint.v1 import checkpoint_service_pb2 as pb
from tuskpoint.v1 import thread_service_pb2 as tpb
from tuskpoint_server.config.settings import Config

if TYPE_CHECKING:
    from tuskpoint.v1.checkpoint_service_pb2_grpc import CheckpointServiceAsyncStub
    from tuskpoint.v1.thread_service_pb2_grpc import ThreadServiceAsyncStub


CERTIFIED = checkpoint_pb2.DURABILITY_CERTIFIED
JOURNALED = checkpoint_pb2.DURABILITY_JOURNALED


Step = tuple[tpb.LineageKind, str, str]
"""Kind, origin thread, and new thread."""


async def two_steps(checkpoints: CheckpointServiceAsyncStub) -> None:
    """Save a thread of two checkpoints; the first checkpoint waits for an answer."""
    await checkpoints.SaveCheckpoint(
        save_request(
            FIRST,
            [channel("messages", b"one")],
            agent_id="planner",
            writes=[write(name="__interrupt__")],
            metadata=b'{"source": "loop", "step": 1, "run_id": "r1", "user": "ann"}',
        )
    )
    await checkpoints.SaveCheckpoint(
        save_request(SECOND, [channel("messages", b"two")], parent=FIRST)
    )


async def load(
    checkpoints: CheckpointServiceAsyncStub, reference: checkpoint_pb2.CheckpointRef
) -> checkpoint_pb2.Checkpoint:
    [checkpoint] = await collect(
        checkpoints.LoadCheckpoint(pb.LoadCheckpointRequest(ref=reference))
    )
    return checkpoint


def content(checkpoint: checkpoint_pb2.Checkpoint) -> tuple[object, ...]:
    """Return the content of a checkpoint, without its place."""
    return (
        checkpoint.state.SerializeToString(deterministic=True),
        checkpoint.metadata_json,
        [each.SerializeToString(deterministic=True) for each in checkpoint.writes],
    )


async def test_a_fork_begins_with_the_same_checkpoint(
    checkpoints: CheckpointServiceAsyncStub, threads: ThreadServiceAsyncStub
) -> None:
    await two_steps(checkpoints)
    request = tpb.ForkThreadRequest(ref=ref(FIRST), new_thread_id="fork")
    answer = await threads.ForkThread(request)
    assert answer.ref == ref(FIRST, "fork")
    assert (answer.forked_from, answer.durability) == (f"{THREAD}:{FIRST}", JOURNALED)
    forked = await load(checkpoints, ref("", "fork"))
    assert content(forked) == content(await load(checkpoints, ref(FIRST)))
    assert forked.lineage.forked_from == f"{THREAD}:{FIRST}"
    thread = (await threads.GetThread(tpb.GetThreadRequest(thread_id="fork"))).thread
    assert (thread.agent_id, thread.checkpoint_count) == ("planner", 1)
    assert thread.head_checkpoint_id == FIRST


async def test_a_fork_without_names_begins_with_the_latest_under_a_new_name(
    checkpoints: CheckpointServiceAsyncStub, threads: ThreadServiceAsyncStub
) -> None:
    await two_steps(checkpoints)
    await checkpoints.SetLabel(pb.SetLabelRequest(ref=ref(), label="done", durability=CERTIFIED))
    request = tpb.ForkThreadRequest(ref=ref(), durability=CERTIFIED)
    answers = [await threads.ForkThread(request) for _ in range(2)]
    assert [answer.ref.checkpoint_id for answer in answers] == [SECOND, SECOND]
    assert len({answer.ref.thread_id for answer in answers} | {THREAD, ""}) == 4
    assert {answer.durability for answer in answers} == {CERTIFIED}
    stored = await load(checkpoints, answers[0].ref)
    assert stored.location.sha256 == (await load(checkpoints, ref(SECOND))).location.sha256


async def test_forks_that_are_refused(
    checkpoints: CheckpointServiceAsyncStub, threads: ThreadServiceAsyncStub
) -> None:
    await two_steps(checkpoints)
    await checkpoints.SaveCheckpoint(save_request(thread_id="taken"))
    named = tpb.ForkThreadRequest(ref=ref(FIRST), new_thread_id="named", request_id="r")
    first = await threads.ForkThread(named)
    assert await threads.ForkThread(named) == first
    expected = {
        "CHECKPOINT_NOT_FOUND": tpb.ForkThreadRequest(ref=ref("none"), new_thread_id="x"),
        "THREAD_EXISTS": tpb.ForkThreadRequest(ref=ref(FIRST), new_thread_id="taken"),
        "REQUEST_ID_REUSED": tpb.ForkThreadRequest(
            ref=ref(FIRST), new_thread_id="other", request_id="r"
        ),
        "INVALID_FIELD": tpb.ForkThreadRequest(ref=ref(FIRST), new_thread_id="$snapshot/x"),
    }
    for reason, request in expected.items():
        assert (await refused(threads.ForkThread(request))).reason == reason
    itself = tpb.ForkThreadRequest(ref=ref(FIRST), new_thread_id=THREAD)
    assert (await refused(threads.ForkThread(itself))).reason == "THREAD_EXISTS"


async def test_a_rollback_appends_and_changes_nothing_else(
    checkpoints: CheckpointServiceAsyncStub, threads: ThreadServiceAsyncStub
) -> None:
    await two_steps(checkpoints)
    before = [content(await load(checkpoints, ref(each))) for each in (FIRST, SECOND)]
    answer = await threads.RollbackThread(tpb.RollbackThreadRequest(ref=ref(FIRST)))
    assert answer.rolled_back_from == f"{THREAD}:{FIRST}"
    assert answer.ref.checkpoint_id > SECOND
    latest = await load(checkpoints, ref())
    assert latest.ref == answer.ref
    assert [each.value.data for each in latest.state.channels] == [b"one"]
    assert not latest.writes
    assert latest.parent_checkpoint_id == ""
    assert json.loads(latest.metadata_json) == {"source": "loop", "step": 1, "user": "ann"}
    assert latest.lineage.rolled_back_from == f"{THREAD}:{FIRST}"
    assert latest.summary == f"Rolled back to {THREAD}:{FIRST}."
    assert [content(await load(checkpoints, ref(each))) for each in (FIRST, SECOND)] == before
    thread = (await threads.GetThread(tpb.GetThreadRequest(thread_id=THREAD))).thread
    assert thread.head_checkpoint_id == answer.ref.checkpoint_id
    assert thread.checkpoint_count == 3


async def test_rollbacks_that_are_refused(
    checkpoints: CheckpointServiceAsyncStub, threads: ThreadServiceAsyncStub
) -> None:
    await two_steps(checkpoints)
    guarded = tpb.RollbackThreadRequest(ref=ref(FIRST), expected_head=SECOND, request_id="r")
    first = await threads.RollbackThread(guarded)
    assert await threads.RollbackThread(guarded) == first
    expected = {
        "HEAD_MOVED": tpb.RollbackThreadRequest(ref=ref(FIRST), expected_head=SECOND),
        "CHECKPOINT_NOT_FOUND": tpb.RollbackThreadRequest(ref=ref("none")),
        "REQUEST_ID_REUSED": tpb.RollbackThreadRequest(ref=ref(FIRST), request_id="r"),
        "INVALID_FIELD": tpb.RollbackThreadRequest(ref=ref()),
    }
    for reason, request in expected.items():
        assert (await refused(threads.RollbackThread(request))).reason == reason
    nowhere = tpb.RollbackThreadRequest(ref=ref(FIRST, "nowhere"))
    answer = await refused(threads.RollbackThread(nowhere))
    assert (answer.code, answer.reason) == (grpc.StatusCode.NOT_FOUND, "CHECKPOINT_NOT_FOUND")


async def test_lineage_is_returned_in_both_directions(
    checkpoints: CheckpointServiceAsyncStub, threads: ThreadServiceAsyncStub
) -> None:
    await two_steps(checkpoints)
    for source, target in ((THREAD, "child:a"), (THREAD, "child"), ("child:a", "grandchild")):
        await threads.ForkThread(
            tpb.ForkThreadRequest(ref=ref(FIRST, source), new_thread_id=target)
        )
    rollback = await threads.RollbackThread(tpb.RollbackThreadRequest(ref=ref(FIRST, "child:a")))

    async def reported(thread_id: str) -> tuple[list[Step], list[Step]]:
        answer = await threads.GetLineage(tpb.GetLineageRequest(thread_id=thread_id))
        assert not answer.truncated
        up, down = (
            [(each.kind, getattr(each, "from").thread_id, each.to.thread_id) for each in steps]
            for steps in (answer.ancestors, answer.descendants)
        )
        return up, down

    fork, rolled_back = tpb.LINEAGE_KIND_FORK, tpb.LINEAGE_KIND_ROLLBACK
    own = (rolled_back, "child:a", "child:a")
    assert await reported(THREAD) == (
        [],
        [
            (fork, THREAD, "child"),
            (fork, THREAD, "child:a"),
            own,
            (fork, "child:a", "grandchild"),
        ],
    )
    assert await reported("child") == ([(fork, THREAD, "child")], [])
    assert await reported("grandchild") == (
        [(fork, THREAD, "child:a"), (fork, "child:a", "grandchild")],
        [],
    )
    answer = await threads.GetLineage(tpb.GetLineageRequest(thread_id="child:a"))
    step = answer.descendants[0]
    assert (getattr(step, "from"), step.to) == (ref(FIRST, "child:a"), rollback.ref)
    gone = await refused(threads.GetLineage(tpb.GetLineageRequest(thread_id="none")))
    assert gone.reason == "THREAD_NOT_FOUND"


async def test_a_fork_and_a_copy_continue_with_the_new_part_of_a_value(
    checkpoints: CheckpointServiceAsyncStub, threads: ThreadServiceAsyncStub, config: Config
) -> None:
    grown = incompressible(9_000)
    await checkpoints.SaveCheckpoint(save_request(FIRST, [channel("log", grown)]))
    await threads.ForkThread(tpb.ForkThreadRequest(ref=ref(FIRST), new_thread_id="fork"))
    await threads.CopyThread(
        tpb.CopyThreadRequest(source_thread_id="thread", target_thread_id="copy")
    )
    for number, name in enumerate(("fork", "copy")):
        changed = channel("log", grown + b"%d" % number, version=value_pb2.Version(text="2"))
        await checkpoints.SaveCheckpoint(
            save_request(SECOND, [changed], thread_id=name, parent=FIRST)
        )
    sizes = rows_of_server(config.data_dir, "SELECT length(data) FROM contents")
    assert sum(size for [size] in sizes) < 10_000
