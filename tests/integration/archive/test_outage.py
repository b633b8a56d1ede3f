"""A blob store that is down delays certification and nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING

import grpc

from tests.kit.messages import FIRST, SECOND, channel, collect, ref, refused, save_request, write
from tuskpoint.v1 import admin_service_pb2, checkpoint_pb2
from tuskpoint.v1 import checkpoint_service_pb2 as pb
from tuskpoint_server.config.settings import Config

if TYPE_CHECKING:
    from tuskpoint.v1.admin_service_pb2_grpc import AdminServiceAsyncStub
    from tuskpoint.v1.checkpoint_service_pb2_grpc import CheckpointServiceAsyncStub


async def test_saves_and_loads_go_on_while_the_blob_store_is_down(
    checkpoints: CheckpointServiceAsyncStub, admin: AdminServiceAsyncStub, config: Config
) -> None:
    blobs = config.data_dir / "blobs"
    away = blobs.rename(config.data_dir / "away")
    blobs.write_text("no directory")

    saved = await checkpoints.SaveCheckpoint(save_request(FIRST, [channel("a")]))
    assert saved.durability == checkpoint_pb2.DURABILITY_JOURNALED
    await checkpoints.SaveCheckpoint(save_request(SECOND, parent=FIRST))
    await checkpoints.SaveWrites(pb.SaveWritesRequest(ref=ref(FIRST), writes=[write()]))
    answer = await refused(admin.Flush(admin_service_pb2.FlushRequest()))
    assert (answer.code, answer.reason) == (grpc.StatusCode.UNAVAILABLE, "BLOB_UNAVAILABLE")
    loaded = await checkpoints.GetCheckpoint(pb.GetCheckpointRequest(ref=ref(FIRST)))
    assert loaded.checkpoint.state.channels[0].value.data == b"data"
    assert loaded.checkpoint.writes[0].value.data == b"written"
    status = await admin.GetArchiveStatus(admin_service_pb2.GetArchiveStatusRequest())
    assert status.backlog_checkpoints == 2
    assert status.last_error

    blobs.unlink()
    away.rename(blobs)
    await admin.Flush(admin_service_pb2.FlushRequest())
    everything = pb.ListCheckpointsRequest(source=checkpoint_pb2.SOURCE_BLOB)
    assert len(await collect(checkpoints.ListCheckpoints(everything))) == 2
    status = await admin.GetArchiveStatus(admin_service_pb2.GetArchiveStatusRequest())
    assert (status.backlog_checkpoints, status.last_error) == (0, "")
