"""Clients see no difference on a server whose journal evicts all values that it may."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc
import pytest

from tests.integration.archive.evictions import flush_and_evict
from tests.kit.blobs.member_file import MemberFile
from tests.kit.databases import journal_of, rows_of_server
from tests.kit.messages import channel, collect, ref, refused, save_request, write
from tuskpoint.v1 import (
    admin_service_pb2,
    checkpoint_pb2,
    snapshot_service_pb2,
    thread_service_pb2,
    value_pb2,
)
from tuskpoint.v1 import checkpoint_service_pb2 as pb
from tuskpoint.v1.snapshot_service_pb2_grpc import SnapshotServiceStub
from tuskpoint_server.config.settings import Config

if TYPE_CHECKING:
    from tuskpoint.v1.admin_service_pb2_grpc import AdminServiceAsyncStub
    from tuskpoint.v1.checkpoint_service_pb2_grpc import CheckpointServiceAsyncStub
    from tuskpoint.v1.thread_service_pb2_grpc import ThreadServiceAsyncStub
    from tuskpoint_server.api.server.server import Server

LENGTH = 12
LARGE = os.urandom(300 << 10)


@pytest.fixture
def config(tmp_path: Path) -> Config:
    """Settings that evict certified values at once, except the values of heads."""
    return Config(
        listen="127.0.0.1:0",
        data_dir=tmp_path / "data",
        journal=journal_of(tmp_path / "data"),
        flush_interval=3600,
        journal_bytes=0,
        eviction_grace=0,
    )


@pytest.fixture
async def thread(
    checkpoints: CheckpointServiceAsyncStub, admin: AdminServiceAsyncStub
) -> list[checkpoint_pb2.Checkpoint]:
    """A thread, oldest checkpoint first, as it was before all but its head was evicted."""
    for number in range(LENGTH):
        await checkpoints.SaveCheckpoint(step(number))
    before = await everything(checkpoints)
    await flush_and_evict(admin, len(LARGE))
    return list(reversed(before))


def name(number: int) -> str:
    return f"1f000000-0000-6000-8000-{number:012}"


def step(number: int) -> pb.SaveCheckpointRequest:
    """Return the save of a step with a delta channel that is stored at the third step."""
    version = value_pb2.Version(integer=number + 1)
    channels = [
        channel("value", b"value %d" % number, version=version),
        channel("empty", empty=value_pb2.Empty()),
    ]
    if number == 1:
        channels.append(channel("large", LARGE))
    if number == 2:
        channels.append(channel("log", b"seed"))
    request = save_request(
        name(number),
        channels,
        parent=name(number - 1) if number else "",
        metadata=b'{"step": %d }' % number,
        writes=[write(name="log", value=value_pb2.Value(type="bytes", data=b"%d" % number))],
    )
    request.checkpoint.state.delta_channels.append("log")
    return request


async def everything(
    checkpoints: CheckpointServiceAsyncStub, **fields: Any
) -> list[checkpoint_pb2.Checkpoint]:
    return without_place(
        await collect(checkpoints.ListCheckpoints(pb.ListCheckpointsRequest(**fields)))
    )


def without_place(checkpoints: list[checkpoint_pb2.Checkpoint]) -> list[checkpoint_pb2.Checkpoint]:
    """Clear the fields that certification changes."""
    for checkpoint in checkpoints:
        checkpoint.ClearField("location")
        checkpoint.ClearField("durability")
    return checkpoints


def values_here(config: Config) -> int:
    """Return the bytes of the values that are still in the journal's file."""
    [[size]] = rows_of_server(config.data_dir, "SELECT sum(length(data)) FROM contents")
    return int(size or 0)


@pytest.mark.usefixtures("database")
async def test_an_evicted_thread_is_read_as_before(
    checkpoints: CheckpointServiceAsyncStub,
    thread: list[checkpoint_pb2.Checkpoint],
    config: Config,
) -> None:
    assert values_here(config) < len(LARGE)
    assert list(reversed(await everything(checkpoints))) == thread
    for source in (checkpoint_pb2.SOURCE_ANY, checkpoint_pb2.SOURCE_BLOB):
        for number in range(LENGTH):
            load = pb.LoadCheckpointRequest(ref=ref(name(number)), source=source)
            loaded = without_place(await collect(checkpoints.LoadCheckpoint(load)))
            assert loaded == [thread[number]]
    small = pb.GetCheckpointRequest(ref=ref(name(3)))
    loaded = without_place([(await checkpoints.GetCheckpoint(small)).checkpoint])
    assert loaded == [thread[3]]
    listed = await everything(checkpoints, before=name(6), limit=2, filter_json=b'{"step": 4}')
    assert listed == [thread[4]]


