"""The proof: checks of the log and the service after the kills.

A task counts as **settled** once its result is durable: the service acknowledged its writes, or
acknowledged the checkpoint that came after them, or was seen to hold them after a kill. A settled
task must never start again. A task that was killed before that may, and is reported.
"""

import hashlib
import struct
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

from execution_log import Record
from tuskpoint import CheckpointRecord, Client, Location, TuskPointSaver
from tuskpoint.errors import DataLoss

Work = tuple[str, tuple[str, ...]]


@dataclass
class Moment:
    """The state when a process was killed."""

    victim: str
    settled: set[Work]
    running: list[Work]


@dataclass
class History:
    """The execution log of one thread, summed up."""

    settled: set[Work] = field(default_factory=set)
    ended: Counter[Work] = field(default_factory=Counter)
    repeated: list[Work] = field(default_factory=list)
    restarted: list[Work] = field(default_factory=list)
    kills: list[Moment] = field(default_factory=list)
    checkpoints: set[str] = field(default_factory=set)
    results: set[tuple[str, str]] = field(default_factory=set)
    tasks: dict[str, Record] = field(default_factory=dict)


@dataclass(frozen=True)
class Check:
    """One line of the table: what had to hold, whether it did, and the figures."""

    name: str
    held: bool
    detail: str


class StoredBlobs(Protocol):
    """The blobs of a server, read without the server."""

    def read(self, location: Location) -> bytes | None:
        """The unchecked bytes at a location; nothing if there are none."""


class BlobDirectory:
    """The blobs that a server keeps in files."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self, location: Location) -> bytes | None:
        """The bytes of a file, or of one member of a pack file (see docs/storage.md)."""
        file = self.path / location.blob_id[:2] / location.blob_id
        if not file.exists():
            return None
        stored = file.read_bytes()
        if not location.identifier:
            return stored
        (count,) = struct.unpack_from("<I", stored, 12)
        for row in range(16, 16 + 64 * count, 64):
            sha256, offset, size = struct.unpack_from("<32sQQ", stored, row)
            if sha256.hex() == location.identifier:
                return stored[offset : offset + size]
        return None


def read_history(records: Iterable[Record], thread: str) -> History:
    """Follow the log from the first line to the last."""
    history = History()
    running: dict[Work, Record] = {}
    for record in records:
        if record.thread != thread:
            continue
        if record.event == "start":
            if record.work in history.settled:
                history.repeated.append(record.work)
            elif record.work in running:
                history.restarted.append(record.work)
            running[record.work] = history.tasks[record.task] = record
        elif record.event == "interrupt":
            running.pop(record.work, None)
        elif record.event == "end":
            history.ended[record.work] += 1
        elif record.event == "kill":
            moment = Moment(record.node, set(history.settled), sorted(running))
            history.kills.append(moment)
        else:
            if record.event == "checkpoint":
                history.checkpoints.add(record.checkpoint)
            elif record.event == "writes":
                history.results.add((record.checkpoint, record.task))
            for work in _settled_by(record, running):
                history.settled.add(work)
                del running[work]
    return history


def _settled_by(record: Record, running: dict[Work, Record]) -> list[Work]:
    if record.event == "checkpoint":
        return [work for work, start in running.items() if start.checkpoint == record.parent]
    return [work for work, start in running.items() if start.task == record.task]


def is_between(history: History, settled: str, running: str) -> bool:
    """Return whether a result of one node is settled while a task of another node runs."""
    at_work = {task.work for task in history.tasks.values()} - set(history.ended)
    stored = any(node == settled for node, _ in history.settled)
    return stored and any(node == running for node, _ in at_work)


def held_results(saver: TuskPointSaver, thread: str) -> Iterator[tuple[str, str]]:
    """Every task result the service holds, as (checkpoint, task): written by it, not by the log."""
    for saved in saver.list({"configurable": {"thread_id": thread}}):
        for task, channel, _ in saved.pending_writes or []:
            if channel not in ("__interrupt__", "__error__", "__resume__", "__scheduled__"):
                yield saved.checkpoint["id"], task


def describe(works: Iterable[Work]) -> str:
    """Name pieces of work by their nodes: reader/load x5, keywords."""
    return ", ".join(
        f"{node} x{count}" if count > 1 else node
        for node, count in Counter(node for node, _ in sorted(works)).items()
    )


def final_values(saver: TuskPointSaver, thread: str) -> dict[str, Any]:
    """The channel values of the thread's latest checkpoint."""
    saved = saver.get_tuple({"configurable": {"thread_id": thread}})
    return dict(saved.checkpoint["channel_values"]) if saved else {}


