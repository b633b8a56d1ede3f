"""Records about threads, manifests, the archive, search and the server. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal

from ..v1 import admin_service_pb2 as admin
from ..v1 import manifest_pb2, thread_pb2
from ..v1 import search_service_pb2 as search
from ..v1.admin_service_pb2 import GetArchiveStatusResponse, GetServerInfoResponse
from ..v1.thread_service_pb2 import GetManifestResponse
from .checkpoints.steps import Failure, Question, failure_of, question_of
from .records import (
    LeaseRecord,
    Lineage,
    Location,
    lease_record,
    lineage_of,
    location_of,
    moment,
)

StateName = Literal["idle", "interrupted", "failed"]

THREAD_STATES: dict[str, thread_pb2.ThreadState] = {
    "idle": thread_pb2.THREAD_STATE_IDLE,
    "interrupted": thread_pb2.THREAD_STATE_INTERRUPTED,
    "failed": thread_pb2.THREAD_STATE_FAILED,
}
_STATE_NAMES: dict[int, StateName] = {
    thread_pb2.THREAD_STATE_INTERRUPTED: "interrupted",
    thread_pb2.THREAD_STATE_FAILED: "failed",
}


@dataclass(frozen=True, slots=True)
class ThreadRecord:
    """A thread: one run of an agent.

    Attributes:
        thread_id: The thread.
        incarnation: Number of the thread's incarnation, from 1.
        agent_id: The agent that drives the thread; empty if no agent was named.
        state: State of the thread.
        head_checkpoint_id: Latest checkpoint of the root namespace; empty if there is none.
        created: Time of the first change of this incarnation.
        updated: Time of the last change.
        expires: Earliest time at which a blob of the thread expires unless the blob is renewed;
            `None` if no blob expires, and in a listing.
        retention: Time after the last change at which the thread is deleted; `None` keeps it.
        searchable: Whether search finds the thread's checkpoints.
        heads: Maps each namespace to its latest checkpoint. Empty in a listing.
        checkpoint_count: Number of checkpoints in all namespaces.
        uncertified_count: Number of checkpoints that are not certified; 0 in a listing.
        summary: Summary of the latest checkpoint; empty if it has none.
        question: First open question of the latest checkpoint if the thread is interrupted; else
            `None`.
        failure: First failure of the latest checkpoint if the thread failed; else `None`.
        lease: Lease of the thread's driver, without its ID; `None` if no lease holds.
    """

    thread_id: str
    incarnation: int
    agent_id: str
    state: StateName
    head_checkpoint_id: str
    created: datetime
    updated: datetime
    expires: datetime | None
    retention: timedelta | None
    searchable: bool
    heads: dict[str, str]
    checkpoint_count: int
    uncertified_count: int
    summary: str = ""
    question: Question | None = None
    failure: Failure | None = None
    lease: LeaseRecord | None = None


@dataclass(frozen=True, slots=True)
class ManifestRecord:
    """A stored checkpoint in the manifest of its thread.

    Attributes:
        checkpoint_ns: The namespace.
        checkpoint_id: The checkpoint.
        parent_checkpoint_id: The checkpoint that this checkpoint follows; empty for the first
            checkpoint.
        seq: Position of the last stored change of the checkpoint and its writes.
        segment: The segment with the checkpoint.
        state_sha256: SHA-256 of the stored bytes of the state, as lowercase hex.
        writes: The segments with the pending writes, in the order of the log.
        summary: One sentence about what happened.
        label: Name of the checkpoint; empty if it has no name.
        lineage: Origins of the checkpoint besides its parent.
        created: Time of the first save.
    """

    checkpoint_ns: str
    checkpoint_id: str
    parent_checkpoint_id: str
    seq: int
    segment: Location
    state_sha256: str
    writes: tuple[Location, ...]
    summary: str
    label: str
    lineage: Lineage
    created: datetime


@dataclass(frozen=True, slots=True)
class Gap:
    """An acknowledged checkpoint or segment that cannot be read from the blob store.

    Attributes:
        thread_id: The thread.
        checkpoint_ns: Namespace of a checkpoint that cannot be stored.
        checkpoint_id: ID of a checkpoint that cannot be stored; empty if a stored segment was lost.
        segment_sha256: SHA-256 of a lost segment in hex; empty if the gap is a checkpoint.
        reason: Cause of the gap.
        retry: Time of the next attempt.
    """

    thread_id: str
    checkpoint_ns: str
    checkpoint_id: str
    segment_sha256: str
    reason: str
    retry: datetime


@dataclass(frozen=True, slots=True)
class ArchiveStatus:
    """The state of the archive. Sizes are in bytes; a time is `None` if there is no such event.

    Attributes:
        backlog_checkpoints: Checkpoints that are not certified.
        backlog_bytes: Bytes that wait for certification.
        oldest_uncertified: Time of the oldest change that is not certified.
        last_error: The archive's last error; empty after a success.
        last_error_time: Time of the last error.
        last_flush: Time of the last flush that certified a checkpoint.
        catalog: The newest catalog; a server can be rebuilt from it.
        journal_bytes: Size of the journal's database.
        spool_bytes: Bytes of built packs that are not certified yet.
        cache_bytes: Size of the local cache.
        certified_checkpoints: Number of certified checkpoints.
        earliest_expiry: Earliest time at which a needed blob may expire unless it is renewed.
        evicted_bytes: Bytes of values and writes that are in the blob store only.
        stored_blobs: Number of blobs that were stored and have not expired.
        billed_bytes: Bytes that the blob store billed for the stored blobs, over all puts.
        cost: Price of the puts of the stored blobs in FROST (1 WAL is 1,000,000,000 FROST), without
            gas.
        failing_renewals: Number of blobs that are due for renewal after their last renewal failed.
        gaps: Number of checkpoints that cannot be stored and of stored segments that were lost. The
            server retries each gap; nothing else waits for a gap.
        first_gaps: The first gaps, at most 100.
        search: The state of the search index; `None` if the server has no search index.
        scrubbed: Time of the last complete scrub of all threads of the journal.
        damaged_threads: Threads in which the scrub found damage that it could not repair; at most
            100. `verify` describes the damage.
    """

    backlog_checkpoints: int
    backlog_bytes: int
    oldest_uncertified: datetime | None
    last_error: str
    last_error_time: datetime | None
    last_flush: datetime | None
    catalog: Location | None
    journal_bytes: int
    spool_bytes: int
    cache_bytes: int
    certified_checkpoints: int
    earliest_expiry: datetime | None
    evicted_bytes: int
    stored_blobs: int
    billed_bytes: int
    cost: int
    failing_renewals: int
    gaps: int
    first_gaps: tuple[Gap, ...]
    search: SearchStatus | None
    scrubbed: datetime | None = None
    damaged_threads: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ClockJump:
    """A step of the server's clock that the journal does not follow.

    Attributes:
        expected: Time that the journal expects.
        clock: Time of the clock.
    """

    expected: datetime
    clock: datetime


@dataclass(frozen=True, slots=True)
class ServerInfo:
    """A description of the server.

    Attributes:
        version: Version of the server.
        methods: Full names of the methods that the server implements.
        limits: Maps names to numbers, as in `tuskpoint.v1.ServerLimits`; sizes in bytes, times in
            seconds.
        journal_backend: Kind of journal.
        blob_backend: Kind of blob store.
        journal_id: Identity of the journal.
        started: Time of the server's start.
        search_modes: Modes of search; empty if the server has no search index.
        embedder: Name of the embedder, which turns text into vectors; empty if the server has no
            embedder.
        signers: Public keys that sign the server's hand-offs, as hex; the first key is in use.
        recipients: Public keys of age to which hand-offs for this tenant can be sealed; use the
            first. Empty if the server has no identity.
        clock_jump: A step of the server's clock that stops deletions until `accept_clock`; `None`
            if the clock made no step.
        grpc_port: TCP port on which the server listens for gRPC; 0 if an older server does not
            tell. A proxy in front of the server can have another port.
    """

    version: str
    methods: tuple[str, ...]
    limits: dict[str, float]
    journal_backend: str
    blob_backend: str
    journal_id: str
    started: datetime
    search_modes: tuple[str, ...]
    embedder: str
    signers: tuple[str, ...] = ()
    recipients: tuple[str, ...] = ()
    clock_jump: ClockJump | None = None
    grpc_port: int = 0


def thread_record(message: thread_pb2.Thread) -> ThreadRecord:
    """Return the record of a thread message."""
    return ThreadRecord(
        thread_id=message.thread_id,
        incarnation=message.incarnation,
        agent_id=message.agent_id,
        state=_STATE_NAMES.get(message.state, "idle"),
        head_checkpoint_id=message.head_checkpoint_id,
        created=moment(message.create_time),
        updated=moment(message.update_time),
        expires=moment(message.expire_time) if message.HasField("expire_time") else None,
        retention=message.retention.ToTimedelta() if message.HasField("retention") else None,
        searchable=not message.unsearchable,
        heads={head.checkpoint_ns: head.checkpoint_id for head in message.heads},
        checkpoint_count=message.checkpoint_count,
        uncertified_count=message.uncertified_count,
        summary=message.summary,
        question=question_of(message.question) if message.HasField("question") else None,
        failure=failure_of(message.failure) if message.HasField("failure") else None,
        lease=lease_record(message.lease) if message.HasField("lease") else None,
    )


def manifest_record(message: manifest_pb2.ManifestEntry) -> ManifestRecord:
    """Return the record of a manifest entry."""
    return ManifestRecord(
        checkpoint_ns=message.checkpoint_ns,
        checkpoint_id=message.checkpoint_id,
        parent_checkpoint_id=message.parent_checkpoint_id,
        seq=message.seq,
        segment=location_of(message.segment),
        state_sha256=message.state_sha256.hex(),
        writes=tuple(location_of(location) for location in message.writes),
        summary=message.summary,
        label=message.label,
        lineage=lineage_of(message.lineage),
        created=moment(message.create_time),
    )


def stored_manifest(message: GetManifestResponse) -> Location | None:
    """Return the location of a stored manifest."""
    return location_of(message.manifest) if message.HasField("manifest") else None


def archive_status(message: GetArchiveStatusResponse) -> ArchiveStatus:
    """Return the record of the archive's state."""
    return ArchiveStatus(
        backlog_checkpoints=message.backlog_checkpoints,
        backlog_bytes=message.backlog_bytes,
        oldest_uncertified=_when(message, "oldest_uncertified_time"),
        last_error=message.last_error,
        last_error_time=_when(message, "last_error_time"),
        last_flush=_when(message, "last_flush_time"),
        catalog=location_of(message.catalog) if message.HasField("catalog") else None,
        journal_bytes=message.journal_bytes,
        spool_bytes=message.spool_bytes,
        cache_bytes=message.cache_bytes,
        certified_checkpoints=message.certified_checkpoints,
        earliest_expiry=_when(message, "earliest_expire_time"),
        evicted_bytes=message.evicted_bytes,
        stored_blobs=message.stored_blobs,
        billed_bytes=message.billed_bytes,
        cost=message.cost,
        failing_renewals=message.failing_renewals,
        gaps=message.gaps,
        first_gaps=tuple(
            Gap(
                thread_id=gap.thread_id,
                checkpoint_ns=gap.checkpoint_ns,
                checkpoint_id=gap.checkpoint_id,
                segment_sha256=gap.segment_sha256.hex(),
                reason=gap.reason,
                retry=moment(gap.retry_time),
            )
            for gap in message.first_gaps
        ),
        search=search_status(message.search) if message.HasField("search") else None,
        scrubbed=_when(message, "scrub_time"),
        damaged_threads=tuple(message.damaged_thread_ids),
    )


