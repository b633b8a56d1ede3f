"""Rolling back: appending a checkpoint that has the state of an earlier one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import Connection

from ...domain import rollback
from ...domain.checkpoint_ids import mint_next_checkpoint_id
from ...domain.errors import checkpoint_not_found
from ...domain.model import EVICTED, CheckpointKey, Lineage, Metadata, Saved
from ...domain.state import decode_channels, decode_state, encode_state
from ..checkpoints import contents
from ..checkpoints.references import referred
from ..checkpoints.save import check_head
from ..database.overlay import Batch, Log, Place
from ..database.thread_rows import ThreadRow
from . import closures, sources
from .delta_bases import NO_NAMES
from .evicted import Supplied, ValuesEvicted, places_of
from .insert import NewCheckpoint, StoredValue, insert_checkpoint, stored_value
from .sources import Source


@dataclass(frozen=True, slots=True)
class Follower:
    """A subgraph that goes back with its root.

    Attributes:
        namespace: Its namespace.
        earlier: What it goes back to; `None`: to before its first run.
    """

    namespace: str
    earlier: Source | None


def rollback_to(
    batch: Batch,
    tenant: str,
    key: CheckpointKey,
    expected_head: str | None,
    supplied: Supplied,
    entropy: int,
) -> Saved:
    """Append the state of an earlier checkpoint to its thread; see `Lineage.rollback`.

    Args:
        batch: In a change of its own.
        tenant: The tenant.
        key: The earlier checkpoint.
        expected_head: Required latest ID of the namespace; `None` does not ask.
        supplied: Evicted values that have been read.
        entropy: 62 random bits.
    """
    connection = batch.connection
    log = batch.find(tenant, key.thread_id)
    place = (key.checkpoint_ns, key.checkpoint_id)
    found = (
        sources.read(connection, sources.numbers_of(connection, log.row.number, [place]))
        if log is not None and not log.row.deleted
        else []
    )
    if log is None or not found:
        raise checkpoint_not_found(key.thread_id, key.checkpoint_ns, key.checkpoint_id)
    if expected_head is not None:
        check_head(batch, log, key.checkpoint_ns, expected_head)
    [target] = found
    followers = [] if key.checkpoint_ns else _followers(connection, log.row.number, target)
    return roll_back(batch, log, log.row, target, followers, supplied, entropy)


def roll_back(
    batch: Batch,
    log: Log,
    at: ThreadRow,
    target: Source,
    followers: Sequence[Follower],
    supplied: Supplied,
    entropy: int,
) -> Saved:
    """Append to a thread a checkpoint with the state of an earlier one of it.

    A root checkpoint takes along the subgraphs that keep a state of their own: each gets a
    checkpoint with the state in which the runs before the target left it. Those come
    first, so that "the latest before the root's" finds them. All of them become the latest
    of their namespaces, whose values are always here: evicted ones come back.

    Args:
        batch: In a change of its own.
        log: The thread.
        at: The thread that the earlier checkpoints are stored in: the same, or one that
            holds them as they were captured.
        target: The earlier checkpoint.
        followers: The subgraphs that go back with it.
        supplied: Evicted values that have been read.
        entropy: 62 random bits.

    Raises:
        Refusal: `INVALID_FIELD` if no ID can be minted.
        ValuesEvicted: It needs values that are not here.
    """
    earlier = [target, *(one.earlier for one in followers if one.earlier is not None)]
    values = _values(batch.connection, log.row.family, at, earlier, supplied)
    minted = _Minter(batch, log, entropy)
    ids = [minted.above(one.namespace) for one in followers]
    new = CheckpointKey(log.row.thread_id, target.checkpoint_ns, minted.above(target.checkpoint_ns))
    size = 0
    for one, checkpoint_id in zip(followers, ids, strict=True):
        place = (one.namespace, checkpoint_id)
        size += _append_follower(batch, log, place, one, new.checkpoint_id, values)
    metadata = rollback.metadata_of(target.metadata, target.checkpoint_ns, "")
    size += _append(batch, log, (new.checkpoint_ns, new.checkpoint_id), target, metadata, values)
    log.forget_checkpoints()
    return Saved(new, log.row.seq, log.row.incarnation, size)


class _Minter:
    """Mints IDs above the greatest of their namespaces, each above the one before."""

    def __init__(self, batch: Batch, log: Log, entropy: int) -> None:
        self._batch = batch
        self._log = log
        self._entropy = entropy
        self._last = ""

    def above(self, namespace: str) -> str:
        greatest = self._batch.greatest(self._log, namespace)
        self._last = mint_next_checkpoint_id(
            self._batch.now_us, self._entropy, max(greatest, self._last), field="ref.checkpoint_id"
        )
        return self._last


def _followers(connection: Connection, number: int, target: Source) -> list[Follower]:
    """Return the stateful subgraphs that have gone on since a root checkpoint began."""
    found: list[Follower] = []
    for namespace in closures.stateful_namespaces(connection, number):
        left = ""
        if target.parent_id:
            left = closures.left_at(connection, number, target.parent_id, namespace)
        if left == closures.latest(connection, number, namespace):
            continue
        earlier = None
        if left:
            numbers = sources.numbers_of(connection, number, [(namespace, left)])
            [earlier] = sources.read(connection, numbers)
        found.append(Follower(namespace, earlier))
    return found


def _append_follower(
    batch: Batch,
    log: Log,
    place: Place,
    follower: Follower,
    root_id: str,
    values: dict[bytes, StoredValue],
) -> int:
    """Append to a subgraph what it goes back to; return the bytes that are stored."""
    earlier = follower.earlier
    if earlier is not None:
        metadata = rollback.metadata_of(earlier.metadata, place[0], root_id)
        return _append(batch, log, place, earlier, metadata, values)
    latest = batch.checkpoint(log, (place[0], batch.greatest(log, place[0])))
    frame = decode_state(latest.state, {}).frame if latest is not None else b""
    metadata = rollback.metadata_of_nothing(root_id)
    new = NewCheckpoint(
        place=place,
        parent_id="",
        state=rollback.frame_of_nothing(frame, batch.now_us),
        metadata=metadata.raw,
        run_id=metadata.run_id,
        root_id=metadata.root_id,
        delta_channels=NO_NAMES,
        created_us=batch.now_us,
        summary="Rolled back to before its first run.",
    )
    insert_checkpoint(batch, log, new)
    return new.new_bytes


def _append(
    batch: Batch,
    log: Log,
    place: Place,
    earlier: Source,
    metadata: Metadata,
    values: dict[bytes, StoredValue],
) -> int:
    """Append the state of an earlier checkpoint; return the bytes that are stored."""
    reference = str(CheckpointKey(log.row.thread_id, *earlier.place))
    frame = rollback.frame_of(decode_state(earlier.state, {}).frame, batch.now_us)
    needed = referred(earlier.state, earlier.delta_base)
    new = NewCheckpoint(
        place=place,
        parent_id=earlier.parent_id,
        state=encode_state(frame, decode_channels(earlier.state)),
        metadata=metadata.raw,
        run_id=metadata.run_id,
        root_id=metadata.root_id,
        delta_channels=earlier.delta_channels,
        created_us=batch.now_us,
        delta_base=earlier.delta_base,
        summary=rollback.summary_of(reference, earlier.summary),
        lineage=Lineage(rolled_back_from=reference),
        values=[values[digest] for digest in sorted(needed & values.keys())],
    )
    insert_checkpoint(batch, log, new)
    return new.new_bytes


def _values(
    connection: Connection,
    family: int,
    at: ThreadRow,
    earlier: Sequence[Source],
    supplied: Supplied,
) -> dict[bytes, StoredValue]:
    """Return the values that a thread's family lacks.

    Raises:
        ValuesEvicted: They were evicted where the earlier checkpoints are stored, too.
    """
    needed = {one.place: referred(one.state, one.delta_base) for one in earlier}
    wanted = set().union(*needed.values())
    lacking = wanted - contents.present(connection, family, wanted)
    found = {
        digest: stored_value(digest, supplied[digest]) for digest in lacking if digest in supplied
    }
    if at.family != family:
        others = contents.read(connection, at.family, lacking - found.keys())
        found.update(
            (digest, stored_value(digest, value))
            for digest, value in others.items()
            if value is not EVICTED
        )
    missing = lacking - found.keys()
    if missing:
        raise ValuesEvicted(
            missing,
            (
                place
                for one in earlier
                for place in places_of(connection, at, one, {}, needed[one.place] & missing)
            ),
        )
    return found
