"""Values of checkpoints that search reads: new content, up to a bound.

For a checkpoint, search reads its plan (which may turn out to be empty), the questions that its
tasks wait for, and the content that its parent's state did not have. Older content was indexed with
the parent or an earlier ancestor. LangGraph's internal channels are left out: they would use up the
room of meaningful text. From a long value, the latest part is read.
"""

from __future__ import annotations

import json
import logging
from bisect import bisect_right
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import NamedTuple

from sqlalchemy import Connection, and_, literal_column, select

from tuskpoint.v1 import checkpoint_pb2

from ..core.errors import Refusal
from ..core.items import keeps_items
from ..core.json_view.escapes import MAX_ENCODED
from ..core.json_view.excerpts import join_values, latest_part, new_part, shares
from ..core.limits import KIB
from ..core.model import EVICTED, CheckpointKey, DamagedValue, Value
from ..core.search import pointer_of
from ..core.threads import INTERRUPT
from ..journal.database.binding import binder_of
from ..journal.database.pending_writes import StoredWrite
from ..journal.database.thread_rows import ThreadRef
from ..journal.sql.schema import checkpoints, writes
from ..journal.sql.sealing import seal_of
from ..journal.sql.statements import LISTED, Statement
from ..journal.values.delta_history import PathWrite, ValueKey, delta_write, follow, read_values
from .searchable import ASKS, PLAN, head_of, is_internal

_log = logging.getLogger(__name__)

# most bytes of a checkpoint's values that are searched for text. `LIMITS.max_search_text` bytes of
# the text are indexed: parsing more costs more than it brings
MAX_VALUES_BYTES = 32 * KIB
MAX_VALUES = 256  # most values of a checkpoint that are read, for the same reason
# most bytes of a checkpoint's values that are read to find their latest part
MAX_READ_BYTES = MAX_ENCODED
# characters that are embedded of a body without a summary; a vector of more text means less
EMBEDDED_BODY = 1000


_INTERRUPTS = Statement(
    select(
        *(checkpoints.c.number, writes.c.number, writes.c.mac),
        *(writes.c[name] for name in StoredWrite._fields[:-1]),
    )
    .select_from(
        checkpoints.join(
            writes,
            and_(
                writes.c.thread == checkpoints.c.thread,
                writes.c.checkpoint_ns == checkpoints.c.checkpoint_ns,
                writes.c.checkpoint_id == checkpoints.c.checkpoint_id,
            ),
        )
    )
    .where(checkpoints.c.number.in_(LISTED), writes.c.channel == literal_column(f"'{INTERRUPT}'"))
)


class Document(NamedTuple):
    """Document to index for a checkpoint whose document is missing or outdated."""

    number: int  # number of the checkpoint's row
    thread: int
    tenant: str
    key: CheckpointKey
    seq: int  # change that last wrote the row, at the time of reading
    summary: str = ""
    label: str = ""
    # name and value of channels: the plan first, then interrupts, then changed channels. A long
    # value is cut to its latest part
    channels: tuple[tuple[str, Value], ...] = ()
    truncated: bool = False  # whether the state has more than `channels`, or than `body`
    words_cut: bool = False  # whether the plan or the interrupts have more than `channels`
    body: str = ""  # searchable text, once it is built
    planned: bool = False  # whether the state in the body is a plan in words, not JSON

    @property
    def pointer(self) -> bytes:
        """Pointer of the checkpoint; an item's pointer differs from every checkpoint's."""
        is_item = keeps_items(self.key.thread_id)
        namespace = self.key.thread_id if is_item else self.key.checkpoint_ns
        return pointer_of(self.tenant, namespace, self.key.checkpoint_id)

    @property
    def embedded(self) -> str:
        """Text of the document to embed."""
        return embedded_text(self.summary, self.body, planned=self.planned)


def embedded_text(summary: str, body: str, *, planned: bool) -> str:
    """Return the text of a document to embed: its words; JSON only if there are no others."""
    words = summary.strip()
    if planned:
        return f"{words}\n{body}".strip()
    head = head_of(body)
    if words or ASKS in head:
        return f"{words}\n{head[:EMBEDDED_BODY]}".strip()
    return body[:EMBEDDED_BODY].strip()


class ReadCheckpoint(NamedTuple):
    """Checkpoint as it was read: `due` has no channels yet, `before` is the parent's state."""

    due: Document
    family: int
    state: bytes
    delta_channels: bytes
    parent: int | None  # number of the parent's row
    before: bytes | None


