"""Calls on whole threads work, and the server reports its own state."""

from __future__ import annotations

import importlib.metadata
from typing import TYPE_CHECKING

import grpc
import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from tests.kit.messages import (
    FIRST,
    SECOND,
    channel,
    collect,
    incompressible,
    ref,
    refused,
    save_request,
    write,
)
from tuskpoint.v1 import admin_service_pb2, checkpoint_pb2
from tuskpoint.v1 import checkpoint_service_pb2 as pb
from tuskpoint.v1 import thread_service_pb2 as tpb
from tuskpoint_server.api.server.server import Server
from tuskpoint_server.archive.formats.manifests import decode_manifest
from tuskpoint_server.blobs.directory import DirectoryStore
from tuskpoint_server.config.settings import Config
from tuskpoint_server.core.limits import LIMITS
from tuskpoint_server.core.model import BlobLocation

if TYPE_CHECKING:
    from tuskpoint.v1.admin_service_pb2_grpc import AdminServiceAsyncStub
    from tuskpoint.v1.checkpoint_service_pb2_grpc import CheckpointServiceAsyncStub
    from tuskpoint.v1.thread_service_pb2_grpc import ThreadServiceAsyncStub

pytestmark = pytest.mark.usefixtures("database")

CERTIFIED = checkpoint_pb2.DURABILITY_CERTIFIED
LATEST = tpb.THREAD_ORDER_LATEST


async def test_a_thread_is_described(
    checkpoints: CheckpointServiceAsyncStub, threads: ThreadServiceAsyncStub
) -> None:
    await checkpoints.SaveCheckpoint(save_request(FIRST, agent_id="planner"))
    await checkpoints.SaveCheckpoint(save_request(SECOND, parent=FIRST, durability=CERTIFIED))
    await checkpoints.SaveWrites(pb.SaveWritesRequest(ref=ref(FIRST), writes=[write()]))
    thread = (await threads.GetThread(tpb.GetThreadRequest(thread_id="thread"))).thread
    assert (thread.agent_id, thread.head_checkpoint_id) == ("planner", SECOND)
    assert (thread.checkpoint_count, thread.uncertified_count) == (2, 1)
    assert [(each.checkpoint_ns, each.checkpoint_id) for each in thread.heads] == [("", SECOND)]
    assert thread.update_time.ToNanoseconds() >= thread.create_time.ToNanoseconds() > 0


async def test_a_page_token_is_good_for_its_order_and_times_only(
    checkpoints: CheckpointServiceAsyncStub, threads: ThreadServiceAsyncStub
) -> None:
    for name in ("a", "b"):
        await checkpoints.SaveCheckpoint(save_request(thread_id=name))
    requests = [
        tpb.ListThreadsRequest(),
        tpb.ListThreadsRequest(order=LATEST),
        tpb.ListThreadsRequest(order=LATEST, changed_after=Timestamp()),
        tpb.ListThreadsRequest(order=LATEST, changed_after=Timestamp(seconds=1)),
        tpb.ListThreadsRequest(order=LATEST, changed_before=Timestamp()),
        tpb.ListThreadsRequest(order=LATEST, changed_before=Timestamp(seconds=2**32)),
    ]
    for request in requests:
        request.page_size = 1
        token = (await threads.ListThreads(request)).next_page_token
        if request.HasField("changed_before") and not request.changed_before.seconds:
            assert not token  # no thread changed before 1970
            continue
        for other in requests:
            other.page_token = token
            if other is request:
                assert len((await threads.ListThreads(other)).threads) == 1
            else:
                answer = await refused(threads.ListThreads(other))
                assert answer.reason == "PAGE_TOKEN_INVALID"
            other.page_token = ""


