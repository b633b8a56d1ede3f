"""What each call needs: the one table of scopes.

A method that is not in it is denied to everybody, so that a new one is not open by accident.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from ..domain.credentials import Scope
from ..domain.errors import Reason, Refusal
from .calls import Call

_READ = frozenset({Scope.READ})
_WRITE = frozenset({Scope.WRITE})
_ADMIN = frozenset({Scope.ADMIN})
_HAND_OFF = frozenset({Scope.READ, Scope.HANDOFF})
_ADOPT = frozenset({Scope.WRITE, Scope.HANDOFF})

_SERVICES: dict[str, dict[str, frozenset[Scope]]] = {
    "CheckpointService": {
        "SaveCheckpoint": _WRITE,
        "SaveCheckpoints": _WRITE,
        "SaveWrites": _WRITE,
        "GetCheckpoint": _READ,
        "LoadCheckpoint": _READ,
        "ListCheckpoints": _READ,
        "GetDeltaHistory": _READ,
        "SetLabel": _WRITE,
    },
    "ThreadService": {
        "GetThread": _READ,
        "ListThreads": _READ,
        "DeleteThread": _WRITE,
        "SetRetention": _WRITE,
        "SetSearchable": _WRITE,
        "CopyThread": _WRITE,
        "PruneThreads": _WRITE,
        "DeleteRuns": _WRITE,
        "ForkThread": _WRITE,
        "RollbackThread": _WRITE,
        "GetLineage": _READ,
        "DiffCheckpoints": _READ,
        "VerifyThread": _READ,
        "GetManifest": _READ,
    },
    "HistoryService": {
        "ReplayThread": _READ,
        "WatchThread": _READ,
    },
    "HandoffService": {
        "CreateHandoff": _HAND_OFF,
        "AdoptHandoff": _ADOPT,
    },
    "SearchService": {
        "SearchCheckpoints": _READ,
    },
    "SnapshotService": {
        "CreateSnapshot": _WRITE,
        "GetSnapshot": _READ,
        "GetLatestSnapshot": _READ,
        "ListSnapshots": _READ,
        "RestoreSnapshot": _WRITE,
        "DeleteSnapshot": _WRITE,
    },
    "AdminService": {
        "GetServerInfo": _READ,
        "GetArchiveStatus": _READ,
        "Flush": _ADMIN,
    },
}

POLICY: Mapping[str, frozenset[Scope]] = {
    f"/tuskpoint.v1.{service}/{method}": scopes
    for service, methods in _SERVICES.items()
    for method, scopes in methods.items()
}
"""Scopes that a call needs, all of them, by the full name of its method."""


class Authorisation:
    """The layer that lets a call pass if its credential has the scopes that its method needs.

    It stands before everything that looks something up, so that a refusal tells nothing
    about what exists.
    """

    def __init__(self, policy: Mapping[str, frozenset[Scope]] = POLICY) -> None:
        self._policy = policy

    @asynccontextmanager
    async def __call__(self, call: Call) -> AsyncIterator[None]:
        """Run a call that is allowed.

        Raises:
            Refusal: `SCOPE_MISSING`.
        """
        missing = self._missing(call)
        if missing is not None:
            call.denied = "scope"
            raise Refusal(Reason.SCOPE_MISSING, scope=missing, method=call.method)
        yield

    def _missing(self, call: Call) -> str | None:
        """Return the first scope that a call lacks; empty if no scope would do."""
        needed = self._policy.get(call.method)
        if needed is None:
            return ""
        return next((scope for scope in Scope if scope in needed - call.scopes), None)
