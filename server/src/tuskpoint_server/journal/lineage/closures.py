"""Closures: what is needed to go on from a checkpoint.

That is the checkpoint itself, and of each subgraph tied to it the checkpoint that it stands
at. Ancestors are not needed: what delta channels are rebuilt from goes along.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from sqlalchemy import Connection, func, select

from ...domain.formats.bundles import check_bytes
from ...domain.formats.segments import DeltaChannel, encode_delta_base
from ...domain.lineage import Closure, ClosureMember
from ...domain.model import CheckpointKey, View
from ...domain.state import decode_channels
from ..checkpoints.delta_history import delta_history, follow
from ..checkpoints.load import load
from ..database.logs import Place
from ..database.schema import checkpoints, writes
from ..database.statements import Statement, of_checkpoint, parameters_of
from .stored import NO_NAMES, live, named
from .subgraphs import tied

_NODE = Statement(
    select(checkpoints.c.state, checkpoints.c.delta_channels).where(of_checkpoint(checkpoints))
)
_WRITE_BYTES = Statement(
    select(func.coalesce(func.sum(writes.c.size), 0)).where(of_checkpoint(writes))
)


@dataclass(frozen=True, slots=True)
class Base:
    """What the delta channels that a checkpoint does not store are rebuilt from.

    Attributes:
        channels: Each that is rebuilt from something, by name.
        written: Digest to number of a row of `writes` that holds the value; the others are
            values of the family.
    """

    channels: tuple[DeltaChannel, ...]
    written: dict[bytes, int]

    @property
    def stored(self) -> bytes | None:
        """The stored form; `None` if there is nothing."""
        return encode_delta_base(self.channels) or None

    @property
    def size(self) -> int:
        """Bytes of the values, each time that one is applied."""
        seeds = sum(one.seed.size for one in self.channels if one.seed is not None)
        return seeds + sum(write.size for one in self.channels for write in one.writes)


def delta_base(
    connection: Connection, number: int, place: Place, state: bytes, delta_channels: bytes
) -> Base:
    """Return what the delta channels of a checkpoint are rebuilt from.

    Args:
        connection: In a transaction.
        number: Number of the thread.
        place: The checkpoint.
        state: Stored form of its state.
        delta_channels: Stored form of the names of its delta channels.
    """
    if delta_channels == NO_NAMES:
        return Base((), {})
    stored = {channel.name for channel in decode_channels(state) if channel.digest is not None}
    paths = follow(connection, number, place, sorted(set(json.loads(delta_channels)) - stored))
    channels = tuple(
        DeltaChannel(name, path.seed, tuple(one.write for one in path.writes))
        for name, path in paths.items()
        if path.seed is not None or path.newest_first
    )
    written = {
        one.write.digest: one.number
        for path in paths.values()
        for one in path.newest_first
        if one.number is not None
    }
    return Base(channels, written)


def places(connection: Connection, number: int, place: Place) -> list[Place]:
    """Return where the checkpoints of a closure stand, the one that it is of first."""
    return [place, *sorted(tied(connection, number, place))]


def closure(connection: Connection, tenant: str, key: CheckpointKey) -> Closure | None:
    """Return a closure with its content; see `Lineage.closure`.

    Raises:
        Refusal: `LIMIT_EXCEEDED` if it is larger than a bundle; no values were read then.
    """
    thread = live(connection, tenant, key.thread_id)
    place = named(connection, thread, key) if thread is not None else None
    if thread is None or place is None:
        return None
    found = CheckpointKey(key.thread_id, *place)
    bases: dict[Place, Base] = {}
    size = 0
    for one in places(connection, thread.number, place):
        of = parameters_of(thread.number, *one)
        state, delta_channels = _NODE.run(connection, **of).fetchone() or (b"", NO_NAMES)
        (written,) = _WRITE_BYTES.run(connection, **of).fetchone() or (0,)
        bases[one] = delta_base(connection, thread.number, one, state, delta_channels)
        values = {channel.digest: channel.size for channel in decode_channels(state)}
        size += sum(values.values()) + int(written) + bases[one].size
        check_bytes(found, size)
    members = (
        _member(connection, tenant, CheckpointKey(key.thread_id, *one), bases[one])
        for one in sorted(bases)
    )
    return Closure(found, tuple(members), thread.seq)


def _member(connection: Connection, tenant: str, key: CheckpointKey, base: Base) -> ClosureMember:
    found = load(connection, tenant, key, View.FULL)
    if found is None:
        raise LookupError(f"checkpoint {key} vanished inside a transaction")
    names = [channel.name for channel in base.channels]
    return ClosureMember(found, delta_history(connection, tenant, key, names) if names else ())
