"""Rolling back: appending a checkpoint that has the state of an earlier one."""

from __future__ import annotations

import json
from dataclasses import dataclass

from sqlalchemy import Connection, select

from ..domain import rollback
from ..domain.checkpoint_ids import mint_next_checkpoint_id
from ..domain.errors import Reason, Refusal
from ..domain.model import CheckpointKey, Lineage, Metadata, Saved
from ..domain.state import decode_channels, decode_state, encode_state
from . import closures, evicting, grafts, reads, threads
from .lineage_api import Supplied, ValuesEvicted
from .schema import checkpoints, contents, references
from .statements import Statement, of_checkpoint, of_namespace, parameters_of
from .threads import ThreadRow

_SOURCE = Statement(
    select(
        checkpoints.c.parent_id,
        checkpoints.c.state,
        checkpoints.c.metadata,
        checkpoints.c.delta_channels,
        checkpoints.c.summary,
        checkpoints.c.hidden,
    ).where(of_checkpoint(checkpoints))
)
_LATEST = Statement(
    select(checkpoints.c.checkpoint_id, checkpoints.c.state)
    .where(of_namespace(checkpoints), checkpoints.c.hidden.is_(False))
    .order_by(checkpoints.c.checkpoint_id.desc())
    .limit(1)
)
_EVICTED = Statement(
    select(references.c.digest)
    .join(
        contents,
        (contents.c.tenant == references.c.tenant) & (contents.c.digest == references.c.digest),
    )
    .where(of_checkpoint(references), contents.c.data.is_(None))
)


@dataclass(frozen=True, slots=True)
class Source:
    """A stored checkpoint as far as a rollback asks for it.

    Attributes:
        key: The checkpoint of the thread that is rolled back to.
        at: Where it is stored: there, or in a snapshot that captured it.
        parent_id: Its parent, or empty.
        state: Stored form of its state.
        metadata: The metadata's exact bytes.
        delta_channels: Stored form of the names of its delta channels.
        summary: One sentence, or empty.
        hidden: Readers do not see it in its thread.
    """

    key: CheckpointKey
    at: CheckpointKey
    parent_id: str
    state: bytes
    metadata: bytes
    delta_channels: bytes
    summary: str
    hidden: bool


def source(connection: Connection, tenant: str, key: CheckpointKey) -> Source | None:
    """Return a checkpoint, hidden or not, or `None`."""
    row = _SOURCE.run(connection, **parameters_of(tenant, key)).fetchone()
    return Source(key, key, *row) if row is not None else None


def roll_back(
    connection: Connection,
    thread: ThreadRow,
    target: Source,
    supplied: Supplied,
    now_us: int,
    entropy: int,
) -> Saved:
    """Append to a thread a checkpoint with the state of an earlier one of it.

    A root checkpoint takes along the subgraphs that keep a state of their own: each gets a
    checkpoint with the state in which the runs before the target left it. Those come
    first, so that "the latest before the root's" finds them.

    Args:
        connection: In a write transaction.
        thread: The thread; the caller stores it.
        target: The earlier checkpoint.
        supplied: Values that were evicted and have been read.
        now_us: Time of the change.
        entropy: 62 random bits.

    Raises:
        Refusal: `INVALID_FIELD` if no ID can be minted.
        ValuesEvicted: It needs values that are not here.
    """
    tenant, key = thread.tenant, target.key
    followers = [] if key.checkpoint_ns else _followers(connection, thread, target)
    _restore(connection, tenant, [target, *(one for _, one in followers if one)], supplied)
    minted = _Minter(connection, thread, now_us, entropy)
    ids = [minted.above(namespace) for namespace, _ in followers]
    new = CheckpointKey(key.thread_id, key.checkpoint_ns, minted.above(key.checkpoint_ns))
    for (namespace, follower), checkpoint_id in zip(followers, ids, strict=True):
        place = CheckpointKey(key.thread_id, namespace, checkpoint_id)
        _append_follower(connection, thread, place, follower, new.checkpoint_id, now_us)
    metadata = rollback.metadata_of(target.metadata, key.checkpoint_ns, "")
    _append(connection, thread, new, target, metadata, now_us)
    threads.review_head(connection, thread)
    size = len(target.state)
    return Saved(new, 1, thread.seq, thread.incarnation, size, alone=not followers)


