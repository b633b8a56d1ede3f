# Written by `make sync` from _async/calls.py; do not edit.
"""The calls of the service: contract messages in, contract messages out."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import closing

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
from .transport import SyncTransport


class SyncCalls(SyncTransport):
    """The calls of the service. `_transport` says how each is made."""

    def save_checkpoint(
        self, request: checkpoints.SaveCheckpointRequest
    ) -> checkpoints.SaveCheckpointResponse:
        """Save a checkpoint of any size."""
        answer = self._exchange(methods.SAVE_CHECKPOINT, request)
        WARNINGS.log(self.options.target, answer.warnings)
        return answer

    def save_writes(self, request: checkpoints.SaveWritesRequest) -> checkpoints.SaveWritesResponse:
        """Save pending writes of any size."""
        answer = self._exchange(methods.SAVE_WRITES, request)
        WARNINGS.log(self.options.target, answer.warnings)
        return answer

    def get_checkpoint(
        self, ref: CheckpointRef, *, view: View = VIEW_FULL, source: Source = SOURCE_ANY
    ) -> Checkpoint | None:
        """Return a checkpoint of any size, every value inline; `None` if it does not exist."""
        get = checkpoints.GetCheckpointRequest(ref=ref, view=view, source=source)
        try:
            return self._exchange(methods.GET_CHECKPOINT, get).checkpoint
        except NotFound as error:
            expect_absent(error)
            return None
        except PreconditionFailed as error:
            expect_too_large(error)
        load = checkpoints.LoadCheckpointRequest(ref=ref, view=view, source=source)
        try:
            return self._load(load)
        except NotFound as error:
            expect_absent(error)
            return None

    def list_checkpoints(
        self, request: checkpoints.ListCheckpointsRequest
    ) -> Generator[Checkpoint, None, None]:
        """Yield checkpoints, greatest ID first, every value inline."""
        assembler = CheckpointAssembler()
        with closing(self._stream(methods.LIST_CHECKPOINTS, request)) as frames:
            for frame in frames:
                complete = assembler.add(frame)
                if complete is not None:
                    yield complete
        assembler.end()

    def get_delta_history(
        self, request: checkpoints.GetDeltaHistoryRequest
    ) -> list[checkpoints.DeltaChannelHistory]:
        """Return what rebuilds each channel, in the order in which they were asked for."""
        assembler = DeltaHistoryAssembler()
        with closing(self._stream(methods.GET_DELTA_HISTORY, request)) as frames:
            for frame in frames:
                assembler.add(frame)
        return assembler.end()

    def set_label(self, request: checkpoints.SetLabelRequest) -> checkpoints.SetLabelResponse:
        """Set or clear the label of a checkpoint."""
        return self._unary(methods.SET_LABEL, request)

    def get_thread(self, request: threads.GetThreadRequest) -> threads.GetThreadResponse:
        """Describe one thread."""
        return self._unary(methods.GET_THREAD, request)

    def list_threads(self, request: threads.ListThreadsRequest) -> threads.ListThreadsResponse:
        """Return one page of threads."""
        return self._unary(methods.LIST_THREADS, request)

    def delete_thread(self, request: threads.DeleteThreadRequest) -> threads.DeleteThreadResponse:
        """Delete a thread and end its incarnation."""
        return self._unary(methods.DELETE_THREAD, request)

    def set_retention(self, request: threads.SetRetentionRequest) -> threads.SetRetentionResponse:
        """Set how long a thread is kept."""
        return self._unary(methods.SET_RETENTION, request)

    def set_searchable(
        self, request: threads.SetSearchableRequest
    ) -> threads.SetSearchableResponse:
        """Set whether search finds a thread."""
        return self._unary(methods.SET_SEARCHABLE, request)

    def copy_thread(self, request: threads.CopyThreadRequest) -> threads.CopyThreadResponse:
        """Copy a thread; an empty `request_id` is filled in, so that retries are safe."""
        return self._unary(methods.COPY_THREAD, with_request_id(request))

    def prune_threads(self, request: threads.PruneThreadsRequest) -> threads.PruneThreadsResponse:
        """Delete old checkpoints of threads."""
        return self._unary(methods.PRUNE_THREADS, request)

    def delete_runs(self, request: threads.DeleteRunsRequest) -> threads.DeleteRunsResponse:
        """Delete the checkpoints of runs."""
        return self._unary(methods.DELETE_RUNS, request)

    def fork_thread(self, request: threads.ForkThreadRequest) -> threads.ForkThreadResponse:
        """Make a thread of a checkpoint; an empty `request_id` is filled in."""
        return self._unary(methods.FORK_THREAD, with_request_id(request))

    def rollback_thread(
        self, request: threads.RollbackThreadRequest
    ) -> threads.RollbackThreadResponse:
        """Append an earlier state; an empty `request_id` is filled in."""
        return self._unary(methods.ROLLBACK_THREAD, with_request_id(request))

    def get_lineage(self, request: threads.GetLineageRequest) -> threads.GetLineageResponse:
        """Return what a thread came from, and what came from it."""
        return self._unary(methods.GET_LINEAGE, request)

    def diff_checkpoints(
        self, request: threads.DiffCheckpointsRequest
    ) -> threads.DiffCheckpointsResponse:
        """Compare the states of two checkpoints."""
        return self._unary(methods.DIFF_CHECKPOINTS, request)

    def verify_thread(
        self, request: threads.VerifyThreadRequest
    ) -> Generator[threads.VerifyThreadResponse, None, None]:
        """Yield a verdict per checkpoint, then the total."""
        return self._stream(methods.VERIFY_THREAD, request)

    def replay_thread(
        self, request: history.ReplayThreadRequest
    ) -> Generator[Checkpoint, None, None]:
        """Yield checkpoints, smallest ID first, every value inline; go on after breaks."""
        return self._resume(methods.REPLAY_THREAD, ReplayStream(request))

    def watch_thread(
        self, request: history.WatchThreadRequest
    ) -> Generator[history.ThreadEvent, None, None]:
        """Yield the events of a thread without end, every value inline; go on after breaks."""
        return self._resume(methods.WATCH_THREAD, WatchStream(request))

    def search_checkpoints(
        self, request: search.SearchCheckpointsRequest
    ) -> search.SearchCheckpointsResponse:
        """Find checkpoints."""
        answer = self._unary(methods.SEARCH_CHECKPOINTS, request)
        WARNINGS.log(self.options.target, answer.warnings)
        return answer

    def create_handoff(
        self, request: handoffs.CreateHandoffRequest
    ) -> handoffs.CreateHandoffResponse:
        """Hand a checkpoint off; an empty `request_id` is filled in."""
        return self._unary(methods.CREATE_HANDOFF, with_request_id(request))

    def adopt_handoff(
        self, request: handoffs.AdoptHandoffRequest
    ) -> Generator[handoffs.AdoptHandoffResponse, None, None]:
        """Yield the stages of an adoption; an empty `request_id` is filled in."""
        return self._resume(methods.ADOPT_HANDOFF, AdoptionStream(with_request_id(request)))

    def create_snapshot(
        self, request: snapshots.CreateSnapshotRequest
    ) -> snapshots.CreateSnapshotResponse:
        """Capture threads; an empty `request_id` is filled in."""
        return self._unary(methods.CREATE_SNAPSHOT, with_request_id(request))

    def get_snapshot(self, request: snapshots.GetSnapshotRequest) -> snapshots.GetSnapshotResponse:
        """Return one snapshot."""
        return self._unary(methods.GET_SNAPSHOT, request)

    def get_latest_snapshot(
        self, request: snapshots.GetLatestSnapshotRequest
    ) -> snapshots.GetLatestSnapshotResponse:
        """Return the newest snapshot that matches."""
        return self._unary(methods.GET_LATEST_SNAPSHOT, request)

    def list_snapshots(
        self, request: snapshots.ListSnapshotsRequest
    ) -> snapshots.ListSnapshotsResponse:
        """Return one page of snapshots."""
        return self._unary(methods.LIST_SNAPSHOTS, request)

    def restore_snapshot(
        self, request: snapshots.RestoreSnapshotRequest
    ) -> snapshots.RestoreSnapshotResponse:
        """Restore a snapshot; an empty `request_id` is filled in."""
        return self._unary(methods.RESTORE_SNAPSHOT, with_request_id(request))

    def delete_snapshot(
        self, request: snapshots.DeleteSnapshotRequest
    ) -> snapshots.DeleteSnapshotResponse:
        """Delete a snapshot."""
        return self._unary(methods.DELETE_SNAPSHOT, request)

    def get_manifest(self, request: threads.GetManifestRequest) -> threads.GetManifestResponse:
        """Return one page of a thread's folded manifest."""
        return self._unary(methods.GET_MANIFEST, request)

    def get_server_info(self) -> admin.GetServerInfoResponse:
        """Return version, limits and backends of the server."""
        return self._unary(methods.GET_SERVER_INFO, admin.GetServerInfoRequest())

    def get_archive_status(self) -> admin.GetArchiveStatusResponse:
        """Return the state of the archive."""
        return self._unary(methods.GET_ARCHIVE_STATUS, admin.GetArchiveStatusRequest())

    def flush(self) -> admin.FlushResponse:
        """Certify everything journaled so far, and return then."""
        return self._unary(methods.FLUSH, admin.FlushRequest())

    def _load(self, request: checkpoints.LoadCheckpointRequest) -> Checkpoint:
        assembler = CheckpointAssembler()
        checkpoint = None
        with closing(self._stream(methods.LOAD_CHECKPOINT, request)) as frames:
            for frame in frames:
                checkpoint = assembler.add(frame) or checkpoint
        assembler.end()
        return present(checkpoint)