async def test_entries_need_no_blob(
    checkpoints: CheckpointServiceAsyncStub,
    thread: list[checkpoint_pb2.Checkpoint],
    config: Config,
) -> None:
    (config.data_dir / "blobs").rename(config.data_dir / "away")
    listed = await everything(checkpoints, view=checkpoint_pb2.VIEW_ENTRY)
    assert [checkpoint.ref for checkpoint in listed] == [
        checkpoint.ref for checkpoint in reversed(thread)
    ]
    head = await checkpoints.GetCheckpoint(pb.GetCheckpointRequest(ref=ref("")))
    assert without_place([head.checkpoint]) == [thread[-1]]


async def test_a_step_says_nothing_of_evicted_values(
    checkpoints: CheckpointServiceAsyncStub, admin: AdminServiceAsyncStub
) -> None:
    report = b'{"usage_metadata": {"input_tokens": 5, "output_tokens": 2}}'
    for number in range(3):
        request = step(number)
        path = "~__pregel_pull, agent"
        request.checkpoint.metadata_json = b'{"source": "loop"}'
        del request.writes[:]
        request.writes.extend(
            write(
                "task", name, value=value_pb2.Value(type="json", data=data), task_path=path, idx=at
            )
            for at, (name, data) in enumerate([("__interrupt__", b'"Publish?"'), ("log", report)])
        )
        await checkpoints.SaveCheckpoint(request)

    async def steps() -> list[tuple[str, str, int]]:
        return [
            (question.node, question.text, checkpoint.step.tokens.input_tokens)
            for checkpoint in await everything(checkpoints, view=checkpoint_pb2.VIEW_STEP)
            for question in checkpoint.step.questions
        ]

    told = [("agent", "Publish?", 5), ("agent", "Publish?", 5), ("agent", "Publish?", 0)]
    assert await steps() == told
    await flush_and_evict(admin, len(LARGE))
    assert await steps() == [("agent", "Publish?", 0), ("agent", "", 0), ("agent", "", 0)]


async def test_a_copy_of_an_evicted_thread(
    checkpoints: CheckpointServiceAsyncStub,
    threads: ThreadServiceAsyncStub,
    admin: AdminServiceAsyncStub,
    thread: list[checkpoint_pb2.Checkpoint],
) -> None:
    await checkpoints.SetLabel(pb.SetLabelRequest(ref=ref(name(1)), label="found again"))
    await threads.CopyThread(
        thread_service_pb2.CopyThreadRequest(source_thread_id="thread", target_thread_id="copy")
    )
    await threads.DeleteThread(thread_service_pb2.DeleteThreadRequest(thread_id="thread"))
    for _ in range(2):
        copied = await everything(checkpoints, thread_id="copy")
        assert [checkpoint.state for checkpoint in reversed(copied)] == [
            checkpoint.state for checkpoint in thread
        ]
        assert [checkpoint.writes for checkpoint in reversed(copied)] == [
            checkpoint.writes for checkpoint in thread
        ]
        assert copied[-2].label == "found again"
        await flush_and_evict(admin, len(LARGE))


async def test_an_old_checkpoint_is_gone_on_from(
    checkpoints: CheckpointServiceAsyncStub,
    admin: AdminServiceAsyncStub,
    thread: list[checkpoint_pb2.Checkpoint],
) -> None:
    """The server asks for an evicted value again, and then has the value."""
    old = thread[4].state.channels[0]
    inherit = channel("value", version=old.version, inherit=value_pb2.Inherit())
    fork = save_request(name(100), [inherit], parent=name(4))
    reported = await refused(checkpoints.SaveCheckpoint(fork))
    assert (reported.reason, reported.metadata["channels"]) == ("VALUES_MISSING", '["value"]')
    digest = channel("value", version=old.version, digest=old.digest)
    reported = await refused(
        checkpoints.SaveCheckpoint(save_request(name(100), [digest], parent=name(4)))
    )
    assert (reported.reason, reported.metadata["channels"]) == ("VALUES_MISSING", '["value"]')
    whole = channel("value", b"value 4", version=old.version)
    await checkpoints.SaveCheckpoint(save_request(name(100), [whole], parent=name(4)))
    fork.checkpoint.ref.checkpoint_id = name(101)
    fork.checkpoint.parent_checkpoint_id = name(100)
    await checkpoints.SaveCheckpoint(fork)
    await checkpoints.SaveWrites(pb.SaveWritesRequest(ref=ref(name(4)), writes=[write("late")]))
    await flush_and_evict(admin, len(LARGE))
    for number in (4, 100, 101):
        load = pb.GetCheckpointRequest(ref=ref(name(number)))
        checkpoint = (await checkpoints.GetCheckpoint(load)).checkpoint
        assert checkpoint.state.channels[0].value.data == b"value 4"
        if number == 4:
            assert [write.task_id for write in checkpoint.writes] == ["late", "task"]


