"""The habits of applications that keep agents: what they do at start, at stop and in between.

`ApplicationSession` and `AsyncApplicationSession` are the same habits for the two clients. The
habits themselves are generators that do no I/O: they yield what is to be asked of a client and
are sent the answers.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import threading
from collections.abc import Awaitable, Callable, Generator, Iterable, Mapping
from dataclasses import dataclass
from types import FrameType, TracebackType
from typing import Any, Generic, Self, TypeVar

from ._records import DurabilityName, Reference
from ._snapshots import RestoreModeName, SnapshotRecord
from .aio import AsyncClient
from .background import BackgroundSaver
from .client import Client
from .errors import NotFound, TuskPointError

__all__ = ["ApplicationSession", "AsyncApplicationSession", "RestoredSession", "input_label"]

MAX_LABEL_BYTES = 256

ClientT = TypeVar("ClientT", bound=Client | AsyncClient)
ResultT = TypeVar("ResultT")
Ask = Callable[[Any], Any]
Habit = Generator[Ask, Any, ResultT]

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RestoredSession:
    """What an application goes on from.

    Attributes:
        snapshot: The snapshot.
        threads: Thread that was captured to the checkpoint that it goes on from: of a new
            thread, or of its own.
    """

    snapshot: SnapshotRecord
    threads: Mapping[str, Reference]


def input_label(message: str) -> str:
    """Return the label of a checkpoint that an input led to.

    It is the message on one line, cut between characters to the 256 bytes that a label has;
    "(empty)" for one without any text.
    """
    line = " ".join(message.replace("\0", " ").split())
    cut = line.encode("utf-8", "replace")[:MAX_LABEL_BYTES].decode("utf-8", "ignore")
    return cut.rstrip() or "(empty)"


class _Habits(Generic[ClientT]):
    """What both sessions know and decide."""

    def __init__(
        self,
        client: ClientT,
        *,
        session_id: str = "",
        threads: Iterable[str] = (),
        labels: bool = True,
        hostname: str | None = None,
        working_directory: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        durability: DurabilityName = "journaled",
        background: BackgroundSaver | None = None,
    ) -> None:
        self._client: ClientT = client
        self._where = {
            "session_id": session_id,
            "hostname": socket.gethostname() if hostname is None else hostname,
            "working_directory": os.getcwd() if working_directory is None else working_directory,
        }
        self._labels = labels
        self._metadata = metadata
        self._durability = durability
        self._background = background
        # Thread to its latest checkpoint when last looked at: empty for none, None if unknown.
        self._heads: dict[str, str | None] = dict.fromkeys(threads)
        self._snapshot: SnapshotRecord | None = None
        self._termination = _Termination()

    @property
    def threads(self) -> tuple[str, ...]:
        """The threads that belong to the session."""
        return tuple(self._heads)

    def untrack(self, thread_id: str) -> None:
        """Let a thread belong to the session no longer."""
        self._heads.pop(thread_id, None)

    def _opening(self) -> Habit[None]:
        self._snapshot = None
        for thread_id in self.threads:
            self._heads[thread_id] = yield from _head(thread_id)

    def _tracking(self, thread_id: str) -> Habit[None]:
        self._heads[thread_id] = yield from _head(thread_id)

    def _restoring(self, mode: RestoreModeName) -> Habit[RestoredSession | None]:
        try:
            snapshot: SnapshotRecord = yield lambda client: client.latest_snapshot(**self._where)
        except NotFound as error:
            if error.reason != "SNAPSHOT_NOT_FOUND":
                raise
            return None
        restored = snapshot.members
        if mode != "rollback" or not (yield from _stand_at(snapshot.members)):
            restored = yield lambda client: client.restore_snapshot(
                snapshot.snapshot_id, mode=mode, durability=self._durability
            )
        threads = {
            member.thread_id: now for member, now in zip(snapshot.members, restored, strict=True)
        }
        for captured, now in threads.items():
            self._heads.pop(captured, None)
            self._heads[now.thread_id] = now.checkpoint_id
            self._leave_to_others(now.thread_id)
        return RestoredSession(snapshot, threads)

    def _labelling(
        self, thread_id: str, message: str, state: Mapping[str, Any] | None
    ) -> Habit[str | None]:
        label, durability = input_label(message), self._durability
        if state is not None:
            saved: str = yield lambda client: client.save(
                thread_id, state, label=label, durability=durability
            )
            self._heads[thread_id] = saved
            self._leave_to_others(thread_id)
            return saved
        before = self._heads.get(thread_id)
        head = self._heads[thread_id] = yield from _head(thread_id)
        if head in ("", before):
            _log.warning(
                "the input handled by thread '%s' made no checkpoint, so that none is labelled",
                thread_id,
            )
            return None
        yield lambda client: client.label(
            thread_id, label, checkpoint_id=head, durability=durability
        )
        return head

    def _closing(self) -> Habit[SnapshotRecord | None]:
        wanted = list(self._heads)
        while wanted and self._snapshot is None:
            try:
                self._snapshot = yield self._capture(wanted)
            except NotFound as error:
                # A thread that never had a checkpoint, or was deleted, holds up no other.
                absent = error.metadata.get("thread_id", "")
                if error.reason != "THREAD_NOT_FOUND" or absent not in wanted:
                    raise
                wanted.remove(absent)
        return self._snapshot

    def _capture(self, thread_ids: list[str]) -> Ask:
        return lambda client: client.create_snapshot(
            thread_ids, metadata=self._metadata, durability=self._durability, **self._where
        )

    def _leave_to_others(self, thread_id: str) -> None:
        """Let background saving follow a checkpoint that it did not make."""
        if self._background is not None:
            self._background.forget(thread_id)


class ApplicationSession(_Habits[Client]):
    """The habits of an application that keeps agents.

    When it starts, `restore_latest` goes on where the last one stopped. After each input,
    `input_handled` labels the checkpoint that the input led to. When it stops, `close` captures
    all its threads as one snapshot; as a context manager it does so however the block is left:
    at its end, by an exception, by Ctrl-C, and by SIGTERM if the program has no handler of its
    own and the session is opened in the main thread. An exception goes on its way afterwards.

    Not for use by several threads at once.

    Args:
        client: The client. It is not closed.
        session_id: Name of the application's session; `restore_latest` looks for it.
        threads: The threads that belong to it. More come with `track`.
        labels: Whether `input_handled` does anything.
        hostname: Host that the application runs on; part of what `restore_latest` looks for,
            unless empty. Default: this one.
        working_directory: Directory that it runs in, likewise. Default: the current one.
        metadata: A JSON object to save with the snapshot.
        durability: Of all that the session saves: "journaled", or "certified" to wait for the
            blob store.
        background: A `BackgroundSaver` that saves steps of these threads; its steps are waited
            for before a checkpoint is labelled and before the snapshot. It is not stopped.
    """

    def track(self, thread_id: str) -> None:
        """Let a thread, which need not exist yet, belong to the session."""
        self._follow(self._tracking(thread_id))

    def restore_latest(self, *, mode: RestoreModeName = "rollback") -> RestoredSession | None:
        """Restore the newest snapshot of this session, host and directory, if there is one.

        The threads that it is restored to belong to the session from here on.

        Args:
            mode: "rollback" takes each thread back to where it was, unless all of them still
                are there, in which case nothing is changed and what waits for an answer goes
                on waiting; "new_threads" makes a new thread of each.

        Returns:
            What was restored; `None` if there is no snapshot.

        Raises:
            NotFound: A thread to roll back was deleted. Nothing was restored.
        """
        return self._follow(self._restoring(mode))

    def input_handled(
        self, thread_id: str, message: str, state: Mapping[str, Any] | None = None
    ) -> str | None:
        """Label the checkpoint that an input led to with the input; see `input_label`.

        The thread belongs to the session from here on.

        Args:
            thread_id: The thread that handled it.
            message: The input.
            state: If given, it is saved as a new checkpoint with the label, for agents that
                save nothing themselves. Default: the thread's latest checkpoint is labelled.

        Returns:
            The labelled checkpoint's ID. `None` if the thread has no checkpoint since the last
            input, which the log says too, or if labels are switched off.

        Raises:
            StepsNotSaved: Background saving did not get done in time.
        """
        if not self._labels:
            return None
        if self._background is not None:
            self._background.flush()
        return self._follow(self._labelling(thread_id, message, state))

    def open(self) -> None:
        """Begin; done by entering the context."""
        self._termination.install()
        self._follow(self._opening())

    def close(self) -> SnapshotRecord | None:
        """Capture the threads of the session as one snapshot; done by leaving the context.

        Done once: afterwards it returns the same snapshot.

        Returns:
            The snapshot; `None` if none of the threads has a checkpoint.

        Raises:
            StepsNotSaved: Background saving did not get done in time. The snapshot was made.
        """
        with self._termination:
            try:
                if self._background is not None:
                    self._background.flush()
            finally:
                snapshot = self._follow(self._closing())
        return snapshot

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
            _tell_beside(error, failure)

    def _follow(self, habit: Habit[ResultT]) -> ResultT:
        try:
            ask = next(habit)
            while True:
                try:
                    answer = ask(self._client)
                except TuskPointError as error:
                    ask = habit.throw(error)
                else:
                    ask = habit.send(answer)
        except StopIteration as done:
            result: ResultT = done.value
            return result


class AsyncApplicationSession(_Habits[AsyncClient]):
    """The habits of an application that keeps agents, for `AsyncClient`.

    See `ApplicationSession`: the arguments and methods are the same, to be awaited, and the
    context manager is an async one.
    """

    async def track(self, thread_id: str) -> None:
        """See `ApplicationSession.track`."""
        await self._follow(self._tracking(thread_id))

    async def restore_latest(self, *, mode: RestoreModeName = "rollback") -> RestoredSession | None:
        """See `ApplicationSession.restore_latest`."""
        return await self._follow(self._restoring(mode))

    async def input_handled(
        self, thread_id: str, message: str, state: Mapping[str, Any] | None = None
    ) -> str | None:
        """See `ApplicationSession.input_handled`."""
        if not self._labels:
            return None
        if self._background is not None:
            await asyncio.to_thread(self._background.flush)
        return await self._follow(self._labelling(thread_id, message, state))

    async def open(self) -> None:
        """See `ApplicationSession.open`."""
        self._termination.install()
        await self._follow(self._opening())

    async def close(self) -> SnapshotRecord | None:
        """See `ApplicationSession.close`."""
        with self._termination:
            try:
                if self._background is not None:
                    await asyncio.to_thread(self._background.flush)
            finally:
                snapshot = await self._follow(self._closing())
        return snapshot

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            await self.close()
        except TuskPointError as failure:
            if error is None:
                raise
            _tell_beside(error, failure)

    async def _follow(self, habit: Habit[ResultT]) -> ResultT:
        try:
            ask: Callable[[AsyncClient], Awaitable[Any]] = next(habit)
            while True:
                try:
                    answer = await ask(self._client)
                except TuskPointError as error:
                    ask = habit.throw(error)
                else:
                    ask = habit.send(answer)
        except StopIteration as done:
            result: ResultT = done.value
            return result


class _Termination:
    """Leaves the program's blocks in order at SIGTERM, which by itself ends it on the spot.

    While this is entered SIGTERM is ignored; once it is left the signal means what it meant.
    """

    def __init__(self) -> None:
        self._installed = False
        self._ending = False

    def install(self) -> None:
        """Catch the signal, unless the program does, or this is not its main thread."""
        if threading.current_thread() is not threading.main_thread():
            return
        if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
            signal.signal(signal.SIGTERM, self._exit)
            self._installed = True

    def __enter__(self) -> None:
        self._ending = True

    def __exit__(self, *error: object) -> None:
        self._ending = False
        if self._installed:
            self._installed = False
            signal.signal(signal.SIGTERM, signal.SIG_DFL)

    def _exit(self, number: int, frame: FrameType | None) -> None:
        if not self._ending:
            raise SystemExit(128 + number)


def _head(thread_id: str) -> Habit[str]:
    """Return the latest checkpoint of a thread; empty if it does not exist."""
    try:
        thread = yield lambda client: client.thread(thread_id)
    except NotFound as error:
        if error.reason != "THREAD_NOT_FOUND":
            raise
        return ""
    head: str = thread.head_checkpoint_id
    return head


def _stand_at(members: Iterable[Reference]) -> Habit[bool]:
    """Return whether the latest checkpoint of each thread is this one."""
    for one in members:
        if (yield from _head(one.thread_id)) != one.checkpoint_id:
            return False
    return True


def _tell_beside(error: BaseException, failure: TuskPointError) -> None:
    """Tell of a failure at the end of a block that an exception ends already."""
    _log.error("at the end of the session: %s", failure)
    error.add_note(f"at the end of the session: {failure}")
