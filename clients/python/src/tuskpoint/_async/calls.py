"""The calls of the service: contract messages in, contract messages out."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing

from .._messages.frames import CheckpointAssembler, DeltaHistoryAssembler
from .._transport import methods
from .._transport.policy import expect_absent, expect_too_large, present, with_request_id
from .._transport.resume import AdoptionStream, ReplayStream, WatchStream
from .._transport.warnings import WARNINGS
from ..errors import NotFound, PreconditionFailed
from ..v1 import admin_service_pb2 as admin
from ..v1 import checkpoint_service_pb2 as checkpoints
from ..v1 import handoff_service_pb2 as handoffs
from ..v1 import history_service_pb2 as history
from ..v1 import search_service_pb2 as search
from ..v1 import snapshot_service_pb2 as snapshots
from ..v1 import thread_service_pb2 as threads
from ..v1.checkpoint_pb2 import SOURCE_ANY, VIEW_FULL, Checkpoint, CheckpointRef, Source, View
from .transport import AsyncTransport


class AsyncCalls(AsyncTransport):
    """The calls of the service. `_transport` says how each is made."""

    async def save_checkpoint(
        self, request: checkpoints.SaveCheckpointRequest
    ) -> checkpoints.SaveCheckpointResponse:
        """Save a checkpoint of any size."""
        answer = await self._exchange(methods.SAVE_CHECKPOINT, request)
        WARNINGS.log(self.options.target, answer.warnings)
        return answer

    async def save_writes(
        self, request: checkpoints.SaveWritesRequest
    ) -> checkpoints.SaveWritesResponse:
        """Save pending writes of any size."""
        answer = await self._exchange(methods.SAVE_WRITES, request)
        WARNINGS.log(self.options.target, answer.warnings)
        return answer

    async def get_checkpoint(
        self, ref: CheckpointRef, *, view: View = VIEW_FULL, source: Source = SOURCE_ANY
    ) -> Checkpoint | None:
        """Return a checkpoint of any size, every value inline; `None` if it does not exist."""
        get = checkpoints.GetCheckpointRequest(ref=ref, view=view, source=source)
        try:
            return (await self._exchange(methods.GET_CHECKPOINT, get)).checkpoint
        except NotFound as error:
            expect_absent(error)
            return None
        except PreconditionFailed as error:
            expect_too_large(error)
        load = checkpoints.LoadCheckpointRequest(ref=ref, view=view, source=source)
        try:
            return await self._load(load)
        except NotFound as error:
            expect_absent(error)
            return None

    async def list_checkpoints(
        self, request: checkpoints.ListCheckpointsRequest
    ) -> AsyncGenerator[Checkpoint, None]:
        """Yield checkpoints, greatest ID first, every value inline."""
        assembler = CheckpointAssembler()
        async with aclosing(self._stream(methods.LIST_CHECKPOINTS, request)) as frames:
            async for frame in frames:
                complete = assembler.add(frame)
                if complete is not None:
                    yield complete
        assembler.end()

    async def get_delta_history(
        self, request: checkpoints.GetDeltaHistoryRequest
    ) -> list[checkpoints.DeltaChannelHistory]:
        """Return what rebuilds each channel, in the order in which they were asked for."""
        assembler = DeltaHistoryAssembler()
        async with aclosing(self._stream(methods.GET_DELTA_HISTORY, request)) as frames:
            async for frame in frames:
                assembler.add(frame)
        return assembler.end()

    async def set_label(self, request: checkpoints.SetLabelRequest) -> checkpoints.SetLabelResponse:
        """Set or clear the label of a checkpoint."""
        return await self._unary(methods.SET_LABEL, request)

    async def get_thread(self, request: threads.GetThreadRequest) -> threads.GetThreadResponse:
        """Describe one thread."""
        return await self._unary(methods.GET_THREAD, request)

    async def list_threads(
        self, request: threads.ListThreadsRequest
    ) -> threads.ListThreadsResponse:
        """Return one page of threads."""
        return await self._unary(methods.LIST_THREADS, request)

    async def delete_thread(
        self, request: threads.DeleteThreadRequest
    ) -> threads.DeleteThreadResponse:
        """Delete a thread and end its incarnation."""
        return await self._unary(methods.DELETE_THREAD, request)

    async def set_retention(
        self, request: threads.SetRetentionRequest
    ) -> threads.SetRetentionResponse:
        """Set how long a thread is kept."""
        return await self._unary(methods.SET_RETENTION, request)

    async def set_searchable(
        self, request: threads.SetSearchableRequest
    ) -> threads.SetSearchableResponse:
        """Set whether search finds a thread."""
        return await self._unary(methods.SET_SEARCHABLE, request)

    async def copy_thread(self, request: threads.CopyThreadRequest) -> threads.CopyThreadResponse:
        """Copy a thread; an empty `request_id` is filled in, so that retries are safe."""
        return await self._unary(methods.COPY_THREAD, with_request_id(request))

    async def prune_threads(
        self, request: threads.PruneThreadsRequest
    ) -> threads.PruneThreadsResponse:
        """Delete old checkpoints of threads."""
        return await self._unary(methods.PRUNE_THREADS, request)

    async def delete_runs(self, request: threads.DeleteRunsRequest) -> threads.DeleteRunsResponse:
        """Delete the checkpoints of runs."""
        return await self._unary(methods.DELETE_RUNS, request)

    async def fork_thread(self, request: threads.ForkThreadRequest) -> threads.ForkThreadResponse:
        """Make a thread of a checkpoint; an empty `request_id` is filled in."""
        return await self._unary(methods.FORK_THREAD, with_request_id(request))

    async def rollback_thread(
        self, request: threads.RollbackThreadRequest
    ) -> threads.RollbackThreadResponse:
        """Append an earlier state; an empty `request_id` is filled in."""
        return await self._unary(methods.ROLLBACK_THREAD, with_request_id(request))

    async def get_lineage(self, request: threads.GetLineageRequest) -> threads.GetLineageResponse:
        """Return what a thread came from, and what came from it."""
        return await self._unary(methods.GET_LINEAGE, request)

    async def diff_checkpoints(
        self, request: threads.DiffCheckpointsRequest
    ) -> threads.DiffCheckpointsResponse:
        """Compare the states of two checkpoints."""
        return await self._unary(methods.DIFF_CHECKPOINTS, request)

    def verify_thread(
        self, request: threads.VerifyThreadRequest
    ) -> AsyncGenerator[threads.VerifyThreadResponse, None]:
        """Yield a verdict per checkpoint, then the total."""
        return self._stream(methods.VERIFY_THREAD, request)

    def replay_thread(
        self, request: history.ReplayThreadRequest
    ) -> AsyncGenerator[Checkpoint, None]:
        """Yield checkpoints, smallest ID first, every value inline; go on after breaks."""
        return self._resume(methods.REPLAY_THREAD, ReplayStream(request))

    def watch_thread(
        self, request: history.WatchThreadRequest
    ) -> AsyncGenerator[history.ThreadEvent, None]:
        """Yield the events of a thread without end, every value inline; go on after breaks."""
        return self._resume(methods.WATCH_THREAD, WatchStream(request))

    async def search_checkpoints(
        self, request: search.SearchCheckpointsRequest
    ) -> search.SearchCheckpointsResponse:
        """Find checkpoints."""
        answer = await self._unary(methods.SEARCH_CHECKPOINTS, request)
        WARNINGS.log(self.options.target, answer.warnings)
        return answer

    async def create_handoff(
        self, request: handoffs.CreateHandoffRequest
    ) -> handoffs.CreateHandoffResponse:
        """Hand a checkpoint off; an empty `request_id` is filled in."""
        return await self._unary(methods.CREATE_HANDOFF, with_request_id(request))

    def adopt_handoff(
        self, request: handoffs.AdoptHandoffRequest
    ) -> AsyncGenerator[handoffs.AdoptHandoffResponse, None]:
        """Yield the stages of an adoption; an empty `request_id` is filled in."""
        return self._resume(methods.ADOPT_HANDOFF, AdoptionStream(with_request_id(request)))

    async def create_snapshot(
        self, request: snapshots.CreateSnapshotRequest
    ) -> snapshots.CreateSnapshotResponse:
        """Capture threads; an empty `request_id` is filled in."""
        return await self._unary(methods.CREATE_SNAPSHOT, with_request_id(request))

    async def get_snapshot(
        self, request: snapshots.GetSnapshotRequest
    ) -> snapshots.GetSnapshotResponse:
        """Return one snapshot."""
        return await self._unary(methods.GET_SNAPSHOT, request)

    async def get_latest_snapshot(
        self, request: snapshots.GetLatestSnapshotRequest
    ) -> snapshots.GetLatestSnapshotResponse:
        """Return the newest snapshot that matches."""
        return await self._unary(methods.GET_LATEST_SNAPSHOT, request)

    async def list_snapshots(
        self, request: snapshots.ListSnapshotsRequest
    ) -> snapshots.ListSnapshotsResponse:
        """Return one page of snapshots."""
        return await self._unary(methods.LIST_SNAPSHOTS, request)

    async def restore_snapshot(
        self, request: snapshots.RestoreSnapshotRequest
    ) -> snapshots.RestoreSnapshotResponse:
        """Restore a snapshot; an empty `request_id` is filled in."""
        return await self._unary(methods.RESTORE_SNAPSHOT, with_request_id(request))

    async def delete_snapshot(
        self, request: snapshots.DeleteSnapshotRequest
    ) -> snapshots.DeleteSnapshotResponse:
        """Delete a snapshot."""
        return await self._unary(methods.DELETE_SNAPSHOT, request)

    async def get_manifest(
        self, request: threads.GetManifestRequest
    ) -> threads.GetManifestResponse:
        """Return one page of a thread's folded manifest."""
        return await self._unary(methods.GET_MANIFEST, request)

    async def get_server_info(self) -> admin.GetServerInfoResponse:
        """Return version, limits and backends of the server."""
        return await self._unary(methods.GET_SERVER_INFO, admin.GetServerInfoRequest())

    async def get_archive_status(self) -> admin.GetArchiveStatusResponse:
        """Return the state of the archive."""
        return await self._unary(methods.GET_ARCHIVE_STATUS, admin.GetArchiveStatusRequest())

    async def flush(self) -> admin.FlushResponse:
        """Certify everything journaled so far, and return then."""
        return await self._unary(methods.FLUSH, admin.FlushRequest())

    async def _load(self, request: checkpoints.LoadCheckpointRequest) -> Checkpoint:
        assembler = CheckpointAssembler()
        checkpoint = None
        async with aclosing(self._stream(methods.LOAD_CHECKPOINT, request)) as frames:
            async for frame in frames:
                checkpoint = assembler.add(frame) or checkpoint
        assembler.end()
        return present(checkpoint)
