"""Content of the saves in crash tests, and fingerprints that show whether it was recovered
unchanged.

A fingerprint covers everything that a caller saved and nothing that the server adds, so a sent and
a loaded checkpoint have the same fingerprint.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterable
from dataclasses import dataclass, field

from langgraph.checkpoint.base.id import uuid6

from tuskpoint.v1.checkpoint_pb2 import (
    Checkpoint,
    CheckpointRef,
    CheckpointState,
    VersionsSeen,
)
from tuskpoint.v1.value_pb2 import Channel, Inherit, PendingWrite, Value, Version

CHANNELS = ("messages", "findings", "documents", "plan", "question", "branch:to:writer")
LABEL = "label"  # used in the place of a write's slot; its fingerprint is the label itself
SPECIAL = {"__error__": -1, "__scheduled__": -2, "__interrupt__": -3, "__resume__": -4}


def checkpoint_fingerprint(checkpoint: Checkpoint) -> str:
    """Return the hash of the saved part of a checkpoint whose values are all inline."""
    state = CheckpointState()
    state.CopyFrom(checkpoint.state)
    for channel in state.channels:
        channel.ClearField("digest")
        channel.ClearField("size_bytes")
    saved = Checkpoint(
        ref=checkpoint.ref,
        parent_checkpoint_id=checkpoint.parent_checkpoint_id,
        state=state,
        metadata_json=checkpoint.metadata_json,
    )
    return hashlib.sha256(saved.SerializeToString(deterministic=True)).hexdigest()


def content_fingerprint(checkpoint: Checkpoint) -> str:
    """Return the hash of the channels of a checkpoint whose values are all inline."""
    state = CheckpointState()
    for channel in checkpoint.state.channels:
        copied = state.channels.add()
        copied.CopyFrom(channel)
        copied.ClearField("digest")
        copied.ClearField("size_bytes")
    return hashlib.sha256(state.SerializeToString(deterministic=True)).hexdigest()


def write_fingerprint(write: PendingWrite) -> str:
    """Return the hash of the saved part of a pending write."""
    saved = PendingWrite(
        task_id=write.task_id,
        task_path=write.task_path,
        idx=write.idx,
        channel=write.channel,
        value=write.value,
    )
    return hashlib.sha256(saved.SerializeToString(deterministic=True)).hexdigest()


def slot(write: PendingWrite) -> str:
    """Return the name of the slot that a write goes to."""
    return f"{write.task_id}/{write.idx}"


@dataclass(slots=True)
class Line:
    """A namespace of a thread, with the content of its next checkpoint.

    Attributes:
        thread_id: The thread.
        checkpoint_ns: The namespace.
        source: Draws the random content.
        integers: Whether the channel versions are integers, else text.
        parent: The latest acknowledged checkpoint; empty before the first.
        contents: Channels of the parent, with their values.
    """

    thread_id: str
    checkpoint_ns: str
    source: random.Random
    integers: bool = False
    parent: str = ""
    contents: dict[str, Channel] = field(default_factory=dict)
    steps: int = 0

    def next_id(self) -> str:
        """Return the ID of the next checkpoint."""
        self.steps += 1
        return str(uuid6(clock_seq=self.steps))

    def checkpoint(self, checkpoint_id: str, sizes: dict[str, int] | None = None) -> Checkpoint:
        """Return a checkpoint that follows the parent, with every value inline.

        Args:
            checkpoint_id: The checkpoint's ID.
            sizes: Bytes of the new values of changed channels; two small values by default.
        """
        changes = sizes or dict.fromkeys(self.source.sample(CHANNELS, 2), 700)
        if not self.contents:
            changes = dict.fromkeys(CHANNELS, 700) | changes
        contents = dict(self.contents)
        for name, size in changes.items():
            value = Value(type="msgpack", data=self.source.randbytes(size))
            contents[name] = Channel(name=name, version=self._version(), value=value)
        seen = {name: channel.version for name, channel in contents.items()}
        state = CheckpointState(
            schema_version=4,
            ts=f"2025-01-01T00:00:00.{self.steps:06}+00:00",
            channels=[contents[name] for name in CHANNELS],
            versions_seen={"writer": VersionsSeen(channels=seen)},
            delta_channels=[],
        )
        if self.source.random() < 0.8:
            state.updated_channels.names.extend(sorted(changes))
        return Checkpoint(
            ref=CheckpointRef(
                thread_id=self.thread_id,
                checkpoint_ns=self.checkpoint_ns,
                checkpoint_id=checkpoint_id,
            ),
            parent_checkpoint_id=self.parent,
            state=state,
            metadata_json=b'{"source": "loop",  "step": %d, "parents": {}}' % self.steps,
        )

    def _version(self) -> Version:
        if self.integers:
            return Version(integer=self.steps)
        return Version(text=f"{self.steps:032}.{self.source.random():016}")

    def as_sent(self, checkpoint: Checkpoint) -> Checkpoint:
        """Return the checkpoint without its unchanged channels, which it inherits."""
        sent = Checkpoint()
        sent.CopyFrom(checkpoint)
        for channel in sent.state.channels:
            if channel == self.contents.get(channel.name):
                channel.inherit.CopyFrom(Inherit())
        return sent

    def acknowledged(self, checkpoint: Checkpoint) -> None:
        """Continue from a checkpoint."""
        self.parent = checkpoint.ref.checkpoint_id
        self.contents = {channel.name: channel for channel in checkpoint.state.channels}


def task_writes(
    source: random.Random, task_id: str, count: int, special: Iterable[str] = ()
) -> list[PendingWrite]:
    """Return writes of one task to ordinary slots 0, 1, ... and to special channels."""
    named = [(index, f"channel-{index}") for index in range(count)]
    named += [(SPECIAL[channel], channel) for channel in special]
    return [
        PendingWrite(
            task_id=task_id,
            task_path="~__pregel_pull, writer",
            idx=idx,
            channel=channel,
            value=Value(type="msgpack", data=source.randbytes(source.randint(0, 900))),
        )
        for idx, channel in named
    ]
