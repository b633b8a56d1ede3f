"""Saves that continue from the latest checkpoint: decides parent, versions and ID.

A client chooses them from its memory of a thread. If another client saved first, the writer chooses
them again, from the latest checkpoint.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import replace

from tuskpoint.v1 import checkpoint_pb2

from ...core.errors import invalid_field
from ...core.lineage import entropy_of, mint_checkpoint_id
from ...core.model import CheckpointKey, Version
from ...core.state import ChannelRef, channel_ref
from ...journal.database.thread_rows import ThreadCacheEntry
from ...journal.database.unit_of_work import UnitOfWork
from .incoming import IncomingCheckpoint

_LEADING_NUMBER = re.compile(r"[0-9]+")
_DIGITS = 32  # digits of the number at the start of a version in text, as LangGraph writes it


def continue_latest(
    batch: UnitOfWork, log: ThreadCacheEntry, sent: IncomingCheckpoint
) -> IncomingCheckpoint:
    """Return a save as the successor of the latest checkpoint of its namespace.

    A stored checkpoint keeps its ID and its parent: a retry changes nothing.
    """
    checkpoint_ns = sent.key.checkpoint_ns
    latest = batch.greatest(log, checkpoint_ns)
    checkpoint_id = sent.key.checkpoint_id
    checkpoint = batch.checkpoint(log, (checkpoint_ns, checkpoint_id)) if checkpoint_id else None
    if checkpoint is None and sent.raises_id:
        floor_id = max(latest, log.row.deleted_through)
        raised_id = ""
        if checkpoint_id <= latest:
            raised_id = batch.raised_from(log, checkpoint_ns, checkpoint_id)
            checkpoint = batch.checkpoint(log, (checkpoint_ns, raised_id)) if raised_id else None
        if not raised_id and checkpoint_id <= floor_id:
            raised_id = mint_checkpoint_id(batch.now_us, entropy_of(checkpoint_id), floor_id)
        checkpoint_id = raised_id or checkpoint_id
    parent_id = checkpoint.parent_id if checkpoint is not None else latest
    if checkpoint_id != sent.key.checkpoint_id:
        key = CheckpointKey(sent.key.thread_id, checkpoint_ns, checkpoint_id)
        sent = replace(sent, key=key)
    return sent if parent_id == sent.parent_id else _follow(batch, log, sent, parent_id)


def _follow(
    batch: UnitOfWork, log: ThreadCacheEntry, sent: IncomingCheckpoint, parent_id: str
) -> IncomingCheckpoint:
    """Return a save with another parent, and with versions that follow the parent's."""
    parent = batch.checkpoint(log, (sent.key.checkpoint_ns, parent_id)) if parent_id else None
    parent_channels = parent.channels if parent is not None else {}
    next_version = _next_version(channel.version for channel in parent_channels.values())
    channels: dict[str, ChannelRef] = {}
    for name, channel in sent.channels.items():
        parent_channel = parent_channels.get(name)
        inherits = not channel.encoded and channel.digest is None
        if parent_channel is not None and (inherits or parent_channel.digest == channel.digest):
            version = parent_channel.version
        elif next_version is None or channel.version is None:  # the first checkpoint has no parent
            version = channel.version
        else:
            version = next_version
        if channel.encoded:
            channels[name] = channel_ref(name, version, channel.digest, channel.size)
        else:
            channels[name] = ChannelRef(version, channel.digest)
    names = [
        name
        for name, channel in channels.items()
        if name not in parent_channels or parent_channels[name].version != channel.version
    ]
    frame = _with_updated(sent.frame, names)
    return replace(sent, parent_id=parent_id, channels=channels, frame=frame)


def _with_updated(frame: bytes, names: Collection[str]) -> bytes:
    """Return a frame with other updated channels, if the frame names updated channels."""
    message = checkpoint_pb2.CheckpointState.FromString(frame)
    if not message.HasField("updated_channels"):
        return frame
    message.updated_channels.names[:] = names
    return message.SerializeToString(deterministic=True)


def _next_version(versions: Iterable[Version | None]) -> Version | None:
    """Return a version above all of a checkpoint, of the same kind; `None` without versions.

    Raises:
        Refusal: `INVALID_FIELD`: the versions have several kinds, or texts without a leading
        number.
    """
    known_versions = [version for version in versions if version is not None]
    if not known_versions:
        return None
    numbers = [version for version in known_versions if not isinstance(version, str)]
    if not numbers:
        number = _LEADING_NUMBER.match(max(str(version) for version in known_versions))
        if number is not None:
            return f"{int(number[0]) + 1:0{_DIGITS}}.{0:016}"
    elif all(type(version) is type(numbers[0]) for version in known_versions):
        return type(numbers[0])(int(max(numbers)) + 1)
    raise invalid_field(
        "checkpoint.parent_checkpoint_id",
        "the channel versions of the latest checkpoint cannot be incremented; continue the thread "
        "with the framework that began it",
    )
