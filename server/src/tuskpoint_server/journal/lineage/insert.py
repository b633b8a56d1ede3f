"""The one path by which a checkpoint that is made of another comes into a thread.

Forks, copies, adoptions, rollbacks and restored snapshots all end here. What each of them
inserts is whole: its values are in the thread's family, or it is a copy and `held` names the
segments that hold it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from sqlalchemy import Connection, select

from ...domain.compression import compress
from ...domain.errors import Reason, Refusal
from ...domain.lineage import EventKind
from ...domain.model import EVICTED, Lineage, Value, Write
from ...domain.snapshots import is_reserved
from ..archiving.held import encode_held
from ..checkpoints.references import referred
from ..checkpoints.rows import checkpoint_row
from ..checkpoints.thread_state import judge
from ..database.overlay import Batch, Known, KnownWrite, Log, Place
from ..database.schema import checkpoints
from ..database.statements import Statement, of_thread
from ..removal.delete import delete_thread, end_incarnation

NO_LINEAGE = Lineage()

_ANY = Statement(select(checkpoints.c.checkpoint_id).where(of_thread(checkpoints)).limit(1))


class StoredValue(NamedTuple):
    """A value as it is stored, by itself; never a patch."""

    digest: bytes
    type: str
    size: int
    encoding: int
    data: bytes


class StoredWrite(NamedTuple):
    """A pending write as it is stored; without data if it was evicted."""

    task_id: str
    idx: int
    task_path: str
    channel: str
    type: str
    digest: bytes
    size: int
    encoding: int
    data: bytes | None


@dataclass(slots=True)
class NewCheckpoint:
    """A checkpoint to be inserted.

    Attributes:
        place: Its namespace and ID.
        parent_id: Its parent, or empty.
        state: Stored form of its state.
        metadata: The metadata's exact bytes.
        run_id: Its run, or empty.
        root_id: Of a subgraph: the root checkpoint it ran under.
        delta_channels: Stored form of the names of its delta channels.
        delta_base: What these are rebuilt from that no ancestor holds; `None`: nothing.
        label: Name, or empty.
        summary: One sentence, or empty.
        lineage: Lineage beyond the parent.
        created_us: Time of the first save.
        held: Of a copy: hashes of the segments that hold it, that of its state first; empty:
            it has to be stored. The thread must be recorded as a user of these.
        writes: Its pending writes; without data only if segments hold it.
        values: Values that come along.
    """

    place: Place
    parent_id: str
    state: bytes
    metadata: bytes
    run_id: str
    root_id: str
    delta_channels: bytes
    created_us: int
    delta_base: bytes | None = None
    label: str = ""
    summary: str = ""
    lineage: Lineage = NO_LINEAGE
    held: tuple[bytes, ...] = ()
    writes: Sequence[StoredWrite] = ()
    values: Sequence[StoredValue] = ()

    @property
    def new_bytes(self) -> int:
        """Bytes of content that have to be stored."""
        if self.held:
            return 0
        values = sum(len(value.data) for value in self.values)
        written = sum(len(write.data or b"") for write in self.writes)
        return len(self.state) + len(self.metadata) + values + written


def stored_value(digest: bytes, value: Value) -> StoredValue:
    """Return a value as it is stored."""
    packed = compress(value.data)
    return StoredValue(digest, value.type, len(value.data), int(packed.encoding), packed.data)


def stored_write(write: Write) -> StoredWrite:
    """Return a pending write as it is stored."""
    packed = compress(write.value.data)
    return StoredWrite(
        write.task_id,
        write.idx,
        write.task_path,
        write.channel,
        write.value.type,
        write.digest,
        len(write.value.data),
        int(packed.encoding),
        packed.data,
    )


def begin(batch: Batch, tenant: str, target: str, family: int | None) -> Log:
    """Return a thread that begins now.

    Args:
        batch: In a write transaction, everything written out.
        tenant: The tenant.
        target: The thread.
        family: The family whose values it shares; `None` founds one.

    Raises:
        Refusal: `THREAD_EXISTS` if it has checkpoints.
    """
    log = batch.find(tenant, target)
    if log is None:
        return batch.begin(tenant, target, family)
    if is_taken(batch.connection, log.row.number):
        raise Refusal(Reason.THREAD_EXISTS, thread_id=target)
    if log.row.deleted:
        delete_thread(batch, tenant, target)  # the writes that came for the next incarnation
        log = batch.find(tenant, target) or log
    else:
        end_incarnation(batch, log)
    log.row.begin_next(batch.new_family() if family is None else family, batch.now_us)
    return log


def is_taken(connection: Connection, number: int) -> bool:
    """Return whether a thread has checkpoints."""
    return _ANY.run(connection, of_thread=number).fetchone() is not None


def insert_checkpoint(batch: Batch, log: Log, new: NewCheckpoint) -> int:
    """Insert a checkpoint, which must not be there; return its number in the log."""
    row, place = log.row, new.place
    searched = not is_reserved(row.thread_id)
    seq = batch.change(
        log, EventKind.CHECKPOINT_SAVED, place, size_bytes=new.new_bytes, indexed=searched
    )
    known = Known(
        seq=seq,
        parent_id=new.parent_id,
        state=new.state,
        metadata=new.metadata,
        run_id=new.run_id,
        root_id=new.root_id,
        delta_channels=new.delta_channels,
        label=new.label,
        summary=new.summary,
        created_us=new.created_us,
        pending=None,
    )
    batch.put_checkpoint(
        log,
        place,
        checkpoint_row(
            log,
            place,
            known,
            lineage=new.lineage,
            delta_base=new.delta_base or None,
            held=encode_held(seq, new.held) if new.held else None,
        ),
    )
    _put_values(batch, log, new, seq)
    for write in new.writes:
        put_write(batch, log, place, write, seq, None)
    row.checkpoint_count += 1
    if place[0] == "" and place[1] >= row.head_id:
        row.head_id = place[1]
        row.state = judge({(one.task_id, one.idx): _known(one, seq) for one in new.writes})
    return seq


def put_write(
    batch: Batch, log: Log, place: Place, one: StoredWrite, seq: int, early_us: int | None
) -> None:
    """Insert a pending write as it is stored elsewhere."""
    write = Write(one.task_id, one.task_path, one.idx, one.channel, EVICTED, one.digest)
    row = (
        log.row.number,
        *place,
        one.task_id,
        one.idx,
        one.task_path,
        one.channel,
        one.type,
        one.digest,
        one.size,
        one.encoding,
        one.data,
        seq,
        early_us,
    )
    batch.put_write(log, place, write, row)


def _put_values(batch: Batch, log: Log, new: NewCheckpoint, seq: int) -> None:
    """Store the values that came along, and note all that the checkpoint refers to."""
    family = log.row.family
    for one in new.values:
        row = (family, *one, None, 0, 0, log.row.number, seq, None)
        batch.put_content(family, one.digest, row)
    batch.noted.setdefault(family, set()).update(referred(new.state, new.delta_base))


def _known(one: StoredWrite, seq: int) -> KnownWrite:
    return KnownWrite(one.task_path, one.channel, one.type, one.digest, one.size, seq)
