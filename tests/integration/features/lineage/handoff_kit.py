"""Short functions to hand off and adopt, and to compare threads."""

from __future__ import annotations

import base64
import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.kit.databases import rows_of_server
from tests.kit.messages import (
    FIRST,
    SECOND,
    THREAD,
    ReportedError,
    channel,
    collect,
    exchanged,
    frames,
    incompressible,
    ref,
    refused,
    write,
)
from tuskpoint.v1 import admin_service_pb2, checkpoint_pb2, value_pb2
from tuskpoint.v1 import checkpoint_service_pb2 as cpb
from tuskpoint.v1 import handoff_service_pb2 as pb
from tuskpoint.v1 import thread_service_pb2 as tpb
from tuskpoint.v1.admin_service_pb2_grpc import AdminServiceStub
from tuskpoint.v1.checkpoint_service_pb2_grpc import CheckpointServiceStub
from tuskpoint.v1.effect_service_pb2_grpc import EffectServiceStub
from tuskpoint.v1.handoff_service_pb2_grpc import HandoffServiceStub
from tuskpoint.v1.thread_service_pb2_grpc import ThreadServiceStub
from tuskpoint_server.archive.formats.segment_reading import decode_segment
from tuskpoint_server.archive.formats.segments import Segment

if TYPE_CHECKING:
    import grpc

    from tuskpoint.v1.admin_service_pb2_grpc import AdminServiceAsyncStub
    from tuskpoint.v1.checkpoint_service_pb2_grpc import CheckpointServiceAsyncStub
    from tuskpoint.v1.effect_service_pb2_grpc import EffectServiceAsyncStub
    from tuskpoint.v1.handoff_service_pb2_grpc import HandoffServiceAsyncStub
    from tuskpoint.v1.thread_service_pb2_grpc import ThreadServiceAsyncStub

JOURNALED = checkpoint_pb2.DURABILITY_JOURNALED
CERTIFIED = checkpoint_pb2.DURABILITY_CERTIFIED

ZEROTH = "1f000000-0000-6000-8000-000000000000"
SUBGRAPH = "agent:9f9a3d1c"
SUBGRAPH_ID = "1f000000-0000-6000-8000-000000000003"


@dataclass(frozen=True)
class Side:
    """A server, the directories of its data, and short functions to call it."""

    data_dir: Path
    blobs: Path
    checkpoints: CheckpointServiceAsyncStub
    threads: ThreadServiceAsyncStub
    handoffs: HandoffServiceAsyncStub
    admin: AdminServiceAsyncStub
    effects: EffectServiceAsyncStub

    @classmethod
    def at(cls, channel: grpc.aio.Channel, data_dir: Path, blobs: Path) -> Side:
        return cls(
            data_dir,
            blobs,
            CheckpointServiceStub(channel),
            ThreadServiceStub(channel),
            HandoffServiceStub(channel),
            AdminServiceStub(channel),
            EffectServiceStub(channel),
        )

    async def hand_off(self, checkpoint_id: str = SECOND, **fields: Any) -> pb.HandoffDescriptor:
        fields.setdefault("ref", ref(checkpoint_id))
        answer = await self.handoffs.CreateHandoff(pb.CreateHandoffRequest(**fields))
        return answer.descriptor

    async def adopt(
        self, descriptor: pb.HandoffDescriptor, new_thread_id: str = "adopted", **fields: Any
    ) -> list[pb.AdoptHandoffResponse]:
        return [frame async for frame in self.adopting(descriptor, new_thread_id, **fields)]

    def adopting(
        self, descriptor: pb.HandoffDescriptor, new_thread_id: str = "adopted", **fields: Any
    ) -> Any:
        return self.handoffs.AdoptHandoff(
            pb.AdoptHandoffRequest(descriptor=descriptor, new_thread_id=new_thread_id, **fields)
        )

    async def refuses(
        self, descriptor: pb.HandoffDescriptor, new_thread_id: str = "adopted", **fields: Any
    ) -> ReportedError:
        """Adopt a descriptor that must be refused, and check that nothing is written."""
        before = await self.written()
        reported = await refused(self.adopting(descriptor, new_thread_id, **fields))
        assert await self.written() == before
        return reported

    async def written(self) -> tuple[list[str], int]:
        """Return the number of threads, and of checkpoints in all threads."""
        listed = await self.threads.ListThreads(tpb.ListThreadsRequest())
        everything = await collect(self.checkpoints.ListCheckpoints(cpb.ListCheckpointsRequest()))
        return [thread.thread_id for thread in listed.threads], len(everything)

    async def load(
        self, checkpoint_id: str = "", thread_id: str = THREAD, ns: str = "", **fields: Any
    ) -> checkpoint_pb2.Checkpoint:
        request = cpb.LoadCheckpointRequest(ref=ref(checkpoint_id, thread_id, ns), **fields)
        [checkpoint] = await collect(self.checkpoints.LoadCheckpoint(request))
        return checkpoint

    async def listed(self, thread_id: str) -> list[checkpoint_pb2.Checkpoint]:
        request = cpb.ListCheckpointsRequest(thread_id=thread_id)
        return await collect(self.checkpoints.ListCheckpoints(request))

    async def history(
        self, checkpoint_id: str, thread_id: str, *names: str
    ) -> list[cpb.GetDeltaHistoryResponse]:
        request = cpb.GetDeltaHistoryRequest(ref=ref(checkpoint_id, thread_id), channels=names)
        return [frame async for frame in self.checkpoints.GetDeltaHistory(request)]

    async def flush(self) -> None:
        await self.admin.Flush(admin_service_pb2.FlushRequest())