def server_info(message: GetServerInfoResponse) -> ServerInfo:
    """Return the record of the server's description."""
    limits: dict[str, float] = {}
    for field, value in message.limits.ListFields():
        is_number = isinstance(value, int)
        limits[field.name] = value if is_number else value.ToTimedelta().total_seconds()
    return ServerInfo(
        version=message.version,
        methods=tuple(message.methods),
        limits=limits,
        journal_backend=message.journal_backend,
        blob_backend=message.blob_backend,
        journal_id=message.journal_id,
        started=moment(message.start_time),
        search_modes=tuple(map(mode_name, message.search_modes)),
        embedder=message.embedder,
        signers=tuple(message.signers),
        recipients=tuple(message.recipients),
        clock_jump=clock_jump(message.clock_jump) if message.HasField("clock_jump") else None,
        grpc_port=message.grpc_port,
    )


def clock_jump(message: admin.ClockJump) -> ClockJump:
    """Return the record of a step of the clock."""
    return ClockJump(moment(message.expected_time), moment(message.clock_time))


@dataclass(frozen=True, slots=True)
class MemWalStatus:
    """The state of the delivery of summaries to MemWal. A time is `None` if there is no such event.

    Attributes:
        healthy: Whether the last call to MemWal succeeded.
        waiting: Number of summaries that wait to be sent.
        underway: Number of summaries that were sent and, as far as is known, cannot be recalled
            yet.
        delivered: Number of summaries that can be recalled.
        oldest_waiting: Time since which the oldest summary waits.
        last_error: The last error; empty after a success.
        last_error_time: Time of that error.
        last_recall: Time of the last recall that MemWal answered.
    """

    healthy: bool
    waiting: int
    underway: int
    delivered: int
    oldest_waiting: datetime | None
    last_error: str
    last_error_time: datetime | None
    last_recall: datetime | None