async def test_a_page_token_is_good_for_its_listing_only(
    checkpoints: CheckpointServiceAsyncStub, threads: ThreadServiceAsyncStub
) -> None:
    for name in ("a", "b"):
        await checkpoints.SaveCheckpoint(save_request(thread_id=name, durability=CERTIFIED))
        await checkpoints.SaveCheckpoint(save_request(SECOND, thread_id=name, durability=CERTIFIED))
    token = (await threads.ListThreads(tpb.ListThreadsRequest(page_size=1))).next_page_token
    first = await threads.GetManifest(tpb.GetManifestRequest(thread_id="a", page_size=1))
    bad = [
        threads.ListThreads(tpb.ListThreadsRequest(page_token=token, agent_id="x")),
        threads.ListThreads(tpb.ListThreadsRequest(page_token=token[:-1])),
        threads.ListThreads(tpb.ListThreadsRequest(page_token="A" + token)),
        threads.ListThreads(tpb.ListThreadsRequest(page_token="é")),
        threads.ListThreads(tpb.ListThreadsRequest(page_token=first.next_page_token)),
        threads.GetManifest(
            tpb.GetManifestRequest(thread_id="b", page_token=first.next_page_token)
        ),
    ]
    for call in bad:
        answer = await refused(call)
        assert (answer.code, answer.reason) == (
            grpc.StatusCode.INVALID_ARGUMENT,
            "PAGE_TOKEN_INVALID",
        )
    second = await threads.GetManifest(
        tpb.GetManifestRequest(thread_id="a", page_size=1, page_token=first.next_page_token)
    )
    ids = [each.checkpoint_id for page in (first, second) for each in page.entries]
    assert ids == [FIRST, SECOND]
    assert not second.next_page_token


async def test_a_manifest_names_certified_checkpoints(
    checkpoints: CheckpointServiceAsyncStub, threads: ThreadServiceAsyncStub
) -> None:
    await checkpoints.SaveCheckpoint(save_request(FIRST))
    request = tpb.GetManifestRequest(thread_id="thread")
    empty = await threads.GetManifest(request)
    assert (len(empty.entries), empty.HasField("catalog"), empty.incarnation) == (0, False, 1)
    await checkpoints.SaveCheckpoint(save_request(SECOND, parent=FIRST, durability=CERTIFIED))
    await checkpoints.SaveWrites(
        pb.SaveWritesRequest(ref=ref(FIRST), writes=[write()], durability=CERTIFIED)
    )
    manifest = await threads.GetManifest(request)
    assert [each.checkpoint_id for each in manifest.entries] == [FIRST, SECOND]
    first, second = manifest.entries
    assert second.parent_checkpoint_id == FIRST
    assert (len(first.segment.sha256), len(first.state_sha256)) == (32, 32)
    assert first.segment.blob_id
    assert (first.seq, second.seq, manifest.seq) == (3, 2, 3)
    assert [len(each.writes) for each in (first, second)] == [1, 0]
    assert manifest.certify_time.seconds
    assert not manifest.HasField("manifest")


async def test_pages_of_a_manifest_are_of_one_catalog(
    checkpoints: CheckpointServiceAsyncStub, threads: ThreadServiceAsyncStub
) -> None:
    for checkpoint_id in (FIRST, SECOND):
        await checkpoints.SaveCheckpoint(save_request(checkpoint_id, durability=CERTIFIED))
    first = await threads.GetManifest(tpb.GetManifestRequest(thread_id="thread", page_size=1))
    third = "1f000000-0000-6000-8000-000000000003"
    await checkpoints.SaveCheckpoint(save_request(third, durability=CERTIFIED))
    request = tpb.GetManifestRequest(thread_id="thread", page_token=first.next_page_token)
    second = await threads.GetManifest(request)
    assert [each.checkpoint_id for each in second.entries] == [SECOND]
    assert (second.catalog, second.next_page_token) == (first.catalog, "")
    # a page of the newest catalog: the earlier fold was dropped
    again = await threads.GetManifest(request)
    assert [each.checkpoint_id for each in again.entries] == [SECOND, third]


