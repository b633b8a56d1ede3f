"""The scopes that calls need."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ...core.credentials import Scope
from ...core.errors import Reason, Refusal

if TYPE_CHECKING:
    from .pipeline import Call

_SCOPES: dict[str, dict[tuple[Scope, ...], str]] = {
    "CheckpointService": {
        (): "Exchange",  # each frame needs the scopes of its unary twin
        (Scope.READ,): "GetCheckpoint LoadCheckpoint ListCheckpoints GetDeltaHistory",
        (Scope.WRITE,): "SaveCheckpoint SaveWrites SetLabel",
    },
    "ThreadService": {
        (Scope.READ,): "GetThread ListThreads GetLineage DiffCheckpoints VerifyThread GetManifest"
        " PreviewRetention",
        (Scope.WRITE,): "DeleteThread SetRetention SetSearchable CopyThread PruneThreads"
        " DeleteRuns ForkThread RollbackThread",
        (Scope.ADMIN,): "EraseThreads",
    },
    "EffectService": {
        (Scope.READ,): "GetEffect ListEffects",
        (Scope.WRITE,): "BeginEffect CompleteEffect FailEffect ResolveEffect",
    },
    "HistoryService": {(Scope.READ,): "ReplayThread WatchThread"},
    "HandoffService": {
        (Scope.READ,): "ListHandoffs WatchHandoffs",
        (Scope.READ, Scope.HANDOFF): "CreateHandoff WithdrawHandoff",
        (Scope.WRITE, Scope.HANDOFF): "AdoptHandoff",
    },
    "LeaseService": {(Scope.WRITE,): "AcquireLease KeepLease ReleaseLease"},
    "SearchService": {(Scope.READ,): "SearchCheckpoints"},
    "SnapshotService": {
        (Scope.READ,): "GetSnapshot GetLatestSnapshot ListSnapshots",
        (Scope.WRITE,): "CreateSnapshot RestoreSnapshot DeleteSnapshot",
    },
    "StoreService": {
        (Scope.READ,): "GetItems SearchItems ListItemNamespaces",
        (Scope.WRITE,): "PutItems",
    },
    "AdminService": {
        (Scope.READ,): "GetServerInfo GetArchiveStatus",
        (Scope.ADMIN,): "Flush ListTrail AcceptClock",
    },
    "WebhookService": {
        (Scope.ADMIN,): "ListWebhooks ListDeliveries RetryDeliveries TestWebhook",
    },
}


POLICY: Mapping[str, frozenset[Scope]] = {
    f"/tuskpoint.v1.{service}/{method}": frozenset(scopes)
    for service, needed in _SCOPES.items()
    for scopes, methods in needed.items()
    for method in methods.split()
}
"""Scopes that a call needs, all of them, by the full name of its method.

Methods that are missing here are denied to everybody, so that no new method is open by accident.
"""


EXCHANGE = "/tuskpoint.v1.CheckpointService/Exchange"
"""The stream whose frames are calls; each needs the scopes of its unary twin."""

STORING = frozenset({Scope.READ, Scope.WRITE})
"""Scopes of a call of `GetManifest` that stores the manifest."""

CHANGES = frozenset(method for method, scopes in POLICY.items() if scopes - {Scope.READ})
"""Methods that change data, or that only administrators may call."""


def check_scopes(call: Call, needed: frozenset[Scope] | None) -> None:
    """Refuse a call that lacks one of these scopes; `None` refuses every call."""
    scopes = call.scopes
    if needed is None or not needed <= scopes:
        lacking = [scope for scope in Scope if scope in (needed or ()) and scope not in scopes]
        call.denied = "scope"
        raise Refusal(Reason.SCOPE_MISSING, scope=lacking[0] if lacking else "", method=call.method)