async def test_evicted_checkpoints_are_forked_and_rolled_back_to(
    checkpoints: CheckpointServiceAsyncStub,
    threads: ThreadServiceAsyncStub,
    admin: AdminServiceAsyncStub,
    thread: list[checkpoint_pb2.Checkpoint],
) -> None:
    forked = await threads.ForkThread(
        thread_service_pb2.ForkThreadRequest(ref=ref(name(1)), new_thread_id="fork")
    )
    rolled = await threads.RollbackThread(
        thread_service_pb2.RollbackThreadRequest(ref=ref(name(1)), request_id="r")
    )
    for _ in range(2):
        for made in (forked.ref, rolled.ref):
            assert await state_of(checkpoints, made) == thread[1].state.channels
        await flush_and_evict(admin, 0)  # the head needs the large value again
    again = await threads.RollbackThread(
        thread_service_pb2.RollbackThreadRequest(ref=ref(name(1)), request_id="r")
    )
    assert again.ref == rolled.ref
    later = await threads.RollbackThread(thread_service_pb2.RollbackThreadRequest(ref=ref(name(7))))
    assert await state_of(checkpoints, later.ref) == thread[7].state.channels
    history = pb.GetDeltaHistoryRequest(ref=later.ref, channels=["log"])
    (frame,) = [frame async for frame in checkpoints.GetDeltaHistory(history)]
    assert frame.history.seed.value.data == b"seed"
    assert [write.value.data for write in frame.history.writes] == [b"2", b"3", b"4", b"5", b"6"]


async def test_evicted_snapshots_are_restored(
    server: Server,
    checkpoints: CheckpointServiceAsyncStub,
    threads: ThreadServiceAsyncStub,
    admin: AdminServiceAsyncStub,
    thread: list[checkpoint_pb2.Checkpoint],
) -> None:
    async with grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel:
        snapshots = SnapshotServiceStub(channel)
        response = await snapshots.CreateSnapshot(
            snapshot_service_pb2.CreateSnapshotRequest(thread_ids=["thread"])
        )
        await checkpoints.SaveCheckpoint(step(LENGTH))
        await threads.PruneThreads(
            thread_service_pb2.PruneThreadsRequest(
                thread_ids=["thread"], strategy=thread_service_pb2.PRUNE_STRATEGY_KEEP_LATEST
            )
        )
        await flush_and_evict(admin, len(LARGE))
        for mode in (
            snapshot_service_pb2.RESTORE_MODE_NEW_THREADS,
            snapshot_service_pb2.RESTORE_MODE_ROLLBACK,
        ):
            restored = await snapshots.RestoreSnapshot(
                snapshot_service_pb2.RestoreSnapshotRequest(
                    snapshot_id=response.snapshot.snapshot_id, mode=mode
                )
            )
            [made] = restored.restored
            for _ in range(2):
                assert await state_of(checkpoints, made) == thread[-1].state.channels
                await flush_and_evict(admin, len(LARGE))


async def test_a_head_that_was_evicted_is_captured_and_restored(
    server: Server,
    checkpoints: CheckpointServiceAsyncStub,
    admin: AdminServiceAsyncStub,
    threads: ThreadServiceAsyncStub,
    thread: list[checkpoint_pb2.Checkpoint],
) -> None:
    """A head with evicted values is the latest checkpoint after later checkpoints are deleted."""
    last = step(LENGTH)
    last.checkpoint.metadata_json = b'{"run_id": "undone"}'
    await checkpoints.SaveCheckpoint(last)
    await flush_and_evict(admin, len(LARGE))
    await threads.DeleteRuns(thread_service_pb2.DeleteRunsRequest(run_ids=["undone"]))
    async with grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel:
        snapshots = SnapshotServiceStub(channel)
        response = await snapshots.CreateSnapshot(
            snapshot_service_pb2.CreateSnapshotRequest(thread_ids=["thread"])
        )
        await threads.DeleteThread(thread_service_pb2.DeleteThreadRequest(thread_id="thread"))
        restored = await snapshots.RestoreSnapshot(
            snapshot_service_pb2.RestoreSnapshotRequest(
                snapshot_id=response.snapshot.snapshot_id,
                mode=snapshot_service_pb2.RESTORE_MODE_NEW_THREADS,
            )
        )
    assert await state_of(checkpoints, restored.restored[0]) == thread[-1].state.channels
    request = pb.GetDeltaHistoryRequest(ref=restored.restored[0], channels=["log"])
    (frame,) = [frame async for frame in checkpoints.GetDeltaHistory(request)]
    assert frame.history.seed.value.data == b"seed"


