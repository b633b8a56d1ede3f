"""Leases of threads: records, requests, and the leases that a client holds. Pure.

Only `HeldLeases.of_environment` reads the environment.
"""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Mapping
from typing import Literal

from ..errors import InvalidRequest, LeaseLost
from ..v1 import lease_service_pb2 as leases
from ..v1.checkpoint_service_pb2 import SaveCheckpointRequest, SaveWritesRequest
from ..v1.effect_service_pb2 import BeginEffectRequest
from ..v1.thread_service_pb2 import RollbackThreadRequest
from .arguments import check_texts, invalid_field
from .records import LeaseRecord
from .requests import choice

OnBusy = Literal["reject", "wait", "take_over"]

LEASE_VARIABLE = "TUSKPOINT_LEASE"
"""Environment variable with a lease that another process holds: its ID, a colon and the thread."""

TTL_S, WAIT_S = 30.0, 30.0
_MAX_OWNER = 256  # bytes
_ON_BUSY: dict[str, leases.OnBusy] = {
    "reject": leases.ON_BUSY_REJECT,
    "wait": leases.ON_BUSY_WAIT,
    "take_over": leases.ON_BUSY_TAKE_OVER,
}


def default_owner(agent_id: str = "") -> str:
    """Return a name for this process, with the agent's name if there is one."""
    place = f"{socket.gethostname()}:{os.getpid()}"
    name = f"{agent_id} on {place}" if agent_id else place
    return name.encode(errors="replace")[:_MAX_OWNER].decode(errors="ignore")


def acquiring(
    thread_id: str,
    owner: str | None,
    ttl_s: float,
    on_busy: OnBusy | None,
    wait_s: float | None,
    *,
    advisory: bool,
    agent_id: str = "",
) -> leases.AcquireLeaseRequest:
    """Return the request that acquires a lease; see `Client.lease`.

    Raises:
        InvalidRequest: A text cannot be sent, a time is below 0 or not finite, or `on_busy` is
            unknown.
    """
    owner = default_owner(agent_id) if owner is None else owner
    on_busy = on_busy or ("reject" if wait_s is None else "wait")
    check_texts(thread_id=thread_id, owner=owner)
    request = leases.AcquireLeaseRequest(
        thread_id=thread_id,
        owner=owner,
        on_busy=choice("on_busy", on_busy, _ON_BUSY),
        advisory=advisory,
    )
    request.ttl.FromNanoseconds(_nanoseconds("ttl_s", ttl_s))
    if on_busy == "wait":
        request.wait.FromNanoseconds(_nanoseconds("wait_s", WAIT_S if wait_s is None else wait_s))
    return request


def keeping(lease: LeaseRecord, ttl_s: float | None) -> leases.KeepLeaseRequest:
    """Return the request that extends a lease."""
    request = leases.KeepLeaseRequest(thread_id=lease.thread_id, lease_id=lease.lease_id)
    if ttl_s is not None:
        request.ttl.FromNanoseconds(_nanoseconds("ttl_s", ttl_s))
    return request


def releasing(lease: LeaseRecord) -> leases.ReleaseLeaseRequest:
    """Return the request that ends a lease."""
    return leases.ReleaseLeaseRequest(thread_id=lease.thread_id, lease_id=lease.lease_id)


def _nanoseconds(what: str, seconds: float) -> int:
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        raise invalid_field(what, f"it must be a number of seconds, not {seconds!r:.80}")
    if not 0 <= seconds <= 10**6:
        raise invalid_field(what, f"it must be at least 0 seconds, not {seconds!r}")
    return int(seconds * 1e9)


class HeldLeases:
    """The leases under which a client changes threads. Thread-safe.

    A lease that was lost stays until its holder leaves: a later change must not succeed without it.
    """

    def __init__(self, ids: Mapping[str, str] | None = None) -> None:
        self._lock = threading.Lock()
        self._ids = dict(ids or {})
        self._lost: dict[str, LeaseLost] = {}

    @classmethod
    def of_environment(cls) -> HeldLeases:
        """Return the lease in the environment variable `TUSKPOINT_LEASE`, if there is one.

        Raises:
            InvalidRequest: The variable is malformed.
        """
        text = os.environ.get(LEASE_VARIABLE, "")
        lease_id, colon, thread_id = text.partition(":")
        if text and not (lease_id and colon and thread_id):
            raise InvalidRequest(
                f"{LEASE_VARIABLE} must be the ID of a lease, a colon and the thread, not {text!r};"
                " `tuskpoint lease run THREAD -- COMMAND` sets it"
            )
        return cls({thread_id: lease_id} if text else None)

    def enter(self, lease: LeaseRecord) -> None:
        """Change the thread under this lease from now on."""
        with self._lock:
            self._ids[lease.thread_id] = lease.lease_id

    def leave(self, lease: LeaseRecord) -> None:
        """Change the thread without this lease from now on."""
        with self._lock:
            self._lost.pop(lease.lease_id, None)
            if self._ids.get(lease.thread_id) == lease.lease_id:
                del self._ids[lease.thread_id]

    def note(self, error: LeaseLost) -> None:
        """Note that a lease was lost, as a change or an extension found out."""
        with self._lock:
            if error.lease_id in self._ids.values():
                self._lost.setdefault(error.lease_id, error)

    def check(self, lease: LeaseRecord) -> None:
        """Raise if a lease is known to be lost; sends nothing.

        Raises:
            LeaseLost: The lease has ended.
        """
        error = self._lost.get(lease.lease_id)
        if error is not None:
            raise error

    def fill(
        self,
        request: SaveCheckpointRequest
        | SaveWritesRequest
        | RollbackThreadRequest
        | BeginEffectRequest,
    ) -> None:
        """Name the lease of the thread in a change, if the client has one."""
        if not self._ids or request.lease_id:
            return
        if isinstance(request, BeginEffectRequest):
            thread_id = request.thread_id
        elif isinstance(request, SaveCheckpointRequest):
            thread_id = request.checkpoint.ref.thread_id
        else:
            thread_id = request.ref.thread_id
        lease_id = self._ids.get(thread_id)
        if lease_id is not None:
            request.lease_id = lease_id