_Digests = dict[str, tuple[bytes, int]]
"""Digest and size of the values of a state, by channel, without LangGraph's internal channels."""


class _Channel(NamedTuple):
    """A channel with new content; digests are empty for values that do not exist."""

    name: str
    size: int  # bytes to read
    # digest of the value; for a channel that is rebuilt from writes, of the value they start from
    digest: bytes
    before: bytes = b""  # digest of the parent's value, to compare with
    writes: Sequence[PathWrite] | None = (
        None  # writes that rebuild the channel, newest first, as far as they fit
    )
    whole: bool = True  # whether this is all of the channel's content


def with_values(connection: Connection, read: Sequence[ReadCheckpoint]) -> list[Document]:
    """Return checkpoints with the values that search reads, in the given order.

    In a sealed journal no values are read: the index would show them in plain text.
    """
    if seal_of(connection) is not None:
        return [checkpoint.due._replace(truncated=True) for checkpoint in read]
    interrupts = _interrupts(
        connection, {checkpoint.due.number: checkpoint.due for checkpoint in read}
    )
    # A parent's state is usually the state of an earlier checkpoint in the list.
    states = {checkpoint.state for checkpoint in read} | {
        checkpoint.before for checkpoint in read if checkpoint.before is not None
    }
    digests = {state: _stored_digests(state) for state in states}
    entries = [
        (
            checkpoint,
            *_channels(connection, checkpoint, digests, interrupts.get(checkpoint.due.number, ())),
        )
        for checkpoint in read
    ]
    keys: dict[int, set[int | bytes]] = {}
    for checkpoint, channels, _ in entries:
        of_family = keys.setdefault(checkpoint.family, set())
        for channel in channels:
            of_family |= {channel.digest, channel.before, *(w.key for w in channel.writes or ())}
    values = {
        family: _values(connection, family, family_keys - {b""})
        for family, family_keys in keys.items()
    }
    return [
        _due_document(checkpoint.due, channels, values[checkpoint.family], left_out=left_out)
        for checkpoint, channels, left_out in entries
    ]


def _channels(
    connection: Connection,
    checkpoint: ReadCheckpoint,
    digests: Mapping[bytes, _Digests],
    interrupts: Sequence[PathWrite],
) -> tuple[list[_Channel], bool]:
    """Return the channels of a checkpoint to read, and whether there are more.

    `digests` maps the bytes of states to the digests of their channels; `interrupts` are the
    checkpoint's, last first.
    """
    parent_channels = digests[checkpoint.before] if checkpoint.before is not None else {}
    stored = digests[checkpoint.state]
    channels = []
    for name, (digest, size) in stored.items():
        before, before_size = parent_channels.get(name, (b"", 0))
        if name == PLAN or digest != before:
            readable = before if before_size <= MAX_READ_BYTES else b""
            channels.append(_Channel(name, size, digest, readable))
    if checkpoint.delta_channels != b"[]":
        names = [name for name in json.loads(checkpoint.delta_channels) if name not in stored]
        channels += _rebuilt_channels(connection, checkpoint, names)
    if interrupts:
        ends = list(accumulate(write.write.size for write in interrupts))
        # A single long value is read too: its latest part is used.
        count = max(bisect_right(ends, MAX_VALUES_BYTES), int(ends[0] <= MAX_READ_BYTES))
        size, whole = sum(ends[count - 1 : count]), count == len(interrupts)
        channels.append(_Channel(INTERRUPT, size, b"", writes=interrupts[:count], whole=whole))
    channels.sort(
        key=lambda channel: (channel.name != PLAN, channel.name != INTERRUPT, channel.name)
    )
    fitting_channels, room = list[_Channel](), MAX_READ_BYTES
    for channel in channels:
        if len(fitting_channels) < MAX_VALUES and channel.size <= room:
            fitting_channels.append(channel)
            room -= channel.size
    return fitting_channels, len(fitting_channels) < len(channels)


def _interrupts(
    connection: Connection, documents: Mapping[int, Document]
) -> dict[int, list[PathWrite]]:
    """Return the interrupts of checkpoints, by number of the checkpoint, last task first."""
    binder, by_checkpoint = binder_of(connection), dict[int, list[PathWrite]]()
    for checkpoint, number, mac, *columns in _INTERRUPTS.run_listed(connection, documents):
        key, write = documents[checkpoint].key, StoredWrite._make([*columns, None])
        place = (key.checkpoint_ns, key.checkpoint_id)
        try:
            write.check(binder, key.thread_id, documents[checkpoint].thread, place, mac)
        except Refusal as refusal:
            _log.error("an interrupt is not indexed: %s", refusal)
            continue
        path_write = PathWrite(key.checkpoint_id, delta_write(write), number)
        by_checkpoint.setdefault(checkpoint, []).append(path_write)
    for interrupts in by_checkpoint.values():
        interrupts.sort(key=lambda interrupt: interrupt.write[:3], reverse=True)
    return by_checkpoint


