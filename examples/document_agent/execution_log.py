"""The execution log: executed nodes and acknowledgements of the service, in order.

One JSON object per line. Every line is one `write` to a file opened with `O_APPEND`, followed by
`fsync`, so that a process killed at any instant leaves only whole lines behind and several
processes can share one file.

| event        | written when                                                                  |
|--------------|-------------------------------------------------------------------------------|
| `start`      | a node begins                                                                 |
| `end`        | its work is done; its result is not yet known to be stored                    |
| `interrupt`  | it stopped to ask a person                                                    |
| `writes`     | the service acknowledged a task's result                                      |
| `checkpoint` | the service acknowledged a checkpoint, which settles every task of its parent |
| `held`       | a result was seen in the service after a kill, acknowledged or not            |
| `kill`       | the demo killed a process                                                     |
"""

import json
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

from langgraph.errors import GraphBubbleUp
from langgraph.runtime import Runtime

LONGEST_HOLD = 60.0
"""Seconds after which a held node continues without a release."""


@dataclass(frozen=True)
class Record:
    """One line of the execution log."""

    event: str
    thread: str
    checkpoint: str
    parent: str = ""
    task: str = ""
    node: str = ""
    documents: list[str] = field(default_factory=list)
    pid: int = field(default_factory=os.getpid)
    time: float = field(default_factory=time.time)

    @property
    def work(self) -> tuple[str, tuple[str, ...]]:
        """The piece of work, whichever task or process did it: a node and its documents."""
        return self.node, tuple(self.documents)


class ExecutionLog:
    """Appends records to a file, durably, and reads them back."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def append(self, record: Record) -> None:
        """Write one record and wait until it is on disk."""
        line = json.dumps(asdict(record), ensure_ascii=False) + "\n"
        descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        try:
            os.write(descriptor, line.encode())
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def read(self) -> list[Record]:
        """Every complete line so far."""
        if not self.path.exists():
            return []
        lines = self.path.read_bytes().split(b"\n")[:-1]
        return [Record(**json.loads(line)) for line in lines]


@dataclass(frozen=True)
class Settings:
    """Settings of a run, which are never stored in a checkpoint."""

    documents: Path
    log: ExecutionLog
    pace: float = 0.0
    hold: Path | None = None
    """A file that names a node; the node keeps working while the file exists."""

    def holds(self, node: str) -> bool:
        """True while the node must not finish."""
        try:
            return self.hold is not None and self.hold.read_text("utf-8") == node
        except FileNotFoundError:
            return False


@contextmanager
def logged(
    runtime: Runtime[Settings], node: str, documents: Sequence[str], weight: float = 1
) -> Iterator[None]:
    """Record the start and the end of a node, and stretch its work by pace or hold."""
    info = runtime.execution_info
    if info is None:
        raise RuntimeError("the execution log needs a run with a checkpointer")
    settings = runtime.context

    def note(event: str) -> None:
        settings.log.append(
            Record(
                event=event,
                thread=info.thread_id or "",
                checkpoint=info.checkpoint_id,
                task=info.task_id,
                node=node,
                documents=sorted(documents),
            )
        )

    note("start")
    try:
        yield
        time.sleep(settings.pace * weight)  # instead of a slow model or tool
        end = time.monotonic() + LONGEST_HOLD
        while settings.holds(node) and time.monotonic() < end:
            time.sleep(0.01)
    except GraphBubbleUp:
        note("interrupt")
        raise
    note("end")
