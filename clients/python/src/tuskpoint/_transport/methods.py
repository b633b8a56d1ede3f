"""Table of the methods: path, message types, and the longest time of a call."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Generic, TypeVar

from google.protobuf.message import Message

from ..v1 import admin_service_pb2 as admin
from ..v1 import checkpoint_service_pb2 as checkpoints
from ..v1 import effect_service_pb2 as effects
from ..v1 import handoff_service_pb2 as handoffs
from ..v1 import history_service_pb2 as history
from ..v1 import lease_service_pb2 as leases
from ..v1 import search_service_pb2 as search
from ..v1 import snapshot_service_pb2 as snapshots
from ..v1 import store_service_pb2 as store
from ..v1 import thread_service_pb2 as threads
from ..v1 import webhook_service_pb2 as webhooks

RequestT = TypeVar("RequestT", bound=Message)
AnswerT = TypeVar("AnswerT", bound=Message)


class Patience(Enum):
    """Deadline of a method, among the deadlines in `Options`."""

    QUICK = "timeout_s"
    LONG = "long_timeout_s"
    STREAM = "stream_timeout_s"
    ENDLESS = "watch_timeout_s"


@dataclass(frozen=True, slots=True)
class Method(Generic[RequestT, AnswerT]):
    """One method of the contract.

    Attributes:
        path: Path on the wire, "/package.Service/Method".
        request: Type of the request, or of the frames that are sent.
        answer: Type of the answer, or of the frames that are received.
        patience: Deadline of the method.
    """

    path: str
    request: type[RequestT]
    answer: type[AnswerT]
    patience: Patience = Patience.QUICK


_CHECKPOINTS = "/tuskpoint.v1.CheckpointService/"
_THREADS = "/tuskpoint.v1.ThreadService/"
_HISTORY = "/tuskpoint.v1.HistoryService/"
_SEARCH = "/tuskpoint.v1.SearchService/"
_LEASES = "/tuskpoint.v1.LeaseService/"
_HANDOFFS = "/tuskpoint.v1.HandoffService/"
_SNAPSHOTS = "/tuskpoint.v1.SnapshotService/"
_STORE = "/tuskpoint.v1.StoreService/"
_EFFECTS = "/tuskpoint.v1.EffectService/"
_ADMIN = "/tuskpoint.v1.AdminService/"
_WEBHOOKS = "/tuskpoint.v1.WebhookService/"

SAVE_CHECKPOINT = Method(
    _CHECKPOINTS + "SaveCheckpoint",
    checkpoints.SaveCheckpointRequest,
    checkpoints.SaveCheckpointResponse,
)
EXCHANGE = Method(
    _CHECKPOINTS + "Exchange",
    checkpoints.ExchangeRequest,
    checkpoints.ExchangeResponse,
    Patience.ENDLESS,
)
SAVE_WRITES = Method(
    _CHECKPOINTS + "SaveWrites", checkpoints.SaveWritesRequest, checkpoints.SaveWritesResponse
)
GET_CHECKPOINT = Method(
    _CHECKPOINTS + "GetCheckpoint",
    checkpoints.GetCheckpointRequest,
    checkpoints.GetCheckpointResponse,
)
LOAD_CHECKPOINT = Method(
    _CHECKPOINTS + "LoadCheckpoint",
    checkpoints.LoadCheckpointRequest,
    checkpoints.LoadCheckpointResponse,
    Patience.STREAM,
)
LIST_CHECKPOINTS = Method(
    _CHECKPOINTS + "ListCheckpoints",
    checkpoints.ListCheckpointsRequest,
    checkpoints.ListCheckpointsResponse,
    Patience.STREAM,
)
GET_DELTA_HISTORY = Method(
    _CHECKPOINTS + "GetDeltaHistory",
    checkpoints.GetDeltaHistoryRequest,
    checkpoints.GetDeltaHistoryResponse,
    Patience.STREAM,
)
SET_LABEL = Method(
    _CHECKPOINTS + "SetLabel", checkpoints.SetLabelRequest, checkpoints.SetLabelResponse
)
GET_THREAD = Method(_THREADS + "GetThread", threads.GetThreadRequest, threads.GetThreadResponse)
LIST_THREADS = Method(
    _THREADS + "ListThreads", threads.ListThreadsRequest, threads.ListThreadsResponse
)
DELETE_THREAD = Method(
    _THREADS + "DeleteThread",
    threads.DeleteThreadRequest,
    threads.DeleteThreadResponse,
    Patience.LONG,
)
ACQUIRE_LEASE = Method(
    _LEASES + "AcquireLease", leases.AcquireLeaseRequest, leases.AcquireLeaseResponse
)
KEEP_LEASE = Method(_LEASES + "KeepLease", leases.KeepLeaseRequest, leases.KeepLeaseResponse)
RELEASE_LEASE = Method(
    _LEASES + "ReleaseLease", leases.ReleaseLeaseRequest, leases.ReleaseLeaseResponse
)
SET_RETENTION = Method(
    _THREADS + "SetRetention",
    threads.SetRetentionRequest,
    threads.SetRetentionResponse,
    Patience.LONG,
)
SET_SEARCHABLE = Method(
    _THREADS + "SetSearchable",
    threads.SetSearchableRequest,
    threads.SetSearchableResponse,
    Patience.LONG,
)
COPY_THREAD = Method(
    _THREADS + "CopyThread", threads.CopyThreadRequest, threads.CopyThreadResponse, Patience.LONG
)
PRUNE_THREADS = Method(
    _THREADS + "PruneThreads",
    threads.PruneThreadsRequest,
    threads.PruneThreadsResponse,
    Patience.LONG,
)
DELETE_RUNS = Method(
    _THREADS + "DeleteRuns", threads.DeleteRunsRequest, threads.DeleteRunsResponse, Patience.LONG
)
FORK_THREAD = Method(
    _THREADS + "ForkThread", threads.ForkThreadRequest, threads.ForkThreadResponse, Patience.LONG
)
ROLLBACK_THREAD = Method(
    _THREADS + "RollbackThread",
    threads.RollbackThreadRequest,
    threads.RollbackThreadResponse,
    Patience.LONG,
)
GET_LINEAGE = Method(_THREADS + "GetLineage", threads.GetLineageRequest, threads.GetLineageResponse)
DIFF_CHECKPOINTS = Method(
    _THREADS + "DiffCheckpoints",
    threads.DiffCheckpointsRequest,
    threads.DiffCheckpointsResponse,
    Patience.LONG,
)
VERIFY_THREAD = Method(
    _THREADS + "VerifyThread",
    threads.VerifyThreadRequest,
    threads.VerifyThreadResponse,
    Patience.STREAM,
)
PREVIEW_RETENTION = Method(
    _THREADS + "PreviewRetention",
    threads.PreviewRetentionRequest,
    threads.PreviewRetentionResponse,
    Patience.LONG,
)
ERASE_THREADS = Method(
    _THREADS + "EraseThreads",
    threads.EraseThreadsRequest,
    threads.EraseThreadsResponse,
    Patience.LONG,
)
GET_MANIFEST = Method(
    _THREADS + "GetManifest", threads.GetManifestRequest, threads.GetManifestResponse
)
REPLAY_THREAD = Method(
    _HISTORY + "ReplayThread",
    history.ReplayThreadRequest,
    history.ReplayThreadResponse,
    Patience.STREAM,
)
WATCH_THREAD = Method(
    _HISTORY + "WatchThread",
    history.WatchThreadRequest,
    history.WatchThreadResponse,
    Patience.ENDLESS,
)
SEARCH_CHECKPOINTS = Method(
    _SEARCH + "SearchCheckpoints",
    search.SearchCheckpointsRequest,
    search.SearchCheckpointsResponse,
)
CREATE_HANDOFF = Method(
    _HANDOFFS + "CreateHandoff",
    handoffs.CreateHandoffRequest,
    handoffs.CreateHandoffResponse,
    Patience.LONG,
)
ADOPT_HANDOFF = Method(
    _HANDOFFS + "AdoptHandoff",
    handoffs.AdoptHandoffRequest,
    handoffs.AdoptHandoffResponse,
    Patience.LONG,
)
LIST_HANDOFFS = Method(
    _HANDOFFS + "ListHandoffs", handoffs.ListHandoffsRequest, handoffs.ListHandoffsResponse
)
WATCH_HANDOFFS = Method(
    _HANDOFFS + "WatchHandoffs",
    handoffs.WatchHandoffsRequest,
    handoffs.WatchHandoffsResponse,
    Patience.ENDLESS,
)
WITHDRAW_HANDOFF = Method(
    _HANDOFFS + "WithdrawHandoff",
    handoffs.WithdrawHandoffRequest,
    handoffs.WithdrawHandoffResponse,
)
CREATE_SNAPSHOT = Method(
    _SNAPSHOTS + "CreateSnapshot",
    snapshots.CreateSnapshotRequest,
    snapshots.CreateSnapshotResponse,
    Patience.LONG,
)
GET_SNAPSHOT = Method(
    _SNAPSHOTS + "GetSnapshot", snapshots.GetSnapshotRequest, snapshots.GetSnapshotResponse
)
GET_LATEST_SNAPSHOT = Method(
    _SNAPSHOTS + "GetLatestSnapshot",
    snapshots.GetLatestSnapshotRequest,
    snapshots.GetLatestSnapshotResponse,
)
LIST_SNAPSHOTS = Method(
    _SNAPSHOTS + "ListSnapshots", snapshots.ListSnapshotsRequest, snapshots.ListSnapshotsResponse
)
RESTORE_SNAPSHOT = Method(
    _SNAPSHOTS + "RestoreSnapshot",
    snapshots.RestoreSnapshotRequest,
    snapshots.RestoreSnapshotResponse,
    Patience.LONG,
)
DELETE_SNAPSHOT = Method(
    _SNAPSHOTS + "DeleteSnapshot",
    snapshots.DeleteSnapshotRequest,
    snapshots.DeleteSnapshotResponse,
    Patience.LONG,
)
PUT_ITEMS = Method(_STORE + "PutItems", store.PutItemsRequest, store.PutItemsResponse)
GET_ITEMS = Method(_STORE + "GetItems", store.GetItemsRequest, store.GetItemsResponse)
SEARCH_ITEMS = Method(_STORE + "SearchItems", store.SearchItemsRequest, store.SearchItemsResponse)
LIST_ITEM_NAMESPACES = Method(
    _STORE + "ListItemNamespaces",
    store.ListItemNamespacesRequest,
    store.ListItemNamespacesResponse,
)
BEGIN_EFFECT = Method(
    _EFFECTS + "BeginEffect", effects.BeginEffectRequest, effects.BeginEffectResponse
)
COMPLETE_EFFECT = Method(
    _EFFECTS + "CompleteEffect", effects.CompleteEffectRequest, effects.CompleteEffectResponse
)
FAIL_EFFECT = Method(_EFFECTS + "FailEffect", effects.FailEffectRequest, effects.FailEffectResponse)
RESOLVE_EFFECT = Method(
    _EFFECTS + "ResolveEffect", effects.ResolveEffectRequest, effects.ResolveEffectResponse
)
GET_EFFECT = Method(_EFFECTS + "GetEffect", effects.GetEffectRequest, effects.GetEffectResponse)
LIST_EFFECTS = Method(
    _EFFECTS + "ListEffects", effects.ListEffectsRequest, effects.ListEffectsResponse
)
GET_SERVER_INFO = Method(
    _ADMIN + "GetServerInfo", admin.GetServerInfoRequest, admin.GetServerInfoResponse
)
GET_ARCHIVE_STATUS = Method(
    _ADMIN + "GetArchiveStatus", admin.GetArchiveStatusRequest, admin.GetArchiveStatusResponse
)
LIST_TRAIL = Method(_ADMIN + "ListTrail", admin.ListTrailRequest, admin.ListTrailResponse)
ACCEPT_CLOCK = Method(_ADMIN + "AcceptClock", admin.AcceptClockRequest, admin.AcceptClockResponse)
FLUSH = Method(_ADMIN + "Flush", admin.FlushRequest, admin.FlushResponse, Patience.LONG)
LIST_WEBHOOKS = Method(
    _WEBHOOKS + "ListWebhooks", webhooks.ListWebhooksRequest, webhooks.ListWebhooksResponse
)
LIST_DELIVERIES = Method(
    _WEBHOOKS + "ListDeliveries", webhooks.ListDeliveriesRequest, webhooks.ListDeliveriesResponse
)
RETRY_DELIVERIES = Method(
    _WEBHOOKS + "RetryDeliveries", webhooks.RetryDeliveriesRequest, webhooks.RetryDeliveriesResponse
)
TEST_WEBHOOK = Method(
    _WEBHOOKS + "TestWebhook",
    webhooks.TestWebhookRequest,
    webhooks.TestWebhookResponse,
    Patience.LONG,
)
