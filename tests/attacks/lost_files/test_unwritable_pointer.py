"""A server starts while its pointer file cannot be written."""

from __future__ import annotations

from pathlib import Path

import grpc

from tests.kit.messages import FIRST, ref, save_request
from tuskpoint.v1 import admin_service_pb2 as admin
from tuskpoint.v1 import checkpoint_service_pb2 as pb
from tuskpoint.v1.admin_service_pb2_grpc import AdminServiceStub
from tuskpoint.v1.checkpoint_service_pb2_grpc import CheckpointServiceStub
from tuskpoint_server.commands import serve
from tuskpoint_server.config.settings import Config


async def test_a_server_starts_and_writes_the_pointer_once_it_can(tmp_path: Path) -> None:
    config = Config(
        listen="127.0.0.1:0",
        data_dir=tmp_path / "data",
        catalog_pointer=tmp_path / "elsewhere" / "catalog",
        flush_interval=3600,
    )
    request = pb.GetCheckpointRequest(ref=ref(FIRST))
    async with (
        serve.running_server(config) as server,
        grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel,
    ):
        await CheckpointServiceStub(channel).SaveCheckpoint(save_request(durability=2))
    newest = config.pointer.read_text(encoding="utf-8")
    config.pointer.unlink()
    config.pointer.parent.rmdir()
    config.pointer.parent.write_text("not a directory", encoding="utf-8")
    async with (
        serve.running_server(config) as server,
        grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel,
    ):
        service = AdminServiceStub(channel)
        await CheckpointServiceStub(channel).GetCheckpoint(request)
        await service.Flush(admin.FlushRequest())
        status = await service.GetArchiveStatus(admin.GetArchiveStatusRequest())
        assert status.last_error.startswith("the pointer file cannot be written")
        config.pointer.parent.unlink()
        await service.Flush(admin.FlushRequest())
        assert config.pointer.read_text(encoding="utf-8") == newest
        status = await service.GetArchiveStatus(admin.GetArchiveStatusRequest())
        assert status.last_error == ""
