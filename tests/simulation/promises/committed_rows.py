"""The content of a journal after each commit, for the comparison with a recovered journal."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from tests.simulation.environment.memory_database import Disk

Place = tuple[str, str]
Row = tuple[Any, ...]
WriteKey = tuple[Place, str, int]

_THREADS = (
    "SELECT thread_id, number, incarnation, seq, certified_seq, deleted, deleted_through,"
    " begun_seq, settings_seq, agent_id, retention_s, unsearchable, state, head_id FROM threads"
)
_CHECKPOINTS = (
    "SELECT checkpoint_ns, checkpoint_id, seq, parent_id, state, metadata, run_id, root_id,"
    " delta_channels, delta_base, label, summary, forked_from, rolled_back_from, adopted_from,"
    " created_us FROM checkpoints WHERE thread = ?"
)
_WRITES = (
    "SELECT checkpoint_ns, checkpoint_id, task_id, idx, seq, task_path, channel, type, digest,"
    " size, early_us IS NOT NULL FROM writes WHERE thread = ?"
)
_REMOVED = "SELECT incarnation, checkpoint_ns, checkpoint_id, seq FROM removed WHERE thread = ?"


@dataclass
class Thread:
    """A thread, read from its rows.

    Attributes:
        rows: Rows of its checkpoints: `seq`, and all other columns that a segment has.
        writes: Rows of its pending writes, in the same form; early writes are in `early`.
    """

    number: int
    incarnation: int
    seq: int
    certified_seq: int
    deleted: bool
    deleted_through: str
    begun_seq: int
    settings_seq: int
    settings: Row
    standing: Row
    rows: dict[Place, Row] = field(default_factory=dict)
    writes: dict[WriteKey, Row] = field(default_factory=dict)
    early: dict[WriteKey, Row] = field(default_factory=dict)


NO_SETTINGS: Row = ("", 0, 0)
"""Agent, retention in seconds and exclusion from search of a new thread."""


def read_threads(disk: Disk, names: Iterable[str] | None = None) -> dict[str, Thread]:
    """Return threads by name, without edits at rest; `None`: all."""
    with disk.ledger.truth():
        return _read(disk, names)


def _read(disk: Disk, names: Iterable[str] | None) -> dict[str, Thread]:
    threads: dict[str, Thread] = {}
    if names is None:
        heads = disk.ask(_THREADS)
    else:
        heads = [row for name in names for row in disk.ask(f"{_THREADS} WHERE thread_id = ?", name)]
    for name, number, incarnation, seq, certified, deleted, through, begun, set_at, *rest in heads:
        thread = Thread(
            number, incarnation, seq, certified, bool(deleted), through, begun, set_at,
            tuple(rest[:3]), tuple(rest[3:]),
        )  # fmt: skip
        for ns, checkpoint_id, *row in disk.ask(_CHECKPOINTS, number):
            thread.rows[ns, checkpoint_id] = tuple(row)
        for ns, checkpoint_id, task_id, idx, *row in disk.ask(_WRITES, number):
            kept = thread.early if row[-1] else thread.writes
            kept[(ns, checkpoint_id), task_id, idx] = tuple(row[:-1])
        threads[name] = thread
    return threads


class Shadow:
    """Follows a journal commit by commit.

    Attributes:
        threads: The threads at the last commit.
        versions: Every row that a checkpoint ever had, by thread, incarnation and place.
        written: Every row that a pending write ever had, without its number: a write that is
            recorded again in a later generation gets the number of its new record.
        removed: The `seq` of the last removal of a checkpoint, by thread, incarnation and place.
        ended: The `seq` at which an incarnation ended.
    """

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self.threads: dict[str, Thread] = {}
        self.versions: dict[tuple[str, int, Place], dict[int, Row]] = defaultdict(dict)
        self.written: dict[tuple[str, int, WriteKey], set[Row]] = defaultdict(set)
        self.removed: dict[tuple[str, int, Place], int] = {}
        self.ended: dict[tuple[str, int], int] = {}

    def follow(self, names: Iterable[str] | None = None) -> None:
        """Read the changed threads; `None`: all threads."""
        for name, thread in read_threads(self._disk, names).items():
            self.threads[name] = thread
            number, incarnation = thread.number, thread.incarnation
            for place, row in thread.rows.items():
                self.versions[name, incarnation, place][row[0]] = row
            for key, row in (*thread.writes.items(), *thread.early.items()):
                self.written[name, incarnation, key].add(row[1:])
            for row_incarnation, ns, checkpoint_id, seq in self._disk.ask(_REMOVED, number):
                if checkpoint_id:
                    self.removed[name, row_incarnation, (ns, checkpoint_id)] = seq
                else:
                    self.ended[name, row_incarnation] = seq

    def copy(self) -> Shadow:
        """Return a copy with the present content."""
        other = Shadow(self._disk)
        other.threads = dict(self.threads)
        for key, versions in self.versions.items():
            other.versions[key] = dict(versions)
        for write_key, written in self.written.items():
            other.written[write_key] = set(written)
        other.removed, other.ended = dict(self.removed), dict(self.ended)
        return other

    def image(self) -> dict[str, Thread]:
        """Return the present threads, which later commits do not change."""
        return dict(self.threads)
