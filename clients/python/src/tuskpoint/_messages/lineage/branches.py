"""Forks, rollbacks, ancestry, differences and verification: records and requests. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from ...errors import ServerError
from ...v1 import thread_service_pb2 as threads
from ..arguments import invalid_field
from ..records import DurabilityName, Location, Reference, location_of, moment, reference_of
from ..requests import durability, ref

DescentName = Literal["fork", "adoption", "rollback"]
ChangeName = Literal["added", "removed", "changed"]
VerdictName = Literal["pass", "fail", "unverified", "retracted"]

_DESCENTS: dict[int, DescentName] = {
    threads.LINEAGE_KIND_FORK: "fork",
    threads.LINEAGE_KIND_ADOPTION: "adoption",
    threads.LINEAGE_KIND_ROLLBACK: "rollback",
}
_CHANGES: dict[int, ChangeName] = {
    threads.CHANGE_KIND_ADDED: "added",
    threads.CHANGE_KIND_REMOVED: "removed",
    threads.CHANGE_KIND_CHANGED: "changed",
}
_VERDICTS: dict[int, VerdictName] = {
    threads.VERDICT_PASS: "pass",
    threads.VERDICT_FAIL: "fail",
    threads.VERDICT_UNVERIFIED: "unverified",
    threads.VERDICT_RETRACTED: "retracted",
}


@dataclass(frozen=True, slots=True)
class Fork:
    """The outcome of a fork.

    Attributes:
        new_thread_id: The new thread.
        checkpoint_id: Its first checkpoint, which has the ID of the forked one.
        forked_from: What was forked, "thread:checkpoint".
    """

    new_thread_id: str
    checkpoint_id: str
    forked_from: str


@dataclass(frozen=True, slots=True)
class Rollback:
    """The outcome of a rollback.

    Attributes:
        thread_id: The thread.
        checkpoint_id: The appended checkpoint.
        rolled_back_from: What was rolled back to, "thread:checkpoint".
    """

    thread_id: str
    checkpoint_id: str
    rolled_back_from: str


@dataclass(frozen=True, slots=True)
class LineageStep:
    """The origin of one checkpoint in another.

    Attributes:
        kind: "fork", "adoption" or "rollback".
        origin: What was forked, adopted or rolled back to. Of an adoption it may be on another
            server.
        result: The checkpoint that came from it.
        created: Time at which that was made.
    """

    kind: DescentName
    origin: Reference
    result: Reference
    created: datetime


@dataclass(frozen=True, slots=True)
class ThreadLineage:
    """The ancestors and the descendants of a thread.

    Attributes:
        ancestors: The steps from the oldest known ancestor to the thread, oldest first.
        descendants: The steps that begin in the thread or in one that descends from it,
            nearest first.
        truncated: Whether there are more descendants than were returned.
    """

    ancestors: tuple[LineageStep, ...]
    descendants: tuple[LineageStep, ...]
    truncated: bool


@dataclass(frozen=True, slots=True)
class Change:
    """One difference between two checkpoints.

    Attributes:
        kind: "added" (only the second has it), "removed" (only the first) or "changed".
        channel: The channel.
        path: JSON Pointer (RFC 6901) inside the channel's JSON view; empty is the whole value.
        from_json: JSON view of the first, cut at 4,096 bytes; `None` if added.
        to_json: JSON view of the second, cut at 4,096 bytes; `None` if removed.
    """

    kind: ChangeName
    channel: str
    path: str
    from_json: str | None
    to_json: str | None


@dataclass(frozen=True, slots=True)
class Diff:
    """What differs between the states of two checkpoints.

    Attributes:
        changes: The changes, by channel and path.
        truncated: Whether there are more.
    """

    changes: tuple[Change, ...]
    truncated: bool


@dataclass(frozen=True, slots=True)
class CheckpointVerdict:
    """What reading a stored checkpoint back showed.

    Attributes:
        checkpoint_ns: The namespace.
        checkpoint_id: The checkpoint.
        verdict: "pass" (the stored bytes have the recorded hash), "fail" (they do not, or are
            not there), "unverified" (its last change is not certified) or "retracted" (the
            checkpoint was deleted).
        location: Where the bytes are stored, with the recorded hash; `None` if it is not stored.
        actual_sha256: SHA-256 of the bytes found, as lowercase hex; empty if none were.
        detail: Why it failed, for people.
    """

    checkpoint_ns: str
    checkpoint_id: str
    verdict: VerdictName
    location: Location | None
    actual_sha256: str
    detail: str


@dataclass(frozen=True, slots=True)
class Verification:
    """The result of reading a whole thread back from the blob store.

    Attributes:
        ok: Whether at least one checkpoint passed, none failed, the newest catalog leads to what
            was recorded, and nothing is wrong in the journal.
        passed: Number of checkpoints that passed.
        failed: Number that failed.
        unverified: Number not certified.
        retracted: Number deleted.
        chain_detail: The problem in the chain from the catalog to the segments, for people; empty
            if there is none.
        failures: The verdicts on the failed ones.
        journal_details: What is wrong with the thread's rows and values in the server's journal,
            for people, a sentence each; at most 100.
    """

    ok: bool
    passed: int
    failed: int
    unverified: int
    retracted: int
    chain_detail: str
    failures: tuple[CheckpointVerdict, ...]
    journal_details: tuple[str, ...] = ()


def forking(
    thread_id: str,
    checkpoint_id: str | None,
    new_thread_id: str | None,
    checkpoint_ns: str,
    safe: DurabilityName,
) -> threads.ForkThreadRequest:
    """Return the request that forks a checkpoint."""
    return threads.ForkThreadRequest(
        ref=ref(thread_id, checkpoint_ns, checkpoint_id),
        new_thread_id=new_thread_id or "",
        durability=durability(safe),
    )


def fork_of(message: threads.ForkThreadResponse) -> Fork:
    """Return the outcome of a fork as a record."""
    return Fork(message.ref.thread_id, message.ref.checkpoint_id, message.forked_from)


def rolling_back(
    thread_id: str,
    checkpoint_id: str,
    expected_head: str | None,
    checkpoint_ns: str,
    safe: DurabilityName,
) -> threads.RollbackThreadRequest:
    """Return the request that rolls a thread back."""
    return threads.RollbackThreadRequest(
        ref=ref(thread_id, checkpoint_ns, checkpoint_id),
        expected_head=expected_head,
        durability=durability(safe),
    )


def rollback_of(message: threads.RollbackThreadResponse) -> Rollback:
    """Return the outcome of a rollback as a record."""
    return Rollback(message.ref.thread_id, message.ref.checkpoint_id, message.rolled_back_from)


def lineage_tree(message: threads.GetLineageResponse) -> ThreadLineage:
    """Return a lineage as a record; steps of a kind that is not known are left out."""
    return ThreadLineage(
        tuple(_step(one) for one in message.ancestors if one.kind in _DESCENTS),
        tuple(_step(one) for one in message.descendants if one.kind in _DESCENTS),
        message.truncated,
    )


def _step(message: threads.LineageStep) -> LineageStep:
    # "from" is a keyword of Python, so the field has no attribute.
    origin = getattr(message, "from")
    return LineageStep(
        _DESCENTS[message.kind],
        reference_of(origin),
        reference_of(message.to),
        moment(message.create_time),
    )


def comparing(
    thread_id: str,
    from_checkpoint_id: str,
    to_checkpoint_id: str | None,
    to_thread_id: str | None,
    checkpoint_ns: str,
    max_changes: int,
) -> threads.DiffCheckpointsRequest:
    """Return the request that compares two checkpoints.

    Raises:
        InvalidRequest: `max_changes` is negative.
    """
    if max_changes < 0:
        raise invalid_field("max_changes", f"it must be 0 or more, not {max_changes}")
    request = threads.DiffCheckpointsRequest(
        to=ref(to_thread_id or thread_id, checkpoint_ns, to_checkpoint_id), max_changes=max_changes
    )
    getattr(request, "from").CopyFrom(ref(thread_id, checkpoint_ns, from_checkpoint_id))
    return request


def diff_of(message: threads.DiffCheckpointsResponse) -> Diff:
    """Return a comparison as a record."""
    return Diff(tuple(_change(one) for one in message.changes), message.truncated)


def _change(message: threads.Change) -> Change:
    return Change(
        _CHANGES.get(message.kind, "changed"),
        message.channel,
        message.path,
        message.from_json if message.HasField("from_json") else None,
        message.to_json if message.HasField("to_json") else None,
    )


class Verifying:
    """Collects the frames of a verification.

    Args:
        on_verdict: Called with each verdict.
    """

    def __init__(self, on_verdict: Callable[[CheckpointVerdict], object] | None = None) -> None:
        self._on_verdict = on_verdict
        self._failures: list[CheckpointVerdict] = []
        self._total: threads.VerificationTotal | None = None

    def add(self, frame: threads.VerifyThreadResponse) -> None:
        """Add the next frame."""
        if frame.WhichOneof("frame") == "total":
            self._total = frame.total
        else:
            self._add_verdict(_verdict(frame.verdict))

    def end(self) -> Verification:
        """Return the total when the stream has ended.

        Raises:
            ServerError: There is none.
        """
        total = self._total
        if total is None:
            raise ServerError("the server's stream ended without a total", status="INTERNAL")
        return Verification(
            total.ok,
            total.passed,
            total.failed,
            total.unverified,
            total.retracted,
            total.chain_detail,
            tuple(self._failures),
            tuple(total.journal_details),
        )

    def _add_verdict(self, verdict: CheckpointVerdict) -> None:
        if verdict.verdict == "fail":
            self._failures.append(verdict)
        if self._on_verdict is not None:
            self._on_verdict(verdict)


def _verdict(message: threads.CheckpointVerdict) -> CheckpointVerdict:
    # A verdict that this client does not know proves nothing.
    return CheckpointVerdict(
        message.ref.checkpoint_ns,
        message.ref.checkpoint_id,
        _VERDICTS.get(message.verdict, "unverified"),
        location_of(message.location) if message.HasField("location") else None,
        message.actual_sha256.hex(),
        message.detail,
    )
