"""Parts that both sessions share: settings, followed threads, labels, and SIGTERM."""

from __future__ import annotations

import logging
import os
import signal
import socket
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import FrameType
from typing import Any, Generic, Literal, TypeVar, get_args

from .._messages.lineage.snapshots import SnapshotRecord
from .._messages.records import DurabilityName, Reference
from ..aio import AsyncClient
from ..background import BackgroundSaver
from ..client import Client
from ..errors import TuskPointError

MAX_LABEL_BYTES = 256

SessionModeName = Literal["rollback", "new_threads", "continue"]
MODES = dict.fromkeys(get_args(SessionModeName))

ClientT = TypeVar("ClientT", bound=Client | AsyncClient)

_log = logging.getLogger(__package__)


@dataclass(frozen=True, slots=True)
class RestoredSession:
    """The state from which an application continues.

    Attributes:
        snapshot: The snapshot.
        threads: Maps each captured thread to the checkpoint from which it continues, in a new
            thread or in its own.
        newer: Maps each captured thread with saves after the snapshot to its latest checkpoint. The
            session continues from that checkpoint only with the mode "continue"; otherwise the
            checkpoint is in the history of its thread.
        deleted: The captured threads that were deleted after the snapshot, and are therefore not in
            `threads`. The mode "new_threads" restores these threads, too.
    """

    snapshot: SnapshotRecord
    threads: Mapping[str, Reference]
    newer: Mapping[str, Reference] = field(default_factory=dict)
    deleted: tuple[str, ...] = ()


def input_label(message: str) -> str:
    """Return the label of a checkpoint that an input led to.

    The label is the message on one line, cut between characters to 256 bytes, the most for a
    label; "(empty)" for a message without text.
    """
    line = " ".join(message.replace("\0", " ").split())
    label = line.encode("utf-8", "replace")[:MAX_LABEL_BYTES].decode("utf-8", "ignore")
    return label.rstrip() or "(empty)"


class SessionBase(Generic[ClientT]):
    """Settings of a session, and the threads that belong to it."""

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
        # Maps each thread to its latest checkpoint at the last look: empty for no checkpoint,
        # None if unknown.
        self._heads: dict[str, str | None] = dict.fromkeys(threads)
        self._snapshot: SnapshotRecord | None = None
        self._termination = _Termination()

    @property
    def threads(self) -> tuple[str, ...]:
        """Threads that belong to the session."""
        return tuple(self._heads)

    def untrack(self, thread_id: str) -> None:
        """Remove a thread from the session."""
        self._heads.pop(thread_id, None)

    def _restored(
        self,
        snapshot: SnapshotRecord,
        latest: Mapping[str, Reference],
        threads: Mapping[str, Reference],
    ) -> RestoredSession:
        """Follow the restored threads from now on.

        Args:
            snapshot: The snapshot.
            latest: The latest checkpoint of each captured thread before the restore; deleted
                threads are left out.
            threads: The checkpoint from which each captured thread continues.
        """
        for member in snapshot.members:
            self._heads.pop(member.thread_id, None)
        for reference in threads.values():
            self._followed(reference.thread_id, reference.checkpoint_id)
        captured = {member.thread_id: member.checkpoint_id for member in snapshot.members}
        newer = {name: head for name, head in latest.items() if head.checkpoint_id > captured[name]}
        deleted = tuple(name for name in captured if name not in threads)
        if deleted:
            _log.warning("threads of the session were deleted since: %s", ", ".join(deleted))
        return RestoredSession(snapshot, threads, newer, deleted)

    def _followed(self, thread_id: str, checkpoint_id: str) -> None:
        """Remember a checkpoint that the session saved, so that background saving follows it."""
        self._heads[thread_id] = checkpoint_id
        if self._background is not None:
            self._background.forget(thread_id)


class _Termination:
    """Turns SIGTERM into `SystemExit`, so that the program leaves its `with` blocks in order.

    Inside this context SIGTERM is ignored. The end of the context restores the signal's default.
    """

    def __init__(self) -> None:
        self._installed = False
        self._ending = False

    def install(self) -> None:
        """Catch SIGTERM, unless the program handles it or this is not the main thread."""
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


def log_unlabelled(thread_id: str) -> None:
    """Log that an input led to no checkpoint that could be labelled."""
    _log.warning("the input handled by thread '%s' made no checkpoint to label", thread_id)


def report_beside(error: BaseException, failure: TuskPointError) -> None:
    """Log a failure at the end of a block, and add it to the exception that ends the block."""
    _log.error("at the end of the session: %s", failure)
    error.add_note(f"at the end of the session: {failure}")
