"""`AdminService` on the wire."""

from __future__ import annotations

from collections.abc import Sequence

from tuskpoint.v1 import admin_service_pb2 as pb
from tuskpoint.v1 import search_service_pb2

from ..domain.credentials import Scope
from ..domain.limits import LIMITS
from ..recall.recall import RecallStanding
from ..service.admin import Admin
from .calls import Call
from .convert import location, optional_timestamp, timestamp


class AdminServicer:
    """Tells what the server is, the names of the methods that are built, and how it stands."""

    def __init__(self, admin: Admin, methods: Sequence[str]) -> None:
        self._admin = admin
        self._methods = methods

    async def GetServerInfo(
        self, request: pb.GetServerInfoRequest, call: Call
    ) -> pb.GetServerInfoResponse:
        info = self._admin
        return pb.GetServerInfoResponse(
            version=info.version,
            limits=limits(),
            methods=self._methods,
            journal_backend=info.journal_backend,
            blob_backend=info.blob_backend,
            journal_id=info.journal_id,
            start_time=timestamp(info.started_us),
            search_modes=[search_service_pb2.SearchMode.Name(mode) for mode in info.search_modes],
            embedder=info.embedder,
        )

    async def GetArchiveStatus(
        self, request: pb.GetArchiveStatusRequest, call: Call
    ) -> pb.GetArchiveStatusResponse:
        standing = await self._admin.standing(call.tenant)
        status = standing.archive
        told_all = Scope.ADMIN in call.scopes  # what all tenants take together
        holes = [
            pb.Hole(
                thread_id=hole.thread_id,
                checkpoint_ns=hole.checkpoint_ns,
                checkpoint_id=hole.checkpoint_id,
                segment_sha256=hole.segment or b"",
                reason=hole.reason,
                retry_time=timestamp(hole.retry_us),
            )
            for hole in status.first_holes
        ]
        return pb.GetArchiveStatusResponse(
            backlog_checkpoints=status.backlog_checkpoints,
            backlog_bytes=status.backlog_bytes,
            last_error=status.last_error,
            catalog_seq=status.catalog_seq,
            journal_bytes=standing.journal_bytes if told_all else 0,
            spool_bytes=status.spool_bytes if told_all else 0,
            cache_bytes=status.cache_bytes if told_all else 0,
            certified_checkpoints=status.certified_checkpoints,
            evicted_bytes=status.evicted_bytes,
            stored_blobs=status.stored_blobs,
            billed_bytes=status.billed_bytes,
            cost=status.cost,
            failing_renewals=status.failing_renewals,
            holes=status.holes,
            first_holes=holes,
            oldest_uncertified_time=optional_timestamp(status.oldest_uncertified_us),
            last_error_time=optional_timestamp(status.last_error_us),
            last_flush_time=optional_timestamp(status.last_flush_us),
            earliest_expire_time=optional_timestamp(status.earliest_expire_us),
            catalog=location(status.catalog) if status.catalog is not None else None,
            search=_search_status(standing.recall) if standing.recall is not None else None,
        )

    async def Flush(self, request: pb.FlushRequest, call: Call) -> pb.FlushResponse:
        outcome = await self._admin.flush(call.tenant)
        return pb.FlushResponse(
            certified_checkpoints=outcome.certified,
            catalog=location(outcome.catalog) if outcome.catalog is not None else None,
        )


def limits() -> pb.ServerLimits:
    """Return the message that announces the limits in force."""
    message = pb.ServerLimits(
        max_message_bytes=LIMITS.max_message,
        max_unary_bytes=LIMITS.max_unary,
        max_chunk_bytes=LIMITS.max_chunk,
        max_value_bytes=LIMITS.max_value,
        max_checkpoint_bytes=LIMITS.max_checkpoint,
        max_metadata_bytes=LIMITS.max_metadata,
        max_channels=LIMITS.max_channels,
        max_writes=LIMITS.max_writes,
        max_state_bytes=LIMITS.max_state,
        max_write_names_bytes=LIMITS.max_write_names,
        max_thread_id_bytes=LIMITS.max_thread_id,
        max_checkpoint_ns_bytes=LIMITS.max_checkpoint_ns,
        max_checkpoint_id_bytes=LIMITS.max_checkpoint_id,
        max_bundle_bytes=LIMITS.max_bundle,
        max_search_text_bytes=LIMITS.max_search_text,
        max_query_bytes=LIMITS.max_query,
        max_search_results=LIMITS.max_results,
        max_vector_dimension=LIMITS.max_vector_dimension,
    )
    message.early_write_ttl.FromSeconds(LIMITS.early_write_ttl_s)
    message.request_id_ttl.FromSeconds(LIMITS.request_id_ttl_s)
    message.event_ttl.FromSeconds(LIMITS.event_ttl_s)
    return message


def _search_status(standing: RecallStanding) -> pb.SearchStatus:
    index, memwal = standing.index, None
    if (found := standing.memwal) is not None and (memories := standing.memories) is not None:
        memwal = pb.MemWalStatus(
            healthy=found.healthy,
            waiting=memories.waiting,
            underway=memories.underway,
            delivered=memories.delivered,
            last_error=found.last_error,
            oldest_waiting_time=optional_timestamp(memories.oldest_waiting_us),
            last_error_time=optional_timestamp(found.last_error_us),
            last_recall_time=optional_timestamp(found.last_recall_us),
        )
    return pb.SearchStatus(
        unindexed_checkpoints=index.unindexed,
        indexed_checkpoints=index.indexed,
        vectors=index.vectors,
        last_error=standing.last_error,
        truncated_checkpoints=index.truncated,
        oldest_unindexed_time=optional_timestamp(index.oldest_unindexed_us),
        memwal=memwal,
    )
