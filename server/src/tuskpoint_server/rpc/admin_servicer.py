"""`AdminService` on the wire."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tuskpoint.v1 import admin_service_pb2 as pb
from tuskpoint.v1 import search_service_pb2

from ..domain.credentials import Scope
from ..domain.limits import LIMITS
from ..recall.recall import RecallStanding
from ..service.admin import Admin
from .calls import Call
from .convert import filled, location, timestamp


@dataclass(frozen=True, slots=True)
class AdminServicer:
    """Tells what the server is, the names of the methods that are built, and how it stands."""

    _admin: Admin
    _methods: Sequence[str]

    async def GetServerInfo(
        self, request: pb.GetServerInfoRequest, call: Call
    ) -> pb.GetServerInfoResponse:
        info = self._admin
        message = pb.GetServerInfoResponse(
            limits=limits(),
            methods=self._methods,
            start_time=timestamp(info.started_us),
            search_modes=[search_service_pb2.SearchMode.Name(mode) for mode in info.search_modes],
        )
        return filled(message, info)

    async def GetArchiveStatus(
        self, request: pb.GetArchiveStatusRequest, call: Call
    ) -> pb.GetArchiveStatusResponse:
        standing = await self._admin.standing(call.tenant)
        status, search = standing.archive, standing.recall
        message = pb.GetArchiveStatusResponse(
            first_holes=[
                filled(pb.Hole(segment_sha256=hole.segment or b""), hole)
                for hole in status.first_holes
            ],
            journal_bytes=standing.journal_bytes,
            catalog=location(status.catalog) if status.catalog is not None else None,
            search=_search_status(search) if search is not None else None,
        )
        message = filled(message, status)
        if Scope.ADMIN not in call.scopes:  # these are of all tenants together
            message.journal_bytes = message.spool_bytes = message.cache_bytes = 0
        return message

    async def Flush(self, request: pb.FlushRequest, call: Call) -> pb.FlushResponse:
        outcome = await self._admin.flush(call.tenant)
        return pb.FlushResponse(
            certified_checkpoints=outcome.certified,
            catalog=location(outcome.catalog) if outcome.catalog is not None else None,
        )


def limits() -> pb.ServerLimits:
    """Return the message that announces the limits in force, by their names and units."""
    message = pb.ServerLimits()
    for field in message.DESCRIPTOR.fields:
        if field.message_type is not None:
            getattr(message, field.name).FromSeconds(getattr(LIMITS, f"{field.name}_s"))
        else:
            setattr(message, field.name, getattr(LIMITS, field.name.removesuffix("_bytes")))
    return message


def _search_status(standing: RecallStanding) -> pb.SearchStatus:
    index = standing.index
    message = pb.SearchStatus(
        unindexed_checkpoints=index.unindexed,
        indexed_checkpoints=index.indexed,
        last_error=standing.last_error,
        truncated_checkpoints=index.truncated,
    )
    if standing.memwal is not None and standing.memories is not None:
        filled(message.memwal, standing.memwal, standing.memories)
        message.memwal.SetInParent()
    return filled(message, index)
