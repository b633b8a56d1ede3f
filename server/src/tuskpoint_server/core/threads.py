"""Threads: their names, state and events, and verdicts on their stored checkpoints."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum

from .model import BlobLocation, CheckpointKey

SNAPSHOTS, SNAPSHOTS_END = "$snapshot/", "$snapshot0"
"""Prefix of the threads of snapshots, and the first name past them: "0" follows "/"."""

STORES, STORES_END = "$store/", "$store0"
"""The same for the threads of stores."""

TRAIL, TRAIL_END = "$trail/", "$trail0"
"""The same for the thread of the audit trail."""

RESERVED = (
    (SNAPSHOTS, SNAPSHOTS_END),
    (STORES, STORES_END),
    (TRAIL, TRAIL_END),
)
"""Prefixes of the names that only the server uses, in order: users' threads have no such names."""


def is_reserved(thread_id: str) -> bool:
    """Return whether a thread's name is one that only the server may use."""
    return thread_id.startswith((SNAPSHOTS, STORES, TRAIL))


class ThreadState(IntEnum):
    """What a thread waits for. Numbers are those of the contract."""

    IDLE = 1
    INTERRUPTED = 2
    FAILED = 3


class PruneStrategy(IntEnum):
    """Which checkpoints pruning keeps. Numbers are those of the contract."""

    KEEP_LATEST = 1
    DELETE_ALL = 2


@dataclass(frozen=True, slots=True)
class Thread:
    """A thread."""

    thread_id: str
    incarnation: int
    seq: int
    agent_id: str
    state: ThreadState
    head_id: str  # the latest checkpoint of the root namespace
    created_us: int
    updated_us: int
    retention_s: int = 0  # seconds without a change after which it is deleted; 0: never
    unsearchable: bool = False  # search does not find its checkpoints


@dataclass(frozen=True, slots=True)
class ThreadDetail:
    """A thread with the facts that have to be counted."""

    thread: Thread
    checkpoint_count: int
    uncertified_count: int
    heads: dict[str, str]  # the latest ID of each namespace
    expire_us: int | None = None  # earliest time at which a blob that it needs may expire


class EventKind(IntEnum):
    """Kind of an event on a thread. Numbers are those of the contract."""

    CHECKPOINT_SAVED = 1
    WRITES_SAVED = 2
    LABEL_SET = 3
    CHECKPOINTS_DELETED = 4
    THREAD_DELETED = 5
    RETENTION_SET = 6
    SEARCHABLE_SET = 7
    HANDED_OFF = 8
    RECOVERED = 9
    CERTIFIED = 10
    PROGRESS = 11


@dataclass(frozen=True, slots=True)
class Event:
    """One change of a thread."""

    kind: EventKind
    seq: int
    incarnation: int
    key: CheckpointKey  # the checkpoint concerned; its ID is empty if none is
    deleted: int  # how many checkpoints were deleted
    created_us: int


class VerdictKind(IntEnum):
    """Result of verifying a checkpoint. Numbers are those of the contract."""

    PASS = 1
    FAIL = 2
    UNVERIFIED = 3
    RETRACTED = 4


@dataclass(frozen=True, slots=True)
class Verdict:
    """Result of verifying one checkpoint, with the evidence."""

    key: CheckpointKey
    kind: VerdictKind
    location: BlobLocation | None = None  # where it is stored: the first blob, or the damaged one
    actual_sha256: bytes = b""  # of the bytes that were found there, if they were looked at
    detail: str = ""  # why it failed, or why it is not stored, for people


@dataclass(frozen=True, slots=True)
class VerificationTotal:
    """The end of a verification."""

    counts: Counter[VerdictKind]
    chain_problem: str  # problem of the chain of segments, for people; empty: none
    journal_problems: tuple[str, ...] = ()  # of rows and values in the journal, for people

    @property
    def ok(self) -> bool:
        """Return whether something was proven and nothing is wrong."""
        failed = self.counts[VerdictKind.FAIL] or self.chain_problem or self.journal_problems
        return self.counts[VerdictKind.PASS] > 0 and not failed