def _stored_digests(state: bytes) -> _Digests:
    return {
        channel.name: (channel.digest, channel.size_bytes)
        for channel in checkpoint_pb2.CheckpointState.FromString(state).channels
        if channel.digest and not is_internal(channel.name)
    }


def _rebuilt_channels(
    connection: Connection, checkpoint: ReadCheckpoint, names: Sequence[str]
) -> Iterator[_Channel]:
    """Yield delta channels that are not stored: writes at the parent are their new content."""
    place = (checkpoint.due.key.checkpoint_ns, checkpoint.due.key.checkpoint_id)
    thread = ThreadRef(checkpoint.due.tenant, checkpoint.due.key.thread_id, checkpoint.due.thread)
    try:
        paths = follow(connection, thread, place, names, most=1)
    except Refusal as refusal:
        _log.error("delta channels of checkpoint '%s' are not indexed: %s", place[1], refusal)
        return
    for name, path in paths.items():
        seed = path.seed if checkpoint.before is None else None
        if seed is None and not path.newest_first:
            continue
        ends = list(accumulate(write.write.size for write in path.newest_first))
        writes = path.newest_first[: bisect_right(ends, MAX_VALUES_BYTES)]
        size = sum(ends[-1:]) + (seed.size if seed is not None else 0)
        digest = seed.digest if seed is not None and 0 <= seed.size <= MAX_READ_BYTES else b""
        whole = len(writes) == len(path.newest_first) and bool(digest or seed is None)
        yield _Channel(name, min(size, MAX_VALUES_BYTES), digest, writes=writes, whole=whole)


def _values(
    connection: Connection, family: int, keys: Collection[ValueKey]
) -> Mapping[ValueKey, Value]:
    """Return values; leave out damaged values."""
    values: dict[ValueKey, Value] = {}
    for key, value in read_values(connection, family, keys).items():
        if isinstance(value, DamagedValue):
            digest, problem = value.damage.digest.hex(), value.damage.problem
            _log.error("value %s is damaged in the journal and not indexed: %s", digest, problem)
        else:
            values[key] = value
    return values


def _due_document(
    document: Document,
    channels: Sequence[_Channel],
    values: Mapping[ValueKey, Value],
    *,
    left_out: bool,
) -> Document:
    news = [(channel.name, *_new_content(channel, values)) for channel in channels]
    lacking = {name for name, _, whole in news if not whole}
    new_values = [(name, value) for name, value, _ in news if value is not None]
    sizes = [len(value.data) for _, value in new_values]
    parts = [
        (name, value, latest_part(value, share))
        for (name, value), share in zip(new_values, shares(sizes, MAX_VALUES_BYTES), strict=True)
    ]
    lacking |= {name for name, value, part in parts if part is not value}
    return document._replace(
        channels=tuple((name, part) for name, _, part in parts if part is not None),
        truncated=left_out or bool(lacking),
        words_cut=not lacking.isdisjoint((PLAN, INTERRUPT)),
    )


def _new_content(channel: _Channel, values: Mapping[ValueKey, Value]) -> tuple[Value | None, bool]:
    """Return the new content of a channel, if the journal has it, and whether it is complete."""
    value = values.get(channel.digest, EVICTED)
    if channel.writes is not None:
        latest = [values.get(write.key, EVICTED) for write in channel.writes]
        parts = [part for part in latest if part is not EVICTED]
        whole = channel.whole and len(parts) == len(latest)
        if whole and channel.digest:
            room = MAX_VALUES_BYTES - sum(write.write.size for write in channel.writes)
            seed = latest_part(value, room) if value is not EVICTED else None
            whole = seed is value
            parts += [seed] if seed is not None else []
        joint, all_joined = join_values(parts[::-1])
        return joint, whole and all_joined
    if value is EVICTED:
        return None, False
    before = values.get(channel.before, EVICTED)
    if before is EVICTED or channel.name == PLAN:
        return value, True
    return new_part(value, before), True