class _Minter:
    """Mints IDs above the greatest of their namespaces, each above the one before."""

    def __init__(
        self, connection: Connection, thread: ThreadRow, now_us: int, entropy: int
    ) -> None:
        self._connection = connection
        self._thread = thread
        self._now_us = now_us
        self._entropy = entropy
        self._last = ""

    def above(self, namespace: str) -> str:
        greatest = threads.greatest(
            self._connection, self._thread.tenant, self._thread.thread_id, namespace
        )
        self._last = mint_next_checkpoint_id(
            self._now_us, self._entropy, max(greatest, self._last), field="ref.checkpoint_id"
        )
        return self._last


def _followers(
    connection: Connection, thread: ThreadRow, target: Source
) -> list[tuple[str, Source | None]]:
    """Return the stateful subgraphs that have gone on, with what to take each back to.

    `None`: to before its first run.
    """
    tenant, thread_id = thread.tenant, thread.thread_id
    found: list[tuple[str, Source | None]] = []
    for namespace in closures.stateful_namespaces(connection, tenant, thread_id):
        left = ""
        if target.parent_id:
            parent = CheckpointKey(thread_id, "", target.parent_id)
            left = closures.left_at(
                connection, tenant, parent, namespace, with_hidden=target.hidden
            )
        if left == threads.latest(connection, tenant, thread_id, namespace):
            continue
        key = CheckpointKey(thread_id, namespace, left)
        found.append((namespace, source(connection, tenant, key) if left else None))
    return found


def _append_follower(
    connection: Connection,
    thread: ThreadRow,
    key: CheckpointKey,
    follower: Source | None,
    root_id: str,
    now_us: int,
) -> None:
    if follower is not None:
        metadata = rollback.metadata_of(follower.metadata, key.checkpoint_ns, root_id)
        _append(connection, thread, key, follower, metadata, now_us)
        return
    _, state = _LATEST.run(connection, **parameters_of(thread.tenant, key)).fetchone() or ("", b"")
    grafts.insert_checkpoint(
        connection,
        thread,
        grafts.Graft(
            key=key,
            parent_id="",
            state=rollback.frame_of_nothing(decode_state(state, {}).frame, now_us),
            channels=(),
            metadata=rollback.metadata_of_nothing(root_id),
            summary="Rolled back to before its first run.",
        ),
        now_us,
    )


def _append(
    connection: Connection,
    thread: ThreadRow,
    key: CheckpointKey,
    earlier: Source,
    metadata: Metadata,
    now_us: int,
) -> None:
    channels = decode_channels(earlier.state)
    frame = rollback.frame_of(decode_state(earlier.state, {}).frame, now_us)
    grafts.insert_checkpoint(
        connection,
        thread,
        grafts.Graft(
            key=key,
            parent_id=earlier.parent_id,
            state=encode_state(frame, channels),
            channels=channels,
            metadata=metadata,
            delta_channels=json.loads(earlier.delta_channels),
            summary=rollback.summary_of(str(earlier.key), earlier.summary),
            lineage=Lineage(rolled_back_from=str(earlier.key)),
        ),
        now_us,
    )


def _restore(
    connection: Connection, tenant: str, earlier: list[Source], supplied: Supplied
) -> None:
    """See to it that all values are here: the new checkpoints have no envelopes yet."""
    lacking = []
    for one in earlier:
        of = parameters_of(tenant, one.at)
        gone = [row[0] for row in _EVICTED.run(connection, **of).fetchall()]
        evicting.restore(
            connection, tenant, {digest: supplied[digest] for digest in gone if digest in supplied}
        )
        if any(digest not in supplied for digest in gone):
            lacking.append(reads.source(connection, tenant, one.at))
    if lacking:
        raise ValuesEvicted(lacking)


def check_head(
    connection: Connection, thread: ThreadRow, checkpoint_ns: str, expected: str | None
) -> None:
    """Compare the head of a namespace with the expected one, if one is.

    Raises:
        Refusal: `HEAD_MOVED`.
    """
    if expected is None:
        return
    head = threads.latest(connection, thread.tenant, thread.thread_id, checkpoint_ns)
    if head != expected:
        raise Refusal(
            Reason.HEAD_MOVED,
            thread_id=thread.thread_id,
            checkpoint_ns=checkpoint_ns,
            head=head,
            expected=expected,
        )
