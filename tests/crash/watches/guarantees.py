"""Events that watchers saw, acknowledgements of writers, and the guarantees for them.

Each guarantee of a watch is a validator: a pure function that returns the faults in a record.
docs/threads/history.md defines the guarantees.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise

PROGRESS, CERTIFIED = "PROGRESS", "CERTIFIED"
"""Kinds without a number in the sequence: the progress of a watch, and a certification."""

ENDED = "THREAD_DELETED"


@dataclass(frozen=True)
class Seen:
    """An event as a watcher received it.

    Attributes:
        kind: Kind of the event.
        seq: Number of the event.
        incarnation: Incarnation of the thread.
        cursor: Cursor that resumes after the event.
        checkpoint: Namespace and ID of the checkpoint concerned, or empty.
        deleted: Number of deleted checkpoints.
        writes: Tasks whose writes came with a saved checkpoint; `None` if the checkpoint was gone.
        intact: Whether every value has its announced digest.
    """

    kind: str
    seq: int
    incarnation: int
    cursor: bytes = b""
    checkpoint: str = ""
    deleted: int = 0
    writes: frozenset[str] | None = None
    intact: bool = True

    @property
    def fact(self) -> tuple[str, int, int, str, int]:
        """The part of an event that all watchers must see alike."""
        return (
            self.kind,
            self.seq,
            self.incarnation,
            self.checkpoint,
            self.deleted,
        )


@dataclass
class Session:
    """One watch, from its call to its end.

    Attributes:
        watcher: Name of the watcher.
        thread: The thread.
        after: Number of the position that the watch was resumed after.
        kinds: The requested kinds; empty: all.
        seen: The delivered events, in order.
    """

    watcher: str
    thread: str
    after: int
    kinds: frozenset[str] = frozenset()
    seen: list[Seen] = field(default_factory=list)

    @property
    def events(self) -> list[Seen]:
        """The events with their own number."""
        return [event for event in self.seen if event.kind not in (PROGRESS, CERTIFIED)]

    @property
    def positions(self) -> list[Seen]:
        """The events and the progress reports, without certifications."""
        return [event for event in self.seen if event.kind != CERTIFIED]

    @property
    def through(self) -> int:
        """Number up to which everything was delivered."""
        return self.positions[-1].seq if self.positions else self.after

    def wants(self, kind: str) -> bool:
        """Return whether the watch requested this kind."""
        return not self.kinds or kind in self.kinds

    def __str__(self) -> str:
        """Return the watcher, the thread and the position of the watch."""
        return f"{self.watcher} on {self.thread} after {self.after}"


@dataclass(frozen=True)
class Change:
    """An acknowledged change of a writer.

    Attributes:
        writer: Name of the writer; a writer makes one change at a time.
        thread: The thread.
        kind: Kind of the event that must report the change.
        seq: The number in the answer.
        checkpoint: Namespace and ID of the checkpoint.
        writes: Tasks whose writes were saved with a checkpoint.
    """

    writer: str
    thread: str
    kind: str
    seq: int
    checkpoint: str
    writes: frozenset[str] = frozenset()


@dataclass
class Record:
    """The events and changes of a run; changes are in the order of their acknowledgements."""

    sessions: list[Session] = field(default_factory=list)
    changes: list[Change] = field(default_factory=list)

    def known(self, thread: str) -> Mapping[int, str]:
        """Return the kind of every known event of a thread, by number."""
        kinds = {
            event.seq: event.kind
            for session in self.sessions
            if session.thread == thread
            for event in session.events
        }
        kinds.update(
            {change.seq: change.kind for change in self.changes if change.thread == thread}
        )
        return kinds


Problems = list[str]


def ordered(record: Record) -> Problems:
    """Events come in the order of the thread's sequence, which is the order of the changes."""
    problems = []
    for session in record.sessions:
        certified = [event for event in session.seen if event.kind == CERTIFIED]
        for earlier, later in (*pairwise(session.positions), *pairwise(certified)):
            if later.seq < earlier.seq or later.incarnation < earlier.incarnation:
                problems.append(f"{session}: {later} follows {earlier}")
        for earlier, later in pairwise(session.events):
            ends, begins = earlier.kind == ENDED, later.incarnation > earlier.incarnation
            if not session.kinds and ends != begins:
                problems.append(f"{session}: {later} follows {earlier}")
    last: dict[tuple[str, str], Change] = {}
    for change in record.changes:
        before = last.get((change.writer, change.thread))
        if before is not None and change.seq <= before.seq:
            problems.append(f"{change} was made after {before}")
        last[change.writer, change.thread] = change
    return problems


