# Written by `make sync` from _async/parts/history.py; do not edit.
"""Methods that replay and watch threads."""

from __future__ import annotations

from collections.abc import Generator, Iterable
from contextlib import closing

from ..._messages.history import EventName, ThreadEvent, replaying, thread_event, watching
from ..._messages.records import CheckpointRecord, SourceName, ViewName, checkpoint_record
from .part import SyncPart


class SyncHistory(SyncPart):
    """Methods that replay and watch threads."""

    def replay(
        self,
        thread_id: str,
        *,
        checkpoint_ns: str | None = None,
        from_checkpoint_id: str = "",
        to_checkpoint_id: str = "",
        view: ViewName = "full",
        source: SourceName = "any",
    ) -> Generator[CheckpointRecord, None, None]:
        """Yield the checkpoints of a thread, oldest first.

        The checkpoints are streamed: neither side keeps more than a few in memory. After a lost
        connection or a restart of the server, the replay resumes after the last yielded checkpoint.

        Args:
            thread_id: The thread.
            checkpoint_ns: Only this namespace; empty is the root. Default: all namespaces, in the
                order of the IDs.
            from_checkpoint_id: First ID to yield.
            to_checkpoint_id: Last ID to yield.
            view: As in `load`.
            source: "any", or "blob" to read from the blob store itself.

        Raises:
            NotFound: The thread does not exist.
        """
        request = replaying(
            thread_id, checkpoint_ns, from_checkpoint_id, to_checkpoint_id, view, source
        )
        with closing(self._calls.replay_thread(request)) as checkpoints:
            for checkpoint in checkpoints:
                yield checkpoint_record(checkpoint)

    def watch(
        self,
        thread_id: str,
        *,
        cursor: bytes = b"",
        kinds: Iterable[EventName] | None = None,
        view: ViewName = "full",
        progress_s: float | None = None,
        from_now: bool = False,
    ) -> Generator[ThreadEvent, None, None]:
        """Yield the changes of a thread in order: past changes, then each new change as it happens.

        The watch does not end. After a lost connection, a shutdown or a crash of the server, the
        watch resumes after the last yielded event, without gap or duplicate, if a server is back
        within minutes. To continue in another process, or after an error, start with the `cursor`
        of the last event. If another thread closes the client, a waiting watch raises.

        Args:
            thread_id: The thread. With a cursor, the thread may be deleted.
            cursor: Position after which the watch starts. Default: from the start of the thread's
                current incarnation.
            kinds: Only events of these kinds. Default: all kinds.
            view: View of the saved checkpoints, as in `load`. With "step", events of other kinds
                have the step of their checkpoint too.
            progress_s: Seconds without an event, 1 or more, after which the watch yields an event
                of the kind "progress" with a newer cursor. Default: no such events.
            from_now: Whether a watch without a cursor yields only changes after the call.

        Raises:
            NotFound: There is no such thread, and no cursor is given.
            CursorCompacted: Events after the cursor were compacted.
            Unavailable: No server answered for minutes.
        """
        request = watching(thread_id, cursor, kinds, view, progress_s, from_now=from_now)
        with closing(self._calls.watch_thread(request)) as messages:
            for message in messages:
                event = thread_event(message)
                if progress_s is not None or not event.is_progress:
                    yield event
