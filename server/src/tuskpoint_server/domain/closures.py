"""Closures: everything that is needed to go on from a checkpoint, with its content."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from .formats.delta_base import DeltaChannel, DeltaSeed, DeltaWrite
from .model import Checkpoint, CheckpointKey, DeltaHistory


@dataclass(frozen=True, slots=True)
class ClosureMember:
    """A checkpoint that is needed to go on from another, or that other itself.

    Attributes:
        checkpoint: The checkpoint, with its state and its pending writes.
        histories: What its delta channels are rebuilt from: of each channel that the
            checkpoint does not store itself, the seed and the writes since.
    """

    checkpoint: Checkpoint
    histories: tuple[DeltaHistory, ...] = ()


@dataclass(frozen=True, slots=True)
class Closure:
    """Everything needed to go on from a checkpoint.

    Attributes:
        key: The checkpoint.
        members: It, and what subgraphs tied to it stand at; by namespace and ID.
        seq: Last change of the thread when the closure was read; 0 if it came from elsewhere.
    """

    key: CheckpointKey
    members: tuple[ClosureMember, ...]
    seq: int = 0


def delta_base_of(histories: Iterable[DeltaHistory]) -> tuple[DeltaChannel, ...]:
    """Return what a checkpoint's delta channels are rebuilt from, for a `delta_base`.

    Args:
        histories: Of its delta channels, with all values; those that hold nothing are left
            out.
    """
    return tuple(_delta_channel(one) for one in histories if one.seed or one.writes)


def _delta_channel(history: DeltaHistory) -> DeltaChannel:
    seed = history.seed
    return DeltaChannel(
        history.channel,
        None
        if seed is None or seed.digest is None
        else DeltaSeed(seed.version, seed.digest, seed.size),
        tuple(
            DeltaWrite(
                write.task_path,
                write.task_id,
                write.idx,
                write.digest,
                write.value.type,
                len(write.value.data),
            )
            for write in history.writes
        ),
    )
