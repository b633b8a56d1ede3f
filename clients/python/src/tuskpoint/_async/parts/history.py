"""Replaying and watching threads."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing

from ..._messages.history import EventName, ThreadEvent, replaying, thread_event, watching
from ..._messages.records import CheckpointRecord, SourceName, ViewName, checkpoint_record
from .part import AsyncPart


class AsyncHistory(AsyncPart):
    """Replaying and watching threads."""

    async def replay(
        self,
        thread_id: str,
        *,
        checkpoint_ns: str | None = None,
        from_checkpoint_id: str = "",
        to_checkpoint_id: str = "",
        view: ViewName = "full",
        source: SourceName = "any",
    ) -> AsyncGenerator[CheckpointRecord, None]:
        """Yield the checkpoints of a thread, oldest first.

        They are streamed: neither side holds more than a few. After a lost connection or a restart
        of the server the replay resumes behind the last checkpoint that was yielded.

        Args:
            thread_id: The thread.
            checkpoint_ns: Only this namespace; empty is the root. Default: all, by ID.
            from_checkpoint_id: First ID to yield.
            to_checkpoint_id: Last ID to yield.
            view: As in `load`.
            source: "any", or "blob" to read from the blob store itself.

        Raises:
            NotFound: There is no such thread.
        """
        request = replaying(
            thread_id, checkpoint_ns, from_checkpoint_id, to_checkpoint_id, view, source
        )
        async with aclosing(self._calls.replay_thread(request)) as checkpoints:
            async for checkpoint in checkpoints:
                yield checkpoint_record(checkpoint)

    async def watch(
        self,
        thread_id: str,
        *,
        cursor: bytes = b"",
        kinds: Iterable[EventName] | None = None,
        view: ViewName = "full",
        progress_s: float | None = None,
        from_now: bool = False,
    ) -> AsyncGenerator[ThreadEvent, None]:
        """Yield the changes of a thread in order: past ones, then each new one as it happens.

        It does not end. After a lost connection, a shutdown or a crash of the server it resumes
        behind the last event that was yielded, without gap or duplicate, if a server is back
        within minutes. To continue in another process, or after an error, start with the
        `cursor` of the last event. Closing the client in another task makes a waiting watch
        raise.

        Args:
            thread_id: The thread. With a cursor, it may have been deleted.
            cursor: Yield the events after this one. Default: from the start of the thread's
                current incarnation.
            kinds: Only events of these kinds. Default: all.
            view: How much to return of a checkpoint that was saved, as in `load`.
            progress_s: Seconds of silence, 1 or more, after which an event of the kind
                "progress" is yielded, with a newer cursor. Default: none is yielded.
            from_now: Without a cursor: yield only what happens after the call.

        Raises:
            NotFound: There is no such thread, and no cursor.
            CursorCompacted: Events after the cursor were compacted.
            Unavailable: No server was found for minutes.
        """
        request = watching(thread_id, cursor, kinds, view, progress_s, from_now=from_now)
        async with aclosing(self._calls.watch_thread(request)) as messages:
            async for message in messages:
                event = thread_event(message)
                if progress_s is not None or not event.is_progress:
                    yield event