WriteFacts = tuple[str, str, int, str, bytes]
"""Task ID, task path, `idx`, channel and digest of a pending write."""


PENDING_WRITES = "pending writes"


def row_digests(
    state: bytes, metadata: bytes, delta_base: bytes, writes: Iterable[WriteFacts]
) -> dict[str, bytes]:
    """Return the SHA-256 of each part of a checkpoint, by a readable name; writes in any order."""
    names = [
        json.dumps([task_path, task_id, idx, channel, digest.hex()])
        for task_id, task_path, idx, channel, digest in writes
    ]
    joined = "\n".join(sorted(names)).encode()
    parts = {"state": state, "metadata": metadata, "delta base": delta_base, PENDING_WRITES: joined}
    return {name: hashlib.sha256(data).digest() for name, data in parts.items()}


def difference(one: Mapping[str, bytes], other: Mapping[str, bytes]) -> str:
    """Return the names of the parts that differ between two rows; empty if none does."""
    return " and ".join(name for name in one if one[name] != other[name])


ERROR, INTERRUPT, RESUME = "__error__", "__interrupt__", "__resume__"
"""LangGraph's channels (`langgraph.checkpoint.serde.types`) that show what a task waits for."""

NO_TASK = "00000000-0000-0000-0000-000000000000"
"""Task ID that LangGraph gives to a write of no task."""

_ERROR_SOURCE = "__error_source_node__"


class WaitingTasks:
    """What a thread waits for, by the pending writes of its latest root checkpoint.

    Writes are added one by one. The cost of one does not grow with the number of those before.
    """

    __slots__ = ("_answers", "_ended", "_failed", "_questions", "_waiting")

    def __init__(self) -> None:
        # Tasks with the number of the last change that asked, or answered.
        self._questions: dict[str, int] = {}
        self._answers: dict[str, int] = {}
        self._ended: set[str] = set()
        self._waiting: set[str] = set()  # those of which a question is open
        self._failed = False

    @property
    def state(self) -> ThreadState:
        """What the thread waits for."""
        if self._failed:
            return ThreadState.FAILED
        return ThreadState.INTERRUPTED if self._waiting else ThreadState.IDLE

    def add(self, task_id: str, channel: str, order: int) -> None:
        """Add a write; `order` grows with each change."""
        if channel == ERROR:
            self._failed = True
            return
        if channel == _ERROR_SOURCE:
            return
        if channel == INTERRUPT:
            self._questions[task_id] = max(order, self._questions.get(task_id, order))
        elif channel == RESUME:
            self._answers[task_id] = max(order, self._answers.get(task_id, order))
        else:
            self._ended.add(task_id)
        if channel == RESUME and task_id == NO_TASK:
            # An answer of no task opens no question, so only open ones are looked at.
            self._waiting = set(filter(self._waits, self._waiting))
        elif self._waits(task_id):
            self._waiting.add(task_id)
        else:
            self._waiting.discard(task_id)

    def _waits(self, task_id: str) -> bool:
        question = self._questions.get(task_id)
        if question is None or task_id in self._ended:
            return False
        return _waits(question, self._answers.get(task_id), self._answers.get(NO_TASK))


def judge_state(pending: Iterable[tuple[str, str, int]]) -> ThreadState:
    """Return what a thread waits for, given the pending writes of its latest root checkpoint.

    Each write is its task, its channel, and a number that grows with each change. After a fork,
    for instance, numbers can be equal. Then an answer of no task counts if the task has used none,
    and an answer of the task itself counts as used, as in LangGraph.
    """
    waiting = WaitingTasks()
    for write in pending:
        waiting.add(*write)
    return waiting.state


def _waits(question: int, own_answer: int | None, common_answer: int | None) -> bool:
    """Return whether a question is open, by the order of it and of the answers there are."""
    if own_answer is None:
        return common_answer is None or common_answer < question
    if own_answer > question:
        return False
    return common_answer is None or common_answer <= question
