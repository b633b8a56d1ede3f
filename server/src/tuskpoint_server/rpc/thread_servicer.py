"""`ThreadService` on the wire.

`ForkThread`, `RollbackThread`, `DiffCheckpoints` and `VerifyThread` are declared and not
built.
"""

from __future__ import annotations

from tuskpoint.v1 import manifest_pb2
from tuskpoint.v1 import thread_service_pb2 as pb

from ..domain.model import PruneStrategy, ThreadState
from ..journal.api import ThreadQuery
from ..service.threads import ManifestPage, Threads
from . import convert, validation
from .calls import Call

_STRATEGIES = {
    pb.PRUNE_STRATEGY_KEEP_LATEST: PruneStrategy.KEEP_LATEST,
    pb.PRUNE_STRATEGY_DELETE_ALL: PruneStrategy.DELETE_ALL,
}


class ThreadServicer:
    """Looks after whole threads."""

    def __init__(self, threads: Threads) -> None:
        self._threads = threads

    async def GetThread(self, request: pb.GetThreadRequest, call: Call) -> pb.GetThreadResponse:
        """Describe a thread."""
        validation.check_get_thread(request)
        detail = await self._threads.get(call.tenant, request.thread_id)
        return pb.GetThreadResponse(thread=convert.thread_detail(detail))

    async def ListThreads(
        self, request: pb.ListThreadsRequest, call: Call
    ) -> pb.ListThreadsResponse:
        """Return a page of threads."""
        validation.check_list_threads(request)
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
        validation.check_delete_thread(request)
        wanted = convert.durability(request.durability)
        removed = await self._threads.delete(call.tenant, request.thread_id, wanted)
        return pb.DeleteThreadResponse(
            deleted_checkpoints=removed.deleted, durability=convert.DURABILITIES[wanted]
        )

    async def SetRetention(
        self, request: pb.SetRetentionRequest, call: Call
    ) -> pb.SetRetentionResponse:
        """Set how long a thread is kept."""
        validation.check_set_retention(request)
        wanted = convert.durability(request.durability)
        await self._threads.set_retention(
            call.tenant, request.thread_id, request.retention.seconds, wanted
        )
        return pb.SetRetentionResponse(durability=convert.DURABILITIES[wanted])

    async def CopyThread(self, request: pb.CopyThreadRequest, call: Call) -> pb.CopyThreadResponse:
        """Copy a thread."""
        validation.check_copy_thread(request)
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
        validation.check_prune_threads(request)
        wanted = convert.durability(request.durability)
        removed = await self._threads.prune(
            call.tenant, request.thread_ids, _STRATEGIES[request.strategy], wanted
        )
        return pb.PruneThreadsResponse(
            deleted_checkpoints=removed.deleted,
            hidden_checkpoints=removed.hidden,
            durability=convert.DURABILITIES[wanted],
        )

    async def DeleteRuns(self, request: pb.DeleteRunsRequest, call: Call) -> pb.DeleteRunsResponse:
        """Delete the checkpoints of runs."""
        validation.check_delete_runs(request)
        wanted = convert.durability(request.durability)
        removed = await self._threads.delete_runs(call.tenant, request.run_ids, wanted)
        return pb.DeleteRunsResponse(
            deleted_checkpoints=removed.deleted,
            hidden_checkpoints=removed.hidden,
            durability=convert.DURABILITIES[wanted],
        )

    async def GetManifest(
        self, request: pb.GetManifestRequest, call: Call
    ) -> pb.GetManifestResponse:
        """Return a page of a thread's folded manifest."""
        validation.check_get_manifest(request)
        page = await self._threads.manifest(
            call.tenant, request.thread_id, request.page_size, request.page_token
        )
        return _manifest(page)


def _manifest(page: ManifestPage) -> pb.GetManifestResponse:
    message = pb.GetManifestResponse(
        entries=[convert.manifest_entry(entry) for entry in page.entries],
        incarnation=page.incarnation,
        next_page_token=page.next_token,
    )
    if page.head is not None:
        head = page.head.head
        message.head.CopyFrom(
            manifest_pb2.ManifestHead(
                location=convert.location(head.location),
                segment=head.segment,
                generation=head.generation,
                records=head.records,
            )
        )
        message.certify_time.CopyFrom(convert.timestamp(page.head.certified_us))
    return message
