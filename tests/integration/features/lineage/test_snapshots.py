"""Snapshots of several threads work over the network."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.kit.messages import FIRST, SECOND, channel, collect, ref, refused, save_request, write
from tuskpoint.v1 import checkpoint_pb2
from tuskpoint.v1 import checkpoint_service_pb2 as pb
from tuskpoint.v1 import snapshot_service_pb2 as spb
from tuskpoint.v1 import thread_service_pb2 as tpb
from tuskpoint.v1.snapshot_service_pb2_grpc import SnapshotServiceStub
from tuskpoint.v1.thread_pb2 import THREAD_STATE_INTERRUPTED

if TYPE_CHECKING:
    import grpc

    from tuskpoint.v1.checkpoint_service_pb2_grpc import CheckpointServiceAsyncStub
    from tuskpoint.v1.snapshot_service_pb2_grpc import SnapshotServiceAsyncStub
    from tuskpoint.v1.thread_service_pb2_grpc import ThreadServiceAsyncStub


CERTIFIED = checkpoint_pb2.DURABILITY_CERTIFIED
NEW, ROLLBACK = spb.RESTORE_MODE_NEW_THREADS, spb.RESTORE_MODE_ROLLBACK


@pytest.fixture
def snapshots(grpc_channel: grpc.aio.Channel) -> SnapshotServiceAsyncStub:
    return SnapshotServiceStub(grpc_channel)


async def save(checkpoints: CheckpointServiceAsyncStub, thread_id: str, data: bytes) -> None:
    """Save a thread that waits for an answer inside a subgraph."""
    tied = b'{"parents": {"": "%s"}}' % FIRST.encode()
    inner = save_request(SECOND, [channel("inner", data)], thread_id=thread_id, metadata=tied)
    inner.checkpoint.ref.checkpoint_ns = "node:1"
    await checkpoints.SaveCheckpoint(
        save_request(
            FIRST,
            [channel("messages", data)],
            thread_id=thread_id,
            agent_id=f"agent of {thread_id}",
            writes=[write(name="__interrupt__")],
        )
    )
    await checkpoints.SaveCheckpoint(inner)


async def head(
    checkpoints: CheckpointServiceAsyncStub, thread_id: str, namespace: str = ""
) -> checkpoint_pb2.Checkpoint:
    request = pb.LoadCheckpointRequest(ref=ref("", thread_id, namespace))
    [checkpoint] = await collect(checkpoints.LoadCheckpoint(request))
    return checkpoint


def data(checkpoint: checkpoint_pb2.Checkpoint) -> list[bytes]:
    return [each.value.data for each in checkpoint.state.channels]


async def create(
    snapshots: SnapshotServiceAsyncStub, *thread_ids: str, **fields: object
) -> spb.Snapshot:
    request = spb.CreateSnapshotRequest(thread_ids=thread_ids, **fields)  # type: ignore[arg-type]
    return (await snapshots.CreateSnapshot(request)).snapshot


async def test_a_snapshot_keeps_the_fields_that_it_was_created_with(
    checkpoints: CheckpointServiceAsyncStub, snapshots: SnapshotServiceAsyncStub
) -> None:
    for name in ("b", "a"):
        await save(checkpoints, name, b"1")
    made = await create(
        snapshots,
        "b",
        "a",
        session_id="s",
        hostname="h",
        working_directory="/w",
        metadata_json=b'{"reason" :  "stop"}',
        durability=CERTIFIED,
    )
    assert list(made.members) == [ref(FIRST, "b"), ref(FIRST, "a")]
    assert (made.session_id, made.hostname, made.working_directory) == ("s", "h", "/w")
    assert made.metadata_json == b'{"reason" :  "stop"}'
    assert made.create_time.ToMicroseconds() > 0
    response = await snapshots.GetSnapshot(spb.GetSnapshotRequest(snapshot_id=made.snapshot_id))
    assert response.snapshot == made


async def test_snapshots_are_out_of_sight_of_calls_on_threads(
    checkpoints: CheckpointServiceAsyncStub,
    snapshots: SnapshotServiceAsyncStub,
    threads: ThreadServiceAsyncStub,
) -> None:
    await save(checkpoints, "t", b"1")
    made = await create(snapshots, "t")
    listed = await threads.ListThreads(tpb.ListThreadsRequest())
    assert [each.thread_id for each in listed.threads] == ["t"]
    everything = await collect(checkpoints.ListCheckpoints(pb.ListCheckpointsRequest()))
    assert {each.ref.thread_id for each in everything} == {"t"}
    inside = f"$snapshot/{made.snapshot_id}"
    calls = [
        threads.GetThread(tpb.GetThreadRequest(thread_id=inside)),
        threads.DeleteThread(tpb.DeleteThreadRequest(thread_id=inside)),
        checkpoints.SaveCheckpoint(save_request(thread_id=inside)),
        checkpoints.GetCheckpoint(pb.GetCheckpointRequest(ref=ref("", inside))),
        snapshots.CreateSnapshot(spb.CreateSnapshotRequest(thread_ids=[inside])),
    ]
    for call in calls:
        answer = await refused(call)
        assert answer.reason == "INVALID_FIELD"
        assert "the server's own" in answer.message


async def test_members_become_new_threads(
    checkpoints: CheckpointServiceAsyncStub,
    snapshots: SnapshotServiceAsyncStub,
    threads: ThreadServiceAsyncStub,
) -> None:
    for name in ("a", "b"):
        await save(checkpoints, name, name.encode())
    made = await create(snapshots, "a", "b")
    for name in ("a", "b"):
        await threads.DeleteThread(tpb.DeleteThreadRequest(thread_id=name))
    request = spb.RestoreSnapshotRequest(
        snapshot_id=made.snapshot_id, mode=NEW, request_id="r", durability=CERTIFIED
    )
    answer = await snapshots.RestoreSnapshot(request)
    assert answer.durability == CERTIFIED
    assert await snapshots.RestoreSnapshot(request) == answer
    for restored, name in zip(answer.restored, ("a", "b"), strict=True):
        root = await head(checkpoints, restored.thread_id)
        assert (root.ref, data(root)) == (restored, [name.encode()])
        assert [each.channel for each in root.writes] == ["__interrupt__"]
        assert root.lineage.forked_from == f"{name}:{FIRST}"
        inner = await head(checkpoints, restored.thread_id, "node:1")
        assert (inner.ref.checkpoint_id, data(inner)) == (SECOND, [name.encode()])
        described = await threads.GetThread(tpb.GetThreadRequest(thread_id=restored.thread_id))
        assert described.thread.agent_id == f"agent of {name}"
    listed = await threads.ListThreads(tpb.ListThreadsRequest(state=THREAD_STATE_INTERRUPTED))
    assert len(listed.threads) == 2


async def test_threads_are_rolled_back_to_members(
    checkpoints: CheckpointServiceAsyncStub,
    snapshots: SnapshotServiceAsyncStub,
    threads: ThreadServiceAsyncStub,
) -> None:
    for name in ("a", "b"):
        await save(checkpoints, name, b"old")
    made = await create(snapshots, "a", "b")
    later = SECOND.replace("2", "3")
    for name in ("a", "b"):
        await checkpoints.SaveCheckpoint(
            save_request(later, [channel("messages", b"new")], thread_id=name, parent=FIRST)
        )
    await threads.PruneThreads(
        tpb.PruneThreadsRequest(thread_ids=["b"], strategy=tpb.PRUNE_STRATEGY_KEEP_LATEST)
    )
    request = spb.RestoreSnapshotRequest(snapshot_id=made.snapshot_id, mode=ROLLBACK)
    answer = await snapshots.RestoreSnapshot(request)
    for restored, name in zip(answer.restored, ("a", "b"), strict=True):
        latest = await head(checkpoints, name)
        assert latest.ref == restored
        assert latest.ref.checkpoint_id > later
        assert (data(latest), list(latest.writes)) == ([b"old"], [])
        assert latest.lineage.rolled_back_from == f"{name}:{FIRST}"
    seen = await collect(
        checkpoints.ListCheckpoints(pb.ListCheckpointsRequest(thread_id="b", checkpoint_ns=""))
    )
    assert [each.ref.checkpoint_id for each in seen] == [answer.restored[1].checkpoint_id, later]


async def test_a_restoration_is_all_or_nothing(
    checkpoints: CheckpointServiceAsyncStub,
    snapshots: SnapshotServiceAsyncStub,
    threads: ThreadServiceAsyncStub,
) -> None:
    for name in ("a", "b"):
        await save(checkpoints, name, b"1")
    made = await create(snapshots, "a", "b")
    await threads.DeleteThread(tpb.DeleteThreadRequest(thread_id="b"))
    request = spb.RestoreSnapshotRequest(snapshot_id=made.snapshot_id, mode=ROLLBACK)
    answer = await refused(snapshots.RestoreSnapshot(request))
    assert (answer.reason, answer.metadata["thread_id"]) == ("THREAD_NOT_FOUND", "b")
    thread = (await threads.GetThread(tpb.GetThreadRequest(thread_id="a"))).thread
    assert thread.checkpoint_count == 2


async def test_snapshots_are_listed_newest_first(
    checkpoints: CheckpointServiceAsyncStub, snapshots: SnapshotServiceAsyncStub
) -> None:
    await save(checkpoints, "t", b"1")
    made = [
        await create(snapshots, "t", session_id=f"s{number % 2}", hostname="h")
        for number in range(5)
    ]
    newest_first = [each.snapshot_id for each in reversed(made)]

    async def listed(**filters: object) -> list[str]:
        snapshot_ids: list[str] = []
        token, first = "", True
        while token or first:
            request = spb.ListSnapshotsRequest(page_size=2, page_token=token, **filters)  # type: ignore[arg-type]
            page = await snapshots.ListSnapshots(request)
            snapshot_ids += [each.snapshot_id for each in page.snapshots]
            token, first = page.next_page_token, False
        return snapshot_ids

    assert await listed() == newest_first
    assert await listed(session_id="s1") == [newest_first[1], newest_first[3]]
    assert await listed(hostname="h", working_directory="/elsewhere") == []
    latest = await snapshots.GetLatestSnapshot(spb.GetLatestSnapshotRequest(session_id="s1"))
    assert latest.snapshot.snapshot_id == newest_first[1]
    nobody = spb.GetLatestSnapshotRequest(session_id="nobody")
    answer = await refused(snapshots.GetLatestSnapshot(nobody))
    assert answer.metadata["session_id"] == "nobody"
    assert "snapshot of session 'nobody' not found; " in answer.message
    elsewhere = spb.GetLatestSnapshotRequest(hostname="h", working_directory="/x")
    answer = await refused(snapshots.GetLatestSnapshot(elsewhere))
    assert "snapshot of host 'h' and working directory '/x' not found; " in answer.message
    token = (await snapshots.ListSnapshots(spb.ListSnapshotsRequest(page_size=1))).next_page_token
    other = spb.ListSnapshotsRequest(session_id="s1", page_token=token)
    assert (await refused(snapshots.ListSnapshots(other))).reason == "PAGE_TOKEN_INVALID"


async def test_a_deleted_snapshot_is_gone_and_restored_threads_stay(
    checkpoints: CheckpointServiceAsyncStub, snapshots: SnapshotServiceAsyncStub
) -> None:
    await save(checkpoints, "t", b"1")
    made = await create(snapshots, "t", durability=CERTIFIED)
    restored = await snapshots.RestoreSnapshot(
        spb.RestoreSnapshotRequest(snapshot_id=made.snapshot_id, mode=NEW)
    )
    delete = spb.DeleteSnapshotRequest(snapshot_id=made.snapshot_id, durability=CERTIFIED)
    assert (await snapshots.DeleteSnapshot(delete)).deleted
    assert not (await snapshots.DeleteSnapshot(delete)).deleted
    assert data(await head(checkpoints, restored.restored[0].thread_id)) == [b"1"]
    gone = [
        snapshots.GetSnapshot(spb.GetSnapshotRequest(snapshot_id=made.snapshot_id)),
        snapshots.GetLatestSnapshot(spb.GetLatestSnapshotRequest()),
        snapshots.RestoreSnapshot(
            spb.RestoreSnapshotRequest(snapshot_id=made.snapshot_id, mode=NEW)
        ),
    ]
    for call in gone:
        assert (await refused(call)).reason == "SNAPSHOT_NOT_FOUND"


async def test_snapshots_that_are_refused(
    checkpoints: CheckpointServiceAsyncStub, snapshots: SnapshotServiceAsyncStub
) -> None:
    await save(checkpoints, "t", b"1")
    first = spb.CreateSnapshotRequest(thread_ids=["t"], request_id="r", session_id="s")
    assert await snapshots.CreateSnapshot(first) == await snapshots.CreateSnapshot(first)
    expected = [
        ("THREAD_NOT_FOUND", spb.CreateSnapshotRequest(thread_ids=["t", "none"])),
        ("INVALID_FIELD", spb.CreateSnapshotRequest()),
        ("INVALID_FIELD", spb.CreateSnapshotRequest(thread_ids=["t", "t"])),
        ("INVALID_FIELD", spb.CreateSnapshotRequest(thread_ids=["t"], hostname="h" * 257)),
        ("METADATA_NOT_JSON", spb.CreateSnapshotRequest(thread_ids=["t"], metadata_json=b"[]")),
        ("REQUEST_ID_REUSED", spb.CreateSnapshotRequest(thread_ids=["t"], request_id="r")),
    ]
    for reason, request in expected:
        assert (await refused(snapshots.CreateSnapshot(request))).reason == reason
    assert len((await snapshots.ListSnapshots(spb.ListSnapshotsRequest())).snapshots) == 1
    unset = spb.RestoreSnapshotRequest(snapshot_id="x")
    assert (await refused(snapshots.RestoreSnapshot(unset))).fields == ("mode",)