def unique(record: Record) -> Problems:
    """No event comes twice, neither on one watch nor after the cursor that resumed it."""
    problems = []
    for session in record.sessions:
        numbers = [event.seq for event in session.events]
        problems += [
            f"{session}: number {seq} comes twice" for seq in set(numbers) if numbers.count(seq) > 1
        ]
        problems += [
            f"{session}: number {seq} had come before" for seq in numbers if seq <= session.after
        ]
    return problems


def atomic(record: Record) -> Problems:
    """A change is one event, the same for every watcher, and arrives whole."""
    problems = []
    facts: dict[tuple[str, int], Seen] = {}
    for session in record.sessions:
        for event in session.events:
            first = facts.setdefault((session.thread, event.seq), event)
            if first.fact != event.fact:
                problems.append(f"{session}: {event} was {first} to another")
            if not event.intact:
                problems.append(f"{session}: {event} is damaged")
    for change in record.changes:
        seen = facts.get((change.thread, change.seq))
        if seen is not None and (seen.kind, seen.checkpoint) != (change.kind, change.checkpoint):
            problems.append(f"{change} was delivered as {seen}")
    return problems + list(_halves(record))


def _halves(record: Record) -> Iterator[str]:
    changes = {(change.thread, change.seq): change for change in record.changes}
    for session in record.sessions:
        for event in session.events:
            change = changes.get((session.thread, event.seq))
            if change is not None and event.writes is not None and change.writes - event.writes:
                yield f"{session}: {event} came without writes that were saved with it"


def reliable(record: Record) -> Problems:
    """No event is left out, and every acknowledged change is delivered."""
    problems = []
    for session in record.sessions:
        came = {event.seq for event in session.events}
        if not session.kinds:
            expected = list(range(session.after + 1, max(came, default=session.after) + 1))
        else:
            known = record.known(session.thread)
            expected = [
                n for n in known if session.after < n <= session.through and session.wants(known[n])
            ]
        problems += [f"{session}: number {n} is left out" for n in expected if n not in came]
    watched: dict[tuple[str, str], list[Session]] = defaultdict(list)
    for session in record.sessions:
        watched[session.watcher, session.thread].append(session)
    for (watcher, thread), sessions in watched.items():
        came = {event.seq for session in sessions for event in session.events}
        problems += [
            f"{watcher} never saw {change}"
            for change in record.changes
            if change.thread == thread
            and change.seq > sessions[0].after
            and sessions[0].wants(change.kind)
            and change.seq not in came
        ]
    return problems


def resumable(record: Record) -> Problems:
    """A resumed watch continues with the event after its cursor."""
    problems = []
    for session in record.sessions:
        known = record.known(session.thread)
        later = [n for n, kind in known.items() if n > session.after and session.wants(kind)]
        events = session.events
        if events and events[0].seq != min(later):
            problems.append(f"{session}: begins with {events[0].seq} and not with {min(later)}")
    return problems


def bookmarkable(record: Record) -> Problems:
    """A progress report means that everything up to its cursor was delivered."""
    problems = []
    for session in record.sessions:
        known = record.known(session.thread)
        wanted = {n for n, kind in known.items() if n > session.after and session.wants(kind)}
        came: set[int] = set()
        for event in session.positions:
            if event.kind != PROGRESS:
                came.add(event.seq)
                continue
            missing = {n for n in wanted if n <= event.seq} - came
            ahead = {n for n in came if n > event.seq}
            if missing or ahead:
                problems.append(
                    f"{session}: progress at {event.seq} lacks {sorted(missing)} and comes after "
                    f"{sorted(ahead)}"
                )
    return problems


GUARANTEES: Mapping[str, Callable[[Record], Problems]] = {
    each.__name__: each for each in (ordered, unique, atomic, reliable, resumable, bookmarkable)
}
"""The six guarantees of a watch, by name."""


def broken(record: Record) -> dict[str, Problems]:
    """Return the guarantees that a record breaks, with the faults."""
    problems_by_name = {name: validate(record) for name, validate in GUARANTEES.items()}
    return {name: problems for name, problems in problems_by_name.items() if problems}
