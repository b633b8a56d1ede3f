"""Replaying and watching threads."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator, Iterable
from contextlib import aclosing, closing

from .._history import EventName, ThreadEvent, replaying, thread_event, watching
from .._records import CheckpointRecord, SourceName, ViewName, checkpoint_record
from .base import AsyncFace, SyncFace, twin_of


class SyncHistory(SyncFace):
    """Replaying and watching threads."""

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

        They come as a stream: neither side holds more than a few. A lost connection or a
        restarted server goes unnoticed: the replay goes on after the last checkpoint that was
        yielded.

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
        with closing(self._calls.replay_thread(request)) as found:
            for one in found:
                yield checkpoint_record(one)

    def watch(
        self,
        thread_id: str,
        *,
        cursor: bytes = b"",
        kinds: Iterable[EventName] | None = None,
        view: ViewName = "full",
        progress_s: float | None = None,
    ) -> Generator[ThreadEvent, None, None]:
        """Yield the changes of a thread in order: those that were, then each as it happens.

        It does not end. A lost connection, a server that shuts down and one that was killed go
        unnoticed if a server is back within minutes: the watch goes on after the last event that
        was yielded, without gap or duplicate. To go on in another process, or after an error,
        begin with the `cursor` of the last event. Closing the client in another thread makes a
        blocked watch raise.

        Args:
            thread_id: The thread. It need not exist any more if there is a cursor.
            cursor: Yield what came after this. Default: from the beginning of the thread's
                current incarnation.
            kinds: Only these kinds. Default: all.
            view: How much to return of a checkpoint that was saved, as in `load`.
            progress_s: Seconds of silence, 1 or more, after which an event of the kind
                "progress" is yielded, so that the caller has a newer cursor and a sign of life.
                Default: none is yielded.

        Raises:
            NotFound: There is no such thread, and no cursor.
            CursorCompacted: What came after the cursor is not kept any more.
            Unavailable: No server was found for minutes.
        """
        request = watching(thread_id, cursor, kinds, view, progress_s)
        with closing(self._calls.watch_thread(request)) as found:
            for one in found:
                event = thread_event(one)
                if progress_s is not None or not event.is_progress:
                    yield event


class AsyncHistory(AsyncFace):
    """Replaying and watching threads."""

    @twin_of(SyncHistory.replay)
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
        request = replaying(
            thread_id, checkpoint_ns, from_checkpoint_id, to_checkpoint_id, view, source
        )
        async with aclosing(self._calls.replay_thread(request)) as found:
            async for one in found:
                yield checkpoint_record(one)

    @twin_of(SyncHistory.watch)
    async def watch(
        self,
        thread_id: str,
        *,
        cursor: bytes = b"",
        kinds: Iterable[EventName] | None = None,
        view: ViewName = "full",
        progress_s: float | None = None,
    ) -> AsyncGenerator[ThreadEvent, None]:
        request = watching(thread_id, cursor, kinds, view, progress_s)
        async with aclosing(self._calls.watch_thread(request)) as found:
            async for one in found:
                event = thread_event(one)
                if progress_s is not None or not event.is_progress:
                    yield event
