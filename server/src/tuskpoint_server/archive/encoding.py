"""From dirty checkpoints to the exact bytes of their envelopes.

Pure and synchronous; runs in a worker thread.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from ..domain.digests import blob_digest
from ..domain.envelope import Envelope, encode_envelope
from ..domain.limits import LIMITS
from ..domain.model import State, Write
from ..journal.archive_dirty import DirtyCheckpoint, Unbuildable

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class EncodedCheckpoint:
    """A dirty checkpoint and the bytes of the envelopes that it lacks, oldest first."""

    checkpoint: DirtyCheckpoint
    envelopes: tuple[bytes, ...]

    @property
    def largest(self) -> int:
        """Bytes of its largest envelope."""
        return max(map(len, self.envelopes), default=0)


def encode(checkpoint: DirtyCheckpoint) -> EncodedCheckpoint:
    """Build the envelopes that a checkpoint lacks.

    An envelope holds as many writes as fit beside the largest state; what is left of
    them goes into addenda.
    """
    groups = list(_bounded(checkpoint.writes))
    envelopes: list[bytes] = []
    if checkpoint.stored:
        full_sha256 = checkpoint.stored[0].sha256
    else:
        full = encode_envelope(_envelope(checkpoint, groups.pop(0) if groups else ()))
        full_sha256 = blob_digest(full)
        envelopes.append(full)
    for group in groups:
        addendum = replace(
            _envelope(checkpoint, group),
            state=State(checkpoint.state.frame, ()),
            full_sha256=full_sha256,
        )
        envelopes.append(encode_envelope(addendum))
    return EncodedCheckpoint(checkpoint, tuple(envelopes))


@dataclass(frozen=True, slots=True)
class Encoded:
    """Checkpoints with their envelopes, and those of which none can be made."""

    checkpoints: list[EncodedCheckpoint]
    unbuildable: tuple[Unbuildable, ...]


def encode_all(checkpoints: Sequence[DirtyCheckpoint]) -> Encoded:
    """Build the envelopes of many checkpoints."""
    encoded: list[EncodedCheckpoint] = []
    unbuildable: list[Unbuildable] = []
    for checkpoint in checkpoints:
        try:
            encoded.append(encode(checkpoint))
        except (TypeError, ValueError) as error:
            _log.exception("no envelope can be made of %s", checkpoint.key)
            unbuildable.append(Unbuildable(checkpoint.key, checkpoint.revision, str(error)))
    return Encoded(encoded, tuple(unbuildable))


def _bounded(writes: Sequence[Write]) -> Iterator[tuple[Write, ...]]:
    """Cut writes into groups that fit an envelope beside the largest state."""
    group: list[Write] = []
    size = 0
    for write in writes:
        size += len(write.value.data)
        if group and size > LIMITS.max_checkpoint:
            yield tuple(group)
            group, size = [], len(write.value.data)
        group.append(write)
    if group:
        yield tuple(group)


def _envelope(checkpoint: DirtyCheckpoint, writes: tuple[Write, ...]) -> Envelope:
    return Envelope(
        key=checkpoint.key,
        parent_id=checkpoint.parent_id,
        revision=checkpoint.revision,
        created_us=checkpoint.created_us,
        metadata=checkpoint.metadata,
        state=checkpoint.state,
        writes=writes,
        label=checkpoint.label,
        summary=checkpoint.summary,
        lineage=checkpoint.lineage,
    )
