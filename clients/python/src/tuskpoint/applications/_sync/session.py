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
    """A session of an application that runs agents, for `Client`.

    At the start, `restore_latest` restores the state of the last session. After each input,
    `input_handled` labels the checkpoint that the input led to. At the end, `close` captures all
    threads of the session as one snapshot. A context manager calls `close` at any end of the
    block: normal, by an exception, by Ctrl-C, and by SIGTERM if the program has no handler of its
    own and opens the session in the main thread. The exception propagates.

    Several threads must not use one session at once.

    Args:
        client: The client. The session does not close it.
        session_id: Name of the application's session; `restore_latest` finds snapshots with this
            name.
        threads: The threads that belong to the session. `track` adds more.
        labels: Whether `input_handled` labels checkpoints.
        hostname: Host of the application; unless empty, `restore_latest` finds only snapshots from
            this host. Default: this host.
        working_directory: Working directory of the application; unless empty, `restore_latest`
            finds only snapshots from this directory. Default: the current directory.
        metadata: JSON object to save with the snapshot.
        durability: Durability of each save of the session: "journaled", or "certified" to wait for
            the blob store.
        background: A `BackgroundSaver` that saves steps of these threads. The session waits for
            its steps before it labels a checkpoint and before the snapshot, and does not stop
            it.
    """

    def track(self, thread_id: str) -> None:
        """Add a thread to the session. The thread need not exist yet."""
        self._heads[thread_id] = self._head(thread_id)

    def restore_latest(self, *, mode: SessionModeName = "rollback") -> RestoredSession | None:
        """Restore the newest snapshot of this session, host and directory, if there is one.

        The restored threads belong to the session from then on. If the last session did not end
        cleanly, threads have checkpoints after the snapshot: `RestoredSession.newer` names these
        checkpoints.

        Args:
            mode: "rollback" rolls each thread back to its captured checkpoint. If that is still the
                latest checkpoint of all threads, "rollback" changes nothing, and interrupts keep
                waiting. Threads that were deleted meanwhile are left out: `RestoredSession.deleted`
                names them. "new_threads" creates a new thread for each captured thread. "continue"
                changes nothing: each thread continues from its latest acknowledged checkpoint.

        Returns:
            The restored session; `None` if there is no snapshot.

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
        """Label the checkpoint that an input led to; see `input_label`.

        The thread belongs to the session from then on.

        Args:
            thread_id: The thread that handled the input.
            message: The input.
            state: State to save as a new checkpoint, with the label if labels are on, for agents
                that save nothing themselves. Default: the method labels the thread's latest
                checkpoint.

        Returns:
            ID of the labelled or saved checkpoint. `None` if labels are off and there is no
            `state`. Also `None`, with a log message, if the thread has no new checkpoint since the
            last input.

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
        """Start the session. Entering the context calls this method."""
        self._termination.install()
        self._snapshot = None
        for thread_id in self.threads:
            self.track(thread_id)

    def close(self) -> SnapshotRecord | None:
        """Capture the threads of the session as one snapshot. The end of the context calls this.

        Further calls return the same snapshot.

        Returns:
            The snapshot; `None` if none of the threads has a checkpoint.

        Raises:
            StepsNotSaved: Background saving did not finish in time. The snapshot was created.
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
                # A thread without a checkpoint, or a deleted thread, must not prevent the
                # snapshot of the others.
                absent = error.metadata.get("thread_id", "")
                if error.reason != "THREAD_NOT_FOUND" or absent not in thread_ids:
                    raise
                thread_ids.remove(absent)

    def _head(self, thread_id: str) -> str:
        """Return the latest checkpoint of a thread; empty if the thread does not exist."""
        try:
            return self._client.thread(thread_id).head_checkpoint_id
        except NotFound as error:
            if error.reason != "THREAD_NOT_FOUND":
                raise
            return ""
