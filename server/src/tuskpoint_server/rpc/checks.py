"""Collecting what is wrong with a request, and the checks that many requests share.

Every check of a request runs before anything of it is used; all violations are
collected, so that a caller can mend them at once. Field paths are those of the request
message.
"""

from __future__ import annotations

from collections.abc import Collection

from tuskpoint.v1 import checkpoint_pb2

from ..domain.errors import Reason, Refusal, Violation
from ..domain.limits import LIMITS, text_problem
from ..domain.snapshots import THREADS, is_reserved

_MAX_VIOLATIONS = 64


class Checks:
    """Collects what is wrong with one request. `streamed`: large values may follow in chunks."""

    def __init__(self, *, streamed: bool = False) -> None:
        self.streamed = streamed
        self._violations: list[Violation] = []

    def fail(self, field: str, problem: str) -> None:
        """Note a violation."""
        if len(self._violations) < _MAX_VIOLATIONS:
            self._violations.append(Violation(field, problem))

    def text(self, field: str, value: str, maximum: int, *, required: bool = False) -> None:
        """Check a string: at most `maximum` bytes of UTF-8, without NUL, not empty if required."""
        if problem := text_problem(value, maximum, required=required):
            self.fail(field, problem)

    def thread(self, field: str, thread_id: str, *, required: bool = True) -> None:
        """Check the name of a thread; those of the server's own are refused."""
        if problem := thread_problem(thread_id, required=required):
            self.fail(field, problem)

    def ref(
        self, path: str, ref: checkpoint_pb2.CheckpointRef, *, id_required: bool = False
    ) -> None:
        """Check the identity of a checkpoint."""
        self.thread(f"{path}.thread_id", ref.thread_id)
        self.text(f"{path}.checkpoint_ns", ref.checkpoint_ns, LIMITS.max_checkpoint_ns)
        self.text(
            f"{path}.checkpoint_id",
            ref.checkpoint_id,
            LIMITS.max_checkpoint_id,
            required=id_required,
        )

    def names(self, path: str, names: Collection[str], maximum: int) -> None:
        """Check a list of names, each of at most `maximum` bytes."""
        if len(names) > LIMITS.max_batch:
            self.fail(path, f"must be at most {LIMITS.max_batch} names")
            return
        for number, name in enumerate(names):
            self.text(f"{path}[{number}]", name, maximum, required=True)

    def channels(self, path: str, names: Collection[str]) -> None:
        """Check a list of names of channels."""
        if len(names) > LIMITS.max_channels:
            self.fail(path, f"must be at most {LIMITS.max_channels}")
            return
        for number, name in enumerate(names):
            self.text(f"{path}[{number}]", name, LIMITS.max_channel_name, required=True)

    def threads(self, path: str, thread_ids: Collection[str]) -> None:
        """Check a list of threads."""
        if len(thread_ids) > LIMITS.max_batch:
            self.fail(path, f"must be at most {LIMITS.max_batch} threads")
            return
        for number, thread_id in enumerate(thread_ids):
            self.thread(f"{path}[{number}]", thread_id)

    def finish(self) -> None:
        """End the checks.

        Raises:
            Refusal: `INVALID_FIELD` with every violation noted.
        """
        if not self._violations:
            return
        first = self._violations[0]
        raise Refusal(
            Reason.INVALID_FIELD,
            violations=self._violations,
            field=first.field,
            problem=first.description,
        )


def thread_problem(thread_id: str, *, required: bool = True) -> str:
    """Say what is wrong with the name of a thread, or return an empty string."""
    if is_reserved(thread_id):
        return f"names that begin with '{THREADS}' are the server's own"
    return text_problem(thread_id, LIMITS.max_thread_id, required=required)


def limit_exceeded(what: str, limit: str, maximum: int) -> Refusal:
    """Return the refusal of something that is too large."""
    return Refusal(Reason.LIMIT_EXCEEDED, what=what, limit=limit, maximum=maximum)
