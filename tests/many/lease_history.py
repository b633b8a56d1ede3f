"""The recorded calls of drivers that take turns on threads, and the check of their fences.

The numbers of a thread's changes are one order of all its leases and saves. A lease has the number
of its acquisition in its fence, and each stored save says under which fence it was sent. So the
check reads the changes in their order: a save under a fence must come after the acquisition of that
fence, and after neither a newer acquisition nor a save without a lease, which needs that the lease
had ended.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from operator import attrgetter
from typing import Literal

_SEQ = (1 << 40) - 1


@dataclass(frozen=True, slots=True)
class Call:
    """A call of a driver, with its times by the machine's monotonic clock.

    Attributes:
        kind: The kind of call.
        thread: The thread.
        driver: The driver.
        invoked: Time of the call.
        answered: Time of the answer, or of the failure.
        outcome: "ok", the reason of a refusal, or "lost" if the outcome is unknown.
        fence: Fence of the acquired lease, or of the lease that the call named; 0: none.
        token: Content of a save; no two saves have the same.
        seq: Number of an acknowledged save.
        acquired_us: Server time of an acquisition.
        until_us: Server time at which an acquired or extended lease ends.
        took_over: Whether an acquisition may end another lease.
    """

    kind: Literal["acquire", "keep", "release", "save"]
    thread: str
    driver: str
    invoked: float
    answered: float
    outcome: str
    fence: int = 0
    token: str = ""
    seq: int = 0
    acquired_us: int = 0
    until_us: int = 0
    took_over: bool = False


@dataclass(frozen=True, slots=True)
class StoredSave:
    """A checkpoint that a thread has at the end.

    Attributes:
        seq: Number of the save.
        fence: Fence under which the save was sent; 0: without a lease.
        token: Content of the save.
    """

    seq: int
    fence: int
    token: str


def problems(calls: Iterable[Call], stored: Iterable[StoredSave]) -> list[str]:
    """Return the facts about one thread that a lease forbids."""
    calls, stored = list(calls), sorted(stored, key=attrgetter("seq"))
    return [*_out_of_turn(calls, stored), *_lost(calls, stored), *_overlapping(calls)]


def _acquired(calls: Iterable[Call]) -> dict[int, Call]:
    """Return the first answer of each acquisition, by fence."""
    return {
        call.fence: call
        for call in sorted(calls, key=attrgetter("answered"), reverse=True)
        if call.kind == "acquire" and call.outcome == "ok"
    }


def _out_of_turn(calls: list[Call], stored: list[StoredSave]) -> Iterator[str]:
    """Yield saves under a fence that was not the newest, or had ended."""
    acquired = _acquired(calls)
    changes: list[tuple[int, int, StoredSave | None]] = [
        (fence & _SEQ, fence, None) for fence in acquired
    ]
    changes += [(save.seq, save.fence, save) for save in stored]
    current = newest = 0
    for seq, fence, save in sorted(changes, key=lambda change: change[:2]):
        if save is None:
            if fence <= newest:
                yield f"{acquired[fence]}: fence {newest} came before it"
            current = newest = max(newest, fence)
        elif not fence:
            current = 0
        elif fence != current:
            yield f"{save}: the lease of change {seq} was {current or 'none'}, the newest {newest}"


def _lost(calls: list[Call], stored: list[StoredSave]) -> Iterator[str]:
    """Yield acknowledged saves that are absent, and saves that were refused or not asked for."""
    by_token = {save.token: save for save in stored}
    if len(by_token) < len(stored):
        yield f"saved twice: {Counter(save.token for save in stored).most_common(3)}"
    asked = {call.token: call for call in calls if call.kind == "save"}
    for token, save in by_token.items():
        if token not in asked:
            yield f"{save}: nobody asked for it"
    for call in asked.values():
        found = by_token.get(call.token)
        if call.outcome == "ok" and (found is None or found.seq != call.seq):
            yield f"{call}: {found} is there instead"
        if call.outcome not in ("ok", "lost") and found is not None:
            yield f"{call}: it was refused, and is there"


def _overlapping(calls: list[Call]) -> Iterator[str]:
    """Yield leases that began before the lease before them had ended, without a take-over."""
    ends: dict[int, int] = {}
    released: set[int] = set()
    for call in calls:
        if call.outcome == "ok" and call.kind in ("acquire", "keep"):
            ends[call.fence] = max(ends.get(call.fence, 0), call.until_us)
        if call.kind == "release" and call.outcome in ("ok", "lost"):
            released.add(call.fence)
    before: Call | None = None
    for _, call in sorted(_acquired(calls).items()):
        if before is not None:
            ended = before.fence in released or call.took_over
            if not ended and call.acquired_us < ends[before.fence]:
                yield f"{call}: the lease {before} held until {ends[before.fence]}"
            if call.answered < before.invoked:
                yield f"{call}: it was answered before {before} was invoked"
        before = call
