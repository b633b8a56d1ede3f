"""The answers that clients got and rely on: the journal must have exactly this content."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from tests.simulation.promises.committed_rows import Place, Thread
from tuskpoint_server.core.model import CheckpointKey, SaveOutcome
from tuskpoint_server.core.state import decode_channels
from tuskpoint_server.features.checkpoints.incoming import IncomingCheckpoint
from tuskpoint_server.journal.database.pending_writes import StoredWrite

Channels = dict[str, bytes | None]
"""Digest of each channel's value by name; `None`: the channel is empty."""


@dataclass(frozen=True)
class Known:
    """A checkpoint as clients know it; writes by task and `idx`, with their digest."""

    channels: Channels
    writes: dict[tuple[str, int], bytes] = field(default_factory=dict)
    run_id: str = ""


@dataclass
class Story:
    """A thread as clients know it; `early` has writes without a checkpoint."""

    incarnation: int = 1
    known: dict[Place, Known] = field(default_factory=dict)
    early: dict[Place, dict[tuple[str, int], bytes]] = field(default_factory=dict)


def known_of(thread: Thread, place: Place) -> Known:
    """Return a checkpoint, read from its rows."""
    row = thread.rows[place]
    writes = {key[1:]: write[4] for key, write in thread.writes.items() if key[0] == place}
    return Known(
        {channel.name: channel.digest for channel in decode_channels(row[2])}, writes, row[4]
    )


def early_of(thread: Thread) -> dict[Place, dict[tuple[str, int], bytes]]:
    """Return the writes that wait for their checkpoint, read from their rows."""
    writes: dict[Place, dict[tuple[str, int], bytes]] = {}
    for key, row in thread.early.items():
        writes.setdefault(key[0], {})[key[1:]] = row[4]
    return writes


def merged(
    before: Mapping[tuple[str, int], bytes], writes: Iterable[StoredWrite]
) -> dict[tuple[str, int], bytes]:
    """Add writes: the first write wins at `idx` 0 and above, the last write below."""
    digests = dict(before)
    for write in writes:
        if write.idx < 0 or (write.task_id, write.idx) not in digests:
            digests[write.task_id, write.idx] = write.digest
    return digests


class Model:
    """Threads of a server as clients know them.

    Attributes:
        stories: Threads by name.
        doubtful: Threads with an unanswered call: only the journal knows its effect.
        done: Effects whose outcome "done" was acknowledged: thread, incarnation and key.
    """

    def __init__(self) -> None:
        self.stories: dict[str, Story] = {}
        self.doubtful: set[str] = set()
        self.done: set[tuple[str, int, str]] = set()

    def users(self) -> list[tuple[str, Place]]:
        """Return the checkpoints of all threads, in order."""
        return sorted(
            (name, place) for name, story in self.stories.items() for place in story.known
        )

    def save(self, sent: IncomingCheckpoint, saved: SaveOutcome) -> None:
        """Record a saved checkpoint."""
        story = self.stories.setdefault(saved.key.thread_id, Story(saved.incarnation))
        if story.incarnation != saved.incarnation:
            early = story.early
            story = self.stories[saved.key.thread_id] = Story(saved.incarnation, early=early)
        place = (saved.key.checkpoint_ns, saved.key.checkpoint_id)
        parent = story.known.get((place[0], sent.parent_id))
        channels: Channels = {}
        for name, channel in sent.channels.items():
            channels[name] = channel.digest
            if not channel.encoded and channel.digest is None and parent is not None:
                channels[name] = parent.channels.get(name)  # The channel is inherited.
        before = story.known[place].writes if place in story.known else story.early.pop(place, {})
        run_id = sent.metadata.run_id
        story.known[place] = Known(channels, merged(before, sent.writes), run_id)

    def save_writes(
        self, key: CheckpointKey, writes: Iterable[StoredWrite], saved: SaveOutcome
    ) -> None:
        """Record pending writes."""
        story = self.stories.setdefault(key.thread_id, Story(saved.incarnation))
        place = (key.checkpoint_ns, key.checkpoint_id)
        if place in story.known:
            known = story.known[place]
            story.known[place] = replace(known, writes=merged(known.writes, writes))
        else:
            story.early[place] = merged(story.early.get(place, {}), writes)

    def remove(self, thread_id: str, places: Iterable[Place]) -> None:
        """Forget checkpoints."""
        for place in places:
            del self.stories[thread_id].known[place]

    def delete(self, thread_id: str) -> int:
        """Forget a thread; return its number of checkpoints."""
        story = self.stories.get(thread_id)
        if story is None:
            return 0
        count = len(story.known)
        story.known, story.early = {}, {}
        return count

    def superseded(self, thread_id: str) -> set[Place]:
        """Return the checkpoints that are not the latest of their namespace."""
        known = self.stories[thread_id].known if thread_id in self.stories else {}
        latest: dict[str, str] = {}
        for ns, checkpoint_id in known:
            latest[ns] = max(checkpoint_id, latest.get(ns, ""))
        return set(known) - set(latest.items())

    def derive(self, thread: Thread, name: str, origin: Mapping[Place, Known]) -> str:
        """Record checkpoints created from others; return an error message, or an empty text.

        The journal decides which checkpoints were copied; each must equal its origin.
        """
        story = self.stories.get(name)
        if story is None or story.incarnation != thread.incarnation:
            story = self.stories[name] = Story(thread.incarnation)
        for place in thread.rows.keys() - story.known.keys():
            made = known_of(thread, place)
            origins = [origin[place]] if place in origin else list(origin.values())
            if not any(known.channels == made.channels for known in origins) and made.channels:
                return f"{name}: {place} has {made.channels}, and no origin has"
            if place in origin and origin[place].writes != made.writes:
                return f"{name}: {place} has {made.writes}, its origin {origin[place].writes}"
            story.known[place] = made
        story.early = early_of(thread)
        return ""

    def believe(self, thread: Thread, name: str) -> None:
        """Take a thread's content from the journal."""
        self.done = {effect for effect in self.done if effect[0] != name}
        known = {place: known_of(thread, place) for place in thread.rows}
        self.stories[name] = Story(thread.incarnation, known, early_of(thread))