async def test_a_manifest_is_stored_when_that_is_asked_for(
    checkpoints: CheckpointServiceAsyncStub, threads: ThreadServiceAsyncStub, config: Config
) -> None:
    await checkpoints.SaveCheckpoint(save_request(FIRST, durability=CERTIFIED))
    stored = await threads.GetManifest(tpb.GetManifestRequest(thread_id="thread", store=True))
    data = await DirectoryStore(config.blob_directory).get(
        BlobLocation(
            stored.manifest.sha256,
            stored.manifest.size_bytes,
            stored.manifest.blob_id,
            stored.manifest.identifier,
        )
    )
    manifest = decode_manifest(data, stored.manifest.blob_id)
    assert [name for _, name in manifest.entries] == [FIRST]
    answer = await refused(
        threads.GetManifest(tpb.GetManifestRequest(thread_id="thread", store=True, page_token="x"))
    )
    assert answer.code is grpc.StatusCode.INVALID_ARGUMENT


async def test_a_deleted_thread_has_no_manifest_and_the_next_begins_empty(
    checkpoints: CheckpointServiceAsyncStub, threads: ThreadServiceAsyncStub
) -> None:
    await checkpoints.SaveCheckpoint(save_request(FIRST, durability=CERTIFIED))
    await threads.DeleteThread(tpb.DeleteThreadRequest(thread_id="thread"))
    request = tpb.GetManifestRequest(thread_id="thread")
    assert (await refused(threads.GetManifest(request))).reason == "THREAD_NOT_FOUND"
    await checkpoints.SaveCheckpoint(save_request(SECOND))
    next_one = await threads.GetManifest(request)
    assert (list(next_one.entries), next_one.incarnation) == ([], 2)
    await checkpoints.SaveCheckpoint(save_request(SECOND, durability=CERTIFIED))
    [entry] = (await threads.GetManifest(request)).entries
    assert entry.checkpoint_id == SECOND


@pytest.mark.parametrize("durability", [checkpoint_pb2.DURABILITY_JOURNALED, CERTIFIED])
async def test_deletions_count_the_deleted_checkpoints(
    checkpoints: CheckpointServiceAsyncStub,
    threads: ThreadServiceAsyncStub,
    durability: checkpoint_pb2.Durability,
) -> None:
    for name in ("a", "b", "c"):
        for checkpoint_id in (FIRST, SECOND):
            await checkpoints.SaveCheckpoint(
                save_request(checkpoint_id, thread_id=name, metadata=b'{"run_id": "r"}')
            )
    deleted = await threads.DeleteThread(
        tpb.DeleteThreadRequest(thread_id="a", durability=durability)
    )
    assert (deleted.deleted_checkpoints, deleted.durability) == (2, durability)
    pruned = await threads.PruneThreads(
        tpb.PruneThreadsRequest(
            thread_ids=["b", "b", "absent"],
            strategy=tpb.PRUNE_STRATEGY_KEEP_LATEST,
            durability=durability,
        )
    )
    assert (pruned.deleted_checkpoints, pruned.durability) == (1, durability)
    runs = await threads.DeleteRuns(
        tpb.DeleteRunsRequest(run_ids=["r", "r"], durability=durability)
    )
    assert (runs.deleted_checkpoints, runs.durability) == (3, durability)
    again = await threads.DeleteThread(tpb.DeleteThreadRequest(thread_id="a"))
    assert again.deleted_checkpoints == 0
    answer = await refused(threads.GetThread(tpb.GetThreadRequest(thread_id="a")))
    assert (answer.code, answer.reason) == (grpc.StatusCode.NOT_FOUND, "THREAD_NOT_FOUND")
    late = save_request("1f000000-0000-6000-8000-000000000000", thread_id="a", parent=FIRST)
    answer = await refused(checkpoints.SaveCheckpoint(late))
    assert answer.reason == "THREAD_DELETED"


