"""Who calls and what that allows: a call's tenant and scopes, from its credential.

A token comes as `authorization: Bearer TOKEN` (RFC 6750) and is known by its SHA-256, which
is looked up in a mapping; `domain.credentials` says why that is safe. No call waits for a
file: the credentials in force are replaced from outside when their file has changed.

A call lives no longer than its credential. One that is running when its credential expires,
is taken away or loses a scope is cut off, so that a watch does not go on for weeks.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING

from ..domain.credentials import (
    EVERYTHING,
    Credentials,
    Grant,
    Presented,
    Scope,
    token_digest,
)
from ..domain.errors import Reason, Refusal

if TYPE_CHECKING:
    from .calls import Call

_SCOPES: dict[str, dict[tuple[Scope, ...], str]] = {
    "CheckpointService": {
        (Scope.READ,): "GetCheckpoint LoadCheckpoint ListCheckpoints GetDeltaHistory",
        (Scope.WRITE,): "SaveCheckpoint SaveCheckpoints SaveWrites SetLabel",
    },
    "ThreadService": {
        (Scope.READ,): "GetThread ListThreads GetLineage DiffCheckpoints VerifyThread GetManifest",
        (Scope.WRITE,): "DeleteThread SetRetention SetSearchable CopyThread PruneThreads"
        " DeleteRuns ForkThread RollbackThread",
    },
    "HistoryService": {(Scope.READ,): "ReplayThread WatchThread"},
    "HandoffService": {
        (Scope.READ, Scope.HANDOFF): "CreateHandoff",
        (Scope.WRITE, Scope.HANDOFF): "AdoptHandoff",
    },
    "SearchService": {(Scope.READ,): "SearchCheckpoints"},
    "SnapshotService": {
        (Scope.READ,): "GetSnapshot GetLatestSnapshot ListSnapshots",
        (Scope.WRITE,): "CreateSnapshot RestoreSnapshot DeleteSnapshot",
    },
    "AdminService": {(Scope.READ,): "GetServerInfo GetArchiveStatus", (Scope.ADMIN,): "Flush"},
}

POLICY: Mapping[str, frozenset[Scope]] = {
    f"/tuskpoint.v1.{service}/{method}": frozenset(scopes)
    for service, needed in _SCOPES.items()
    for scopes, methods in needed.items()
    for method in methods.split()
}
"""Scopes that a call needs, all of them, by the full name of its method.

A method that is not in it is denied to everybody, so that a new one is not open by accident.
"""

_BEARER = re.compile(r"bearer +([A-Za-z0-9._~+/-]+=*) *", re.IGNORECASE)
"""https://www.rfc-editor.org/rfc/rfc6750#section-2.1; schemes are compared without case."""

_log = logging.getLogger(__name__)


def check_scopes(call: Call, needed: frozenset[Scope] | None) -> None:
    """Let a call pass that has all these scopes; `None`: none would do."""
    if needed is None or not needed <= call.scopes:
        missing = [scope for scope in Scope if scope in (needed or ()) and scope not in call.scopes]
        call.denied = "scope"
        raise Refusal(Reason.SCOPE_MISSING, scope=missing[0] if missing else "", method=call.method)


@dataclass(slots=True)
class Authentication:
    """Says whose data a call is about, and what it may do."""

    _credentials: Credentials | None = None
    now: Callable[[], datetime] = lambda: datetime.now(UTC)
    running: dict[Call, tuple[Presented, Grant]] = field(default_factory=dict)

    def admit(self, call: Call) -> None:
        """Give a call what its credential allows, as long as it is among those `running`."""
        presented: Presented = ()
        grant: Grant | None = EVERYTHING
        if self._credentials is not None:
            presented = _presented(call, self._credentials)
            grant = self._credentials.find(presented)
        if grant is None and not isinstance(presented, bytes):
            raise _refused(call, "missing", "send metadata 'authorization: Bearer TOKEN'")
        if grant is None:
            raise _refused(call, "unknown")
        if grant.expires is not None and self.now() >= grant.expires:
            raise _refused(call, "expired", "it has expired; ask for another")
        call.tenant, call.scopes = grant.tenant, grant.scopes
        self.running[call] = presented, grant
        self._end_with(call, grant)

    def replace(self, credentials: Credentials) -> None:
        """Put other credentials in force, and cut off calls that they do not allow any more."""
        self._credentials = credentials
        cut_off: Counter[str] = Counter()
        for call, (presented, before) in self.running.items():
            if call.lifetime.expired():
                continue  # it is on its way out
            grant = credentials.find(presented)
            if grant is None or not grant.covers(before):
                cut_off[before.name] += 1
                why = "it was revoked while the call ran"
                call.end_at(0, partial(_refused, call, "revoked", why))
            else:
                self.running[call] = presented, grant
                self._end_with(call, grant)
        for name, count in cut_off.items():
            _log.info("credential '%s' is not in force any more: %d calls cut off", name, count)

    def _end_with(self, call: Call, grant: Grant) -> None:
        end = None
        if grant.expires is not None:
            left = (grant.expires - self.now()).total_seconds()
            end = asyncio.get_running_loop().time() + left
        if end is not None and (call.cap is None or end < call.cap):
            why = "it expired while the call ran"
            call.end_at(end, partial(_refused, call, "expired", why))
        else:
            call.end_at(call.cap)


def _presented(call: Call, credentials: Credentials) -> Presented:
    metadata = call.context.invocation_metadata() or ()
    sent = [value for name, value in metadata if name == "authorization"]
    if not sent:
        # Names in the client's certificate, which the handshake has checked.
        names = call.context.auth_context() if credentials.subjects else {}
        kinds = ("peer_dns", "x509_common_name")
        found = (name.decode(errors="replace") for kind in kinds for name in names.get(kind, ()))
        return tuple(found)
    if len(sent) > 1:
        raise _refused(call, "malformed", "send metadata 'authorization' once")
    bearer = _BEARER.fullmatch(sent[0]) if isinstance(sent[0], str) else None
    if bearer is None:
        raise _refused(call, "malformed", "metadata 'authorization' has to be 'Bearer TOKEN'")
    return token_digest(bearer[1])


def _refused(call: Call, why: str, advice: str = "") -> Refusal:
    call.denied = why
    return Refusal(Reason.CREDENTIAL_INVALID, advice=advice)
