"""The calls on the wire: each turns a request into the service's words, and its answer back.

What a call does, takes and answers stands in the contract (`proto/tuskpoint/v1`). Requests are
checked, and have their defaults, before they come here. Answers and frames are messages, or
their fields.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import aclosing
from dataclasses import asdict, dataclass, fields
from typing import Any

from google.protobuf.descriptor import ServiceDescriptor

from tuskpoint.v1 import admin_service_pb2 as admin_pb
from tuskpoint.v1 import checkpoint_service_pb2 as saves_pb
from tuskpoint.v1 import errors_pb2
from tuskpoint.v1 import handoff_service_pb2 as handoff_pb
from tuskpoint.v1 import history_service_pb2 as history_pb
from tuskpoint.v1 import search_service_pb2 as search_pb
from tuskpoint.v1 import snapshot_service_pb2 as snap_pb
from tuskpoint.v1 import thread_service_pb2 as thread_pb

from ..domain.credentials import Scope
from ..domain.errors import Reason, Refusal
from ..domain.limits import LIMITS
from ..domain.lineage import Descriptor
from ..domain.model import Checkpoint, CheckpointQuery, Source, View
from ..domain.search import Metric, SearchMode, SearchQuery, SearchScope, pack_vector
from ..domain.state import parse_object
from ..domain.threads import EventKind, PruneStrategy, ThreadState
from ..journal.checkpoints.threads import ThreadQuery
from ..journal.lineage.snapshots import SnapshotDraft, SnapshotQuery
from ..recall.recall import RecallStanding
from ..service.admin import Admin
from ..service.checkpoints import Checkpoints, History
from ..service.completing import content_bytes
from ..service.handoffs import Handoffs
from ..service.searching import Search
from ..service.threads import Snapshots, Threads
from . import convert
from .authentication import POLICY
from .calls import Call, endless
from .save_stream import SaveStream, save_fields

PROGRESS_SECONDS = 15.0  # longest silence of a watch that does not say

Fields = Mapping[str, Any]
Frames = AsyncIterator[Fields]


def _frames(loaded: Checkpoint) -> Iterator[Fields]:
    cutter = convert.Cutter()
    return cutter.frames(checkpoint=convert.checkpoint_header(loaded, cutter))


@dataclass(frozen=True, slots=True)
class CheckpointServicer:
    """`CheckpointService`: saves checkpoints and pending writes, and loads them exactly."""

    _checkpoints: Checkpoints

    async def SaveCheckpoint(self, request: saves_pb.SaveCheckpointRequest, call: Call) -> Fields:
        outcome = await self._checkpoints.save(call.tenant, convert.checkpoint_draft(request))
        reached = await self._checkpoints.reach(call.tenant, outcome, call.wanted)
        return save_fields("checkpoint", reached)

    def SaveCheckpoints(
        self, requests: AsyncIterator[saves_pb.SaveCheckpointsRequest], call: Call
    ) -> AsyncIterator[saves_pb.SaveCheckpointsResponse]:
        return SaveStream(self._checkpoints, call).answers(requests)

    async def SaveWrites(self, request: saves_pb.SaveWritesRequest, call: Call) -> Fields:
        key, writes = convert.key(request.ref), convert.write_drafts(request.writes, iter(()))
        outcome = await self._checkpoints.save_writes(call.tenant, key, writes, call.wanted)
        reached = await self._checkpoints.reach(call.tenant, outcome, call.wanted)
        return save_fields("writes", reached)

    async def SetLabel(self, request: saves_pb.SetLabelRequest, call: Call) -> Fields:
        key = convert.key(request.ref)
        outcome = await self._checkpoints.set_label(call.tenant, key, request.label)
        await self._checkpoints.reach(call.tenant, outcome, call.wanted)
        return {"ref": convert.ref(outcome.saved.key), "seq": outcome.saved.seq}

    async def GetCheckpoint(self, request: saves_pb.GetCheckpointRequest, call: Call) -> Fields:
        size = content_bytes(loaded := await self._load(request, call))
        if size <= LIMITS.max_unary:
            message = convert.checkpoint(loaded, convert.whole())
            size = message.ByteSize()
        if size > LIMITS.max_unary:
            raise Refusal(Reason.CHECKPOINT_TOO_LARGE, size_bytes=size, maximum=LIMITS.max_unary)
        return {"checkpoint": message}

    async def LoadCheckpoint(self, request: saves_pb.LoadCheckpointRequest, call: Call) -> Frames:
        for frame in _frames(await self._load(request, call)):
            yield frame

    async def ListCheckpoints(self, request: saves_pb.ListCheckpointsRequest, call: Call) -> Frames:
        query, view = convert.checkpoint_query(request), View(request.view)
        limit = request.limit if request.HasField("limit") else None
        source, listed = Source(request.source), self._checkpoints.completer.listed
        async for loaded in listed(call.tenant, query, view, source, limit):
            for frame in _frames(loaded):
                yield frame

    async def GetDeltaHistory(self, request: saves_pb.GetDeltaHistoryRequest, call: Call) -> Frames:
        key = convert.key(request.ref)
        for history in await self._checkpoints.delta_history(call.tenant, key, request.channels):
            for frame in convert.history_frames(history):
                yield frame

    async def _load(
        self, request: saves_pb.GetCheckpointRequest | saves_pb.LoadCheckpointRequest, call: Call
    ) -> Checkpoint:
        key, view, source = convert.key(request.ref), View(request.view), Source(request.source)
        return await self._checkpoints.load(call.tenant, key, view, source)


@dataclass(frozen=True, slots=True)
class ThreadServicer:
    """`ThreadService`: looks after whole threads."""

    _threads: Threads
    _checkpoints: Checkpoints

    async def GetThread(self, request: thread_pb.GetThreadRequest, call: Call) -> Fields:
        detail = await self._threads.get(call.tenant, request.thread_id)
        return {"thread": convert.thread_detail(detail)}

    async def ListThreads(self, request: thread_pb.ListThreadsRequest, call: Call) -> Fields:
        state = ThreadState(request.state) if request.state else None
        query = ThreadQuery(request.agent_id, request.label, state)
        asked = (query, request.page_size, request.page_token)
        threads, token = await self._threads.list(call.tenant, *asked)
        return {"threads": map(convert.thread, threads), "next_page_token": token}

    async def DeleteThread(self, request: thread_pb.DeleteThreadRequest, call: Call) -> Fields:
        removed = await self._threads.delete(call.tenant, request.thread_id, call.wanted)
        return {"deleted_checkpoints": removed}

    async def SetRetention(self, request: thread_pb.SetRetentionRequest, call: Call) -> Fields:
        thread_id, seconds = request.thread_id, request.retention.seconds
        await self._threads.set_retention(call.tenant, thread_id, seconds, call.wanted)
        return {}

    async def SetSearchable(self, request: thread_pb.SetSearchableRequest, call: Call) -> Fields:
        thread_id, searchable = request.thread_id, request.searchable
        await self._threads.set_searchable(call.tenant, thread_id, searchable, call.wanted)
        return {}

    async def CopyThread(self, request: thread_pb.CopyThreadRequest, call: Call) -> Fields:
        names = (request.source_thread_id, request.target_thread_id, request.request_id)
        return {"copied_checkpoints": await self._threads.copy(call.tenant, *names, call.wanted)}

    async def PruneThreads(self, request: thread_pb.PruneThreadsRequest, call: Call) -> Fields:
        everything = request.strategy == thread_pb.PRUNE_STRATEGY_DELETE_ALL
        strategy = PruneStrategy.DELETE_ALL if everything else PruneStrategy.KEEP_LATEST
        thread_ids = request.thread_ids
        removed = await self._threads.prune(call.tenant, thread_ids, strategy, call.wanted)
        return {"deleted_checkpoints": removed}

    async def DeleteRuns(self, request: thread_pb.DeleteRunsRequest, call: Call) -> Fields:
        removed = await self._threads.delete_runs(call.tenant, request.run_ids, call.wanted)
        return {"deleted_checkpoints": removed}

    async def ForkThread(self, request: thread_pb.ForkThreadRequest, call: Call) -> Fields:
        asked = (convert.key(request.ref), request.new_thread_id, request.request_id)
        made = await self._threads.fork(call.tenant, *asked, call.wanted)
        forked_from = f"{request.ref.thread_id}:{made.checkpoint_id}"
        return {"ref": convert.ref(made), "forked_from": forked_from}

    async def RollbackThread(self, request: thread_pb.RollbackThreadRequest, call: Call) -> Fields:
        earlier, request_id = convert.key(request.ref), request.request_id
        head = request.expected_head if request.HasField("expected_head") else None
        made = await self._threads.rollback(call.tenant, earlier, request_id, head, call.wanted)
        return {"ref": convert.ref(made), "rolled_back_from": str(earlier)}

    async def GetLineage(self, request: thread_pb.GetLineageRequest, call: Call) -> Fields:
        tree = await self._threads.lineage(call.tenant, request.thread_id)
        return {
            "ancestors": map(convert.lineage_step, tree.ancestors),
            "descendants": map(convert.lineage_step, tree.descendants),
            "truncated": tree.truncated,
        }

    async def DiffCheckpoints(
        self, request: thread_pb.DiffCheckpointsRequest, call: Call
    ) -> Fields:
        before, after = convert.key(getattr(request, "from")), convert.key(request.to)
        found = await self._checkpoints.diff(call.tenant, before, after, request.max_changes)
        changes = [
            convert.filled(thread_pb.Change(from_json=one.before, to_json=one.after), one)
            for one in found.changes
        ]
        return {"changes": changes, "truncated": found.truncated}

    async def VerifyThread(
        self, request: thread_pb.VerifyThreadRequest, call: Call
    ) -> AsyncIterator[thread_pb.VerifyThreadResponse]:
        async with aclosing(self._threads.verify(call.tenant, request.thread_id)) as found:
            async for one in found:
                if call.draining.is_set():
                    raise Refusal(Reason.DRAINING)
                yield convert.verification_frame(one)

    async def GetManifest(
        self, request: thread_pb.GetManifestRequest, call: Call
    ) -> thread_pb.GetManifestResponse:
        thread_id, size, token = request.thread_id, request.page_size, request.page_token
        found = self._threads.manifest(call.tenant, thread_id, size, token, store=request.store)
        return convert.manifest_response(await found)


@dataclass(frozen=True, slots=True)
class HistoryServicer:
    """`HistoryService`: streams what happened on threads."""

    _history: History

    async def ReplayThread(self, request: history_pb.ReplayThreadRequest, call: Call) -> Frames:
        query = CheckpointQuery(
            request.thread_id,
            request.checkpoint_ns if request.HasField("checkpoint_ns") else None,
            first=request.from_checkpoint_id,
            last=request.to_checkpoint_id,
            replayed=True,
        )
        view, source = View(request.view), Source(request.source)
        async with aclosing(self._history.replay(call.tenant, query, view, source)) as checkpoints:
            async for loaded in checkpoints:
                for frame in _frames(loaded):
                    yield frame

    @endless
    async def WatchThread(self, request: history_pb.WatchThreadRequest, call: Call) -> Frames:
        view, kinds = View(request.view), [EventKind(kind) for kind in request.kinds]
        progress_s = PROGRESS_SECONDS
        if request.HasField("progress_interval"):
            progress_s = request.progress_interval.ToNanoseconds() / 1e9
        deliveries = self._history.watch(
            call.tenant, request.thread_id, request.cursor, kinds, view, progress_s
        )
        async with aclosing(deliveries) as coming:
            async for delivery in coming:
                cutter = convert.Cutter()
                for frame in cutter.frames(event=convert.event(delivery, cutter)):
                    yield frame


@dataclass(frozen=True, slots=True)
class HandoffServicer:
    """`HandoffService`: hands checkpoints off, and adopts them."""

    _handoffs: Handoffs

    async def CreateHandoff(self, request: handoff_pb.CreateHandoffRequest, call: Call) -> Fields:
        key, to_agent = convert.key(request.ref), request.to_agent
        descriptor = await self._handoffs.create(call.tenant, key, to_agent, request.request_id)
        return {"descriptor": asdict(descriptor)}

    async def AdoptHandoff(self, request: handoff_pb.AdoptHandoffRequest, call: Call) -> Frames:
        named = request.descriptor
        descriptor = Descriptor(*(getattr(named, field.name) for field in fields(Descriptor)))
        asked = (descriptor, request.new_thread_id, request.request_id, call.wanted)
        async with aclosing(self._handoffs.adopt(call.tenant, *asked)) as steps:
            async for step in steps:
                frame: dict[str, Any] = {"stage": step.stage, "fetched_bytes": step.fetched_bytes}
                if step.adopted is not None:
                    adoption = handoff_pb.Adoption(
                        adopted_from=named.source,
                        new_thread_id=step.adopted.thread_id,
                        checkpoint_id=step.adopted.checkpoint_id,
                        blob_id=step.blob_id,
                        verified=True,
                    )
                    frame |= {"durability": call.wanted, "adoption": adoption}
                yield frame


@dataclass(frozen=True, slots=True)
class SearchServicer:
    """`SearchService`: finds checkpoints by what happened."""

    _search: Search

    async def SearchCheckpoints(
        self, request: search_pb.SearchCheckpointsRequest, call: Call
    ) -> search_pb.SearchCheckpointsResponse:
        query = SearchQuery(
            text=request.text,
            vector=pack_vector(request.vector.values),
            scope=SearchScope(
                request.thread_id,
                request.agent_id,
                parse_object(request.filter_json, "filter_json"),
            ),
            limit=request.limit or LIMITS.default_results,
            mode=SearchMode(request.mode) if request.mode else None,
            metric=Metric(request.metric) if request.metric else Metric.COSINE,
        )
        answer = await self._search.search(call.tenant, query)
        message = search_pb.SearchCheckpointsResponse(unindexed_checkpoints=answer.unindexed)
        convert.filled(message, answer)
        for found in answer.results:
            one = message.results.add(ref=convert.ref(found.key), metadata_json=found.metadata)
            convert.filled(one, found)
        if answer.fell_back:
            told = f"searched in mode {answer.mode.name.lower()}: {answer.fell_back}"
            message.warnings.add(kind=errors_pb2.WARNING_KIND_SEARCH_FELL_BACK, message=told)
        if answer.dropped:
            told = f"MemWal has {answer.dropped} more matches that it could not return"
            message.warnings.add(kind=errors_pb2.WARNING_KIND_MEMORIES_DROPPED, message=told)
        return message


@dataclass(frozen=True, slots=True)
class SnapshotServicer:
    """`SnapshotService`: captures several threads together."""

    _snapshots: Snapshots

    async def CreateSnapshot(self, request: snap_pb.CreateSnapshotRequest, call: Call) -> Fields:
        parse_object(request.metadata_json, "metadata_json")
        draft = SnapshotDraft(
            tuple(request.thread_ids),
            request.session_id,
            request.hostname,
            request.working_directory,
            request.metadata_json or b"{}",
        )
        created = self._snapshots.create(call.tenant, draft, request.request_id, call.wanted)
        return {"snapshot": convert.snapshot(await created)}

    async def GetSnapshot(self, request: snap_pb.GetSnapshotRequest, call: Call) -> Fields:
        found = await self._snapshots.get(call.tenant, request.snapshot_id)
        return {"snapshot": convert.snapshot(found)}

    async def GetLatestSnapshot(
        self, request: snap_pb.GetLatestSnapshotRequest, call: Call
    ) -> Fields:
        query = SnapshotQuery(request.session_id, request.hostname, request.working_directory)
        found = await self._snapshots.latest(call.tenant, query)
        return {"snapshot": convert.snapshot(found)}

    async def ListSnapshots(self, request: snap_pb.ListSnapshotsRequest, call: Call) -> Fields:
        query = SnapshotQuery(request.session_id, request.hostname, request.working_directory)
        asked = (query, request.page_size, request.page_token)
        snapshots, token = await self._snapshots.list(call.tenant, *asked)
        return {"snapshots": map(convert.snapshot, snapshots), "next_page_token": token}

    async def RestoreSnapshot(self, request: snap_pb.RestoreSnapshotRequest, call: Call) -> Fields:
        restored = await self._snapshots.restore(
            call.tenant,
            request.snapshot_id,
            rollback=request.mode == snap_pb.RESTORE_MODE_ROLLBACK,
            request_id=request.request_id,
            wanted=call.wanted,
        )
        return {"restored": map(convert.ref, restored)}

    async def DeleteSnapshot(self, request: snap_pb.DeleteSnapshotRequest, call: Call) -> Fields:
        name, wanted = request.snapshot_id, call.wanted
        return {"deleted": await self._snapshots.delete(call.tenant, name, wanted)}


@dataclass(frozen=True, slots=True)
class AdminServicer:
    """`AdminService`: tells what the server is and how it stands."""

    _admin: Admin

    async def GetServerInfo(
        self, request: admin_pb.GetServerInfoRequest, call: Call
    ) -> admin_pb.GetServerInfoResponse:
        limits = admin_pb.ServerLimits()
        for field in limits.DESCRIPTOR.fields:
            if field.message_type is not None:
                getattr(limits, field.name).FromSeconds(getattr(LIMITS, f"{field.name}_s"))
            else:
                setattr(limits, field.name, getattr(LIMITS, field.name.removesuffix("_bytes")))
        modes = [search_pb.SearchMode.Name(mode) for mode in self._admin.search_modes]
        message = admin_pb.GetServerInfoResponse(
            limits=limits,
            methods=[method.removeprefix("/") for method in POLICY],
            start_time=convert.timestamp(self._admin.started_us),
            search_modes=modes,
        )
        return convert.filled(message, self._admin)

    async def GetArchiveStatus(
        self, request: admin_pb.GetArchiveStatusRequest, call: Call
    ) -> admin_pb.GetArchiveStatusResponse:
        status, journal_bytes, search = await self._admin.standing(call.tenant)
        message = admin_pb.GetArchiveStatusResponse(
            first_holes=[
                convert.filled(admin_pb.Hole(segment_sha256=hole.segment or b""), hole)
                for hole in status.first_holes
            ],
            journal_bytes=journal_bytes,
            catalog=convert.location(status.catalog) if status.catalog is not None else None,
            search=_search_status(search) if search is not None else None,
        )
        message = convert.filled(message, status)
        if Scope.ADMIN not in call.scopes:  # these are of all tenants together
            message.journal_bytes = message.spool_bytes = message.cache_bytes = 0
        return message

    async def Flush(self, request: admin_pb.FlushRequest, call: Call) -> Fields:
        outcome = await self._admin.flush(call.tenant)
        catalog = convert.location(outcome.catalog) if outcome.catalog is not None else None
        return {"certified_checkpoints": outcome.certified, "catalog": catalog}


def _search_status(standing: RecallStanding) -> admin_pb.SearchStatus:
    index = standing.index
    message = admin_pb.SearchStatus(
        unindexed_checkpoints=index.unindexed,
        indexed_checkpoints=index.indexed,
        last_error=standing.last_error,
        truncated_checkpoints=index.truncated,
    )
    if standing.memwal is not None and standing.memories is not None:
        convert.filled(message.memwal, standing.memwal, standing.memories)
        message.memwal.SetInParent()
    return convert.filled(message, index)


def services(
    checkpoints: Checkpoints,
    threads: Threads,
    snapshots: Snapshots,
    history: History,
    handoffs: Handoffs,
    search: Search,
    admin: Admin,
) -> list[tuple[ServiceDescriptor, object]]:
    """Return every service of the contract with its servicer."""
    built: list[tuple[Any, object]] = [
        (saves_pb, CheckpointServicer(checkpoints)),
        (thread_pb, ThreadServicer(threads, checkpoints)),
        (history_pb, HistoryServicer(history)),
        (handoff_pb, HandoffServicer(handoffs)),
        (search_pb, SearchServicer(search)),
        (snap_pb, SnapshotServicer(snapshots)),
        (admin_pb, AdminServicer(admin)),
    ]
    return [
        (service, servicer)
        for file, servicer in built
        for service in file.DESCRIPTOR.services_by_name.values()
    ]
