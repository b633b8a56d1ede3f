"""`AdminService` on the wire."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from tuskpoint.v1 import admin_service_pb2 as admin_pb
from tuskpoint.v1 import search_service_pb2 as search_pb

from ..core.credentials import Scope
from ..core.limits import LIMITS, MIB
from ..features.admin import Admin
from ..features.cursors import page_size
from ..features.trail.trail import Trail
from ..journal.clock import ClockJump
from ..search.search import SearchStatus
from .messages.convert import fill_fields, location, timestamp
from .middleware.pipeline import Call, Fields
from .middleware.policy import POLICY

_PAGE_BYTES = 3 * MIB  # bytes of batches after which a page ends


@dataclass(frozen=True, slots=True)
class AdminServicer:
    """`AdminService`: describes the server and its state."""

    _admin: Admin
    _trail: Trail

    async def GetServerInfo(
        self, request: admin_pb.GetServerInfoRequest, call: Call
    ) -> admin_pb.GetServerInfoResponse:
        message = admin_pb.GetServerInfoResponse(
            start_time=timestamp(self._admin.started_us),
            search_modes=[search_pb.SearchMode.Name(mode) for mode in self._admin.search_modes],
            signers=self._admin.signers,
            recipients=self._admin.recipients_of(call.tenant),
            clock_jump=_clock_jump(self._admin.clock_jump),
        )
        message.MergeFrom(_of_every_server())
        return fill_fields(message, self._admin)

    async def GetArchiveStatus(
        self, request: admin_pb.GetArchiveStatusRequest, call: Call
    ) -> admin_pb.GetArchiveStatusResponse:
        status, journal_bytes, search = await self._admin.status(call.tenant)
        message = admin_pb.GetArchiveStatusResponse(
            first_gaps=[
                fill_fields(admin_pb.Gap(segment_sha256=gap.segment or b""), gap)
                for gap in status.first_gaps
            ],
            journal_bytes=journal_bytes,
            damaged_thread_ids=status.damaged_threads,
            scrub_time=timestamp(status.scrubbed_us) if status.scrubbed_us else None,
            catalog=location(status.catalog) if status.catalog is not None else None,
            search=_search_status(search) if search is not None else None,
        )
        message = fill_fields(message, status)
        if Scope.ADMIN not in call.scopes:  # these counts are of all tenants together
            message.journal_bytes = message.spool_bytes = message.cache_bytes = 0
        return message

    async def Flush(self, request: admin_pb.FlushRequest, call: Call) -> Fields:
        outcome = await self._admin.flush(call.tenant)
        catalog = location(outcome.catalog) if outcome.catalog is not None else None
        return {"certified_checkpoints": outcome.certified, "catalog": catalog}

    async def AcceptClock(self, request: admin_pb.AcceptClockRequest, call: Call) -> Fields:
        return {"accepted": _clock_jump(await self._admin.accept_clock())}

    async def ListTrail(
        self, request: admin_pb.ListTrailRequest, call: Call
    ) -> admin_pb.ListTrailResponse:
        size = page_size(request.page_size)
        answer, length = admin_pb.ListTrailResponse(), 0
        for batch in await self._trail.read(call.tenant, request.after_batch_id, size):
            length += len(batch.content)
            if length > _PAGE_BYTES and answer.batches:
                break
            fill_fields(answer.batches.add(), batch)
        return answer


@cache
def _of_every_server() -> admin_pb.GetServerInfoResponse:
    """Return the parts of the answer that are equal for all servers of this version."""
    limits = admin_pb.ServerLimits()
    for field in limits.DESCRIPTOR.fields:
        if field.message_type is not None:
            getattr(limits, field.name).FromSeconds(getattr(LIMITS, f"{field.name}_s"))
        else:
            setattr(limits, field.name, getattr(LIMITS, field.name.removesuffix("_bytes")))
    methods = [method.removeprefix("/") for method in POLICY]
    return admin_pb.GetServerInfoResponse(limits=limits, methods=methods)


def _clock_jump(jump: ClockJump | None) -> admin_pb.ClockJump | None:
    if jump is None:
        return None
    times = {"expected_time": timestamp(jump.expected_us), "clock_time": timestamp(jump.clock_us)}
    return admin_pb.ClockJump(**times)


def _search_status(recall: SearchStatus) -> admin_pb.SearchStatus:
    index = recall.index
    message = admin_pb.SearchStatus(
        unindexed_checkpoints=index.unindexed,
        indexed_checkpoints=index.indexed,
        last_error=recall.last_error,
        truncated_checkpoints=index.truncated,
    )
    if recall.memwal is not None and recall.memories is not None:
        fill_fields(message.memwal, recall.memwal, recall.memories)
        message.memwal.SetInParent()
    return fill_fields(message, index)
