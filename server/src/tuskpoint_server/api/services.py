"""Every service of the contract, with its servicer."""

from __future__ import annotations

from typing import Any

from google.protobuf.descriptor import ServiceDescriptor

from tuskpoint.v1 import (
    admin_service_pb2,
    checkpoint_service_pb2,
    effect_service_pb2,
    handoff_service_pb2,
    history_service_pb2,
    lease_service_pb2,
    search_service_pb2,
    snapshot_service_pb2,
    store_service_pb2,
    thread_service_pb2,
    webhook_service_pb2,
)

from ..features.admin import Admin
from ..features.checkpoints.checkpoints import Checkpoints
from ..features.checkpoints.threads import Threads
from ..features.effects.effects import Effects
from ..features.history.history import History
from ..features.inbox.inbox import Inbox
from ..features.items.items import Store
from ..features.leases.leases import Leases
from ..features.lineage.branches import Branches
from ..features.lineage.handoffs import Handoffs
from ..features.lineage.snapshots import Snapshots
from ..features.removal.removal import Removal
from ..features.removal.retention import Retention
from ..features.searching import Search
from ..features.trail.trail import Trail
from ..features.webhooks.webhooks import Webhooks
from .admin import AdminServicer
from .checkpoints.servicer import CheckpointServicer
from .effects import EffectServicer
from .handoffs import HandoffServicer
from .history import HistoryServicer
from .leases import LeaseServicer
from .search import SearchServicer
from .snapshots import SnapshotServicer
from .store import StoreServicer
from .threads.servicer import ThreadServicer
from .webhooks import WebhookServicer


def services(
    checkpoints: Checkpoints,
    threads: Threads,
    branches: Branches,
    removal: Removal,
    retention: Retention,
    snapshots: Snapshots,
    history: History,
    handoffs: Handoffs,
    leases: Leases,
    inbox: Inbox,
    search: Search,
    store: Store,
    effects: Effects,
    admin: Admin,
    trail: Trail,
    webhooks: Webhooks,
) -> list[tuple[ServiceDescriptor, object]]:
    """Return every service of the contract with its servicer."""
    built: list[tuple[Any, object]] = [
        (checkpoint_service_pb2, CheckpointServicer(checkpoints)),
        (thread_service_pb2, ThreadServicer(threads, checkpoints, branches, removal, retention)),
        (history_service_pb2, HistoryServicer(history)),
        (handoff_service_pb2, HandoffServicer(handoffs, inbox)),
        (lease_service_pb2, LeaseServicer(leases)),
        (search_service_pb2, SearchServicer(search)),
        (snapshot_service_pb2, SnapshotServicer(snapshots)),
        (store_service_pb2, StoreServicer(store)),
        (effect_service_pb2, EffectServicer(effects)),
        (admin_service_pb2, AdminServicer(admin, trail)),
        (webhook_service_pb2, WebhookServicer(webhooks)),
    ]
    return [
        (service, servicer)
        for file, servicer in built
        for service in file.DESCRIPTOR.services_by_name.values()
    ]