def saving(
    checkpoint_id: str,
    channels: list[value_pb2.Channel],
    *,
    ns: str = "",
    parent: str = "",
    metadata: bytes = b"{}",
    delta: tuple[str, ...] = (),
    writes: tuple[value_pb2.PendingWrite, ...] = (),
    thread_id: str = THREAD,
    **fields: Any,
) -> cpb.SaveCheckpointRequest:
    state = checkpoint_pb2.CheckpointState(
        schema_version=4,
        ts="2026-01-01T00:00:00+00:00",
        channels=channels,
        delta_channels=delta,
    )
    state.versions_seen["agent"].channels["messages"].text = "1"
    return cpb.SaveCheckpointRequest(
        checkpoint=checkpoint_pb2.Checkpoint(
            ref=ref(checkpoint_id, thread_id, ns),
            parent_checkpoint_id=parent,
            state=state,
            metadata_json=metadata,
            **fields,
        ),
        writes=writes,
    )


async def save_run(side: Side, size: int = 0) -> None:
    """Save a run that waits in its second step, inside a subgraph.

    Its delta channel `log` has a value at the checkpoint before the first step, and later writes.
    `size` is the number of bytes of an incompressible value.
    """
    metadata = b'{"source": "loop",  "step": 2, "parents": {}}'
    requests = [
        saving(ZEROTH, [channel("log", b"seed")], delta=("log",), writes=(write("t0", "log"),)),
        saving(
            FIRST,
            [channel("messages", b"first")],
            parent=ZEROTH,
            delta=("log",),
            writes=(write("t1", "log"),),
        ),
        saving(
            SECOND,
            [
                channel("messages", b"second", version=value_pb2.Version(text="2")),
                channel("large", large=value_pb2.LargeValue(type="bytes", size_bytes=size)),
                channel("hollow", empty=value_pb2.Empty()),
            ],
            parent=FIRST,
            metadata=metadata,
            delta=("log",),
            writes=(
                write("agent", "__interrupt__", value=value_pb2.Value(type="msgpack", data=b"?")),
                write("other", "messages"),
                write("other", "log"),
            ),
            label="before the answer",
            summary="Asked which of the two drafts to keep.",
        ),
        saving(
            SUBGRAPH_ID,
            [channel("inner", b"inside")],
            ns=SUBGRAPH,
            metadata=b'{"step": 0, "parents": {"": "%s"}}' % SECOND.encode(),
            writes=(write("inner-task", "inner"),),
        ),
    ]
    await save(side, requests, {SECOND: incompressible(size)})


async def save(
    side: Side, requests: list[cpb.SaveCheckpointRequest], large: dict[str, bytes]
) -> None:
    """Save checkpoints on a stream, some of them with a large value."""

    sent = []
    for number, request in enumerate(requests, 1):
        data = large.get(request.checkpoint.ref.checkpoint_id)
        sent += frames(number, request, [] if data is None else [data])
    for answer in await exchanged(side.checkpoints, sent):
        assert not answer.HasField("error"), answer.error


def content(checkpoint: checkpoint_pb2.Checkpoint) -> tuple[object, ...]:
    """Return the content of a checkpoint, without its place."""
    return (
        checkpoint.ref.checkpoint_ns,
        checkpoint.ref.checkpoint_id,
        checkpoint.state.SerializeToString(deterministic=True),
        checkpoint.metadata_json,
        checkpoint.label,
        checkpoint.summary,
        [each.SerializeToString(deterministic=True) for each in checkpoint.writes],
    )


def blob_file(side: Side, blob_id: str) -> Path:
    return side.blobs / blob_id[:2] / blob_id


def put_blob(side: Side, data: bytes) -> tuple[str, str]:
    """Put bytes into the store behind the servers' backs; return their ID and hash."""
    digest = hashlib.sha256(data).digest()
    blob_id = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
    file = blob_file(side, blob_id)
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(data)
    return blob_id, digest.hex()


def changed(descriptor: pb.HandoffDescriptor, **fields: str) -> pb.HandoffDescriptor:
    """Return a descriptor with other fields, unsigned unless the fields include a signature."""
    copy = pb.HandoffDescriptor()
    copy.CopyFrom(descriptor)
    copy.ClearField("signer")
    copy.ClearField("signature")
    for name, value in fields.items():
        setattr(copy, name, value)
    return copy


def naming(side: Side, descriptor: pb.HandoffDescriptor, data: bytes) -> pb.HandoffDescriptor:
    """Return a descriptor that leads to other bytes, with their right hash."""
    blob_id, sha256 = put_blob(side, data)
    return changed(descriptor, blob_id=blob_id, blob_sha256=sha256)


def bundle_of(side: Side, descriptor: pb.HandoffDescriptor) -> Segment:
    stored = blob_file(side, descriptor.blob_id).read_bytes()
    return decode_segment(stored, descriptor.blob_id)


def kept(side: Side) -> list[bytes]:
    """Return the hashes of the bundles whose blobs are kept."""
    return [
        row[0] for row in rows_of_server(side.data_dir, "SELECT sha256 FROM handoffs ORDER BY 1")
    ]
