"""Files of a SQLite journal are removed or replaced while a server has them open."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc  # type: ignore[import-untyped]

from tests.kit.messages import FIRST, ref, save_request
from tuskpoint.v1 import checkpoint_service_pb2 as pb
from tuskpoint.v1.checkpoint_service_pb2_grpc import CheckpointServiceStub
from tuskpoint_server.commands import serve
from tuskpoint_server.config.settings import Config

SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


def _removed(data_dir: Path) -> None:
    (data_dir / "journal.db").unlink()


def _replaced_by_a_copy(data_dir: Path) -> None:
    shutil.copy(data_dir / "journal.db", data_dir / "copy")
    (data_dir / "copy").replace(data_dir / "journal.db")


def _without_its_log(data_dir: Path) -> None:
    (data_dir / "journal.db-wal").unlink()


def _moved_away(data_dir: Path) -> None:
    data_dir.rename(data_dir.with_name("moved"))


def _moved_and_made_again(data_dir: Path) -> None:
    _moved_away(data_dir)
    shutil.copytree(data_dir.with_name("moved"), data_dir)


LOSSES = [_removed, _replaced_by_a_copy, _without_its_log, _moved_away, _moved_and_made_again]


@pytest.mark.parametrize("lose", LOSSES)
async def test_nothing_is_acknowledged_after_the_journal_is_lost(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, lose: Callable[[Path], None]
) -> None:
    config = Config(
        listen="127.0.0.1:0",
        data_dir=tmp_path / "data",
        blob_dir=tmp_path / "blobs",
        flush_interval=3600,
    )
    async with (
        serve.running_server(config) as server,
        grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel,
    ):
        stub = CheckpointServiceStub(channel)
        await stub.SaveCheckpoint(save_request())
        await stub.GetCheckpoint(pb.GetCheckpointRequest(ref=ref(FIRST)))
        before = [
            asyncio.ensure_future(stub.SaveCheckpoint(save_request(f"b{number}")))
            for number in range(20)
        ]
        await before[0]
        await asyncio.to_thread(lose, config.data_dir)
        after = [stub.SaveCheckpoint(save_request(f"c{number}")) for number in range(20)]
        for call in after:
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await call
            assert refused.value.code() is grpc.StatusCode.UNAVAILABLE
            assert "was removed or replaced while it was open" in str(refused.value.details())
            assert "data/journal.db" in str(refused.value.details())
        await asyncio.gather(*before, return_exceptions=True)
        # While the server runs, every acknowledged change is readable.
        await stub.GetCheckpoint(pb.GetCheckpointRequest(ref=ref(FIRST)))


async def test_a_server_without_calls_notices_that_its_journal_is_lost(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = Config(listen="127.0.0.1:0", data_dir=tmp_path / "data", flush_interval=3600)
    async with (
        serve.running_server(config) as server,
        grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel,
    ):
        watch = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest())
        assert (await watch.read()).status == SERVING
        await asyncio.to_thread(_removed, config.data_dir)
        assert (await watch.read()).status == NOT_SERVING
        [line] = [message for message in caplog.messages if message.startswith("not serving")]
        assert str(config.data_dir / "journal.db") in line
        watch.cancel()
