"""What was acknowledged, in plain dictionaries.

The model changes at the commit, whether or not the caller lives to hear of it: what is
committed may be answered at any moment from then on.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace

from tuskpoint_server.domain.lineage import Snapshot
from tuskpoint_server.domain.model import (
    CheckpointDraft,
    CheckpointKey,
    Lineage,
    Reference,
    Value,
    Version,
    Write,
    write_order,
)
from tuskpoint_server.domain.snapshots import is_reserved

Place = tuple[str, str]
"""Namespace and checkpoint ID, inside a thread."""

Slot = tuple[str, int]
"""Task and index of a write."""

Channels = tuple[tuple[str, Version | None, Value | None], ...]

NO_LINEAGE = Lineage()


@dataclass
class Stored:
    """A checkpoint as it was acknowledged."""

    parent_id: str
    frame: bytes
    channels: Channels
    metadata: bytes
    run_id: str
    label: str
    summary: str
    created_us: int
    revision: int = 1
    hidden: bool = False
    writes: dict[Slot, Write] = field(default_factory=dict)
    lineage: Lineage = NO_LINEAGE

    def content(self) -> tuple[object, ...]:
        """Return all that a reader sees of it, in an order that can be compared."""
        return (
            self.parent_id,
            self.frame,
            self.channels,
            tuple(sorted(self.writes.values(), key=write_order)),
            self.metadata,
            self.label,
            self.summary,
            self.created_us,
            self.lineage,
        )


@dataclass
class Thread:
    """A thread, deleted or not. `early` are writes whose checkpoint has not come."""

    incarnation: int = 1
    deleted: bool = False
    agent_id: str = ""
    retention_s: int = 0
    stored: dict[Place, Stored] = field(default_factory=dict)
    early: dict[Place, dict[Slot, Write]] = field(default_factory=dict)

    def visible(self) -> dict[Place, Stored]:
        """Return what readers see."""
        return {place: one for place, one in self.stored.items() if not one.hidden}

    def begin_next(self) -> None:
        """Start the next incarnation."""
        self.incarnation += 1
        self.deleted = False
        self.agent_id = ""
        self.retention_s = 0

    def end(self) -> None:
        """Forget all that belongs to the incarnation."""
        self.deleted = True
        self.stored, self.early = {}, {}


class Model:
    """All threads by ID, those that keep snapshots among them.

    Attributes:
        threads: The threads.
        values: Every value that was ever sent, by digest.
        snapshots: What was told of each snapshot, and the agents of its members.
        answers: First answers by `request_id`.
    """

    def __init__(self) -> None:
        self.threads: dict[str, Thread] = {}
        self.values: dict[bytes, Value] = {}
        self.snapshots: dict[str, tuple[Snapshot, tuple[str, ...]]] = {}
        self.answers: dict[str, object] = {}

    def of_users(self) -> dict[str, Thread]:
        """Return the threads that callers can name."""
        return {name: one for name, one in self.threads.items() if not is_reserved(name)}

    def find(self, key: CheckpointKey) -> Stored | None:
        """Return a checkpoint that readers see, or `None`."""
        thread = self.threads.get(key.thread_id)
        stored = thread.stored.get((key.checkpoint_ns, key.checkpoint_id)) if thread else None
        return None if stored is None or stored.hidden else stored

    def revisions(self) -> dict[CheckpointKey, tuple[int, int]]:
        """Return incarnation and revision of every checkpoint that readers see."""
        return {
            CheckpointKey(name, *place): (thread.incarnation, one.revision)
            for name, thread in self.threads.items()
            for place, one in thread.visible().items()
        }

    def save(self, draft: CheckpointDraft, now_us: int) -> int:
        """Save a checkpoint; return its revision."""
        key = draft.key
        place = (key.checkpoint_ns, key.checkpoint_id)
        thread = self.threads.setdefault(key.thread_id, Thread())
        parent = thread.stored.get((key.checkpoint_ns, draft.parent_id))
        channels = self._channels(draft, parent)
        before = thread.stored.get(place)
        if before is None and thread.deleted:
            thread.begin_next()
        visible = before if before is not None and not before.hidden else None
        one = Stored(
            parent_id=draft.parent_id,
            frame=draft.frame,
            channels=channels,
            metadata=draft.metadata.raw,
            run_id=draft.metadata.run_id,
            label=draft.label or (visible.label if visible else ""),
            summary=draft.summary or (visible.summary if visible else ""),
            created_us=before.created_us if before else now_us,
            revision=before.revision if before else 0,
            writes=dict(before.writes) if before else thread.early.pop(place, {}),
            lineage=before.lineage if before else NO_LINEAGE,
        )
        add_writes(one.writes, draft.writes)
        thread.agent_id = draft.agent_id or thread.agent_id
        if visible is None or visible.content() != one.content():
            one.revision += 1
            thread.stored[place] = one
        return one.revision

    def save_writes(self, key: CheckpointKey, writes: Sequence[Write]) -> int:
        """Save writes; return the revision that a reader sees, or 0."""
        place = (key.checkpoint_ns, key.checkpoint_id)
        thread = self.threads.setdefault(key.thread_id, Thread())
        stored = thread.stored.get(place)
        if stored is None:
            add_writes(thread.early.setdefault(place, {}), writes)
            return 0
        if add_writes(stored.writes, writes):
            stored.revision += 1
        return 0 if stored.hidden else stored.revision

    def set_label(self, key: CheckpointKey, label: str) -> int:
        """Set a label; return the revision."""
        stored = self.find(key)
        assert stored is not None
        if stored.label != label:
            stored.label = label
            stored.revision += 1
        return stored.revision

    def delete(self, thread_id: str) -> int:
        """Delete a thread; return how many checkpoints a reader saw."""
        thread = self.threads.get(thread_id)
        if thread is None:
            return 0
        count = 0 if thread.deleted else len(thread.visible())
        thread.end()
        return count

    def superseded(self, thread_id: str) -> set[Place]:
        """Return what pruning removes: all but the latest of each namespace."""
        thread = self.threads.get(thread_id)
        visible = thread.visible() if thread else {}
        latest: dict[str, str] = {}
        for ns, checkpoint_id in visible:
            latest[ns] = max(checkpoint_id, latest.get(ns, ""))
        return set(visible) - set(latest.items())

    def of_runs(self, run_ids: Iterable[str]) -> dict[str, set[Place]]:
        """Return what deleting runs removes, by thread."""
        wanted = set(run_ids)
        return {
            name: {place for place, one in thread.visible().items() if one.run_id in wanted}
            for name, thread in self.of_users().items()
        }

    def remove(self, thread_id: str, doomed: AbstractSet[Place], kept: AbstractSet[Place]) -> None:
        """Remove checkpoints.

        Args:
            thread_id: The thread.
            doomed: What readers see no more.
            kept: What the journal still has, for delta channels of others.
        """
        if not doomed:
            return
        thread = self.threads[thread_id]
        for place in doomed:
            one = thread.stored[place]
            if place in kept:
                thread.stored[place] = replace(
                    one, hidden=True, label="", revision=one.revision + 1
                )
        for place, one in list(thread.stored.items()):
            if (place in doomed or one.hidden) and place not in kept:
                del thread.stored[place]

    def begin(self, name: str, agent_id: str) -> Thread:
        """Begin a thread out of others' checkpoints."""
        thread = self.threads.get(name)
        if thread is None:
            thread = self.threads[name] = Thread()
        else:
            thread.end()
            thread.begin_next()
        thread.agent_id = agent_id
        return thread

    def copy(self, source: str, target: str, revisions: Mapping[Place, int]) -> int:
        """Copy a thread, with these revisions; return how many checkpoints a reader sees."""
        origin = self.threads[source]
        goal = self.begin(target, origin.agent_id)
        goal.stored = copy.deepcopy(origin.stored)
        goal.early = copy.deepcopy(origin.early)
        for place, one in goal.stored.items():
            one.revision = revisions[place]
        return len(goal.visible())

    def forget_what_no_catalog_tells(self, told: Mapping[str, tuple[int, bool]]) -> None:
        """Forget early writes and answers, and threads of which nothing is left.

        Args:
            told: Incarnation of every thread that a recovery found, and whether it ended.
        """
        self.answers.clear()
        for name, thread in list(self.threads.items()):
            thread.early = {}
            if thread.stored:
                continue
            if name in told:
                thread.incarnation, thread.deleted = told[name]
            else:
                del self.threads[name]

    def delta_history(
        self, key: CheckpointKey, channel: str
    ) -> tuple[Value | None, tuple[Write, ...]]:
        """Return what rebuilds a delta channel: the nearest value above, the writes since."""
        thread = self.threads[key.thread_id]
        newest_first: list[Write] = []
        at: str = thread.stored[key.checkpoint_ns, key.checkpoint_id].parent_id
        seen = {key.checkpoint_id}
        while at and at not in seen:
            seen.add(at)
            ancestor = thread.stored.get((key.checkpoint_ns, at))
            if ancestor is None:
                break
            ordered = sorted(ancestor.writes.values(), key=write_order, reverse=True)
            newest_first += [write for write in ordered if write.channel == channel]
            values = {name: value for name, _, value in ancestor.channels}
            if values.get(channel) is not None:
                return values[channel], tuple(reversed(newest_first))
            at = ancestor.parent_id
        return None, tuple(reversed(newest_first))

    def _channels(self, draft: CheckpointDraft, parent: Stored | None) -> Channels:
        inherited = {name: value for name, _, value in parent.channels} if parent else {}
        found: list[tuple[str, Version | None, Value | None]] = []
        for channel in draft.channels:
            content = channel.content
            value: Value | None = None
            if isinstance(content, Value):
                assert channel.digest is not None
                value = self.values[channel.digest] = content
            elif content is Reference.INHERIT:
                value = inherited[channel.name]
            elif isinstance(content, bytes):
                value = self.values[content]
            found.append((channel.name, channel.version, value))
        return tuple(found)


def add_writes(known: dict[Slot, Write], sent: Sequence[Write]) -> bool:
    """Add writes: the first wins at index 0 and above, the last below; tell of a change."""
    changed = False
    for write in sent:
        slot = (write.task_id, write.idx)
        before = known.get(slot)
        if before is None or (write.idx < 0 and before != write):
            known[slot] = write
            changed = True
    return changed
