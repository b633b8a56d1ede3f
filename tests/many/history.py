"""Operations on threads with their times, and the check that one order explains all answers.

Each thread is a register: a save puts a checkpoint on top, and a load returns the checkpoint on
top. The saves leave their IDs to the server and nothing else changes the threads, so the numbers of
the changes are 1, 2, ... and in the order of the IDs. Only the order of the numbers can explain a
history; so the check needs no search, and takes no longer than a sort. An order explains a history
on two conditions (linearizability). Each answer must be right at the place of its operation. An
operation that was answered before another was invoked must have its place before the other.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Literal

NEVER = math.inf


@dataclass(frozen=True, slots=True)
class Operation:
    """A call of an agent.

    Attributes:
        thread: The thread.
        kind: The kind of call.
        invoked: Time of the call.
        answered: Time of the answer; `NEVER` if the outcome of a save is unknown.
        token: Content of the checkpoint; no two saves have the same.
        expected: For a save, the ID that must be on top, empty for none; `None`: any.
        refused: Whether a save failed because another ID was on top.
        seq: Number of the saved or loaded checkpoint, 0 for none.
        checkpoint_id: ID of that checkpoint.
    """

    thread: str
    kind: Literal["save", "load"]
    invoked: float
    answered: float = NEVER
    token: str = ""
    expected: str | None = None
    refused: bool = False
    seq: int = 0
    checkpoint_id: str = ""

    def __str__(self) -> str:
        """Return the operation in words."""
        on = "" if self.expected is None else f" on {self.expected or 'nothing'}"
        got = "refused" if self.refused else f"{self.seq} {self.checkpoint_id}"
        between = f"{self.invoked:.6f} to {self.answered:.6f}"
        return f"{self.kind} {self.token}{on} in {self.thread} from {between}: {got}"


@dataclass(frozen=True, slots=True)
class Stored:
    """A checkpoint that the thread has at the end.

    Attributes:
        seq: Number of the checkpoint.
        checkpoint_id: ID of the checkpoint.
        token: Content of the checkpoint.
    """

    seq: int
    checkpoint_id: str
    token: str


NOTHING = Stored(0, "", "")


def problems(history: Iterable[Operation], stored: Sequence[Stored]) -> list[str]:
    """Return the facts that no order of the operations on one thread explains.

    Args:
        history: The operations; each agent has at most one at a time.
        stored: The thread's checkpoints at the end.
    """
    operations = [_settled(operation, stored) for operation in history]
    known = [operation for operation in operations if operation.answered < NEVER or operation.seq]
    return [
        *_wrong_content(known, stored),
        *_out_of_time(known, stored),
    ]


def _settled(operation: Operation, stored: Sequence[Stored]) -> Operation:
    """Return an operation with its outcome, as far as the stored checkpoints show it."""
    if operation.kind == "load" or operation.refused or operation.seq:
        return operation
    checkpoint = next((each for each in stored if each.token == operation.token), None)
    if checkpoint is None:
        return operation
    return replace(operation, seq=checkpoint.seq, checkpoint_id=checkpoint.checkpoint_id)


def _wrong_content(known: Sequence[Operation], stored: Sequence[Stored]) -> Iterator[str]:
    """Yield answers and checkpoints that do not agree."""
    by_id = sorted(stored, key=attrgetter("checkpoint_id"))
    if [checkpoint.seq for checkpoint in by_id] != list(range(1, len(stored) + 1)):
        yield f"the numbers of {by_id} are not 1, 2, ... in the order of the IDs"
    saves = {
        operation.token for operation in known if operation.kind == "save" and not operation.refused
    }
    for token, count in Counter(checkpoint.token for checkpoint in stored).items():
        if count > 1 or token not in saves:
            yield f"{token} is there {count} times, and was asked for: {token in saves}"
    there = {0: NOTHING, **{checkpoint.seq: checkpoint for checkpoint in stored}}
    for operation in known:
        if operation.refused:
            continue
        answer = Stored(operation.seq, operation.checkpoint_id, operation.token)
        if there.get(operation.seq) != answer or (operation.kind == "save" and answer == NOTHING):
            yield f"{operation}: {there.get(operation.seq)} is there instead"
        before = there.get(operation.seq - 1)
        if operation.expected is not None and (
            before is None or before.checkpoint_id != operation.expected
        ):
            yield f"{operation}: it came after {before}"


def _out_of_time(known: Sequence[Operation], stored: Sequence[Stored]) -> Iterator[str]:
    """Yield operations with a place before the place of an operation that was answered earlier.

    A refused save has its place at the first later moment when an ID other than the expected one
    was on top.
    """
    ids = {0: "", **{checkpoint.seq: checkpoint.checkpoint_id for checkpoint in stored}}
    reached = 0
    places: dict[int, int] = {}
    # An answer at the moment of a call does not come before the call.
    moments = [(operation.invoked, 0, number) for number, operation in enumerate(known)]
    moments += [(operation.answered, 1, number) for number, operation in enumerate(known)]
    for _, is_answer, number in sorted(moments):
        operation = known[number]
        if is_answer:
            reached = max(reached, places[number])
        elif operation.refused:
            free = (place for place in sorted(ids) if place >= reached)
            places[number] = next(
                (place for place in free if ids[place] != operation.expected), reached
            )
            if ids.get(places[number]) == operation.expected:
                yield f"{operation}: nothing else was on top"
        else:
            places[number] = operation.seq
            if operation.seq < reached + (operation.kind == "save"):
                yield f"{operation}: {reached} was there before it was invoked"
