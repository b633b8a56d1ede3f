"""What the limits of the contract say about a request that concerns a thread's history."""

from __future__ import annotations

from tuskpoint.v1 import history_service_pb2 as pb

from ..domain.limits import LIMITS
from ..domain.lineage import EventKind
from .checks import SOURCES, VIEWS, Checks

_KINDS = frozenset(EventKind)


def check_replay(request: pb.ReplayThreadRequest) -> None:
    """Check a replay.

    Raises:
        Refusal: `INVALID_FIELD`.
    """
    checks = Checks()
    checks.thread("thread_id", request.thread_id)
    checks.text("checkpoint_ns", request.checkpoint_ns, LIMITS.max_checkpoint_ns)
    for field in ("from_checkpoint_id", "to_checkpoint_id"):
        checks.text(field, getattr(request, field), LIMITS.max_checkpoint_id)
    checks.member("view", request.view, VIEWS)
    checks.member("source", request.source, SOURCES)
    checks.finish()


def check_watch(request: pb.WatchThreadRequest) -> None:
    """Check a watch; whether its cursor is one is seen later.

    Raises:
        Refusal: `INVALID_FIELD`.
    """
    checks = Checks()
    checks.thread("thread_id", request.thread_id)
    for number, kind in enumerate(request.kinds):
        checks.member(f"kinds[{number}]", kind, _KINDS)
    checks.member("view", request.view, VIEWS)
    interval = request.progress_interval
    if request.HasField("progress_interval") and (interval.seconds < 1 or interval.nanos < 0):
        checks.fail("progress_interval", "must be at least 1 second")
    checks.finish()