async def test_a_copy_is_made_once(
    checkpoints: CheckpointServiceAsyncStub, threads: ThreadServiceAsyncStub
) -> None:
    await checkpoints.SaveCheckpoint(save_request(channels=[channel("a")], writes=[write()]))
    request = tpb.CopyThreadRequest(
        source_thread_id="thread", target_thread_id="copy", request_id="r", durability=CERTIFIED
    )
    for _ in range(2):
        copied = await threads.CopyThread(request)
        assert (copied.copied_checkpoints, copied.durability) == (1, CERTIFIED)
    for target, request_id, reason in (
        ("copy", "", "THREAD_EXISTS"),
        ("other", "r", "REQUEST_ID_REUSED"),
    ):
        request.target_thread_id, request.request_id = target, request_id
        answer = await refused(threads.CopyThread(request))
        assert (answer.code, answer.reason) == (grpc.StatusCode.ALREADY_EXISTS, reason)
    original, copy = [
        (await checkpoints.GetCheckpoint(pb.GetCheckpointRequest(ref=ref(FIRST, name)))).checkpoint
        for name in ("thread", "copy")
    ]
    assert (original.state, original.writes) == (copy.state, copy.writes)


async def test_the_server_describes_itself(
    admin: AdminServiceAsyncStub, server: Server, database: str
) -> None:
    info = await admin.GetServerInfo(admin_service_pb2.GetServerInfoRequest())
    assert info.version == importlib.metadata.version("tuskpoint-server")
    assert (info.journal_backend, info.blob_backend) == (database, "directory")
    assert info.journal_id
    assert info.start_time.seconds
    assert info.grpc_port == server.port
    assert info.limits.max_value_bytes == LIMITS.max_value
    assert info.limits.early_write_ttl.seconds == LIMITS.early_write_ttl_s
    assert "tuskpoint.v1.CheckpointService/SaveCheckpoint" in info.methods
    assert "tuskpoint.v1.AdminService/Flush" in info.methods
    assert "tuskpoint.v1.ThreadService/SetSearchable" in info.methods
    assert "tuskpoint.v1.SearchService/SearchCheckpoints" in info.methods


async def test_the_archive_reports_its_backlog_and_catalog(
    config: Config, checkpoints: CheckpointServiceAsyncStub, admin: AdminServiceAsyncStub
) -> None:
    request = admin_service_pb2.GetArchiveStatusRequest()
    await checkpoints.SaveCheckpoint(save_request(channels=[channel("a", incompressible(1000))]))
    status = await admin.GetArchiveStatus(request)
    assert status.backlog_checkpoints == 1
    assert status.backlog_bytes >= 1000
    assert status.HasField("oldest_uncertified_time")
    assert not status.HasField("catalog")
    assert status.journal_bytes > 1000
    flushed = await admin.Flush(admin_service_pb2.FlushRequest())
    status = await admin.GetArchiveStatus(request)
    assert (status.backlog_checkpoints, status.certified_checkpoints) == (0, 1)
    assert status.catalog == flushed.catalog
    assert not status.HasField("oldest_uncertified_time")
    assert not status.last_error
    assert config.pointer.read_text().strip() == status.catalog.blob_id


@pytest.fixture
def config(config: Config) -> Config:
    return config.model_copy(update={"backlog_soft_limit": 1000, "backlog_hard_limit": 2000})


async def test_a_backlog_is_warned_of_and_then_refused(
    checkpoints: CheckpointServiceAsyncStub, admin: AdminServiceAsyncStub
) -> None:
    for number, warned in enumerate((False, True, True)):
        saved = await checkpoints.SaveCheckpoint(
            save_request(f"{number}", [channel("a", incompressible(900, f"{number}"))])
        )
        assert bool(saved.warnings) == warned
    answer = await refused(checkpoints.SaveCheckpoint(save_request("9")))
    assert (answer.code, answer.reason) == (
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        "BACKLOG_FULL",
    )
    assert "RetryInfo" in answer.kinds
    answer = await refused(
        checkpoints.SaveWrites(pb.SaveWritesRequest(ref=ref("0"), writes=[write()]))
    )
    assert answer.reason == "BACKLOG_FULL"
    assert len(await collect(checkpoints.ListCheckpoints(pb.ListCheckpointsRequest()))) == 3
    await admin.Flush(admin_service_pb2.FlushRequest())
    await checkpoints.SaveCheckpoint(save_request("9"))