def checks(
    target: str, thread: str, reference: str, log: Sequence[Record], blobs: StoredBlobs
) -> Iterator[Check]:
    """Yield all checks."""
    history, expected = read_history(log, thread), read_history(log, reference)
    with TuskPointSaver(target) as saver:
        ours, theirs = final_values(saver, thread), final_values(saver, reference)
        results = set(held_results(saver, thread))
    differing = sorted(
        name for name in {*ours, *theirs} if name not in ours or ours.get(name) != theirs.get(name)
    )
    yield Check(
        "the final state equals the undisturbed run",
        bool(theirs) and not differing,
        f"differs in {', '.join(differing)}" if differing else f"{len(theirs)} channel values",
    )
    yield Check(
        "no finished node ran again",
        not history.repeated and bool(history.kills),
        describe(history.repeated) or f"{len(history.kills[-1].settled)} finished before the kills",
    )
    missing = set(expected.ended) ^ set(history.ended)
    yield Check(
        "the same nodes did the same work",
        bool(expected.ended) and not missing,
        describe(missing) or f"{len(history.ended)} node executions",
    )

    with Client(target) as client:
        client.flush()
        records = list(client.list(thread))
        stored = {record.checkpoint_id for record in records}
        lost = len(history.checkpoints - stored)
        lost += len(history.results - results)
        yield Check(
            "everything acknowledged is still there",
            bool(history.checkpoints) and not lost,
            f"{lost} lost"
            if lost
            else f"{len(history.checkpoints)} checkpoints, {len(history.results)} results",
        )
        broken = [namespace for namespace in _namespaces(records) if not _unbroken(namespace)]
        yield Check(
            "every namespace is one line, without gap or fork",
            not broken,
            f"{len(broken)} broken" if broken else f"{len(_namespaces(records))} namespaces",
        )
        wanted = len(list(client.list(reference)))
        yield Check(
            "as many checkpoints as the undisturbed run",
            len(records) == wanted,
            f"{len(records)} of {wanted}",
        )
        yield from _verified(client, records, blobs)


def _verified(
    client: Client, records: Sequence[CheckpointRecord], blobs: StoredBlobs
) -> Iterator[Check]:
    """Read everything back from the blob store: through the server, and past it."""
    hashed, loaded, equal = 0, 0, 0
    damage = ""
    for record in records:
        place = (record.thread_id, record.checkpoint_ns, record.checkpoint_id)
        hashed += record.location is not None and _has_hash(blobs, record.location)
        try:
            blob = _load(client, place, "blob")
        except DataLoss as error:
            damage = str(error)
            continue
        journal = _load(client, place, "any")
        loaded += 1
        equal += (blob.channels, blob.writes, blob.metadata) == (
            journal.channels,
            journal.writes,
            journal.metadata,
        )
    seen = len(records)
    yield Check(
        "every checkpoint's bytes have the recorded SHA-256",
        0 < seen == hashed,
        f"{hashed} of {seen}",
    )
    yield Check(
        "every checkpoint loads from its blob, hash checked",
        0 < seen == loaded,
        damage or f"{loaded} of {seen}",
    )
    yield Check(
        "every blob says what the journal says",
        0 < seen == equal,
        f"{equal} of {seen}",
    )


def _load(
    client: Client, place: tuple[str, str, str], source: Literal["any", "blob"]
) -> CheckpointRecord:
    thread, namespace, checkpoint = place
    return client.load(thread, checkpoint_ns=namespace, checkpoint_id=checkpoint, source=source)


def _has_hash(blobs: StoredBlobs, location: Location) -> bool:
    """Hash the stored bytes here, without trusting the server."""
    data = blobs.read(location)
    return data is not None and hashlib.sha256(data).hexdigest() == location.sha256


def _namespaces(records: Iterable[Any]) -> list[list[Any]]:
    """The checkpoints of each namespace, oldest first; the root comes first."""
    grouped: dict[str, list[Any]] = {}
    for record in sorted(records, key=lambda record: (record.checkpoint_ns, record.checkpoint_id)):
        grouped.setdefault(record.checkpoint_ns, []).append(record)
    return list(grouped.values())


def _unbroken(line: Sequence[Any]) -> bool:
    """Each checkpoint follows the one before it, one step later, beginning with the input."""
    parents = [record.parent_checkpoint_id or "" for record in line]
    steps = [record.metadata.get("step") for record in line]
    return parents == ["", *(record.checkpoint_id for record in line[:-1])] and steps == list(
        range(-1, len(line) - 1)
    )


def tree(target: str, thread: str, history: History) -> Iterator[str]:
    """The thread as lines of text: checkpoints by namespace, subgraphs below their caller."""
    with Client(target) as client:
        namespaces = _namespaces(client.list(thread))
    ran: dict[str, list[str]] = {}
    for task in history.tasks.values():
        ran.setdefault(task.checkpoint, []).append(task.node.rpartition("/")[2])
    called: dict[str, list[list[Any]]] = {}
    for namespace in namespaces[1:]:
        caller = namespace[0].metadata.get("parents", {}).get("", "")
        called.setdefault(caller, []).append(namespace)
        ran.setdefault(caller, []).append(namespace[0].checkpoint_ns.partition(":")[0])
    root = namespaces[0]
    for record in root:
        last = record is root[-1]
        yield ("└─ " if last else "├─ ") + _line(record, ran)
        for namespace in called.get(record.checkpoint_id, []):
            bar = "   " if last else "│  "
            name, _, task = namespace[0].checkpoint_ns.partition(":")
            yield f"{bar}    {name}:{task[:8]}"
            for inner in namespace:
                yield f"{bar}    {'└─' if inner is namespace[-1] else '├─'} " + _line(inner, ran)


def _line(record: Any, ran: dict[str, list[str]]) -> str:
    step, source = record.metadata.get("step", "?"), record.metadata.get("source", "?")
    nodes = Counter(sorted(ran.get(record.parent_checkpoint_id or "", [])))
    after = ", ".join(f"{node} x{count}" if count > 1 else node for node, count in nodes.items())
    summary = record.summary or (after and f"after {after}")
    return f"step {step:>2}  {source:<6} {short(record.checkpoint_id)}  {summary}".rstrip()


def short(checkpoint_id: str) -> str:
    """The clock of a UUIDv6: a prefix long enough to distinguish neighbours."""
    return checkpoint_id[:18]
