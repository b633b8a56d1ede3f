"""Records and request of a thread's verification. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from ...errors import ServerError
from ...v1 import thread_service_pb2 as threads
from ..records import Location, location_of

VerdictName = Literal["pass", "fail", "unverified", "retracted"]
_VERDICTS: dict[int, VerdictName] = {
    threads.VERDICT_PASS: "pass",
    threads.VERDICT_FAIL: "fail",
    threads.VERDICT_UNVERIFIED: "unverified",
    threads.VERDICT_RETRACTED: "retracted",
}
_EFFECTS = "$effects/"  # and the thread: the thread of a verdict on an effect


@dataclass(frozen=True, slots=True)
class CheckpointVerdict:
    """The result of reading a stored checkpoint or effect back.

    Attributes:
        checkpoint_ns: The namespace.
        checkpoint_id: The checkpoint; of an effect, the SHA-256 of its key as lowercase hex.
        verdict: "pass" (the stored bytes have the recorded hash), "fail" (they do not, or are
            missing), "unverified" (its last change is not certified) or "retracted" (the checkpoint
            was deleted).
        location: Location of the stored bytes, with the recorded hash; `None` if the checkpoint is
            not stored.
        actual_sha256: SHA-256 of the bytes that were read, as lowercase hex; empty if there were no
            bytes.
        detail: Reason of a failure, for people.
        is_effect: Whether an effect of the thread was read, and not a checkpoint.
    """

    checkpoint_ns: str
    checkpoint_id: str
    verdict: VerdictName
    location: Location | None
    actual_sha256: str
    detail: str
    is_effect: bool = False


@dataclass(frozen=True, slots=True)
class Verification:
    """The result of reading a whole thread back from the blob store.

    Attributes:
        ok: Whether at least one checkpoint passed, none failed, the newest catalog leads to the
            recorded segments, and the journal has no damage.
        passed: Number of checkpoints that passed.
        failed: Number of checkpoints that failed.
        unverified: Number of checkpoints that are not certified.
        retracted: Number of deleted checkpoints.
        chain_detail: The problem in the chain from the catalog to the segments, for people; empty
            if there is none.
        failures: The verdicts on the failed checkpoints.
        journal_details: Problems of the thread's rows and values in the server's journal, for
            people, a sentence each; at most 100.
    """

    ok: bool
    passed: int
    failed: int
    unverified: int
    retracted: int
    chain_detail: str
    failures: tuple[CheckpointVerdict, ...]
    journal_details: tuple[str, ...] = ()


class VerificationCollector:
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
        """Return the total after the end of the stream.

        Raises:
            ServerError: The stream has no total.
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
    # A verdict that is unknown to this client proves nothing.
    return CheckpointVerdict(
        message.ref.checkpoint_ns,
        message.ref.checkpoint_id,
        _VERDICTS.get(message.verdict, "unverified"),
        location_of(message.location) if message.HasField("location") else None,
        message.actual_sha256.hex(),
        message.detail,
        message.ref.thread_id.startswith(_EFFECTS),
    )
