"""Operations on threads with their times, and the check that one order explains all answers.

Each thread is a register: a save puts a checkpoint on top, a load returns the one on top. The saves
leave their IDs to the server and nothing else changes the threads, so the numbers of the changes
are 1, 2, ... and in the order of the IDs. No other order than that of the numbers can explain a
history; so the check searches for none, and takes no longer than sorting does. An order explains a
history if each answer is right where its operation has its place, and if an operation that was
answered before another was invoked has its place before it (linearizability).
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
    """One call of an agent.

    Attributes:
        thread: The thread.
        kind: What was asked for.
        invoked: Time of the call.
        answered: Time of the answer; `NEVER` if the outcome of a save is not known.
        token: Content of the checkpoint; no two saves have the same.
        expected: Of a save, the ID that must be on top, empty for none; `None`: any.
        refused: A save that failed because another ID was on top.
        seq: Number of the save, or of the checkpoint that was loaded, 0 for none.
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
        """Say what happened."""
        on = "" if self.expected is None else f" on {self.expected or 'nothing'}"
        got = "refused" if self.refused else f"{self.seq} {self.checkpoint_id}"
        between = f"{self.invoked:.6f} to {self.answered:.6f}"
        return f"{self.kind} {self.token}{on} in {self.thread} from {between}: {got}"


@dataclass(frozen=True, slots=True)
class Stored:
    """A checkpoint that is there in the end.

    Attributes:
        seq: Its number.
        checkpoint_id: Its ID.
        token: Its content.
    """

    seq: int
    checkpoint_id: str
    token: str


NOTHING = Stored(0, "", "")


def problems(history: Iterable[Operation], stored: Sequence[Stored]) -> list[str]:
    """Return what no order of the operations on one thread explains.

    Args:
        history: The operations; at most one at a time of each agent.
        stored: What the thread has in the end.
    """
    operations = [_settled(one, stored) for one in history]
    known = [one for one in operations if one.answered < NEVER or one.seq]
    return [
        *_wrong_content(known, stored),
        *_out_of_time(known, stored),
    ]


def _settled(one: Operation, stored: Sequence[Stored]) -> Operation:
    """Return an operation with what became of it, as far as the end shows that."""
    if one.kind == "load" or one.refused or one.seq:
        return one
    found = next((each for each in stored if each.token == one.token), None)
    if found is None:
        return one
    return replace(one, seq=found.seq, checkpoint_id=found.checkpoint_id)


def _wrong_content(known: Sequence[Operation], stored: Sequence[Stored]) -> Iterator[str]:
    """Yield answers and checkpoints that do not agree."""
    by_id = sorted(stored, key=attrgetter("checkpoint_id"))
    if [one.seq for one in by_id] != list(range(1, len(stored) + 1)):
        yield f"the numbers of {by_id} are not 1, 2, ... in the order of the IDs"
    saves = {one.token for one in known if one.kind == "save" and not one.refused}
    for token, count in Counter(one.token for one in stored).items():
        if count > 1 or token not in saves:
            yield f"{token} is there {count} times, and was asked for: {token in saves}"
    there = {0: NOTHING, **{one.seq: one for one in stored}}
    for one in known:
        if one.refused:
            continue
        answer = Stored(one.seq, one.checkpoint_id, one.token)
        if there.get(one.seq) != answer or (one.kind == "save" and answer == NOTHING):
            yield f"{one}: {there.get(one.seq)} is there instead"
        before = there.get(one.seq - 1)
        if one.expected is not None and (before is None or before.checkpoint_id != one.expected):
            yield f"{one}: it came after {before}"


def _out_of_time(known: Sequence[Operation], stored: Sequence[Stored]) -> Iterator[str]:
    """Yield operations whose place would be before that of one which was answered earlier.

    A refused save has the first place from there on at which another ID was on top than it named.
    """
    ids = {0: "", **{one.seq: one.checkpoint_id for one in stored}}
    reached = 0
    places: dict[int, int] = {}
    # What is answered at the moment of a call was not answered before it.
    moments = [(one.invoked, 0, number) for number, one in enumerate(known)]
    moments += [(one.answered, 1, number) for number, one in enumerate(known)]
    for _, is_answer, number in sorted(moments):
        one = known[number]
        if is_answer:
            reached = max(reached, places[number])
        elif one.refused:
            free = (place for place in sorted(ids) if place >= reached)
            places[number] = next((place for place in free if ids[place] != one.expected), reached)
            if ids.get(places[number]) == one.expected:
                yield f"{one}: nothing else was on top"
        else:
            places[number] = one.seq
            if one.seq < reached + (one.kind == "save"):
                yield f"{one}: {reached} was there before it was invoked"
