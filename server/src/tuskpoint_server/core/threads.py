"""Threads: their names, state and events, and verdicts on their stored checkpoints."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum

from .leases import Lease
from .model import BlobLocation, CheckpointKey, Failure, Question

EFFECTS, EFFECTS_END = "$effects/", "$effects0"
"""Prefix of the threads of effects, and the first name after them: "0" follows "/"."""

SNAPSHOTS, SNAPSHOTS_END = "$snapshot/", "$snapshot0"
"""Prefix of the threads of snapshots, and the first name after them."""

STORES, STORES_END = "$store/", "$store0"
"""Prefix of the threads of stores, and the first name after them."""

TRAIL, TRAIL_END = "$trail/", "$trail0"
"""Prefix of the thread of the audit trail, and the first name after it."""

INBOX, INBOX_END = "$inbox/", "$inbox0"
"""Prefix of the threads with the offers of hand-offs to an agent, and the first name after them."""

RESERVED = (
    (EFFECTS, EFFECTS_END),
    (INBOX, INBOX_END),
    (SNAPSHOTS, SNAPSHOTS_END),
    (STORES, STORES_END),
    (TRAIL, TRAIL_END),
)
"""Prefixes of the names that only the server uses, in order; users' threads cannot have them."""


def is_reserved(thread_id: str) -> bool:
    """Return whether only the server may use a thread's name."""
    return thread_id.startswith((EFFECTS, INBOX, SNAPSHOTS, STORES, TRAIL))


def keeps_records(thread_id: str) -> bool:
    """Return whether a thread has records of the server, without a latest checkpoint."""
    return thread_id.startswith((INBOX, STORES))


class ThreadState(IntEnum):
    """What a thread waits for. The contract defines the numbers."""

    IDLE = 1
    INTERRUPTED = 2
    FAILED = 3


class PruneStrategy(IntEnum):
    """Which checkpoints a prune keeps. The contract defines the numbers."""

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
    retention_s: int = 0  # seconds without a change after which the thread is deleted; 0: never
    unsearchable: bool = False  # whether search skips the thread's checkpoints
    checkpoint_count: int = 0
    summary: str = ""  # of the head
    question: Question | None = None  # first open question of the head of an interrupted thread
    failure: Failure | None = None  # first failure of the head of a failed thread
    lease: Lease | None = None  # lease that holds now


@dataclass(frozen=True, slots=True)
class ThreadDetail:
    """A thread with its counts."""

    thread: Thread
    uncertified_count: int
    heads: dict[str, str]  # the latest ID of each namespace
    expire_us: int | None = None  # earliest time at which a blob of the thread may expire


class EventKind(IntEnum):
    """Kind of an event on a thread. The contract defines the numbers."""

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
    EFFECT_CHANGED = 12
    LEASE_CHANGED = 13


@dataclass(frozen=True, slots=True)
class Event:
    """One change of a thread."""

    kind: EventKind
    seq: int
    incarnation: int
    key: CheckpointKey  # the checkpoint of the event; the ID is empty if the event has none
    deleted: int  # number of deleted checkpoints
    created_us: int


class VerdictKind(IntEnum):
    """Result of verifying a checkpoint. The contract defines the numbers."""

    PASS = 1
    FAIL = 2
    UNVERIFIED = 3
    RETRACTED = 4


@dataclass(frozen=True, slots=True)
class Verdict:
    """Result of verifying one checkpoint, with the evidence."""

    key: CheckpointKey
    kind: VerdictKind
    location: BlobLocation | None = None  # the first blob, or the damaged blob
    actual_sha256: bytes = b""  # SHA-256 of the stored bytes, if they were read
    detail: str = ""  # for people: why the check failed, or why the checkpoint is not stored


@dataclass(frozen=True, slots=True)
class VerificationTotal:
    """The last message of a verification."""

    counts: Counter[VerdictKind]
    chain_problem: str  # problem of the chain of segments, for people; empty: none
    journal_problems: tuple[str, ...] = ()  # of rows and values in the journal, for people

    @property
    def ok(self) -> bool:
        """Return whether at least one checkpoint was proven and no check failed."""
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
    """Return the names of the parts that differ between two rows; empty if the rows are equal."""
    return " and ".join(name for name in one if one[name] != other[name])


ERROR, INTERRUPT, RESUME = "__error__", "__interrupt__", "__resume__"
"""LangGraph's channels (`langgraph.checkpoint.serde.types`) of questions, errors and answers."""

NO_TASK = "00000000-0000-0000-0000-000000000000"
"""Task ID that LangGraph gives to a write without a task."""

_ERROR_SOURCE = "__error_source_node__"


class WaitingTasks:
    """What a thread waits for, by the pending writes of its latest root checkpoint.

    The cost of adding a write does not grow with the number of writes.
    """

    __slots__ = ("_answers", "_ended", "_failed", "_questions", "_waiting")

    def __init__(self) -> None:
        # Tasks, each with the number of the last change with its question, or answer.
        self._questions: dict[str, int] = {}
        self._answers: dict[str, int] = {}
        self._ended: set[str] = set()
        self._waiting: set[str] = set()  # tasks with an open question
        self._failed = False

    @property
    def state(self) -> ThreadState:
        """The state of the thread."""
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
            # An answer without a task opens no question, so only open questions are checked.
            self._waiting = set(filter(self._waits, self._waiting))
        elif self._waits(task_id):
            self._waiting.add(task_id)
        else:
            self._waiting.discard(task_id)

    def waits(self, task_id: str) -> bool:
        """Return whether a task has an open question."""
        return task_id in self._waiting

    def _waits(self, task_id: str) -> bool:
        question = self._questions.get(task_id)
        if question is None or task_id in self._ended:
            return False
        return _waits(question, self._answers.get(task_id), self._answers.get(NO_TASK))


def judge_state(pending: Iterable[tuple[str, str, int]]) -> ThreadState:
    """Return what a thread waits for, given the pending writes of its latest root checkpoint.

    Each write is its task, its channel, and a number that grows with each change. Numbers can be
    equal, for instance after a fork. Then an answer without a task counts if the task has used no
    answer, and the task's own answer counts as used, as in LangGraph.
    """
    waiting = WaitingTasks()
    for write in pending:
        waiting.add(*write)
    return waiting.state


def _waits(question: int, own_answer: int | None, common_answer: int | None) -> bool:
    """Return whether a question is open, by the order of the question and the answers."""
    if own_answer is None:
        return common_answer is None or common_answer < question
    if own_answer > question:
        return False
    return common_answer is None or common_answer <= question
