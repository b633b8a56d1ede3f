"""The calls on the wire: each turns a request into the service's words, and its answer back.

What a call does, takes and answers stands in the contract (`proto/tuskpoint/v1`). Requests are
checked, and have their defaults, before they come here.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import aclosing
from dataclasses import asdict, dataclass, fields
from typing import TypeVar

from tuskpoint.v1 import checkpoint_service_pb2 as checkpoints_pb
from tuskpoint.v1 import handoff_service_pb2 as handoffs_pb
from tuskpoint.v1 import history_service_pb2 as history_pb
from tuskpoint.v1 import snapshot_service_pb2 as snapshots_pb
from tuskpoint.v1 import thread_service_pb2 as threads_pb

from ..domain.errors import Reason, Refusal
from ..domain.limits import LIMITS
from ..domain.lineage import Descriptor, LineageStep
from ..domain.model import Checkpoint, Durability, Source, View
from ..domain.snapshots import Snapshot
from ..domain.state import parse_object
from ..domain.threads import EventKind, PruneStrategy, ThreadState
from ..journal.checkpoints.load import ReplayQuery
from ..journal.checkpoints.threads import ThreadQuery
from ..journal.lineage.snapshots import SnapshotDraft, SnapshotQuery
from ..service.checkpoints import Checkpoints, SaveOutcome
from ..service.completing import content_bytes
from ..service.handoffs import Handoffs
from ..service.history import Delivery, History
from ..service.snapshots import Snapshots
from ..service.threads import Threads
from . import convert
from .calls import Call, endless
from .chunks import Cutter, whole
from .convert import number
from .save_stream import SaveStream, save_response, writes_response

PROGRESS_SECONDS = 15.0  # longest silence of a watch that does not say

FrameT = TypeVar("FrameT")


def _frames(frame: Callable[..., FrameT], loaded: Checkpoint) -> Iterator[FrameT]:
    """Yield the frames of one checkpoint: the message that begins it, and its chunks."""
    cutter = Cutter()
    yield frame(checkpoint=convert.checkpoint_header(loaded, cutter))
    for chunk in cutter.chunks():
        yield frame(chunk=chunk)


@dataclass(frozen=True, slots=True)
class CheckpointServicer:
    """`CheckpointService`: saves checkpoints and pending writes, and loads them exactly."""

    _checkpoints: Checkpoints

    async def SaveCheckpoint(
        self, request: checkpoints_pb.SaveCheckpointRequest, call: Call
    ) -> checkpoints_pb.SaveCheckpointResponse:
        outcome = await self._checkpoints.save(call.tenant, convert.checkpoint_draft(request))
        return save_response(await self._reached(outcome, request, call))

    def SaveCheckpoints(
        self, requests: AsyncIterator[checkpoints_pb.SaveCheckpointsRequest], call: Call
    ) -> AsyncIterator[checkpoints_pb.SaveCheckpointsResponse]:
        return SaveStream(self._checkpoints, call).answers(requests)

    async def SaveWrites(
        self, request: checkpoints_pb.SaveWritesRequest, call: Call
    ) -> checkpoints_pb.SaveWritesResponse:
        key, writes = convert.key(request.ref), convert.write_drafts(request.writes, iter(()))
        wanted = Durability(request.durability)
        outcome = await self._checkpoints.save_writes(call.tenant, key, writes, wanted)
        return writes_response(await self._reached(outcome, request, call))

    async def SetLabel(
        self, request: checkpoints_pb.SetLabelRequest, call: Call
    ) -> checkpoints_pb.SetLabelResponse:
        key = convert.key(request.ref)
        outcome = await self._checkpoints.set_label(call.tenant, key, request.label)
        outcome = await self._reached(outcome, request, call)
        return checkpoints_pb.SetLabelResponse(
            ref=convert.ref(outcome.saved.key),
            seq=outcome.saved.seq,
            durability=number(outcome.durability),
        )

    async def GetCheckpoint(
        self, request: checkpoints_pb.GetCheckpointRequest, call: Call
    ) -> checkpoints_pb.GetCheckpointResponse:
        loaded = await self._load(request, call)
        size = content_bytes(loaded)
        if size <= LIMITS.max_unary:
            message = convert.checkpoint(loaded, whole())
            size = message.ByteSize()
        if size > LIMITS.max_unary:
            raise Refusal(Reason.CHECKPOINT_TOO_LARGE, size_bytes=size, maximum=LIMITS.max_unary)
        return checkpoints_pb.GetCheckpointResponse(checkpoint=message)

    async def LoadCheckpoint(
        self, request: checkpoints_pb.LoadCheckpointRequest, call: Call
    ) -> AsyncIterator[checkpoints_pb.LoadCheckpointResponse]:
        loaded = await self._load(request, call)
        for frame in _frames(checkpoints_pb.LoadCheckpointResponse, loaded):
            yield frame

    async def ListCheckpoints(
        self, request: checkpoints_pb.ListCheckpointsRequest, call: Call
    ) -> AsyncIterator[checkpoints_pb.ListCheckpointsResponse]:
        query, view = convert.checkpoint_query(request), View(request.view)
        limit = request.limit if request.HasField("limit") else None
        source = Source(request.source)
        async for loaded in self._checkpoints.list(call.tenant, query, view, source, limit):
            for frame in _frames(checkpoints_pb.ListCheckpointsResponse, loaded):
                yield frame

    async def GetDeltaHistory(
        self, request: checkpoints_pb.GetDeltaHistoryRequest, call: Call
    ) -> AsyncIterator[checkpoints_pb.GetDeltaHistoryResponse]:
        key = convert.key(request.ref)
        for history in await self._checkpoints.delta_history(call.tenant, key, request.channels):
            for frame in convert.history_frames(history):
                yield frame

    async def _load(
        self,
        request: checkpoints_pb.GetCheckpointRequest | checkpoints_pb.LoadCheckpointRequest,
        call: Call,
    ) -> Checkpoint:
        key, view, source = convert.key(request.ref), View(request.view), Source(request.source)
        return await self._checkpoints.load(call.tenant, key, view, source)

    async def _reached(
        self,
        outcome: SaveOutcome,
        request: checkpoints_pb.SaveCheckpointRequest
        | checkpoints_pb.SaveWritesRequest
        | checkpoints_pb.SetLabelRequest,
        call: Call,
    ) -> SaveOutcome:
        wanted = Durability(request.durability)
        return await self._checkpoints.reach(call.tenant, outcome, wanted)


@dataclass(frozen=True, slots=True)
class ThreadServicer:
    """`ThreadService`: looks after whole threads."""

    _threads: Threads
    _checkpoints: Checkpoints

    async def GetThread(
        self, request: threads_pb.GetThreadRequest, call: Call
    ) -> threads_pb.GetThreadResponse:
        detail = await self._threads.get(call.tenant, request.thread_id)
        return threads_pb.GetThreadResponse(thread=convert.thread_detail(detail))

    async def ListThreads(
        self, request: threads_pb.ListThreadsRequest, call: Call
    ) -> threads_pb.ListThreadsResponse:
        state = ThreadState(request.state) if request.state else None
        query = ThreadQuery(request.agent_id, request.label, state)
        page = await self._threads.list(call.tenant, query, request.page_size, request.page_token)
        return threads_pb.ListThreadsResponse(
            threads=map(convert.thread, page.items), next_page_token=page.next_token
        )

    async def DeleteThread(
        self, request: threads_pb.DeleteThreadRequest, call: Call
    ) -> threads_pb.DeleteThreadResponse:
        wanted = Durability(request.durability)
        removed = await self._threads.delete(call.tenant, request.thread_id, wanted)
        return threads_pb.DeleteThreadResponse(
            deleted_checkpoints=removed.deleted, durability=request.durability
        )

    async def SetRetention(
        self, request: threads_pb.SetRetentionRequest, call: Call
    ) -> threads_pb.SetRetentionResponse:
        seconds, wanted = request.retention.seconds, Durability(request.durability)
        await self._threads.set_retention(call.tenant, request.thread_id, seconds, wanted)
        return threads_pb.SetRetentionResponse(durability=request.durability)

    async def SetSearchable(
        self, request: threads_pb.SetSearchableRequest, call: Call
    ) -> threads_pb.SetSearchableResponse:
        searchable, wanted = request.searchable, Durability(request.durability)
        await self._threads.set_searchable(call.tenant, request.thread_id, searchable, wanted)
        return threads_pb.SetSearchableResponse(durability=request.durability)

    async def CopyThread(
        self, request: threads_pb.CopyThreadRequest, call: Call
    ) -> threads_pb.CopyThreadResponse:
        source, target = request.source_thread_id, request.target_thread_id
        wanted = Durability(request.durability)
        copied = await self._threads.copy(call.tenant, source, target, request.request_id, wanted)
        return threads_pb.CopyThreadResponse(
            copied_checkpoints=copied, durability=request.durability
        )

    async def PruneThreads(
        self, request: threads_pb.PruneThreadsRequest, call: Call
    ) -> threads_pb.PruneThreadsResponse:
        everything = request.strategy == threads_pb.PRUNE_STRATEGY_DELETE_ALL
        strategy = PruneStrategy.DELETE_ALL if everything else PruneStrategy.KEEP_LATEST
        wanted = Durability(request.durability)
        removed = await self._threads.prune(call.tenant, request.thread_ids, strategy, wanted)
        return threads_pb.PruneThreadsResponse(
            deleted_checkpoints=removed.deleted, durability=request.durability
        )

    async def DeleteRuns(
        self, request: threads_pb.DeleteRunsRequest, call: Call
    ) -> threads_pb.DeleteRunsResponse:
        wanted = Durability(request.durability)
        removed = await self._threads.delete_runs(call.tenant, request.run_ids, wanted)
        return threads_pb.DeleteRunsResponse(
            deleted_checkpoints=removed.deleted, durability=request.durability
        )

    async def ForkThread(
        self, request: threads_pb.ForkThreadRequest, call: Call
    ) -> threads_pb.ForkThreadResponse:
        key, target = convert.key(request.ref), request.new_thread_id
        wanted = Durability(request.durability)
        made = await self._threads.fork(call.tenant, key, target, request.request_id, wanted)
        return threads_pb.ForkThreadResponse(
            ref=convert.ref(made),
            forked_from=f"{request.ref.thread_id}:{made.checkpoint_id}",
            durability=request.durability,
        )

    async def RollbackThread(
        self, request: threads_pb.RollbackThreadRequest, call: Call
    ) -> threads_pb.RollbackThreadResponse:
        earlier, wanted = convert.key(request.ref), Durability(request.durability)
        head = request.expected_head if request.HasField("expected_head") else None
        made = await self._threads.rollback(call.tenant, earlier, request.request_id, head, wanted)
        return threads_pb.RollbackThreadResponse(
            ref=convert.ref(made), rolled_back_from=str(earlier), durability=request.durability
        )

    async def GetLineage(
        self, request: threads_pb.GetLineageRequest, call: Call
    ) -> threads_pb.GetLineageResponse:
        tree = await self._threads.lineage(call.tenant, request.thread_id)
        return threads_pb.GetLineageResponse(
            ancestors=map(_lineage_step, tree.ancestors),
            descendants=map(_lineage_step, tree.descendants),
            truncated=tree.truncated,
        )

    async def DiffCheckpoints(
        self, request: threads_pb.DiffCheckpointsRequest, call: Call
    ) -> threads_pb.DiffCheckpointsResponse:
        before, after = convert.key(getattr(request, "from")), convert.key(request.to)
        found = await self._checkpoints.diff(call.tenant, before, after, request.max_changes)
        changes = [
            threads_pb.Change(
                kind=number(change.kind),
                channel=change.channel,
                path=change.path,
                from_json=change.before,
                to_json=change.after,
            )
            for change in found.changes
        ]
        return threads_pb.DiffCheckpointsResponse(changes=changes, truncated=found.truncated)

    async def VerifyThread(
        self, request: threads_pb.VerifyThreadRequest, call: Call
    ) -> AsyncIterator[threads_pb.VerifyThreadResponse]:
        async with aclosing(self._threads.verify(call.tenant, request.thread_id)) as found:
            async for one in found:
                if call.draining.is_set():
                    raise Refusal(Reason.DRAINING)
                yield convert.verification_frame(one)

    async def GetManifest(
        self, request: threads_pb.GetManifestRequest, call: Call
    ) -> threads_pb.GetManifestResponse:
        thread_id, size, token = request.thread_id, request.page_size, request.page_token
        found = self._threads.manifest(call.tenant, thread_id, size, token, store=request.store)
        return convert.manifest_response(await found)


def _lineage_step(step: LineageStep) -> threads_pb.LineageStep:
    return threads_pb.LineageStep(
        kind=number(step.descent),
        to=convert.ref(step.key),
        create_time=convert.timestamp(step.created_us),
        **{"from": convert.ref(step.origin)},  # a keyword of Python
    )


@dataclass(frozen=True, slots=True)
class HistoryServicer:
    """`HistoryService`: streams what happened on threads."""

    _history: History

    async def ReplayThread(
        self, request: history_pb.ReplayThreadRequest, call: Call
    ) -> AsyncIterator[history_pb.ReplayThreadResponse]:
        query = ReplayQuery(
            request.thread_id,
            request.checkpoint_ns if request.HasField("checkpoint_ns") else None,
            request.from_checkpoint_id,
            request.to_checkpoint_id,
        )
        view, source = View(request.view), Source(request.source)
        async with aclosing(self._history.replay(call.tenant, query, view, source)) as checkpoints:
            async for loaded in checkpoints:
                for frame in _frames(history_pb.ReplayThreadResponse, loaded):
                    yield frame

    @endless
    async def WatchThread(
        self, request: history_pb.WatchThreadRequest, call: Call
    ) -> AsyncIterator[history_pb.WatchThreadResponse]:
        view, kinds = View(request.view), [EventKind(kind) for kind in request.kinds]
        progress_s = PROGRESS_SECONDS
        if request.HasField("progress_interval"):
            progress_s = request.progress_interval.ToNanoseconds() / 1e9
        deliveries = self._history.watch(
            call.tenant, request.thread_id, request.cursor, kinds, view, progress_s
        )
        async with aclosing(deliveries) as coming:
            async for delivery in coming:
                cutter = Cutter()
                yield history_pb.WatchThreadResponse(event=_event(delivery, cutter))
                for chunk in cutter.chunks():
                    yield history_pb.WatchThreadResponse(chunk=chunk)


def _event(delivery: Delivery, cutter: Cutter) -> history_pb.ThreadEvent:
    event = delivery.event
    message = history_pb.ThreadEvent(
        kind=number(event.kind),
        cursor=delivery.cursor,
        seq=event.seq,
        incarnation=event.incarnation,
        deleted_checkpoints=event.deleted,
        time=convert.timestamp(event.created_us),
    )
    if delivery.checkpoint is not None:
        message.checkpoint.CopyFrom(convert.checkpoint_header(delivery.checkpoint, cutter))
    elif event.key.checkpoint_id:
        message.checkpoint.ref.CopyFrom(convert.ref(event.key))
    return message


@dataclass(frozen=True, slots=True)
class HandoffServicer:
    """`HandoffService`: hands checkpoints off, and adopts them."""

    _handoffs: Handoffs

    async def CreateHandoff(
        self, request: handoffs_pb.CreateHandoffRequest, call: Call
    ) -> handoffs_pb.CreateHandoffResponse:
        descriptor = await self._handoffs.create(
            call.tenant, convert.key(request.ref), request.to_agent, request.request_id
        )
        return handoffs_pb.CreateHandoffResponse(
            descriptor=handoffs_pb.HandoffDescriptor(**asdict(descriptor))
        )

    async def AdoptHandoff(
        self, request: handoffs_pb.AdoptHandoffRequest, call: Call
    ) -> AsyncIterator[handoffs_pb.AdoptHandoffResponse]:
        named = request.descriptor
        descriptor = Descriptor(*(getattr(named, field.name) for field in fields(Descriptor)))
        target, wanted = request.new_thread_id, Durability(request.durability)
        steps = self._handoffs.adopt(call.tenant, descriptor, target, request.request_id, wanted)
        async with aclosing(steps):
            async for step in steps:
                frame = handoffs_pb.AdoptHandoffResponse(
                    stage=number(step.stage), fetched_bytes=step.fetched_bytes
                )
                if (adopted := step.adopted) is not None:
                    frame.durability = request.durability
                    frame.adoption.MergeFrom(
                        handoffs_pb.Adoption(
                            adopted_from=named.source,
                            new_thread_id=adopted.key.thread_id,
                            checkpoint_id=adopted.key.checkpoint_id,
                            blob_id=adopted.blob_id,
                            verified=True,
                        )
                    )
                yield frame


@dataclass(frozen=True, slots=True)
class SnapshotServicer:
    """`SnapshotService`: captures several threads together."""

    _snapshots: Snapshots

    async def CreateSnapshot(
        self, request: snapshots_pb.CreateSnapshotRequest, call: Call
    ) -> snapshots_pb.CreateSnapshotResponse:
        parse_object(request.metadata_json, "metadata_json")
        draft = SnapshotDraft(
            tuple(request.thread_ids),
            request.session_id,
            request.hostname,
            request.working_directory,
            request.metadata_json or b"{}",
        )
        wanted = Durability(request.durability)
        created = await self._snapshots.create(call.tenant, draft, request.request_id, wanted)
        return snapshots_pb.CreateSnapshotResponse(
            snapshot=_snapshot(created), durability=request.durability
        )

    async def GetSnapshot(
        self, request: snapshots_pb.GetSnapshotRequest, call: Call
    ) -> snapshots_pb.GetSnapshotResponse:
        found = await self._snapshots.get(call.tenant, request.snapshot_id)
        return snapshots_pb.GetSnapshotResponse(snapshot=_snapshot(found))

    async def GetLatestSnapshot(
        self, request: snapshots_pb.GetLatestSnapshotRequest, call: Call
    ) -> snapshots_pb.GetLatestSnapshotResponse:
        found = await self._snapshots.latest(call.tenant, _snapshot_query(request))
        return snapshots_pb.GetLatestSnapshotResponse(snapshot=_snapshot(found))

    async def ListSnapshots(
        self, request: snapshots_pb.ListSnapshotsRequest, call: Call
    ) -> snapshots_pb.ListSnapshotsResponse:
        query, size, token = _snapshot_query(request), request.page_size, request.page_token
        page = await self._snapshots.list(call.tenant, query, size, token)
        return snapshots_pb.ListSnapshotsResponse(
            snapshots=map(_snapshot, page.items), next_page_token=page.next_token
        )

    async def RestoreSnapshot(
        self, request: snapshots_pb.RestoreSnapshotRequest, call: Call
    ) -> snapshots_pb.RestoreSnapshotResponse:
        restored = await self._snapshots.restore(
            call.tenant,
            request.snapshot_id,
            rollback=request.mode == snapshots_pb.RESTORE_MODE_ROLLBACK,
            request_id=request.request_id,
            wanted=Durability(request.durability),
        )
        return snapshots_pb.RestoreSnapshotResponse(
            restored=map(convert.ref, restored), durability=request.durability
        )

    async def DeleteSnapshot(
        self, request: snapshots_pb.DeleteSnapshotRequest, call: Call
    ) -> snapshots_pb.DeleteSnapshotResponse:
        wanted = Durability(request.durability)
        deleted = await self._snapshots.delete(call.tenant, request.snapshot_id, wanted)
        return snapshots_pb.DeleteSnapshotResponse(deleted=deleted, durability=request.durability)


def _snapshot_query(
    request: snapshots_pb.GetLatestSnapshotRequest | snapshots_pb.ListSnapshotsRequest,
) -> SnapshotQuery:
    return SnapshotQuery(request.session_id, request.hostname, request.working_directory)


def _snapshot(snapshot: Snapshot) -> snapshots_pb.Snapshot:
    message = snapshots_pb.Snapshot(
        metadata_json=snapshot.metadata,
        members=map(convert.ref, snapshot.members),
        create_time=convert.timestamp(snapshot.created_us),
    )
    return convert.filled(message, snapshot)
