"""`VerifyThread` over the network sends a verdict on each checkpoint, then the total."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import grpc
import pytest

from tests.kit.blobs.member_file import MemberFile, blob_path
from tests.kit.messages import THREAD, channel, refused, save_request, write
from tuskpoint.v1 import admin_service_pb2
from tuskpoint.v1 import checkpoint_service_pb2 as cpb
from tuskpoint.v1 import thread_service_pb2 as pb
from tuskpoint_server.config.settings import Config

if TYPE_CHECKING:
    from tuskpoint.v1 import checkpoint_pb2
    from tuskpoint.v1.admin_service_pb2_grpc import AdminServiceAsyncStub
    from tuskpoint.v1.checkpoint_service_pb2_grpc import CheckpointServiceAsyncStub
    from tuskpoint.v1.thread_service_pb2_grpc import ThreadServiceAsyncStub

LENGTH = 6


def name(number: int) -> str:
    return f"1f000000-0000-6000-8000-{number:012}"


def step(number: int) -> cpb.SaveCheckpointRequest:
    return save_request(
        name(number),
        [channel("value", b"value %d" % number)],
        parent=name(number - 1) if number else "",
        writes=[write()],
    )


async def flush(admin: AdminServiceAsyncStub) -> None:
    await admin.Flush(admin_service_pb2.FlushRequest())


@pytest.fixture
async def thread(checkpoints: CheckpointServiceAsyncStub, admin: AdminServiceAsyncStub) -> None:
    """A thread whose every checkpoint was certified in its own flush."""
    for number in range(LENGTH):
        await checkpoints.SaveCheckpoint(step(number))
        await flush(admin)


@pytest.fixture
def blobs(config: Config) -> Path:
    return config.data_dir / "blobs"


@dataclass(frozen=True)
class Verified:
    """All frames of a `VerifyThread` stream."""

    verdicts: list[pb.CheckpointVerdict]
    total: pb.VerificationTotal

    @property
    def kinds(self) -> dict[str, str]:
        """Verdicts without their prefix, by checkpoint ID."""
        return {
            verdict.ref.checkpoint_id: pb.Verdict.Name(verdict.verdict).removeprefix("VERDICT_")
            for verdict in self.verdicts
        }


async def verified(threads: ThreadServiceAsyncStub) -> Verified:
    request = pb.VerifyThreadRequest(thread_id=THREAD)
    *frames, last = [frame async for frame in threads.VerifyThread(request)]
    assert all(frame.HasField("verdict") for frame in frames)
    assert last.HasField("total")
    outcome = Verified([frame.verdict for frame in frames], last.total)
    kinds, total = list(outcome.kinds.values()), outcome.total
    assert [total.passed, total.failed, total.unverified, total.retracted] == [
        kinds.count(kind) for kind in ("PASS", "FAIL", "UNVERIFIED", "RETRACTED")
    ]
    assert total.ok == (total.passed > 0 and not total.failed and not total.chain_detail)
    return outcome


async def segment_of(
    threads: ThreadServiceAsyncStub, checkpoint_id: str
) -> checkpoint_pb2.BlobLocation:
    entries = (await threads.GetManifest(pb.GetManifestRequest(thread_id=THREAD))).entries
    [segment] = [entry.segment for entry in entries if entry.checkpoint_id == checkpoint_id]
    return segment


@pytest.mark.usefixtures("thread")
async def test_an_intact_thread_passes(
    checkpoints: CheckpointServiceAsyncStub, threads: ThreadServiceAsyncStub
) -> None:
    outcome = await verified(threads)
    assert outcome.total == pb.VerificationTotal(ok=True, passed=LENGTH)
    assert list(outcome.kinds) == [name(number) for number in range(LENGTH)]
    for verdict in outcome.verdicts:
        assert verdict.actual_sha256 == verdict.location.sha256 != b""
    assert outcome.verdicts[3].location == await segment_of(threads, name(3))
    await checkpoints.SaveCheckpoint(step(LENGTH))
    assert (await verified(threads)).kinds[name(LENGTH)] == "UNVERIFIED"


@pytest.mark.usefixtures("thread")
async def test_a_damaged_segment_fails_with_both_hashes(
    threads: ThreadServiceAsyncStub, blobs: Path
) -> None:
    location = await segment_of(threads, name(2))
    stored = MemberFile.at(blobs, location)
    stored.flip()
    outcome = await verified(threads)
    assert outcome.kinds[name(2)] == "FAIL"
    assert outcome.verdicts[2].location == location
    assert outcome.verdicts[2].actual_sha256 == hashlib.sha256(stored.read_bytes()).digest()
    assert not outcome.total.ok


@pytest.mark.usefixtures("thread")
async def test_a_damaged_way_to_the_manifest_is_reported(
    threads: ThreadServiceAsyncStub, admin: AdminServiceAsyncStub, blobs: Path
) -> None:
    request = admin_service_pb2.GetArchiveStatusRequest()
    catalog = (await admin.GetArchiveStatus(request)).catalog
    MemberFile.at(blobs, catalog).flip()
    outcome = await verified(threads)
    assert catalog.blob_id in outcome.total.chain_detail
    assert not outcome.total.ok
    assert set(outcome.kinds.values()) == {"PASS"}


async def test_a_thread_that_is_not_there(
    checkpoints: CheckpointServiceAsyncStub, threads: ThreadServiceAsyncStub
) -> None:
    request = pb.VerifyThreadRequest(thread_id=THREAD)
    assert (await refused(threads.VerifyThread(request))).reason == "THREAD_NOT_FOUND"
    await checkpoints.SaveCheckpoint(step(0))
    await threads.DeleteThread(pb.DeleteThreadRequest(thread_id=THREAD))
    reported = await refused(threads.VerifyThread(request))
    assert (reported.code, reported.reason) == (grpc.StatusCode.NOT_FOUND, "THREAD_NOT_FOUND")
    nameless = pb.VerifyThreadRequest()
    assert (await refused(threads.VerifyThread(nameless))).fields == ("thread_id",)


@pytest.mark.usefixtures("thread")
async def test_a_store_that_cannot_be_read_gives_no_total(
    threads: ThreadServiceAsyncStub, blobs: Path
) -> None:
    path = blob_path(blobs, (await segment_of(threads, name(2))).blob_id)
    path.unlink()
    path.mkdir()  # reading a directory is an error that says nothing about the stored bytes
    seen: list[pb.VerifyThreadResponse] = []

    async def read() -> None:
        request = pb.VerifyThreadRequest(thread_id=THREAD)
        seen.extend([frame async for frame in threads.VerifyThread(request)])

    reported = await refused(read())
    assert (reported.code, reported.reason) == (grpc.StatusCode.UNAVAILABLE, "BLOB_UNAVAILABLE")
    assert not any(frame.HasField("total") for frame in seen)
