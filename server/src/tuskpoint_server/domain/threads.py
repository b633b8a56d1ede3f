"""What is known and said of threads: their state, their events, verdicts on what is stored."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum, StrEnum

from .model import BlobLocation, CheckpointKey


class ThreadState(IntEnum):
    """What a thread waits for. Numbers are those of the contract."""

    IDLE = 1
    INTERRUPTED = 2
    FAILED = 3


class PruneStrategy(StrEnum):
    """What pruning keeps."""

    KEEP_LATEST = "keep_latest"
    DELETE_ALL = "delete_all"


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
    """A thread with what takes counting."""

    thread: Thread
    checkpoint_count: int
    uncertified_count: int
    heads: dict[str, str]  # the latest ID of each namespace
    expire_us: int | None = None  # earliest time at which a blob that it needs may expire


class EventKind(IntEnum):
    """What happened on a thread. Numbers are those of the contract."""

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
    """What is said of a checkpoint. Numbers are those of the contract."""

    PASS = 1
    FAIL = 2
    UNVERIFIED = 3
    RETRACTED = 4


@dataclass(frozen=True, slots=True)
class Verdict:
    """What verification says of one checkpoint."""

    key: CheckpointKey
    kind: VerdictKind
    location: BlobLocation | None = None  # where it is stored: the first blob, or the damaged one
    actual_sha256: bytes = b""  # of the bytes that were found there, if they were looked at
    detail: str = ""  # why it failed, or why it is not stored, for people


@dataclass(frozen=True, slots=True)
class VerificationTotal:
    """The end of a verification."""

    counts: Counter[VerdictKind]
    chain_problem: str  # what is wrong with the chain of segments, for people

    @property
    def ok(self) -> bool:
        """Return whether something was proven and nothing is wrong."""
        failed = self.counts[VerdictKind.FAIL] or self.chain_problem
        return self.counts[VerdictKind.PASS] > 0 and not failed


WriteFacts = tuple[str, str, int, str, bytes]
"""Task ID, task path, `idx`, channel and digest of a pending write."""


PENDING_WRITES = "pending writes"


def row_digests(
    state: bytes, metadata: bytes, delta_base: bytes, writes: Iterable[WriteFacts]
) -> dict[str, bytes]:
    """Return the SHA-256 of what a checkpoint has, by names for people; writes in any order."""
    names = [
        json.dumps([task_path, task_id, idx, channel, digest.hex()])
        for task_id, task_path, idx, channel, digest in writes
    ]
    joined = "\n".join(sorted(names)).encode()
    held = {"state": state, "metadata": metadata, "delta base": delta_base, PENDING_WRITES: joined}
    return {name: hashlib.sha256(data).digest() for name, data in held.items()}


def difference(one: Mapping[str, bytes], other: Mapping[str, bytes]) -> str:
    """Name what differs between the digests of two rows; empty if nothing does."""
    return " and ".join(name for name in one if one[name] != other[name])


ERROR, INTERRUPT, RESUME = "__error__", "__interrupt__", "__resume__"
"""Channels of LangGraph (`langgraph.checkpoint.serde.types`) that say what a task waits for."""

NO_TASK = "00000000-0000-0000-0000-000000000000"
"""What LangGraph gives as the task of a write that is no task's."""

_ERROR_SOURCE = "__error_source_node__"


def judge_state(pending: Iterable[tuple[str, str, int]]) -> ThreadState:
    """Say what a thread waits for, from the pending writes of its latest root checkpoint.

    Of each these are task, channel, and a number that grows with the change that last wrote it.
    Where it is equal, for instance after a fork, an answer of no task counts if the task has
    used none, and one of the task itself counts as used, as for LangGraph.
    """
    asked: dict[str, int] = {}
    answered: dict[str, int] = {}
    ended: set[str] = set()
    failed = False
    for task_id, channel, order in pending:
        if channel == INTERRUPT:
            asked[task_id] = order
        elif channel == RESUME:
            answered[task_id] = order
        elif channel == ERROR:
            failed = True
        elif channel != _ERROR_SOURCE:
            ended.add(task_id)
    if failed:
        return ThreadState.FAILED
    to_all = answered.get(NO_TASK)
    for task_id, order in asked.items():
        if task_id not in ended and _waits(order, answered.get(task_id), to_all):
            return ThreadState.INTERRUPTED
    return ThreadState.IDLE


def _waits(asked: int, own: int | None, to_all: int | None) -> bool:
    """Return whether a question is open, by the order of it and of the answers there are."""
    if own is None:
        return to_all is None or to_all < asked
    if own > asked:
        return False
    return to_all is None or to_all <= asked
