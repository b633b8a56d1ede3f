"""Calls of one tenant that name another tenant's things.

The probes check one rule: a call with a name that another tenant uses gets the same answer as a
call with a name that no tenant uses. Answers are compared whole, so that a difference in a message,
a figure or a field is found without a search for it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass

from google.protobuf.message import Message

from tests.kit.messages import channel, ref, save_request, write
from tuskpoint._transport import methods
from tuskpoint.v1 import admin_service_pb2 as admin
from tuskpoint.v1 import checkpoint_pb2
from tuskpoint.v1 import checkpoint_service_pb2 as cpb
from tuskpoint.v1 import effect_service_pb2 as effects
from tuskpoint.v1 import handoff_service_pb2 as handoffs
from tuskpoint.v1 import history_service_pb2 as history
from tuskpoint.v1 import lease_service_pb2 as leases
from tuskpoint.v1 import search_service_pb2 as search
from tuskpoint.v1 import snapshot_service_pb2 as snapshots
from tuskpoint.v1 import store_service_pb2 as store
from tuskpoint.v1 import thread_service_pb2 as threads
from tuskpoint.v1 import webhook_service_pb2 as webhooks

OWN = "own-thread"
"""A thread of the caller."""


@dataclass(frozen=True)
class Names:
    """Names that one tenant uses and that another tenant could guess or learn."""

    thread: str
    checkpoint: str
    older: str
    deleted_thread: str
    deleted_checkpoint: str
    snapshot: str
    session: str
    run: str
    label: str
    agent: str
    request: str
    blob: str
    content: bytes
    words: str
    item: str
    leased: str
    lease: str
    handoff: str
    effect: str
    idempotency_key: str
    cursor: bytes

    @property
    def digest(self) -> bytes:
        """Digest of the content, as a value of type "bytes"."""
        return hashlib.sha256(b"bytes\0" + self.content).digest()


NOBODYS = Names(
    thread="nobodys-thread",
    checkpoint="1f000000-0000-6000-8000-00000000aaa2",
    older="1f000000-0000-6000-8000-00000000aaa1",
    deleted_thread="nobodys-old-thread",
    deleted_checkpoint="1f000000-0000-6000-8000-00000000aaa3",
    snapshot="1f000000-0000-6000-8000-00000000aaa4",
    session="nobodys-session",
    run="nobodys-run",
    label="nobodys-label",
    agent="nobodys-agent",
    request="nobodys-request",
    blob="nobodys-blob",
    content=b"what nobody keeps",
    words="nobody wrote zebras",
    item="nobodys-item",
    leased="nobodys-leased-thread",
    lease="1-00000000aaa5",
    handoff="1f000000-0000-6000-8000-00000000aaa6",
    effect="nobodys-effect",
    idempotency_key="00000000000000000000000000000aa7",
    cursor=b"",
)

Request = Message | list[Message]
"""Argument of a call; a list is a stream of requests."""

Read = tuple[checkpoint_pb2.CheckpointRef, checkpoint_pb2.View, checkpoint_pb2.Source]


def probes(names: Names) -> dict[str, Sequence[Request]]:
    """Return, by method, a stranger's requests with these names."""
    here, older = ref(names.checkpoint, names.thread), ref(names.older, names.thread)
    latest, own = ref("", names.thread), ref("", OWN)
    gone = ref(names.deleted_checkpoint, names.deleted_thread)
    reads: list[Read] = [
        (place, view, source)
        for place in (here, older, latest, gone, ref(names.checkpoint, OWN))
        for view in (checkpoint_pb2.VIEW_FULL, checkpoint_pb2.VIEW_JSON)
        for source in (checkpoint_pb2.SOURCE_ANY, checkpoint_pb2.SOURCE_BLOB)
    ]
    reads += [(place, checkpoint_pb2.VIEW_STEP, checkpoint_pb2.SOURCE_ANY) for place, *_ in reads]
    saves = [
        save_request(names.checkpoint, [channel("x", digest=names.digest)], thread_id="fresh"),
        save_request(
            "1f000000-0000-6000-8000-00000000bbb1",
            [channel("content", inherit={})],
            thread_id=names.thread,
            parent=names.checkpoint,
        ),
        save_request(
            "1f000000-0000-6000-8000-00000000bbb2",
            [channel("x", b"late")],
            thread_id=names.deleted_thread,
            parent=names.deleted_checkpoint,
        ),
        save_request(
            names.checkpoint,
            [channel("x", b"mine")],
            thread_id=names.thread,
            agent_id=names.agent,
            vector=[1.0, 0.0],
            expected_head="",
        ),
    ]
    writes = [
        cpb.SaveWritesRequest(ref=place, writes=[write("task")]) for place in (here, older, gone)
    ]
    return {
        methods.GET_CHECKPOINT.path: [
            cpb.GetCheckpointRequest(ref=place, view=view, source=source)
            for place, view, source in reads
        ],
        methods.LOAD_CHECKPOINT.path: [
            cpb.LoadCheckpointRequest(ref=place, view=view, source=source)
            for place, view, source in reads
        ],
        methods.LIST_CHECKPOINTS.path: [
            cpb.ListCheckpointsRequest(thread_id=names.thread),
            cpb.ListCheckpointsRequest(thread_id=names.thread, view=checkpoint_pb2.VIEW_STEP),
            cpb.ListCheckpointsRequest(thread_id=names.thread, before=names.checkpoint),
            cpb.ListCheckpointsRequest(thread_id=names.deleted_thread),
            cpb.ListCheckpointsRequest(checkpoint_id=names.checkpoint),
            cpb.ListCheckpointsRequest(label=names.label),
            cpb.ListCheckpointsRequest(filter_json=json.dumps({"run_id": names.run}).encode()),
        ],
        methods.GET_DELTA_HISTORY.path: [
            cpb.GetDeltaHistoryRequest(ref=place, channels=["content"]) for place in (here, latest)
        ],
        methods.GET_THREAD.path: [
            threads.GetThreadRequest(thread_id=thread_id)
            for thread_id in (names.thread, names.deleted_thread)
        ],
        methods.LIST_THREADS.path: [
            threads.ListThreadsRequest(agent_id=names.agent),
            threads.ListThreadsRequest(label=names.label),
        ],
        methods.GET_LINEAGE.path: [threads.GetLineageRequest(thread_id=names.thread)],
        methods.DIFF_CHECKPOINTS.path: [
            _diff(older, here),
            _diff(own, here),
            _diff(latest, own),
        ],
        methods.VERIFY_THREAD.path: [threads.VerifyThreadRequest(thread_id=names.thread)],
        methods.GET_MANIFEST.path: [threads.GetManifestRequest(thread_id=names.thread)],
        methods.REPLAY_THREAD.path: [
            history.ReplayThreadRequest(thread_id=names.thread),
            history.ReplayThreadRequest(thread_id=names.thread, from_checkpoint_id=names.older),
        ],
        methods.WATCH_THREAD.path: [
            history.WatchThreadRequest(
                thread_id=thread_id, cursor=cursor, progress_interval={"seconds": 1}
            )
            for thread_id in (names.thread, names.deleted_thread)
            for cursor in (b"", names.cursor)
        ],
        methods.SEARCH_CHECKPOINTS.path: [
            search.SearchCheckpointsRequest(text=names.words, limit=10),
            search.SearchCheckpointsRequest(text=names.words, thread_id=names.thread, limit=10),
            search.SearchCheckpointsRequest(text=names.words, agent_id=names.agent, limit=10),
            search.SearchCheckpointsRequest(
                vector=search.QueryVector(values=[1.0, 0.0]), thread_id=names.thread, limit=10
            ),
            search.SearchCheckpointsRequest(
                text=names.words, filter_json=json.dumps({"run_id": names.run}).encode(), limit=10
            ),
        ],
        methods.GET_ITEMS.path: [
            store.GetItemsRequest(
                keys=[store.ItemKey(namespace=[names.item], key=names.item)], refresh_ttl=True
            )
        ],
        methods.SEARCH_ITEMS.path: [
            store.SearchItemsRequest(namespace_prefix=[names.item]),
            store.SearchItemsRequest(filter_json=json.dumps({"item": names.item}).encode()),
        ],
        methods.LIST_ITEM_NAMESPACES.path: [
            store.ListItemNamespacesRequest(patterns=[store.NamespacePattern(labels=[names.item])])
        ],
        methods.GET_SNAPSHOT.path: [snapshots.GetSnapshotRequest(snapshot_id=names.snapshot)],
        methods.GET_LATEST_SNAPSHOT.path: [
            snapshots.GetLatestSnapshotRequest(session_id=names.session)
        ],
        methods.LIST_SNAPSHOTS.path: [snapshots.ListSnapshotsRequest(session_id=names.session)],
        methods.GET_SERVER_INFO.path: [admin.GetServerInfoRequest()],
        methods.GET_ARCHIVE_STATUS.path: [admin.GetArchiveStatusRequest()],
        methods.CREATE_HANDOFF.path: [
            handoffs.CreateHandoffRequest(ref=place, request_id=f"{names.request}-{number}")
            for number, place in enumerate((here, latest, gone))
        ]
        + [handoffs.CreateHandoffRequest(ref=here, request_id=names.request)],
        methods.LIST_TRAIL.path: [admin.ListTrailRequest()],
        methods.FLUSH.path: [admin.FlushRequest()],
        methods.ACCEPT_CLOCK.path: [admin.AcceptClockRequest()],
        methods.FORK_THREAD.path: [
            threads.ForkThreadRequest(ref=here, new_thread_id="forked", request_id="first"),
            threads.ForkThreadRequest(ref=here, new_thread_id="forked", request_id=names.request),
            threads.ForkThreadRequest(ref=gone, new_thread_id="forked", request_id="second"),
        ],
        methods.ROLLBACK_THREAD.path: [
            threads.RollbackThreadRequest(ref=older, request_id=f"rollback-{names.request}")
        ],
        methods.COPY_THREAD.path: [
            threads.CopyThreadRequest(
                source_thread_id=names.thread,
                target_thread_id="copied",
                request_id=f"copy-{names.request}",
            ),
        ],
        methods.CREATE_SNAPSHOT.path: [
            snapshots.CreateSnapshotRequest(
                thread_ids=[names.thread], request_id=f"snapshot-{names.request}"
            ),
            snapshots.CreateSnapshotRequest(thread_ids=[OWN, names.thread]),
        ],
        methods.RESTORE_SNAPSHOT.path: [
            snapshots.RestoreSnapshotRequest(
                snapshot_id=names.snapshot, mode=mode, request_id=f"restore-{names.request}-{mode}"
            )
            for mode in (
                snapshots.RESTORE_MODE_NEW_THREADS,
                snapshots.RESTORE_MODE_ROLLBACK,
            )
        ],
        methods.SET_LABEL.path: [
            cpb.SetLabelRequest(ref=place, label="stolen") for place in (here, latest, gone)
        ],
        methods.SET_RETENTION.path: [
            threads.SetRetentionRequest(thread_id=names.thread, retention={"seconds": 60})
        ],
        methods.PREVIEW_RETENTION.path: [
            threads.PreviewRetentionRequest(),
            threads.PreviewRetentionRequest(
                rules=[
                    threads.RetentionRule(thread_id=names.thread, keep_last=1),
                    threads.RetentionRule(delete_after={"seconds": 1}),
                ]
            ),
        ],
        methods.SET_SEARCHABLE.path: [threads.SetSearchableRequest(thread_id=names.thread)],
        methods.ADOPT_HANDOFF.path: [
            handoffs.AdoptHandoffRequest(
                descriptor=handoffs.HandoffDescriptor(
                    source=f"{names.thread}:{names.checkpoint}",
                    thread_id=names.thread,
                    checkpoint_id=names.checkpoint,
                    blob_id="a-blob-that-is-not-there",
                    blob_sha256="0" * 64,
                ),
                new_thread_id=names.thread,
                request_id=names.request,
            ),
            handoffs.AdoptHandoffRequest(
                handoff_id=names.handoff, new_thread_id=names.thread, request_id=names.request
            ),
        ],
        methods.LIST_HANDOFFS.path: [
            handoffs.ListHandoffsRequest(),
            handoffs.ListHandoffsRequest(to_agent=names.agent),
            handoffs.ListHandoffsRequest(thread_id=names.thread),
        ],
        methods.WATCH_HANDOFFS.path: [handoffs.WatchHandoffsRequest(to_agent=names.agent)],
        methods.WITHDRAW_HANDOFF.path: [handoffs.WithdrawHandoffRequest(handoff_id=names.handoff)],
        methods.LIST_EFFECTS.path: [effects.ListEffectsRequest(thread_id=names.thread)],
        methods.GET_EFFECT.path: [
            effects.GetEffectRequest(thread_id=names.thread, key=names.effect)
        ],
        methods.RESOLVE_EFFECT.path: [
            effects.ResolveEffectRequest(thread_id=names.thread, key=names.effect, attempt=1)
        ],
        methods.COMPLETE_EFFECT.path: [
            effects.CompleteEffectRequest(
                thread_id=names.thread, key=names.effect, idempotency_key=names.idempotency_key
            )
        ],
        methods.FAIL_EFFECT.path: [
            effects.FailEffectRequest(
                thread_id=names.thread,
                key=names.effect,
                idempotency_key=names.idempotency_key,
                attempt=1,
                outcome=effects.ATTEMPT_OUTCOME_NOT_DONE,
            )
        ],
        methods.BEGIN_EFFECT.path: [
            effects.BeginEffectRequest(
                thread_id=names.thread, key=names.effect, request_id=names.request
            )
        ],
        methods.LIST_WEBHOOKS.path: [webhooks.ListWebhooksRequest()],
        methods.LIST_DELIVERIES.path: [webhooks.ListDeliveriesRequest(webhook=names.agent)],
        methods.RETRY_DELIVERIES.path: [webhooks.RetryDeliveriesRequest(webhook=names.agent)],
        methods.TEST_WEBHOOK.path: [webhooks.TestWebhookRequest(webhook=names.agent)],
        methods.ACQUIRE_LEASE.path: [
            leases.AcquireLeaseRequest(
                thread_id=names.leased, owner=names.agent, request_id=names.request
            )
        ],
        methods.KEEP_LEASE.path: [
            leases.KeepLeaseRequest(thread_id=names.leased, lease_id=names.lease)
        ],
        methods.RELEASE_LEASE.path: [
            leases.ReleaseLeaseRequest(thread_id=names.leased, lease_id=names.lease)
        ],
        methods.PUT_ITEMS.path: [
            store.PutItemsRequest(
                changes=[store.ItemChange(namespace=[names.item], key=names.item)]
            )
        ],
        methods.SAVE_WRITES.path: writes,
        methods.SAVE_CHECKPOINT.path: saves,
        methods.EXCHANGE.path: [
            [cpb.ExchangeRequest(frames=[cpb.Frame(id=1, save=save)])] for save in saves[:2]
        ],
        methods.PRUNE_THREADS.path: [
            threads.PruneThreadsRequest(thread_ids=[names.thread], strategy=strategy)
            for strategy in (
                threads.PRUNE_STRATEGY_KEEP_LATEST,
                threads.PRUNE_STRATEGY_DELETE_ALL,
            )
        ],
        methods.DELETE_RUNS.path: [threads.DeleteRunsRequest(run_ids=[names.run])],
        methods.DELETE_SNAPSHOT.path: [snapshots.DeleteSnapshotRequest(snapshot_id=names.snapshot)],
        methods.DELETE_THREAD.path: [
            threads.DeleteThreadRequest(thread_id=thread_id)
            for thread_id in (names.thread, names.deleted_thread)
        ],
        methods.ERASE_THREADS.path: [
            threads.EraseThreadsRequest(thread_ids=[names.thread, names.deleted_thread])
        ],
    }


def _diff(
    before: checkpoint_pb2.CheckpointRef, after: checkpoint_pb2.CheckpointRef
) -> threads.DiffCheckpointsRequest:
    request = threads.DiffCheckpointsRequest(to=after)
    getattr(request, "from").CopyFrom(before)  # `from` is a keyword of Python
    return request
