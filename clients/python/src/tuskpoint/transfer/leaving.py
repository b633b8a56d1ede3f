"""Export of threads from a server to a file."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import BinaryIO

from .._messages.reports import ThreadRecord
from .._sync.calls import SyncCalls
from ..errors import DataLoss, NotFound
from ..v1.checkpoint_pb2 import VIEW_FULL, Checkpoint
from ..v1.checkpoint_service_pb2 import GetDeltaHistoryRequest
from ..v1.history_service_pb2 import ReplayThreadRequest
from .lines import LinesWriter
from .threads import Key, Problem, ThreadSettings, called, key_of


def export_thread(
    calls: SyncCalls, record: ThreadRecord, lines: LinesWriter, advance: Callable[[], object]
) -> int:
    """Write a thread; return the number of its checkpoints, or 0 if it was deleted meanwhile.

    Raises:
        Problem: The thread's delta channels need checkpoints that were pruned, or a part of the
            thread cannot be read. No line of the thread is written.
    """
    try:
        with lines.whole():
            return _export_thread(calls, record, lines, advance)
    except (DataLoss, NotFound) as error:
        if error.reason == "THREAD_NOT_FOUND":
            return 0
        raise Problem(
            f"thread '{record.thread_id}': {error.message}",
            "`tuskpoint verify` names the checkpoints that are lost",
            is_damage=True,
        ) from error


def _export_thread(
    calls: SyncCalls, record: ThreadRecord, lines: LinesWriter, advance: Callable[[], object]
) -> int:
    request = ReplayThreadRequest(thread_id=record.thread_id, view=VIEW_FULL)
    keys: set[Key] = set()
    with closing(calls.replay_thread(request)) as messages:
        for message in messages:
            if not keys:
                settings = ThreadSettings(record.agent_id, record.searchable, record.retention)
                lines.thread(record.thread_id, settings)
            _check_deltas(calls, message, keys)
            keys.add(key_of(message))
            lines.checkpoint(message)
            advance()
    return len(keys)


def _check_deltas(calls: SyncCalls, message: Checkpoint, keys: set[Key]) -> None:
    """Check that no delta channel needs a checkpoint that no longer exists."""
    parent = message.ref.checkpoint_ns, message.parent_checkpoint_id
    if not (parent[1] and message.state.delta_channels) or parent in keys:
        return
    request = GetDeltaHistoryRequest(ref=message.ref, channels=message.state.delta_channels)
    for history in calls.get_delta_history(request):
        if history.writes or history.HasField("seed"):
            raise Problem(
                f"{called(key_of(message))} of thread '{message.ref.thread_id}' is rebuilt from "
                f"checkpoints that are deleted (channel '{history.channel}'), which a file cannot "
                "hold",
                "hand the thread off instead: `tuskpoint handoff`",
            )


@contextmanager
def whole_file(path: Path, *, replaces: bool) -> Iterator[BinaryIO]:
    """Write a file that gets its name only when it is complete.

    Raises:
        FileExistsError: The file exists, and must not be replaced.
        OSError: The file cannot be written.
    """
    if path.exists() and not replaces:
        raise FileExistsError(path)
    draft = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with draft.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