@dataclass(frozen=True, slots=True)
class SearchStatus:
    """The state of the search index.

    Attributes:
        unindexed_checkpoints: Number of journaled checkpoints that are not indexed yet; with an
            embedder also of checkpoints without a vector.
        oldest_unindexed: Time since which the oldest checkpoint waits for its text to be indexed;
            `None` if no checkpoint waits.
        indexed_checkpoints: Number of indexed checkpoints.
        vectors: Number of vectors in the index.
        last_error: The indexer's last error; empty after a success.
        memwal: The state of MemWal; `None` if the server does not use it.
        truncated_checkpoints: Number of indexed checkpoints that have only the latest part of their
            state in the index.
    """

    unindexed_checkpoints: int
    oldest_unindexed: datetime | None
    indexed_checkpoints: int
    vectors: int
    last_error: str
    memwal: MemWalStatus | None
    truncated_checkpoints: int = 0


def search_status(message: admin.SearchStatus) -> SearchStatus:
    """Return the record of the search index's state."""
    return SearchStatus(
        unindexed_checkpoints=message.unindexed_checkpoints,
        oldest_unindexed=_when(message, "oldest_unindexed_time"),
        indexed_checkpoints=message.indexed_checkpoints,
        vectors=message.vectors,
        last_error=message.last_error,
        memwal=_memwal_status(message.memwal) if message.HasField("memwal") else None,
        truncated_checkpoints=message.truncated_checkpoints,
    )


def _memwal_status(message: admin.MemWalStatus) -> MemWalStatus:
    return MemWalStatus(
        healthy=message.healthy,
        waiting=message.waiting,
        underway=message.underway,
        delivered=message.delivered,
        oldest_waiting=_when(message, "oldest_waiting_time"),
        last_error=message.last_error,
        last_error_time=_when(message, "last_error_time"),
        last_recall=_when(message, "last_recall_time"),
    )


def _when(message: Any, name: str) -> datetime | None:
    return moment(getattr(message, name)) if message.HasField(name) else None


def mode_name(mode: int) -> str:
    """Return the name of a search mode, or its number if only newer servers have the mode."""
    if mode not in search.SearchMode.values():
        return str(mode)
    return search.SearchMode.Name(search.SearchMode.ValueType(mode))[len("SEARCH_MODE_") :].lower()