async def state_of(
    checkpoints: CheckpointServiceAsyncStub, made: checkpoint_pb2.CheckpointRef
) -> list[value_pb2.Channel]:
    """Return the channels of a checkpoint, with their values."""
    load = pb.LoadCheckpointRequest(ref=made)
    [checkpoint] = await collect(checkpoints.LoadCheckpoint(load))
    return list(checkpoint.state.channels)


# --- damage --------------------------------------------------------------------------------


def blob_of(checkpoint: checkpoint_pb2.Checkpoint, config: Config) -> MemberFile:
    """Return the blob of a checkpoint's segment."""
    return MemberFile.at(config.data_dir / "blobs", checkpoint.location)


@pytest.mark.parametrize("damage", ["changed", "cut", "replaced", "gone"])
async def test_a_damaged_blob_is_refused_and_never_cached(
    checkpoints: CheckpointServiceAsyncStub,
    thread: list[checkpoint_pb2.Checkpoint],
    config: Config,
    damage: str,
) -> None:
    entry = pb.GetCheckpointRequest(ref=ref(name(3)), view=checkpoint_pb2.VIEW_ENTRY)
    checkpoint = (await checkpoints.GetCheckpoint(entry)).checkpoint
    stored = blob_of(checkpoint, config)
    whole, file = stored.read_bytes(), stored.path.read_bytes()
    cached = config.data_dir / "cache" / checkpoint.location.sha256.hex()
    cached.unlink(missing_ok=True)
    bad = {
        "changed": whole[:-1] + bytes([whole[-1] ^ 1]),
        "cut": whole[:-1],
        "replaced": b"what was stored as something else",
        "gone": None,
    }[damage]
    if bad is None:
        stored.unlink()
    else:
        stored.write_bytes(bad)

    full = pb.GetCheckpointRequest(ref=ref(name(3)))
    for call in (
        lambda: checkpoints.GetCheckpoint(full),
        lambda: checkpoints.ListCheckpoints(pb.ListCheckpointsRequest()),
        lambda: checkpoints.GetDeltaHistory(
            pb.GetDeltaHistoryRequest(ref=ref(name(11)), channels=["log"])
        ),
    ):
        reported = await refused(call())
        assert reported.code is grpc.StatusCode.DATA_LOSS
        if bad is None:
            assert reported.reason == "BLOB_NOT_FOUND"
        else:
            assert reported.reason == "BLOB_HASH_MISMATCH"
            assert reported.metadata["expected"] == checkpoint.location.sha256.hex()
            assert reported.metadata["actual"] == hashlib.sha256(bad).hexdigest()
        assert not cached.exists()
    assert (await checkpoints.GetCheckpoint(entry)).checkpoint == checkpoint

    stored.path.write_bytes(file)
    again = (await checkpoints.GetCheckpoint(full)).checkpoint
    assert without_place([again]) == [thread[3]]
    assert cached.read_bytes() == whole


async def test_a_hot_blob_is_read_from_the_cache(
    checkpoints: CheckpointServiceAsyncStub,
    admin: AdminServiceAsyncStub,
    thread: list[checkpoint_pb2.Checkpoint],
    config: Config,
) -> None:
    """The cache has one checkpoint, and so all checkpoints of the same segment."""
    full = pb.GetCheckpointRequest(ref=ref(name(3)))
    await checkpoints.GetCheckpoint(full)
    status = await admin.GetArchiveStatus(admin_service_pb2.GetArchiveStatusRequest())
    assert status.cache_bytes > 0
    (config.data_dir / "blobs").rename(config.data_dir / "away")
    for number in (3, 5):
        again = pb.GetCheckpointRequest(ref=ref(name(number)))
        checkpoint = (await checkpoints.GetCheckpoint(again)).checkpoint
        assert without_place([checkpoint]) == [thread[number]]
