# Written by `make sync` from _async/session.py; do not edit.
"""A session of an application that uses `Client`."""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

from ..._messages.lineage.snapshots import SnapshotRecord
from ..._messages.records import Reference
from ..._messages.requests import choice
from ...client import Client
from ...errors import NotFound, TuskPointError
from .._base import (
    MODES,
    RestoredSession,
    SessionBase,
    SessionModeName,
    input_label,
    log_unlabelled,
    report_beside,
)


class ApplicationSession(SessionBase[Client]):
    """The habits of an application that keeps agents, for `Client`.

    At the start, `restore_latest` restores what the last session left. After each input,
    `input_handled` labels the checkpoint that the input led to. At the end, `close` captures
    all threads of the session as one snapshot. A context manager calls `close` however
    the block ends: normally, by an exception, by Ctrl-C, and by SIGTERM if the program has no
    handler of its own and opens the session in the main thread. The exception propagates.

    Not for use by several threads at once.

    Args:
        client: The client. It is not closed.
        session_id: Name of the application's session; `restore_latest` looks for it.
        threads: The threads that belong to it. `track` adds more.
        labels: Whether `input_handled` labels checkpoints.
        hostname: Host that the application runs on; part of what `restore_latest` looks for,
            unless empty. Default: this one.
        working_directory: Directory that it runs in, likewise. Default: the current one.
        metadata: A JSON object to save with the snapshot.
        durability: Of all that the session saves: "journaled", or "certified" to wait for the
            blob store.
        background: A `BackgroundSaver` that saves steps of these threads. The session waits for
            its steps before it labels a checkpoint and before the snapshot, and does not stop
            it.
    """

    def track(self, thread_id: str) -> None:
        """Add a thread, which need not exist yet, to the session."""
        self._heads[thread_id] = self._head(thread_id)

    def restore_latest(self, *, mode: SessionModeName = "rollback") -> RestoredSession | None:
        """Restore the newest snapshot of this session, host and directory, if there is one.

        The restored threads belong to the session from then on. If the last session did not end
        cleanly, they have checkpoints after the snapshot: `RestoredSession.newer` names them.

        Args:
            mode: "rollback" takes each thread back to where it was, unless all of them still
                are there: then nothing is changed and what waits for an answer keeps waiting.
                Threads that were deleted since are left out: `RestoredSession.deleted` names them;
                "new_threads" makes a new thread of each; "continue" changes nothing: each thread
                continues from its latest acknowledged checkpoint.

        Returns:
            What was restored; `None` if there is no snapshot.

        Raises:
            InvalidRequest: The mode is unknown.
        """
        choice("mode", mode, MODES)
        try:
            snapshot = self._client.latest_snapshot(**self._where)
        except NotFound as error:
            if error.reason != "SNAPSHOT_NOT_FOUND":
                raise
            return None
        heads = {member.thread_id: self._head(member.thread_id) for member in snapshot.members}
        latest = {name: Reference(name, "", head) for name, head in heads.items() if head}
        if mode == "continue":
            return self._restored(snapshot, latest, latest)
        if mode == "rollback" and set(latest.values()) <= set(snapshot.members):
            return self._restored(snapshot, latest, latest)
        restored = self._client.restore_snapshot(
            snapshot.snapshot_id, mode=mode, skip_deleted=True, durability=self._durability
        )
        if mode == "rollback":
            return self._restored(
                snapshot, latest, {reference.thread_id: reference for reference in restored}
            )
        return self._restored(snapshot, latest, dict(zip(heads, restored, strict=True)))

    def input_handled(
        self, thread_id: str, message: str, state: Mapping[str, Any] | None = None
    ) -> str | None:
        """Label the checkpoint that an input led to with the input; see `input_label`.

        The thread belongs to the session from then on.

        Args:
            thread_id: The thread that handled it.
            message: The input.
            state: If given, it is saved as a new checkpoint, with the label if labels are on, for
                agents that save nothing themselves. Default: the thread's latest checkpoint is
                labelled.

        Returns:
            The ID of the checkpoint that was labelled or saved. `None` if labels are off and
            there is no `state`, or if the thread has no new checkpoint since the last input, which
            is logged.

        Raises:
            StepsNotSaved: Background saving did not finish in time.
        """
        if not self._labels and state is None:
            self._heads.setdefault(thread_id, None)
            return None
        if self._background is not None:
            self._background.flush()
        label, durability = input_label(message) if self._labels else "", self._durability
        if state is not None:
            checkpoint_id = self._client.save(thread_id, state, label=label, durability=durability)
            self._followed(thread_id, checkpoint_id)
            return checkpoint_id
        before = self._heads.get(thread_id)
        head = self._heads[thread_id] = self._head(thread_id)
        if head in ("", before):
            log_unlabelled(thread_id)
            return None
        self._client.label(thread_id, label, checkpoint_id=head, durability=durability)
        return head

    def open(self) -> None:
        """Begin. Entering the context calls this."""
        self._termination.install()
        self._snapshot = None
        for thread_id in self.threads:
            self.track(thread_id)

    def close(self) -> SnapshotRecord | None:
        """Capture the threads of the session as one snapshot. Leaving the context calls this.

        Further calls return the same snapshot.

        Returns:
            The snapshot; `None` if none of the threads has a checkpoint.

        Raises:
            StepsNotSaved: Background saving did not finish in time. The snapshot was made.
        """
        with self._termination:
            try:
                if self._background is not None:
                    self._background.flush()
            finally:
                self._capture()
        return self._snapshot

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            self.close()
        except TuskPointError as failure:
            if error is None:
                raise
            report_beside(error, failure)

    def _capture(self) -> None:
        thread_ids = list(self._heads)
        while thread_ids and self._snapshot is None:
            try:
                self._snapshot = self._client.create_snapshot(
                    thread_ids, metadata=self._metadata, durability=self._durability, **self._where
                )
            except NotFound as error:
                # A thread without a checkpoint, or a deleted one, must not prevent the snapshot
                # of the others.
                absent = error.metadata.get("thread_id", "")
                if error.reason != "THREAD_NOT_FOUND" or absent not in thread_ids:
                    raise
                thread_ids.remove(absent)

    def _head(self, thread_id: str) -> str:
        """Return the latest checkpoint of a thread; empty if it does not exist."""
        try:
            return self._client.thread(thread_id).head_checkpoint_id
        except NotFound as error:
            if error.reason != "THREAD_NOT_FOUND":
                raise
            return ""
