"""`ThreadService` on the wire."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing

from tuskpoint.v1 import thread_service_pb2 as pb

from ..domain.errors import Reason, Refusal
from ..domain.threads import PruneStrategy, ThreadState
from ..journal.checkpoints.threads import ThreadQuery
from ..service.checkpoints import Checkpoints
from ..service.manifests import Manifests
from ..service.threads import Threads
from . import convert
from .calls import Call
from .thread_answers import (
    diff_response,
    from_side,
    lineage_response,
    manifest_response,
    verification_frame,
)

_STRATEGIES = {
    pb.PRUNE_STRATEGY_KEEP_LATEST: PruneStrategy.KEEP_LATEST,
    pb.PRUNE_STRATEGY_DELETE_ALL: PruneStrategy.DELETE_ALL,
}


class ThreadServicer:
    """Looks after whole threads."""

    def __init__(
        self,
        threads: Threads,
        manifests: Manifests,
        checkpoints: Checkpoints,
    ) -> None:
        self._threads = threads
        self._manifests = manifests
        self._checkpoints = checkpoints

    async def GetThread(self, request: pb.GetThreadRequest, call: Call) -> pb.GetThreadResponse:
        """Describe a thread."""
        detail = await self._threads.get(call.tenant, request.thread_id)
        return pb.GetThreadResponse(thread=convert.thread_detail(detail))

    async def ListThreads(
        self, request: pb.ListThreadsRequest, call: Call
    ) -> pb.ListThreadsResponse:
        """Return a page of threads."""
        query = ThreadQuery(
            request.agent_id, request.label, ThreadState(request.state) if request.state else None
        )
        page = await self._threads.list(call.tenant, query, request.page_size, request.page_token)
        return pb.ListThreadsResponse(
            threads=[convert.thread(thread) for thread in page.threads],
            next_page_token=page.next_token,
        )

    async def DeleteThread(
        self, request: pb.DeleteThreadRequest, call: Call
    ) -> pb.DeleteThreadResponse:
        """Delete a thread."""
        wanted = convert.durability(request.durability)
        removed = await self._threads.delete(call.tenant, request.thread_id, wanted)
        return pb.DeleteThreadResponse(
            deleted_checkpoints=removed.deleted, durability=convert.DURABILITIES[wanted]
        )

    async def SetRetention(
        self, request: pb.SetRetentionRequest, call: Call
    ) -> pb.SetRetentionResponse:
        """Set how long a thread is kept."""
        wanted = convert.durability(request.durability)
        await self._threads.set_retention(
            call.tenant, request.thread_id, request.retention.seconds, wanted
        )
        return pb.SetRetentionResponse(durability=convert.DURABILITIES[wanted])

    async def SetSearchable(
        self, request: pb.SetSearchableRequest, call: Call
    ) -> pb.SetSearchableResponse:
        """Set whether search finds a thread."""
        wanted = convert.durability(request.durability)
        await self._threads.set_searchable(
            call.tenant, request.thread_id, request.searchable, wanted
        )
        return pb.SetSearchableResponse(durability=convert.DURABILITIES[wanted])

    async def CopyThread(self, request: pb.CopyThreadRequest, call: Call) -> pb.CopyThreadResponse:
        """Copy a thread."""
        wanted = convert.durability(request.durability)
        copied = await self._threads.copy(
            call.tenant,
            request.source_thread_id,
            request.target_thread_id,
            request.request_id,
            wanted,
        )
        return pb.CopyThreadResponse(
            copied_checkpoints=copied, durability=convert.DURABILITIES[wanted]
        )

    async def PruneThreads(
        self, request: pb.PruneThreadsRequest, call: Call
    ) -> pb.PruneThreadsResponse:
        """Prune threads."""
        wanted = convert.durability(request.durability)
        removed = await self._threads.prune(
            call.tenant, request.thread_ids, _STRATEGIES[request.strategy], wanted
        )
        return pb.PruneThreadsResponse(
            deleted_checkpoints=removed.deleted,
            durability=convert.DURABILITIES[wanted],
        )

    async def DeleteRuns(self, request: pb.DeleteRunsRequest, call: Call) -> pb.DeleteRunsResponse:
        """Delete the checkpoints of runs."""
        wanted = convert.durability(request.durability)
        removed = await self._threads.delete_runs(call.tenant, request.run_ids, wanted)
        return pb.DeleteRunsResponse(
            deleted_checkpoints=removed.deleted,
            durability=convert.DURABILITIES[wanted],
        )

    async def ForkThread(self, request: pb.ForkThreadRequest, call: Call) -> pb.ForkThreadResponse:
        """Make a thread that begins with a checkpoint of another."""
        wanted = convert.durability(request.durability)
        made = await self._threads.fork(
            call.tenant,
            convert.key(request.ref),
            request.new_thread_id,
            request.request_id,
            wanted,
        )
        return pb.ForkThreadResponse(
            ref=convert.ref(made),
            forked_from=f"{request.ref.thread_id}:{made.checkpoint_id}",
            durability=convert.DURABILITIES[wanted],
        )

    async def RollbackThread(
        self, request: pb.RollbackThreadRequest, call: Call
    ) -> pb.RollbackThreadResponse:
        """Append a checkpoint that has the state of an earlier one."""
        earlier, wanted = convert.key(request.ref), convert.durability(request.durability)
        made = await self._threads.rollback(
            call.tenant,
            earlier,
            request.request_id,
            request.expected_head if request.HasField("expected_head") else None,
            wanted,
        )
        return pb.RollbackThreadResponse(
            ref=convert.ref(made),
            rolled_back_from=str(earlier),
            durability=convert.DURABILITIES[wanted],
        )

    async def GetLineage(self, request: pb.GetLineageRequest, call: Call) -> pb.GetLineageResponse:
        """Return the threads that a thread came from, and those that came from it."""
        return lineage_response(await self._threads.lineage(call.tenant, request.thread_id))

    async def DiffCheckpoints(
        self, request: pb.DiffCheckpointsRequest, call: Call
    ) -> pb.DiffCheckpointsResponse:
        """Compare the states of two checkpoints."""
        before, after = convert.key(from_side(request)), convert.key(request.to)
        found = await self._checkpoints.diff(call.tenant, before, after, request.max_changes)
        return diff_response(found)

    async def VerifyThread(
        self, request: pb.VerifyThreadRequest, call: Call
    ) -> AsyncIterator[pb.VerifyThreadResponse]:
        """Stream a verdict on each checkpoint of a thread, then the total."""
        async with aclosing(self._threads.verify(call.tenant, request.thread_id)) as found:
            async for one in found:
                if call.draining.is_set():
                    raise Refusal(Reason.DRAINING)
                yield verification_frame(one)

    async def GetManifest(
        self, request: pb.GetManifestRequest, call: Call
    ) -> pb.GetManifestResponse:
        """Return a page of a thread's manifest."""
        page = await self._manifests.page(
            call.tenant,
            request.thread_id,
            request.page_size,
            request.page_token,
            store=request.store,
        )
        return manifest_response(page)
