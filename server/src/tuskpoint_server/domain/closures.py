"""Closures: everything that is needed to go on from a checkpoint, with its content."""

from __future__ import annotations

from dataclasses import dataclass

from .formats.delta_base import DeltaChannel, DeltaSeed, DeltaWrite, encode_delta_base
from .model import Checkpoint, CheckpointKey, DeltaHistory, State, Value
from .state import encode_state


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

    @property
    def place(self) -> tuple[str, str]:
        """Namespace and ID of the checkpoint."""
        key = self.checkpoint.entry.key
        return (key.checkpoint_ns, key.checkpoint_id)

    @property
    def state(self) -> State:
        """Its state.

        Raises:
            ValueError: It came without one.
        """
        if self.checkpoint.state is None:
            raise ValueError(f"checkpoint {self.checkpoint.entry.key} came without its state")
        return self.checkpoint.state

    @property
    def stored_state(self) -> bytes:
        """Its state as it is stored."""
        return encode_state(self.state.frame, self.state.channels)

    @property
    def delta_base(self) -> bytes:
        """What its delta channels are rebuilt from, as it is stored; empty: nothing."""
        return encode_delta_base(
            _delta_channel(one) for one in self.histories if one.seed or one.writes
        )

    def values(self) -> dict[bytes, Value]:
        """Return the values of its state and of what its delta channels are rebuilt from.

        Raises:
            ValueError: A value is not there.
        """
        found: dict[bytes, Value] = {}
        seeds = (one.seed for one in self.histories if one.seed is not None)
        for channel in (*self.state.channels, *seeds):
            if channel.digest is not None:
                if channel.value is None:
                    raise ValueError(f"channel {channel.name} has a digest and no content")
                found[channel.digest] = channel.value
        for history in self.histories:
            found.update((write.digest, write.value) for write in history.writes)
        return found


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


def _delta_channel(history: DeltaHistory) -> DeltaChannel:
    seed = history.seed
    return DeltaChannel(
        history.channel,
        None
        if seed is None or seed.digest is None
        else DeltaSeed(seed.version, seed.digest, seed.size),
        tuple(
            DeltaWrite(
                *(write.task_path, write.task_id, write.idx, write.digest),
                *(write.value.type, len(write.value.data)),
            )
            for write in history.writes
        ),
    )
