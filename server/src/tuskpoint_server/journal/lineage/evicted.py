"""What a call does that needs evicted values: it names who holds them, and is made again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from sqlalchemy import Connection

from ...domain.formats.delta_base import decode_delta_base
from ...domain.model import CheckpointKey, Entry, Value, View
from ..checkpoints.delta_history import delta_history, follow
from ..checkpoints.load import load
from ..checkpoints.references import referred
from ..database.thread_rows import ThreadRow
from .sources import Source

Supplied = Mapping[bytes, Value]
"""Values by digest that were read from segments after `ValuesEvicted`."""


class ValuesEvicted(Exception):
    """Values that are needed were evicted; nothing is stored.

    Attributes:
        entries: Checkpoints whose segments hold them.
    """

    def __init__(self, entries: Sequence[Entry]) -> None:
        self.entries = tuple(entries)
        super().__init__(f"values of {len(self.entries)} checkpoints were evicted")


def holders(
    connection: Connection,
    thread: ThreadRow,
    source: Source,
    base: bytes | None,
    missing: set[bytes],
) -> list[Entry]:
    """Return the checkpoints whose segments hold evicted values that one needs.

    Args:
        connection: In a transaction.
        thread: The thread of the checkpoint.
        source: The checkpoint.
        base: What its delta channels are rebuilt from.
        missing: Digests of values that are neither here nor supplied.
    """
    key = CheckpointKey(thread.thread_id, *source.place)
    own = referred(source.state, None)
    own.update(write.digest for _, write in source.written)
    found: list[Entry] = []
    if own & missing:
        loaded = load(connection, thread.tenant, key, View.FULL)
        if loaded is not None:
            places = dict.fromkeys((*loaded.entry.envelopes, *loaded.sources))
            found.append(replace(loaded.entry, envelopes=tuple(places)))
    if missing - own and base is not None:
        names = [channel.name for channel in decode_delta_base(base, key.checkpoint_id)]
        paths = follow(connection, thread.number, source.place, names).values()
        named = {path.seed_of for path in paths if path.seed and path.seed.digest in missing}
        for path in paths:
            named.update(one.holder for one in path.newest_first if one.write.digest in missing)
        for history in delta_history(connection, thread.tenant, key, names):
            found += [one for one in history.sources if one.key.checkpoint_id in named]
    return found
