"""On a full or broken disk, saves are refused with the reason, and nothing is lost."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path

import grpc
import pytest

from tests.kit.messages import channel, incompressible, ref, save_request
from tests.soak.machine import Disk, LeftOutError, SoakServer
from tuskpoint.v1.admin_service_pb2 import FlushRequest, GetArchiveStatusRequest
from tuskpoint.v1.admin_service_pb2_grpc import AdminServiceStub
from tuskpoint.v1.checkpoint_service_pb2 import GetCheckpointRequest
from tuskpoint.v1.checkpoint_service_pb2_grpc import CheckpointServiceStub

pytestmark = pytest.mark.crash

VALUE_BYTES = 200_000
MOST_SAVES = 1000
SECONDS = 30.0


class Saves:
    """Saves checkpoints of one thread, one after another."""

    def __init__(self, stub: CheckpointServiceStub) -> None:
        self._stub = stub
        self.acknowledged: list[str] = []

    def save(self) -> None:
        """Save the next checkpoint."""
        checkpoint_id = f"{len(self.acknowledged):06}"
        value = incompressible(VALUE_BYTES, checkpoint_id)
        self._stub.SaveCheckpoint(
            save_request(checkpoint_id, [channel("value", value)]), timeout=SECONDS
        )
        self.acknowledged.append(checkpoint_id)

    def save_until_refused(self) -> grpc.RpcError:
        """Save until a save is refused; return the refusal."""
        for _ in range(MOST_SAVES):
            try:
                self.save()
            except grpc.RpcError as error:
                return error
        pytest.fail("no save was refused")

    def check(self) -> None:
        """Load every acknowledged checkpoint."""
        for checkpoint_id in self.acknowledged:
            request = GetCheckpointRequest(ref=ref(checkpoint_id))
            checkpoint = self._stub.GetCheckpoint(request, timeout=SECONDS).checkpoint
            value = incompressible(VALUE_BYTES, checkpoint_id)
            assert checkpoint.state.channels[0].value.data == value


@pytest.fixture
def opened() -> Iterator[ExitStack]:
    with ExitStack() as opened:
        yield opened


def test_a_full_disk_refuses_saves_and_heals(tmp_path: Path, opened: ExitStack) -> None:
    disk = Disk(tmp_path / "data")
    try:
        opened.enter_context(disk.mounted())
    except LeftOutError as reason:
        pytest.skip(str(reason))
    check_healing(opened, SoakServer(tmp_path, {}), disk.full, "SQLITE_FULL")


@pytest.mark.parametrize("way", ["stop", "kill"])
def test_a_start_on_a_full_disk_serves_reads(tmp_path: Path, opened: ExitStack, way: str) -> None:
    disk = Disk(tmp_path / "data")
    try:
        opened.enter_context(disk.mounted())
    except LeftOutError as reason:
        pytest.skip(str(reason))
    server = opened.enter_context(SoakServer(tmp_path, {}))
    link = opened.enter_context(grpc.insecure_channel(server.target))
    saves = Saves(CheckpointServiceStub(link))
    server.start()
    saves.save()
    AdminServiceStub(link).Flush(FlushRequest(), timeout=SECONDS)
    saves.save()
    for _ in range(2):  # The next start must have the space that this start used.
        server.stop() if way == "stop" else server.kill()
        with disk.full():
            server.start()
            saves.check()
            refusal = saves.save_until_refused()
            assert "SQLITE_FULL" in str(refusal.details())
            server.stop() if way == "stop" else server.kill()
            server.start()
            saves.check()
        saves.save()
        AdminServiceStub(link).Flush(FlushRequest(), timeout=SECONDS)
    assert server.stop() == 0


def test_a_broken_disk_refuses_saves_and_heals(tmp_path: Path, opened: ExitStack) -> None:
    server = SoakServer(tmp_path, {})
    check_healing(opened, server, server.failing_writes, "SQLITE_IOERR_WRITE")


def check_healing(
    opened: ExitStack,
    server: SoakServer,
    failing: Callable[[], AbstractContextManager[None]],
    problem: str,
) -> None:
    """Check saves before, during and after a fault of the disk."""
    opened.enter_context(server)
    server.start()
    link = opened.enter_context(grpc.insecure_channel(server.target))
    saves, admin = Saves(CheckpointServiceStub(link)), AdminServiceStub(link)
    saves.save()
    with failing():
        refusal = saves.save_until_refused()
        assert refusal.code() is grpc.StatusCode.UNAVAILABLE
        assert f"the journal cannot be used ({problem}" in str(refusal.details())
        saves.check()
        with pytest.raises(grpc.RpcError) as caught:
            admin.Flush(FlushRequest(), timeout=SECONDS)
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
    saves.save()
    admin.Flush(FlushRequest(), timeout=SECONDS)
    status = admin.GetArchiveStatus(GetArchiveStatusRequest(), timeout=SECONDS)
    assert (status.backlog_checkpoints, status.last_error) == (0, "")
    saves.check()
    server.kill()
    server.start()
    saves.check()
    assert server.stop() == 0
    assert " incident " not in server.log.read_text(encoding="utf-8")
